"""The scores at which predictions reach a probability.

Without a population the prediction is a sigmoid, which has an inverse. With one it is the mean of a
sigmoid over normal (A, B) (`results/averages.py`), and a band is m - z sqrt(v): with log-odds
m = -(A f + B) and their variance v at a score f. Neither need be monotone. Far from the scores that
were fitted the mean tends to Phi(m / sqrt(v)), for A is uncertain, and may first rise above that.
The threshold is on the branch that rises.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.results import tables
from platt_jax.results.averages import PRECISIONS, mean_probability
from platt_jax.results.probabilities import inverse_standard_error, variance_of_logit
from platt_jax.searches import newton_roots

# How a search for a threshold ended. Between UNREACHED and EXCEEDED no score has the probability.
OK, UNREACHED, EXCEEDED, NOT_MONOTONE, NON_FINITE = range(5)
_NAMES = ("OK", "UNREACHED", "EXCEEDED", "NOT_MONOTONE", "NON_FINITE")

NEAR = 1e-11  # error of log-odds at which a search ends
_MISSED = 1e-8  # error of log-odds at which its result is bisected
_BISECTIONS = 60  # to the last bit of an angle
_DIFFERENCE = 1e-4  # by which log-odds are to differ between points of a difference quotient
_TURNED = 1e-3  # of angles, between points of second differences
_NEAR_HIGHEST = 1e-3  # last step of an angle towards the highest point, where curves are flat
_FLATTEST = 1e-8  # smallest standard deviation of A, relative to A, that gives a unit of scores


class Thresholds(NamedTuple):
    """Thresholds of n rows, as numbers of one type."""

    at: Floats  # (n,) infinite if no score has the probability
    status: Floats  # (n,) how it ended
    rising: Floats  # (n,) 1 if higher scores are more probable, else 0
    error: Floats  # (n,) standard error of the score at which the true curve has the probability


def status_names(codes: NDArray[Any]) -> NDArray[np.str_]:
    """(n,) the names of statuses."""
    return tables.texts(codes.astype(int), lambda code: _NAMES[code])


def target_log_odds(probability: Column, cost: Any) -> NDArray[np.float64]:
    """The log-odds of the probability to reach, of any shape, from either argument."""
    if (probability is None) == (cost is None):
        raise ValueError("probability, cost: expected one of them")
    if cost is not None:
        return _log_odds_of_cost(cost)
    p = validation.numbers(probability, "probability").astype(np.float64)
    validation.require_probabilities(p, "probability")
    if np.isnan(p).any():
        raise ValueError("probability: expected probabilities in [0, 1], got nan")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


def _log_odds_of_cost(cost: Any) -> NDArray[np.float64]:
    """The log-odds at which both mistakes cost the same: p = c_fp / (c_fp + c_fn)."""
    if not isinstance(cost, tuple | list) or len(cost) != 2:
        raise ValueError(f"cost: expected (false_positive, false_negative), got {cost!r}")
    costs = np.broadcast_arrays(*(validation.numbers(x, "cost").astype(np.float64) for x in cost))
    if not all(((x > 0) & np.isfinite(x)).all() for x in costs):
        raise ValueError(f"cost: expected two costs above 0, got {cost!r}")
    return np.asarray(np.log(costs[0]) - np.log(costs[1]))


def sigmoid_thresholds(target: Floats, A: Floats, B: Floats, covariance: Floats) -> Thresholds:
    """Thresholds of sigmoids, where they reach log-odds (n,); B has any offset in it.

    The covariance (3, n) has the entries AA, AB and BB.
    """
    rising = ~(A > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = -(target + B) / A
        flat = np.where(target + B <= 0, -np.inf, np.inf)
    at = np.where(A == 0, flat, inverse)
    status = np.where(np.isfinite(at), OK, np.where((at > 0) == rising, UNREACHED, EXCEEDED))
    return _with_errors(at, status, rising, A, B, covariance)


def mean_thresholds(
    target: Floats, A: Floats, B: Floats, covariance: Floats, critical: float | None
) -> Thresholds:
    """Thresholds of means over normal (A, B), or of the lower ends of bands.

    `critical` is the half-width of the band in standard errors; None for the mean. The others are
    as in `sigmoid_thresholds`.
    """
    curves = _RisingCurves(A, B, covariance, critical, upper=target > 0)
    low, high = curves.rising_branch(target)
    with np.errstate(invalid="ignore"):
        gap_low, gap_high = target - curves.log_odds(low), target - curves.log_odds(high)
    exceeded, unreached = gap_low <= 0, gap_high > 0
    start = curves.start(target)
    start = np.where((start > low) & (start < high), start, (low + high) / 2)
    reachable = ~(exceeded | unreached | np.isnan(gap_low) | np.isnan(gap_high))
    roots = newton_roots(
        lambda angle: curves.step(angle, target), np.where(reachable, start, np.nan), low, high
    )
    at = curves.score(curves.bisected(roots.or_nan(), target, low, high))
    side = np.where(curves.rising, np.inf, -np.inf)
    at = np.where(unreached, side, np.where(exceeded, -side, at))
    status = np.select(
        [np.isnan(A + B), unreached, exceeded], [NON_FINITE, UNREACHED, EXCEEDED], OK
    )
    status = np.where(np.isnan(at), NON_FINITE, status)
    return _with_errors(at, status, curves.rising, A, B, covariance)


def _with_errors(
    at: Floats, status: NDArray[Any], rising: Bools, A: Floats, B: Floats, covariance: Floats
) -> Thresholds:
    status = np.where(np.isnan(A + B) | np.isnan(at), NON_FINITE, status)
    at = np.where(status == NON_FINITE, np.nan, at)
    error = inverse_standard_error(A, at, *covariance.astype(np.float64))
    return Thresholds(at, status.astype(float), rising.astype(float), error)


class _RisingCurves:
    """Means of sigmoids over normal (A, B), or lower ends of bands, by an angle.

    A score is center + direction unit tan(angle), so that infinite scores are angles like others,
    and there, too, the mean is a smooth function. The direction is that in which the curve rises.
    At the center the log-odds are known best.
    """

    def __init__(
        self, A: Floats, B: Floats, covariance: Floats, critical: float | None, *, upper: Bools
    ) -> None:
        self.normal = np.column_stack([A, B, *covariance.astype(np.float64)])
        self.covariance, self.critical = covariance, critical  # as a band has it
        # Log-odds are computed from the smaller of both probabilities, which loses no digits.
        self.side = np.where(upper, -1.0, 1.0)
        self.mean_of = self.normal.copy()
        self.mean_of[:, :2] *= self.side[:, None]
        A, B, c_AA, c_AB, c_BB = self.normal.T
        self.rising = ~(A > 0)
        self.direction = np.where(self.rising, 1.0, -1.0)
        self.slope = np.abs(A)
        with np.errstate(divide="ignore", invalid="ignore"):
            midpoint = np.where(A == 0, 0.0, -B / A)
            self.center = np.where(c_AA > 0, -c_AB / np.where(c_AA > 0, c_AA, 1), midpoint)
        self.middle = -(A * self.center + B)  # log-odds there
        self.least = np.maximum(variance_of_logit(self.center, c_AA, c_AB, c_BB), 0)
        self.growth = np.maximum(c_AA, 0)  # of the variance, by the squared distance
        spread = np.sqrt(np.maximum(self.growth, (_FLATTEST * self.slope) ** 2))
        with np.errstate(divide="ignore"):
            unit = np.sqrt(1 / np.max(PRECISIONS) ** 2 + self.least) / spread
        self.unit = np.where(np.isfinite(unit), unit, 1.0)

    def score(self, angle: Floats) -> Floats:
        """(n,) the scores at angles (n,)."""
        score: Floats = self.center + self.direction * self.unit * np.tan(angle)
        return score

    def start(self, target: Floats) -> Floats:
        """(n,) angles near the thresholds: the mode's, or the band's but for rounding.

        At a distance x of the center the band is a x + e - z sqrt(v_0 + g x^2) above the target.
        """
        a, e, z = self.slope, self.middle - target, self.critical or 0.0
        q = a * a - z * z * self.growth
        with np.errstate(divide="ignore", invalid="ignore"):
            root = z * np.sqrt(self.growth * e * e + self.least * q)
            one, other = (root - a * e) / q, (z * z * self.least - e * e) / (root + a * e)
        return self._angle(np.where(e < 0, one, other))

    def _angle(self, distance: Floats) -> Floats:
        """(n,) the angles of scores so far from the center, in the curve's direction."""
        return np.arctan2(distance, self.unit)

    def log_odds(self, angle: Floats) -> Floats:
        """(n,) the log-odds of the mean, or the band's lower ones, at angles (n,)."""
        return self._log_odds(self.score(angle), np.arange(len(angle)))

    def _log_odds(self, score: Floats, which: NDArray[Any]) -> Floats:
        if self.critical is not None:
            A, B = self.normal[which, :2].T
            deviation = np.sqrt(variance_of_logit(score, *self.covariance[:, which]))
            lower_end: Floats = -(A * score + B) - self.critical * deviation
            return lower_end
        p = mean_probability(score, self.mean_of[which])
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.side[which] * (np.log(p) - np.log1p(-p)))

    def _around(self, angle: Floats, width: Floats | float) -> tuple[Floats, Floats, Floats]:
        """The log-odds at angles minus a width, there, and at angles plus the width."""
        rows = np.arange(len(angle))
        angles = np.concatenate([angle - width, angle, angle + width])
        which = np.tile(rows, 3)
        score = (self.center + self.direction * self.unit * np.tan(angles.reshape(3, -1))).ravel()
        left, center, right = self._log_odds(score, which).reshape(3, -1)
        return left, center, right

    def step(self, angle: Floats, target: Floats) -> tuple[Floats, Floats, Floats]:
        """What `newton_roots` asks for at angles (n,), by difference quotients."""
        variance = self.least + self.growth * (self.unit * np.tan(angle)) ** 2
        steepness = 1 + self.slope * self.unit / np.cos(angle) ** 2 / np.sqrt(1 + variance)
        width = _DIFFERENCE / steepness
        left, center, right = self._around(angle, width)
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (right - left) / (2 * width)
            value = target - center
            return value, np.where(slope > 0, value / slope, np.nan), NEAR / np.abs(slope)

    def bisected(self, angle: Floats, target: Floats, low: Floats, high: Floats) -> Floats:
        """(n,) the angles, or where they miss the target, those found by bisection.

        Far out, where the mean is near its limit, difference quotients are wrong.
        """
        with np.errstate(invalid="ignore"):
            missed = np.abs(self.log_odds(angle) - target) > _MISSED
        if not missed.any():
            return angle
        curves, target, low, high = self._only(missed), target[missed], low[missed], high[missed]
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            is_below = curves.log_odds(middle) < target
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        angles = angle.copy()
        angles[missed] = high
        return angles

    def rising_branch(self, target: Floats) -> tuple[Floats, Floats]:
        """(n,) the angles between which the curve rises, or part of it if that has the target."""
        low, high = np.full(len(target), -np.pi / 2), np.full(len(target), np.pi / 2)
        if self.critical is not None:
            return low, np.minimum(high, self._highest_of_band())
        # A mean is a sum of Phi(m / sqrt(1 / c^2 + v)), each of which has one extreme value: where
        # a (1 / c^2 + v) = m v' / 2, at a distance of a (1 / c^2 + least) / (growth middle).
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ends = [
                self.slope * (1 / c**2 + self.least) / (self.growth * np.abs(self.middle))
                for c in (np.max(PRECISIONS), np.median(PRECISIONS), np.min(PRECISIONS))
            ]
        turns = (self.growth > 0) & (self.middle != 0)
        nearest, usual, farthest = (np.where(turns, self._angle(x), np.pi / 2) for x in ends)
        # On the other side of the center the curve is turned by 180 degrees.
        over, under = turns & (self.middle > 0), turns & (self.middle < 0)
        high, low = np.where(over, nearest, high), np.where(under, -nearest, low)
        for mask, sign in ((over, 1.0), (under, -1.0)):
            end = high if sign > 0 else low
            with np.errstate(invalid="ignore"):
                beyond = mask & (sign * (target - self.log_odds(end)) > 0)
            if beyond.any():
                angles = (x[beyond] for x in (usual, nearest, farthest))
                end[beyond] = sign * self._only(beyond)._extreme(sign, *angles)
        return low, high

    def _highest_of_band(self) -> Floats:
        """(n,) the angles at which m - z sqrt(v) is highest."""
        bend = self.slope / self.critical
        excess = self.growth - bend**2
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = bend * np.sqrt(self.least / (self.growth * excess))
        return np.where(excess > 0, self._angle(distance), np.pi / 2)

    def _extreme(self, sign: float, start: Floats, nearest: Floats, farthest: Floats) -> Floats:
        """(n,) the angles x in bounds at which sign times the curve at sign x is highest."""

        def slope(angle: Floats) -> tuple[Floats, Floats, float]:
            left, center, right = (sign * x for x in self._around(sign * angle, sign * _TURNED))
            with np.errstate(invalid="ignore", divide="ignore"):
                first, second = right - left, right - 2 * center + left
                step = np.where(second < 0, -first / second * _TURNED / 2, np.nan)
            return first, step, _NEAR_HIGHEST

        return newton_roots(slope, start, nearest, farthest).at

    def _only(self, some: Bools) -> "_RisingCurves":
        A, B = self.normal[some, :2].T
        upper = self.side[some] < 0
        return _RisingCurves(A, B, self.covariance[:, some], self.critical, upper=upper)
