"""The population, by maximum marginal likelihood, and what is known of its segments."""

from dataclasses import replace

import numpy as np

from platt_jax.execution.progress import Listener, stage
from platt_jax.options import Options
from platt_jax.population.integral import Known, over_populations
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import FINE, normals
from platt_jax.population.rows import Coordinates, PopulationRows
from platt_jax.population.search import Estimate, estimated
from platt_jax.population.segments import Segments
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.status import Flag, Status

START_SPREAD = 0.5
# Rows of all segments that tell less than this of a direction of (A, B) tell nothing.
_LITTLE = 1e-3


def estimate_population(
    rows: PopulationRows, pooled: Fit, options: Options, progress: bool | Listener = False
) -> tuple[Fit | None, Population]:
    """The fit of each segment under the population as its prior, and the population.

    No fit where there is no population to estimate.

    Args:
        rows: of the segments.
        pooled: the fit of all rows, without leading axes.
        options: how to fit; but labels are used as they are.
        progress: as in `fit_segments`.
    """
    flagged = pooled.flags & (Flag.ONE_CLASS | Flag.CONSTANT_SCORES)
    if rows.number < 2 or pooled.status != Status.CONVERGED or flagged:
        return None, Population.not_estimated(rows.number)
    options = replace(options, targets="none")
    coordinates = rows.coordinates(options)
    segments = Segments(rows, coordinates, options)
    mean = coordinates.matrix @ np.array([pooled.A, pooled.B], float)
    population = normals(mean, START_SPREAD**2 * np.eye(2))
    fit = segments.modes(population, None, stage(progress, "first fit", last=False))
    found = estimated(segments, population, segments.around(fit, population), progress)
    at, known = found.at, over_populations(found.at.likelihoods, found.population, found.certain)
    if not found.certain:
        # Posteriors under a population of little spread tell how the likelihoods are near its mean:
        # they are taken again under one that is as wide as it may be.
        wide = normals(known.new_mean, known.new_covariance)
        told = stage(progress, "population, uncertainty", last=False)
        at = at.under(segments, FINE, wide, told)
        known = over_populations(at.likelihoods, found.population, found.certain)
    start = found.at.likelihoods.under(found.population).mean
    fit = segments.modes(found.population, start, stage(progress))
    return fit, _result(found, at.likelihoods, known, coordinates)


def renewed_population(population: Population, likelihoods: Likelihoods) -> Population:
    """The population that segments have by now, by what is remembered of their rows.

    It stays as it is where these do not tell of it.

    Args:
        population: as it was.
        likelihoods: of the segments.
    """
    coordinates = likelihoods.coordinates
    to = coordinates.matrix
    of_all = likelihoods.transformed(to).precision.matrices.sum(0)
    if np.count_nonzero(likelihoods.precision.BB) < 2 or np.linalg.eigvalsh(of_all)[0] < _LITTLE:
        return _posterior(population, likelihoods)
    start = normals(to @ population.mean, to @ population.covariance @ to.T)
    likelihoods = likelihoods.transformed(to)
    found = estimated(likelihoods, start, likelihoods.under(start))
    known = over_populations(likelihoods, found.population, found.certain)
    return _result(found, likelihoods, known, coordinates)


def _result(
    found: Estimate, likelihoods: Likelihoods, known: Known, coordinates: Coordinates
) -> Population:
    """The population in the coordinates of the scores as they came."""
    back = np.linalg.inv(coordinates.matrix)
    root, spread = back @ found.population.factor, found.spread
    # By the entries of the covariance's factor, R at R = I: of F R R' F' with dR lower triangular.
    directions = [
        root @ (d + d.T) @ root.T
        for d in (np.diag([1.0, 0]), np.array([[0.0, 0], [1, 0]]), np.diag([0, 1.0]))
    ]
    by_factor = np.stack([d.ravel() for d in directions], -1)
    of_covariance = by_factor @ spread[2:, 2:] @ by_factor.T
    left = np.linalg.solve(
        found.population.covariance, likelihoods.under(found.population).covariance
    )
    own = likelihoods.transformed(back)
    return Population(
        mean=back @ found.population.mean,
        covariance=root @ root.T,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=np.sqrt(np.maximum(np.diag(of_covariance), 0)).reshape(2, 2),
        status=found.status,
        likelihood_precision=own.precision.matrices,
        likelihood_pull=own.pull,
        posterior_mean=known.mean @ back.T,
        posterior_covariance=back @ known.covariance @ back.T,
        predictive_mean=back @ known.new_mean,
        predictive_covariance=back @ known.new_covariance @ back.T,
        shrinkage=np.clip(np.trace(left, axis1=1, axis2=2) / 2, 0, 1),
    )


def _posterior(population: Population, likelihoods: Likelihoods) -> Population:
    """The same population, of segments whose rows tell next to nothing of it."""
    prior = normals(population.predictive_mean, population.predictive_covariance)
    posterior = likelihoods.under(prior)
    return replace(
        population,
        likelihood_precision=likelihoods.precision.matrices,
        likelihood_pull=likelihoods.pull,
        posterior_mean=posterior.mean,
        posterior_covariance=posterior.covariance,
        shrinkage=np.ones(len(likelihoods.pull_A)),
    )
