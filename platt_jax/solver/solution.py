"""A fit from rows to results: sums before the search, the search, the report.

Pure and traceable.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.model import objective, standardization, start
from platt_jax.model import prior as priors
from platt_jax.model.objective import EarlierCounts, Point, Targets
from platt_jax.model.prior import CenteredPrior
from platt_jax.model.standardization import (
    Standardization,
    far_scores_hide_others,
    over_power_of_two,
    range_standardization,
)
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.flags import (
    both_classes,
    far_code,
    raised_flags,
    separable,
    separated_at_zero,
)
from platt_jax.solver.search import TRACED, Problem, Runner, Solution
from platt_jax.solver.stopping import ProblemConstants
from platt_jax.status import Status


class ProblemInputs(NamedTuple):
    """What users may give for each problem besides rows; arrays have the problems' leading axes."""

    prior: CenteredPrior | None = None
    start: Point | None = None  # (A, B), for the original scores
    remembered: EarlierCounts | None = None  # the rows behind the prior, for Platt's targets


class Found(NamedTuple):
    """What a search finds, before the report; arrays of one shape."""

    solution: Solution
    standardization: Standardization  # the coordinates of the solution
    ranges: ScoreRanges
    moments: tuple[Moments, Moments]


class Unchecked(NamedTuple):
    """A fit before its `last_checks`, and the numbers that these need besides."""

    fit: Fit
    # The ends of the two classes' scores, as in `ScoreRanges`.
    ends: tuple[jax.Array, jax.Array, jax.Array, jax.Array]
    # Of each class, as in `Moments` after the total.
    sums: tuple[tuple[jax.Array, ...], ...]

    def checked(self, status: jax.Array, flags: jax.Array) -> Fit:
        """The fit with the results of `last_checks`."""
        return replace(self.fit, status=status, flags=flags)


def fit_rows(
    rows: Rows,
    given: ProblemInputs,
    options: Options,
    optimum: Callable[..., Solution] = search.optimum,
    runner: Runner = TRACED,
) -> Fit:
    """Fits the problems of these rows. Every field of the result has their shape as leading axes.

    `optimum` is the search; the runner runs the functions that read no rows.
    """
    result = searched(rows, given, options, optimum, runner)
    reporter: Callable[..., Fit] = runner.decide(report)
    return reporter(result, options=options)


def searched(
    rows: Rows,
    given: ProblemInputs,
    options: Options,
    optimum: Callable[..., Solution] = search.optimum,
    runner: Runner = TRACED,
) -> Found:
    """The part of `fit_rows` that reads the rows."""
    ranges = rows.score_ranges(options)
    rows = rows.mask_nonfinite(options)
    moments = rows.moments(runner.decide(rough_coordinates)(ranges, options=options))
    targets, prior, problem = runner.decide(_set_up)(ranges, moments, given, options=options)
    rows = rows.standardized(problem.standardization)
    solution = optimum(rows, targets, prior, problem, options)
    return Found(solution, problem.standardization, ranges, moments)


def rough_coordinates(ranges: ScoreRanges, options: Options) -> Standardization:
    """The coordinates of the moments. Without an intercept their center must be 0."""
    return range_standardization(ranges, centered=options.intercept)


def _set_up(
    ranges: ScoreRanges, moments: tuple[Moments, Moments], given: ProblemInputs, options: Options
) -> tuple[Targets, CenteredPrior | None, Problem]:
    """The targets, and everything else the search needs besides the rows.

    The moments of the two classes are in the coordinates of `rough_coordinates`.
    """
    n_pos, n_neg = (one_class.total for one_class in moments)
    prior = given.prior
    if options.targets == "platt" and given.remembered is not None and prior is not None:
        targets = objective.later_platt_targets(n_pos, n_neg, given.remembered)
        prior = priors.at_later_targets(prior, n_pos, n_neg, given.remembered)
    elif options.targets == "platt":
        targets = objective.platt_targets(n_pos, n_neg)
    else:
        targets = objective.plain_targets(n_pos, n_neg)
    # The optimum does not depend on the coordinates, so no derivative flows through them.
    frame, (A, B), line = coordinates_and_start(
        ranges, *jax.lax.stop_gradient((moments, targets)), options
    )
    low, high = ((end - frame.center) * frame.scale for end in ranges.overall())
    unbounded = _unbounded(ranges, n_pos, n_neg, prior, options)
    constants = jax.lax.stop_gradient(
        ProblemConstants(low, high, n_pos + n_neg, ranges.widest_offset, unbounded)
    )
    usual = None
    if line is not None:
        # A few far offsets may draw the line away from all others.
        usual = A, B
        A, B = A + line[0], B + line[1]
    if given.start is not None:
        # With one class or constant scores, the usual start has the optimal slope, 0. Offsets give
        # a single class a slope, too.
        if not options.intercept:
            sloping = (low < 0) | (high > 0)
        elif ranges.widest_offset is None:
            sloping = both_classes(n_pos, n_neg) & (low < high)
        else:
            sloping = low < high
        without, usual = usual, (A, B)
        A, B = _warm_start(given.start, frame, usual, sloping)
        B = B if options.intercept else jnp.zeros_like(B)
        if without is not None:
            equal = (A == usual[0]) & (B == usual[1])
            usual = jnp.where(equal, without[0], usual[0]), jnp.where(equal, without[1], usual[1])
    problem = Problem(
        standardization=frame,
        constants=constants,
        bad=ranges.bad,
        one_class=~both_classes(n_pos, n_neg) & options.intercept,
        A=A,
        B=B,
        usual=usual,
    )
    return targets, prior, problem


def _unbounded(
    ranges: ScoreRanges,
    n_pos: jax.Array,
    n_neg: jax.Array,
    prior: CenteredPrior | None,
    options: Options,
) -> jax.Array:
    """Whether the loss has no minimum, as for separable labels without a prior."""
    if options.targets == "platt":
        return jnp.zeros_like(n_pos, bool)
    if options.intercept:
        unbounded = ~both_classes(n_pos, n_neg) | separable(ranges, n_pos, n_neg, options)
    else:
        unbounded = separated_at_zero(ranges)
    if prior is None:
        return unbounded
    flat = (prior.precision_AA == 0) & (prior.precision_AB == 0) & (prior.precision_BB == 0)
    return unbounded & flat


def coordinates_and_start(
    ranges: ScoreRanges, moments: tuple[Moments, Moments], targets: Targets, options: Options
) -> tuple[Standardization, Point, Point | None]:
    """The coordinates to solve in; in these the start (A, B) without offsets, and their line."""
    classes = start.target_moments(moments, targets)
    if not options.intercept:
        classes = start.mirrored(*classes)
    frame, shape = start.moment_standardization(rough_coordinates(ranges, options), *classes)
    n_pos, n_neg = (one_class.total for one_class in moments)
    if options.start == "gaussian":
        A, B = start.gaussian_start(shape, n_pos, n_neg, targets)
    else:
        A, B = start.prior_start(n_pos, n_neg)
    line: Point | None = None
    if classes[0].offset is not None:
        line = start.offset_line(*classes, rough_coordinates(ranges, options), frame)
    if not options.intercept:
        B = jnp.zeros_like(B)
        line = line and (line[0], B)
    if not options.slope:
        A = -over_power_of_two(frame.scale)
        line = line and (jnp.zeros_like(A), line[1])
    if options.standardize and options.targets == "none" and options.slope:
        return start.with_far_scores(frame, (A, B), line, ranges, n_pos + n_neg, options.intercept)
    if options.standardize:
        return frame, (A, B), line
    # Constant scores are centred in any case: this holds the undetermined A at 0.
    low, high = ranges.overall()
    identity = Standardization(jnp.where(low == high, frame.center, 0), jnp.ones_like(A))

    def mapped(A: jax.Array, B: jax.Array) -> Point:
        A, B = standardization.to_original(frame, A, B)
        return A, B + A * identity.center

    return identity, mapped(A, B), line and mapped(*line)


def _warm_start(
    given_start: Point, own: Standardization, usual: Point, allowed: jax.Array
) -> Iterator[jax.Array]:
    """The user's (A, B) in standardized coordinates where allowed and finite, else the usual."""
    warm = standardization.to_standardized(own, *given_start)
    usable = allowed & jnp.isfinite(warm[0]) & jnp.isfinite(warm[1])
    return (jnp.where(usable, new, old) for new, old in zip(warm, usual, strict=True))


def unchecked(rows: Rows, given: ProblemInputs, options: Options) -> Unchecked:
    """`fit_rows` before `last_checks`."""
    return _report(searched(rows, given, options), options)


def report(found: Found, options: Options) -> Fit:
    """What was found, for the original scores, with flags."""
    draft = _report(found, options)
    return draft.checked(*last_checks(draft, options))


def last_checks(made: Unchecked, options: Options) -> tuple[jax.Array, jax.Array]:
    """The status, not CONVERGED where far scores of one class hide the others, and the flags."""
    fit: Any = made.fit
    moments = Moments(fit.n_pos, *made.sums[0]), Moments(fit.n_neg, *made.sums[1])
    ranges = ScoreRanges(fit.status == Status.NON_FINITE, *made.ends, jnp.ones_like(fit.A))
    status, flags = fit.status, fit.flags | far_code(ranges, moments, options)
    if options.targets == "none" and options.slope:
        hidden = (status == Status.CONVERGED) & far_scores_hide_others(ranges, options.intercept)
        if options.monotone:
            hidden &= fit.A != 0
        status = jnp.where(hidden, int(Status.LINE_SEARCH_FAILED), status)
    return status, flags


def _report(found: Found, options: Options) -> Unchecked:
    solution, frame, ranges, moments = found
    status = solution.status
    failed = (status == Status.NON_FINITE) | (status == Status.EMPTY)

    def answer(x: jax.Array) -> jax.Array:
        return jnp.where(failed.reshape(failed.shape + (1,) * (x.ndim - failed.ndim)), jnp.nan, x)

    derivatives = solution.derivatives
    A, B = standardization.to_original(frame, solution.A, solution.B)
    gradient, hessian = standardization.derivatives_to_original(frame, derivatives)
    covariance = standardization.covariance_to_original(frame, derivatives, solution.pinned)
    # A variance of the slope below the normal numbers is lost, and bands would lack it.
    lost = frame.scale * frame.scale < jnp.finfo(A.dtype).tiny * derivatives.h_AA
    covariance = jnp.where((lost & ~solution.pinned)[..., None, None], jnp.nan, covariance)
    if not options.intercept:
        is_A = np.array([[True, False], [False, False]])
        hessian, covariance = (jnp.where(is_A, matrix, 0) for matrix in (hessian, covariance))
    if not options.slope:
        is_B = np.array([[False, False], [False, True]])
        gradient, hessian = jnp.where(is_B[1], gradient, 0), jnp.where(is_B, hessian, 0)
    fit = Fit(
        A=answer(A),
        B=answer(B),
        status=status,
        flags=raised_flags(solution.A, ranges, moments, options),
        iterations=solution.iterations,
        passes=solution.passes,
        nll=answer(solution.loss),
        gradient=answer(gradient),
        hessian=answer(hessian),
        covariance=answer(covariance),
        n_pos=moments[0].total,
        n_neg=moments[1].total,
    )
    ends = ranges.low_pos, ranges.high_pos, ranges.low_neg, ranges.high_neg
    sums = tuple((x.first, x.second, x.rows) for x in moments)
    return Unchecked(fit, ends, sums)
