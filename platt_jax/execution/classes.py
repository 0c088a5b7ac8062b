"""Class ids of the columns of scores, and the labels of each one-vs-rest problem."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column
from platt_jax.ids.factorize import ascending, factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.labels import labels_by_name
from platt_jax.results import tables


class Classes(NamedTuple):
    """The classes of the columns of scores (N, C).

    Attributes:
        names: (C,) their ids.
        is_class: maps some of the classes, by a slice or by numbers, and a slice of the rows to
            int8 labels.
        multilabel: whether a row may be of several classes, or of none.
    """

    names: NDArray[Any]
    is_class: Callable[[Any, slice], NDArray[np.int8]]
    multilabel: bool


def classes_of(
    class_ids: Column | None,
    class_labels: Column,
    shape: tuple[int, int],
    pos_label: Any = None,
) -> Classes:
    """The class ids of the columns of scores (N, C), and the labels of each class's problem.

    Args:
        class_ids: (C,) or None, as in `fit_one_vs_rest`.
        class_labels: (N,) class ids, or (N, C) labels.
        shape: (N, C).
        pos_label: the label of a class that is right, for (N, C) labels of any other kind.

    Raises:
        ValueError: shapes do not match, there is not one distinct id per column, or a label is not
            among the classes.
    """
    dense = validation.array(class_labels, "labels")
    if dense.shape == shape:
        named = pos_label is not None
        columns = (labels_by_name(dense, pos_label, 2) if named else validation.labels(dense)).T
        names = np.arange(shape[1]) if class_ids is None else _classes(class_ids, shape[1])
        return Classes(names, lambda some, rows: columns[some, rows], multilabel=True)
    if pos_label is not None:
        raise ValueError(f"pos_label: expected labels (N, C) beside it, got shape {dense.shape}")
    if dense.shape != shape[:1]:
        raise ValueError(
            f"labels: expected {shape[:1]} class ids or {shape} of {validation.LABEL_CODINGS}, "
            f"got shape {dense.shape}{validation.as_flat('labels', dense.shape, shape[:1])}"
        )
    row_labels = ids.read(class_labels, "labels")
    names = _distinct(row_labels, shape[1]) if class_ids is None else _classes(class_ids, shape[1])
    keys, place = ascending(names)
    found = get_indexer(keys, row_labels, "labels")
    if (found < 0).any():
        odd = ids.single_column(row_labels, "labels")[found < 0]
        raise ValueError(f"labels: {tables.name(odd, 0)} is not among classes")
    column = np.empty(len(keys), np.intp)  # of each key
    column[place] = np.arange(len(keys))
    codes, numbers = column[found], np.arange(len(keys))[:, None]

    def is_class(some: Any, rows: slice) -> NDArray[np.int8]:
        return (codes[rows] == numbers[some]).view(np.int8)

    return Classes(names, is_class, multilabel=False)


def _distinct(class_labels: ids.Ids, number: int) -> NDArray[Any]:
    rows = factorize(class_labels)
    found = rows.named(np.unique(rows.of(slice(None))))
    if len(found) != number:
        todo = "for one binary score see fit" if number == 1 else "name the columns with classes="
        raise ValueError(
            f"labels: expected {number} class{'es' * (number > 1)}, one per column of scores, "
            f"found {len(found)} distinct labels; {todo}"
        )
    return found


def _classes(values: Column, number: int) -> NDArray[Any]:
    found = ids.single_column(ids.read(values, "classes"), "classes")
    if len(found) != number or len(set(found.tolist())) != number:
        raise ValueError(
            f"classes: expected {number} distinct ids, one per column of scores, "
            f"got {found.tolist()}"
        )
    return found
