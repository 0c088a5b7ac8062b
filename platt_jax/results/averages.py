"""The mean of a sigmoid over normally distributed log-odds.

With x ~ Normal(m, v) the mean of 1 / (1 + exp(-x)) is computed by the trapezoidal rule. Its error
is exp(-2 pi^2 / (STEP sqrt(v))) (Trefethen & Weideman 2014, "The exponentially convergent
trapezoidal rule"): 1e-7 of the probability for v <= 4. For larger v the sigmoid is replaced by a
mixture of normal distribution functions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.results.probabilities import variance_of_logit

# The rule has nodes at 0 and at these multiples of the step on both sides, in standard deviations.
STEP, PAIRS = 0.5, 14
_WIDEST = 4.0  # maximum variance for this rule

# Standard errors of A f, from which on scores have their limit: their squares do not overflow.
_FARTHEST = 1e70

# Fractions that are added with a common denominator: a division costs as much as ten sums.
_FRACTIONS = 4

# The logistic distribution as a mixture of normal ones, to 2e-9 (Monahan & Stefanski 1992, "Normal
# scale mixture approximations to F*(z) and computation of the logistic-normal integral").
_SHARES = (
    *(0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818),
    *(0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354),
)
PRECISIONS = (
    *(1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391),
    *(0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306),
)

# Rows per call of a compiled program; there is one program for each of these numbers.
_ROWS = (1 << 18, 1 << 15, 1 << 11)


def nodes(step: float = STEP, pairs: int = PAIRS) -> list[tuple[float, float]]:
    """The rule as nodes, in standard deviations, and weights: E g(x) = sum of w g(m + node s).

    For g a sigmoid and a standard deviation s of the log-odds up to 1, 2, 3 or 5 the error is at
    most 1e-9, 1e-7, 6e-6 or 5e-4; with steps of 1 and 6 pairs 2e-6, 5e-4, 4e-3 or 3e-2.
    """
    points = step * np.arange(-pairs, pairs + 1)
    weight = np.exp(-points * points / 2)
    return list(zip(points.tolist(), (weight / weight.sum()).tolist(), strict=True))


def mean_probability(scores: NDArray[Any], normal: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of 1 / (1 + exp(A f + B)) over normal (A, B), (n,) float64 in [0, 1].

    The relative error is at most 1e-7. For variances of the log-odds above 4, the absolute error is
    at most 2e-9. The normal (n, 5) has the means of A and B, and the entries AA, AB and BB of their
    covariance. NaN where an input is NaN.
    """
    with jax.enable_x64(True):
        mean = _in_blocks(_by_trapezoids, scores, normal)
        if np.fmin.reduce(mean, initial=0) < 0:
            wide_rows = np.flatnonzero(mean < 0)
            mean[wide_rows] = _in_blocks(_by_mixture, scores[wide_rows], normal[wide_rows])
    return mean


def mean_where_rows_are(scores: jax.Array, normal: jax.Array) -> jax.Array:
    """`mean_probability` of float64 arrays on their device; traceable."""
    mean = _trapezoids(scores, normal)

    def with_wide(mean: jax.Array) -> jax.Array:
        return jnp.where(mean < 0, _mixture(scores, normal), mean)

    return lax.cond(jnp.any(mean < 0), with_wide, lambda mean: mean, mean)


def _in_blocks(
    program: Callable[..., jax.Array], scores: NDArray[Any], normal: NDArray[Any]
) -> NDArray[np.float64]:
    """The results of a program for any number of rows."""
    results, first = np.empty(len(scores)), 0
    while first < len(results):
        remaining = len(results) - first
        length = next((rows for rows in _ROWS if 2 * remaining > rows), _ROWS[-1])
        block = slice(first, first + length)
        padded = (_padded(x[block], length) for x in (scores, normal))
        results[block] = jax.device_get(program(*padded))[:remaining]
        first += length
    return results


def _padded(x: NDArray[Any], length: int) -> NDArray[np.float64]:
    """Numbers followed by zeros up to this length."""
    numbers = np.asarray(x, np.float64)
    padding = [(0, length - len(x)), *[(0, 0)] * (x.ndim - 1)]
    return numbers if len(x) == length else np.pad(numbers, padding)


def _log_odds(f: jax.Array, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean and the variance of the log-odds of class 1."""
    A, B, c_AA, c_AB, c_BB = (normal[:, i] for i in range(5))
    # The limit for infinite scores depends only on the probability of a positive slope.
    farthest = min(_FARTHEST, float(jnp.finfo(f.dtype).max) ** 0.25)
    reach = jnp.where(c_AA > 0, farthest * lax.rsqrt(c_AA), jnp.finfo(f.dtype).max)
    f = jnp.clip(f, -reach, reach)
    return -(A * f + B), jnp.maximum(variance_of_logit(f, c_AA, c_AB, c_BB), 0)


def _trapezoids(f: jax.Array, normal: jax.Array) -> jax.Array:
    """The mean probability; -1 where the variance is too large for this rule."""
    logit, variance = _log_odds(f, normal)
    e = jnp.exp(-jnp.abs(logit))
    unit = jnp.exp(STEP * jnp.sqrt(jnp.minimum(variance, _WIDEST)))
    # With e = exp(x), x < 0, and c = 2 cosh(d): sigmoid(x + d) + sigmoid(x - d) is
    # e (c + 2 e) / (1 + c e + e^2).
    c_1 = unit + 1 / unit
    previous, c = jnp.full_like(c_1, 2.0), c_1
    first, *weights = [weight for _, weight in nodes()[PAIRS:]]
    total, top, bottom = jnp.zeros_like(e), first * e, 1 + e
    for number, weight in enumerate(weights, start=1):
        numerator, denominator = weight * e * (c + 2 * e), 1 + e * (c + e)
        if number % _FRACTIONS == 0:
            total, top, bottom = total + top / bottom, numerator, denominator
        else:
            top, bottom = top * denominator + numerator * bottom, bottom * denominator
        previous, c = c, c_1 * c - previous
    smaller = total + top / bottom
    return jnp.where(variance > _WIDEST, -1.0, jnp.where(logit <= 0, smaller, 1 - smaller))


def _mixture(f: jax.Array, normal: jax.Array) -> jax.Array:
    """The mean probability as a sum of normal distribution functions, for any variance."""
    logit, variance = _log_odds(f, normal)
    distance = jnp.abs(logit)
    # E sigmoid(x) = exp(m + v / 2) E sigmoid(-x - v), which is more accurate if both are small.
    moved = distance > variance
    mean = jnp.where(moved, distance - variance, -distance)
    smaller: Any = sum(
        share * ndtr(scale * mean / jnp.sqrt(1 + scale * scale * variance))
        for share, scale in zip(_SHARES, PRECISIONS, strict=True)
    )
    smaller = smaller * jnp.exp(jnp.where(moved, variance / 2 - distance, 0))
    return jnp.where(logit <= 0, smaller, 1 - smaller)


_by_trapezoids, _by_mixture = (xla.jit(rule, wide=True) for rule in (_trapezoids, _mixture))
