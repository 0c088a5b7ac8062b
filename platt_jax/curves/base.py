"""What every kind of curve is: options, and a fit of many problems at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import Groups
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.status import Status

# Rows of adjacent problems that are sorted and fitted together.
_TOGETHER = 1 << 18
# Powers of two between which the largest weight of a problem is kept: beyond, no curve changes.
_LARGEST = 60


class Curve(ABC):
    """A kind of calibration curve: a frozen dataclass of its options."""

    name: ClassVar[str]

    def fit_rows(self, rows: SegmentRows, context: Context) -> FittedCurves:
        """The curves of K segments, and last the curve of all finite rows."""
        return self.fit(rows.problems, context).joined(self.fit(rows.pooled, pooled(context)))

    @abstractmethod
    def fit(self, problems: Problems, context: Context) -> FittedCurves:
        """The curves of K problems."""


def pooled(context: Context) -> Context:
    """The context of the fit of all rows, of which those that are not finite are left out."""
    options = replace(context.options, non_finite="omit")
    return Context(options, context.caller, mesh=context.mesh)


class CurveRows(NamedTuple):
    """The rows of some problems that count, end to end, in the given order."""

    groups: Groups
    scores: NDArray[Any]
    weights: Floats  # > 0
    positive: Bools  # whether a row is of class 1
    status: NDArray[Any]  # CONVERGED, NON_FINITE or EMPTY


class SortedRows(NamedTuple):
    """The rows of some problems with each distinct score once, ascending within a problem."""

    groups: Groups  # of distinct scores; a problem without rows has the score NaN
    scores: NDArray[Any]
    weights: Floats
    positive: Floats  # weight of the rows of class 1
    status: NDArray[Any]  # as in `CurveRows`


@dataclass(frozen=True)
class SortingCurve(Curve):
    """A kind of curve that NumPy computes from sorted scores, some problems at a time."""

    def fit(self, problems: Problems, context: Context) -> FittedCurves:
        """See `Curve`."""
        # One after the other: two threads of NumPy take twice as long here.
        parts = [self._fit_some(rows_of(problems, context, piece)) for piece in pieces(problems)]
        curves = parts[0].joined(*parts[1:])
        if problems.order is None:
            return curves
        return curves.only(np.argsort(problems.order))

    def _fit_some(self, rows: CurveRows) -> FittedCurves:
        ordered = _sorted_rows(rows)
        ends = ordered.groups.starts + ordered.groups.sizes - 1
        low, high = ordered.scores[ordered.groups.starts], ordered.scores[ends]
        return self.fit_sorted(ordered, dict(status=rows.status, low=low, high=high))

    @abstractmethod
    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """The curves of some problems; `common` are the fields that all kinds of curves have."""


def pieces(problems: Problems) -> Iterator[slice]:
    """Slices of adjacent problems that are sorted together; there is one at least."""
    if len(problems.sizes) == 0:
        return iter([slice(0, 0)])
    return Groups(problems.sizes).slices(_TOGETHER)


def thinned(problems: Problems) -> Problems:
    """The problems, with evenly spaced rows only of one that has more than are sorted together.

    They are taken in `pieces` of the problems that are given.
    """
    sizes = np.asarray(problems.sizes, np.int64)
    steps = np.maximum(-(-sizes // _TOGETHER), 1)

    def take(some: slice, part: slice, space: packing.Space) -> Columns:
        size, step = int(sizes[some.start]), int(steps[some.start])
        if step == 1:
            return problems.take(some, part, space)
        length = max(_TOGETHER // step, 1) * step
        firsts = range(0, size, length)
        parts = [slice(first, min(first + length, size)) for first in firsts]

        def thin(part: slice) -> Columns:
            number = part.stop - part.start
            part_rows = problems.take(some, part, packing.Space(number))
            columns: Columns = jax.tree.map(lambda x: np.asarray(x)[:number:step].copy(), part_rows)
            return columns

        every: Columns = jax.tree.map(lambda *x: np.concatenate(x), *map(thin, parts))
        return every

    return problems._replace(sizes=-(-sizes // steps), take=take)


def rows_of(problems: Problems, context: Context, some: slice) -> CurveRows:
    """The rows of some problems that count."""
    groups = Groups(problems.sizes[some])
    if groups.rows:
        columns = problems.take(some, slice(None), packing.Space(groups.rows))
        scores, labels = (np.asarray(x)[: groups.rows] for x in columns[:2])
        weights, offset = columns.weights, columns.offset
    else:
        scores, labels = np.empty(0, problems.dtype), np.empty(0, np.int8)
        weights = offset = None
    w = np.ones(groups.rows) if weights is None else np.asarray(weights, float)[: groups.rows]
    finite = np.isfinite(scores) & np.isfinite(w)
    if offset is not None:
        finite &= np.isfinite(np.asarray(offset)[: groups.rows])
    bad: Bools = groups.sums((~finite & (w != 0)).astype(float)) > 0
    bad &= context.options.non_finite != "omit"
    used = finite & (w > 0) & ~groups.by_row(bad)
    counts = groups.sums(used.astype(np.int64))
    status = np.where(bad, Status.NON_FINITE, Status.CONVERGED).astype(np.int32)
    status[(counts == 0) & ~bad] = Status.EMPTY
    if not used.all():
        groups, scores, w, labels = Groups(counts), scores[used], w[used], labels[used]
    return CurveRows(groups, scores, _moderate(w, groups), labels > 0, status)


def _moderate(weights: Floats, groups: Groups) -> Floats:
    """Weights whose sums neither overflow nor lose digits, times a power of two for a problem."""
    exponent = np.frexp(groups.maxima(weights))[1]
    excess = exponent - np.clip(exponent, -_LARGEST, _LARGEST)
    if not excess.any():
        return weights
    moderate: Floats = np.ldexp(weights, -groups.by_row(excess))
    return moderate


def _sorted_rows(rows: CurveRows) -> SortedRows:
    groups, first = rows.groups, np.zeros(rows.groups.rows, bool)
    first[groups.starts[groups.sizes > 0]] = True
    pair = _with_labels(rows) if (rows.weights == 1).all() else None
    if pair is not None:
        scores, labels = pair
    else:
        order = _ascending(groups, rows.scores)
        scores = rows.scores[order] + 0.0  # as `_with_labels`
    first[1:] |= scores[1:] != scores[:-1]
    counts, distinct = groups.sums(first.astype(np.int64)), bool(first.all())
    w: Any = np.ones(len(scores))
    if pair is None and distinct:
        w = rows.weights[order]
        positive = w * rows.positive[order]
    elif pair is None:
        # In the given order, which does not depend on the other problems.
        index = np.empty(len(order), np.int64)
        index[order] = np.cumsum(first) - 1
        w, positive = (np.bincount(index, rows.weights * x) for x in (1, rows.positive))
    elif distinct:
        positive = labels.astype(float)
    else:
        ties = Groups(np.diff(np.flatnonzero(first), append=groups.rows))
        w, positive = ties.sizes.astype(float), ties.sums(labels.astype(float))
    scores, empty = scores if distinct else scores[first], counts == 0
    if empty.any():
        positions = Groups(counts).starts[empty]
        scores, w, positive = (np.insert(x, positions, np.nan) for x in (scores, w, positive))
    return SortedRows(Groups(np.maximum(counts, 1)), scores, w, positive, rows.status)


def _with_labels(rows: CurveRows) -> tuple[NDArray[Any], Bools] | None:
    """Scores and labels by group and score; the order of equal scores is open.

    Values are sorted many times faster than their places. So the lowest bit of each score carries
    the label in a second sort. None if two scores of a group differ in nothing but this bit.
    """
    groups, kind = rows.groups, np.dtype(f"u{rows.scores.dtype.itemsize}")
    scores = rows.scores + 0.0  # no score is -0.0
    tagged = scores.view(kind) & ~kind.type(1)
    tagged |= rows.positive
    for x in (scores, tagged.view(scores.dtype)):
        _sort(groups, x)
    bits, inner = scores.view(kind), np.ones(groups.rows, bool)
    inner[groups.starts[groups.sizes > 0]] = False
    if (inner[1:] & (bits[1:] ^ bits[:-1] == 1)).any():
        return None
    tagged &= kind.type(1)
    return scores, tagged.astype(bool)


def _sort(groups: Groups, x: NDArray[Any]) -> None:
    """Sorts finite values (N,) within each group, in place."""
    for _, indices, inside in groups.lines():
        if inside.all() and isinstance(indices, slice):
            x[indices].reshape(inside.shape).sort(axis=1)
            continue
        matrix = np.full(inside.shape, np.inf, x.dtype)
        matrix[inside] = x[indices]
        matrix.sort(axis=1)
        x[indices] = matrix[inside]


def _ascending(groups: Groups, scores: NDArray[Any]) -> NDArray[np.intp]:
    """The rows by group and score."""
    # Lines of a matrix are sorted many times faster than by group and score, and without NaN.
    order = np.empty(groups.rows, np.intp)
    for block, indices, inside in groups.lines():
        matrix = np.full(inside.shape, np.inf, scores.dtype)
        matrix[inside] = scores[indices]
        order[indices] = (np.argsort(matrix, axis=1) + groups.starts[block, None])[inside]
    return order
