"""Joins ids of several arrays in one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids import times
from platt_jax.ids.containers import structured
from platt_jax.ids.objects import as_objects, require_savable


def join(parts: Sequence[NDArray[Any]], name: str = "segments") -> NDArray[Any]:
    """Concatenates arrays of ids. Ids in the result are equal exactly if they were equal before.

    NumPy's own rules convert int64 and uint64 to floats, which merges large ids. They also change
    dates that are joined with nanoseconds. The result has a plain dtype that holds all of them
    exactly: integers if all are integers, times in the finest unit that reaches far enough; or
    Python objects if there is no such dtype. Columns of structured arrays are matched by name, or
    by position if the names differ. Empty arrays do not affect the dtype. Ids without a common
    dtype that a file could not store as objects are refused.
    """
    parts = [part for part in parts if len(part)] or parts[:1]
    if len({part.dtype for part in parts}) == 1:
        return np.concatenate(parts)
    columns = {part.dtype.names and len(part.dtype.names) for part in parts}
    if len(columns) == 1 and None not in columns:
        return _join_columns(parts, name)
    joined = _join_plain(parts, name)
    if joined is None:
        joined = np.concatenate([as_objects(part) for part in parts])
        require_savable(joined.tolist(), name)
    return joined


def _join_columns(parts: Sequence[NDArray[Any]], name: str) -> NDArray[Any]:
    names: tuple[str, ...] = parts[0].dtype.names or ()

    def column(part: NDArray[Any], place: int) -> NDArray[Any]:
        part_names = part.dtype.names or ()
        return part[names[place] if set(part_names) == set(names) else part_names[place]]

    return structured(
        names,
        [
            join([column(part, index) for part in parts], f"{name}, column {field!r}")
            for index, field in enumerate(names)
        ],
    )


def _join_plain(parts: Sequence[NDArray[Any]], name: str) -> NDArray[Any] | None:
    """The ids in a plain dtype, or None if that would change an id."""
    kinds = {part.dtype.kind for part in parts}
    if kinds <= set("biufc"):
        return _join_numbers(parts)
    if len(kinds) > 1 or kinds == {"V"}:
        return None
    if kinds <= set("mM"):
        try:
            return times.join(parts)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return np.concatenate(parts)  # text takes the largest width


def _join_numbers(parts: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    common = np.result_type(*parts)
    kinds = {part.dtype.kind for part in parts}
    if common.kind in "biu" or kinds <= set("fc"):
        return np.concatenate(parts)
    dtypes = [common] if "c" in kinds else [np.dtype(np.int64), np.dtype(np.uint64), common]
    for dtype in dtypes:
        with np.errstate(invalid="ignore"):  # fractions, and integers out of range
            converted = [part.astype(dtype) for part in parts]
        # Python compares integers with floats exactly.
        if all(x.tolist() == part.tolist() for x, part in zip(converted, parts, strict=True)):
            return np.concatenate(converted)
    return None
