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

# Advice for labels (N, C) that are not 0 and 1 where each row has one class.
_ONE_EACH = (
    "pass them as (N,); for shares of classes pass each row once per class, with the share as its "
    "weight"
)


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
    shape: tuple[int, int | None],
    pos_label: Any = None,
    advice: str = validation.SEE_CLASSES,
) -> Classes:
    """The classes of scores of this shape (N, C); other arguments as of `ClassRows`.

    C is None for scores (N,) of classes in order, as many as there are labels. The advice is for
    labels (N, C) that are class ids.
    """
    dense = validation.array(class_labels, "labels")
    if dense.shape == shape:
        if pos_label is None:
            columns = validation.labels(dense, advice).T
        else:
            columns = labels_by_name(dense, pos_label, 2).T
        names = np.arange(len(columns)) if class_ids is None else _named(class_ids, shape[1])
        return Classes(names, columns)
    if pos_label is not None:
        raise ValueError(f"pos_label: expected labels (N, C) beside it, got shape {dense.shape}")
    if dense.shape != shape[:1]:
        table_note = f" or {shape} of {validation.LABEL_CODINGS}" if shape[1] else ""
        raise ValueError(
            f"labels: expected {shape[:1]} class ids{table_note}, "
            f"got shape {dense.shape}{validation.as_flat('labels', dense.shape, shape[:1])}"
        )
    row_labels = ids.read(class_labels, "labels")
    if class_ids is None:
        rows = factorize(row_labels)
        used = np.flatnonzero(np.bincount(rows.of(slice(None))))
        names = _of_columns(rows.named(used), shape[1])
    else:
        names = _named(class_ids, shape[1])
    keys, positions = ascending(names)
    indices = get_indexer(keys, row_labels, "labels")
    if (indices < 0).any():
        raise _odd_class_error(ids.single_column(row_labels, "labels")[indices < 0])
    return Classes(names, np.argsort(positions)[indices])


def one_class_each(
    labels: Column, shape: tuple[int, int | None], classes: Column | None = None
) -> Classes:
    """`classes_of` where each row has one class: labels (N, C) are one-hot."""
    parsed = classes_of(classes, labels, shape, advice=_ONE_EACH)
    if not parsed.multilabel:
        return parsed
    odd = (parsed.labels == 1).sum(axis=0) != 1
    if odd.any():
        row = int(np.argmax(odd))
        raise ValueError(
            f"labels: expected class ids (N,), or (N, C) with one 1 in each row, got "
            f"{parsed.labels[:, row].tolist()} in row {row}"
        )
    return parsed._replace(labels=parsed.labels.argmax(axis=0))


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
        names = _of_columns(group_ids(labels, len(labels)).keys, shape[1])
    else:
        names = _named(class_ids, shape[1])
    keys, positions = ascending(names)
    places = places_there(keys, labels, "labels")
    columns, odd = run_programs(
        partial(_columns, places, np.append(np.argsort(positions), -1)), x64=True
    )
    if (row := int(jax.device_get(odd))) >= 0:
        raise _odd_class_error(jax.device_get(labels[row : row + 1]))
    return Classes(names, columns)


@xla.jit
def _columns(places: jax.Array, columns: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The columns at these places, the last of which is -1, and a row that has that one, or -1."""
    row_columns = columns[places]
    row = jnp.argmin(row_columns)
    return row_columns, jnp.where(row_columns[row] < 0, row, -1)


def _odd_class_error(odd: NDArray[Any]) -> ValueError:
    return ValueError(f"labels: {tables.name(odd, 0)} is not among classes")


def _of_columns(found: NDArray[Any], number: int | None) -> NDArray[Any]:
    """The classes of the columns if they are not named, by the distinct labels, ascending.

    They are the labels, if there are as many; or 0 ... C-1, if the labels are among these, and 0 is
    one: labels 1 ... C-1 may be 1 ... C without the last.
    """
    if len(found) == number or (number is None and len(found) > 1):
        return found
    in_range = found.dtype.kind in "iu" and found[0] >= 0 and found[-1] < (number or 0)
    if in_range and found[0] == 0:
        return np.arange(number or 0)
    advice = "for one binary score see fit" if number == 1 else "name the columns with classes="
    if in_range:
        advice += f", as range({number}), or range(1, {number or 0} + 1) if they count from 1"
    detail = ", one per column of scores" if number else ""
    raise ValueError(
        f"labels: expected {number or 2} class{'es' * (number != 1)}{detail}, "
        f"found {len(found)} distinct labels; {advice}"
    )


def _named(values: Column, number: int | None) -> NDArray[Any]:
    names = ids.single_column(ids.read(values, "classes"), "classes")
    expected = number or max(len(names), 2)
    if len(names) != expected or len(set(names.tolist())) != expected:
        detail = ", one per column of scores" if number else ""
        raise ValueError(
            f"classes: expected {expected} distinct ids{detail}, got {names[:10].tolist()}"
        )
    return names
