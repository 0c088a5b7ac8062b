"""Rows of classes: each class against all others, as the rows of a segment."""

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.problems import Problems
from platt_jax.execution.segment_rows import RowArrays, SegmentRows, given_or_made, row_arrays
from platt_jax.ids.factorize import ascending, factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.labels import labels_by_name
from platt_jax.model.prior import GaussianPrior
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results import tables


class ClassRows(SegmentRows):
    """Rows of a classifier with a score per class, as one segment per class.

    Every row is in every segment: its label there is whether it is of that class. The arrays stay
    as they are. A class's rows are copied when they are fitted, so that there is no copy of all
    pairs of rows and classes.

    Args:
        scores: (N, C) scores, as in `fit_one_vs_rest`.
        labels: (N,) class ids or (N, C) labels, as in `fit_one_vs_rest`.
        classes: (C,) the class ids or None, as in `fit_one_vs_rest`.
        weights: (N,) weights or None.
        offset: (N, C) offset or None, as in `fit_one_vs_rest`.
        pos_label: the label of (row, class) pairs that are right, as in `fit_one_vs_rest`.

    Attributes:
        keys: (C,) the classes, ascending.
        classes: (C,) the classes, in the order of the columns.
        multilabel: whether a row may be of several classes, or of none.
        dtype: the dtype of the scores and of the fits, float32 or float64.

    Raises:
        ValueError: an argument is invalid for `fit_one_vs_rest`.

    Example:
        >>> from platt_jax import fit_segments
        >>> scores = [[2.0, -1.0], [-1.0, 1.0], [1.0, 0.5]]
        >>> rows = ClassRows(scores, ["cat", "dog", "cat"])
        >>> rows
        ClassRows: 3 rows of 2 classes, float64
        >>> fit_segments(rows).fit.n_pos.tolist()
        [2.0, 1.0]
    """

    _taken_by: ClassVar[str] = (
        "fit_one_vs_rest and, with a OneVsRestCalibrator, triage, update, Monitor.update, "
        "leave_one_out, robust_covariance, gate, certify, plots.explore and report.to_html"
    )

    def __init__(
        self,
        scores: Column,
        labels: Column,
        classes: Column | None = None,
        weights: Column | None = None,
        *,
        offset: Column | None = None,
        pos_label: Any = None,
    ) -> None:
        scores = validation.scores_to_fit(scores)
        if scores.ndim != 2:
            raise ValueError(
                f"scores: expected (N, C), a column per class, got shape {scores.shape}; "
                "for one binary score see fit"
            )
        if (doubt := validation.probabilities_for_scores(scores.T)) is not None:
            Caller().warn_once(doubt)
        self._table, self._weights = scores, _weights(weights, scores)
        self._offset = validation.offset(offset, scores)
        self.classes, self._is_class, self.multilabel = _classes_of(
            classes, labels, scores.shape, pos_label
        )
        self.keys, place = ascending(self.classes)
        self._column = np.argsort(place)  # of each key
        self._ordered = bool((self._column[1:] > self._column[:-1]).all())
        number, each = len(self.keys), len(scores)
        self.dtype, self._rows, self.length = scores.dtype, number * each, number * each
        self.largest_first = np.arange(number)
        self.sizes = np.full(number, each)
        self._starts = each * np.arange(number)

    @property
    def has_offset(self) -> bool:
        """See GroupedRows."""
        return self._offset is not None

    @property
    def pooled(self) -> Problems:
        """All pairs as one problem, which each pass reads anew, lest they be copied."""
        return super().pooled._replace(reread=True)

    def take(self, problems: slice, part: slice, space: packing.Space) -> Columns:
        """See GroupedRows."""
        return packing.flat(self._of_classes(self._some(problems), part), space)

    def all(self, part: slice, space: packing.Space) -> Columns:
        """See GroupedRows."""
        each = len(self._table)
        first, last, _ = part.indices(self.length)
        pieces = [
            self._of_classes(
                self._some(slice(place, place + 1)),
                slice(max(first - place * each, 0), min(last - place * each, each)),
            )
            for place in range(first // each, -(-last // each))
        ]
        columns = (None if x[0] is None else np.concatenate(x) for x in zip(*pieces, strict=True))
        return packing.flat(Columns(*columns), space)

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """See GroupedRows."""
        some = slice(0, None, max(1, self.length // most))  # of the rows of each class
        sample: NDArray[Any] = self._of_classes(self._some(slice(None)), some).weighted_scores()
        return sample

    def digest(self) -> bytes:
        """See GroupedRows."""
        whole = hashlib.blake2b(str(self._table.shape).encode(), digest_size=16)
        for place in range(len(self.keys)):
            columns = self._of_classes(self._some(slice(place, place + 1)), slice(None))
            for column in columns:
                whole.update(b"" if column is None else np.ascontiguousarray(column).data)
        return whole.digest()

    def pairs(self) -> RowArrays:
        """All pairs of a class and a row: the rows of the first class, and so on."""
        return row_arrays(self)

    def repeat_rows(self, values: Column) -> Any:
        """Values (N,) of the rows, for all pairs; None and single numbers stay."""
        if values is None or np.ndim(values) == 0:
            return values
        values = validation.array(values, "values")
        return np.tile(values, len(self.keys)) if values.shape == self._table.shape[:1] else values

    def flatten(self, table: Column) -> NDArray[Any]:
        """Numbers (N, C) as numbers (C N,) of all pairs."""
        numbers = validation.broadcast(
            validation.numbers(table, "before"), self._table.shape, "before"
        )
        return np.asarray(numbers.T[self._some(slice(None))]).reshape(-1)

    def as_table(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers (C N,) of all pairs as a table (N, C)."""
        table = np.empty(self._table.shape, values.dtype)
        table[:, self._column] = values.reshape(len(self.keys), -1).T
        return table

    def in_key_order(self, given: Any) -> Any:
        """A prior or start with its arrays of the classes in the order of `keys`."""

        def in_order(x: Any) -> Any:
            x = validation.array(x, "prior, start") if isinstance(x, list | tuple) else x
            return x[self._column] if np.shape(x)[:1] == self.keys.shape else x

        if isinstance(given, GaussianPrior):
            several = np.ndim(given.mean) > 1, np.ndim(given.precision) > 2
            return GaussianPrior(
                *(in_order(x) if many else x for x, many in zip(given, several, strict=True))
            )
        return tuple(map(in_order, given)) if isinstance(given, tuple) else given

    def _some(self, problems: slice) -> Any:
        """The columns of some keys; a slice if it can be, so that they are not copied."""
        return problems if self._ordered else self._column[problems]

    def _of_classes(self, some: Any, part: slice) -> Columns:
        """The columns of a part of the rows for some classes, end to end."""
        labels = self._is_class(some, part)
        scores = self._table[part].T[some]
        offset = None if self._offset is None else self._offset[part].T[some].reshape(-1)
        weights = self._weights
        if weights is not None:
            weights = np.broadcast_to(weights[part], scores.shape).reshape(-1)
        return Columns(scores.reshape(-1), labels.reshape(-1), weights, offset)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: {len(self._table):,} rows of {len(self.keys):,} classes, "
            f"{self.dtype}"
        )


def class_rows(
    scores: Column,
    labels: Column | None,
    classes: Column | None,
    weights: Column | None = None,
    *,
    offset: Column | None = None,
    pos_label: Any = None,
) -> ClassRows:
    """The ClassRows of these arrays; or those given as scores, beside which there is no array."""
    others = dict(labels=labels, classes=classes, weights=weights, offset=offset)
    return given_or_made(ClassRows, scores, others | {"pos_label": pos_label}, "labels")


def _weights(weights: Column, scores: NDArray[Any]) -> NDArray[Any] | None:
    """(N,) or None; refuses weights of pairs of rows and classes."""
    weights = validation.weights(weights, scores.dtype)
    if weights is None:
        return None
    if weights.shape not in ((), scores.shape[:1]):
        raise ValueError(
            f"weights: expected one per row, {scores.shape[:1]}, got shape {weights.shape}"
            f"{validation.as_flat('weights', weights.shape, scores.shape[:1])}"
        )
    return np.broadcast_to(weights, scores.shape[:1])


class _Classes(NamedTuple):
    """The classes of the columns of scores (N, C)."""

    names: NDArray[Any]  # (C,) their ids
    # Maps some of the classes, by a slice or by numbers, and a slice of the rows to int8 labels.
    is_class: Callable[[Any, slice], NDArray[np.int8]]
    multilabel: bool  # whether a row may be of several classes, or of none


def _classes_of(
    class_ids: Column | None,
    class_labels: Column,
    shape: tuple[int, int],
    pos_label: Any = None,
) -> _Classes:
    """The classes of scores of this shape (N, C); other arguments as of `ClassRows`."""
    dense = validation.array(class_labels, "labels")
    if dense.shape == shape:
        named = pos_label is not None
        columns = (labels_by_name(dense, pos_label, 2) if named else validation.labels(dense)).T
        names = np.arange(shape[1]) if class_ids is None else _named(class_ids, shape[1])
        return _Classes(names, lambda some, rows: columns[some, rows], multilabel=True)
    if pos_label is not None:
        raise ValueError(f"pos_label: expected labels (N, C) beside it, got shape {dense.shape}")
    if dense.shape != shape[:1]:
        raise ValueError(
            f"labels: expected {shape[:1]} class ids or {shape} of {validation.LABEL_CODINGS}, "
            f"got shape {dense.shape}{validation.as_flat('labels', dense.shape, shape[:1])}"
        )
    row_labels = ids.read(class_labels, "labels")
    names = _distinct(row_labels, shape[1]) if class_ids is None else _named(class_ids, shape[1])
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

    return _Classes(names, is_class, multilabel=False)


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


def _named(values: Column, number: int) -> NDArray[Any]:
    found = ids.single_column(ids.read(values, "classes"), "classes")
    if len(found) != number or len(set(found.tolist())) != number:
        raise ValueError(
            f"classes: expected {number} distinct ids, one per column of scores, "
            f"got {found.tolist()}"
        )
    return found
