"""The search for curves whose log-odds are linear in a few parameters, for many problems at once.

Newton's method with backtracking, as `platt_jax.solver` has it for the sigmoid: an iteration adds
up the loss, its gradient and its Hessian over the rows, in one pass, and then decides for each
problem whether to take the step or to halve it.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax.execution.problems import Task
from platt_jax.execution.progress import ignore_progress
from platt_jax.model import objective
from platt_jax.model.objective import Arithmetic, Row, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes.elementary import log1p_unit
from platt_jax.passes.protocol import RowTerms, TermRows
from platt_jax.results.fitted_curves import Features
from platt_jax.solver.flags import raised_flags
from platt_jax.solver.newton import backward_share
from platt_jax.solver.search import TRACED, Runner, host
from platt_jax.solver.solution import coordinates_and_start, rough_coordinates
from platt_jax.status import Status

_RUNNING = -1
_ARMIJO = 1e-4  # the sufficient-decrease constant
# Sums are rounded by about so many units for each unit of the root of the weight.
_ROUNDED = 8
# A pivot below so many roundings of its diagonal entry is 0: the rows do not tell its parameter
# from the parameters before it.
_ALIASED = 64
# Total loss, in nats, below which labels without Platt's targets are separated by the curve: then
# there is no optimum.
_SEPARATED = 1e-6


class Given(NamedTuple):
    """What is given for each problem."""

    coordinates: Standardization | None  # of the scores; None for the problems' own
    constants: tuple[Any, ...]  # of the functions


class FoundCurves(NamedTuple):
    """The curves of all problems; every array has their shape as leading axes."""

    coefficients: jax.Array  # (..., P)
    hessian: jax.Array  # (..., P, P), by c + middle theta and theta
    middle: jax.Array  # (..., P - 1)
    aliased: jax.Array  # (..., P): the rows say nothing of the parameter
    status: jax.Array
    flags: jax.Array
    iterations: jax.Array
    nll: jax.Array
    low: jax.Array
    high: jax.Array
    center: jax.Array
    scale: jax.Array


@cache
def search_task(features: Features, penalty: float) -> Task:
    """The task of fitting such curves. It is cached: compiled programs are found by the task.

    Args:
        features: the functions of the score.
        penalty: the precision of a normal prior around 0 of the parameters from the third on.
    """
    return Task(
        partial(_fit, features, penalty),
        partial(_fit, features, penalty, runner=host(ignore_progress)),
    )


@cache
def _bound(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function with its first arguments, one object for equal arguments.

    The host finds compiled programs by their functions.
    """
    return partial(function, *arguments)


class _Sums(NamedTuple):
    gradient: list[jax.Array]  # by each of P parameters
    hessian: list[list[jax.Array]]  # lower triangle: row j has j + 1 entries


class _State(NamedTuple):
    theta: list[jax.Array]
    step: list[jax.Array]
    length: jax.Array  # the fraction of the step to try next; 0 before the first evaluation
    at: _Sums
    aliased: list[jax.Array]
    status: jax.Array
    iterations: jax.Array


def _fit(
    features: Features,
    penalty: float,
    rows: TermRows,
    given: Given,
    options: Options,
    runner: Runner = TRACED,
) -> FoundCurves:
    """The curves of the problems of these rows."""
    ranges = rows.score_ranges(options)
    rows = rows.mask_nonfinite(options)
    moments = rows.moments(runner.decide(rough_coordinates)(ranges, options=options))
    start = runner.decide(_bound(_start, features))
    own, targets, theta, limits = start(ranges, moments, given, options=options)
    rows = rows.standardized(own)
    found = _search(rows, theta, targets, limits, features, penalty, options, runner)
    point = runner.decide(_bound(_last_point, features))(found)
    (loss,) = rows.row_sums((point, targets, limits.shape), _loss_terms(features))
    report = runner.decide(_bound(_report, penalty))
    return report(found, point, loss, limits, own, ranges, moments, options=options)


class _Shape(NamedTuple):
    """The functions of a problem."""

    constants: tuple[jax.Array, ...]
    # What is subtracted from the functions during the search, their values at the mean score, so
    # that the constant is told from the others; None where the coordinates do so.
    middle: list[jax.Array] | None


class _Limits(NamedTuple):
    weight: jax.Array  # of all rows of a problem
    shape: _Shape
    largest: list[jax.Array]  # the largest absolute value of each function in a problem's rows


def _start(
    features: Features, ranges: Any, moments: Any, given: Given, options: Options
) -> tuple[Standardization, Targets, list[jax.Array], _Limits]:
    """Coordinates, targets, the start, which is the sigmoid of two normal densities, and limits."""
    n_pos, n_neg = (one_class.total for one_class in moments)
    make = objective.platt_targets if options.targets == "platt" else objective.plain_targets
    targets = make(n_pos, n_neg)
    own, (A, B), line = coordinates_and_start(ranges, moments, targets, options)
    if line is not None:
        A, B = A + line[0], B + line[1]
    zero = jnp.zeros_like(A)
    at = own
    if not features.own_coordinates:
        at = Standardization(zero, jnp.ones_like(A))
    if given.coordinates is not None:
        at = given.coordinates
    # The same line in these coordinates; a constant where that is out of range.
    slope = -A * own.scale / at.scale
    level = -B + A * own.scale * (own.center - at.center)
    usable = jnp.isfinite(slope) & jnp.isfinite(level)
    slope, level = jnp.where(usable, slope, 0), jnp.where(usable, level, -B)
    theta = [level, slope, *[zero] * (features.number - 2)]
    if features.not_negative:
        theta = [level, *[jnp.maximum(slope, 0)] * (features.number - 1)]
    shape = _Shape(given.constants, None)
    if not features.own_coordinates:
        theta[0] = -B
        shape = shape._replace(middle=features.values(own.center, given.constants))
    # Each function is largest at an end of the scores.
    low, high = (
        _functions(features, shape, (end - at.center) * at.scale) for end in ranges.overall()
    )
    largest = [jnp.maximum(jnp.abs(x), jnp.abs(y)) for x, y in zip(low, high, strict=True)]
    limits = _Limits(n_pos + n_neg, shape, [jnp.ones_like(zero), *largest])
    return at, targets, theta, jax.lax.stop_gradient(limits)


@cache
def _row_terms(features: Features) -> RowTerms:
    """The derivatives of a row's loss by the parameters; the second ones as a lower triangle."""

    def terms(row: Row, arithmetic: Arithmetic, numbers: Any) -> list[jax.Array]:
        theta, targets, shape = numbers
        functions = _functions(features, shape, row.f)
        row = row._replace(f=_log_odds(theta, functions))
        by_z = objective.analytic_derivatives(_identity(theta), row, targets, arithmetic)
        gradient = [-by_z.g_B, *(-by_z.g_B * x for x in functions)]
        hessian = [by_z.h_BB]
        for j, x in enumerate(functions):
            curved = by_z.h_BB * x
            hessian += [curved, *(curved * other for other in functions[: j + 1])]
        return [jnp.where(row.present, x, 0) for x in gradient + hessian]

    number = features.number
    return RowTerms(terms, number + number * (number + 1) // 2)


@cache
def _loss_terms(features: Features) -> RowTerms:
    """The loss of a row."""

    def terms(row: Row, arithmetic: Arithmetic, numbers: Any) -> list[jax.Array]:
        theta, targets, shape = numbers
        row = row._replace(f=_log_odds(theta, _functions(features, shape, row.f)))
        linear, odds = objective.loss(_identity(theta), row, targets, arithmetic)
        return [jnp.where(row.present, row.weight * (linear + log1p_unit(odds)), 0)]

    return RowTerms(terms, 1)


def _functions(features: Features, shape: _Shape, f: jax.Array) -> list[jax.Array]:
    values = features.values(f, shape.constants)
    if shape.middle is None:
        return values
    return [x - m for x, m in zip(values, shape.middle, strict=True)]


def _log_odds(theta: list[jax.Array], functions: list[jax.Array]) -> jax.Array:
    return theta[0] + sum(t * x for t, x in zip(theta[1:], functions, strict=True))


def _identity(theta: list[jax.Array]) -> objective.Point:
    """The (A, B) with which the sigmoid's score is its log-odds."""
    return -jnp.ones_like(theta[0]), jnp.zeros_like(theta[0])


def _search(
    rows: TermRows,
    start: list[jax.Array],
    targets: Targets,
    limits: _Limits,
    features: Features,
    penalty: float,
    options: Options,
    runner: Runner,
) -> _State:
    """The last state of the search."""
    first = runner.decide(_first_state)(start)
    decide = runner.decide(_bound(_decide, features, penalty))
    trial = runner.decide(_bound(_trial, features))
    terms = _row_terms(features)

    def advance(state: _State, rows: TermRows, targets: Targets) -> _State:
        point = trial(state)
        sums = rows.row_sums((point, targets, limits.shape), terms)
        after: _State = decide(limits, state, sums, options=options)
        return after

    if runner is not TRACED:
        state = first
        while np.any(np.asarray(state.status) == _RUNNING):
            state = advance(state, rows, targets)
        return state

    def body(state: _State) -> _State:
        # Lest arrays of the rows' size are made before the loop and read in each pass.
        return advance(state, *lax.optimization_barrier((rows, targets)))

    return lax.while_loop(lambda state: jnp.any(state.status == _RUNNING), body, first)


def _first_state(start: list[jax.Array]) -> _State:
    zero, number = jnp.zeros_like(start[0]), len(start)
    nothing = [zero] * number
    running = jnp.full_like(zero, _RUNNING, jnp.int32)
    return _State(
        theta=start,
        step=nothing,
        length=zero,
        at=_Sums(nothing, [[zero] * (j + 1) for j in range(number)]),
        aliased=[zero > 0] * number,
        status=running,
        iterations=jnp.zeros_like(running),
    )


def _trial(features: Features, state: _State) -> list[jax.Array]:
    moved = [x + state.length * d for x, d in zip(state.theta, state.step, strict=True)]
    if not features.not_negative:
        return moved
    # The parameter that ends the step is 0, up to rounding.
    eps = 8 * jnp.finfo(state.length.dtype).eps
    pairs = zip(moved[1:], state.theta[1:], strict=True)
    return [moved[0], *(jnp.where(x <= eps * before, 0, x) for x, before in pairs)]


def _allowed_step(
    features: Features, theta: list[jax.Array], at: _Sums
) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
    """Newton's step, the parameters that it does not move, and its longest allowed length.

    Parameters that may not be negative are held at 0 where the step would make them so, as in
    active set methods (Nocedal & Wright 2006, section 16.5).
    """
    one = jnp.ones_like(theta[0])
    held = [one < 0] * len(theta)
    if not features.not_negative:
        return *_newton_step(at, held), one
    step, still = _newton_step(at, held)
    for _ in theta[1:]:
        held[1:] = [h | ((x <= 0) & (d < 0)) for h, x, d in zip(held, theta, step, strict=True)][1:]
        step, still = _newton_step(at, held)
    for x, d in zip(theta[1:], step[1:], strict=True):
        one = jnp.minimum(one, jnp.where(d < 0, x / jnp.where(d < 0, -d, 1), 1))
    return step, still, one


def _decide(
    features: Features,
    penalty: float,
    limits: _Limits,
    state: _State,
    sums: Sequence[jax.Array],
    options: Options,
) -> _State:
    """Takes the step or halves it, given the sums over the rows at its end."""
    theta, number = _trial(features, state), features.number
    gradient, rest = list(sums[:number]), list(sums[number:])
    hessian = [[rest.pop(0) for _ in range(j + 1)] for j in range(number)]
    for j in range(2, number):
        gradient[j] = gradient[j] + penalty * theta[j]
        hessian[j][j] = hessian[j][j] + penalty
    at = _Sums(gradient, hessian)
    eps = jnp.finfo(gradient[0].dtype).eps
    finite = jnp.isfinite(sum(gradient) + sum(sum(row) for row in hessian))
    first = state.length == 0
    moves = [new - old for new, old in zip(theta, state.theta, strict=True)]
    accepted = finite & (first | _proves_decrease(moves, state.at, at, limits))

    step, aliased, longest = _allowed_step(features, theta, at)
    downhill = -sum(g * d for g, d in zip(gradient, step, strict=True))
    decrement = jnp.sqrt(jnp.maximum(downhill, 0))
    tol: Any = options.tol  # filled in by `with_tol`
    iterations = state.iterations + jnp.where(first, 0, 1)
    near = decrement <= jnp.maximum(tol, _ROUNDED * eps * jnp.sqrt(limits.weight))
    exhausted = jnp.where(iterations >= options.max_iter, int(Status.MAX_ITERATIONS), _RUNNING)
    moved = _State(
        theta,
        step,
        longest,
        at,
        aliased,
        jnp.where(near, int(Status.CONVERGED), exhausted),
        iterations,
    )
    length = state.length / 2
    failed = jnp.where(length < options.min_step, int(Status.LINE_SEARCH_FAILED), _RUNNING)
    failed = jnp.where(first, int(Status.NON_FINITE), failed)
    stayed = state._replace(length=length, status=failed)
    new = jax.tree.map(partial(jnp.where, accepted), moved, stayed)
    running = state.status == _RUNNING
    return jax.tree.map(partial(jnp.where, running), new, state)


def _proves_decrease(
    moves: list[jax.Array], before: _Sums, at: _Sums, limits: _Limits
) -> jax.Array:
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


def _newton_step(at: _Sums, held: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
    """-H^-1 g by an L D L' factorization; and which parameters are held or cannot be told apart."""
    number, eps = len(held), jnp.finfo(at.gradient[0].dtype).eps
    left = [[at.hessian[max(i, j)][min(i, j)] for j in range(number)] for i in range(number)]
    right, aliased = [-g for g in at.gradient], []
    zero = jnp.zeros_like(at.gradient[0])
    for k in range(number):
        lost = held[k] | (left[k][k] <= _ALIASED * eps * at.hessian[k][k])
        aliased.append(lost)
        over = jnp.where(lost, 0, 1 / jnp.where(lost, 1, left[k][k]))
        for i in range(k + 1, number):
            ratio = left[i][k] * over
            left[i] = [left[i][j] - ratio * left[k][j] for j in range(number)]
            right[i] = right[i] - ratio * right[k]
    solution = [zero] * number
    for i in reversed(range(number)):
        known = sum((left[i][j] * solution[j] for j in range(i + 1, number)), start=zero)
        pivot = jnp.where(aliased[i], 1, left[i][i])
        solution[i] = jnp.where(aliased[i], 0, (right[i] - known) / pivot)
    return solution, aliased


def _last_point(features: Features, state: _State) -> list[jax.Array]:
    """The point after Newton's step from one that met the tolerance, without evaluating it."""
    converged = state.status == Status.CONVERGED
    length = jnp.where(converged, state.length, 0)
    return _trial(features, state._replace(length=length))


def _report(
    penalty: float,
    state: _State,
    point: list[jax.Array],
    loss: jax.Array,
    limits: _Limits,
    own: Standardization,
    ranges: Any,
    moments: Any,
    options: Options,
) -> FoundCurves:
    weight = moments[0].total + moments[1].total
    number, status = len(state.theta), state.status
    if options.targets != "platt":
        separated = loss <= _SEPARATED * jnp.minimum(weight, 1)
        status = jnp.where(separated, int(Status.MAX_ITERATIONS), status)
    status = jnp.where(weight == 0, int(Status.EMPTY), status)
    status = jnp.where(ranges.bad, int(Status.NON_FINITE), status)
    failed = (status == Status.NON_FINITE) | (status == Status.EMPTY)
    loss = loss + penalty / 2 * sum((x * x for x in point[2:]), start=jnp.zeros_like(loss))
    hessian = [
        jnp.stack([state.at.hessian[max(i, j)][min(i, j)] for j in range(number)], -1)
        for i in range(number)
    ]
    middle = limits.shape.middle or [jnp.zeros_like(loss)] * (number - 1)
    # The constant without what was subtracted: the first parameter here is c + middle theta.
    pairs = zip(point[1:], middle, strict=True)
    point = [point[0] - sum((t * m for t, m in pairs), start=jnp.zeros_like(loss)), *point[1:]]
    low, high = ranges.overall()
    nan = jnp.full_like(loss, jnp.nan)
    return FoundCurves(
        coefficients=jnp.stack([jnp.where(failed, nan, x) for x in point], -1),
        hessian=jnp.stack(hessian, -2),
        middle=jnp.stack(middle, -1),
        aliased=jnp.stack(state.aliased, -1),
        status=status,
        flags=raised_flags(jnp.zeros_like(nan), ranges, moments, options),
        iterations=state.iterations,
        nll=jnp.where(failed, nan, loss),
        low=jnp.where(failed, nan, low),
        high=jnp.where(failed, nan, high),
        center=jnp.broadcast_to(own.center, nan.shape),
        scale=jnp.broadcast_to(own.scale, nan.shape),
    )
