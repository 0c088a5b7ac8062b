"""Looks segment ids up among keys."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.ids import Coded, IdColumns, Ids, as_objects, kind, length, times
from platt_jax.ids.factorize import (
    as_integers,
    ascending,
    distinct,
    split_columns,
    table_range,
)

# Number of keys whose conversion to integers takes the time that it saves for one row of text.
_KEYS_A_ROW = 16

_PYTHONS_TIMES = np.dtype("M8[us]")  # holds all of Python's dates and datetimes

# Maximum number for combinations of several columns, far from where int64 overflows.
_MOST_CODES = 1 << 62

# Maps ids to their places among keys, or to -1.
_Finder: TypeAlias = Callable[[NDArray[Any]], Integers]


def get_indexer(keys: NDArray[Any], segments: Ids, name: str = "segments") -> Integers:
    """The index of each row's segment among keys, or -1.

    Ids of a type that no key can equal are refused: text among numbers, 1.5 among integers.
    """
    return indexer(keys, segments, name)(slice(None))


def places(keys: NDArray[Any], wanted: NDArray[Any]) -> Integers:
    """The place of each wanted id among distinct keys in any order, or -1."""
    sorted_keys, order = ascending(keys)
    positions = np.full(len(sorted_keys) + 1, -1)
    positions[order] = np.arange(len(keys))
    # Ids that are not known have the place -1, the last.
    return positions[get_indexer(sorted_keys, split_columns(wanted))]


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
        positions = indexer(keys, values, name)(slice(None))
        return lambda rows: positions[segments.codes[rows]]
    if keys.dtype.names is not None or isinstance(segments, IdColumns):
        return _columns_indexer(keys, segments, name)
    if segments.dtype != object and _by_dict(keys, segments):
        values, codes = np.unique(segments, return_inverse=True)
        positions = _finder(keys, values, name)(values)
        return lambda rows: positions[codes[rows]]
    find = _finder(keys, segments, name)
    return lambda rows: find(segments[rows])


def _columns_indexer(keys: NDArray[Any], segments: Ids, name: str) -> Callable[[slice], Integers]:
    """Finds each column's id among the keys' ids in that column, then the combination."""
    fields = keys.dtype.names or ()
    count = len(segments.columns) if isinstance(segments, IdColumns) else 0
    if not isinstance(segments, IdColumns) or count != len(fields):
        expected = f"ids of the columns {fields}" if fields else "one id per row"
        actual = f"{count} columns" if count else "one id per row"
        raise ValueError(f"{name}: expected {expected}, as fitted, got {actual}")
    columns = dict(zip(segments.names, segments.columns, strict=True))
    if set(columns) != set(fields):  # match by position
        columns = dict(zip(fields, segments.columns, strict=True))
    finders, sizes = [], []
    shorter: list[NDArray[np.int64] | None] = []
    combined, possible = np.zeros(len(keys), np.int64), 1
    for field in fields:
        values, numbers = distinct(keys[field])
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
        is_known = np.all([number >= 0 for number in numbers], axis=0)
        code: Integers = np.zeros(len(numbers[0]), np.int64)
        for number, size, codes in zip(numbers, sizes, shorter, strict=True):
            if codes is not None:
                code = _bisect(codes, code)
                is_known &= code >= 0
            code = code * size + number
        positions = find(code)
        return np.where(is_known & (positions >= 0), order[positions], -1)

    return find_rows


def _by_dict(keys: NDArray[Any], segments: NDArray[Any]) -> bool:
    """Whether only Python compares these exactly."""
    pair = {"i" if x.dtype.kind in "biu" else x.dtype.kind for x in (keys, segments)}
    return "O" in pair or (len(pair) > 1 and pair <= set("ifc"))


def _finder(keys: NDArray[Any], segments: NDArray[Any], name: str) -> _Finder:
    """A function that finds ids of the segments' dtype among the keys."""
    _require_same_kind(keys, segments, name)
    if keys.dtype.kind == "M" and segments.dtype == object:  # dates and datetimes
        find = _finder(keys, segments.astype(_PYTHONS_TIMES), name)
        return lambda row_ids: find(row_ids.astype(_PYTHONS_TIMES))
    if _by_dict(keys, segments):
        index_of = {key: i for i, key in enumerate(as_objects(keys).tolist())}
        return lambda row_ids: np.fromiter(
            (index_of.get(s, -1) for s in as_objects(row_ids).tolist()), np.int64, len(row_ids)
        )
    if keys.dtype.kind in "mM" and keys.dtype != segments.dtype:
        return lambda row_ids: _bisect_exactly(keys, row_ids)
    if keys.dtype.kind in "iu" and segments.dtype.kind in "iu" and keys.dtype != segments.dtype:
        return _find_other_integers(keys, segments, name)
    if (table := table_range(keys, len(segments))) is not None:
        return _table_indexer(keys, *table)

    many = len(segments) > len(keys) // _KEYS_A_ROW
    short_keys = as_integers(keys) if many else None

    def by_bisection(some: NDArray[Any]) -> Integers:
        if short_keys is None or (short := as_integers(some)) is None:
            return _bisect(keys, some)
        return _bisect(short_keys, short)

    return by_bisection


def _require_same_kind(keys: NDArray[Any], segments: NDArray[Any], name: str) -> None:
    expected = {kind(key) for key in keys.tolist()} if keys.dtype == object else {kind(keys)}
    if len(expected) > 1:  # with such keys, an id may be of any kind
        return

    def refused(got: str) -> ValueError:
        kinds = ", ".join(expected)
        return ValueError(
            f"{name}: expected ids of the kind of {keys.dtype} keys ({kinds}), got {got}"
        )

    if segments.dtype != object and kind(segments) not in expected:
        raise refused(f"{kind(segments)} ({segments.dtype})")
    if segments.dtype == object:
        for value in segments.tolist():
            if kind(value) not in expected:
                raise refused(f"{kind(value)} ({value!r})")
    if keys.dtype.kind in "biu" and segments.dtype.kind == "f":
        fractions = segments[segments != np.floor(segments)]
        if len(fractions):
            raise refused(f"{fractions[0]}")


def _bisect(keys: NDArray[Any], ids: NDArray[Any]) -> Integers:
    positions = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where(keys[positions] == ids, positions, -1)


def _bisect_exactly(keys: NDArray[Any], ids: NDArray[Any]) -> Integers:
    """For times of two units: NumPy compares them in the finer one, where distant ones overflow."""
    converted, is_exact = times.in_dtype(ids, keys.dtype)
    return np.where(is_exact, _bisect(keys, converted), -1)


def _find_other_integers(keys: Integers, segments: Integers, name: str) -> _Finder:
    """For two integer dtypes: NumPy would compare int64 with uint64 as float64."""
    ends = np.iinfo(keys.dtype)
    find = _finder(keys, segments.astype(keys.dtype), name)
    return lambda row_ids: np.where(
        (row_ids >= ends.min) & (row_ids <= ends.max), find(row_ids.astype(keys.dtype)), -1
    )


def _table_indexer(keys: Integers, low: np.integer[Any], length: int) -> _Finder:
    places: Integers = np.full(length + 1, -1)  # the last place is for ids outside the table
    places[np.subtract(keys, low, dtype=np.int64, casting="unsafe")] = np.arange(len(keys))

    def find(some: Integers) -> Integers:
        # Below the lowest key, the difference wraps around to a huge number.
        offsets: NDArray[np.uint64]
        offsets = np.subtract(some, low, dtype=np.int64, casting="unsafe").view(np.uint64)
        return places[np.minimum(offsets, np.uint64(length))]

    return find
