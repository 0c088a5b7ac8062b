"""The direction of a step: Newton's, and a correction for the third derivative.

All functions are elementwise and read no rows.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Derivatives

# A change of (A, B).
Step: TypeAlias = tuple[jax.Array, jax.Array]


class Factors(NamedTuple):
    """The factors of H + sigma I = L D L'. Divisions are slow; the two made here are reused."""

    over_pivot: jax.Array  # 1 / D of A
    over_h_BB: jax.Array  # 1 / D of B
    ratio: jax.Array  # the off-diagonal entry of L
    pinned: jax.Array  # whether A is held


def factorize(at: Derivatives, sigma: jax.Array | float, pinned: jax.Array) -> Factors:
    """The factors of H + sigma I.

    The pivot of A is the spread of the scores, weighted by curvature. Rounding could take it to 0
    or below. A lower bound of a few units of rounding ensures that the direction descends.
    """
    tiny = jnp.finfo(at.h_AA.dtype).tiny
    h_AA, over_h_BB = at.h_AA + sigma, 1 / jnp.maximum(at.h_BB + sigma, tiny)
    ratio = jnp.where(pinned, 0, at.h_AB * over_h_BB)
    floor = 4 * jnp.finfo(h_AA.dtype).eps * h_AA
    pivot = jnp.maximum(jnp.maximum(h_AA - ratio * at.h_AB, floor), tiny)
    return Factors(1 / pivot, over_h_BB, ratio, pinned)


def descent(factors: Factors, g_A: jax.Array, g_B: jax.Array) -> Step:
    """-(H + sigma I)^-1 g, with 0 for A where A is held."""
    step_A = -jnp.where(factors.pinned, 0, g_A - factors.ratio * g_B) * factors.over_pivot
    return step_A, -g_B * factors.over_h_BB - factors.ratio * step_A


def newton(at: Derivatives, sigma: jax.Array | float, pinned: jax.Array) -> Step:
    """Newton's direction."""
    return descent(factorize(at, sigma, pinned), at.g_A, at.g_B)


def along(at: Derivatives, direction: Step) -> jax.Array:
    """The derivative of the loss along a direction."""
    return at.g_A * direction[0] + at.g_B * direction[1]


def corrected(
    step: Step,
    decrement: jax.Array,
    factors: Factors,
    last: Step,
    old: Derivatives,
    at: Derivatives,
) -> Step:
    """Newton's direction s, corrected for the third derivative T: -H^-1 (g + T[s, s] / 2).

    T is known along the last step, d (Schnabel & Frank 1984, "Tensor methods for nonlinear
    equations"). The change of the Hessian over d gives T[d] = C. The cubic through the gradients
    and Hessians at both ends has T[d, d] = 6 (g_old - g) + 2 H_old d + 4 H d at this end. With
    s = a d + r and r orthogonal to d, T[s, s] is approximated by a^2 T[d, d] + 2 a C r. If the
    correction would make the direction less than half or more than one and a half times as steep,
    it is not used. The decrement is the square root of g' H^-1 g.
    """
    (s_A, s_B), (d_A, d_B) = step, last
    square = d_A * d_A + d_B * d_B
    a = (s_A * d_A + s_B * d_B) / jnp.where(square > 0, square, 1)
    # T[s, s] / 2 = a (C s + a (T[d, d] / 2 - C d))
    c_AA, c_AB, c_BB = at.h_AA - old.h_AA, at.h_AB - old.h_AB, at.h_BB - old.h_BB
    m_AA, m_AB, m_BB = at.h_AA + 2 * old.h_AA, at.h_AB + 2 * old.h_AB, at.h_BB + 2 * old.h_BB
    rest_A = 3 * (old.g_A - at.g_A) + m_AA * d_A + m_AB * d_B
    rest_B = 3 * (old.g_B - at.g_B) + m_AB * d_A + m_BB * d_B
    t_A = a * (c_AA * s_A + c_AB * s_B + a * rest_A)
    t_B = a * (c_AB * s_A + c_BB * s_B + a * rest_B)
    telling = computed_once(jnp.abs(t_A * s_A + t_B * s_B) <= decrement * decrement / 2)
    t_A, t_B = jnp.where(telling, t_A, 0), jnp.where(telling, t_B, 0)
    return descent(factors, at.g_A + t_A, at.g_B + t_B)


def computed_once(condition: jax.Array) -> jax.Array:
    """The condition, computed once.

    XLA recomputes cheap expressions for each use, here for each field of the state. That would be
    more than a quarter of all operations of the program. XLA does not count a square root as cheap.
    """
    return jnp.sqrt(jnp.where(condition, 1.0, 0.0)) > 0
