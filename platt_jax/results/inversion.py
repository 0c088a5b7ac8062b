"""Uncertainty of the score at which a curve has a given probability."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.model.objective import Array
from platt_jax.results.probabilities import variance_of_logit


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
