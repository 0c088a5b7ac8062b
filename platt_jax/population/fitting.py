"""The fit of all segments, for rows in any place: the code behind every `fit_segments`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.execution.caller import ARE_NAN, report_non_finite
from platt_jax.execution.given import problem_inputs, shared_prior
from platt_jax.execution.progress import Listener, Stage
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.segments import Segments
from platt_jax.results import tables
from platt_jax.results.covariates import GivenCovariates
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SIZES, SegmentCalibrator, with_posterior_covariance
from platt_jax.status import Status

_ONE_CURVE = "all segments have the curve of all rows"
_WITHOUT_BAD_ROWS = "the curve of all rows is fitted without these"
# Below so many segments chance alone may tip a sum of targets. From here on partial pooling had
# the smaller log loss in over 9 of 10 simulated calls that are warned of.
_ENOUGH_SEGMENTS = 20
_EXCESS = 0.1
_INNER = ContextVar("inner", default=False)


def fit_by_segment(
    segments: Segments,
    prior: GaussianPrior | None,
    start: tuple[Column, Column] | None,
    pooling: Pooling,
    options: Options,
    progress: bool | Listener,
    caller: Caller,
    covariates: GivenCovariates | None = None,
) -> SegmentCalibrator:
    """`platt_jax.fit_segments` for these segments, with its arguments and a caller for warnings."""
    options = validation.options(options)
    validation.pooling(pooling, prior, start, options)
    inputs = problem_inputs(segments.keys.shape, segments.dtype, prior, start)
    pooled_prior = shared_prior(prior)
    if pooling == "complete" and pooled_prior is None and prior is not None:
        raise ValueError('prior: expected one for all with pooling="complete", got one for each')
    shared = problem_inputs((1,), segments.dtype, pooled_prior)
    fit: Any = None
    population = by_level = None
    if levelled := pooling in ("nested", "crossed"):
        from platt_jax.population.level_fitting import fit_levels, levels_of

        values = levels_of(segments.keys, pooling)
    if pooling == "partial" or levelled:
        from platt_jax.population.estimate import estimable, estimate_population

        pooled = segments.pooled_first(
            shared, options, Stage.of(progress, "pooled fit", last=False)
        )
        if not levelled:
            fit, population = estimate_population(
                segments, pooled, options, progress, covariates=covariates
            )
        elif estimable(pooled):
            fit, population, by_level = fit_levels(
                segments, values, pooling, pooled, options, progress
            )
        else:
            population = Population.not_estimated(len(segments.keys))
    one_curve = fit is None and pooling != "none"
    if fit is None:
        fit, pooled = segments.both(inputs, shared, options, Stage.of(progress))
    consequence = _WITHOUT_BAD_ROWS if one_curve else ARE_NAN
    report_non_finite(fit, options, "segment", segments.keys, caller, consequence)
    if one_curve:
        fit = with_pooled_curve(fit, pooled)
    if population is not None:
        report_search(population, caller)
        report_left_out(segments.keys, population.left_out(fit.flags), caller)
    if pooling == "none":
        report_few_rows(smoothing(fit), options, caller)
    events = [*fit_events(prior, segments.has_offset)]
    if pooling == "partial" and population is not None and population.estimated:
        events += size_dependence(population, fit, segments.total, caller)
    covariance: Any = pooled.covariance  # NumPy's, from a fit on the host
    return SegmentCalibrator(
        segments.keys,
        with_posterior_covariance(fit, population),
        pooled.sigmoid,
        covariance,
        "complete" if one_curve else pooling,
        population,
        by_level,
        events=tuple(events),
        options=options,
    )


def fit_events(prior: GaussianPrior | None, has_offset: bool) -> tuple[str, ...]:
    """The events of a calibrator by a fit with this prior, of rows with an offset or without."""
    return ("prior",) * (prior is not None) + ("offset",) * has_offset


def report_search(population: Population, caller: Caller) -> None:
    """Warns of a population that has no estimate, or one that did not converge."""
    if population.status == Status.NOT_ESTIMATED:
        caller.warn(f"pooling: {population.status.message}")
    elif population.status == Status.MAX_ITERATIONS:
        instead = "its last population is used" if population.estimated else _ONE_CURVE
        caller.warn(
            f"pooling: the search for the population did not converge: {instead}. "
            "Use more rows, or fewer segments"
        )


def report_left_out(keys: NDArray[Any], left_out: Bools, caller: Caller) -> None:
    """Warns of segments (K,) with rows that are left out of the population."""
    if len(out := np.flatnonzero(left_out)):
        caller.warn(
            f"pooling: scores lie over 100 times as far out as all others in {len(out):,} of "
            f"{tables.counted(len(keys), 'segment')}, first in {tables.name(keys, out[0])}: these "
            "are fitted alone. Drop rows with codes for missing values"
        )


@contextmanager
def inner_fits(inner: bool = True) -> Iterator[None]:
    """Fits within are steps of another function, if `inner`: `report_few_rows` is silent."""
    token = _INNER.set(inner or _INNER.get())
    try:
        yield
    finally:
        _INNER.reset(token)


def smoothing(each: Fit) -> NDArray[np.float64]:
    """(4,): segments, positives, negatives, and how many positives Platt's targets add to these."""
    n_pos, n_neg = (np.asarray(x, np.float64) for x in jax.device_get((each.n_pos, each.n_neg)))
    added = n_neg / (n_neg + 2) - n_pos / (n_pos + 2)
    return np.array([n_pos.size, *map(np.nansum, (n_pos, n_neg, added))])


def report_few_rows(
    smoothing: NDArray[np.float64], options: Options, caller: Caller, of: str = "segments"
) -> None:
    """Warns where the sum of Platt's targets is too far from the count of a class.

    A curve with an intercept predicts as many positives as its targets add up to. Segments with
    many rows and few positives, or few rows of any kind, each add up to one more.
    """
    segments, n_pos, n_neg, added = smoothing.tolist()
    if options.targets != "platt" or segments < _ENOUGH_SEGMENTS or _INNER.get():
        return
    for kind, count, bias in (("positives", n_pos, added), ("negatives", n_neg, -added)):
        if bias > _EXCESS * count:
            caller.warn(
                f"{of}: {count:,.0f} {kind}, but Platt's targets of so few rows by segment add up "
                f'to {count + bias:,.0f}, and predictions to as many or more: see pooling="partial"'
            )


def size_dependence(
    population: Population, each: Fit, total: Callable[[Floats], Floats], caller: Caller
) -> list[str]:
    """The event to remember where curves depend on the number of rows; the caller is warned."""
    from platt_jax.population.sizes import depends_on_size

    rows = sum(map(np.asarray, jax.device_get((each.n_pos, each.n_neg))))
    dependent = depends_on_size(population, rows, total, None if _INNER.get() else caller)
    return [SIZES] if dependent else []


def with_pooled_curve(each: Fit, pooled: Fit) -> Fit:
    """The fit of all rows, repeated for each segment with the segment's own row counts."""
    alike: Fit = jax.tree.map(lambda x, leaf: np.broadcast_to(x, leaf.shape), pooled, each)
    return replace(alike, n_pos=each.n_pos, n_neg=each.n_neg)
