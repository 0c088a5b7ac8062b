"""Segment ids: numbering them, and finding them again."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from platt_jax.threads import in_order, pieces

# A table over the whole range of integer ids beats sorting while it is no longer than this, or
# than a few times the rows.
_TABLE = 1 << 20

# While there are so few possible ids, or so many rows for each, it does not matter if most of them
# are nobody's.
_SMALL_TABLE = 1 << 12
_ROWS_EACH = 8

_CHARACTER_BYTES = 4  # of NumPy's text
_MOST_CHARACTERS = 8
_BIG_ENDIAN = np.dtype(">u8")  # in which the first character weighs most
# In the time that one row of text is found sooner, so many keys become integers.
_KEYS_A_ROW = 16


class Numbered(NamedTuple):
    """Rows with the numbers of their segments, from 0 on; there may be numbers that no row has."""

    ids: np.ndarray  # (N,) integers
    low: np.ndarray | int  # a row's number is its id less this
    numbers: int  # how many there are
    keys: np.ndarray | None  # (numbers,) the segments; None where the ids are the segments

    def of(self, piece: slice, out: np.ndarray | None = None) -> np.ndarray:
        """The numbers of a piece of the rows, int64."""
        if out is None and self.low == 0 and self.ids.dtype == np.int64:
            return self.ids[piece]
        return np.subtract(self.ids[piece], self.low, out=out, dtype=np.int64, casting="unsafe")

    def named(self, numbers: np.ndarray) -> np.ndarray:
        """The segments with these numbers."""
        if self.keys is None:
            return numbers.astype(self.ids.dtype) + self.low
        return self.keys[numbers]


def numbered(segments: np.ndarray) -> Numbered:
    """The rows with their segments' numbers, in the order of the ids, or of their appearance.

    Raises:
        ValueError: NaN among the segments, or ids that cannot be hashed.
    """
    _refuse_nan(segments)
    if segments.dtype == object:
        keys, numbers = _number_objects(segments)
        return Numbered(numbers, 0, len(keys), keys)
    table = _table_range(segments, len(segments))
    if table is None:
        keys, numbers = _unique(segments)
        return Numbered(numbers, 0, len(keys), keys)
    low, length = table
    few = max(_SMALL_TABLE, len(segments) // _ROWS_EACH)
    if 0 <= low <= few - length:
        return Numbered(segments, 0, int(low) + length, None)
    as_they_are = Numbered(segments, low, length, None)
    return as_they_are if length <= few else _close_up(as_they_are)


def _unique(ids):
    """The distinct ids, ascending, and the number of each row's."""
    short = _as_integers(ids)
    if short is None:
        return np.unique(ids, return_inverse=True)
    keys, numbers = np.unique(short, return_inverse=True)
    return _as_text(keys, ids.dtype), numbers


def _as_integers(ids):
    """Text of up to eight Latin-1 characters as uint64 in the same order; None of anything else.

    A byte per character, and zeros after them as in NumPy's text. Integers are sorted in a seventh
    of the time.
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


def _as_text(integers, dtype):
    """The text that `_as_integers` made these of."""
    packed = integers.astype(_BIG_ENDIAN).view(np.uint8).reshape(len(integers), _MOST_CHARACTERS)
    characters = packed[:, : dtype.itemsize // _CHARACTER_BYTES].astype(np.uint32)
    return characters.view(dtype.newbyteorder("="))[:, 0].astype(dtype, copy=False)


def _close_up(wide: Numbered) -> Numbered:
    """The same rows without the numbers that none of them has."""
    present = np.zeros(wide.numbers, bool)
    for piece in pieces(len(wide.ids)):
        present[wide.of(piece)] = True
    where = np.cumsum(present, dtype=np.int32) - np.int32(1)
    keys = wide.named(np.flatnonzero(present))
    where = where.astype(np.min_scalar_type(len(keys)))
    numbers = np.empty(len(wide.ids), where.dtype)

    def find(piece):
        where.take(wide.of(piece), mode="clip", out=numbers[piece])

    list(in_order(find, pieces(len(numbers))))
    return Numbered(numbers, 0, len(keys), keys)


def locate(keys: np.ndarray, segments: np.ndarray, name: str = "segments") -> np.ndarray:
    """For each row the index of its segment among keys, -1 where it is not there.

    Raises:
        ValueError: text is looked up among numbers, or numbers among text.
    """
    return locator(keys, segments, name)(segments)


def locator(keys: np.ndarray, segments: np.ndarray, name: str) -> Callable:
    """What `locate` does, as a function that may be called with the segments part by part."""
    if keys.dtype == object or segments.dtype == object:
        where = {key: i for i, key in enumerate(keys.tolist())}
        return lambda some: np.fromiter(
            (where.get(s, -1) for s in some.tolist()), np.int64, len(some)
        )
    if (keys.dtype.kind == "U") != (segments.dtype.kind == "U"):
        raise ValueError(f"{name}: expected ids of the kind of {keys.dtype}, got {segments.dtype}")
    if keys.dtype.kind in "iu" and segments.dtype.kind in "iu" and keys.dtype != segments.dtype:
        return _locate_other_integers(keys, segments, name)
    if (table := _table_range(keys, len(segments))) is not None:
        return _locate_by_table(keys, *table)

    many = len(segments) > len(keys) // _KEYS_A_ROW
    short_keys = _as_integers(keys) if many else None

    def by_bisection(some):
        short = None if short_keys is None else _as_integers(some)
        return _bisect(keys, some) if short is None else _bisect(short_keys, short)

    return by_bisection


def _bisect(keys, ids):
    found = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
    return np.where(keys[found] == ids, found, -1)


def _locate_other_integers(keys, segments, name):
    """NumPy would compare int64 with uint64 as float64."""
    ends = np.iinfo(keys.dtype)
    find = locator(keys, segments.astype(keys.dtype), name)
    return lambda some: np.where(
        (some >= ends.min) & (some <= ends.max), find(some.astype(keys.dtype)), -1
    )


def _locate_by_table(keys, low, length):
    places = np.full(length + 1, -1)  # the last one is for whatever lies outside
    places[np.subtract(keys, low, dtype=np.int64, casting="unsafe")] = np.arange(len(keys))

    def find(some):
        # Below the lowest key the difference wraps around to a huge number.
        offsets = np.subtract(some, low, dtype=np.int64, casting="unsafe").view(np.uint64)
        return places[np.minimum(offsets, np.uint64(length))]

    return find


def _table_range(ids, rows):
    """(smallest id, range) where a table over the range is cheap for so many rows, else None."""
    if ids.dtype.kind not in "iu":
        return None
    low, high = int(ids.min()), int(ids.max())
    length = high - low + 1
    return (ids.dtype.type(low), length) if length <= max(_TABLE, 4 * rows) else None


def _refuse_nan(segments):
    """NaN is no id: it is not even equal to itself."""
    if segments.dtype.kind in "fcO" and (unequal := segments != segments).any():
        raise ValueError(f"segments: expected ids, got NaN at row {np.argmax(unequal)}")


def _number_objects(segments):
    where: dict = {}
    try:
        codes = np.fromiter(
            (where.setdefault(s, len(where)) for s in segments.tolist()), np.int64, len(segments)
        )
    except TypeError as error:
        raise ValueError(f"segments: expected hashable ids ({error})") from None
    if all(isinstance(key, str) for key in where):
        keys = np.array(list(where), str)
    else:
        keys = np.empty(len(where), object)
        keys[:] = list(where)
    try:
        order = np.argsort(keys, kind="stable")
    except TypeError:
        return keys, codes
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return keys[order], rank[codes]
