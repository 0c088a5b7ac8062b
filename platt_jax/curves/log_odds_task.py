"""The fits of curves whose log-odds are linear in a few parameters, for many problems at once."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from platt_jax.curves.newton import (
    CurveState,
    Limits,
    Penalty,
    bound,
    last_point,
    loss_terms,
    search,
    undetermined,
)
from platt_jax.execution.problems import Task
from platt_jax.execution.progress import ignore_progress
from platt_jax.model import objective
from platt_jax.model.objective import Targets
from platt_jax.model.standardization import Standardization, far_scores_hide_others
from platt_jax.options import Options
from platt_jax.passes.protocol import TermRows
from platt_jax.results.features import Features, ScoreFeatures
from platt_jax.solver.flags import far_code, has_inner_scores, raised_flags
from platt_jax.solver.search import TRACED, Runner, host
from platt_jax.solver.solution import coordinates_and_start, rough_coordinates
from platt_jax.status import Flag, Status

# Total loss, in nats, below which labels without Platt's targets are separated by the curve: then
# there is no optimum.
_SEPARATED = 1e-6


class Given(NamedTuple):
    """What is given for each problem."""

    coordinates: Standardization | None  # of the scores; None for the problems' own
    constants: tuple[Any, ...]  # of the functions
    penalty: Penalty = ()


class FoundCurves(NamedTuple):
    """The curves of all problems; every array has their shape as leading axes."""

    coefficients: jax.Array  # (..., P)
    hessian: jax.Array  # (..., P, P)
    aliased: jax.Array  # (..., P): the rows say nothing of the parameter
    status: jax.Array
    flags: jax.Array
    iterations: jax.Array
    nll: jax.Array
    low: jax.Array
    high: jax.Array
    center: jax.Array
    scale: jax.Array  # of functions of the scores as they are: what they are multiplied by


@cache
def search_task(features: Features) -> Task:
    """The task of fitting such curves. It is cached: compiled programs are found by the task."""
    return Task(partial(_fit, features), partial(_fit, features, runner=host(ignore_progress)))


def _fit(
    features: Features,
    rows: TermRows,
    given: Given,
    options: Options,
    runner: Runner = TRACED,
) -> FoundCurves:
    """The curves of the problems of these rows."""
    ranges = rows.score_ranges(options)
    rows = rows.mask_nonfinite(options)
    moments = rows.moments(runner.decide(rough_coordinates)(ranges, options=options))
    start = runner.decide(bound(_start, features))
    own, targets, theta, limits = start(ranges, moments, given, options=options)
    rows = rows.standardized(own)
    found = search(rows, theta, targets, limits, features, options, runner)
    point = runner.decide(bound(last_point, features))(found)
    (loss,) = rows.row_sums((point, targets, limits.constants), loss_terms(features))
    report = runner.decide(bound(_report, features))
    return report(found, point, loss, limits, own, ranges, moments, options=options)


def _start(
    features: Features, ranges: Any, moments: Any, given: Given, options: Options
) -> tuple[Standardization, Targets, list[jax.Array], Limits]:
    """Coordinates, targets, the start, which is the sigmoid of two normal densities, and limits."""
    n_pos, n_neg = (one_class.total for one_class in moments)
    make = objective.platt_targets if options.targets == "platt" else objective.plain_targets
    targets = make(n_pos, n_neg)
    own, (A, B), line = coordinates_and_start(ranges, moments, targets, options)
    if line is not None:
        A, B = A + line[0], B + line[1]
    zero = jnp.zeros_like(A)
    at, constants = given.coordinates or own, given.constants
    # The same line in these coordinates; a constant where that is out of range.
    slope = -A * own.scale / at.scale
    level = -B + A * own.scale * (own.center - at.center)
    usable = jnp.isfinite(slope) & jnp.isfinite(level)
    slope, level = jnp.where(usable, slope, 0), jnp.where(usable, level, -B)
    theta = [level, slope, *[zero] * (features.number - 2)]
    if features.not_negative:
        theta = [level, *[jnp.maximum(slope, 0)] * (features.number - 1)]
    if isinstance(features, ScoreFeatures):
        at, constants = Standardization(zero, jnp.ones_like(A)), (own.center, own.scale)
    # Each function is largest at an end of the scores.
    low, high = (
        features.values((end - at.center) * at.scale, constants) for end in ranges.overall()
    )
    largest = [jnp.maximum(jnp.abs(x), jnp.abs(y)) for x, y in zip(low, high, strict=True)]
    if features.not_negative:
        # A parameter that moves no log-odds starts at its bound: on the way there it would hold up
        # the others.
        eps = jnp.finfo(zero.dtype).eps
        pairs = zip(theta[1:], largest, strict=True)
        theta[1:] = [jnp.where(x * y <= eps, 0, x) for x, y in pairs]
    limits = Limits(n_pos + n_neg, constants, [jnp.ones_like(zero), *largest], given.penalty)
    return at, targets, theta, jax.lax.stop_gradient(limits)


def _report(
    features: Features,
    state: CurveState,
    point: list[jax.Array],
    loss: jax.Array,
    limits: Limits,
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
        hidden = far_scores_hide_others(ranges) & (status == Status.CONVERGED)
        status = jnp.where(hidden, int(Status.LINE_SEARCH_FAILED), status)
    aliased = jnp.stack(undetermined(state.at), -1)
    flags = raised_flags(jnp.zeros_like(loss), ranges, moments, options)
    flags |= far_code(ranges, moments, options)
    # Three scores tell the functions apart, unless a far one takes all digits of the others.
    far = (flags & Flag.OUTLIER) != 0 if features.name != "quadratic" else True
    hidden = aliased.any(-1) & has_inner_scores(ranges) & far & (status == Status.CONVERGED)
    status = jnp.where(hidden, int(Status.LINE_SEARCH_FAILED), status)
    # Functions of finite scores that are not finite are far beyond those of the other scores.
    status = jnp.where(status == Status.NON_FINITE, int(Status.LINE_SEARCH_FAILED), status)
    status = jnp.where(weight == 0, int(Status.EMPTY), status)
    status = jnp.where(ranges.bad, int(Status.NON_FINITE), status)
    failed = (status == Status.NON_FINITE) | (status == Status.EMPTY)
    for x, row in zip(point[2:], limits.penalty, strict=False):
        loss = loss + x / 2 * sum(map(jnp.multiply, row, point[2:]))
    hessian = [
        jnp.stack([state.at.hessian[max(i, j)][min(i, j)] for j in range(number)], -1)
        for i in range(number)
    ]
    if isinstance(features, ScoreFeatures):
        own = Standardization(*limits.constants)
    low, high = ranges.overall()
    nan = jnp.full_like(loss, jnp.nan)
    return FoundCurves(
        coefficients=jnp.stack([jnp.where(failed, nan, x) for x in point], -1),
        hessian=jnp.stack(hessian, -2),
        aliased=aliased,
        status=status,
        flags=flags,
        iterations=state.iterations,
        nll=jnp.where(failed, nan, loss),
        low=jnp.where(failed, nan, low),
        high=jnp.where(failed, nan, high),
        center=jnp.broadcast_to(own.center, nan.shape),
        scale=jnp.broadcast_to(own.scale, nan.shape),
    )
