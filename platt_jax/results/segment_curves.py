"""What the curves of segments say of rows: probabilities, bands and thresholds.

Curves have places: 0 to K - 1 for the segments of a calibrator, and -1 or K for an unseen segment.
A curve that is no sigmoid has thresholds where it is monotone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Integers
from platt_jax.backend import accelerators
from platt_jax.groups import Groups
from platt_jax.results.averages import mean_probability
from platt_jax.results.features import LinearFeatures
from platt_jax.results.fit import Fit
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.mixed_curves import MixedCurves
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
from platt_jax.results.ragged_curves import CornerCurves, RaggedCurves
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.results.thresholds import (
    EXCEEDED,
    NEAR,
    NON_FINITE,
    NOT_MONOTONE,
    OK,
    UNREACHED,
    Thresholds,
    mean_thresholds,
    sigmoid_thresholds,
)
from platt_jax.searches import newton_roots

# Of the search for thresholds of curves that are no sigmoids.
_ANGLES = np.linspace(-np.pi / 2, np.pi / 2, 65)  # of scores at which a curve is looked at first
_CLOSE = 1e-3  # error of log-odds from which on a search may end
_ROUNDED = 4 * np.finfo(float).eps  # error of a probability from its log-odds, for each of these
_FARTHEST = 800.0  # log-odds beyond which a probability is 0 or 1
_DIFFERENCE = 1e-4  # half the distance of the points of a difference quotient


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
        bounds: tuple[NDArray[Any], NDArray[Any]] = curves.both(scores, which)
        if offset is None and self.shift is None:
            return bounds
        return [np.asarray(expit(self._moved(clipped_logit(p), which, offset))) for p in bounds]

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
        shift = 0.0 if self.shift is None else self.shift[which]
        target = target + shift - (0.0 if offset is None else offset)
        return _curve_thresholds(self.curves, target, which, critical)

    def _which(self, places: Integers) -> Integers:
        return np.where(places < 0, len(self.curves) - 1, places)

    def _log_odds(self, scores: Any, which: Integers, offset: Any) -> Any:
        return self._moved(self.curves.log_odds(scores, which), which, offset)

    def _moved(self, log_odds: Any, which: Integers, offset: Any) -> Any:
        if self.shift is not None:
            log_odds = log_odds - self.shift[which]
        return with_offset(log_odds, offset)


def _curve_thresholds(
    curves: FittedCurves, target: Floats, which: Integers, critical: float | None
) -> Thresholds:
    """The thresholds of curves that never fall: of the curves `which` (n,), for log-odds (n,).

    `critical` is the half-width, in standard errors, of a band whose lower end is to reach them.
    """
    if critical is not None and not isinstance(curves, LogOddsCurves):
        raise ValueError(f"level: expected None for {curves.label} curves, which have no band")
    if isinstance(curves, MixedCurves):
        columns = np.empty((4, len(target)))
        for number, part in enumerate(curves.parts):
            mask = curves.part[which] == number
            if mask.any():
                values = _curve_thresholds(part, target[mask], curves.place[which[mask]], None)
                columns[:, mask] = values
        return Thresholds(*columns)
    if isinstance(curves, LogOddsCurves) and isinstance(curves.features, LinearFeatures):
        return _thresholds_of_sigmoids(curves, target, which, critical)
    unique, inverse = np.unique(which, return_inverse=True)
    monotone = curves.only(unique).is_monotone[inverse.reshape(-1)]
    if isinstance(curves, LogOddsCurves):
        at, error = _smooth_thresholds(curves, target, which, critical)
    else:
        assert isinstance(curves, RaggedCurves)
        # A probability that comes back from its log-odds may be rounded up.
        lost = _ROUNDED * (1 + np.abs(np.clip(target, -_FARTHEST, _FARTHEST)))
        at = _ragged_thresholds(curves, expit(target) * (1 - lost), which)
        error = np.full(len(target), np.nan)
    finite = np.isfinite(curves.proba(np.asarray(curves.low[which], float), which))
    status = np.select(
        [~finite, ~monotone, at == np.inf, at == -np.inf],
        [NON_FINITE, NOT_MONOTONE, UNREACHED, EXCEEDED],
        OK,
    )
    bad = (status == NON_FINITE) | (status == NOT_MONOTONE)
    at, error = (np.where(bad, np.nan, x) for x in (at, error))
    return Thresholds(at, status.astype(float), np.ones(len(at)), error)


def _thresholds_of_sigmoids(
    curves: LogOddsCurves, target: Floats, which: Integers, critical: float | None
) -> Thresholds:
    """The thresholds of sigmoids, rising or falling."""
    # At score 0 the log-odds are c_0 - c_1 center.
    constant, slope = curves.coefficients[which].astype(float).T
    center, c = curves.center[which].astype(float), curves.covariance[which].astype(float)
    cross = c[:, 0, 1] - center * c[:, 1, 1]
    at_0 = c[:, 0, 0] - center * (c[:, 0, 1] + cross)
    normals = -slope, slope * center - constant, np.stack([c[:, 1, 1], cross, at_0])
    if critical is None:
        return sigmoid_thresholds(target, *normals)
    return mean_thresholds(target, *normals, critical)


def _smooth_thresholds(
    curves: LogOddsCurves, target: Floats, which: Integers, critical: float | None
) -> tuple[Floats, Floats]:
    """The thresholds, and standard errors, by angles: infinite scores are angles like others."""
    low, high = (np.asarray(x[which], float) for x in (curves.low, curves.high))
    center, unit = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)

    def log_odds(angle: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            score = center + unit * np.tan(angle)
            values = np.asarray(curves.log_odds(score, which), float)
            if critical is not None:
                values = values - critical * np.sqrt(curves.variance(score, which))
        return values

    def slope(angle: Floats) -> Floats:
        width = _DIFFERENCE * np.cos(angle) ** 2
        quotient: Floats = (log_odds(angle + width) - log_odds(angle - width)) / (2 * width)
        return quotient

    def step(angle: Floats) -> tuple[Floats, Floats, Floats]:
        value, steepness = target - log_odds(angle), slope(angle)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(steepness > 0, value / steepness, np.nan)
            # A flat part may begin beside a steep one, of which the slope there says nothing.
            near = np.where(np.abs(value) < _CLOSE, NEAR / np.abs(steepness), 0)
            return value, newton, near

    # The first angle of some that reaches the target, and the one before.
    first, last, reached = (np.full(len(target), x) for x in (-np.pi / 2, np.pi / 2, np.inf))
    for number, angle in enumerate(_ANGLES):
        reaches = (log_odds(np.full(len(target), angle)) >= target) & (reached == np.inf)
        reached[reaches] = angle
        last = np.where(reaches, angle, last)
        first = np.where(reaches, _ANGLES[max(number - 1, 0)], first)
    interior = np.isfinite(reached) & (first < last)
    start = np.where(interior, (first + last) / 2, np.nan)
    with np.errstate(invalid="ignore"):
        roots = newton_roots(step, start, first, last)
    at = center + unit * np.tan(roots.or_nan())
    at = np.where(reached == np.inf, np.inf, np.where(reached == _ANGLES[0], -np.inf, at))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_score = slope(roots.at) * np.cos(roots.at) ** 2 / unit
        error = np.sqrt(curves.variance(at, which)) / by_score
    return at, np.where(np.isinf(at), np.inf, error)


def _ragged_thresholds(curves: RaggedCurves, p: Floats, which: Integers) -> Floats:
    """The smallest scores with this probability or a higher one."""
    groups = Groups(curves.sizes)
    rows = groups.rows_of(which)
    runs = Groups(curves.sizes[which])
    scores = np.asarray(curves.scores[rows], np.float64)
    owner = runs.by_row(which)
    # Each score, and the next number above it: between two scores a curve may be higher than at
    # the first one.
    next_above = np.nextafter(curves.scores[rows], np.inf).astype(np.float64)
    at, after = (
        np.asarray(curves.proba(x, owner), np.float64) >= runs.by_row(p)
        for x in (scores, next_above)
    )
    # The number of candidates, at and after each score, that are below.
    candidate = np.where(at, 2 * runs.place, np.where(after, 2 * runs.place + 1, 2 * runs.rows))
    best: NDArray[np.float64] = runs.minima(candidate.astype(float))
    none = best >= 2 * runs.rows
    number = np.where(none, 0, best // 2).astype(np.int64)
    at_row = runs.starts + number
    threshold = np.where(best % 2 == 1, next_above[at_row], scores[at_row])
    if isinstance(curves, CornerCurves):
        row_before = np.maximum(at_row - 1, runs.starts)
        p_low, p_high = (
            np.asarray(curves.probabilities[rows[x]], np.float64) for x in (row_before, at_row)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.clip((p - p_low) / (p_high - p_low), 0, 1)
        low, high = scores[row_before], scores[at_row]
        threshold = np.where(p_high > p_low, (1 - share) * low + share * high, threshold)
    below_first = np.nextafter(curves.scores[rows][runs.starts], -np.inf).astype(np.float64)
    exceeded = np.asarray(curves.proba(below_first, which), np.float64) >= p
    return np.where(exceeded, -np.inf, np.where(none, np.inf, threshold))
