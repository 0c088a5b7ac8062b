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


class SortedRows(NamedTuple):
    """The rows of some problems with each distinct score once, ascending within a problem."""

    groups: Groups  # of distinct scores; a problem without finite rows has the score NaN
    scores: NDArray[Any]
    weights: Floats
    positive: Floats  # weight of the rows of class 1
    status: NDArray[Any]  # CONVERGED, NON_FINITE or EMPTY


@dataclass(frozen=True)
class SortingCurve(Curve):
    """A kind of curve that is computed from sorted scores, some problems at a time."""

    def fit(self, problems: Problems, context: Context) -> FittedCurves:
        """See `Curve`."""
        # One after the other: two threads of NumPy take twice as long here.
        parts = [self._fit_some(problems, context, some) for some in _pieces(problems)]
        made = parts[0].joined(*parts[1:])
        if problems.order is None:
            return made
        return made.only(np.argsort(problems.order))

    def _fit_some(self, problems: Problems, context: Context, some: slice) -> FittedCurves:
        rows = _sorted_rows(problems, context, some)
        ends = rows.groups.starts + rows.groups.sizes - 1
        low, high = rows.scores[rows.groups.starts], rows.scores[ends]
        return self.fit_sorted(rows, dict(status=rows.status, low=low, high=high))

    @abstractmethod
    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """The curves of some problems; `common` are the fields that all kinds of curves have."""


def _pieces(problems: Problems) -> Iterator[slice]:
    if len(problems.sizes) == 0:
        return iter([slice(0, 0)])
    return Groups(problems.sizes).slices(_TOGETHER)


def _sorted_rows(problems: Problems, context: Context, some: slice) -> SortedRows:
    sizes = np.asarray(problems.sizes[some], np.int64)
    before = Groups(sizes)
    if before.rows:
        columns = problems.take(some, slice(None), packing.Space(before.rows))
        scores, labels = (np.asarray(x)[: before.rows] for x in columns[:2])
        given = columns.weights
    else:
        scores, labels, given = np.empty(0, problems.dtype), np.empty(0, np.int8), None
    w = np.ones(before.rows) if given is None else np.asarray(given, float)[: before.rows]
    y = labels > 0
    finite = np.isfinite(scores) & np.isfinite(w)
    bad: Bools = before.sums((~finite & (w != 0)).astype(float)) > 0
    bad &= context.options.non_finite != "omit"
    used = finite & (w > 0) & ~before.by_row(bad)
    order = _ascending(before, np.where(used, scores, np.inf))
    owner, scores = before.owner[order], scores[order]
    w, positive = w[order], w[order] * y[order]
    first = np.ones(len(owner), bool)
    first[1:] = (owner[1:] != owner[:-1]) | (scores[1:] != scores[:-1])
    if not first.all():
        starts = np.flatnonzero(first)
        owner, scores = owner[starts], scores[starts]
        w, positive = (np.add.reduceat(x, starts) for x in (w, positive))
    counts = np.bincount(owner, minlength=len(sizes))
    status = np.where(bad, Status.NON_FINITE, Status.CONVERGED).astype(np.int32)
    status[(counts == 0) & ~bad] = Status.EMPTY
    # A problem without rows has one score, which is NaN.
    at = np.searchsorted(owner, np.flatnonzero(counts == 0))
    if len(at):
        scores, w, positive = (np.insert(x, at, np.nan) for x in (scores, w, positive))
    return SortedRows(Groups(np.maximum(counts, 1)), scores, w, positive, status)


def _ascending(groups: Groups, scores: NDArray[Any]) -> NDArray[np.intp]:
    """The finite rows by group and score."""
    sizes, width = groups.sizes, int(groups.sizes.max(initial=0))
    used = np.isfinite(scores)
    if len(sizes) * width > _MOST_PADDING * groups.rows:
        owner = np.where(used, groups.owner, len(sizes))
        return np.lexsort((scores, owner))[: np.count_nonzero(used)]
    # Lines of a matrix are sorted many times faster, and without NaN.
    inside = np.arange(width) < sizes[:, None]
    matrix = np.full(inside.shape, np.inf, scores.dtype)
    matrix[inside] = np.where(used, scores, np.inf)
    order = np.argsort(matrix, axis=1) + groups.starts[:, None]
    counts = sizes if used.all() else groups.sums(used.astype(np.int64))
    found: NDArray[np.intp] = order[np.arange(width) < counts[:, None]]
    return found
