"""What every kind of curve is: options, and a fit of many problems at once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import Groups
from platt_jax.passes import packing
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.status import Status

# Rows of adjacent problems that are sorted and fitted together.
_TOGETHER = 1 << 18
# Problems are sorted as lines of a matrix if it has at most so many places for each row.
_MOST_PADDING = 4
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
class HostCurve(Curve):
    """A kind of curve that NumPy computes, some problems at a time."""

    def fit(self, problems: Problems, context: Context) -> FittedCurves:
        """See `Curve`."""
        # One after the other: two threads of NumPy take twice as long here.
        parts = [self.fit_some(_rows(problems, context, some)) for some in _pieces(problems)]
        made = parts[0].joined(*parts[1:])
        if problems.order is None:
            return made
        return made.only(np.argsort(problems.order))

    @abstractmethod
    def fit_some(self, rows: CurveRows) -> FittedCurves:
        """The curves of some problems."""


@dataclass(frozen=True)
class SortingCurve(HostCurve):
    """A kind of curve that is computed from sorted scores."""

    def fit_some(self, rows: CurveRows) -> FittedCurves:
        """See `HostCurve`."""
        ordered = _sorted_rows(rows)
        ends = ordered.groups.starts + ordered.groups.sizes - 1
        low, high = ordered.scores[ordered.groups.starts], ordered.scores[ends]
        return self.fit_sorted(ordered, dict(status=rows.status, low=low, high=high))

    @abstractmethod
    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """The curves of some problems; `common` are the fields that all kinds of curves have."""


def _pieces(problems: Problems) -> Iterator[slice]:
    if len(problems.sizes) == 0:
        return iter([slice(0, 0)])
    return Groups(problems.sizes).slices(_TOGETHER)


def _rows(problems: Problems, context: Context, some: slice) -> CurveRows:
    groups = Groups(problems.sizes[some])
    if groups.rows:
        columns = problems.take(some, slice(None), packing.Space(groups.rows))
        scores, labels = (np.asarray(x)[: groups.rows] for x in columns[:2])
        given = columns.weights
    else:
        scores, labels, given = np.empty(0, problems.dtype), np.empty(0, np.int8), None
    w = np.ones(groups.rows) if given is None else np.asarray(given, float)[: groups.rows]
    finite = np.isfinite(scores) & np.isfinite(w)
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
    order = _ascending(rows.groups, rows.scores)
    owner, scores, w = rows.groups.owner[order], rows.scores[order], rows.weights[order]
    positive = w * rows.positive[order]
    first = np.ones(len(owner), bool)
    first[1:] = (owner[1:] != owner[:-1]) | (scores[1:] != scores[:-1])
    if not first.all():
        starts = np.flatnonzero(first)
        owner, scores = owner[starts], scores[starts]
        w, positive = (np.add.reduceat(x, starts) for x in (w, positive))
    counts = np.bincount(owner, minlength=len(rows.groups.sizes))
    at = np.searchsorted(owner, np.flatnonzero(counts == 0))
    if len(at):
        scores, w, positive = (np.insert(x, at, np.nan) for x in (scores, w, positive))
    return SortedRows(Groups(np.maximum(counts, 1)), scores, w, positive, rows.status)


def _ascending(groups: Groups, scores: NDArray[Any]) -> NDArray[np.intp]:
    """The rows by group and score."""
    sizes, width = groups.sizes, int(groups.sizes.max(initial=0))
    if len(sizes) * width > _MOST_PADDING * groups.rows:
        return np.lexsort((scores, groups.owner))
    # Lines of a matrix are sorted many times faster, and without NaN.
    inside = np.arange(width) < sizes[:, None]
    matrix = np.full(inside.shape, np.inf, scores.dtype)
    matrix[inside] = scores
    order = np.argsort(matrix, axis=1) + groups.starts[:, None]
    found: NDArray[np.intp] = order[inside]
    return found
