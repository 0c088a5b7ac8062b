"""The loop: a pass over the rows, a decision per problem, until every problem has stopped.

Pure and traceable. `solve` is for users who differentiate through a fit or embed it in a program of
their own; `solve_tiles` is what it shares with `fit`.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import checks, newton, objective, packing, tiles
from platt_jax import frame as frames
from platt_jax.calibrators import Fit
from platt_jax.frame import Frame
from platt_jax.newton import Facts
from platt_jax.objective import Derivatives, GaussianPrior, Targets
from platt_jax.options import Options
from platt_jax.status import Flag, Status
from platt_jax.tiles import Tiles


class Inputs(NamedTuple):
    """What the optimum depends on, and is differentiable by."""

    scores: jax.Array  # as in Tiles
    weights: jax.Array | None  # as in Tiles
    targets: Targets
    prior: GaussianPrior | None


class Fixed(NamedTuple):
    """What the loop needs besides: labels and layout as in Tiles, and where to start."""

    labels: jax.Array
    owner: jax.Array
    slices: jax.Array
    frame: Frame
    facts: Facts
    unbounded: jax.Array  # whether the loss falls forever along a ray
    A: jax.Array
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


def solve(
    scores,
    labels,
    *,
    weights=None,
    prior: GaussianPrior | None = None,
    options: Options = Options(),  # noqa: B008 - immutable
) -> Fit:
    """Fit as a pure function of arrays: runs under jit, vmap, grad, jacfwd and shard_map.

    Derivatives of A, B and everything computed from them flow to scores, weights and prior by the
    implicit function theorem: no iteration is unrolled. They are zero for problems that did not
    converge, and those of A for constant scores.

    Args:
        scores: (..., N) floating; leading axes are independent problems.
        labels: broadcastable to scores; bool, {0, 1} or {-1, +1}. Traced labels count as
            positive where they are > 0.
        weights: broadcastable to scores; weight 2 is the row twice, weight 0 is the row gone.
        prior: a Gaussian prior on (A, B), with leading axes broadcastable to those of scores.
        options: how to fit; static under jit.

    Returns:
        A Fit of JAX arrays in the dtype that JAX gives the scores: float64 only where 64-bit types
        are switched on; integers and float16 are promoted.

    Raises:
        ValueError: shapes do not match, or concrete labels or weights are not what they should be.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> scores, labels = jnp.array([5.0, -4.0, 1.0]), jnp.array([1, 0, 0])
        >>> slope = lambda scores: -solve(scores, labels).A
        >>> jax.grad(slope)(scores).shape
        (3,)
    """
    options = checks.options(options)
    scores, labels, weights = checks.traced_arrays(scores, labels, weights)
    prior = checks.prior(prior, scores.shape[:-1], scores.dtype)
    return _solve_dense(scores, labels, weights, prior, options.with_tol(scores.dtype))


@partial(jax.jit, static_argnames="options")
def _solve_dense(scores, labels, weights, prior, options):
    batch = scores.shape[:-1]
    rows = packing.reshape(scores, labels, weights)
    shape = (rows.slices.shape[0], rows.scores.shape[2])
    if prior is not None:
        prior = GaussianPrior(
            prior.mean.reshape((*shape, 2)), prior.precision.reshape((*shape, 2, 2))
        )
    fit = solve_tiles(rows, prior, options)
    return jax.tree.map(lambda x: x.reshape(batch + x.shape[2:]), fit)


def solve_tiles(rows: Tiles, prior: GaussianPrior | None, options: Options) -> Fit:
    """Fit the problems on these tiles; every field of the result leads with [S, G]."""
    rows = _drop_absent(rows, options)
    seen = tiles.summarise(jax.lax.stop_gradient(rows))
    n_pos, n_neg = tiles.counts(tiles.drop(rows, tiles.bad_rows(rows)))
    rows = tiles.drop(rows, tiles.on_rows(rows, seen.bad))
    if options.targets == "platt":
        targets = objective.platt_targets(n_pos, n_neg)
    else:
        targets = objective.plain_targets(n_pos, n_neg)
    known = jax.lax.stop_gradient((rows, seen, n_pos, n_neg, targets))
    frame, A, B = _frame_and_start(*known, options)
    rows = tiles.standardise(rows, *frame)
    low, high = ((end - frame.center) * frame.scale for end in frames.score_range(seen))
    inputs = Inputs(
        scores=rows.scores,
        weights=rows.weights,
        targets=targets,
        prior=prior,
    )
    fixed = Fixed(
        labels=rows.labels,
        owner=rows.owner,
        slices=rows.slices,
        frame=frame,
        facts=jax.lax.stop_gradient(Facts(low, high, n_pos + n_neg)),
        unbounded=_unbounded(seen, n_pos, n_neg, prior, options),
        A=A,
        B=B,
    )
    return _report(_root(options, inputs, fixed), frame, seen, n_pos, n_neg, options)


def _drop_absent(rows, options):
    """Rows that are not finite are gone if their weight is 0, or with non_finite="omit".

    Other rows of weight 0 stay: they add nothing, but the fit has a derivative by their weight.
    """
    bad = tiles.bad_rows(rows)
    if options.non_finite == "omit":
        return tiles.drop(rows, bad)
    return rows if rows.weights is None else tiles.drop(rows, bad & (rows.weights == 0))


def _unbounded(seen, n_pos, n_neg, prior, options):
    """Whether the loss has no minimum: nothing bounds the parameters of separable labels."""
    if options.targets == "platt" or prior is not None:
        return jnp.zeros_like(n_pos, bool)
    return ~_both_classes(n_pos, n_neg) | _separable(seen, n_pos, n_neg)


def _frame_and_start(rows, seen, n_pos, n_neg, targets, options):
    """The coordinates to solve in, and the (A, B) to start from in them."""
    frame, shape = frames.standardising(rows, seen, n_pos, n_neg)
    if options.start == "gaussian":
        A, B = frames.gaussian_start(shape, n_pos, n_neg, targets)
    else:
        A, B = frames.prior_start(n_pos, n_neg)
    if options.standardize:
        return frame, A, B
    # Constant scores are centred all the same: it holds the undetermined A at 0.
    low, high = frames.score_range(seen)
    identity = Frame(jnp.where(low == high, frame.center, 0), jnp.ones_like(A))
    A, B = frames.parameters_back(frame, A, B)
    return identity, A, B + A * identity.center


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(options, inputs: Inputs, fixed: Fixed) -> Solution:
    """The loop. Its result is the optimum as a function of the inputs."""
    step = jax.vmap(jax.vmap(partial(newton.step, options=options)))

    def advance(state):
        trial = newton.trial(state)
        at = _derivatives(inputs, fixed, trial, options)
        change = None
        if options.line_search == "loss":
            change = _loss_change(inputs, fixed, (state.A, state.B), trial)
        return step(state, at, change, fixed.facts)

    state = jax.lax.while_loop(
        lambda state: jnp.any(newton.running(state)), advance, newton.start(fixed.A, fixed.B)
    )
    loss = _loss(inputs, fixed, (state.A, state.B))
    # Where there is no optimum, the search has only come to where the loss is all but flat.
    nowhere = fixed.unbounded & ~state.pinned & (state.status == Status.CONVERGED)
    status = jnp.where(nowhere, int(Status.MAX_ITERATIONS), state.status)
    return Solution(state.A, state.B, loss, state.at, status, state.iterations, state.passes)


@_root.defjvp
def _root_jvp(options, primals, tangents):
    """Implicit differentiation: g(theta, x) = 0 gives dtheta = -H^-1 (dg/dx) dx."""
    (inputs, fixed), (inputs_dot, _) = primals, tangents
    solution = _root(options, inputs, fixed)
    A, B = solution.A, solution.B

    def gradient(inputs):
        at = _derivatives(inputs, fixed, (A, B), options)
        return at.g_A, at.g_B

    _, (g_A, g_B) = jax.jvp(gradient, (inputs,), (inputs_dot,))
    hessian = _derivatives(inputs, fixed, (A, B), options)
    # Constant scores leave A undetermined; it is 0 by convention, as on the boundary.
    constant = (fixed.facts.low == fixed.facts.high) & (inputs.prior is None)
    held = _pinned(solution, options) | constant
    A_dot, B_dot, _ = newton.newton_direction(hessian._replace(g_A=g_A, g_B=g_B), 0.0, held)
    converged = solution.status == Status.CONVERGED
    A_dot, B_dot = jnp.where(converged, A_dot, 0), jnp.where(converged, B_dot, 0)

    def at_solution(inputs, A, B):
        return _loss(inputs, fixed, (A, B)), _derivatives(inputs, fixed, (A, B), options)

    _, (loss_dot, at_dot) = jax.jvp(at_solution, (inputs, A, B), (inputs_dot, A_dot, B_dot))
    no_tangents: Any = (np.zeros(A.shape, jax.dtypes.float0),) * 3
    return solution, Solution(A_dot, B_dot, loss_dot, at_dot, *no_tangents)


def _derivatives(inputs: Inputs, fixed: Fixed, point, options) -> Derivatives:
    """Sums over the rows, and the prior's share."""
    at = tiles.evaluate(_rows(inputs, fixed), point, inputs.targets, options.derivatives)
    if inputs.prior is None:
        return at
    # Where the scores lie far from 0, only the original coordinates hold the prior unrounded.
    prior = objective.prior_derivatives(inputs.prior, *frames.parameters_back(fixed.frame, *point))
    return jax.tree.map(jnp.add, at, frames.derivatives_into(fixed.frame, prior))


def _loss(inputs: Inputs, fixed: Fixed, point):
    return tiles.nll(_rows(inputs, fixed), point, inputs.targets) + _penalty(inputs, fixed, point)


def _loss_change(inputs: Inputs, fixed: Fixed, before, after):
    change = tiles.nll_change(_rows(inputs, fixed), before, after, inputs.targets)
    return change + (_penalty(inputs, fixed, after) - _penalty(inputs, fixed, before))


def _penalty(inputs: Inputs, fixed: Fixed, point):
    if inputs.prior is None:
        return jnp.zeros_like(fixed.A)
    return objective.prior_penalty(inputs.prior, *frames.parameters_back(fixed.frame, *point))


def _rows(inputs: Inputs, fixed: Fixed) -> Tiles:
    return Tiles(inputs.scores, fixed.labels, inputs.weights, fixed.owner, fixed.slices)


def _report(solution, frame, seen, n_pos, n_neg, options) -> Fit:
    """The solution in the coordinates of the scores as they came, with statuses and flags."""
    at, empty = solution.at, (n_pos + n_neg) == 0
    status = jnp.where(empty, int(Status.EMPTY), solution.status)
    status = jnp.where(seen.bad, int(Status.NON_FINITE), status)
    failed = (status == Status.NON_FINITE) | (status == Status.EMPTY)

    def answer(x):
        return jnp.where(failed.reshape(failed.shape + (1,) * (x.ndim - 2)), jnp.nan, x)

    A, B = frames.parameters_back(frame, solution.A, solution.B)
    gradient, hessian = frames.derivatives_back(frame, at)
    return Fit(
        A=answer(A),
        B=answer(B),
        status=status,
        flags=_flags(A, seen, n_pos, n_neg),
        iterations=solution.iterations,
        passes=solution.passes,
        nll=answer(solution.loss),
        gradient=answer(gradient),
        hessian=answer(hessian),
        covariance=answer(frames.covariance_back(frame, at, _pinned(solution, options))),
        n_pos=n_pos,
        n_neg=n_neg,
    )


def _pinned(solution, options):
    """Whether monotone=True holds the slope at 0."""
    return (solution.A == 0) & options.monotone


def _flags(A, seen, n_pos, n_neg):
    some = (n_pos + n_neg) > 0
    low, high = frames.score_range(seen)
    flags = (
        (Flag.ONE_CLASS, some & ~_both_classes(n_pos, n_neg)),
        (Flag.CONSTANT_SCORES, some & (low == high)),
        (Flag.SEPARABLE, _separable(seen, n_pos, n_neg)),
        (Flag.REVERSED, A > 0),
    )
    return sum(jnp.where(~seen.bad & raised, jnp.int32(flag), 0) for flag, raised in flags)


def _both_classes(n_pos, n_neg):
    return (n_pos > 0) & (n_neg > 0)


def _separable(seen, n_pos, n_neg):
    """Whether a threshold splits the classes, ties at the threshold included."""
    low, high = frames.score_range(seen)
    apart = (seen.high_neg <= seen.low_pos) | (seen.high_pos <= seen.low_neg)
    return _both_classes(n_pos, n_neg) & apart & (low < high)
