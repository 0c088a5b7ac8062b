"""The stopping rules of a search, by the value of Options.stopping."""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Derivatives
from platt_jax.options import Options
from platt_jax.solver.direction import Factors, Step
from platt_jax.status import Status

# The status of a search that has not ended.
RUNNING = -1

# Maximum distance from the optimum of a converged fit, in standard errors, by dtype. If rounding
# keeps a fit farther away, it has not converged.
MOST_NOISE = {"float32": 1e-2, "float64": 1e-6}


class ProblemConstants(NamedTuple):
    """Constants of a problem that the algorithm needs besides the derivatives."""

    low: jax.Array  # the smallest score
    high: jax.Array  # the largest score
    total_weight: jax.Array  # n_pos + n_neg
    widest_offset: jax.Array | None = None  # largest absolute offset; None if rows have none
    unbounded: jax.Array | bool = False  # whether the loss falls forever along a ray


class AcceptedPoint(NamedTuple):
    """An accepted point, and the step that led to it."""

    A: jax.Array
    derivatives: Derivatives
    factors: Factors  # of the Hessian
    step: Step  # Newton's step from this point
    decrement: jax.Array  # at this point
    last_decrement: jax.Array  # at the point before
    full_step: jax.Array  # whether the step to this point had size 1


class Verdict(NamedTuple):
    """A stopping rule's decision at an accepted point."""

    status: jax.Array  # a Status if the search ends here, or RUNNING
    # A Status if the search ends here once a step fails, because only rounding is left to gain;
    # or RUNNING.
    stalled_status: jax.Array


class StoppingRule(NamedTuple):
    """When to stop, and whether to take a last step without evaluating it."""

    judge: Callable[[AcceptedPoint, ProblemConstants, Options], Verdict]
    # Whether a search that met the tolerance takes Newton's step from there without evaluating it.
    takes_last_step: bool


def reach(step: Step, constants: ProblemConstants) -> jax.Array:
    """The largest change of z that a step makes in any row."""
    d_A, d_B = step
    return jnp.maximum(jnp.abs(d_A * constants.low + d_B), jnp.abs(d_A * constants.high + d_B))


def _by_decrement(
    accepted: AcceptedPoint, constants: ProblemConstants, options: Options
) -> Verdict:
    """Stops at a Newton decrement of at most `tol`, or where rounding keeps it from falling."""
    noise, status = _rounding(accepted, constants, options)
    near = constants.unbounded | _certain(accepted, constants)
    noise &= _settled(accepted, constants) & near
    slow = (accepted.decrement > accepted.last_decrement / 2) & accepted.full_step
    met = ((accepted.decrement <= _tol(options)) & near) | (noise & slow)
    return Verdict(jnp.where(met, status, RUNNING), jnp.where(noise, status, RUNNING))


def _by_gradient(accepted: AcceptedPoint, constants: ProblemConstants, options: Options) -> Verdict:
    """Stops when all entries of the gradient are below `tol`, as LIBSVM does."""
    at, tol = accepted.derivatives, _tol(options)
    g_A = jnp.where(accepted.factors.pinned, 0, at.g_A)  # a slope that is held stays
    met = (jnp.abs(g_A) < tol) & (jnp.abs(at.g_B) < tol)
    running = jnp.full_like(met, RUNNING, jnp.int32)
    return Verdict(jnp.where(met, int(Status.CONVERGED), running), running)


RULES = {
    "decrement": StoppingRule(_by_decrement, takes_last_step=True),
    "gradient": StoppingRule(_by_gradient, takes_last_step=False),
}


def _rounding(
    accepted: AcceptedPoint, constants: ProblemConstants, options: Options
) -> tuple[jax.Array, jax.Array]:
    """Whether rounding alone can cause the decrement, and the status if the search ends there.

    Gradient entries have errors of eps times the weight of the rows, or the prior's curvature. In
    standard errors that is eps times the weight's square root. For the slope, the error is relative
    to the remaining curvature, the pivot. The distance to the optimum is at most what the decrement
    shows, or what rounding may hide: the summed terms are about as large as the terms of h_BB if
    most rows are fitted well.
    """
    at, kind = accepted.derivatives, jnp.finfo(accepted.decrement.dtype)
    weight_noise = float(kind.eps) ** 2 * jnp.maximum(at.h_AA * accepted.factors.over_pivot, 1)
    weight = constants.total_weight + at.h_AA + at.h_BB
    square = accepted.decrement * accepted.decrement  # compares squares: a root is slower
    tol = min(10 * _tol(options), float(kind.max) ** 0.5)  # whose square is finite
    noise = square <= jnp.maximum(tol**2, 16 * weight_noise * weight)
    limit = max(MOST_NOISE[kind.dtype.name], tol)
    near = jnp.maximum(square, weight_noise * at.h_BB) <= limit**2
    return noise, jnp.where(near, int(Status.CONVERGED), int(Status.LINE_SEARCH_FAILED))


def _certain(accepted: AcceptedPoint, constants: ProblemConstants) -> jax.Array:
    """Whether the optimum is as near as the decrement shows.

    It is within 4 decrements if the decrement times the largest length of a row (f, 1) in the
    metric of the inverse Hessian is at most 1/2 (Bach 2010, proposition 2, with |phi'''| bounded
    as in `newton._proves_decrease`). Rows farther out do not matter if they have no curvature left,
    see `_settled`. Where the rows with curvature are at one place, the pivot is rounding. The pivot
    counts without sigma, which may be most of it beside a far score, and bends no loss.
    """
    at, (over_pivot, over_h_BB, ratio, pinned) = accepted.derivatives, accepted.factors
    farthest = jnp.maximum(jnp.abs(constants.low - ratio), jnp.abs(constants.high - ratio))
    curved = (at.h_AA - at.h_AB * (at.h_AB / at.h_BB)) * over_pivot
    curved = jnp.where(constants.low == constants.high, 1, curved)
    error = accepted.decrement * accepted.decrement
    of_A, square = error * over_pivot, curved * curved
    near = (error * over_h_BB <= 0.25 * curved) & (
        (farthest * farthest * of_A <= 0.25 * square)
        | ((2 * _far(constants)) ** 2 * of_A <= accepted.A * accepted.A * square)
    )
    resolved = float(jnp.finfo(of_A.dtype).eps) ** 0.75 * at.h_AA * over_pivot < curved
    return (near & resolved) | pinned


def _settled(accepted: AcceptedPoint, constants: ProblemConstants) -> jax.Array:
    """Whether the decrement shows the distance to the optimum, and falls unless rounding stops it.

    This holds if Newton's step changes no log-odds by more than a half (see
    `newton._proves_decrease`). It also holds if the slope changes so little that a row moved by
    more has no curvature left: its A f is beyond 512, and beyond any offset. Otherwise one far
    score may have most of the curvature, and lose it on the way.
    """
    flat = _far(constants) * jnp.abs(accepted.step[0]) <= jnp.abs(accepted.A)
    return (reach(accepted.step, constants) <= 0.5) | flat


def _far(constants: ProblemConstants) -> jax.Array | int:
    """Twice the distance from 0 at which log-odds have no curvature, with any offset of a row."""
    return 1024 if constants.widest_offset is None else 1024 + 4 * constants.widest_offset


def _tol(options: Options) -> float:
    return cast(float, options.tol)  # filled in by `with_tol`
