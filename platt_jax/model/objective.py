"""The objective of one row: Platt's targets, the loss and its derivatives.

Everything here is elementwise, so the same code serves one row, one tile or a million problems.

With z = A f + B the model is P(y=1 | f) = 1 / (1 + exp(z)): z > 0 makes class 0 more likely. A row
may have an offset, known log-odds of class 1 that are added to the curve: z = A f + B - offset.
Loss and derivatives are written in terms of the *less likely* class at z. Its probability
tail = e / (1 + e), e = exp(-|z|), has no cancellation and no overflow (Lin, Lin & Weng 2007,
section 3.2, where the two signs of z are treated separately).
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

# Arrays of results: NumPy's on the host, JAX's where traced.
Array: TypeAlias = NDArray[Any] | jax.Array

Point: TypeAlias = tuple[jax.Array, jax.Array]  # (A, B) of every problem

# z of padding, so large that each of its terms is exactly 0.
_PAD_MARGIN = 1e4


class Targets(NamedTuple):
    """Regression targets t of the two classes, and 1 - t kept separately to avoid cancellation."""

    positive: jax.Array  # t of a row with y = 1
    negative: jax.Array  # t of a row with y = 0
    positive_complement: jax.Array  # 1 - t of a row with y = 1
    negative_complement: jax.Array  # 1 - t of a row with y = 0


class Derivatives(NamedTuple):
    """First and second derivatives of the loss by (A, B), of one row or summed over rows."""

    g_A: jax.Array
    g_B: jax.Array
    h_AA: jax.Array
    h_AB: jax.Array
    h_BB: jax.Array


class Row(NamedTuple):
    """A row of data, or an array of them."""

    f: jax.Array  # score
    y: jax.Array  # whether it is of the positive class
    present: jax.Array | bool = True  # False for padding, whose terms are 0 for any score
    weight: jax.Array | int = 1
    offset: jax.Array | None = None  # log-odds of class 1 that are added to the curve


class Arithmetic(NamedTuple):
    """How a kind of rows computes exponentials."""

    # Maps |z| to a numerator and a denominator of exp(-|z|).
    exp_quotient: Callable[[jax.Array], tuple[jax.Array, jax.Array | int]] = lambda distance: (
        jnp.exp(-distance),
        1,
    )
    # Wraps a function whose result is used several times; compilers may recompute it for each use.
    separately: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function


XLA = Arithmetic()


def platt_targets(n_pos: jax.Array, n_neg: jax.Array) -> Targets:
    """Platt's targets (1999, section 2.2) from the (weighted) counts of the two classes."""
    positive_complement = 1 / (n_pos + 2)
    negative = 1 / (n_neg + 2)
    return Targets(
        positive=(n_pos + 1) * positive_complement,
        negative=negative,
        positive_complement=positive_complement,
        negative_complement=(n_neg + 1) * negative,
    )


class EarlierCounts(NamedTuple):
    """The (weighted) counts of earlier rows, which a prior stands for."""

    n_pos: jax.Array
    n_neg: jax.Array

    @property
    def one_class(self) -> jax.Array:
        """Whether there are earlier rows, all of one class."""
        return (self.n_pos > 0) != (self.n_neg > 0)


def later_platt_targets(n_pos: jax.Array, n_neg: jax.Array, before: EarlierCounts) -> Targets:
    """Targets of rows that come after earlier rows with Platt's targets.

    With Platt's targets the sum of 1 - t over the rows of class 1 is n / (n + 2), and so is the sum
    of t over the rows of class 0. Targets of later rows bring this sum to its value for all rows.
    Where the earlier rows are of one class, `prior.at_later_targets` does so for them, and later
    rows have the targets of all rows. Two targets for one class would be a slope.
    """

    def lacking(n: jax.Array, n_before: jax.Array) -> jax.Array:
        share = jnp.where(before.one_class, 1, 2 / (n_before + 2))
        return share / (n_before + n + 2)

    positive, negative = lacking(n_pos, before.n_pos), lacking(n_neg, before.n_neg)
    return Targets(1 - positive, negative, positive, 1 - negative)


def plain_targets(n_pos: jax.Array, n_neg: jax.Array) -> Targets:
    """The labels themselves as targets: maximum likelihood without Platt's smoothing."""
    ones, zeros = jnp.ones_like(n_pos), jnp.zeros_like(n_pos)
    return Targets(ones, zeros, zeros, ones)


def loss(
    point: Point, row: Row, targets: Targets, arithmetic: Arithmetic = XLA
) -> tuple[jax.Array, jax.Array]:
    """The loss of a row of weight 1, -t log p - (1-t) log(1-p) (Lin et al. 2007, equations 5, 6).

    Returned as (linear, odds) with loss = linear + log(1 + odds): the logarithm of a product of
    many factors 1 + odds costs as much as the logarithm of one.
    """
    distance, target, _ = _less_likely(point, row, targets)
    e, denominator = arithmetic.exp_quotient(distance)
    return target * distance, e / denominator


def analytic_derivatives(
    point: Point, row: Row, targets: Targets, arithmetic: Arithmetic = XLA
) -> Derivatives:
    """Gradient and Hessian of the weighted `loss` by (A, B) (Lin et al. 2007, section 2.2)."""

    def tail(point: Point, row: Row, targets: Targets) -> jax.Array:
        """The probability of the less likely class."""
        distance, _, _ = _less_likely(point, row, targets)
        e, denominator = arithmetic.exp_quotient(distance)
        return jnp.where(row.present, e / (e + denominator), 0)

    def slope(point: Point, row: Row, targets: Targets, tail: jax.Array) -> jax.Array:
        """The derivative by z, w (t - p)."""
        _, target, negative_side = _less_likely(point, row, targets)
        return row.weight * jnp.where(negative_side, tail - target, target - tail)

    def curvature(weight: jax.Array | int, tail: jax.Array) -> jax.Array:
        """The second derivative by z, w p (1 - p). Nothing cancels because tail <= 1/2."""
        return weight * (tail * (1 - tail))

    p = arithmetic.separately(tail)(point, row, targets)
    by_z = arithmetic.separately(slope)(point, row, targets, p)
    by_zz = arithmetic.separately(curvature)(row.weight, p)
    f = row.f
    return Derivatives(f * by_z, by_z, f * (f * by_zz), f * by_zz, by_zz)


def autodiff_derivatives(
    point: Point, row: Row, targets: Targets, arithmetic: Arithmetic = XLA
) -> Derivatives:
    """The same derivatives by automatic differentiation of `loss`; `arithmetic` is not used."""

    def total(A: jax.Array, B: jax.Array) -> jax.Array:
        linear, odds = loss((A, B), row, targets)
        return jnp.sum(row.weight * (linear + jnp.log1p(odds)))

    row_gradient = jax.grad(total, argnums=(0, 1))
    A, B = (jnp.broadcast_to(x, row.f.shape) for x in point)
    ones, zeros = jnp.ones_like(row.f), jnp.zeros_like(row.f)
    (g_A, g_B), (h_AA, h_AB) = jax.jvp(row_gradient, (A, B), (ones, zeros))
    _, (_, h_BB) = jax.jvp(row_gradient, (A, B), (zeros, ones))
    return Derivatives(g_A, g_B, h_AA, h_AB, h_BB)


def with_B_held(at: Derivatives) -> Derivatives:
    """The derivatives of a loss with B held at 0: the derivatives of the loss in A plus B^2 / 2.

    This term moves neither A nor B, and Newton's step for A is the step of a problem in A alone. So
    the code for steps needs no special case.
    """
    zeros, ones = jnp.zeros_like(at.g_B), jnp.ones_like(at.g_B)
    return Derivatives(at.g_A, zeros, at.h_AA, zeros, ones)


# By the value of Options.derivatives.
DERIVATIVES: dict[str, Callable[..., Derivatives]] = {
    "analytic": analytic_derivatives,
    "autodiff": autodiff_derivatives,
}


def _less_likely(
    point: Point, row: Row, targets: Targets
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """|z|, the target of the less likely class at z, and whether z < 0."""
    A, B = point
    z = A * row.f + B
    if row.offset is not None:
        z = z - row.offset
    z = jnp.where(row.present, z, _PAD_MARGIN)
    negative_side = z < 0
    # Not jnp.abs, whose derivative at 0 is 0. Here it is the derivative of the branch taken.
    distance = jnp.where(negative_side, -z, z)
    t = jnp.where(row.y, targets.positive, targets.negative)
    complement = jnp.where(row.y, targets.positive_complement, targets.negative_complement)
    target = jnp.where(row.present, jnp.where(negative_side, complement, t), 0)
    return distance, target, negative_side
