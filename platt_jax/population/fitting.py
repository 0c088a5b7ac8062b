"""The fit of all segments, for rows in any place: the code behind every `fit_segments`."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.execution.caller import ARE_NAN, Caller, report_non_finite
from platt_jax.execution.given import problem_inputs, shared_prior
from platt_jax.execution.progress import Listener, Stage
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.estimate import estimable, estimate_population
from platt_jax.population.level_fitting import fit_levels, levels_of
from platt_jax.population.segments import Segments
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator, with_posterior_covariance
from platt_jax.status import Status

_ONE_CURVE = "all segments have the curve of all rows"
_WITHOUT_BAD_ROWS = "the curve of all rows is fitted without these"


def fit_by_segment(
    segments: Segments,
    prior: GaussianPrior | None,
    start: tuple[Column, Column] | None,
    pooling: Pooling,
    options: Options,
    progress: bool | Listener,
    caller: Caller,
) -> SegmentCalibrator:
    """`platt_jax.fit_segments` for these segments, with its arguments and a caller for warnings."""
    options = validation.options(options)
    validation.pooling(pooling, prior, start, options)
    given = problem_inputs(segments.keys.shape, segments.dtype, prior, start)
    shared = problem_inputs((1,), segments.dtype, shared_prior(prior))
    each: Any = None
    population = by_level = None
    if levelled := pooling in ("nested", "crossed"):
        values = levels_of(segments.keys, pooling)
    if pooling == "partial" or levelled:
        pooled = segments.pooled(shared, options, Stage.of(progress, "pooled fit", last=False))
        if not levelled:
            each, population = estimate_population(segments, pooled, options, progress)
        elif estimable(pooled):
            each, population, by_level = fit_levels(
                segments, values, pooling, pooled, options, progress
            )
        else:
            population = Population.not_estimated(len(segments.keys))
    one_curve = each is None and pooling != "none"
    if each is None:
        each, pooled = segments.both(given, shared, options, Stage.of(progress))
    consequence = _WITHOUT_BAD_ROWS if one_curve else ARE_NAN
    report_non_finite(each, options, "segments", segments.keys, caller, consequence)
    if one_curve:
        each = with_pooled_curve(each, pooled)
    if population is not None:
        report_search(population, caller)
    covariance: Any = pooled.covariance  # NumPy's, from a fit on the host
    return SegmentCalibrator(
        segments.keys,
        with_posterior_covariance(each, population),
        pooled.sigmoid,
        covariance,
        "complete" if one_curve else pooling,
        population,
        by_level,
        options=options,
    )


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


def with_pooled_curve(each: Fit, pooled: Fit) -> Fit:
    """The fit of all rows, repeated for each segment with the segment's own row counts."""
    alike: Fit = jax.tree.map(lambda x, own: np.broadcast_to(x, own.shape), pooled, each)
    return replace(alike, n_pos=each.n_pos, n_neg=each.n_neg)
