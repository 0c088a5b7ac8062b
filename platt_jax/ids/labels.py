"""Labels with two values of any kind: finds the labels of class 1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids
from platt_jax.columns import Column
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer

_NAMED = 5  # maximum number of values in a message


def labels_by_name(values: Column, pos_label: Any, axes: int) -> NDArray[np.int8]:
    """Labels as int8; arguments and errors as for `labels_and_other`."""
    return labels_and_other(values, pos_label, axes)[0]


def labels_and_other(
    values: Column, pos_label: Any, axes: int
) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Labels as int8 (1 where they equal pos_label, otherwise 0), and the one other value.

    It is returned as an array of length 1, or of length 0 if all labels equal pos_label. Scores
    have so many axes: values nested deeper are labels themselves.
    """
    name, values = columns.labelled("labels", values), columns.on_host(values)
    flat, shape = _flat(values, axes, isinstance(pos_label, tuple))
    rows = factorize(ids.read(flat, "labels"))
    numbers = rows.of(slice(None))
    used = np.flatnonzero(np.bincount(numbers))
    keys = rows.named(used)
    position = _place(keys, pos_label)
    if len(keys) > 1 + (position >= 0):
        names = ", ".join(_shown(keys[:_NAMED])) + (", ..." if len(keys) > _NAMED else "")
        raise ValueError(
            f"{name}: expected pos_label={pos_label!r} and at most one other value, got {names}"
        )
    if position < 0:
        return np.zeros(shape, np.int8), keys
    positive: NDArray[np.bool_] = numbers == used[position]
    return positive.view(np.int8).reshape(shape), np.delete(keys, position)


def _flat(values: Column, axes: int, tuples_are_labels: bool) -> tuple[Column, tuple[int, ...]]:
    """Labels as a flat column, and their shape; nested lists have at most these axes."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        return [values], ()
    if getattr(values, "shape", None) == ():
        return [_scalar(values)], ()
    if not isinstance(values, list | tuple):
        # pyarrow's columns have no shape.
        shape = getattr(values, "shape", None) or (len(values),)
        if len(shape) == 1:
            return values, shape
        return (values if hasattr(values, "ravel") else np.asarray(values)).ravel(), shape
    flat, shape = list(values), (len(values),)
    while len(shape) < axes and flat and all(_is_axis(x, tuples_are_labels) for x in flat):
        lengths = {len(x) for x in flat}
        if len(lengths) > 1:
            raise ValueError(f"labels: expected rows of one length, got lengths {sorted(lengths)}")
        flat, shape = [x for row in flat for x in row], (*shape, *lengths)
    # Elements such as JAX's scalars are not valid ids.
    arrays = any(hasattr(kind, "__array__") for kind in set(map(type, flat)))
    return [_scalar(x) for x in flat] if arrays else flat, shape


def _is_axis(value: Any, tuples_are_labels: bool) -> bool:
    if isinstance(value, tuple):
        return not tuples_are_labels
    return isinstance(value, list) or getattr(value, "ndim", 0) > 0


def _scalar(value: Any) -> Any:
    """The element of an array without axes; other values unchanged."""
    return np.asarray(value)[()] if getattr(value, "shape", None) == () else value


def _place(keys: NDArray[Any], pos_label: Any) -> int:
    """The index of the label among the distinct labels, or -1."""
    if (missing_name := ids.missing(pos_label)) is not None:
        raise ValueError(f"pos_label: expected a label, got {missing_name}")
    try:
        (position,) = get_indexer(keys, ids.read([_scalar(pos_label)], "pos_label"), "pos_label")
    except ValueError:
        raise ValueError(
            f"pos_label: expected a label such as {_shown(keys[:1])[0]}, got {pos_label!r}"
        ) from None
    return int(position)


def _shown(keys: NDArray[Any]) -> list[str]:
    # As text: Python would show nanoseconds as integers.
    return list(map(repr, (keys.astype(str) if keys.dtype.kind in "mM" else keys).tolist()))
