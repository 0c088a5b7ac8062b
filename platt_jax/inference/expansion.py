"""The optima of a problem with one row left out, from sums over the rows of the whole problem.

Row i adds w (t - p_i) [f_i, 1] to the gradient. Leaving it out also changes Platt's targets of its
class, which changes the gradient by that difference times a sum over the class. The rest is the
gradient of the whole problem, which is nearly a polynomial near the optimum: its coefficients are
sums of w k(z) f^j, with k the derivatives of the logistic loss by z. So each of the n optima is the
root of two equations in two unknowns, whose only row is the one left out.

A single Newton step from the optimum is the approximation of Pregibon (1981, "Logistic regression
diagnostics"), studied by Beirami, Razaviyayn, Shahrampour & Tarokh (2017) and Rad & Maleki (2020).
This module adds derivatives of third and higher order, and bounds the remainder of the polynomial.
"""

from functools import partial
from math import comb, factorial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Polynomial

from platt_jax.backend import xla
from platt_jax.model import prior as priors
from platt_jax.model.objective import plain_targets, platt_targets
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.model.standardization import Standardization, derivatives_to_standardized
from platt_jax.options import Options
from platt_jax.passes.columns import Columns

# Arguments of `sums`: columns [S, L] and sizes [S].
RowArrays: TypeAlias = tuple[Columns, jax.Array]

# Highest derivative in the polynomial. With 7, one row in a hundred of problems of 100 rows needs a
# fit of its own, and four of problems of 50; with 5 and a step less, 9 and 30, which take longer.
_ORDER = 7
# Degrees of the polynomials for gradient and Hessian, in each Newton step on the two equations.
# Each step uses as many terms as its own accuracy warrants.
_DEGREES = (0, 0), (3, 1), (_ORDER - 1, 2), (_ORDER - 1, 2)

# Distance from the optimum within which the bound holds: change of the log-odds by the intercept,
# and by the slope at one standard deviation of the scores.
_RADIUS = 0.25
# Least determinant of the other rows' Hessian, as a share of that of all rows, for the expansion.
_LEAST_LEFT = 1e-2


class Center(NamedTuple):
    """Points of expansion of S problems; arrays with leading axis [S]."""

    A: jax.Array
    B: jax.Array
    # Coordinates in which the scores, weighted by curvature, have about mean 0 and variance 1.
    coordinates: Standardization
    slope_held: jax.Array  # whether A is fixed
    prior: GaussianPrior | None


class ExpansionSums(NamedTuple):
    """Sums over the rows of each problem, with scores a in the center's coordinates."""

    # [S, K, K + 2]: w a^j times the k-th derivative of the loss by z. The first derivative lacks
    # the target, which leaving a row out changes.
    derivatives: jax.Array
    # [S, K + 2]: w |a|^j times the maximum of p (1 - p) within the radius
    bounds: jax.Array
    pos: jax.Array  # [S, 2]: w and w a, over rows of class 1
    neg: jax.Array  # [S, 2]: the same over class 0


class LeftOut(NamedTuple):
    """Fits with one row left out each; arrays [S, L]."""

    probability: jax.Array  # P(y=1) of the row left out
    A: jax.Array
    B: jax.Array
    # Whether the error of the log-odds may exceed the tolerance, or has no bound.
    doubtful: jax.Array


class _CenteredRows(NamedTuple):
    """Rows in the center's coordinates; arrays [S, L]."""

    a: jax.Array  # the score
    z: jax.Array  # A f + B of the center, less the offset
    y: jax.Array
    w: jax.Array  # 0 for a row that does not count
    counts: jax.Array


def _read(rows: RowArrays, at: Center) -> _CenteredRows:
    (scores, labels, weights, offset), sizes = rows
    w = jnp.ones_like(scores) if weights is None else weights
    is_row = jnp.arange(scores.shape[1], dtype=jnp.int32)[None] < sizes[:, None]
    counts = is_row & jnp.isfinite(scores) & jnp.isfinite(w) & (w > 0)
    if offset is not None:
        counts &= jnp.isfinite(offset)
    w, f = jnp.where(counts, w, 0), jnp.where(jnp.isfinite(scores), scores, 0)
    center, scale = (x[:, None] for x in at.coordinates)
    a = (f - center) * scale
    z = at.A[:, None] * f + at.B[:, None]
    return _CenteredRows(a, z if offset is None else z - offset, labels > 0, w, counts)


@partial(xla.jit, wide=True)
def sums(rows: RowArrays, at: Center) -> ExpansionSums:
    """The sums over these rows; sums over parts of the same problems can be added.

    Columns have the shape [S, L], with a NaN score where a label is bad, and the rows [S] come
    first.
    """
    a, z, y, w, counts = _read(rows, at)
    a, z = jnp.where(counts, a, 0), jnp.where(counts, z, 0)
    p, v = _probability(z)
    factors = [-w * p]
    for order, polynomial in enumerate(_POLYNOMIALS[:-1], start=2):
        value = jnp.full_like(v, polynomial.coef[-1])
        for c in polynomial.coef[-2::-1]:
            value = value * v + c
        factors.append(w * v * value * (2 * p - 1 if order % 2 else 1))
    # The least |z| within the radius, where p (1 - p) is largest.
    e = jnp.exp(-jnp.maximum(jnp.abs(z) - _RADIUS * (1 + jnp.abs(a)), 0))
    most = w * e / (1 + e) ** 2
    # Signs that give absolute values of odd powers.
    signed = jnp.where(a < 0, -most, most)
    powers = [jnp.ones_like(a)]
    for _ in range(_ORDER + 1):
        powers.append(powers[-1] * a)
    class_weights = jnp.where(y, w, 0), jnp.where(y, 0, w)
    # One matrix product: separate sums would each be a loop that computes all terms anew.
    coefficients = jnp.stack([*class_weights, most, signed, *factors], 1)
    pos, neg, even, odd, *derivatives = jnp.moveaxis(
        jnp.einsum("skl,sjl->skj", coefficients, jnp.stack(powers, 1), precision="highest"), 1, 0
    )
    is_odd = np.arange(_ORDER + 2)[None] % 2 == 1
    return ExpansionSums(
        jnp.stack(derivatives, 1), jnp.where(is_odd, odd, even), pos[:, :2], neg[:, :2]
    )


@partial(xla.jit, static_argnames=("options", "tolerance"), wide=True)
def leave_each_out(
    rows: RowArrays, at: Center, total: ExpansionSums, options: Options, tolerance: float
) -> LeftOut:
    """The fits without each of these rows, given the fits of all rows and their sums.

    The tolerance is the maximum error of the log-odds; rows are as in `sums`.
    """
    (scores, *_), _ = rows
    a, z, y, w, counts = _read(rows, at)
    held = at.slope_held[:, None]
    targets = {"platt": platt_targets, "none": plain_targets}[options.targets]
    (n_pos, first_pos), (n_neg, first_neg) = ((x[:, :1], x[:, 1:]) for x in (total.pos, total.neg))
    # Rounding may leave a class minus all of itself below 0.
    without = targets(
        jnp.maximum(n_pos - jnp.where(y, w, 0), 0), jnp.maximum(n_neg - jnp.where(y, 0, w), 0)
    )
    expansion = _expansion(total, at)
    from_targets_A = without.positive * first_pos + without.negative * first_neg
    from_targets_B = without.positive * n_pos + without.negative * n_neg
    t = jnp.where(y, without.positive, without.negative)

    alpha, beta = jnp.zeros_like(z), jnp.zeros_like(z)
    for gradient_degree, hessian_degree in _DEGREES:
        p, v = _probability(z + a * alpha + beta)
        slope, v = w * (t - p), w * v
        g_A = (
            from_targets_A + _derivative(expansion, 1, 1, alpha, beta, gradient_degree) - slope * a
        )
        g_B = from_targets_B + _derivative(expansion, 1, 0, alpha, beta, gradient_degree) - slope
        h_AA = jnp.where(
            held, 1, _derivative(expansion, 2, 2, alpha, beta, hessian_degree) - v * a * a
        )
        h_AB = jnp.where(held, 0, _derivative(expansion, 2, 1, alpha, beta, hessian_degree) - v * a)
        h_BB = _derivative(expansion, 2, 0, alpha, beta, hessian_degree) - v
        if not options.intercept:
            g_B, h_AB, h_BB = jnp.zeros_like(z), jnp.zeros_like(z), jnp.ones_like(z)
        by_A = jnp.where(held, 0, g_A)
        over = 1 / (h_AA * h_BB - h_AB * h_AB)
        step_A, step_B = (h_AB * g_B - h_BB * by_A) * over, (h_AB * by_A - h_AA * g_B) * over
        alpha, beta = alpha + step_A, beta + step_B

    # With x = [a, 1] and r the error of the gradient: x' H^-1 r is at most the root of x' H^-1 x
    # times r' H^-1 r.
    r_A, r_B = _remainder(total.bounds, jnp.abs(alpha), jnp.abs(beta))
    r_A, x_A = jnp.where(held, 0, r_A), jnp.where(held, 0, a)
    r_B, x_B = (r_B, 1) if options.intercept else (0, 0)
    row_square = h_BB * x_A * x_A - 2 * h_AB * x_A * x_B + h_AA * x_B * x_B
    rest_square = h_BB * r_A * r_A + 2 * jnp.abs(h_AB) * r_A * r_B + h_AA * r_B * r_B
    last_step = jnp.abs(a * step_A) + jnp.abs(step_B)
    # The factor 2 allows for the change of the Hessian between here and the optimum.
    error = last_step + 2 * jnp.sqrt(row_square * rest_square) * over
    near = (jnp.abs(alpha) <= _RADIUS) & (jnp.abs(beta) <= _RADIUS) & (h_AA > 0) & (over > 0)
    # Where all other scores are one, what is left of the determinant is an error.
    all_AA = jnp.where(held, 1, expansion[2, 2])
    all_BB = expansion[2, 0] if options.intercept else 1
    near &= _LEAST_LEFT * all_AA * all_BB * over < 1
    center, scale = (x[:, None] for x in at.coordinates)
    A = at.A[:, None] + alpha * scale
    # Without another row of positive weight there is no fit, even with a prior.
    doubtful = ~(near & (error <= tolerance)) | (w >= n_pos + n_neg)
    if options.monotone:
        doubtful |= jnp.where(held, g_A > 0, A > 0)
    return LeftOut(
        probability=jnp.where(jnp.isfinite(scores), _probability(z + a * alpha + beta)[0], jnp.nan),
        A=A,
        B=at.B[:, None] + beta - alpha * scale * center,
        doubtful=counts & jnp.isfinite(z) & doubtful,
    )


def leave_each_of_all_out(
    rows: RowArrays, at: Center, options: Options, tolerance: float
) -> LeftOut:
    """`leave_each_out`, where these are all rows of the problems; traceable."""
    total = sums.__wrapped__(rows, at)
    left_out: LeftOut = leave_each_out.__wrapped__(rows, at, total, options, tolerance)
    return left_out


def _probability(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P = 1 / (1 + exp(z)) and P (1 - P), minus its derivative by z."""
    e = jnp.exp(-jnp.abs(z))
    small = e / (1 + e)
    return jnp.where(z > 0, small, 1 / (1 + e)), small / (1 + e)


def _curvature_polynomials() -> list[Polynomial]:
    """The derivatives of the loss by z, divided by v = p (1 - p), odd ones by v (2 p - 1)."""
    polynomials = [Polynomial([1.0])]  # second derivative
    for order in range(3, _ORDER + 2):
        last, v = polynomials[-1], Polynomial([0.0, 1.0])
        by_v = last.deriv()
        odd = order % 2
        polynomials.append(last + v * by_v if odd else (1 - 6 * v) * last + v * (1 - 4 * v) * by_v)
    return polynomials


_POLYNOMIALS = _curvature_polynomials()
# Maximum of the first derivative left out, in units of v.
_MOST = float(np.max(np.abs(_POLYNOMIALS[-1](np.linspace(0, 0.25, 1001)))))


def _expansion(total: ExpansionSums, at: Center) -> dict[tuple[int, int], jax.Array]:
    """Derivatives [S, 1] of the loss of all rows by (k, j): j times by A and k - j times by B.

    The first derivatives lack the targets, which are handled apart.
    """
    derivatives = {
        (k, j): total.derivatives[:, k - 1, j, None]
        for k in range(1, _ORDER + 1)
        for j in range(k + 1)
    }
    if at.prior is not None:
        share = derivatives_to_standardized(
            at.coordinates, priors.derivatives(CenteredPrior.around_zero(at.prior), at.A, at.B)
        )
        keys = (1, 1), (1, 0), (2, 2), (2, 1), (2, 0)
        for key, x in zip(keys, share, strict=True):
            derivatives[key] = derivatives[key] + x[:, None]
    return derivatives


def _derivative(
    expansion: dict[tuple[int, int], jax.Array],
    k: int,
    j: int,
    alpha: jax.Array,
    beta: jax.Array,
    degree: int,
) -> jax.Array | float:
    """The derivative, k - j times by B and j times by A, at parameters moved by alpha and beta."""
    total: jax.Array | float = 0.0
    for by_A in range(degree, -1, -1):
        inner: jax.Array | float = 0.0
        for by_B in range(degree - by_A, -1, -1):
            c = 1 / (factorial(by_A) * factorial(by_B))
            inner = inner * beta + c * expansion[k + by_A + by_B, j + by_A]
        total = total * alpha + inner
    return total


def _remainder(
    bounds: jax.Array, alpha: jax.Array, beta: jax.Array
) -> tuple[jax.Array | float, jax.Array | float]:
    """A bound on the remainder of the gradient's polynomial, by A and by B."""

    def bound(j: int) -> jax.Array | float:
        total: jax.Array | float = 0.0
        for i in range(_ORDER, -1, -1):
            total = total * alpha + comb(_ORDER, i) * beta ** (_ORDER - i) * bounds[:, i + j, None]
        return _MOST / factorial(_ORDER) * total

    return bound(1), bound(0)
