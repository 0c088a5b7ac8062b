"""A Gaussian prior on (A, B): a quadratic added to the sums over the rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Array, Derivatives, Point
from platt_jax.model.standardization import (
    Standardization,
    derivatives_to_standardized,
    to_original,
)


class GaussianPrior(NamedTuple):
    """A normal prior on theta = (A, B): adds (theta-mean)' precision (theta-mean) / 2 to the loss.

    Attributes:
        mean: (2,), or (..., 2) with one mean per problem.
        precision: (2, 2) symmetric positive semidefinite, or (..., 2, 2); the inverse covariance.
    """

    mean: Array
    precision: Array


def add_derivatives(
    sums: Derivatives, prior: GaussianPrior | None, standardization: Standardization, point: Point
) -> Derivatives:
    """Adds the prior's derivatives to sums over rows, at a point in standardized coordinates."""
    if prior is None:
        return sums
    # If the scores are far from 0, only the original coordinates represent the prior exactly.
    share = derivatives(prior, *to_original(standardization, *point))
    share = derivatives_to_standardized(standardization, share)
    return jax.tree.map(jnp.add, sums, share)


def penalty_at(
    prior: GaussianPrior | None, standardization: Standardization, point: Point
) -> jax.Array:
    """The penalty that the prior adds to the loss, at a point in standardized coordinates."""
    if prior is None:
        return jnp.zeros_like(standardization.center)
    return penalty(prior, *to_original(standardization, *point))


def penalty(prior: GaussianPrior, A: jax.Array, B: jax.Array) -> jax.Array:
    """The penalty that the prior adds to the loss."""
    off_A, off_B = A - prior.mean[..., 0], B - prior.mean[..., 1]
    slope = derivatives(prior, A, B)
    return (off_A * slope.g_A + off_B * slope.g_B) / 2


def derivatives(prior: GaussianPrior, A: jax.Array, B: jax.Array) -> Derivatives:
    """The prior's gradient and Hessian."""
    off_A, off_B = A - prior.mean[..., 0], B - prior.mean[..., 1]
    precision = jnp.asarray(prior.precision)
    p_AA, p_AB, p_BB = (precision[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
    return Derivatives(p_AA * off_A + p_AB * off_B, p_AB * off_A + p_BB * off_B, p_AA, p_AB, p_BB)
