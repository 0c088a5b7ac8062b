"""Segment ids: grouping rows by them, and finding them again."""

from collections.abc import Callable

import numpy as np

from platt_jax.threads import in_order, pieces

# A table over the whole range of integer ids beats sorting while it is no longer than this, or
# than a few times the rows.
_TABLE = 1 << 20


def group(segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct segments, and for each row which of them it has.

    Returns:
        keys (K,): ascending; in order of appearance where the ids have no order.
        codes (N,): integers with segments == keys[codes].

    Raises:
        ValueError: NaN among the segments, or ids that cannot be hashed.
    """
    _refuse_nan(segments)
    if segments.dtype == object:
        return _group_objects(segments)
    table = _table_range(segments, len(segments))
    if table is None:
        keys, codes = np.unique(segments, return_inverse=True)
        return keys, codes.reshape(-1)
    low, length = table

    def offsets(piece):
        return np.subtract(segments[piece], low, dtype=np.int64, casting="unsafe")

    present = np.zeros(length, bool)
    for piece in pieces(len(segments)):
        present[offsets(piece)] = True
    keys = np.flatnonzero(present).astype(segments.dtype) + low
    where = np.cumsum(present, dtype=np.int32) - np.int32(1)
    where = where.astype(np.min_scalar_type(len(keys)))
    codes = np.empty(len(segments), where.dtype)

    def find(piece):
        where.take(offsets(piece), mode="clip", out=codes[piece])

    list(in_order(find, pieces(len(segments))))
    return keys, codes


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

    def by_bisection(some):
        found = np.minimum(np.searchsorted(keys, some), len(keys) - 1)
        return np.where(keys[found] == some, found, -1)

    return by_bisection


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


def _group_objects(segments):
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
