"""From log-odds to probabilities and back, and to bands that say how sure those are."""

import math
import numbers
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.objective import Array

_LEAST = 1e-12  # probabilities are told apart down to here, and up to 1 minus this


def logit(probabilities: Column) -> NDArray[Any]:
    """The log-odds log(p / (1 - p)), which are the scores to fit where a classifier gives p.

    A sigmoid of p itself cannot leave p as it is; one of its log-odds can. 0 and 1 have no finite
    log-odds: p is first clipped to [1e-12, 1 - 1e-12], so that log-odds lie within 27.7 of 0.

    Args:
        probabilities: of class 1, of any shape.

    Returns:
        An array of that shape, in float32 for float32 and narrower, else in float64; NaN for NaN.

    Raises:
        ValueError: one is not in [0, 1].

    Example:
        >>> logit([0.5, 0.9, 1.0]).round(3).tolist()
        [0.0, 2.197, 27.631]
    """
    p = validation.floating(probabilities, "probabilities")
    outside = (p < 0) | (p > 1)
    if outside.any():
        raise ValueError(f"probabilities: expected numbers in [0, 1], got {p[outside].flat[0]}")
    # float32 has no number between 1 - 6e-8 and 1.
    inside = np.clip(p.astype(np.float64), _LEAST, 1 - _LEAST)
    log_odds: NDArray[Any] = (np.log(inside) - np.log1p(-inside)).astype(p.dtype)
    return log_odds


def expit(logit: Array) -> Any:
    """1 / (1 + exp(-logit)), which neither overflows nor rounds small probabilities to 0."""
    xp = jnp if isinstance(logit, jax.Array) else np
    e = xp.exp(-xp.abs(logit))
    return xp.where(logit >= 0, 1, e) / (1 + e)


def log_expit(logit: Array) -> Any:
    """log(expit(logit)), finite for every finite logit."""
    xp = jnp if isinstance(logit, jax.Array) else np
    return xp.minimum(logit, 0) - xp.log1p(xp.exp(-xp.abs(logit)))


def critical_value(level: float, simultaneous: bool) -> float:
    """How many standard errors a band of this level reaches to either side.

    Of a simultaneous band by Scheffe's method (1959, "The Analysis of Variance"; for a line Working
    & Hotelling 1929): the square root of chi-squared's quantile for 2 degrees of freedom, 2.448 at
    0.95.

    Raises:
        ValueError: a level that is not between 0 and 1.
    """
    if not isinstance(level, numbers.Real) or not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
    if simultaneous:
        return math.sqrt(-2 * math.log1p(-level))
    return NormalDist().inv_cdf((1 + level) / 2)


def band(logit: Array, variance: Array, critical: float) -> tuple[Any, Any]:
    """Lower and upper probabilities, given log-odds and their variances."""
    xp = jnp if isinstance(logit, jax.Array) else np
    reach = critical * xp.sqrt(variance)
    with np.errstate(invalid="ignore"):  # of infinite scores
        return expit(logit - reach), expit(logit + reach)


def variance_of_logit(scores: Array, c_AA: Array, c_AB: Array, c_BB: Array) -> Any:
    """The variance of A f + B, given the covariance of (A, B), which may be rounded.

    Where the scores lie far from 0 compared with their spread, the terms cancel, and what is left
    could be as small as 0, or smaller, by rounding alone. The variance returned is above the exact
    one by the bound of that rounding, which elsewhere is a few units in the last place.
    """
    xp = jnp if isinstance(scores, jax.Array) else np
    rounding = 4 * float(xp.finfo(c_BB.dtype).eps)
    with np.errstate(invalid="ignore"):  # of infinite scores
        terms = c_AA * scores * scores, 2 * c_AB * scores, c_BB
        return sum(terms) + rounding * sum(map(xp.abs, terms))
