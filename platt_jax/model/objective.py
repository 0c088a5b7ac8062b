"""One row's share of the objective: Platt's targets, the loss and its derivatives.

Everything here is elementwise, so the same lines serve one row, one tile or a million problems.

With z = A f + B the model is P(y=1 | f) = 1 / (1 + exp(z)): z > 0 makes class 0 the likelier one.
Loss and derivatives are written for the *less likely* class at z, whose probability
tail = e / (1 + e), e = exp(-|z|), never cancels and never overflows (Lin, Lin & Weng 2007,
section 3.2, where the two signs of z are spelled out one by one).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# What results and priors hold: NumPy's arrays on the host, JAX's where traced.
Array = np.ndarray | jax.Array

# The margin of padding: so large that every one of its terms is exactly 0.
_PAD_MARGIN = 1e4


class Targets(NamedTuple):
    """Regression targets t of the two classes, and 1 - t held apart so that nothing cancels."""

    positive: jax.Array  # t of a row with y = 1
    negative: jax.Array  # t of a row with y = 0
    positive_complement: jax.Array  # 1 - t of a row with y = 1
    negative_complement: jax.Array  # 1 - t of a row with y = 0


class GaussianPrior(NamedTuple):
    """A normal prior on theta = (A, B): adds (theta-mean)' precision (theta-mean) / 2 to the loss.

    Attributes:
        mean: (2,), or (..., 2) with one mean per problem.
        precision: (2, 2) symmetric positive semidefinite, or (..., 2, 2); the inverse covariance.
    """

    mean: Array
    precision: Array


class Derivatives(NamedTuple):
    """First and second derivatives of the loss by (A, B); of one row, or summed over rows."""

    g_A: jax.Array
    g_B: jax.Array
    h_AA: jax.Array
    h_AB: jax.Array
    h_BB: jax.Array


def platt_targets(n_pos, n_neg) -> Targets:
    """Platt's targets (1999, section 2.2) from the (weighted) counts of the two classes."""
    positive_complement = 1 / (n_pos + 2)
    negative = 1 / (n_neg + 2)
    return Targets(
        positive=(n_pos + 1) * positive_complement,
        negative=negative,
        positive_complement=positive_complement,
        negative_complement=(n_neg + 1) * negative,
    )


def plain_targets(n_pos, n_neg) -> Targets:
    """The labels themselves as targets: maximum likelihood without Platt's smoothing."""
    one, zero = jnp.ones_like(n_pos), jnp.zeros_like(n_pos)
    return Targets(one, zero, zero, one)


def nll(A, B, f, y, targets: Targets, present=True):
    """The loss of a row, -t log p - (1-t) log(1-p) (Lin et al. 2007, equations 5 and 6).

    Here and below y is true for the positive class, and what is not present is padding: its terms
    are 0, whatever its score. Returned as the two terms of its sum, the second being the loss for
    a target of 0.
    """
    distance, target, _ = less_likely(A, B, f, y, targets, present)
    return target * distance, jnp.log1p(jnp.exp(-distance))


def nll_factors(A, B, f, y, targets: Targets, present=True):
    """The loss of a row as (linear, factor) with loss = linear + log(factor), factor in [1, 2].

    The logarithm of a product of 32 factors costs what one of them costs.
    """
    distance, target, _ = less_likely(A, B, f, y, targets, present)
    return target * distance, 1 + jnp.exp(-distance)


def analytic_derivatives(A, B, f, y, targets: Targets, present=True, weight=1) -> Derivatives:
    """Gradient and Hessian of the weighted `nll` by (A, B) (Lin et al. 2007, section 2.2)."""
    distance, _, _ = less_likely(A, B, f, y, targets, present)
    e = jnp.exp(-distance)
    tail = e / (1 + e)
    return derivatives(
        f, slope(A, B, f, y, targets, present, weight, tail), curvature(weight, tail)
    )


def slope(A, B, f, y, targets: Targets, present, weight, tail):
    """The derivative by z, w (t - p), given the probability of the less likely class."""
    _, target, negative_side = less_likely(A, B, f, y, targets, present)
    return weight * jnp.where(negative_side, tail - target, target - tail)


def curvature(weight, tail):
    """The second derivative by z, w p (1 - p); nothing cancels, for tail <= 1/2."""
    return weight * (tail * (1 - tail))


def derivatives(f, slope, curvature) -> Derivatives:
    """The terms of the derivatives by (A, B), given those by z."""
    f_curvature = f * curvature
    return Derivatives(f * slope, slope, f * f_curvature, f_curvature, curvature)


def autodiff_derivatives(A, B, f, y, targets: Targets, present=True, weight=1) -> Derivatives:
    """The same five terms, taken by JAX from `nll`."""

    def total(A, B):
        linear, rest = nll(A, B, f, y, targets, present)
        return jnp.sum(weight * (linear + rest))

    row_gradient = jax.grad(total, argnums=(0, 1))
    A, B = jnp.broadcast_to(A, f.shape), jnp.broadcast_to(B, f.shape)
    one, zero = jnp.ones_like(f), jnp.zeros_like(f)
    (g_A, g_B), (h_AA, h_AB) = jax.jvp(row_gradient, (A, B), (one, zero))
    _, (_, h_BB) = jax.jvp(row_gradient, (A, B), (zero, one))
    return Derivatives(g_A, g_B, h_AA, h_AB, h_BB)


def less_likely(A, B, f, y, targets: Targets, present):
    """|z|, the target of the class that is less likely at z, and whether z < 0."""
    z = jnp.where(present, A * f + B, _PAD_MARGIN)
    negative_side = z < 0
    # Not jnp.abs: its derivative at 0 is 0, this one's is that of the branch taken.
    distance = jnp.where(negative_side, -z, z)
    t = jnp.where(y, targets.positive, targets.negative)
    complement = jnp.where(y, targets.positive_complement, targets.negative_complement)
    target = jnp.where(present, jnp.where(negative_side, complement, t), 0)
    return distance, target, negative_side


def prior_penalty(prior: GaussianPrior, A, B):
    """What the prior adds to the loss."""
    off_A, off_B = A - prior.mean[..., 0], B - prior.mean[..., 1]
    slope = prior_derivatives(prior, A, B)
    return (off_A * slope.g_A + off_B * slope.g_B) / 2


def prior_derivatives(prior: GaussianPrior, A, B) -> Derivatives:
    """What the prior adds to gradient and Hessian."""
    off_A, off_B = A - prior.mean[..., 0], B - prior.mean[..., 1]
    precision = jnp.asarray(prior.precision)
    p_AA, p_AB, p_BB = (precision[..., i, j] for i, j in ((0, 0), (0, 1), (1, 1)))
    return Derivatives(p_AA * off_A + p_AB * off_B, p_AB * off_A + p_BB * off_B, p_AA, p_AB, p_BB)
