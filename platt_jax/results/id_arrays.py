"""Ids as plain arrays, one per column, for files."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.ids.objects import PLAIN, from_text, to_text

# The layout if the header has none: the names of the columns, None if it is one without a name, and
# whether each column has Python objects, which are stored as text.
ONE_PLAIN_COLUMN = {"fields": None, "objects": [False]}


def ids_to_arrays(name: str, keys: NDArray[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The layout of ids, for a header, and their columns as plain arrays by name."""
    columns, fields = ids.fields(keys), keys.dtype.names
    layout = {"fields": fields and list(fields), "objects": [x.dtype == object for x in columns]}
    arrays = dict(zip(id_names(name, layout), columns, strict=True))
    for array_name, column in arrays.items():
        if column.dtype == object:
            ids.require_savable(column.tolist(), name)
            arrays[array_name] = to_text(column)
    return layout, arrays


def arrays_to_ids(
    name: str, layout: dict[str, Any], read: Callable[[str], NDArray[Any]]
) -> NDArray[Any]:
    """The inverse of `ids_to_arrays`, given what returns the array of a name; checked."""
    columns = [
        from_text(read(column)) if is_object else read(column)
        for column, is_object in zip(id_names(name, layout), layout["objects"], strict=True)
    ]
    fields = layout["fields"]
    keys = columns[0] if fields is None else ids.structured(fields, columns)
    check_ids(name, keys)
    return keys


def id_names(name: str, layout: dict[str, Any]) -> list[str]:
    """The names of the arrays of ids."""
    fields = layout["fields"]
    return [name] if fields is None else [f"{name}_{i}" for i in range(len(fields))]


def check_ids(name: str, keys: NDArray[Any]) -> None:
    """Refuses ids that are not flat, or not distinct, or keys that are not ascending."""
    distinct: bool | np.bool_
    # Without segments a calibrator is only its fallback; without classes it is useless.
    if keys.ndim != 1 or not (len(keys) or name.endswith("keys")):
        raise ValueError(f"{name}: expected a flat array of ids, got shape {keys.shape}")
    if keys.dtype.kind in PLAIN and name.endswith("keys"):
        distinct = (keys[:-1] < keys[1:]).all()
    else:
        distinct = len(set(keys.tolist())) == len(keys)
    if not distinct:
        raise ValueError(f"{name}: expected distinct ids, and keys in ascending order")
