"""The search for curves whose log-odds are linear in a few parameters, for many problems at once.

Newton's method with backtracking, as `platt_jax.solver` has it for the sigmoid: an iteration adds
up the loss, its gradient and its Hessian over the rows, in one pass, and then decides for each
problem whether to take the step or to halve it.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax.model import objective
from platt_jax.model.objective import Arithmetic, Row, Targets
from platt_jax.options import Options
from platt_jax.passes.elementary import log1p_unit
from platt_jax.passes.protocol import RowTerms, TermRows
from platt_jax.results.features import Features
from platt_jax.solver.direction import computed_once
from platt_jax.solver.newton import backward_share
from platt_jax.solver.search import TRACED, Runner
from platt_jax.status import Status

_RUNNING = -1
_ARMIJO = 1e-4  # the sufficient-decrease constant
# Sums are rounded by about so many units for each unit of the root of the weight.
_ROUNDED = 8
# A pivot below so many roundings of its diagonal entry is 0: the rows do not tell its parameter
# from the parameters before it.
_ALIASED = 64
# By how much the log-odds of rows far out change in a step without curvature.
_SLIDE = 16.0
# The largest value of a function that is 0 at all rows but for what no coefficient would bring out,
# as one of a beta curve's two is for scores that all are far above 0.
_NOTHING = 1e-6
# The mean square of a function at the rows with curvature, as a share of its largest square, below
# which all of these are at one place.
_FAR = 1e-6


@cache
def bound(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function with its first arguments, one object for equal arguments.

    The host finds compiled programs by their functions.
    """
    return partial(function, *arguments)


# The Hessian of what is added to the loss, by the parameters from the third on; empty without any.
Penalty: TypeAlias = Sequence[Sequence[Any]]


class Limits(NamedTuple):
    """What does not change in the search, for each problem."""

    weight: jax.Array  # of all rows
    constants: tuple[jax.Array, ...]  # of the functions
    largest: list[jax.Array]  # the largest absolute value of each function in the rows
    penalty: Penalty


class Sums(NamedTuple):
    """The derivatives of the objective."""

    gradient: list[jax.Array]  # by each of P parameters
    hessian: list[list[jax.Array]]  # lower triangle: row j has j + 1 entries


class _Step(NamedTuple):
    """Newton's step of P parameters, for each problem."""

    by: list[jax.Array]
    aliased: list[jax.Array]  # which are held, or have no curvature of their own
    slides: jax.Array  # whether one has no curvature, but a slope


class CurveState(NamedTuple):
    """Where the search is, for each problem."""

    theta: list[jax.Array]
    step: list[jax.Array]
    length: jax.Array  # the fraction of the step to try next; 0 before the first evaluation
    at: Sums
    status: jax.Array
    iterations: jax.Array


@cache
def _row_terms(features: Features) -> RowTerms:
    """The derivatives of a row's loss by the parameters; the second ones as a lower triangle."""

    def terms(row: Row, arithmetic: Arithmetic, numbers: Any) -> list[jax.Array]:
        theta, targets, constants = numbers
        functions = features.values(row.f, constants)
        row = row._replace(f=_log_odds(theta, functions))
        by_z = objective.analytic_derivatives(_identity(theta), row, targets, arithmetic)
        gradient = [-by_z.g_B, *(-by_z.g_B * x for x in functions)]
        hessian = [by_z.h_BB]
        for j, x in enumerate(functions):
            curved = by_z.h_BB * x
            hessian += [curved, *(curved * factor for factor in functions[: j + 1])]
        return [jnp.where(row.present, x, 0) for x in gradient + hessian]

    number = features.number
    return RowTerms(terms, number + number * (number + 1) // 2)


@cache
def loss_terms(features: Features) -> RowTerms:
    """The loss of a row."""

    def terms(row: Row, arithmetic: Arithmetic, numbers: Any) -> list[jax.Array]:
        theta, targets, constants = numbers
        row = row._replace(f=_log_odds(theta, features.values(row.f, constants)))
        linear, odds = objective.loss(_identity(theta), row, targets, arithmetic)
        return [jnp.where(row.present, row.weight * (linear + log1p_unit(odds)), 0)]

    return RowTerms(terms, 1)


def _log_odds(theta: list[jax.Array], functions: list[jax.Array]) -> jax.Array:
    return theta[0] + sum(t * x for t, x in zip(theta[1:], functions, strict=True))


def _identity(theta: list[jax.Array]) -> objective.Point:
    """The (A, B) with which the sigmoid's score is its log-odds."""
    return -jnp.ones_like(theta[0]), jnp.zeros_like(theta[0])


def search(
    rows: TermRows,
    start: list[jax.Array],
    targets: Targets,
    limits: Limits,
    features: Features,
    options: Options,
    runner: Runner,
) -> CurveState:
    """The last state of the search."""
    first = runner.decide(_first_state)(start)
    decide = runner.decide(bound(_decide, features))
    trial = runner.decide(bound(_trial, features))
    terms = _row_terms(features)

    def advance(state: CurveState, rows: TermRows, targets: Targets) -> CurveState:
        point = trial(state)
        sums = rows.row_sums((point, targets, limits.constants), terms)
        after: CurveState = decide(limits, state, sums, options=options)
        return after

    if runner is not TRACED:
        state = first
        while np.any(np.asarray(state.status) == _RUNNING):
            state = advance(state, rows, targets)
        return state

    def body(state: CurveState) -> CurveState:
        # Lest arrays of the rows' size are made before the loop and read in each pass.
        return advance(state, *lax.optimization_barrier((rows, targets)))

    return lax.while_loop(lambda state: jnp.any(state.status == _RUNNING), body, first)


def _first_state(start: list[jax.Array]) -> CurveState:
    zero, number = jnp.zeros_like(start[0]), len(start)
    nothing = [zero] * number
    running = jnp.full_like(zero, _RUNNING, jnp.int32)
    return CurveState(
        theta=start,
        step=nothing,
        length=zero,
        at=Sums(nothing, [[zero] * (j + 1) for j in range(number)]),
        status=running,
        iterations=jnp.zeros_like(running),
    )


def _trial(features: Features, state: CurveState) -> list[jax.Array]:
    moved = [x + state.length * d for x, d in zip(state.theta, state.step, strict=True)]
    if not features.not_negative:
        return moved
    # The parameter that ends the step is 0, up to rounding.
    eps = 8 * jnp.finfo(state.length.dtype).eps
    pairs = zip(moved[1:], state.theta[1:], strict=True)
    return [moved[0], *(jnp.where(x <= eps * before, 0, x) for x, before in pairs)]


def _allowed_step(
    features: Features, theta: list[jax.Array], at: Sums, limits: Limits
) -> tuple[_Step, jax.Array]:
    """Newton's step, and its longest allowed length.

    Parameters that may not be negative are held at 0 where the step would make them so, as in
    active set methods (Nocedal & Wright 2006, section 16.5).
    """
    longest = jnp.ones_like(theta[0])
    held = [longest < 0] * len(theta)
    step = _newton_step(theta, at, held, limits)
    if not features.not_negative:
        return step, longest
    for _ in theta[1:]:
        triples = zip(held, theta, step.by, strict=True)
        held[1:] = [h | ((x <= 0) & (d < 0)) for h, x, d in triples][1:]
        step = _newton_step(theta, at, held, limits)
    for x, d in zip(theta[1:], step.by[1:], strict=True):
        longest = jnp.minimum(longest, jnp.where(d < 0, x / jnp.where(d < 0, -d, 1), 1))
    return step, longest


def _decide(
    features: Features,
    limits: Limits,
    state: CurveState,
    sums: Sequence[jax.Array],
    options: Options,
) -> CurveState:
    """Takes the step or halves it, given the sums over the rows at its end."""
    theta, number = _trial(features, state), features.number
    gradient, entries = list(sums[:number]), list(sums[number:])
    hessian = [[entries.pop(0) for _ in range(j + 1)] for j in range(number)]
    for j, row in enumerate(limits.penalty, 2):
        for i, bend in enumerate(row, 2):
            gradient[j] = gradient[j] + bend * theta[i]
            if i <= j:
                hessian[j][i] = hessian[j][i] + bend
    new_sums = Sums(gradient, hessian)
    eps = jnp.finfo(gradient[0].dtype).eps
    finite = jnp.isfinite(sum(gradient) + sum(sum(row) for row in hessian))
    first = state.length == 0
    moves = [new - old for new, old in zip(theta, state.theta, strict=True)]
    accepted = finite & (first | _proves_decrease(moves, state.at, new_sums, limits))

    step, longest = _allowed_step(features, theta, new_sums, limits)
    downhill = -sum(g * d for g, d in zip(gradient, step.by, strict=True))
    decrement = jnp.sqrt(jnp.maximum(downhill, 0))
    tol: Any = options.tol  # filled in by `with_tol`
    iterations = state.iterations + jnp.where(first, 0, 1)
    near = decrement <= jnp.maximum(tol, _ROUNDED * eps * jnp.sqrt(limits.weight))
    aliased = undetermined(new_sums) if features.not_negative else step.aliased
    near &= _certain(theta, step, aliased, new_sums, limits)
    exhausted = jnp.where(iterations >= options.max_iter, int(Status.MAX_ITERATIONS), _RUNNING)
    ended = jnp.where(near, int(Status.CONVERGED), exhausted)
    moved = CurveState(theta, step.by, longest, new_sums, ended, iterations)
    length = state.length / 2
    failed = jnp.where(length < options.min_step, int(Status.LINE_SEARCH_FAILED), _RUNNING)
    failed = jnp.where(first, int(Status.NON_FINITE), failed)
    stayed = state._replace(length=length, status=failed)
    accepted = computed_once(accepted)
    new = jax.tree.map(partial(jnp.where, accepted), moved, stayed)
    running = state.status == _RUNNING
    return jax.tree.map(partial(jnp.where, running), new, state)


def _proves_decrease(moves: list[jax.Array], before: Sums, at: Sums, limits: Limits) -> jax.Array:
    """Whether the derivatives at both ends of a step prove that the loss falls enough.

    As `platt_jax.solver.newton`: no log-odds changes by more than the functions' largest values
    allow, which bounds the third derivative along the step (Bach 2010, section 2).
    """
    number = range(len(moves))
    rise = sum(g * x for g, x in zip(at.gradient, moves, strict=True))
    curvature = sum(
        moves[i] * moves[j] * at.hessian[max(i, j)][min(i, j)] for i in number for j in number
    )
    most: Any = sum(jnp.abs(x) * y for x, y in zip(moves, limits.largest, strict=True))
    slope = sum(g * x for g, x in zip(before.gradient, moves, strict=True))
    return rise - curvature * backward_share(most) <= _ARMIJO * slope


def _certain(
    theta: list[jax.Array], step: _Step, aliased: list[jax.Array], at: Sums, limits: Limits
) -> jax.Array:
    """Whether a small decrement shows that the optimum is near, as in `platt_jax.solver.stopping`.

    No log-odds may change by more than a half, unless a parameter that is far from 0 hardly
    changes: rows that it moves farther have no curvature left. And far rows without curvature must
    not hide what tells the parameters apart: at the others all functions are then small beside the
    largest. And no parameter may have a slope, but no curvature.
    """
    certain = ~step.slides
    functions = zip(theta, step.by, limits.largest, aliased, strict=True)
    for j, (x, d, largest, alike) in enumerate(functions):
        moved = jnp.abs(d)
        certain &= (moved * largest <= 0.5) | (1024 * moved <= jnp.abs(x))
        curvature = at.hessian[j][j] / jnp.where(at.hessian[0][0] > 0, at.hessian[0][0], 1)
        certain &= ~alike | (curvature >= _FAR * largest * largest)
    return certain


def _newton_step(theta: list[jax.Array], at: Sums, held: list[jax.Array], limits: Limits) -> _Step:
    """-H^-1 g by an L D L' factorization.

    A parameter whose pivot is rounding does not move if the gradient says nothing of it either, as
    where two functions are equal. Otherwise the rows that tell of it are far out, where the loss is
    a straight line: it moves by as much as it is off 0, or until log-odds change by `_SLIDE`.
    """
    number, eps = len(held), jnp.finfo(at.gradient[0].dtype).eps
    left = [[at.hessian[max(i, j)][min(i, j)] for j in range(number)] for i in range(number)]
    right, aliased, slides = [-g for g in at.gradient], [], []
    rounding = [_ROUNDED * eps * limits.weight * largest for largest in limits.largest]
    zero = jnp.zeros_like(at.gradient[0])
    for k in range(number):
        lost = held[k] | (left[k][k] <= _ALIASED * eps * at.hessian[k][k])
        aliased.append(lost)
        sloping = (jnp.abs(right[k]) > rounding[k]) & (limits.largest[k] > _NOTHING)
        slides.append(lost & ~held[k] & sloping)
        over = jnp.where(lost, 0, 1 / jnp.where(lost, 1, left[k][k]))
        for i in range(k + 1, number):
            ratio = left[i][k] * over
            left[i] = [left[i][j] - ratio * left[k][j] for j in range(number)]
            right[i] = right[i] - ratio * right[k]
            rounding[i] = rounding[i] + jnp.abs(ratio) * rounding[k]
    solution = [zero] * number
    for i in reversed(range(number)):
        solved = sum((left[i][j] * solution[j] for j in range(i + 1, number)), start=zero)
        pivot = jnp.where(aliased[i], 1, left[i][i])
        distance = jnp.maximum(_SLIDE / jnp.maximum(limits.largest[i], _NOTHING), jnp.abs(theta[i]))
        slide = jnp.where(slides[i], jnp.copysign(distance, right[i]), 0)
        solution[i] = jnp.where(aliased[i], slide, (right[i] - solved) / pivot)
    return _Step(solution, aliased, jnp.any(jnp.stack(slides), axis=0))


def last_point(features: Features, state: CurveState) -> list[jax.Array]:
    """The point after Newton's step from one that met the tolerance, without evaluating it."""
    converged = state.status == Status.CONVERGED
    length = jnp.where(converged, state.length, 0)
    return _trial(features, state._replace(length=length))


def undetermined(at: Sums) -> list[jax.Array]:
    """Which parameters the rows do not tell from those before."""
    zero, number = jnp.zeros_like(at.gradient[0]), len(at.gradient)
    zeros = [zero] * number
    # Pivots depend on the Hessian alone.
    return _newton_step(zeros, at, [zero > 0] * number, Limits(zero, (), zeros, ())).aliased
