"""Small p-values under uncertain curves, by importance sampling of curves and labels together.

As in `tilting`, labels are drawn with log-odds moved towards a half-space of extreme sums. Curves
are moved, too: to where a curve and its tilted labels are most probable together (a Laplace
approximation of the extreme outcomes). Labels that are extreme under one curve may be likely under
another, so weights are of curve and labels together. Mixture weights over all half-spaces would
need the curve's density in each. Instead each extreme outcome counts for one half-space only, the
one in whose direction it lies, and only if it was drawn for that one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.inference.curve_distributions import Distribution
from platt_jax.inference.score_tests import ScoreTest
from platt_jax.inference.simulation import AT_ONCE, row_words
from platt_jax.inference.tilting import AROUND, DIRECTIONS, GOLDEN_RATIO, NEAR
from platt_jax.passes.replicated import mixed, random_words
from platt_jax.results.probabilities import expit

_LABELS, _CURVES = 4, 5  # seeds

# The first draws determine how many are needed for the relative standard error _ERROR. No more are
# taken for p-values surely below the least that matters.
_FIRST_DRAWS, _MOST_DRAWS = 512, 16_384
_ERROR = 0.1
_LOG_LEAST = np.log(1e-12)

# Share of the curves, and of the labels, that are not tilted, which bounds the weights.
_AS_IT_IS = 0.2
_CHOICE = np.uint64(0x3C3C3C3C3C3C3C3C)

# Maximum number of steps towards a tilt; tolerances of the sum from its bound and of the curve's
# change, in standard deviations. Any tilt gives the p-value; a good one needs fewer draws.
_STEPS = 12
_CLOSE = 0.2
_STILL = 0.05
# A bound is out of reach if no labels reach it, up to rounding.
_OUT_OF_REACH = 1 - 1e-9
# Maximum absolute log-odds, for finite exponentials.
_FARTHEST = 600.0


def tilted_pvalue(test: ScoreTest, curve: Distribution, stream: Words) -> float:
    """The p-value of one problem.

    Args:
        test: score test of the problem.
        curve: (2,) distribution of the log-odds at the curve's ends.
        stream: (1,) source of random words.
    """
    tilts = _tilts(test, curve)
    weights = np.zeros(0)
    wanted = _FIRST_DRAWS
    while len(weights) < wanted:
        draws = np.arange(len(weights), wanted)
        step = max(1, AT_ONCE // len(test.counts))
        made = [
            _weights(test, curve, tilts, stream, draws[x : x + step])
            for x in range(0, len(draws), step)
        ]
        weights = np.concatenate([weights, *made])
        if not weights.any():
            wanted = _MOST_DRAWS
        elif tilts.log_scale > _LOG_LEAST:
            wanted = int(min((weights.std() / weights.mean() / _ERROR) ** 2, _MOST_DRAWS))
    if not weights.any():  # no tilt has found an extreme outcome
        return 1 / (len(weights) * _AS_IT_IS**2)
    return float(min(1.0, np.exp(tilts.log_scale) * weights.mean()))


class _Tilts(NamedTuple):
    """Tilts in J directions, those whose bound some labels reach."""

    direction: Ints  # (J,) numbers of the directions
    slope: Floats  # (J,); log-odds are moved by this times the rows' shares
    curves: Distribution  # (J, 2) tilted distributions
    log_bound: Floats  # (J,) log of the half-space's probability, approximately

    @property
    def log_scale(self) -> float:
        """Logarithm of the divisor of weights, which may underflow."""
        return float(np.logaddexp.reduce(self.log_bound))


def _weights(
    test: ScoreTest, curve: Distribution, tilts: _Tilts, stream: Words, draws: Ints
) -> Floats:
    """(R,) weights of these draws (R,); 0 for those that do not count."""
    until = np.cumsum(np.exp(tilts.log_bound - tilts.log_scale))
    # A golden-ratio sequence takes each tilt almost exactly as often as its share.
    place = np.ldexp((draws.astype(np.uint64) * GOLDEN_RATIO + stream).astype(float), -64)
    which = np.minimum(np.searchsorted(until, place, side="right"), len(until) - 1)
    curve_words, label_words = (random_words(x, stream, draws) for x in (_CURVES, _LABELS))
    log_odds = np.where(
        _some(curve_words)[:, None],
        curve.draws(curve_words[:, None])[:, 0],
        tilts.curves.of(which).draws(curve_words),
    )
    logit = _clipped(test.logit(log_odds))
    direction = tilts.direction[which]
    moved = tilts.slope[which, None] * (DIRECTIONS[direction] @ test.shares)
    labels = drawn(test, logit + np.where(_some(label_words)[:, None], 0, moved), label_words)
    sums = test.sums(labels)
    counted = np.flatnonzero(test.extreme(sums) & (_nearest(test, sums) == direction))
    which, moved = which[counted], moved[counted]
    of_labels = _log_mean(test, logit[counted], moved) - (labels[counted] * moved).sum(1)
    of_curves = curve.log_ratio(tilts.curves.of(which), log_odds[counted])
    log_weight = _mixed(of_labels) + _mixed(of_curves) - tilts.log_bound[which]
    weights = np.zeros(len(draws))
    weights[counted] = np.exp(log_weight)
    return weights


def _some(words: Words) -> Bools:
    """Which draws are not tilted."""
    return mixed(words ^ _CHOICE) < np.uint64(_AS_IT_IS * 2**64)


def _mixed(log_ratio: Floats) -> Floats:
    """The log ratio of the untilted density to the mixture of it and the tilted one."""
    return -np.logaddexp(np.log1p(-_AS_IT_IS) - log_ratio, np.log(_AS_IT_IS))


def _nearest(test: ScoreTest, sums: Floats) -> Ints:
    """(R,) the direction for which each of the extreme sums (3, R) counts."""
    angle = np.arctan2(sums[1], sums[0])
    around = np.rint(angle * AROUND / (2 * np.pi)).astype(np.int64) % AROUND
    outside = sums[0] ** 2 + sums[1] ** 2 >= test.chi_square
    return np.where(outside, around, np.where(sums[2] > 0, AROUND, AROUND + 1))


def _tilts(test: ScoreTest, curve: Distribution) -> _Tilts:
    """For each direction d, the slope s and the curve that maximize P(curve) E exp(s d'sums).

    The slope puts the mean of d'sums at the bound. Both are found by joint Newton steps. Where the
    curve's Hessian is not positive definite, that of the distribution alone is used.
    """
    bounds = NEAR * np.repeat([np.sqrt(test.chi_square), test.z], [AROUND, 2])
    along, counts, basis = DIRECTIONS @ test.shares, test.counts, test.basis
    expected = DIRECTIONS @ test.expected
    most = np.maximum(along, 0) @ counts - expected
    direction = np.flatnonzero((most > 0) & (most >= _OUT_OF_REACH * bounds))
    bounds, along = (bounds + expected)[direction], along[direction]
    center = curve.center()
    deviation = 1 / np.sqrt(curve.curvature(center))
    log_odds, slope = np.tile(center, (len(direction), 1)), np.zeros(len(direction))
    farthest = _FARTHEST / np.abs(along).max(1)
    squares = np.stack([basis[0] ** 2, basis[0] * basis[1], basis[1] ** 2], -1)
    for _ in range(_STEPS):
        logit = _clipped(test.logit(log_odds))
        proba, tilted = expit(logit), expit(logit + slope[:, None] * along)
        variance = counts * tilted * (1 - tilted)
        own = curve.curvature(log_odds)
        hessian = (counts * proba * (1 - proba) - variance) @ squares
        hessian[:, [0, 2]] += own
        indefinite = (hessian[:, 0] <= 0) | (_determinant(hessian) <= 1e-3 * own.prod(1))
        hessian[indefinite] = np.stack([own[:, 0], 0 * own[:, 0], own[:, 1]], -1)[indefinite]
        gradient = curve.slope(log_odds) + (counts * (tilted - proba)) @ basis.T
        cross = (variance * along) @ basis.T
        newton, response = _solved(hessian, gradient), _solved(hessian, cross)
        short = bounds - (tilted * along) @ counts - (cross * newton).sum(1)
        rate = (variance * along**2).sum(1) + (cross * response).sum(1)
        further = np.clip(slope + short / np.maximum(rate, 1e-300), 0, farthest) - slope
        step = newton + response * further[:, None]
        part = np.minimum(1, (2 * deviation + 1) / np.maximum(np.abs(step), 1e-300)).min(1)
        log_odds, slope = log_odds + part[:, None] * step, slope + part * further
        still = (part[:, None] * np.abs(step) < _STILL * deviation).all()
        if still and (np.abs(short) <= _CLOSE * np.sqrt(rate)).all():
            break
    curves = curve.at(log_odds)
    log_mean = _log_mean(test, _clipped(test.logit(log_odds)), slope[:, None] * along)
    log_bound = log_mean - slope * bounds + curve.log_ratio(curves, log_odds)
    return _Tilts(direction, slope, curves, np.minimum(log_bound, 0))


def _log_mean(test: ScoreTest, logit: Floats, moved: Floats) -> Floats:
    """(R,) log of the mean of exp(labels @ moved), for log-odds (R, n)."""
    return (np.logaddexp(0, logit + moved) - np.logaddexp(0, logit)) @ test.counts


def _determinant(matrices: Floats) -> Floats:
    """(J,) determinants of matrices, given their upper triangles (J, 3)."""
    return matrices[:, 0] * matrices[:, 2] - matrices[:, 1] ** 2


def _solved(matrices: Floats, x: Floats) -> Floats:
    """The inverses of the matrices, given as upper triangles (J, 3), times x (J, 2)."""
    a, b, c = matrices.T
    solved = np.stack([c * x[:, 0] - b * x[:, 1], a * x[:, 1] - b * x[:, 0]], -1)
    return solved / _determinant(matrices)[:, None]


def _clipped(logit: Floats) -> Floats:
    return np.clip(logit, -_FARTHEST, _FARTHEST)


def bernoulli(logit: Floats, words: NDArray[np.uint32]) -> Bools:
    """Labels that are 1 where a random word is below 2^32 times the probability."""
    with np.errstate(over="ignore"):
        labels: Bools = words * (1 + np.exp(-logit)) < 2.0**32
    return labels


def drawn(test: ScoreTest, logit: Floats, streams: Words) -> Floats:
    """(R, n) numbers of positives in `test.counts` rows, given log-odds and random words (R,).

    They are normal variables where sums are taken as normal.
    """
    words = row_words(streams[:, None], np.array([len(test.counts)]))
    if not test.normal:
        return bernoulli(logit, words).astype(float)
    from scipy.special import ndtri

    proba = expit(_clipped(logit))
    deviation = np.sqrt(test.counts * proba * (1 - proba))
    return test.counts * proba + deviation * ndtri(np.ldexp(words + 0.5, -32))
