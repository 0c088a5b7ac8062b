"""The algorithm for one problem: Newton's method with backtracking, as a state machine of scalars.

Algorithm 1 of Lin, Lin & Weng (2007). `step` takes the derivatives at the point that the state
proposes (`trial_point`), accepts the point or halves the step, and proposes the next point. There
is one evaluation per iteration; backtracking is part of the state. All operations are elementwise,
so the same code serves an array of problems.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.model.objective import Derivatives, Point
from platt_jax.options import Options
from platt_jax.solver import direction
from platt_jax.solver.stopping import RULES, RUNNING, AcceptedPoint, ProblemConstants, reach
from platt_jax.status import Status

_ARMIJO = 1e-4  # the sufficient-decrease constant of Algorithm 1


class SearchState(NamedTuple):
    """The state of the search of one problem."""

    A: jax.Array
    B: jax.Array
    derivatives: Derivatives  # at (A, B)
    step_A: jax.Array  # the direction of the search
    step_B: jax.Array
    # The fraction of the direction to try next; 0 if (A, B) is not evaluated yet.
    step_size: jax.Array
    decrement: jax.Array  # the Newton decrement at (A, B): the square root of g' H^-1 g
    stalled_status: jax.Array  # see `stopping.Verdict`
    pinned: jax.Array  # A is held: at 0 (monotone=True), or where it starts
    status: jax.Array  # a Status, or running
    iterations: jax.Array  # accepted Newton steps
    passes: jax.Array  # evaluations


def start(A: jax.Array, B: jax.Array, options: Options) -> SearchState:
    """The first state, which proposes an evaluation at (A, B)."""
    zero = jnp.zeros_like(A)
    count = jnp.zeros_like(A, jnp.int32)
    return SearchState(
        A=A,
        B=B,
        derivatives=Derivatives(*[zero] * 5),
        step_A=zero,
        step_B=zero,
        step_size=zero,
        decrement=zero,
        stalled_status=count + RUNNING,
        pinned=count > 0 if options.slope else count == 0,
        status=count + RUNNING,
        iterations=count,
        passes=count,
    )


def running(state: SearchState) -> jax.Array:
    """Whether the problem needs another evaluation."""
    return state.status == RUNNING


def trial_point(state: SearchState) -> Point:
    """The point (A, B) to evaluate next."""
    return state.A + state.step_size * state.step_A, state.B + state.step_size * state.step_B


def last_step(state: SearchState, options: Options) -> SearchState:
    """The state after Newton's step from a point that met the tolerance, without evaluating it.

    The gradient there follows from the last pass's gradient and Hessian. The Hessian is not
    updated: the points are less than `tol` standard errors apart. A start that is the optimum stays
    unchanged: with one class the slope is exactly 0.
    """
    tol: Any = options.tol  # filled in by `with_tol`
    if not RULES[options.stopping].takes_last_step:
        return state
    at, s_A, s_B = state.derivatives, state.step_A, state.step_B
    next_state = state._replace(
        A=state.A + s_A,
        B=state.B + s_B,
        derivatives=at._replace(
            g_A=at.g_A + at.h_AA * s_A + at.h_AB * s_B,
            g_B=at.g_B + at.h_AB * s_A + at.h_BB * s_B,
        ),
    )
    met = (state.status == Status.CONVERGED) & (state.decrement <= tol) & (state.iterations > 0)
    if options.monotone:
        met &= next_state.A <= 0
    return jax.tree.map(partial(jnp.where, met), next_state, state)


def step(
    state: SearchState,
    at: Derivatives,
    change: jax.Array | None,
    constants: ProblemConstants,
    options: Options,
) -> SearchState:
    """One decision of Algorithm 1, given the derivatives at `trial_point(state)`.

    `change` is the loss there minus the loss at (A, B); None with line_search="gradient".
    """
    at_start = state.step_size == 0  # a start needs no decrease
    sufficient = at_start | _proves_decrease(state, at, constants)
    if change is not None:
        sufficient |= change < _ARMIJO * state.step_size * _slope(state)
    moved, stayed = _accept(state, at, constants, options), _reject(state, options)
    total = at.g_A + at.g_B + at.h_AA + at.h_AB + at.h_BB + moved.step_A + moved.step_B
    finite = jnp.abs(total) < jnp.inf  # not jnp.isfinite, which Mosaic does not have
    going = running(state)
    stayed = stayed._replace(
        status=jnp.where(at_start & ~finite, int(Status.NON_FINITE), stayed.status)
    )
    stayed = jax.tree.map(partial(jnp.where, going), stayed, state)
    accepted = direction.computed_once(going & finite & sufficient)
    new: SearchState = jax.tree.map(partial(jnp.where, accepted), moved, stayed)
    new = new._replace(passes=jnp.where(going, state.passes + 1, state.passes))
    return _pin(new) if options.monotone else new


def _accept(
    state: SearchState, at: Derivatives, constants: ProblemConstants, options: Options
) -> SearchState:
    A, B = trial_point(state)
    factors = direction.factorize(at, _sigma(at, constants, options), state.pinned)
    step = direction.descent(factors, at.g_A, at.g_B)
    decrement = jnp.sqrt(jnp.maximum(-direction.along(at, step), 0))
    iterations = state.iterations + jnp.where(state.step_size == 0, 0, 1)
    full_step = state.step_size == 1
    accepted = AcceptedPoint(A, at, factors, step, decrement, state.decrement, full_step)
    verdict = RULES[options.stopping].judge(accepted, constants, options)
    exhausted = jnp.where(iterations >= options.max_iter, int(Status.MAX_ITERATIONS), RUNNING)
    if options.direction == "tensor":
        last = state.step_size * state.step_A, state.step_size * state.step_B
        step = direction.corrected(step, decrement, factors, last, state.derivatives, at)
    if not options.slope:
        step = step[0], _within_range(step[1], A, constants)
    return state._replace(
        A=A,
        B=B,
        derivatives=at,
        step_A=step[0],
        step_B=step[1],
        step_size=jnp.ones_like(state.step_size),
        decrement=decrement,
        stalled_status=verdict.stalled_status,
        status=jnp.where(verdict.status == RUNNING, exhausted, verdict.status),
        iterations=iterations,
    )


def _within_range(step_B: jax.Array, A: jax.Array, constants: ProblemConstants) -> jax.Array:
    """A step of B alone that leads no farther than the optimum can be.

    Between scores that are far apart the loss is nearly straight, and Newton's step unbounded. At
    the optimum some row has log-odds of its targets, which float64 keeps below 40.
    """
    widest = reach((A, jnp.zeros_like(A)), constants)
    if constants.widest_offset is not None:
        widest = widest + constants.widest_offset
    most = 2 * widest + 80
    return jnp.clip(step_B, -most, most)


def _reject(state: SearchState, options: Options) -> SearchState:
    """Halves the step, or ends the search if the decrement is at the level of rounding."""
    step_size = state.step_size / 2
    failed = jnp.where(step_size < options.min_step, int(Status.LINE_SEARCH_FAILED), RUNNING)
    return state._replace(
        step_size=step_size,
        status=jnp.where(state.stalled_status == RUNNING, failed, state.stalled_status),
    )


def leave_bad_start(
    state: SearchState, usual: Point, constants: ProblemConstants, options: Options
) -> SearchState:
    """Starts again at the usual start, if the first pass shows that the given start is bad.

    Where nearly all rows are fitted with certainty, rightly or wrongly, Newton's step is unbounded,
    and the search may take hundreds of passes, or fail. Such a step promises to lower the loss by
    half the squared decrement. That is more than any step gains from a start with slope 0, where
    the loss is at most log 2 per row.
    """
    promised = state.decrement * state.decrement / 2
    good = (state.status != Status.NON_FINITE) & (promised <= np.log(2) * constants.total_weight)
    elsewhere = (state.A != usual[0]) | (state.B != usual[1])
    restarted = start(*usual, options)._replace(passes=state.passes)
    leaving = direction.computed_once((state.passes == 1) & ~good & elsewhere)
    return jax.tree.map(partial(jnp.where, leaving), restarted, state)


def _pin(state: SearchState) -> SearchState:
    """Where the search ended with A > 0, starts again on the boundary A = 0.

    The problem is convex, so the constrained optimum then lies there.
    """
    wrong = ~running(state) & (state.A > 0)
    zero = jnp.zeros_like(state.A)
    pinned = state._replace(
        A=zero,
        step_size=zero,
        stalled_status=jnp.full_like(state.status, RUNNING),
        pinned=jnp.ones_like(state.pinned),
        status=jnp.full_like(state.status, RUNNING),
        # A search that has taken all its steps gets as many again.
        iterations=jnp.where(state.status == Status.MAX_ITERATIONS, 0, state.iterations),
    )
    return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), pinned, state)


def _sigma(at: Derivatives, constants: ProblemConstants, options: Options) -> jax.Array:
    constant = constants.low == constants.high
    if options.sigma == "dynamic":
        sigma = jnp.where(constant, 1e-12, 0.0).astype(constants.low.dtype)
    else:
        # If all data weigh less than one row, sigma must not dominate the Hessian.
        sigma = options.sigma * jnp.minimum(constants.total_weight, 1)
    # Constant scores have no unit, so a prior may know less of their slope than sigma. Of a slope
    # that is well known sigma stays: it keeps rounding out of the determinant.
    return jnp.where(constant & (at.h_AA > 0), sigma * jnp.minimum(at.h_AA, 1), sigma)


def _slope(state: SearchState, at: Derivatives | None = None) -> jax.Array:
    """The derivative of the loss along the current direction, at (A, B) or where `at` was taken."""
    return direction.along(state.derivatives if at is None else at, (state.step_A, state.step_B))


def _proves_decrease(state: SearchState, at: Derivatives, constants: ProblemConstants) -> jax.Array:
    """Whether the derivatives at the trial prove the sufficient decrease of Algorithm 1.

    Along the direction d, phi(s) = F(theta + s d) has |phi'''| <= R phi'' with R the largest
    |d_A f + d_B| of any row (Bach 2010, "Self-concordant analysis for logistic regression",
    section 2). Integrating phi'' back from s bounds phi(s) - phi(0) from above by
    s phi'(s) - s^2 phi''(s) (exp(-x) + x - 1) / x^2 with x = s R. No loss is needed, and nothing
    cancels near the optimum, where the difference of two losses is all rounding.
    """
    d_A, d_B, s = state.step_A, state.step_B, state.step_size
    most = reach((d_A, d_B), constants)
    curvature = d_A * (d_A * at.h_AA + 2 * d_B * at.h_AB) + d_B * d_B * at.h_BB
    bound = _slope(state, at) - s * curvature * backward_share(s * most)
    return bound <= _ARMIJO * _slope(state)


def backward_share(x: jax.Array) -> jax.Array:
    """A lower bound of (exp(-x) + x - 1) / x^2: its Pade approximant at 0.

    The difference of the numerators times exp(x) has value and first two derivatives 0 at 0, and
    the third derivative x^3 exp(x).
    """
    return (30 + 2 * x) / (60 + x * (24 + 3 * x))
