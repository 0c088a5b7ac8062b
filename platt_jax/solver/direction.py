"""Which way to go: Newton's direction, and what is known of the third derivative.

All is elementwise, and reads no row.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Derivatives

# A change of (A, B).
Step: TypeAlias = tuple[jax.Array, jax.Array]


class Factors(NamedTuple):
    """Of H + sigma I = L D L'. Divisions take long: two serve for all."""

    over_pivot: jax.Array  # 1 / D of A
    over_h_BB: jax.Array  # 1 / D of B
    ratio: jax.Array  # what links them, in L
    pinned: jax.Array  # A is held


def factorize(at: Derivatives, sigma: jax.Array | float, pinned: jax.Array) -> Factors:
    """The factors of H + sigma I.

    The pivot of A is the spread of the scores where the curvature is. Rounding could take it to 0
    or below; it is held at a few units of rounding, so that the direction always descends.
    """
    tiny = jnp.finfo(at.h_AA.dtype).tiny
    h_AA, over_h_BB = at.h_AA + sigma, 1 / jnp.maximum(at.h_BB + sigma, tiny)
    ratio = jnp.where(pinned, 0, at.h_AB * over_h_BB)
    floor = 4 * jnp.finfo(h_AA.dtype).eps * h_AA
    pivot = jnp.maximum(jnp.maximum(h_AA - ratio * at.h_AB, floor), tiny)
    return Factors(1 / pivot, over_h_BB, ratio, pinned)


def descent(factors: Factors, g_A: jax.Array, g_B: jax.Array) -> Step:
    """-(H + sigma I)^-1 g; 0 for A where that is held."""
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
    equations"). By how much the Hessian changed on it is T[d] = C; and the cubic through both ends'
    gradients and Hessians has T[d, d] = 6 (g_old - g) + 2 H_old d + 4 H d at this end. Of s =
    a d + r, with r across d, T[s, s] is taken to be a^2 T[d, d] + 2 a C r. Where that would make
    the direction half as steep, or half as steep again, it says nothing.

    Args:
        step: Newton's direction.
        decrement: how steep it is, the square root of g' H^-1 g.
        factors: of the Hessian.
        last: the last step.
        old: the derivatives where it began.
        at: the derivatives where it ended.
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
    telling = once(jnp.abs(t_A * s_A + t_B * s_B) <= decrement * decrement / 2)
    t_A, t_B = jnp.where(telling, t_A, 0), jnp.where(telling, t_B, 0)
    return descent(factors, at.g_A + t_A, at.g_B + t_B)


def once(condition: jax.Array) -> jax.Array:
    """The same condition, computed once.

    XLA computes what is cheap anew for each of its uses, here for each field of the state: more
    than a quarter of the whole program's operations. A square root it does not call cheap.
    """
    return jnp.sqrt(jnp.where(condition, 1.0, 0.0)) > 0
