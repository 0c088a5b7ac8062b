"""The scores at which curves that are no sigmoids reach a probability, where they are monotone."""

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Integers
from platt_jax.groups import Groups
from platt_jax.results.features import LinearFeatures
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.mixed_curves import MixedCurves
from platt_jax.results.probabilities import expit
from platt_jax.results.ragged_curves import CornerCurves, RaggedCurves
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

_ANGLES = np.linspace(-np.pi / 2, np.pi / 2, 65)  # of scores at which a curve is looked at first
_CLOSE = 1e-3  # error of log-odds from which on a search may end
_ROUNDED = 4 * np.finfo(float).eps  # error of a probability from its log-odds, for each of these
_FARTHEST = 800.0  # log-odds beyond which a probability is 0 or 1
_DIFFERENCE = 1e-4  # half the distance of the points of a difference quotient


def curve_thresholds(
    curves: FittedCurves, target: Floats, which: Integers, critical: float | None
) -> Thresholds:
    """The thresholds of curves that never fall: of the curves `which` (n,), for log-odds (n,).

    `critical` is the half-width, in standard errors, of a band whose lower end is to reach them.
    """
    if critical is not None and not isinstance(curves, LogOddsCurves):
        raise ValueError(f"level: expected None for {curves.label} curves, which have no band")
    if isinstance(curves, MixedCurves):
        made = np.empty((4, len(target)))
        for number, part in enumerate(curves.parts):
            mine = curves.part[which] == number
            if mine.any():
                found = curve_thresholds(part, target[mine], curves.place[which[mine]], None)
                made[:, mine] = found
        return Thresholds(*made)
    if isinstance(curves, LogOddsCurves) and isinstance(curves.features, LinearFeatures):
        return _sigmoids(curves, target, which, critical)
    some, place = np.unique(which, return_inverse=True)
    monotone = curves.only(some).is_monotone[place.reshape(-1)]
    if isinstance(curves, LogOddsCurves):
        at, error = _smooth(curves, target, which, critical)
    else:
        assert isinstance(curves, RaggedCurves)
        # A probability that comes back from its log-odds may be rounded up.
        lost = _ROUNDED * (1 + np.abs(np.clip(target, -_FARTHEST, _FARTHEST)))
        at = _ragged(curves, expit(target) * (1 - lost), which)
        error = np.full(len(target), np.nan)
    known = np.isfinite(curves.proba(np.asarray(curves.low[which], float), which))
    status = np.select(
        [~known, ~monotone, at == np.inf, at == -np.inf],
        [NON_FINITE, NOT_MONOTONE, UNREACHED, EXCEEDED],
        OK,
    )
    bad = (status == NON_FINITE) | (status == NOT_MONOTONE)
    at, error = (np.where(bad, np.nan, x) for x in (at, error))
    return Thresholds(at, status.astype(float), np.ones(len(at)), error)


def _sigmoids(
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


def _smooth(
    curves: LogOddsCurves, target: Floats, which: Integers, critical: float | None
) -> tuple[Floats, Floats]:
    """The thresholds, and standard errors, by angles: infinite scores are angles like others."""
    low, high = (np.asarray(x[which], float) for x in (curves.low, curves.high))
    center, unit = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)

    def log_odds(angle: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            score = center + unit * np.tan(angle)
            made = np.asarray(curves.log_odds(score, which), float)
            if critical is not None:
                made = made - critical * np.sqrt(curves.variance(score, which))
        return made

    def slope(angle: Floats) -> Floats:
        width = _DIFFERENCE * np.cos(angle) ** 2
        made: Floats = (log_odds(angle + width) - log_odds(angle - width)) / (2 * width)
        return made

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
        now = (log_odds(np.full(len(target), angle)) >= target) & (reached == np.inf)
        reached[now] = angle
        last = np.where(now, angle, last)
        first = np.where(now, _ANGLES[max(number - 1, 0)], first)
    inside = np.isfinite(reached) & (first < last)
    start = np.where(inside, (first + last) / 2, np.nan)
    with np.errstate(invalid="ignore"):
        found = newton_roots(step, start, first, last)
    at = center + unit * np.tan(found.or_nan())
    at = np.where(reached == np.inf, np.inf, np.where(reached == _ANGLES[0], -np.inf, at))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_score = slope(found.at) * np.cos(found.at) ** 2 / unit
        error = np.sqrt(curves.variance(at, which)) / by_score
    return at, np.where(np.isinf(at), np.inf, error)


def _ragged(curves: RaggedCurves, p: Floats, which: Integers) -> Floats:
    """The smallest scores with this probability or a higher one."""
    groups = Groups(curves.sizes)
    rows = groups.rows_of(which)
    own = Groups(curves.sizes[which])
    scores = np.asarray(curves.scores[rows], np.float64)
    owner = own.by_row(which)
    # Each score, and the next number above it: between two scores a curve may be higher than at
    # the first one.
    next_above = np.nextafter(curves.scores[rows], np.inf).astype(np.float64)
    at, after = (
        np.asarray(curves.proba(x, owner), np.float64) >= own.by_row(p)
        for x in (scores, next_above)
    )
    # The number of candidates, at and after each score, that are below.
    place = np.where(at, 2 * own.place, np.where(after, 2 * own.place + 1, 2 * own.rows))
    best: NDArray[np.float64] = own.minima(place.astype(float))
    none = best >= 2 * own.rows
    number = np.where(none, 0, best // 2).astype(np.int64)
    at_row = own.starts + number
    found = np.where(best % 2 == 1, next_above[at_row], scores[at_row])
    if isinstance(curves, CornerCurves):
        before = np.maximum(at_row - 1, own.starts)
        p_low, p_high = (
            np.asarray(curves.probabilities[rows[x]], np.float64) for x in (before, at_row)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.clip((p - p_low) / (p_high - p_low), 0, 1)
        low, high = scores[before], scores[at_row]
        found = np.where(p_high > p_low, (1 - share) * low + share * high, found)
    below = np.nextafter(curves.scores[rows][own.starts], -np.inf).astype(np.float64)
    exceeded = np.asarray(curves.proba(below, which), np.float64) >= p
    return np.where(exceeded, -np.inf, np.where(none, np.inf, found))
