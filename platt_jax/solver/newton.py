"""One problem's algorithm: Newton's method with backtracking, as a state machine of scalars.

Algorithm 1 of Lin, Lin & Weng (2007). `step` is handed the derivatives at the point that the state
proposes (`trial`), accepts it or halves the step, and proposes the next point: one evaluation per
iteration, backtracking as state. All is elementwise: the same lines serve a grid of problems.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Derivatives
from platt_jax.options import Options
from platt_jax.solver import direction
from platt_jax.status import Status

_ARMIJO = 1e-4  # the sufficient-decrease constant of Algorithm 1
_RUNNING = -1
# Standard errors, by dtype: a fit that rounding keeps farther off has not converged.
MOST_NOISE = {"float32": 1e-2, "float64": 1e-6}


class ProblemConstants(NamedTuple):
    """What the algorithm must know of a problem besides the derivatives."""

    low: jax.Array  # the smallest score
    high: jax.Array  # the largest score
    total_weight: jax.Array  # n_pos + n_neg


class State(NamedTuple):
    """Where one problem stands."""

    A: jax.Array
    B: jax.Array
    at: Derivatives  # there
    step_A: jax.Array  # the direction of the search
    step_B: jax.Array
    length: jax.Array  # the part of the direction to try next; 0 where (A, B) is still unseen
    decrement: jax.Array  # the Newton decrement at (A, B): the square root of g' H^-1 g
    stalled_status: (
        jax.Array
    )  # a Status if there is nothing to gain from (A, B) but rounding, or running
    pinned: jax.Array  # A is held at 0 (monotone=True)
    status: jax.Array  # a Status, or running
    iterations: jax.Array  # accepted Newton steps
    passes: jax.Array  # evaluations


def start(A, B) -> State:
    """The state that asks for an evaluation at (A, B)."""
    zero = jnp.zeros_like(A)
    count = jnp.zeros_like(A, jnp.int32)
    return State(
        A=A,
        B=B,
        at=Derivatives(*[zero] * 5),
        step_A=zero,
        step_B=zero,
        length=zero,
        decrement=zero,
        stalled_status=count + _RUNNING,
        pinned=count > 0,
        status=count + _RUNNING,
        iterations=count,
        passes=count,
    )


def running(state: State):
    """Whether the problem wants another evaluation."""
    return state.status == _RUNNING


def trial(state: State):
    """The point (A, B) to evaluate next."""
    return state.A + state.length * state.step_A, state.B + state.length * state.step_B


def last_step(state: State, options: Options) -> State:
    """The state after the step that a search which met its tolerance has no need to try.

    The gradient there is reckoned from that of the last pass by the Hessian; the Hessian is left
    as it was, less than `tol` standard errors away. A start that is the optimum stays what it is:
    of one class the slope is exactly 0.
    """
    tol: Any = options.tol  # which `with_tol` has filled in
    if options.stopping == "gradient":
        return state
    at, s_A, s_B = state.at, state.step_A, state.step_B
    there = state._replace(
        A=state.A + s_A,
        B=state.B + s_B,
        at=at._replace(
            g_A=at.g_A + at.h_AA * s_A + at.h_AB * s_B,
            g_B=at.g_B + at.h_AB * s_A + at.h_BB * s_B,
        ),
    )
    met = (state.status == Status.CONVERGED) & (state.decrement <= tol) & (state.iterations > 0)
    if options.monotone:
        met &= there.A <= 0
    return jax.tree.map(partial(jnp.where, met), there, state)


def step(state: State, at: Derivatives, change, facts: ProblemConstants, options: Options) -> State:
    """One decision of Algorithm 1.

    Args:
        state: where the problem stands.
        at: the derivatives at `trial(state)`.
        change: the loss there minus the loss at (A, B); None with line_search="gradient".
        facts: about the problem.
        options: how to fit.
    """
    unseen = state.length == 0  # a start is accepted whatever its derivatives
    sufficient = unseen | _proves_decrease(state, at, facts)
    if change is not None:
        sufficient |= change < _ARMIJO * state.length * _slope(state)
    moved, stayed = _accept(state, at, facts, options), _reject(state, options)
    finite = jnp.isfinite(
        at.g_A + at.g_B + at.h_AA + at.h_AB + at.h_BB + moved.step_A + moved.step_B
    )
    going = running(state)
    stayed = stayed._replace(
        status=jnp.where(unseen & ~finite, int(Status.NON_FINITE), stayed.status)
    )
    stayed = jax.tree.map(partial(jnp.where, going), stayed, state)
    accepted = direction.once(going & finite & sufficient)
    new = jax.tree.map(partial(jnp.where, accepted), moved, stayed)
    new = new._replace(passes=jnp.where(going, state.passes + 1, state.passes))
    return _pin(new) if options.monotone else new


def _accept(state, at, facts, options):
    A, B = trial(state)
    factors = direction.factorize(at, _sigma(facts, options), state.pinned)
    step = direction.descent(factors, at.g_A, at.g_B)
    decrement = jnp.sqrt(jnp.maximum(-direction.along(at, step), 0))
    iterations = state.iterations + jnp.where(state.length == 0, 0, 1)
    status = jnp.where(iterations >= options.max_iter, int(Status.MAX_ITERATIONS), _RUNNING)
    stalled_status = jnp.full_like(status, _RUNNING)
    if options.stopping == "gradient":
        done = (jnp.abs(at.g_A) < options.tol) & (jnp.abs(at.g_B) < options.tol)
        status = jnp.where(done, int(Status.CONVERGED), status)
    else:
        noise, verdict = _rounding(at, factors, decrement, facts, options)
        settled = _settled(A, step, facts)
        stalled_status = jnp.where(noise & settled, verdict, _RUNNING)
        stalled = noise & (decrement > state.decrement / 2) & (state.length == 1)
        done = (decrement <= options.tol) | (stalled & settled)
        status = jnp.where(done, verdict, status)
    if options.direction == "tensor":
        last = state.length * state.step_A, state.length * state.step_B
        step = direction.corrected(step, decrement, factors, last, state.at, at)
    return state._replace(
        A=A,
        B=B,
        at=at,
        step_A=step[0],
        step_B=step[1],
        length=jnp.ones_like(state.length),
        decrement=decrement,
        stalled_status=stalled_status,
        status=status,
        iterations=iterations,
    )


def _reject(state, options):
    """Half the step; but with the decrement at the level of rounding there is nothing to gain."""
    length = state.length / 2
    failed = jnp.where(length < options.min_step, int(Status.LINE_SEARCH_FAILED), _RUNNING)
    return state._replace(
        length=length,
        status=jnp.where(state.stalled_status == _RUNNING, failed, state.stalled_status),
    )


def _pin(state):
    """Where the search ends with A > 0, start again on the boundary A = 0.

    The problem is convex, so the constrained optimum then lies there.
    """
    wrong = ~running(state) & (state.A > 0)
    zero = jnp.zeros_like(state.A)
    pinned = state._replace(
        A=zero,
        length=zero,
        stalled_status=jnp.full_like(state.status, _RUNNING),
        pinned=jnp.ones_like(state.pinned),
        status=jnp.full_like(state.status, _RUNNING),
    )
    return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), pinned, state)


def _sigma(facts, options):
    if options.sigma == "dynamic":
        return jnp.where(facts.low == facts.high, 1e-12, 0.0).astype(facts.low.dtype)
    # Of data that weigh less than one row it must not become the larger part of the Hessian.
    return options.sigma * jnp.minimum(facts.total_weight, 1)


def _rounding(at, factors, decrement, facts, options):
    """Whether the decrement is one that rounding alone can cause, and the status if it ends there.

    Gradient entries err by eps times the weight of the rows, or the prior's curvature. In standard
    errors that is eps times the weight's square root; and for the slope what counts is the error
    beside what is left of its curvature, the pivot. How far off the optimum may be is as far as
    the decrement says, or as rounding may hide: the terms that are summed up are about as large as
    those of h_BB where most rows are fitted well.
    """
    kind = jnp.finfo(decrement.dtype)
    of_weight = float(kind.eps) ** 2 * jnp.maximum(at.h_AA * factors.over_pivot, 1)
    weight = facts.total_weight + at.h_AA + at.h_BB
    square = decrement * decrement  # squares are compared, for a root takes longer
    tol = min(10 * options.tol, float(kind.max) ** 0.5)  # whose square is finite
    noise = square <= jnp.maximum(tol**2, 16 * of_weight * weight)
    most = max(MOST_NOISE[kind.dtype.name], tol)
    near = jnp.maximum(square, of_weight * at.h_BB) <= most**2
    return noise, jnp.where(near, int(Status.CONVERGED), int(Status.LINE_SEARCH_FAILED))


def _settled(A, step, facts):
    """Whether the decrement tells the distance to the optimum, and falls unless rounding stops it.

    It does where Newton's step changes no log-odds by more than a half (see `_proves_decrease`), or
    the slope by so little that a row whose log-odds change by more has A f = 512 and no curvature.
    Elsewhere one far score may have most of the curvature, and lose it on the way.
    """
    return (_reach(step, facts) <= 0.5) | (1024 * jnp.abs(step[0]) <= jnp.abs(A))


def _reach(step, facts):
    """By how much a step changes z of any row, at most."""
    d_A, d_B = step
    return jnp.maximum(jnp.abs(d_A * facts.low + d_B), jnp.abs(d_A * facts.high + d_B))


def _slope(state, at=None):
    """Derivative of the loss along the current direction: at (A, B), or where `at` was taken."""
    return direction.along(state.at if at is None else at, (state.step_A, state.step_B))


def _proves_decrease(state, at, facts):
    """Whether the derivatives at the trial prove the sufficient decrease of Algorithm 1.

    Along the direction d, phi(s) = F(theta + s d) has |phi'''| <= R phi'' with R the largest
    |d_A f + d_B| of any row (Bach 2010, "Self-concordant analysis for logistic regression",
    section 2). Integrating phi'' back from s bounds phi(s) - phi(0) from above by
    s phi'(s) - s^2 phi''(s) (exp(-x) + x - 1) / x^2 with x = s R. No loss is needed, and nothing
    cancels near the optimum, where the difference of two losses is all rounding.
    """
    d_A, d_B, s = state.step_A, state.step_B, state.length
    reach = _reach((d_A, d_B), facts)
    curvature = d_A * (d_A * at.h_AA + 2 * d_B * at.h_AB) + d_B * d_B * at.h_BB
    bound = _slope(state, at) - s * curvature * _backward_share(s * reach)
    return bound <= _ARMIJO * _slope(state)


def _backward_share(x):
    """At most (exp(-x) + x - 1) / x^2, which the Pade approximant at 0 never exceeds.

    exp(x) times the numerators' difference is a function whose value and first two derivatives
    at 0 are 0, and whose third is x^3 exp(x).
    """
    return (30 + 2 * x) / (60 + x * (24 + 3 * x))
