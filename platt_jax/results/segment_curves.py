"""What the curves of segments say of rows: probabilities, bands and thresholds.

Curves have places: 0 to K - 1 for the segments of a calibrator, and -1 or K for an unseen segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.backend import accelerators
from platt_jax.results.averages import mean_probability
from platt_jax.results.curve_thresholds import curve_thresholds
from platt_jax.results.fit import Fit
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.probabilities import (
    UPPER,
    band,
    clipped_logit,
    expit,
    finite_where_flat,
    nearer_scores,
    variance_of_logit,
    with_offset,
)
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.thresholds import Thresholds, mean_thresholds, sigmoid_thresholds


class SegmentCurves(Protocol):
    """The curves of segments.

    All arguments and results are arrays (n,), a number for each row: its score, the place of its
    curve, and its offset, or None for all. `critical` is half the width of a band in standard
    errors.
    """

    def proba(self, scores: Any, places: Integers, offset: Any) -> NDArray[Any]:
        """P(y=1)."""

    def band(
        self, scores: Any, places: Integers, offset: Any, critical: float
    ) -> Sequence[NDArray[Any]]:
        """Lower and upper probabilities."""

    def thresholds(
        self, target: Any, places: Integers, offset: Any, critical: float | None
    ) -> Thresholds:
        """Where the predictions, or the lower ends of bands, reach log-odds."""


@dataclass(frozen=True)
class SegmentSigmoids:
    """The most probable sigmoids."""

    # (K + 1, 5), A, B, and the entries AA, AB and BB of their covariance; or (K + 1, 2) for
    # probabilities alone
    numbers: NDArray[Any]

    @classmethod
    def joined(
        cls, fit: Fit, fallback: Sigmoid, fallback_covariance: NDArray[Any] | None = None
    ) -> Self:
        """The sigmoids of segments (K,) and of the fallback; with covariances if that is given."""
        pairs = [(fit.A, fallback.A), (fit.B, fallback.B)]
        if fallback_covariance is not None:
            pairs += [(fit.covariance[:, i, j], fallback_covariance[i, j]) for i, j in UPPER]
        fetched = accelerators.fetched(pairs)
        return cls(np.column_stack([np.append(x, np.asarray(y, x.dtype)) for x, y in fetched]))

    def proba(self, scores: Any, places: Integers, offset: Any) -> NDArray[Any]:
        """See `SegmentCurves`."""
        return np.asarray(expit(self._log_odds(scores, places, offset)))

    def band(
        self, scores: Any, places: Integers, offset: Any, critical: float
    ) -> Sequence[NDArray[Any]]:
        """See `SegmentCurves`."""
        scores = nearer_scores(scores, self.numbers[:, 2], places)
        variance = variance_of_logit(scores, *(x[places] for x in self.numbers.T[2:]))
        return band(self._log_odds(scores, places, offset), variance, critical)

    def thresholds(
        self, target: Any, places: Integers, offset: Any, critical: float | None
    ) -> Thresholds:
        """See `SegmentCurves`."""
        A, B, covariance = self._row_normals(places, offset)
        if critical is None:
            return sigmoid_thresholds(target, A, B, covariance)
        return mean_thresholds(target, A, B, covariance, critical)

    def _log_odds(self, scores: Any, places: Integers, offset: Any) -> Any:
        A, B = self.numbers.T[:2]
        if not A.all():
            scores = finite_where_flat(scores, A[places])
        with np.errstate(over="ignore"):  # far scores have infinite log-odds
            return with_offset(-(A[places] * scores + B[places]), offset)

    def _row_normals(self, places: Integers, offset: Any) -> tuple[Any, Any, Any]:
        """A and B in float64, with the offset in B, and the covariances' entries (3, n)."""
        A, B, *entries = self.numbers[places].T
        A, B = A.astype(np.float64), B.astype(np.float64)
        return A, B if offset is None else B - offset, np.stack(entries)


class PosteriorSigmoids(SegmentSigmoids):
    """Means of sigmoids over normal posteriors of (A, B), of which `numbers` are the moments."""

    def proba(self, scores: Any, places: Integers, offset: Any) -> NDArray[Any]:
        """See `SegmentCurves`."""
        normal = self.numbers.take(places, axis=0)
        if offset is not None:
            normal[:, 1] -= offset
        return mean_probability(scores, normal)

    def thresholds(
        self, target: Any, places: Integers, offset: Any, critical: float | None
    ) -> Thresholds:
        """See `SegmentCurves`."""
        return mean_thresholds(target, *self._row_normals(places, offset), critical)


@dataclass(frozen=True)
class ShiftedCurves:
    """Curves that are no sigmoids."""

    curves: FittedCurves  # K + 1 curves
    shift: NDArray[Any] | None  # (K + 1,) what is subtracted from their log-odds, or None

    def proba(self, scores: Any, places: Integers, offset: Any) -> NDArray[Any]:
        """See `SegmentCurves`."""
        if offset is None and self.shift is None:
            return self.curves.proba(scores, self._which(places))
        return np.asarray(expit(self._log_odds(scores, self._which(places), offset)))

    def bounds(self, scores: Any, places: Integers, offset: Any) -> Sequence[NDArray[Any]]:
        """The two probabilities of Venn-Abers predictors."""
        curves: Any = self.curves  # VennAbersCurves
        which = self._which(places)
        both: tuple[NDArray[Any], NDArray[Any]] = curves.both(scores, which)
        if offset is None and self.shift is None:
            return both
        return [np.asarray(expit(self._moved(clipped_logit(p), which, offset))) for p in both]

    def band(
        self, scores: Any, places: Integers, offset: Any, critical: float
    ) -> Sequence[NDArray[Any]]:
        """See `SegmentCurves`."""
        which = self._which(places)
        log_odds = self._log_odds(scores, which, offset)
        return band(log_odds, self.curves.variance(scores, which), critical)

    def thresholds(
        self, target: Any, places: Integers, offset: Any, critical: float | None
    ) -> Thresholds:
        """See `SegmentCurves`."""
        which = self._which(places)
        moved = 0.0 if self.shift is None else self.shift[which]
        target = target + moved - (0.0 if offset is None else offset)
        return curve_thresholds(self.curves, target, which, critical)

    def _which(self, places: Integers) -> Integers:
        return np.where(places < 0, len(self.curves) - 1, places)

    def _log_odds(self, scores: Any, which: Integers, offset: Any) -> Any:
        return self._moved(self.curves.log_odds(scores, which), which, offset)

    def _moved(self, log_odds: Any, which: Integers, offset: Any) -> Any:
        if self.shift is not None:
            log_odds = log_odds - self.shift[which]
        return with_offset(log_odds, offset)
