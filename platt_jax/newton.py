"""One problem's algorithm: Newton's method with backtracking, as a state machine of scalars.

Algorithm 1 of Lin, Lin & Weng (2007). `step` is handed the derivatives at the point that the state
proposes (`trial`), accepts it or halves the step, and proposes the next point: one evaluation per
iteration, backtracking as state. `solve` vmaps it over the problems.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from platt_jax.objective import Derivatives
from platt_jax.options import Options
from platt_jax.status import Status

_ARMIJO = 1e-4  # the sufficient-decrease constant of Algorithm 1
_RUNNING = -1
# Standard errors, by dtype: a fit that rounding keeps farther off has not converged.
_MOST_NOISE = {"float32": 1e-2, "float64": 1e-6}


class Facts(NamedTuple):
    """What the algorithm must know of a problem besides the derivatives."""

    low: jax.Array  # the smallest score
    high: jax.Array  # the largest score
    total_weight: jax.Array  # n_pos + n_neg


class State(NamedTuple):
    """Where one problem stands."""

    A: jax.Array
    B: jax.Array
    sums: jax.Array  # (5,) the derivatives at (A, B): one array is faster updated than five
    step_A: jax.Array  # the Newton direction
    step_B: jax.Array
    length: jax.Array  # the part of the direction to try next; 0 where (A, B) is still unseen
    pinned: jax.Array  # A is held at 0 (monotone=True)
    status: jax.Array  # a Status, or running
    iterations: jax.Array  # accepted Newton steps
    passes: jax.Array  # evaluations

    @property
    def at(self) -> Derivatives:
        """The derivatives at (A, B)."""
        return Derivatives(*self.sums)


# Which axis is that of the problems, field by field.
_PROBLEMS = State._make(int(name == "sums") for name in State._fields)


def start(A, B) -> State:
    """The state that asks for an evaluation at (A, B)."""
    zero = jnp.zeros_like(A)
    count = jnp.zeros_like(A, jnp.int32)
    return State(
        A=A,
        B=B,
        sums=jnp.stack([zero] * 5),
        step_A=zero,
        step_B=zero,
        length=zero,
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


def step(state: State, at: Derivatives, change, facts: Facts, options: Options) -> State:
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
    moved, stayed = _accept(state, at, facts, options), _reject(state, facts, options)
    finite = jnp.isfinite(
        at.g_A + at.g_B + at.h_AA + at.h_AB + at.h_BB + moved.step_A + moved.step_B
    )
    going = running(state)
    stayed = stayed._replace(
        status=jnp.where(unseen & ~finite, int(Status.NON_FINITE), stayed.status)
    )
    stayed = jax.tree.map(partial(jnp.where, going), stayed, state)
    accepted = _once(going & finite & sufficient)
    new = jax.tree.map(partial(jnp.where, accepted), moved, stayed)
    new = new._replace(passes=jnp.where(going, state.passes + 1, state.passes))
    return _pin(new) if options.monotone else new


def _once(condition):
    """The same condition, computed once.

    XLA computes what is cheap anew for each of its uses, here for each field of the state: more
    than a quarter of the whole program's operations. A square root it does not call cheap.
    """
    return jnp.sqrt(jnp.where(condition, 1.0, 0.0)) > 0


def step_all(state: State, at: Derivatives, change, facts: Facts, options: Options) -> State:
    """`step` for problems [S, G]."""
    all_steps = partial(step, options=options)
    for _ in range(2):
        all_steps = jax.vmap(all_steps, in_axes=(_PROBLEMS, 0, 0, 0), out_axes=_PROBLEMS)
    return all_steps(state, at, change, facts)


def newton_direction(at: Derivatives, sigma, pinned):
    """-(H + sigma I)^-1 g, by the factors of H = L D L'.

    The pivot of A is the spread of the scores where the curvature is. Rounding could take it to 0
    or below; it is held at a few units of rounding, so that the direction always descends.
    """
    pivot, ratio, h_BB = _factors(at, sigma, pinned)
    g_A = jnp.where(pinned, 0, at.g_A - ratio * at.g_B)
    step_A = -g_A / pivot
    return step_A, -at.g_B / h_BB - ratio * step_A


def _factors(at, sigma, pinned):
    """The pivots of A and B, and what links them."""
    tiny = jnp.finfo(at.h_AA.dtype).tiny
    h_AA, h_BB = at.h_AA + sigma, jnp.maximum(at.h_BB + sigma, tiny)
    ratio = jnp.where(pinned, 0, at.h_AB / h_BB)
    floor = 4 * jnp.finfo(h_AA.dtype).eps * h_AA
    return jnp.maximum(jnp.maximum(h_AA - ratio * at.h_AB, floor), tiny), ratio, h_BB


def _accept(state, at, facts, options):
    A, B = trial(state)
    step_A, step_B = newton_direction(at, _sigma(facts, options), state.pinned)
    moved = state._replace(
        A=A,
        B=B,
        sums=jnp.stack(at),
        step_A=step_A,
        step_B=step_B,
        length=jnp.ones_like(state.length),
    )
    iterations = state.iterations + jnp.where(state.length == 0, 0, 1)
    status = jnp.where(iterations >= options.max_iter, int(Status.MAX_ITERATIONS), _RUNNING)
    if options.stopping == "gradient":
        done = (jnp.abs(at.g_A) < options.tol) & (jnp.abs(at.g_B) < options.tol)
        status = jnp.where(done, int(Status.CONVERGED), status)
    else:
        decrement = _decrement(moved)
        stalled = _is_noise(moved, facts, options) & (decrement > _decrement(state) / 2)
        done = (decrement <= options.tol) | (stalled & (state.length == 1))
        status = jnp.where(done, _verdict(moved, options), status)
    return moved._replace(status=status, iterations=iterations)


def _reject(state, facts, options):
    length = state.length / 2
    failed = jnp.where(length < options.min_step, int(Status.LINE_SEARCH_FAILED), _RUNNING)
    if options.stopping == "decrement":
        # With the decrement down at rounding level there is nothing left to gain.
        quiet = _is_noise(state, facts, options) & (length > 0)
        failed = jnp.where(quiet, _verdict(state, options), failed)
    return state._replace(length=length, status=failed)


def _pin(state):
    """Where the search ends with A > 0, start again on the boundary A = 0.

    The problem is convex, so the constrained optimum then lies there.
    """
    wrong = ~running(state) & (state.A > 0)
    zero = jnp.zeros_like(state.A)
    pinned = state._replace(
        A=zero,
        length=zero,
        pinned=jnp.ones_like(state.pinned),
        status=jnp.full_like(state.status, _RUNNING),
    )
    return jax.tree.map(lambda a, b: jnp.where(wrong, a, b), pinned, state)


def _sigma(facts, options):
    if options.sigma == "dynamic":
        return jnp.where(facts.low == facts.high, 1e-12, 0.0).astype(facts.low.dtype)
    # Of data that weigh less than one row it must not become the larger part of the Hessian.
    return options.sigma * jnp.minimum(facts.total_weight, 1)


def _is_noise(state, facts, options):
    """Whether the decrement is one that rounding alone can cause.

    Gradient entries err by eps times the weight of the rows, or the prior's curvature.
    """
    weight = facts.total_weight + state.at.h_AA + state.at.h_BB
    return _decrement(state) <= jnp.maximum(10 * options.tol, 4 * _rounding(state, weight))


def _verdict(state, options):
    """The status of a search that ends here: how far off may the optimum be?

    As far as the decrement says, or as rounding may hide. The terms that are summed up are about
    as large as those of h_BB where most rows are fitted well.
    """
    most = max(_MOST_NOISE[state.A.dtype.name], 10 * options.tol)
    near = jnp.maximum(_decrement(state), _rounding(state, state.at.h_BB)) <= most
    return jnp.where(near, int(Status.CONVERGED), int(Status.LINE_SEARCH_FAILED))


def _rounding(state, weight):
    """The standard errors that gradient entries are off by which err by eps times this weight.

    For the slope what counts is the error beside what is left of its curvature, the pivot.
    """
    pivot, _, _ = _factors(state.at, 0.0, state.pinned)
    return jnp.finfo(pivot.dtype).eps * jnp.sqrt(weight * jnp.maximum(state.at.h_AA / pivot, 1))


def _slope(state, at=None):
    """Derivative of the loss along the current direction: at (A, B), or where `at` was taken."""
    at = state.at if at is None else at
    return at.g_A * state.step_A + at.g_B * state.step_B


def _decrement(state):
    """The Newton decrement at (A, B): the square root of g' H^-1 g."""
    return jnp.sqrt(jnp.maximum(-_slope(state), 0))


def _proves_decrease(state, at, facts):
    """Whether the derivatives at the trial prove the sufficient decrease of Algorithm 1.

    Along the direction d, phi(s) = F(theta + s d) has |phi'''| <= R phi'' with R the largest
    |d_A f + d_B| of any row (Bach 2010, "Self-concordant analysis for logistic regression",
    section 2). Integrating phi'' back from s bounds phi(s) - phi(0) from above by
    s phi'(s) - s^2 phi''(s) (exp(-x) + x - 1) / x^2 with x = s R. No loss is needed, and nothing
    cancels near the optimum, where the difference of two losses is all rounding.
    """
    d_A, d_B, s = state.step_A, state.step_B, state.length
    reach = jnp.maximum(jnp.abs(d_A * facts.low + d_B), jnp.abs(d_A * facts.high + d_B))
    curvature = d_A * (d_A * at.h_AA + 2 * d_B * at.h_AB) + d_B * d_B * at.h_BB
    bound = _slope(state, at) - s * curvature * _backward_share(s * reach)
    return bound <= _ARMIJO * _slope(state)


def _backward_share(x):
    """(exp(-x) + x - 1) / x^2, by its series where the difference would cancel."""
    small = x < 0.3
    safe = jnp.where(small, 1, x)
    # Not jnp.expm1: in float64 XLA has none that takes several numbers at once on a CPU.
    series = (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))) / 2
    return jnp.where(small, series, (jnp.exp(-safe) - 1 + safe) / (safe * safe))
