"""Updates of partially pooled calibrators, which keep a normal likelihood of each segment's rows.

New rows are added to it by assumed-density filtering (Opper 1998): their normal likelihood is the
one that gives the posterior the mean and covariance that the rows give it. The population is then
estimated anew from the likelihoods of all segments.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.inference.earlier_fits import chosen, under
from platt_jax.inference.priors import at_places
from platt_jax.options import Options
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.estimate import renewed_population
from platt_jax.population.level_fitting import refit_levels
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import Normals, normals
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.fit import Fit
from platt_jax.results.levels import Levels
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator


def remembered(population: Population, forgetting: float) -> Likelihoods:
    """The likelihoods of the segments' earlier rows, discounted by `forgetting`."""
    own = Likelihoods.from_arrays(population.likelihood_precision, population.likelihood_pull)
    return own.times(forgetting)


def learnt(
    calibrator: SegmentCalibrator,
    earlier: Likelihoods,
    place: NDArray[Any],
    rows: SegmentRows,
    options: Options,
    stage: Stage,
    caller: Caller,
) -> tuple[Fit, Likelihoods]:
    """The fits of new rows given the earlier ones, and the likelihoods of both.

    Args:
        calibrator: the calibrator of the earlier rows, with a population.
        earlier: (K,) likelihoods of the earlier rows.
        place: (J,) index of each new row's segment among these; -1 if it is not there.
        rows: the new rows.
        options: as in `fit_segments`.
        stage: the stage whose progress is reported.
        caller: where warnings point.
    """
    coordinates = earlier.coordinates(earlier.total)
    to = coordinates.matrix
    arrays = at_places(earlier.precision.matrices, place), at_places(earlier.pull, place)
    own = Likelihoods.from_arrays(*arrays).transformed(to)
    prior = _prior(calibrator, own, rows.keys, place, to)
    segments = StandardizedSegments(ChunkedSegments(rows, caller), coordinates, options)
    fit, of_rows = segments.learnt(prior, stage)
    of_both = own.plus(of_rows.times(np.asarray(fit.converged)))
    return fit, of_both.transformed(np.linalg.inv(to))


def _prior(
    calibrator: SegmentCalibrator,
    own: Likelihoods,
    keys: NDArray[Any],
    place: NDArray[Any],
    to: NDArray[np.float64],
) -> Normals:
    """What is known of the segments (J,) before the new rows, in the coordinates of `to`.

    Args:
        calibrator: the calibrator of the earlier rows.
        own: (J,) the likelihoods of the earlier rows, in these coordinates.
        keys: (J,) the segments.
        place: (J,) their places in the calibrator; -1 for new ones.
        to: (2, 2), maps (A, B) to the coordinates.
    """
    population: Any = calibrator.population
    if calibrator.by_level is None:
        return own.under(normals(to @ population.mean, to @ population.covariance @ to.T))
    mean, covariance = calibrator.by_level.curves(keys)
    seen = place >= 0
    mean[seen] = population.posterior_mean[place[seen]]
    covariance[seen] = population.posterior_covariance[place[seen]]
    return normals(mean @ to.T, to @ covariance @ to.T)


def renewed(
    fit: Fit, calibrator: SegmentCalibrator, keys: NDArray[Any], likelihoods: Likelihoods
) -> tuple[Fit, Population, Levels | None]:
    """The population and the levels estimated from all likelihoods, and the fits under it."""
    population: Any = calibrator.population
    if calibrator.by_level is None:
        now = renewed_population(population, likelihoods)
        return under(fit, population, 1, now), now, None
    now, levels = refit_levels(keys, calibrator.by_level.kind, fit, likelihoods, population.mean)
    return _at_posterior(fit, now), now, levels


def _at_posterior(fit: Fit, population: Population) -> Fit:
    """Fits at their posterior means, which are the modes of normal densities."""
    dtype, covariance = fit.A.dtype, population.posterior_covariance
    A, B = population.posterior_mean.T.astype(dtype)
    hessian = np.linalg.inv(covariance).astype(dtype)
    moved = replace(fit, A=A, B=B, hessian=hessian, covariance=covariance.astype(dtype))
    return chosen(np.asarray(fit.converged), moved, fit)
