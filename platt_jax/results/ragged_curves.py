"""Curves with another number of scores each: isotonic ones, bins and Venn-Abers predictors."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.groups import Groups
from platt_jax.results.fitted_curves import NO_FALL, FittedCurves
from platt_jax.results.pieces import Pieces, lines, pieces


@dataclass(frozen=True, eq=False, kw_only=True)
class RaggedCurves(FittedCurves):
    """Curves with another number of scores each, end to end in flat arrays.

    Attributes:
        sizes: (K,) the number of scores of each curve, 1 or more.
        scores: (M,) the scores, ascending within a curve.
    """

    sizes: NDArray[Any]
    scores: NDArray[Any]

    # Fields with a number per score, and fields with one more number per curve.
    _per_score: ClassVar[tuple[str, ...]] = ("scores",)
    _per_gap: ClassVar[tuple[str, ...]] = ()

    def only(self, which: Any) -> Self:
        """See `FittedCurves`."""
        arrays = {name: getattr(self, name)[which] for name in ("status", "low", "high", "sizes")}
        which = np.flatnonzero(which) if np.asarray(which).dtype == bool else np.asarray(which)
        for names, sizes in ((self._per_score, self.sizes), (self._per_gap, self.sizes + 1)):
            rows = Groups(sizes).rows_of(which)
            arrays |= {name: getattr(self, name)[rows] for name in names}
        return replace(self, **arrays)

    @property
    def is_monotone(self) -> Bools:
        """See `FittedCurves`."""
        monotone = np.ones(len(self.sizes), bool)
        for names, sizes in ((self._per_score[1:], self.sizes), (self._per_gap, self.sizes + 1)):
            groups = Groups(sizes)
            for name in names:
                p = getattr(self, name).astype(float)
                rises = np.ones(len(p), bool)
                rises[1:] = (p[1:] >= p[:-1] - NO_FALL) | (groups.place[1:] == 0)
                monotone &= groups.minima(rises & ~np.isnan(p)) > 0
        return monotone

    def _count(self, scores: NDArray[Any], which: Integers, below: np.ufunc) -> Integers:
        """How many scores of its curve are below each score, by `np.less` or `np.less_equal`.

        By bisection in all curves at once.
        """
        starts = Groups(self.sizes).starts[which]
        low, high = np.zeros(len(which), np.int64), self.sizes[which].astype(np.int64)
        for _ in range(int(self.sizes.max(initial=0)).bit_length()):
            middle = (low + high) // 2
            positions = np.minimum(starts + middle, len(self.scores) - 1)
            is_below = below(self.scores[positions], scores) & (low < high)
            low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
        return low

    def _starts(self) -> Floats:
        """(M + K,) the scores of each curve after -inf."""
        return np.insert(self.scores.astype(float), Groups(self.sizes).starts, -np.inf)


@dataclass(frozen=True, eq=False, kw_only=True)
class CornerCurves(RaggedCurves):
    """Piecewise linear curves through corners, constant beyond the outer ones.

    Attributes:
        probabilities: (M,) the probability at each score.
    """

    kind: ClassVar[str] = "isotonic"
    _per_score: ClassVar[tuple[str, ...]] = ("scores", "probabilities")

    probabilities: NDArray[Any]

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        starts = Groups(self.sizes).starts[which]
        last = self.sizes[which] - 1
        right = np.minimum(self._count(scores, which, np.less), last)
        left = np.maximum(right - 1, 0)
        # Halved, for the difference of two scores may overflow.
        low, high = (self.scores[starts + i].astype(float) / 2 for i in (left, right))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = (scores.astype(float) / 2 - low) / (high - low)
        share = np.where(high > low, np.clip(share, 0, 1), 1)
        p_low, p_high = (self.probabilities[starts + i] for i in (left, right))
        # Rounding neither bends a plateau nor passes a corner.
        p = np.where(share < 1, np.minimum(p_low + share * (p_high - p_low), p_high), p_high)
        p = np.where(np.isnan(scores), np.nan, p)
        return p.astype(np.result_type(scores, self.probabilities))

    def pieces(self) -> Pieces:
        """See `FittedCurves`."""
        return lines(Groups(self.sizes).owner, self.scores, self.probabilities)


@dataclass(frozen=True, eq=False, kw_only=True)
class StepCurves(RaggedCurves):
    """Curves that are constant between scores.

    Attributes:
        probabilities: (M + K,) the probability below the first score of a curve, and so on; the
            last is the probability at its last score and above.
    """

    kind: ClassVar[str] = "bins"
    _per_gap: ClassVar[tuple[str, ...]] = ("probabilities",)

    probabilities: NDArray[Any]

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        starts = Groups(self.sizes + 1).starts[which]
        p = self.probabilities[starts + self._count(scores, which, np.less_equal)]
        return np.where(np.isnan(scores), np.nan, p)

    def pieces(self) -> Pieces:
        """See `FittedCurves`."""
        return pieces(Groups(self.sizes + 1).owner, self._starts(), self.probabilities)


@dataclass(frozen=True, eq=False, kw_only=True)
class VennAbersCurves(RaggedCurves):
    """Inductive Venn-Abers predictors (Vovk, Petej & Fedorova 2015).

    Attributes:
        p0: (M + K,) the probability of class 1 if the row that is predicted is of class 0, for each
            number of scores that are not above the row's.
        p1: (M + K,) the same if it is of class 1, for each number of scores below the row's.
    """

    kind: ClassVar[str] = "venn_abers"
    _per_gap: ClassVar[tuple[str, ...]] = ("p0", "p1")

    p0: NDArray[Any]
    p1: NDArray[Any]

    def both(self, scores: NDArray[Any], which: Integers) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two probabilities (N,). One of them is calibrated for any distribution of scores."""
        starts = Groups(self.sizes + 1).starts[which]
        p0 = self.p0[starts + self._count(scores, which, np.less_equal)]
        p1 = self.p1[starts + self._count(scores, which, np.less)]
        nan = np.isnan(scores)
        return np.where(nan, np.nan, p0), np.where(nan, np.nan, p1)

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`. The merged probability minimises the larger log loss of both."""
        return _merged(*self.both(scores, which))

    def pieces(self) -> Pieces:
        """See `FittedCurves`. A score of the fit is a piece, up to the next number above it."""
        start, owner = self._starts(), Groups(self.sizes + 1).owner
        at_scores = _merged(self.p0, np.append(np.nan, self.p1[:-1]))
        next_above = np.where(np.isinf(start), start, np.nextafter(start, np.inf))
        # A curve's first piece starts at no score.
        starts = np.stack([np.where(np.isinf(start), np.nan, start), next_above], 1)
        return pieces(owner[:, None], starts, np.stack([at_scores, _merged(self.p0, self.p1)], 1))


def _merged(p0: NDArray[Any], p1: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(p1 / (1 - p0 + p1))
