"""Numbers segment ids, and looks them up."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids import Coded, Columns, Ids, as_objects, kind, length, structured, times
from platt_jax.threads import ordered_map, row_slices

# Maximum length of a table over the range of integer ids, unless a few times the rows is longer.
# Up to there the table is faster than sorting.
_TABLE = 1 << 20

# Maximum number of possible ids, and minimum rows per possible id, to keep numbers that no row has.
_SMALL_TABLE = 1 << 12
_ROWS_EACH = 8

_CHARACTER_BYTES = 4  # per character of NumPy's text
_MOST_CHARACTERS = 8
_BIG_ENDIAN = np.dtype(">u8")  # the first character is the most significant
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash: 2^64 / golden ratio
# Number of keys whose conversion to integers takes the time that it saves for one row of text.
_KEYS_A_ROW = 16


_PYTHONS_TIMES = np.dtype("M8[us]")  # holds all of Python's dates and datetimes

# Maximum number for combinations of several columns, far from where int64 overflows.
_MOST_CODES = 1 << 62

# Integers of any width.
Integers: TypeAlias = NDArray[np.integer[Any]]

# Maps ids to their places among keys, or to -1.
_Finder: TypeAlias = Callable[[NDArray[Any]], Integers]


class Factorized(NamedTuple):
    """Rows with the numbers of their segments, from 0 on. Some numbers may have no row."""

    ids: NDArray[Any]  # (N,) integers
    low: np.integer[Any] | int  # a row's number is its id minus this
    numbers: int  # how many numbers there are
    keys: NDArray[Any] | None  # (numbers,) the segments; None if the ids are the segments

    def of(self, piece: slice, out: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """The numbers (int64) of a slice of the rows."""
        if out is None and self.low == 0 and self.ids.dtype == np.int64:
            return self.ids[piece]
        ids = self.ids[piece]
        numbers: NDArray[np.int64]
        numbers = np.subtract(ids, self.low, out=out, dtype=np.int64, casting="unsafe")
        return numbers

    def named(self, numbers: Integers) -> NDArray[Any]:
        """The segments with these numbers."""
        if self.keys is None:
            return numbers.astype(self.ids.dtype) + self.low
        return self.keys[numbers]


def factorize(segments: Ids) -> Factorized:
    """The rows with their segments' numbers, in the order of the ids or of their appearance."""
    if isinstance(segments, Columns):
        return _factorize_columns(segments)
    if isinstance(segments, Coded):
        keys, place = ascending(segments.values)
        ascending_already = len(place) and (place == np.arange(len(place))).all()
        codes = segments.codes if ascending_already else place[segments.codes]
        return Factorized(codes, 0, len(keys), keys)
    table = _table_range(segments, len(segments))
    if table is None:
        keys, numbers = _unique(segments)
        return Factorized(numbers, 0, len(keys), keys)
    low, length = table
    few = max(_SMALL_TABLE, len(segments) // _ROWS_EACH)
    if 0 <= low <= few - length:
        return Factorized(segments, 0, int(low) + length, None)
    as_they_are = Factorized(segments, low, length, None)
    return as_they_are if length <= few else _compact(as_they_are)


def ascending(values: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """Distinct ids, ascending if they can be sorted, and the place of each value among them."""
    if values.dtype.names is not None:
        rows = factorize(split_columns(values))
        return rows.named(np.arange(rows.numbers)), rows.of(slice(None))
    if values.dtype != object:
        return np.unique(values, return_inverse=True)
    try:
        order = np.argsort(values, kind="stable")
    except TypeError:  # such as numbers and text
        order = np.arange(len(values))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return values[order], place


def _factorize_columns(segments: Columns) -> Factorized:
    """Rows get the same number if they have the same number in every column."""
    first, *others = (factorize(column) for column in segments.columns)
    of_columns = [np.arange(first.numbers)]  # for each number, the number in each column so far
    together = first
    for column in others:
        together, pairs = _compact_pairs(together, column)
        left, right = np.divmod(pairs, column.numbers)
        of_columns = [*(numbers[left] for numbers in of_columns), right]
    each = [
        column.named(numbers) for column, numbers in zip((first, *others), of_columns, strict=True)
    ]
    return together._replace(keys=structured(segments.names, each))


def _compact_pairs(left: Factorized, right: Factorized) -> tuple[Factorized, Integers]:
    """The rows numbered by pairs of numbers, and the pairs, left * right.numbers + right."""
    pairs = np.empty(len(left.ids), np.int64)

    def pair(piece: slice) -> None:
        of_left = np.multiply(left.of(piece), right.numbers, out=pairs[piece])
        of_left += right.of(piece)

    list(ordered_map(pair, row_slices(len(pairs))))
    numbers = left.numbers * right.numbers
    if numbers <= max(_TABLE, 4 * len(pairs)):
        closed_up = _compact(Factorized(pairs, 0, numbers, None))
        return closed_up, closed_up.named(np.arange(closed_up.numbers))
    distinct, codes = np.unique(pairs, return_inverse=True)
    return Factorized(codes, 0, len(distinct), None), distinct


def _unique(ids: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """The distinct ids, ascending, and the index of each row's id among them."""
    short = _as_integers(ids)
    if short is None:
        return _unique_text(ids) if ids.dtype.kind in "US" else np.unique(ids, return_inverse=True)
    keys, numbers = np.unique(short, return_inverse=True)
    return _as_text(keys, ids.dtype), numbers


def _unique_text(ids: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """`_unique` for text of any length: by a 64-bit hash, followed by a comparison of all rows.

    Sorting integers takes a seventh of the time of sorting text.
    """
    words = _words(ids)
    hashes = np.zeros(len(ids), np.uint64)
    for word in words.T:
        hashes = (hashes ^ word) * _HASH_FACTOR
        hashes ^= hashes >> np.uint64(32)
    distinct, codes = np.unique(hashes, return_inverse=True)
    row = np.empty(len(distinct), np.int64)
    row[codes] = np.arange(len(ids))  # an arbitrary row of each
    if not (words[row[codes]] == words).all():
        return np.unique(ids, return_inverse=True)  # two texts have the same hash
    keys, place = ascending(ids[row])
    return keys, place[codes]


def _words(ids: NDArray[Any]) -> NDArray[np.uint64]:
    """Text as (N, words) uint64, equal if the texts are; a byte per character if it fits."""
    width = ids.dtype.itemsize
    content = np.ascontiguousarray(ids, ids.dtype.newbyteorder("=")).view(np.uint8)
    content = content.reshape(len(ids), width)
    if ids.dtype.kind == "U" and width and len(ids):
        characters: NDArray[Any] = content.view(np.uint32)
        if characters.max() <= 0xFF:
            content, width = characters.astype(np.uint8), width // _CHARACTER_BYTES
    packed = np.zeros((len(ids), max(1, -(-width // 8)) * 8), np.uint8)
    packed[:, :width] = content
    return packed.view(np.uint64)


def _as_integers(ids: NDArray[Any]) -> NDArray[np.uint64] | None:
    """Text of up to eight Latin-1 characters as uint64 in the same order; None for other ids.

    A byte per character, followed by zeros as in NumPy's text. Sorting integers takes a seventh of
    the time.
    """
    width = ids.dtype.itemsize // _CHARACTER_BYTES
    if ids.dtype.kind != "U" or not 0 < width <= _MOST_CHARACTERS or len(ids) == 0:
        return None
    text = np.ascontiguousarray(ids, ids.dtype.newbyteorder("="))
    characters = text.view(np.uint32).reshape(len(ids), width)
    if characters.max() > 0xFF:
        return None
    packed = np.zeros((len(ids), _MOST_CHARACTERS), np.uint8)
    packed[:, :width] = characters
    return packed.view(_BIG_ENDIAN)[:, 0].astype(np.uint64)


def _as_text(integers: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The inverse of `_as_integers`."""
    packed = integers.astype(_BIG_ENDIAN).view(np.uint8).reshape(len(integers), _MOST_CHARACTERS)
    characters = packed[:, : dtype.itemsize // _CHARACTER_BYTES].astype(np.uint32)
    return characters.view(dtype.newbyteorder("="))[:, 0].astype(dtype, copy=False)


def _compact(wide: Factorized) -> Factorized:
    """The same rows without unused numbers."""
    present = np.zeros(wide.numbers, bool)
    for piece in row_slices(len(wide.ids)):
        present[wide.of(piece)] = True
    where = np.cumsum(present, dtype=np.int32) - np.int32(1)
    keys = wide.named(np.flatnonzero(present))
    where = where.astype(np.min_scalar_type(len(keys)))
    numbers = np.empty(len(wide.ids), where.dtype)

    def find(piece: slice) -> None:
        where.take(wide.of(piece), mode="clip", out=numbers[piece])

    list(ordered_map(find, row_slices(len(numbers))))
    return Factorized(numbers, 0, len(keys), keys)


def get_indexer(keys: NDArray[Any], segments: Ids, name: str = "segments") -> Integers:
    """The index of each row's segment among keys, or -1.

    Raises:
        ValueError: an id has a type that no key can equal: text among numbers, 1.5 among integers.
    """
    return indexer(keys, segments, name)(slice(None))


def indexer(keys: NDArray[Any], segments: Ids, name: str) -> Callable[[slice], Integers]:
    """`get_indexer` as a function of a slice of the rows."""
    if length(segments) == 0:  # no ids to check
        return lambda rows: np.empty(0, np.int64)
    if len(keys) == 0:
        return lambda rows: np.full(len(range(length(segments))[rows]), -1)
    if isinstance(segments, Coded):
        # Keys that are tuples of several lengths are compared whole, others column by column.
        values = (
            as_objects(segments.values) if keys.dtype == object else split_columns(segments.values)
        )
        where = indexer(keys, values, name)(slice(None))
        return lambda rows: where[segments.codes[rows]]
    if keys.dtype.names is not None or isinstance(segments, Columns):
        return _columns_indexer(keys, segments, name)
    if segments.dtype != object and _by_dict(keys, segments):
        values, codes = np.unique(segments, return_inverse=True)
        where = _finder(keys, values, name)(values)
        return lambda rows: where[codes[rows]]
    find = _finder(keys, segments, name)
    return lambda rows: find(segments[rows])


def _columns_indexer(keys: NDArray[Any], segments: Ids, name: str) -> Callable[[slice], Integers]:
    """Finds each column's id among the keys' ids in that column, then the combination."""
    fields = keys.dtype.names or ()
    got = len(segments.columns) if isinstance(segments, Columns) else 0
    if not isinstance(segments, Columns) or got != len(fields):
        expected = f"ids of the columns {fields}" if fields else "one id per row"
        what = f"{got} columns" if got else "one id per row"
        raise ValueError(f"{name}: expected {expected}, as fitted, got {what}")
    columns = dict(zip(segments.names, segments.columns, strict=True))
    if set(columns) != set(fields):  # match by position
        columns = dict(zip(fields, segments.columns, strict=True))
    finders, sizes = [], []
    shorter: list[NDArray[np.int64] | None] = []
    combined, possible = np.zeros(len(keys), np.int64), 1
    for field in fields:
        values, numbers = _distinct(keys[field])
        finders.append(indexer(values, columns[field], f"{name}, column {field!r}"))
        sizes.append(len(values))
        if possible * len(values) > _MOST_CODES:  # renumbered: at most as many as keys
            codes, combined = np.unique(combined, return_inverse=True)
            shorter.append(codes)
            possible = len(codes)
        else:
            shorter.append(None)
        combined = combined * len(values) + numbers
        possible *= len(values)
    order = np.argsort(combined)
    find = _finder(combined[order], np.empty(length(segments), np.int64), name)

    def find_rows(rows: slice) -> Integers:
        numbers = [finder(rows) for finder in finders]
        known = np.all([number >= 0 for number in numbers], axis=0)
        code: Integers = np.zeros(len(numbers[0]), np.int64)
        for number, size, codes in zip(numbers, sizes, shorter, strict=True):
            if codes is not None:
                code = _bisect(codes, code)
                known &= code >= 0
            code = code * size + number
        found = find(code)
        return np.where(known & (found >= 0), order[found], -1)

    return find_rows


def split_columns(values: NDArray[Any]) -> Ids:
    """An array as ids. A structured array is split into its columns."""
    if values.dtype.names is None:
        return values
    columns = [values[field] for field in values.dtype.names]
    each = (Coded(*_distinct(x)[::-1]) if x.dtype == object else x for x in columns)
    return Columns(values.dtype.names, tuple(each))


def _distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """The distinct ids, ascending if they can be sorted, and the index of each id among them."""
    if keys.dtype != object:
        return np.unique(keys, return_inverse=True)
    where: dict[Any, int] = {}
    numbers = np.array([where.setdefault(key, len(where)) for key in keys.tolist()])
    values = np.empty(len(where), object)
    values[:] = list(where)
    return values, numbers


def _by_dict(keys: NDArray[Any], segments: NDArray[Any]) -> bool:
    """Whether only Python compares these exactly."""
    pair = {"i" if x.dtype.kind in "biu" else x.dtype.kind for x in (keys, segments)}
    return "O" in pair or (len(pair) > 1 and pair <= set("ifc"))


def _finder(keys: NDArray[Any], segments: NDArray[Any], name: str) -> _Finder:
    """A function that finds ids of the segments' dtype among the keys."""
    _require_same_kind(keys, segments, name)
    if keys.dtype.kind == "M" and segments.dtype == object:  # dates and datetimes
        find = _finder(keys, segments.astype(_PYTHONS_TIMES), name)
        return lambda some: find(some.astype(_PYTHONS_TIMES))
    if _by_dict(keys, segments):
        where = {key: i for i, key in enumerate(as_objects(keys).tolist())}
        return lambda some: np.fromiter(
            (where.get(s, -1) for s in as_objects(some).tolist()), np.int64, len(some)
        )
    if keys.dtype.kind in "mM" and keys.dtype != segments.dtype:
        return lambda some: _bisect_exactly(keys, some)
    if keys.dtype.kind in "iu" and segments.dtype.kind in "iu" and keys.dtype != segments.dtype:
        return _find_other_integers(keys, segments, name)
    if (table := _table_range(keys, len(segments))) is not None:
        return _table_indexer(keys, *table)

    many = len(segments) > len(keys) // _KEYS_A_ROW
    short_keys = _as_integers(keys) if many else None

    def by_bisection(some: NDArray[Any]) -> Integers:
        if short_keys is None or (short := _as_integers(some)) is None:
            return _bisect(keys, some)
        return _bisect(short_keys, short)

    return by_bisection


def _require_same_kind(keys: NDArray[Any], segments: NDArray[Any], name: str) -> None:
    expected = {kind(key) for key in keys.tolist()} if keys.dtype == object else {kind(keys)}
    if len(expected) > 1:  # with such keys, an id may be of any kind
        return
    what = f"{name}: expected ids of the kind of {keys.dtype} keys ({', '.join(expected)}), got "
    if segments.dtype != object and kind(segments) not in expected:
        raise ValueError(f"{what}{kind(segments)} ({segments.dtype})")
    if segments.dtype == object:
        for value in segments.tolist():
            if kind(value) not in expected:
                raise ValueError(f"{what}{kind(value)} ({value!r})")
    if keys.dtype.kind in "biu" and segments.dtype.kind == "f":
        fractions = segments[segments != np.floor(segments)]
        if len(fractions):
            raise ValueError(f"{what}{fractions[0]}")


def _bisect(keys: NDArray[Any], ids: NDArray[Any]) -> Integers:
    found = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where(keys[found] == ids, found, -1)


def _bisect_exactly(keys: NDArray[Any], ids: NDArray[Any]) -> Integers:
    """For times of two units: NumPy compares them in the finer one, where distant ones overflow."""
    converted, kept = times.in_dtype(ids, keys.dtype)
    return np.where(kept, _bisect(keys, converted), -1)


def _find_other_integers(keys: Integers, segments: Integers, name: str) -> _Finder:
    """For two integer dtypes: NumPy would compare int64 with uint64 as float64."""
    ends = np.iinfo(keys.dtype)
    find = _finder(keys, segments.astype(keys.dtype), name)
    return lambda some: np.where(
        (some >= ends.min) & (some <= ends.max), find(some.astype(keys.dtype)), -1
    )


def _table_indexer(keys: Integers, low: np.integer[Any], length: int) -> _Finder:
    places: Integers = np.full(length + 1, -1)  # the last place is for ids outside the table
    places[np.subtract(keys, low, dtype=np.int64, casting="unsafe")] = np.arange(len(keys))

    def find(some: NDArray[Any]) -> Integers:
        # Below the lowest key, the difference wraps around to a huge number.
        offsets: NDArray[np.uint64]
        offsets = np.subtract(some, low, dtype=np.int64, casting="unsafe").view(np.uint64)
        return places[np.minimum(offsets, np.uint64(length))]

    return find


def _table_range(ids: NDArray[Any], rows: int) -> tuple[np.integer[Any], int] | None:
    """(smallest id, range) if a table over the range is cheap for this many rows, else None."""
    if ids.dtype.kind not in "iu":
        return None
    low, high = int(ids.min()), int(ids.max())
    length = high - low + 1
    return (ids.dtype.type(low), length) if length <= max(_TABLE, 4 * rows) else None
