"""The loop: sums over the rows, then a decision per problem, until every problem has stopped."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.model import prior as priors
from platt_jax.model.objective import Derivatives, Point, Targets, with_B_held
from platt_jax.model.prior import CenteredPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.solver import newton
from platt_jax.solver.newton import SearchState
from platt_jax.solver.stopping import MOST_NOISE, ProblemConstants
from platt_jax.status import Status


class Problem(NamedTuple):
    """The data of each problem for the search, besides its rows; arrays of one shape."""

    standardization: Standardization
    constants: ProblemConstants
    bad: jax.Array  # whether a row is not finite
    one_class: jax.Array  # whether the loss falls along B alone, as where all labels are the same
    A: jax.Array  # the start
    B: jax.Array
    usual: Point | None = None  # the start to use if that one is bad


class Solution(NamedTuple):
    """The result of the search, in standardized coordinates."""

    A: jax.Array
    B: jax.Array
    loss: jax.Array
    derivatives: Derivatives
    status: jax.Array
    pinned: jax.Array  # whether the slope is held, at 0 by monotone=True
    iterations: jax.Array
    passes: jax.Array


class Runner(NamedTuple):
    """How the steps of a search are run."""

    # Takes a test for running problems, a function for one round, the rows, the targets and the
    # first state; returns the last state.
    loop: Callable[..., SearchState]
    # Wraps a function of a few numbers per problem, which takes options.
    decide: Callable[[Callable[..., Any]], Callable[..., Any]]


def _traced_loop(
    any_running: Callable[[SearchState], jax.Array],
    advance: Callable[..., SearchState],
    rows: Rows,
    targets: Targets,
    state: SearchState,
) -> SearchState:
    def body(state: SearchState) -> SearchState:
        # Without the barrier XLA would move loop-invariant arrays out of the loop, such as a target
        # per row or a mask of the padding. Every pass would have to read them from memory.
        point, fixed = lax.optimization_barrier((newton.trial_point(state), (rows, targets)))
        return advance(state, point, *fixed)

    return lax.while_loop(lambda state: jnp.any(any_running(state)), body, state)


def _host_loop(
    report: Callable[[NDArray[np.bool_]], Any],
    any_running: Callable[[SearchState], jax.Array],
    advance: Callable[..., SearchState],
    rows: Rows,
    targets: Targets,
    state: SearchState,
) -> SearchState:
    while np.any(running := np.asarray(any_running(jax.device_get(state)))):
        report(running)
        state = advance(state, _program(newton.trial_point)(state), rows, targets)
    return state


@cache
def _program(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a compiled program. As a single call it compiles much faster."""

    def run(*arguments: Any, options: Options | None) -> Any:
        chosen = {} if options is None else {"options": options}
        return xla.single_call(partial(function, **chosen))(*arguments)

    compiled = xla.jit(run, static_argnames="options", wide=True)
    return lambda *arguments, options=None: compiled(*arguments, options=options)


# Runs the search within a compiled program.
TRACED = Runner(_traced_loop, lambda function: function)


def host(report: Callable[[NDArray[np.bool_]], Any]) -> Runner:
    """Runs each step as a program of its own, while the host adds the sums.

    Before each pass `report` is called with the problems that still run, a boolean array.
    """
    return Runner(partial(_host_loop, report), _program)


def optimum(
    rows: Rows,
    targets: Targets,
    prior: CenteredPrior | None,
    problem: Problem,
    options: Options,
    runner: Runner = TRACED,
    loss: bool = True,
) -> Solution:
    """The optimum of every problem, without derivatives, given standardized rows.

    The loss of the rows takes a pass; unless asked for, it is 0.
    """
    state = _search(rows, targets, prior, problem, options, runner)
    loss_of_rows = rows.loss((state.A, state.B), targets) if loss else jnp.zeros_like(state.A)
    return runner.decide(_solution)(state, loss_of_rows, prior, problem)


def _search(
    rows: Rows,
    targets: Targets,
    prior: CenteredPrior | None,
    problem: Problem,
    options: Options,
    runner: Runner,
) -> SearchState:
    """Alternates sums and decisions until every problem has stopped."""

    def advance(state: SearchState, point: Point, rows: Rows, targets: Targets) -> SearchState:
        sums = rows.derivatives(point, targets, options, active=newton.running(state))
        change = None
        if options.line_search == "loss":
            change = rows.loss_change((state.A, state.B), point, targets)
        decide: Callable[..., SearchState] = runner.decide(_decide)
        return decide(state, point, sums, change, prior, problem, options=options)

    state = runner.decide(newton.start)(problem.A, problem.B, options=options)
    state = runner.loop(newton.running, advance, rows, targets, state)
    return runner.decide(newton.last_step)(state, options=options)


def _decide(
    state: SearchState,
    point: Point,
    sums: Derivatives,
    change: jax.Array | None,
    prior: CenteredPrior | None,
    problem: Problem,
    options: Options,
) -> SearchState:
    """The next state, given the sums over the rows at a point."""
    standardization = problem.standardization
    derivatives = priors.add_derivatives(sums, prior, standardization, point)
    if not options.intercept:
        derivatives = with_B_held(derivatives)
    if change is not None:
        change += priors.penalty_at(prior, standardization, point)
        change -= priors.penalty_at(prior, standardization, (state.A, state.B))
    new = newton.step(state, derivatives, change, problem.constants, options)
    if problem.usual is None:
        return new
    return newton.leave_bad_start(new, problem.usual, problem.constants, options)


def _solution(
    state: SearchState, loss: jax.Array, prior: CenteredPrior | None, problem: Problem
) -> Solution:
    """The solution, given the last state and the loss of the rows."""
    loss += priors.penalty_at(prior, problem.standardization, (state.A, state.B))
    return Solution(
        state.A,
        state.B,
        loss,
        state.derivatives,
        _final_status(state, problem),
        state.pinned,
        state.iterations,
        state.passes,
    )


def _final_status(state: SearchState, problem: Problem) -> jax.Array:
    """The status of each problem: the first case that holds, else how the search ended."""
    converged = state.status == Status.CONVERGED
    # Where there is no optimum, the search ended where the loss is nearly flat.
    nowhere = problem.constants.unbounded & (problem.one_class | ~state.pinned)
    nowhere &= state.status != Status.NON_FINITE
    cases = (
        (Status.NON_FINITE, problem.bad),
        (Status.EMPTY, problem.constants.total_weight == 0),
        (Status.MAX_ITERATIONS, nowhere),
        (Status.LINE_SEARCH_FAILED, converged & _slope_lost(state, problem.standardization)),
    )
    status = state.status
    for case, holds in reversed(cases):
        status = jnp.where(holds, int(case), status)
    return status


def _slope_lost(state: SearchState, standardization: Standardization) -> jax.Array:
    """Whether the slope for the original scores is out of range, and this matters.

    XLA treats numbers below the smallest normal one as 0. A scale of 0 makes all scores equal.
    """
    kind, scale = jnp.finfo(state.A.dtype), standardization.scale
    A = jnp.abs(state.A * scale)
    in_standard_errors = jnp.abs(state.A) * jnp.sqrt(state.derivatives.h_AA)
    matters = in_standard_errors > MOST_NOISE[kind.dtype.name]
    return (A < kind.tiny) & (matters | (scale < kind.tiny)) | jnp.isinf(A)
