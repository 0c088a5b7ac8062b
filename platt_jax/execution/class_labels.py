"""The classes of the columns of scores (N, C), and which rows are of them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.device_grouping import group_ids
from platt_jax.ids.factorize import ascending, factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.labels import labels_by_name
from platt_jax.results import tables
from platt_jax.results.device_rows import places_there


class Classes(NamedTuple):
    """The classes of the columns of scores (N, C)."""

    names: NDArray[Any]  # (C,) their ids
    labels: Any  # (N,) the column of each row's class; or (C, N) labels as by `validation.labels`

    @property
    def multilabel(self) -> bool:
        """Whether a row may be of several classes, or of none."""
        return bool(self.labels.ndim == 2)

    def are_of(self, some: Any, rows: slice) -> NDArray[np.int8]:
        """The labels of a slice of the rows for some columns, by a slice or by numbers."""
        if self.multilabel:
            labels: NDArray[np.int8] = self.labels[some, rows]
            return labels
        columns = np.arange(len(self.names))[:, None]
        return np.equal(self.labels[rows], columns[some]).view(np.int8)


def classes_of(
    class_ids: Column | None,
    class_labels: Column,
    shape: tuple[int, int],
    pos_label: Any = None,
) -> Classes:
    """The classes of scores of this shape (N, C); other arguments as of `ClassRows`."""
    dense = validation.array(class_labels, "labels")
    if dense.shape == shape:
        named = pos_label is not None
        columns = (labels_by_name(dense, pos_label, 2) if named else validation.labels(dense)).T
        names = np.arange(shape[1]) if class_ids is None else _named(class_ids, shape[1])
        return Classes(names, columns)
    if pos_label is not None:
        raise ValueError(f"pos_label: expected labels (N, C) beside it, got shape {dense.shape}")
    if dense.shape != shape[:1]:
        raise ValueError(
            f"labels: expected {shape[:1]} class ids or {shape} of {validation.LABEL_CODINGS}, "
            f"got shape {dense.shape}{validation.as_flat('labels', dense.shape, shape[:1])}"
        )
    row_labels = ids.read(class_labels, "labels")
    if class_ids is None:
        rows = factorize(row_labels)
        names = _one_per_column(rows.named(np.unique(rows.of(slice(None)))), shape[1])
    else:
        names = _named(class_ids, shape[1])
    keys, place = ascending(names)
    found = get_indexer(keys, row_labels, "labels")
    if (found < 0).any():
        raise _odd_class_error(ids.single_column(row_labels, "labels")[found < 0])
    return Classes(names, np.argsort(place)[found])


def classes_there(
    class_ids: Column | None, labels: jax.Array, shape: tuple[int, int], pos_label: Any
) -> Classes:
    """`classes_of` for labels on an accelerator, which stay there; those (N, C) are not checked."""
    if pos_label is not None:
        raise ValueError("pos_label: expected None for labels on a device")
    if labels.shape == shape:
        names = np.arange(shape[1]) if class_ids is None else _named(class_ids, shape[1])
        return Classes(names, labels.T)
    if labels.shape != shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise validation.class_codes_error(labels, shape)
    if class_ids is None:
        names = _one_per_column(group_ids(labels, len(labels)).keys, shape[1])
    else:
        names = _named(class_ids, shape[1])
    keys, place = ascending(names)
    found = places_there(keys, labels, "labels")
    columns, odd = run_programs(
        partial(_columns, found, np.append(np.argsort(place), -1)), x64=True
    )
    if (row := int(jax.device_get(odd))) >= 0:
        raise _odd_class_error(jax.device_get(labels[row : row + 1]))
    return Classes(names, columns)


@xla.jit
def _columns(places: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The columns at these places, the last of which is -1, and a row that has that one, or -1."""
    found = columns[places]
    row = jnp.argmin(found)
    return found, jnp.where(found[row] < 0, row, -1)


def _odd_class_error(odd: NDArray[Any]) -> ValueError:
    return ValueError(f"labels: {tables.name(odd, 0)} is not among classes")


def _one_per_column(found: NDArray[Any], number: int) -> NDArray[Any]:
    if len(found) != number:
        todo = "for one binary score see fit" if number == 1 else "name the columns with classes="
        raise ValueError(
            f"labels: expected {number} class{'es' * (number > 1)}, one per column of scores, "
            f"found {len(found)} distinct labels; {todo}"
        )
    return found


def _named(values: Column, number: int) -> NDArray[Any]:
    found = ids.single_column(ids.read(values, "classes"), "classes")
    if len(found) != number or len(set(found.tolist())) != number:
        raise ValueError(
            f"classes: expected {number} distinct ids, one per column of scores, "
            f"got {found.tolist()}"
        )
    return found
