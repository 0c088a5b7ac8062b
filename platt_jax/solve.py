"""The loop: a pass over the rows, a decision per problem, until every problem has stopped.

Pure and traceable. `solve` is for users who differentiate through a fit or embed it in a program of
their own; `solve_tiles` is what it shares with `fit`.
"""

import operator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import checks, newton, objective, packing, tiles
from platt_jax.calibrators import Fit
from platt_jax.newton import Facts, Options
from platt_jax.objective import Derivatives, GaussianPrior, Targets
from platt_jax.status import Flag, Status
from platt_jax.tiles import Summary, Tiles


class Frame(NamedTuple):
    """The problem's own coordinates: g = (f - center) * scale, so A = scale A', B = B' - A center.

    The scale is a power of two, so that centring is the only rounding.
    """

    center: jax.Array
    scale: jax.Array


class Inputs(NamedTuple):
    """What the optimum depends on, and is differentiable by."""

    scores: jax.Array  # as in Tiles
    weights: jax.Array | None  # as in Tiles
    targets: Targets
    prior: GaussianPrior | None


class Fixed(NamedTuple):
    """What the loop needs besides: the rows' layout and labels, and where to start."""

    rows: Tiles  # without scores and weights
    facts: Facts
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
    converge.

    Args:
        scores: (..., N) floating; leading axes are independent problems.
        labels: broadcastable to scores; bool, {0, 1} or {-1, +1}. Traced labels count as
            positive where they are > 0.
        weights: broadcastable to scores; weight 2 is the row twice, weight 0 is the row gone.
        prior: a Gaussian prior on (A, B), with leading axes broadcastable to those of scores.
        options: how to fit; static under jit.

    Returns:
        A Fit of JAX arrays in the dtype of the scores (integers and float16 are promoted).

    Raises:
        ValueError: shapes do not match, or concrete labels or weights are not what they should be.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> scores, labels = jnp.array([5.0, -4.0, 1.0]), jnp.array([1, 0, 0])
        >>> slope = lambda scores: -solve(scores, labels).A
        >>> jax.grad(slope)(scores).shape
        (3,)
    """
    scores, labels, weights = checks.traced_arrays(scores, labels, weights)
    batch = scores.shape[:-1]
    rows = packing.reshape(scores, labels, weights)
    shape = (rows.slices.shape[0], rows.scores.shape[2])
    if prior is not None:
        prior = checks.prior(prior, batch, scores.dtype)
        prior = GaussianPrior(
            prior.mean.reshape((*shape, 2)), prior.precision.reshape((*shape, 2, 2))
        )
    fit = solve_tiles(rows, prior, options.with_tol(scores.dtype))
    return jax.tree.map(lambda x: x.reshape(batch + x.shape[2:]), fit)


def solve_tiles(rows: Tiles, prior: GaussianPrior | None, options: Options) -> Fit:
    """Fit the problems on these tiles; every field of the result leads with [S, G]."""
    rows = _drop_absent(rows, options)
    seen = tiles.summarise(jax.lax.stop_gradient(rows))
    rows = tiles.drop(rows, tiles.on_rows(rows, seen.bad))
    n_pos, n_neg = tiles.counts(rows)

    frame, A, B = _frame_and_start(rows, seen, n_pos, n_neg, options)
    rows = tiles.standardise(rows, *frame)
    low, high = (
        jnp.where(jnp.isfinite(end), (end - frame.center) * frame.scale, 0) for end in _range(seen)
    )
    facts = jax.lax.stop_gradient(Facts(low, high, n_pos + n_neg))
    make_targets = (
        objective.platt_targets if options.targets == "platt" else objective.plain_targets
    )
    prior = None if prior is None else _into_frame(prior, frame)
    inputs = Inputs(rows.scores, rows.weights, make_targets(n_pos, n_neg), prior)
    fixed = Fixed(rows._replace(scores=None, weights=None), facts, A, B)
    solution = _root(options, inputs, fixed)
    return _report(solution, frame, seen, n_pos, n_neg, options)


def _drop_absent(rows, options):
    """Rows of weight 0 are gone, and with non_finite="omit" so are those that are not finite."""
    if options.non_finite == "omit":
        rows = tiles.drop(rows, tiles.bad_rows(rows))
    if rows.weights is not None:
        rows = tiles.drop(rows, rows.weights == 0)
    return rows


def _range(seen: Summary):
    return jnp.minimum(seen.low_pos, seen.low_neg), jnp.maximum(seen.high_pos, seen.high_neg)


def _frame_and_start(rows, seen, n_pos, n_neg, options):
    """The coordinates to solve in, and the (A, B) to start from in them.

    The optimum depends on neither, so no derivative flows through here.
    """
    rows, n_pos, n_neg = jax.lax.stop_gradient((rows, n_pos, n_neg))
    low, high = (jnp.where(jnp.isfinite(end), end, 0) for end in _range(seen))
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    rough = _power_of_two(half)
    pos, neg = tiles.moments(rows, middle, rough)

    total = jnp.maximum(n_pos + n_neg, jnp.finfo(n_pos.dtype).tiny)
    mean = (pos.first + neg.first) / total
    second = (pos.second + neg.second) / total
    rounding = 4 * jnp.finfo(mean.dtype).eps * second
    fine = _power_of_two(jnp.sqrt(jnp.maximum(second - mean * mean, rounding)))

    mean_pos, mean_neg = (
        jnp.where(n > 0, side.first / jnp.where(n > 0, n, 1) - mean, 0)
        for side, n in ((pos, n_pos), (neg, n_neg))
    )
    between = (n_pos * mean_pos * mean_pos + n_neg * mean_neg * mean_neg) / total
    within = jnp.maximum(second - mean * mean - between, rounding)
    # Two normal densities with one variance have a sigmoid posterior (Hastie & Tibshirani 1998).
    # Where they hardly overlap its slope knows no bounds, but the targets do: it need not change
    # the log-odds between the class means by more than the targets' log-odds differ.
    both = (n_pos > 0) & (n_neg > 0) & (within > 0)
    apart = mean_pos - mean_neg
    odds_pos, odds_neg = jnp.log(n_pos + 1), jnp.log(n_neg + 1)
    steepest = (odds_pos + odds_neg) / jnp.where(apart == 0, 1, jnp.abs(apart))
    A = jnp.where(both, -apart / jnp.where(both, within, 1), 0)
    A = jnp.clip(A, -steepest, steepest)
    if options.start == "prior":
        A = jnp.zeros_like(A)
    B = odds_neg - odds_pos - A * (mean_pos + mean_neg) / 2
    A = A / fine

    frame = Frame(middle + mean / rough, rough * fine)
    if options.standardize:
        return frame, A, B
    A = A * frame.scale
    return Frame(jnp.zeros_like(mean), jnp.ones_like(mean)), A, B - A * frame.center


def _power_of_two(spread):
    """The power of two nearest below 1 / spread; 1 for no spread."""
    _, exponent = jnp.frexp(spread)
    most = jnp.finfo(spread.dtype).maxexp - 2
    exponent = jnp.clip(jnp.where(spread > 0, exponent, 0), -most, most)
    return jnp.ldexp(jnp.ones_like(spread), -exponent)


def _into_frame(prior, frame):
    """The prior on (A, B) as one on the parameters (A', B') of the frame."""
    one, zero = jnp.ones_like(frame.scale), jnp.zeros_like(frame.scale)
    shift = frame.center * frame.scale
    raw = jnp.stack([jnp.stack([frame.scale, zero], -1), jnp.stack([-shift, one], -1)], -2)
    A, B = prior.mean[..., 0], prior.mean[..., 1]
    mean = jnp.stack([A / frame.scale, B + A * frame.center], -1)
    return GaussianPrior(mean, jnp.swapaxes(raw, -1, -2) @ prior.precision @ raw)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(options, inputs: Inputs, fixed: Fixed) -> Solution:
    """The loop. Its result is the optimum as a function of the inputs."""
    step = jax.vmap(jax.vmap(partial(newton.step, options=options)))
    doubtful = jax.vmap(jax.vmap(newton.doubtful))

    def advance(state):
        trial = newton.trial(state)
        at = _derivatives(inputs, fixed, *trial, options)
        change = jax.lax.cond(
            jnp.any(doubtful(state, at, fixed.facts)),
            lambda: _loss_change(inputs, fixed, (state.A, state.B), trial),
            lambda: jnp.zeros_like(state.A),
        )
        return step(state, at, change, fixed.facts)

    state = jax.lax.while_loop(
        lambda state: jnp.any(newton.running(state)), advance, newton.start(fixed.A, fixed.B)
    )
    loss = _loss(inputs, fixed, state.A, state.B)
    return Solution(state.A, state.B, loss, state.at, state.status, state.iterations, state.passes)


@_root.defjvp
def _root_jvp(options, primals, tangents):
    """Implicit differentiation: g(theta, x) = 0 gives dtheta = -H^-1 (dg/dx) dx."""
    (inputs, fixed), (inputs_dot, _) = primals, tangents
    solution = _root(options, inputs, fixed)
    A, B = solution.A, solution.B

    def gradient(inputs):
        at = _derivatives(inputs, fixed, A, B, options)
        return at.g_A, at.g_B

    _, (g_A, g_B) = jax.jvp(gradient, (inputs,), (inputs_dot,))
    hessian = _derivatives(inputs, fixed, A, B, options)
    pinned = (A == 0) & options.monotone
    A_dot, B_dot, _ = newton.newton_direction(hessian._replace(g_A=g_A, g_B=g_B), 0.0, pinned)
    converged = solution.status == Status.CONVERGED
    A_dot, B_dot = jnp.where(converged, A_dot, 0), jnp.where(converged, B_dot, 0)

    def at_solution(inputs, A, B):
        return _loss(inputs, fixed, A, B), _derivatives(inputs, fixed, A, B, options)

    _, (loss_dot, at_dot) = jax.jvp(at_solution, (inputs, A, B), (inputs_dot, A_dot, B_dot))
    no_tangents = (np.zeros(A.shape, jax.dtypes.float0),) * 3
    return solution, Solution(A_dot, B_dot, loss_dot, at_dot, *no_tangents)


def _derivatives(inputs: Inputs, fixed: Fixed, A, B, options) -> Derivatives:
    """Sums over the rows, and the prior's share."""
    at = tiles.evaluate(_rows(inputs, fixed), A, B, inputs.targets, options.derivatives)
    if inputs.prior is None:
        return at
    return jax.tree.map(jnp.add, at, objective.prior_derivatives(inputs.prior, A, B))


def _loss(inputs: Inputs, fixed: Fixed, A, B):
    loss = tiles.nll(_rows(inputs, fixed), A, B, inputs.targets)
    return loss if inputs.prior is None else loss + objective.prior_penalty(inputs.prior, A, B)


def _loss_change(inputs: Inputs, fixed: Fixed, before, after):
    change = tiles.nll_change(_rows(inputs, fixed), before, after, inputs.targets)
    if inputs.prior is None:
        return change
    penalties = (objective.prior_penalty(inputs.prior, *point) for point in (after, before))
    return change + operator.sub(*penalties)


def _rows(inputs: Inputs, fixed: Fixed) -> Tiles:
    return fixed.rows._replace(scores=inputs.scores, weights=inputs.weights)


def _report(solution, frame, seen, n_pos, n_neg, options) -> Fit:
    """The solution in the coordinates of the scores as they came, with statuses and flags."""
    at, empty = solution.at, (n_pos + n_neg) == 0
    status = jnp.where(empty, int(Status.EMPTY), solution.status)
    status = jnp.where(seen.bad, int(Status.NON_FINITE), status)
    failed = seen.bad | empty

    def answer(x):
        return jnp.where(failed.reshape(failed.shape + (1,) * (x.ndim - 2)), jnp.nan, x)

    center, per_unit = frame.center, 1 / frame.scale
    A = solution.A * frame.scale
    # g = (f - center) scale, so a derivative by A is one by A' over scale plus center times B's.
    h_AB = at.h_AB * per_unit + center * at.h_BB
    h_AA = (at.h_AA * per_unit + 2 * center * at.h_AB) * per_unit + center * center * at.h_BB
    pinned = (solution.A == 0) & options.monotone
    return Fit(
        A=answer(A),
        B=answer(solution.B - A * center),
        status=status,
        flags=_flags(A, seen, n_pos, n_neg),
        iterations=solution.iterations,
        passes=solution.passes,
        nll=answer(solution.loss),
        gradient=answer(jnp.stack([at.g_A * per_unit + center * at.g_B, at.g_B], -1)),
        hessian=answer(_symmetric(h_AA, h_AB, at.h_BB)),
        covariance=answer(_covariance(at, frame, pinned)),
        n_pos=n_pos,
        n_neg=n_neg,
    )


def _covariance(at, frame, pinned):
    """The inverse Hessian, inverted in the frame where it is well conditioned.

    NaN where the scores are constant, which leaves A unidentified. A slope pinned to 0 has no
    variance.
    """
    ratio = jnp.where(pinned, 0, at.h_AB / at.h_BB)
    pivot = at.h_AA - ratio * at.h_AB
    var_A = jnp.where(pinned, 0, jnp.where(pivot > 0, 1 / pivot, jnp.nan))
    ratio = ratio + frame.center * frame.scale  # B = B' - center scale A'
    var_B = 1 / at.h_BB + ratio * ratio * var_A
    return _symmetric(frame.scale * var_A * frame.scale, -frame.scale * (ratio * var_A), var_B)


def _symmetric(a, b, c):
    return jnp.stack([jnp.stack([a, b], -1), jnp.stack([b, c], -1)], -2)


def _flags(A, seen, n_pos, n_neg):
    both = (n_pos > 0) & (n_neg > 0)
    low, high = _range(seen)
    apart = (seen.high_neg <= seen.low_pos) | (seen.high_pos <= seen.low_neg)
    flags = (
        (Flag.ONE_CLASS, ~both & ((n_pos + n_neg) > 0)),
        (Flag.CONSTANT_SCORES, low == high),
        (Flag.SEPARABLE, both & apart & (low < high)),
        (Flag.REVERSED, A > 0),
    )
    return sum(jnp.where(~seen.bad & raised, jnp.int32(flag), 0) for flag, raised in flags)
