"""Levels as a header and plain arrays, for files."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.id_arrays import arrays_to_ids, id_names, ids_to_arrays
from platt_jax.results.levels import Level, Levels

# Fields of a level: whether their leading axis is the values', and their other axes.
_SHAPES = {
    "rows": (True, ()),
    "mean": (True, (2,)),
    "covariance": (True, (2, 2)),
    "spread": (False, (2, 2)),
    "spread_errors": (False, (2, 2)),
    "unseen": (False, (2, 2)),
    "share": (False, ()),
}
_OF_ALL = {"mean": (2,), "mean_covariance": (2, 2)}


def described(levels: Levels) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays of levels. No array holds Python objects."""
    header: dict[str, Any] = {"kind": levels.kind, "each": []}
    arrays = {f"levels_{name}": np.asarray(getattr(levels, name)) for name in _OF_ALL}
    for number, level in enumerate(levels.each):
        layout, columns = ids_to_arrays(_keys(number), level.keys)
        header["each"].append({"name": level.name, "ids": layout})
        arrays |= columns
        arrays |= {_field(number, name): np.asarray(getattr(level, name)) for name in _SHAPES}
    return header, arrays


def names(header: dict[str, Any]) -> list[str]:
    """The names of the arrays of levels with this header."""
    array_names = [f"levels_{name}" for name in _OF_ALL]
    for number, about in enumerate(header["each"]):
        array_names += id_names(_keys(number), about["ids"])
        array_names += [_field(number, name) for name in _SHAPES]
    return array_names


def assembled(header: dict[str, Any], read: Callable[[str], NDArray[Any]]) -> Levels:
    """The inverse of `described`, given a function that returns the array of a name."""
    if header["kind"] not in ("nested", "crossed") or not header["each"]:
        raise ValueError(f"levels: expected nested or crossed ones, got {header['kind']!r}")
    levels = []
    for number, about in enumerate(header["each"]):
        keys = arrays_to_ids(_keys(number), about["ids"], read)
        fields: dict[str, Any] = {
            name: _checked(read(_field(number, name)), keys.shape * per_value + axes)
            for name, (per_value, axes) in _SHAPES.items()
        }
        fields["share"] = float(fields["share"])
        levels.append(Level(str(about["name"]), keys, **fields))
    shared = {name: _checked(read(f"levels_{name}"), axes) for name, axes in _OF_ALL.items()}
    return Levels(header["kind"], tuple(levels), **shared)


def _checked(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    if shape[:1] == (0,) and array.shape == (0,):  # an empty JSON list has no shape
        array = array.reshape(shape)
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(f"expected floating numbers of shape {shape}, got {array.shape}")
    return array.astype(np.float64)


def _keys(number: int) -> str:
    return f"level{number}_keys"


def _field(number: int, name: str) -> str:
    return f"level{number}_{name}"
