"""Tails of a number of positives among independent labels, by a saddlepoint.

With log-odds h of the rows, the cumulant generating function of the number of positives is
K(t) = sum(softplus(h + t) - softplus(h)). A number is as far as t where K'(t) is that number: where
log-odds shifted by t predict it. The tail is by Lugannani & Rice (1980, "Saddle point
approximation for the distribution of the sum of independent random variables") with Daniels' first
continuity correction (1987, "Tail probability approximations"), in the form of Barndorff-Nielsen's
r*: a standard normal quantile, which is smooth in the log-odds from one tail to the other. Where
all labels count, the tail is their product.
"""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats
from platt_jax.searches import newton_roots

# Maximum absolute log-odds: beyond, a label against them has a p-value of 0 in any case.
FARTHEST = 300.0
# Distance from the number, in standard deviations, from which a last Newton step is nearly exact.
_CLOSE = 3e-3
_EXACT = 1e-12
# Distance of a number whose tail, moved along its slope, is the number's; and the Newton steps that
# mostly suffice for it.
_NEARBY, _STEPS = 0.03, 3
# Shortest distance from the mean, in standard deviations, at which the formula is not 0 / 0.
_NEAR = 0.02
# Least quantile, for tails of 1 but for rounding.
_LEAST = -40.0


def quantiles(
    log_odds: Floats, counts: Floats, least: Floats, shock_variance: Floats | None = None
) -> Floats:
    """Standard normal quantiles z, (...): P(at least so many positives) is P(normal > z).

    They are accurate to a few percent of the tail. There are `counts` (..., n) rows of each kind.
    With a variance (...) of a normal shift that all log-odds have in common the tail is the
    half-space at the likeliest shift and labels (a first-order reliability method: Hasofer & Lind
    1974, "Exact and invariant second-moment code format").
    """
    log_odds = np.clip(log_odds, -FARTHEST, FARTHEST)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if shock_variance is None:
            return _given_shock(log_odds, counts, least)[0]
        shock = _likeliest_shock(log_odds, counts, least, shock_variance)
        z, r, deviation = _given_shock(log_odds + shock[..., None], counts, least)
        # The derivative of r, by the derivative of r^2 / 2, the exponent.
        slope = np.where(np.abs(r) < _NEAR, -deviation, -shock / shock_variance / r)
        return (z - slope * shock) / np.sqrt(1 + shock_variance * slope**2)


def _given_shock(log_odds: Floats, counts: Floats, least: Floats) -> tuple[Floats, Floats, Floats]:
    """(...) quantiles, signed roots of twice the exponents, and standard deviations."""
    from scipy.special import ndtri_exp

    total = counts.sum(-1)
    needs_all = least >= total
    number = np.where(needs_all, total - 0.5, least)
    odds_against = np.exp(-log_odds)
    shifted = _shift(log_odds, odds_against, counts, number, total)
    shift, proba, spread, mean, variance = shifted
    exponent = _exponent(log_odds, counts, shift, mean, total)
    r = np.sign(shift) * np.sqrt(2 * exponent)
    u = -np.expm1(-shift) * np.sqrt(variance)
    skewness = (variance - 2 * np.vecdot(spread * proba, counts)) / variance**1.5
    close = r - 0.5 / np.sqrt(variance) - skewness / 6
    near = np.abs(r) < _NEAR
    z = np.where(near, close, r + np.log(u / r) / r)
    # The shift is that of a number nearby.
    slope = np.where(near, 1 / np.sqrt(variance), shift / r)
    exponent = np.maximum(exponent + shift * (number - mean), 0)
    z, r = (x + slope * (number - mean) for x in (z, r))
    # Chernoff's bound, which is the tail where labels are sure but for the shift.
    z = np.where(shift > 0, np.maximum(z, -ndtri_exp(-exponent)), z)
    if needs_all.any():
        log_all = -np.vecdot(np.log1p(odds_against), counts)
        z = np.where(needs_all, -ndtri_exp(log_all), z)
        r = np.where(needs_all, np.sqrt(-2 * log_all), r)
    return np.maximum(z, _LEAST), r, np.sqrt(variance)


def _exponent(
    log_odds: Floats, counts: Floats, shift: Floats, number: Floats, total: Floats
) -> Floats:
    """(...) t k - K(t) for shifts t and numbers k of positives.

    A shift below 0 is one above 0 of the negatives' log-odds. With probabilities p and t above 0,
    K(t) is the sum of log(1 + p (exp(t) - 1)).
    """
    up, shift = shift > 0, np.abs(shift)
    gain = np.exp(np.where(up, -1.0, 1.0)[..., None] * log_odds)
    gain += 1
    np.divide(np.expm1(shift)[..., None], gain, out=gain)
    np.log1p(gain, out=gain)
    likelier = np.where(up, number, total - number)
    return np.maximum(shift * likelier - np.vecdot(gain, counts), 0)


def _likeliest_shock(log_odds: Floats, counts: Floats, least: Floats, variance: Floats) -> Floats:
    """(...) where the normal density times Chernoff's bound of the tail is largest."""
    odds_against = np.exp(-log_odds)

    def slopes(shock: Floats) -> tuple[Floats, Floats, Floats]:
        proba = _moved_proba(odds_against, shock)
        short = least - np.vecdot(proba, counts) - shock / variance
        slope = np.vecdot(proba * (1 - proba), counts) + 1 / variance
        return short, short / slope, _CLOSE / np.sqrt(slope)

    start = np.zeros(np.broadcast_shapes(least.shape, log_odds.shape[:-1]))
    most = variance * counts.sum(-1)
    return newton_roots(slopes, start, -most, most).or_nan()


class _Shifted(NamedTuple):
    """Log-odds moved by a shift (...)."""

    shift: Floats
    proba: Floats  # (..., n)
    spread: Floats  # (..., n) variances of labels
    mean: Floats  # (...) of the number of positives
    variance: Floats  # (...)


def _shift(
    log_odds: Floats, odds_against: Floats, counts: Floats, number: Floats, total: Floats
) -> _Shifted:
    """The shift of log-odds by which they predict about this number of positives.

    Newton steps are of the log-odds of the mean, which are nearly linear in the shift. The few that
    do not come close so are searched between bounds.
    """
    goal = np.log(number / (total - number))
    low, high = goal - log_odds.max(-1), goal - log_odds.min(-1)
    # As where log-odds are normal, with the probit in place of the logit.
    mean = np.vecdot(log_odds, counts) / total
    square = np.vecdot(log_odds * log_odds, counts) / total - mean * mean
    start = np.clip(goal * np.sqrt(1 + np.pi / 8 * np.maximum(square, 0)) - mean, low, high)

    def evaluate(shift: Floats) -> _Shifted:
        proba = _moved_proba(odds_against, shift)
        spread = proba * (1 - proba)
        return _Shifted(shift, proba, spread, np.vecdot(proba, counts), np.vecdot(spread, counts))

    def short_and_step(found: _Shifted) -> tuple[Floats, Floats]:
        mean = found.mean
        short = goal - np.log(mean / (total - mean))
        return short, short * mean * (total - mean) / total / found.variance

    def is_close(found: _Shifted, to: float) -> Bools:
        return np.asarray(np.abs(number - found.mean) <= to * np.sqrt(found.variance))

    def missing(shift: Floats) -> tuple[Floats, Floats, Floats]:
        shifted = evaluate(shift)
        short, step = short_and_step(shifted)
        exact = np.abs(short) < _EXACT  # the slope of what is left is rounding error
        value = np.where(exact, 0, number - shifted.mean)
        return value, step, np.where(is_close(shifted, _CLOSE), np.inf, 0)

    shifted = evaluate(start)
    for _ in range(_STEPS):
        near = is_close(shifted, _NEARBY)
        if near.all():
            return shifted
        moved = np.clip(shifted.shift + short_and_step(shifted)[1], low, high)
        shifted = evaluate(np.where(near, shifted.shift, moved))
    near = is_close(shifted, _NEARBY)
    if near.all():
        return shifted
    return evaluate(np.where(near, shifted.shift, newton_roots(missing, start, low, high).or_nan()))


def _moved_proba(odds_against: Floats, shift: Floats) -> Floats:
    """(..., n) probabilities of rows whose log-odds are moved; an exponential for each shift."""
    odds = odds_against * np.exp(-shift)[..., None]
    odds += 1
    return np.reciprocal(odds, out=odds)
