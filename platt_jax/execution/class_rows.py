"""Rows of classes: each class against all others, as the rows of a segment."""

import hashlib
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.caller import Caller
from platt_jax.columns import Column, require_class_order, takes_columns
from platt_jax.execution.class_labels import Classes, classes_of, classes_there
from platt_jax.execution.device_segments import DeviceGroupedRows, end_to_end
from platt_jax.execution.on_device import DeviceRows, only_device, require_rows
from platt_jax.execution.problems import Problems
from platt_jax.execution.segment_rows import RowArrays, SegmentRows, given_or_made, row_arrays
from platt_jax.ids.factorize import ascending
from platt_jax.model.prior import GaussianPrior
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results.tables import counted


class ClassRows(SegmentRows):
    """Rows of a classifier with a score per class, as one segment per class.

    Every row is in every segment: its label there is whether it is of that class. The arrays stay
    as they are. A class's rows are copied when they are fitted, so that there is no copy of all
    pairs of rows and classes. Of scores on a GPU there is such a copy, there. The arguments are as
    in `fit_one_vs_rest`: scores and offset (N, C), labels (N,) or (N, C), classes (C,), weights
    (N,).

    Attributes:
        keys: (C,) the classes, ascending.
        classes: (C,) the classes, in the order of the columns.
        multilabel: whether a row may be of several classes, or of none.
        dtype: the dtype of the scores and of the fits, float32 or float64.
        device: the device of the rows; None for the host.

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
        "leave_one_out, robust_covariance, gate, certify, plots.explore, plots.risk_coverage and "
        "report.to_html"
    )

    @takes_columns
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
        raw_scores, scores = scores, validation.scores_to_fit(scores)
        _require_columns(scores)
        if (warning := validation.probabilities_for_scores(scores.T)) is not None:
            Caller().warn_once(warning)
        self._table, self._weights = scores, _weights(weights, scores)
        self._offset = validation.offset(offset, scores)
        self._labels = classes_of(classes, labels, scores.shape, pos_label)
        require_class_order(raw_scores, self._labels.names, "scores")
        self._lay_out_classes(self._labels, scores.shape)
        self.dtype = scores.dtype

    def _lay_out_classes(self, found: Classes, shape: tuple[int, int]) -> None:
        """Sets the attributes that scores of this shape (N, C) have for these classes."""
        self.classes, self.multilabel, self._shape = found.names, found.multilabel, shape
        self.keys, positions = ascending(self.classes)
        self._column = np.argsort(positions)  # of each key
        self._ordered = bool((self._column[1:] > self._column[:-1]).all())
        rows, number = shape
        self._rows = self.length = number * rows
        self.largest_first = np.arange(number)
        self.sizes = np.full(number, rows)
        self._starts = rows * np.arange(number)

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
        return packing.flat(self._class_columns(self._some(problems), part), space)

    def all(self, part: slice, space: packing.Space) -> Columns:
        """See GroupedRows."""
        rows = len(self._table)
        first, last, _ = part.indices(self.length)
        pieces = [
            self._class_columns(
                self._some(slice(index, index + 1)),
                slice(max(first - index * rows, 0), min(last - index * rows, rows)),
            )
            for index in range(first // rows, -(-last // rows))
        ]
        columns = (None if x[0] is None else np.concatenate(x) for x in zip(*pieces, strict=True))
        return packing.flat(Columns(*columns), space)

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """See GroupedRows."""
        part = slice(0, None, max(1, self.length // most))  # of the rows of each class
        sample: NDArray[Any] = self._class_columns(self._some(slice(None)), part).weighted_scores()
        return sample

    def digest(self) -> bytes:
        """See GroupedRows."""
        hasher = hashlib.blake2b(str(self._table.shape).encode(), digest_size=16)
        for index in range(len(self.keys)):
            columns = self._class_columns(self._some(slice(index, index + 1)), slice(None))
            for column in columns:
                hasher.update(b"" if column is None else np.ascontiguousarray(column).data)
        return hasher.digest()

    def pairs(self) -> RowArrays:
        """All pairs of a class and a row: the rows of the first class, and so on."""
        return row_arrays(self)

    def repeat_rows(self, values: Column) -> Any:
        """Values (N,) of the rows, for all pairs; None and single numbers stay."""
        if values is None or np.ndim(values) == 0:
            return values
        values = validation.array(values, "values")
        return np.tile(values, len(self.keys)) if values.shape == self._shape[:1] else values

    def flatten(self, table: Column) -> NDArray[Any]:
        """Numbers (N, C) as numbers (C N,) of all pairs."""
        numbers = validation.broadcast(validation.numbers(table, "before"), self._shape, "before")
        return np.asarray(numbers.T[self._some(slice(None))]).reshape(-1)

    def as_table(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers (C N,) of all pairs as a table (N, C)."""
        by_column = values.reshape(len(self.keys), -1)[np.argsort(self._column)]
        return by_column.T.copy()

    def in_key_order(self, given: Any) -> Any:
        """A prior or start with its arrays of the classes in the order of `keys`."""

        def in_order(x: Any) -> Any:
            x = validation.array(x, "prior, start") if isinstance(x, list | tuple) else x
            return x[self._column] if np.shape(x)[:1] == self.keys.shape else x

        if isinstance(given, GaussianPrior):
            per_class = np.ndim(given.mean) > 1, np.ndim(given.precision) > 2
            return GaussianPrior(
                *(in_order(x) if varies else x for x, varies in zip(given, per_class, strict=True))
            )
        return tuple(map(in_order, given)) if isinstance(given, tuple) else given

    def _some(self, problems: slice) -> Any:
        """The columns of some keys; a slice if it can be, so that they are not copied."""
        return problems if self._ordered else self._column[problems]

    def _class_columns(self, some: Any, part: slice) -> Columns:
        """The columns of a part of the rows for some classes, end to end."""
        labels = self._labels.are_of(some, part)
        scores = self._table[part].T[some]
        offset = None if self._offset is None else self._offset[part].T[some].reshape(-1)
        weights = self._weights
        if weights is not None:
            weights = np.broadcast_to(weights[part], scores.shape).reshape(-1)
        return Columns(scores.reshape(-1), labels.reshape(-1), weights, offset)

    def __repr__(self) -> str:
        rows, classes = counted(self._shape[0], "row"), counted(len(self.keys), "class")
        return f"ClassRows: {rows} of {classes}, {self.dtype}"


class DeviceClassRows(DeviceGroupedRows, ClassRows):
    """ClassRows whose scores are on an accelerator, with all pairs of a class and a row there.

    Labels (N,) are integers there, or any class ids on the host.
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
        scores, labels, weights, offset = map(accelerators.taken, (scores, labels, weights, offset))
        _require_columns(scores)
        self.device = only_device(scores)
        require_rows(scores)
        if weights is not None:
            _require_weight_per_row(np.shape(weights), scores.shape)
        if offset is not None and not accelerators.holds(offset):
            offset = validation.floating(offset, "offset")
        offset = validation.broadcast(offset, scores.shape, "offset")
        with jax.default_device(self.device):
            find = classes_there if accelerators.holds(labels) else classes_of
            parsed = find(classes, labels, scores.shape, pos_label)
            self._lay_out_classes(parsed, scores.shape)
            by_key = partial(_by_key, scores, parsed.labels, offset, self._column)
            table, y, o = run_programs(by_key, x64=True)
            rows = DeviceRows(table, y, weights, offset=o)
            self._columns = end_to_end(rows.columns)
        if rows.doubtful_scores is not None:
            Caller().warn_once(rows.doubtful_scores)
        self.dtype = rows.dtype

    def __repr__(self) -> str:
        return f"{super().__repr__()}, on {self.device}"


ClassRows._kind_there = DeviceClassRows


@xla.jit
def _by_key(
    scores: jax.Array, labels: jax.Array, offset: jax.Array | None, column: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Scores, labels and offset (C, N) of these columns; labels are given as in `Classes`."""
    are_of = labels[column] if labels.ndim == 2 else labels[None] == column[:, None]
    return scores.T[column], are_of, None if offset is None else offset.T[column]


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
    arrays = dict(labels=labels, classes=classes, weights=weights, offset=offset)
    return given_or_made(ClassRows, scores, arrays | {"pos_label": pos_label}, "labels")


def _weights(weights: Column, scores: NDArray[Any]) -> NDArray[Any] | None:
    """(N,) or None; refuses weights of pairs of rows and classes."""
    weights = validation.weights(weights, scores.dtype)
    if weights is None:
        return None
    _require_weight_per_row(weights.shape, scores.shape)
    return np.broadcast_to(weights, scores.shape[:1])


def _require_weight_per_row(found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuses weights of a shape that does not fit scores of this shape (N, C)."""
    if found not in ((), shape[:1]):
        raise ValueError(
            f"weights: expected one per row, {shape[:1]}, got shape {found}"
            f"{validation.as_flat('weights', found, shape[:1])}"
        )


def _require_columns(scores: Any) -> None:
    """Refuses scores that are not (N, C)."""
    if scores.ndim != 2:
        raise ValueError(
            f"scores: expected (N, C), a column per class, got shape {scores.shape}; "
            "for one binary score see fit"
        )
