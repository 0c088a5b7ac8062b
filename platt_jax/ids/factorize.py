"""Numbers segment ids. Text is sorted as integers, in a seventh of the time."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.backend.threads import ordered_map, row_slices
from platt_jax.ids import Coded, IdColumns, Ids, structured

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
    if isinstance(segments, IdColumns):
        return _factorize_columns(segments)
    if isinstance(segments, Coded):
        keys, positions = ascending(segments.values)
        ascending_already = len(positions) and (positions == np.arange(len(positions))).all()
        codes = segments.codes if ascending_already else positions[segments.codes]
        return Factorized(codes, 0, len(keys), keys)
    table = table_range(segments, len(segments))
    if table is None:
        keys, numbers = unique(segments)
        return Factorized(numbers, 0, len(keys), keys)
    low, length = table
    limit = max(_SMALL_TABLE, len(segments) // _ROWS_EACH)
    if 0 <= low <= limit - length:
        return Factorized(segments, 0, int(low) + length, None)
    direct = Factorized(segments, low, length, None)
    return direct if length <= limit else compact(direct)


def ascending(values: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """Distinct ids, ascending if they can be sorted, and the place of each value among them."""
    if values.dtype.names is not None:
        rows = compact(factorize(split_columns(values)))
        return rows.named(np.arange(rows.numbers)), rows.of(slice(None))
    if values.dtype != object:
        return np.unique(values, return_inverse=True)
    try:
        order = np.argsort(values, kind="stable")
    except TypeError:  # such as numbers and text
        order = np.arange(len(values))
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return values[order], positions


def _factorize_columns(segments: IdColumns) -> Factorized:
    """Rows get the same number if they have the same number in every column."""
    first, *other_columns = (factorize(column) for column in segments.columns)
    column_numbers = [np.arange(first.numbers)]  # for each number, the number in each column so far
    combined = first
    for column in other_columns:
        combined, pairs = _compact_pairs(combined, column)
        left, right = np.divmod(pairs, column.numbers)
        column_numbers = [*(numbers[left] for numbers in column_numbers), right]
    columns = [
        column.named(numbers)
        for column, numbers in zip((first, *other_columns), column_numbers, strict=True)
    ]
    return combined._replace(keys=structured(segments.names, columns))


def _compact_pairs(left: Factorized, right: Factorized) -> tuple[Factorized, Integers]:
    """The rows numbered by pairs of numbers, and the pairs, left * right.numbers + right."""
    pairs = np.empty(len(left.ids), np.int64)

    def pair(piece: slice) -> None:
        pair_numbers = np.multiply(left.of(piece), right.numbers, out=pairs[piece])
        pair_numbers += right.of(piece)

    list(ordered_map(pair, row_slices(len(pairs))))
    numbers = left.numbers * right.numbers
    if numbers <= max(_TABLE, 4 * len(pairs)):
        compacted = compact(Factorized(pairs, 0, numbers, None))
        return compacted, compacted.named(np.arange(compacted.numbers))
    distinct, codes = np.unique(pairs, return_inverse=True)
    return Factorized(codes, 0, len(distinct), None), distinct


def compact(wide: Factorized) -> Factorized:
    """The same rows without unused numbers."""
    present = np.zeros(wide.numbers, bool)
    for piece in row_slices(len(wide.ids)):
        present[wide.of(piece)] = True
    renumbering = np.cumsum(present, dtype=np.int32) - np.int32(1)
    keys = wide.named(np.flatnonzero(present))
    renumbering = renumbering.astype(np.min_scalar_type(len(keys)))
    numbers = np.empty(len(wide.ids), renumbering.dtype)

    def find(piece: slice) -> None:
        renumbering.take(wide.of(piece), mode="clip", out=numbers[piece])

    list(ordered_map(find, row_slices(len(numbers))))
    return Factorized(numbers, 0, len(keys), keys)


def split_columns(values: NDArray[Any]) -> Ids:
    """An array as ids. A structured array is split into its columns."""
    if values.dtype.names is None:
        return values
    columns = [values[field] for field in values.dtype.names]
    column_ids = (Coded(*distinct(x)[::-1]) if x.dtype == object else x for x in columns)
    return IdColumns(values.dtype.names, tuple(column_ids))


def distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """The distinct ids, ascending if they can be sorted, and the index of each id among them."""
    if keys.dtype != object:
        return np.unique(keys, return_inverse=True)
    code_of: dict[Any, int] = {}
    numbers = np.array([code_of.setdefault(key, len(code_of)) for key in keys.tolist()])
    values = np.empty(len(code_of), object)
    values[:] = list(code_of)
    return values, numbers


def table_range(ids: NDArray[Any], rows: int) -> tuple[np.integer[Any], int] | None:
    """(smallest id, range) if a table over the range is cheap for this many rows, else None."""
    if ids.dtype.kind not in "iu" or not len(ids):
        return None
    low, high = int(ids.min()), int(ids.max())
    length = high - low + 1
    return (ids.dtype.type(low), length) if length <= max(_TABLE, 4 * rows) else None


def unique(ids: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """The distinct ids, ascending if they can be sorted, and the index of each row's id."""
    if ids.dtype == object:
        keys, numbers = distinct(ids)
        keys, positions = ascending(keys)
        return keys, positions[numbers]
    short = as_integers(ids)
    if short is None:
        return _unique_text(ids) if ids.dtype.kind in "US" else np.unique(ids, return_inverse=True)
    keys, numbers = np.unique(short, return_inverse=True)
    return _as_text(keys, ids.dtype), numbers


def _unique_text(ids: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """`unique` for text of any length: by a 64-bit hash, followed by a comparison of all rows."""
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
    keys, positions = np.unique(ids[row], return_inverse=True)
    return keys, positions[codes]


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


def as_integers(ids: NDArray[Any]) -> NDArray[np.uint64] | None:
    """Text of up to eight Latin-1 characters as uint64 in the same order; None for other ids.

    A byte per character, followed by zeros as in NumPy's text.
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
    """The inverse of `as_integers`."""
    packed = integers.astype(_BIG_ENDIAN).view(np.uint8).reshape(len(integers), _MOST_CHARACTERS)
    characters = packed[:, : dtype.itemsize // _CHARACTER_BYTES].astype(np.uint32)
    return characters.view(dtype.newbyteorder("="))[:, 0].astype(dtype, copy=False)
