"""Small p-values by importance sampling of labels.

Labels are drawn with their log-odds moved by a multiple of their contribution to a sum (exponential
tilting: Siegmund 1976, "Importance sampling in the Monte Carlo study of sequential tests"), so that
the sum's mean is at the bound of a half-space of extreme labels. Several half-spaces cover all
extreme labels. Draws are from a mixture over these, and a draw's weight is the ratio of its
probability under the hypothesis to that in the mixture (Owen & Zhou 2000, "Safe and effective
importance sampling"). The weight of extreme labels is then at most the sum of the half-spaces'
Chernoff bounds, which is not much more than their probability.
"""

from typing import Any, NamedTuple

import numpy as np

from platt_jax.arrays import Floats, Ints, Words
from platt_jax.backend.threads import ordered_map
from platt_jax.hypothesis_tests.score_tests import ScoreTest
from platt_jax.hypothesis_tests.simulation import AT_ONCE, row_words, thresholds
from platt_jax.passes.replicated import mixed, random_words

# The first draws determine how many are needed for the relative standard error _ERROR. No more are
# taken for p-values surely below the least that matters.
_FIRST_DRAWS, _MOST_DRAWS = 512, 16_384
_ERROR = 0.04
_LOG_LEAST = np.log(1e-12)
_SEED = 1

# Maximum number of rows whose labels (4,096) are enumerated.
_FEW_ROWS = 12

# Share of the draws that are not tilted.
_AS_IT_IS = 0.02

# Half-spaces: tangents around the circle of Cox's test, so close that neighbours meet on it, and
# the two sides of the interval of Spiegelhalter's.
_AROUND = 16
_NEAR = np.cos(np.pi / _AROUND)
_ANGLES = 2 * np.pi / _AROUND * np.arange(_AROUND)
_CIRCLE = np.stack([np.cos(_ANGLES), np.sin(_ANGLES), np.zeros(_AROUND)], -1)
_DIRECTIONS = np.concatenate([_CIRCLE, [[0, 0, 1], [0, 0, -1]]])

# Tolerance of a sum's mean from the bound, in standard deviations, and maximum number of steps. Any
# tilt gives the p-value; a good one needs fewer draws.
_CLOSE = 0.2
_STEPS = 30
# Maximum change of log-odds, for finite exponentials.
_FARTHEST = 600
# A bound is out of reach if no labels reach it, up to rounding.
_OUT_OF_REACH = 1 - 1e-9

_BELOW_ONE = 1 - 2.0**-53
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # less 1, times 2^64
_LARGEST_EXPONENT = 700
_TOGETHER = 16  # problems


def tilted_p_values(tests: Any, ids: Words, which: Ints) -> Floats:
    """P-values of problems (J,) down to 1e-12, with a relative standard error of 4 %.

    For up to 12 rows they are exact. The observed labels count as one of the draws, which keeps
    p-values valid (Harrison 2012, "Conservative hypothesis tests and confidence intervals using
    importance sampling"). Where sums are normal, they are drawn in place of labels, which is a
    saddlepoint approximation. A problem's draws depend only on its own id, a uint64.
    """
    pieces = np.split(which, range(_TOGETHER, len(which), _TOGETHER))

    def work(some: Ints) -> list[float]:
        return [_p_value(tests.one(k), ids[k : k + 1]) for k in some]

    return np.array([x for part in ordered_map(work, pieces) for x in part], float)


def _p_value(test: ScoreTest, stream: Words) -> float:
    """The p-value of one problem, by draws from this stream (1,)."""
    if len(test.proba) <= _FEW_ROWS:
        return _enumerated(test)
    mixture = _Mixture(test)
    weights = mixture.weights_of_draws(stream, 0, _FIRST_DRAWS)
    if mixture.log_scale > _LOG_LEAST:
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = (weights.std() / weights.mean() / _ERROR) ** 2
        last = int(np.fmin(wanted, _MOST_DRAWS))
        more = mixture.weights_of_draws(stream, _FIRST_DRAWS, max(last, _FIRST_DRAWS))
        weights = np.append(weights, more)
    observed_weight = mixture.weights(test.observed[:, None])
    return min(1.0, float(np.exp(mixture.log_scale) * np.append(weights, observed_weight).mean()))


def _enumerated(test: ScoreTest) -> float:
    """The probability of all labels that are at least as extreme as the observed ones."""
    bits = np.arange(len(test.proba))
    labels = (np.arange(2 ** len(bits))[:, None] >> bits & 1).astype(bool)
    chances = np.where(labels, test.proba, 1 - test.proba).prod(axis=1)
    return float(chances[test.extreme(test.sums(labels))].sum())


class _Mixture:
    """Mixture of the hypothesis, untilted and tilted in J directions.

    Attributes:
        log_scale: logarithm of the divisor of weights, which may underflow.
    """

    def __init__(self, test: ScoreTest) -> None:
        self._test = test
        bounds = _NEAR * np.repeat([np.sqrt(test.chi_square), test.z], [_AROUND, 2])
        # In parts where rows are many, to limit memory.
        step = max(1, AT_ONCE // len(test.proba))
        tilts = [
            _tilt(test, _DIRECTIONS[x : x + step], bounds[x : x + step])
            for x in range(0, len(bounds), step)
        ]
        tilt = _Tilt(*(np.concatenate(x) for x in zip(*tilts, strict=True)))
        self._slopes, self._offsets = tilt.slope, tilt.offset
        self.log_scale = np.logaddexp.reduce(tilt.log_bound)
        self._until = (1 - _AS_IT_IS) * np.cumsum(np.exp(tilt.log_bound - self.log_scale))
        self._proba = np.concatenate([tilt.proba, test.proba[None]])
        if test.normal:
            self._mean = (test.counts * (self._proba - test.proba)) @ test.shares.T
            variance = test.counts * self._proba * (1 - self._proba)
            x, y = test.shares, test.shares.T
            values, vectors = np.linalg.eigh([(x * v) @ y for v in variance])
            self._root = vectors * np.sqrt(np.maximum(values, 0))[:, None]
        else:
            self._thresholds = thresholds(np.minimum(self._proba, _BELOW_ONE))

    def weights(self, sums: Floats) -> Floats:
        """(R,) weights of draws with these sums (3, R); 0 for draws that are not extreme."""
        extreme = self._test.extreme(sums)
        beyond = self._slopes @ sums[:, extreme] - self._offsets[:, None]
        tilted = np.exp(np.minimum(beyond, _LARGEST_EXPONENT)).sum(axis=0)
        as_it_is = _AS_IT_IS * np.exp(self.log_scale)
        weights = np.zeros(len(extreme))
        weights[extreme] = 1 / (as_it_is + (1 - _AS_IT_IS) * tilted)
        return weights

    def weights_of_draws(self, stream: Words, first: int, last: int) -> Floats:
        """The weights of draws number `first` to `last`, exclusive."""
        draws = np.arange(first, last)
        # A golden-ratio sequence takes each tilt almost exactly as often as its share.
        sequence = draws.astype(np.uint64) * _GOLDEN_RATIO + stream
        tilts = np.searchsorted(self._until, np.ldexp(sequence.astype(float), -64), side="right")
        streams = random_words(_SEED, stream, draws)
        draw = self._normal_sums if self._test.normal else self._label_sums
        step = max(1, AT_ONCE // len(self._test.proba))
        sums = [
            draw(streams[x : x + step], tilts[x : x + step]) for x in range(0, len(draws), step)
        ]
        return self.weights(np.concatenate([np.zeros((3, 0)), *sums], axis=1))

    def _label_sums(self, streams: Words, which: Ints) -> Floats:
        """(3, R) sums of drawn labels, given random streams and the tilts' numbers, (R,) each."""
        words = row_words(streams[:, None], np.array([len(self._test.proba)]))
        return self._test.sums(words < self._thresholds[which])

    def _normal_sums(self, streams: Words, which: Ints) -> Floats:
        """(3, R) normal sums with the labels' mean and covariance; arguments as `_label_sums`."""
        from scipy.special import ndtri

        numbers = np.arange(3, dtype=np.uint64)
        random = mixed(streams[:, None] + numbers) >> np.uint64(12)
        normal = ndtri(np.ldexp(random + 0.5, -52))
        sums: Floats = np.einsum("rij,rj->ir", self._root[which], normal)
        return sums + self._mean[which].T


class _Tilt(NamedTuple):
    """Tilts in J directions, in each of which some labels reach the bound."""

    slope: Floats  # (J, 3); log-odds are moved by this times the rows' shares
    offset: Floats  # (J,) slope times sums, at the bound
    log_bound: Floats  # (J,) log of Chernoff's bound on the half-space's probability
    proba: Floats  # (J, n) tilted probabilities


def _tilt(test: ScoreTest, directions: Floats, bounds: Floats) -> _Tilt:
    """Tilts in these directions (J, 3) that put the means of sums at the bounds (J,)."""
    p = test.proba
    along = directions @ test.shares
    most = np.where(along > 0, (1 - p) * along, -p * along) @ test.counts
    reached = (most > 0) & (most >= _OUT_OF_REACH * bounds)
    directions, bounds, along = directions[reached], bounds[reached], along[reached]
    odds = p / (1 - p)
    low, high = np.zeros(len(bounds)), _FARTHEST / np.abs(along).max(axis=1, initial=0)
    length = np.minimum(bounds, high)  # exact for a normal sum
    for step in range(_STEPS):
        moved = length[:, None] * along
        tilted_odds = odds * np.exp(moved)
        tilted = tilted_odds / (1 + tilted_odds)
        mean = ((tilted - p) * along) @ test.counts
        variance = (tilted / (1 + tilted_odds) * along**2) @ test.counts
        short = bounds - mean
        if step == _STEPS - 1 or (np.abs(short) <= _CLOSE * np.sqrt(variance)).all():
            break
        low, high = np.where(short > 0, length, low), np.where(short > 0, high, length)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = length + short / variance
        length = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
    # The log of the mean of exp(length * sum).
    log_mean = (np.log1p(tilted_odds) + np.log1p(-p) - moved * p) @ test.counts
    offset = length * bounds
    return _Tilt(length[:, None] * directions, offset, log_mean - offset, tilted)
