"""Rows of classes: each class against all others, as the rows of a segment."""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.classes import classes_of
from platt_jax.execution.problems import Problems
from platt_jax.execution.segment_rows import SegmentRows, require_each, require_none_beside
from platt_jax.ids.factorize import ascending
from platt_jax.model.prior import GaussianPrior
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns


class Pairs(NamedTuple):
    """Pairs of a class and a row, as rows of segments; fields are named as arguments are."""

    scores: NDArray[Any]  # (C N,)
    labels: NDArray[np.int8]  # (C N,), whether the row is of the class
    segments: NDArray[Any]  # (C N,), the class
    weights: NDArray[Any] | None
    offset: NDArray[Any] | None


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
        self.classes, self._is_class, self.multilabel = classes_of(
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

    def pairs(self) -> Pairs:
        """All pairs of a class and a row: the rows of the first class, and so on."""
        columns = self._of_classes(self._some(slice(None)), slice(None))
        segments = np.repeat(self.keys, len(self._table))
        return Pairs(columns.scores, columns.labels, segments, columns.weights, columns.offset)

    def repeat_rows(self, values: Column) -> Any:
        """Values (N,) of the rows, for all pairs; None and single numbers stay."""
        if values is None or np.ndim(values) == 0:
            return values
        values = validation.array(values, "values")
        return np.tile(values, len(self.keys)) if values.shape == self._table.shape[:1] else values

    def flatten(self, table: Column) -> NDArray[Any]:
        """Numbers (N, C) as those of all pairs."""
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
    """The rows of these arrays, or ClassRows as scores, for one call.

    Raises:
        ValueError: as for ClassRows, or other arrays are given besides ClassRows.
    """
    if not isinstance(scores, ClassRows):
        require_each(labels=labels)
        return ClassRows(scores, labels, classes, weights, offset=offset, pos_label=pos_label)
    require_none_beside(
        scores,
        labels=labels,
        classes=classes,
        weights=weights,
        offset=offset,
        pos_label=pos_label,
    )
    return scores


def _weights(weights: Column, scores: NDArray[Any]) -> NDArray[Any] | None:
    """(N,) or None.

    Raises:
        ValueError: there is not one weight per row.
    """
    weights = validation.weights(weights, scores.dtype)
    if weights is None:
        return None
    if weights.shape not in ((), scores.shape[:1]):
        raise ValueError(
            f"weights: expected one per row, {scores.shape[:1]}, got shape {weights.shape}"
            f"{validation.as_flat('weights', weights.shape, scores.shape[:1])}"
        )
    return np.broadcast_to(weights, scores.shape[:1])
