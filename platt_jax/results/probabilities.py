"""Converts between log-odds and probabilities, with confidence bands and intervals."""

import math
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.model.objective import Array

# The upper triangle of a covariance matrix.
UPPER = (0, 0), (0, 1), (1, 1)

LEAST = 1e-12  # smallest probability, and distance of the largest from 1
_MASS = 1 / 200  # share of probabilities of 0 or 1 that moves a slope by some percent
FARTHEST = math.log1p(-LEAST) - math.log(LEAST)  # of log-odds from 0


def logit(probabilities: Column) -> NDArray[Any]:
    """The log-odds log(p / (1 - p)). Use them as scores where a classifier gives probabilities p.

    A sigmoid of p cannot represent the identity; a sigmoid of the log-odds can. The log-odds of 0
    and 1 are infinite, so p is first clipped to [1e-12, 1 - 1e-12]: log-odds lie within 27.7 of 0.

    Args:
        probabilities: probabilities of class 1, of any shape.

    Returns:
        An array of the same shape, float32 for float32 and narrower, else float64. NaN for NaN.

    Raises:
        ValueError: a probability is not in [0, 1].

    Warns:
        RuntimeWarning: of many probabilities, a part is exactly 0 or 1.

    Example:
        >>> logit([0.5, 0.9, 1.0]).round(3).tolist()
        [0.0, 2.197, 27.631]
    """
    p = validation.floating(probabilities, "probabilities")
    validation.require_probabilities(p, "probabilities")
    if p.size >= validation.FEW and np.mean((p == 0) | (p == 1)) > _MASS:
        Caller().warn_once(
            "probabilities: a part is exactly 0 or 1, and is taken as 1e-12 away from them. If "
            "that is by rounding, their log-odds pull a fit's slope towards 0: take log-odds, or "
            "probabilities that are not rounded, from the classifier"
        )
    return clipped_logit(p)


def clipped_logit(p: NDArray[Any]) -> NDArray[Any]:
    """`logit` of checked probabilities."""
    # float32 has no number between 1 - 6e-8 and 1.
    in_float64 = p.astype(np.float64)
    with np.errstate(divide="ignore"):
        exact = np.log(in_float64) - np.log1p(-in_float64)
    # Clipped as log-odds: the log-odds of 0 and 1 are then exactly opposite.
    return np.clip(exact, -FARTHEST, FARTHEST).astype(p.dtype)


def with_offset(logit: Any, offset: Column | None) -> Any:
    """Log-odds plus an offset that broadcasts with them, in their dtype; None adds nothing."""
    if offset is None:
        return logit
    offset = accelerators.taken(offset)
    if isinstance(offset, jax.Array) or isinstance(logit, jax.Array):
        values: Any = jnp.asarray(validation.plain(offset))
    else:
        values = validation.numbers(offset, "offset")
    xp = jnp if isinstance(values, jax.Array) else np
    try:
        shape = np.broadcast_shapes(np.shape(logit), values.shape)
        return xp.broadcast_to(logit, shape) + xp.broadcast_to(values.astype(logit.dtype), shape)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"offset: expected a shape that broadcasts to the scores' {np.shape(logit)}, got "
            f"{values.shape}"
        ) from error


def expit(logit: Array) -> Any:
    """1 / (1 + exp(-logit)), without overflow, and without rounding small probabilities to 0."""
    xp = jnp if isinstance(logit, jax.Array) else np
    e = xp.exp(-xp.abs(logit))
    return xp.where(logit >= 0, 1, e) / (1 + e)


def log_expit(logit: Array) -> Any:
    """log(expit(logit)), finite for every finite logit."""
    xp = jnp if isinstance(logit, jax.Array) else np
    return xp.minimum(logit, 0) - xp.log1p(xp.exp(-xp.abs(logit)))


def normalized(log_proba: Array, fitted: Array) -> Any:
    """Probabilities (N, C) divided by the sums of rows; classes that are not fitted (C,) are NaN.

    Logarithms stay distinct where all probabilities round to 0.
    """
    xp, fitted = jnp if isinstance(log_proba, jax.Array) else np, fitted[None]
    log_proba = xp.where(fitted, log_proba, -xp.inf)
    largest = xp.max(log_proba, axis=1, keepdims=True, initial=np.finfo(log_proba.dtype).min)
    proba = xp.exp(log_proba - largest)
    return xp.where(fitted, proba / xp.sum(proba, axis=1, keepdims=True), xp.nan)


def critical_value(level: float, simultaneous: bool) -> float:
    """The half-width of a band with this level, in standard errors.

    For a simultaneous band this is Scheffe's (1959, "The Analysis of Variance"; for a line, Working
    & Hotelling 1929): the square root of the chi-squared quantile with 2 degrees of freedom, 2.448
    at 0.95.
    """
    validation.require_fraction(level, "level")
    if simultaneous:
        return math.sqrt(-2 * math.log1p(-level))
    return NormalDist().inv_cdf((1 + level) / 2)


def band(logit: Array, variance: Array, critical: float) -> tuple[Any, Any]:
    """Lower and upper probabilities, from log-odds and their variances."""
    xp = jnp if isinstance(logit, jax.Array) else np
    reach = critical * xp.sqrt(variance)
    with np.errstate(invalid="ignore"):  # infinite scores
        return expit(logit - reach), expit(logit + reach)


def log_odds(A: Any, scores: Any, B: Any) -> Any:
    """-(A f + B). Where A is 0 it is -B, at infinite scores too: a flat curve is flat."""
    if isinstance(scores, jax.Array) or not np.all(A):
        scores = finite_where_flat(scores, A)
    return -(A * scores + B)


def finite_where_flat(scores: Any, A: Any) -> Any:
    """The scores, with 0 in place of infinite ones where A is 0."""
    xp = jnp if isinstance(scores, jax.Array) else np
    return xp.where((A == 0) & xp.isinf(scores), 0, scores)


def nearer_scores(scores: Any, c_AA: Any, places: Any = None) -> Any:
    """Scores with the same band, whose squares times the variance of A do not overflow.

    There the log-odds and their standard error grow alike. So infinite scores get the limits.

    Args:
        scores: the scores of rows.
        c_AA: the variances of A, of the rows or of the curves.
        places: the places of the rows' curves, or None.
    """
    xp = jnp if isinstance(scores, jax.Array) else np
    largest = float(xp.finfo(c_AA.dtype).max)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = xp.minimum(largest**0.25 / xp.sqrt(c_AA), largest)
    reach = xp.where(c_AA > 0, reach, largest**0.5)
    if xp is np:
        low, high = np.fmin.reduce(scores, None, initial=0), np.fmax.reduce(scores, None, initial=0)
        if max(-float(low), float(high)) <= np.min(reach, initial=largest):
            return scores
    reach = reach if places is None else reach[places]
    return xp.clip(scores, -reach, reach)


def variance_of_logit(scores: Array, c_AA: Array, c_AB: Array, c_BB: Array) -> Any:
    """The variance of A f + B, given the covariance of (A, B), which may be rounded.

    If the scores are far from 0 compared with their spread, the terms cancel, and rounding could
    make the sum 0 or negative. So the bound of the rounding error is added. Elsewhere this bound is
    a few units in the last place.
    """
    xp = jnp if isinstance(scores, jax.Array) else np
    rounding = 4 * float(xp.finfo(c_BB.dtype).eps)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and far scores
        terms = c_AA * scores * scores, 2 * c_AB * scores, c_BB
        return sum(terms) + rounding * sum(map(xp.abs, terms))


def inverse_standard_error(A: Array, scores: Array, c_AA: Array, c_AB: Array, c_BB: Array) -> Any:
    """Delta-method standard errors of scores f with a given A f + B; inf for infinite scores."""
    xp = jnp if isinstance(scores, jax.Array) else np
    with np.errstate(divide="ignore", invalid="ignore"):  # for scores that are not finite
        error = xp.sqrt(variance_of_logit(scores, c_AA, c_AB, c_BB)) / xp.abs(A)
    return xp.where(xp.isinf(scores), xp.inf, error)


def inverse_interval(
    critical: float, A: Array, scores: Array, c_AA: Array, c_AB: Array, c_BB: Array
) -> tuple[Any, Any]:
    """Fieller's interval around scores f with a given A f + B.

    It contains all f + x with (A x)^2 <= critical^2 [f + x, 1] C [f + x, 1]'. It contains all
    numbers if the slope is less than `critical` standard errors from 0.
    """
    xp = jnp if isinstance(scores, jax.Array) else np
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # x in units of critical / A, to be independent of scale: (1 - g) x^2 - 2 tilt x - v <= 0.
        g = (critical * xp.sqrt(c_AA) / A) ** 2
        tilt = critical * (c_AA * scores + c_AB) / A
        v = variance_of_logit(scores, c_AA, c_AB, c_BB)
        reach = xp.sqrt(tilt * tilt + (1 - g) * v)
        ends = [
            scores + critical * (tilt / A + side * reach / xp.abs(A)) / (1 - g) for side in (-1, 1)
        ]
    ends = [xp.where(xp.isinf(scores), scores, end) for end in ends]
    lower, upper = (
        xp.where((g >= 1) & ~xp.isnan(scores), sign * xp.inf, end)
        for sign, end in zip((-1, 1), ends, strict=True)
    )
    return lower, upper


def normal_parameters(mean: NDArray[Any], covariance: NDArray[Any]) -> NDArray[np.float64]:
    """(n, 5), means of A and B, and the entries AA, AB and BB of their covariance."""
    return np.column_stack([mean, *(covariance[:, i, j] for i, j in UPPER)])
