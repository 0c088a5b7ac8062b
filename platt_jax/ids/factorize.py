"""Numbers segment ids."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.backend.threads import ordered_map, row_slices
from platt_jax.ids import Coded, IdColumns, Ids, structured
from platt_jax.ids.text import unique

# Maximum length of a table over the range of integer ids, unless a few times the rows is longer.
# Up to there the table is faster than sorting.
_TABLE = 1 << 20

# Maximum number of possible ids, and minimum rows per possible id, to keep numbers that no row has.
_SMALL_TABLE = 1 << 12
_ROWS_EACH = 8


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
        keys, place = ascending(segments.values)
        ascending_already = len(place) and (place == np.arange(len(place))).all()
        codes = segments.codes if ascending_already else place[segments.codes]
        return Factorized(codes, 0, len(keys), keys)
    table = table_range(segments, len(segments))
    if table is None:
        keys, numbers = unique(segments)
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


def _factorize_columns(segments: IdColumns) -> Factorized:
    """Rows get the same number if they have the same number in every column."""
    first, *others = (factorize(column) for column in segments.columns)
    column_numbers = [np.arange(first.numbers)]  # for each number, the number in each column so far
    together = first
    for column in others:
        together, pairs = _compact_pairs(together, column)
        left, right = np.divmod(pairs, column.numbers)
        column_numbers = [*(numbers[left] for numbers in column_numbers), right]
    each = [
        column.named(numbers)
        for column, numbers in zip((first, *others), column_numbers, strict=True)
    ]
    return together._replace(keys=structured(segments.names, each))


def _compact_pairs(left: Factorized, right: Factorized) -> tuple[Factorized, Integers]:
    """The rows numbered by pairs of numbers, and the pairs, left * right.numbers + right."""
    pairs = np.empty(len(left.ids), np.int64)

    def pair(piece: slice) -> None:
        pair_numbers = np.multiply(left.of(piece), right.numbers, out=pairs[piece])
        pair_numbers += right.of(piece)

    list(ordered_map(pair, row_slices(len(pairs))))
    numbers = left.numbers * right.numbers
    if numbers <= max(_TABLE, 4 * len(pairs)):
        closed_up = _compact(Factorized(pairs, 0, numbers, None))
        return closed_up, closed_up.named(np.arange(closed_up.numbers))
    distinct, codes = np.unique(pairs, return_inverse=True)
    return Factorized(codes, 0, len(distinct), None), distinct


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


def split_columns(values: NDArray[Any]) -> Ids:
    """An array as ids. A structured array is split into its columns."""
    if values.dtype.names is None:
        return values
    columns = [values[field] for field in values.dtype.names]
    each = (Coded(*distinct(x)[::-1]) if x.dtype == object else x for x in columns)
    return IdColumns(values.dtype.names, tuple(each))


def distinct(keys: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    """The distinct ids, ascending if they can be sorted, and the index of each id among them."""
    if keys.dtype != object:
        return np.unique(keys, return_inverse=True)
    where: dict[Any, int] = {}
    numbers = np.array([where.setdefault(key, len(where)) for key in keys.tolist()])
    values = np.empty(len(where), object)
    values[:] = list(where)
    return values, numbers


def table_range(ids: NDArray[Any], rows: int) -> tuple[np.integer[Any], int] | None:
    """(smallest id, range) if a table over the range is cheap for this many rows, else None."""
    if ids.dtype.kind not in "iu" or not len(ids):
        return None
    low, high = int(ids.min()), int(ids.max())
    length = high - low + 1
    return (ids.dtype.type(low), length) if length <= max(_TABLE, 4 * rows) else None
