"""The loop: a pass over the rows, a decision per problem, until every problem has stopped.

And its derivative: the result is the root of the gradient, as a function of what the loss is made
of, so that no iteration need be unrolled.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax.model import objective
from platt_jax.model import standardization as frames
from platt_jax.model.objective import Derivatives, GaussianPrior, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes import tiles, vectors
from platt_jax.passes.tiles import Tiles
from platt_jax.passes.vectors import VectorRows
from platt_jax.solver import direction, newton
from platt_jax.solver.newton import ProblemConstants, State
from platt_jax.status import Status

Rows = Tiles | VectorRows


class Inputs(NamedTuple):
    """What the optimum depends on, and is differentiable by."""

    scores: jax.Array  # as in Tiles
    weights: jax.Array | None  # as in Tiles
    targets: Targets
    prior: GaussianPrior | None


class Layout(NamedTuple):
    """The fields of Tiles that are not among the inputs."""

    positive: jax.Array
    owner: jax.Array
    heights: jax.Array


class Problem(NamedTuple):
    """What else the loop knows of each problem; arrays of one shape."""

    frame: Standardization
    facts: ProblemConstants
    unbounded: jax.Array  # whether the loss falls forever along a ray
    A: jax.Array  # where to start
    B: jax.Array


class Solution(NamedTuple):
    """Where the loop ended, in the coordinates that it worked in."""

    A: jax.Array
    B: jax.Array
    loss: jax.Array
    at: Derivatives
    status: jax.Array
    iterations: jax.Array
    passes: jax.Array


def passes_over(rows: Rows) -> Any:
    """The module with the passes over rows of this kind."""
    return tiles if isinstance(rows, Tiles) else vectors


def solution_for(
    rows: Rows,
    targets: Targets,
    prior: GaussianPrior | None,
    setting: Problem,
    options: Options,
) -> Solution:
    """The optimum of every problem; of tiles it has derivatives."""
    if not isinstance(rows, Tiles):
        return _found(rows, targets, prior, setting, options)
    inputs = Inputs(rows.scores, rows.weights, targets, prior)
    return _root(options, inputs, Layout(rows.positive, rows.owner, rows.heights), setting)


def _found(rows, targets, prior, setting, options) -> Solution:
    state = _search(rows, targets, prior, setting, options)
    return ended(state, _loss(rows, targets, prior, setting, (state.A, state.B)), setting)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(options: Options, inputs: Inputs, layout: Layout, setting: Problem) -> Solution:
    """The optimum of every problem, as a function of the inputs."""
    return _found(_rows(inputs, layout), inputs.targets, inputs.prior, setting, options)


@_root.defjvp
def _root_jvp(options, primals, tangents):
    """Implicit differentiation: g(theta, x) = 0 gives dtheta = -H^-1 (dg/dx) dx."""
    (inputs, layout, setting), (inputs_dot, *_) = primals, tangents
    solution = _root(options, inputs, layout, setting)
    A, B = solution.A, solution.B

    # Checkpoints: a reverse pass goes through the rows anew, in one loop. It would otherwise write
    # down a dozen numbers for each and read them again, which takes five times as long.
    @jax.checkpoint
    def gradient(inputs):
        at = _derivatives(inputs, layout, setting, (A, B), options)
        return at.g_A, at.g_B

    _, (g_A, g_B) = jax.jvp(gradient, (inputs,), (inputs_dot,))
    converged = solution.status == Status.CONVERGED
    hessian = _derivatives(inputs, layout, setting, (A, B), options)
    # The identity will do where there is no optimum: no derivative may pass a division by 0.
    zero, one = jnp.zeros_like(A), jnp.ones_like(A)
    identity = Derivatives(g_A=zero, g_B=zero, h_AA=one, h_AB=zero, h_BB=one)
    hessian = jax.tree.map(partial(jnp.where, converged), hessian, identity)
    # Constant scores leave A undetermined; it is 0 by convention, as on the boundary.
    constant = (setting.facts.low == setting.facts.high) & (inputs.prior is None)
    held = pinned(solution, options) | constant
    A_dot, B_dot = direction.newton(hessian._replace(g_A=g_A, g_B=g_B), 0.0, held)
    A_dot, B_dot = jnp.where(converged, A_dot, 0), jnp.where(converged, B_dot, 0)

    @jax.checkpoint
    def at_solution(inputs, A, B):
        rows = _rows(inputs, layout)
        loss = _loss(rows, inputs.targets, inputs.prior, setting, (A, B))
        return loss, _derivatives(inputs, layout, setting, (A, B), options)

    _, dots = jax.jvp(at_solution, (inputs, A, B), (inputs_dot, A_dot, B_dot))
    loss_dot, at_dot = jax.tree.map(lambda dot: jnp.where(converged, dot, 0), dots)
    no_tangents: Any = (np.zeros(A.shape, jax.dtypes.float0),) * 3
    return solution, Solution(A_dot, B_dot, loss_dot, at_dot, *no_tangents)


def ended(state: State, loss, setting: Problem) -> Solution:
    """The solution that this state is."""
    # Where there is no optimum, the search has only come to where the loss is all but flat.
    nowhere = setting.unbounded & ~state.pinned & (state.status != Status.NON_FINITE)
    status = jnp.where(nowhere, int(Status.MAX_ITERATIONS), state.status)
    lost = (status == Status.CONVERGED) & _slope_lost(state, setting.frame)
    status = jnp.where(lost, int(Status.LINE_SEARCH_FAILED), status)
    return Solution(state.A, state.B, loss, state.at, status, state.iterations, state.passes)


def _slope_lost(state: State, frame: Standardization):
    """Whether the slope for the scores as they came is out of range, and that matters.

    Numbers below the smallest normal one are 0 to XLA; a scale that is 0 makes all scores equal.
    """
    kind = jnp.finfo(state.A.dtype)
    A = jnp.abs(state.A * frame.scale)
    in_standard_errors = jnp.abs(state.A) * jnp.sqrt(state.at.h_AA)
    matters = in_standard_errors > newton.MOST_NOISE[kind.dtype.name]
    return (A < kind.tiny) & (matters | (frame.scale < kind.tiny)) | jnp.isinf(A)


def pinned(solution: Solution, options: Options):
    """Whether monotone=True holds the slope at 0."""
    return (solution.A == 0) & options.monotone


def _search(rows, targets, prior, setting, options) -> State:
    """Pass and decide until every problem has stopped."""
    passes, from_outside = passes_over(rows), (rows, targets)

    def advance(state):
        # The barrier keeps XLA from taking out of the loop what does not change in it: a target
        # per row, a mask of the padding. They would be arrays to write, and to read in every pass.
        trial, (rows, targets) = lax.optimization_barrier((newton.trial(state), from_outside))
        wanted = newton.running(state)
        at = passes.evaluate_wanted(rows, wanted, trial, targets, options.derivatives)
        at = add_prior(at, prior, setting, trial)
        change = None
        if options.line_search == "loss":
            before = state.A, state.B
            change = passes.nll_change(rows, before, trial, targets)
            change += penalty_change(prior, setting, before, trial)
        return newton.step(state, at, change, setting.facts, options)

    def any_running(state):
        return jnp.any(newton.running(state))

    state = lax.while_loop(any_running, advance, newton.start(setting.A, setting.B))
    return newton.last_step(state, options)


def _derivatives(inputs: Inputs, layout, setting, point, options) -> Derivatives:
    at = tiles.evaluate(_rows(inputs, layout), point, inputs.targets, options.derivatives)
    return add_prior(at, inputs.prior, setting, point)


def _loss(rows, targets, prior, setting, point):
    loss = passes_over(rows).nll(rows, point, targets)
    return loss + penalty(prior, setting, point)


def add_prior(at: Derivatives, prior: GaussianPrior | None, setting: Problem, point):
    """Sums over the rows, and the prior's share."""
    if prior is None:
        return at
    # Where the scores lie far from 0, only the original coordinates hold the prior unrounded.
    back = frames.to_original(setting.frame, *point)
    share = objective.prior_derivatives(prior, *back)
    return jax.tree.map(jnp.add, at, frames.derivatives_to_standardized(setting.frame, share))


def penalty(prior: GaussianPrior | None, setting: Problem, point):
    """What the prior adds to the loss at a point."""
    if prior is None:
        return jnp.zeros_like(setting.A)
    return objective.prior_penalty(prior, *frames.to_original(setting.frame, *point))


def penalty_change(prior: GaussianPrior | None, setting: Problem, before, after):
    """What it adds there minus what it added before."""
    return penalty(prior, setting, after) - penalty(prior, setting, before)


def _rows(inputs: Inputs, layout: Layout) -> Tiles:
    return Tiles(scores=inputs.scores, weights=inputs.weights, **layout._asdict())
