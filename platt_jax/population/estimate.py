"""The population by maximum marginal likelihood, and the distributions of its segments."""

from dataclasses import replace
from functools import partial

import numpy as np

from platt_jax.execution.progress import Listener, Stage
from platt_jax.options import Options
from platt_jax.population.integral import Known, over_populations
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import fine, normals
from platt_jax.population.search import Estimate, covariance_errors, estimated
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.status import Flag, Status

# Standard deviations of the population at the start.
START_SPREAD = 0.5
# Minimum information of all rows about each direction of (A, B), to estimate the population anew.
_LITTLE = 1e-3


def estimable(pooled: Fit) -> bool:
    """Whether the fit of all rows is one that segments can differ from."""
    flagged = pooled.flags & (Flag.ONE_CLASS | Flag.CONSTANT_SCORES)
    return bool(pooled.status == Status.CONVERGED and not flagged)


def estimate_population(
    segments: Segments, pooled: Fit, options: Options, progress: bool | Listener = False
) -> tuple[Fit | None, Population]:
    """The fit of each segment with the population as prior, and the population.

    The fit is None if there is no population to estimate.

    Args:
        segments: the segments of the population.
        pooled: the fit of all rows, without leading axes.
        options: how to fit; `targets` is ignored, and labels are used as they are.
        progress: see `fit_segments`.
    """
    number = segments.total(np.array([len(segments.keys)], float))[0]
    if number < 2 or not estimable(pooled):
        return None, Population.not_estimated(len(segments.keys))
    options = replace(options, targets="none")
    coordinates = segments.coordinates(options)
    standardized = StandardizedSegments(segments, coordinates, options)
    mean = coordinates.matrix @ np.array([pooled.A, pooled.B], float)
    population = normals(mean, START_SPREAD**2 * np.eye(2))
    fit = standardized.modes(population, None, Stage.of(progress, "first fit", last=False))
    found = estimated(standardized, population, standardized.around(fit, population), progress)
    at = found.at
    integrated = partial(over_populations, certain=found.certain, total=segments.total)
    known = integrated(at.likelihoods, found.population)
    if not found.certain:
        # If the spread is small, posteriors only show the likelihoods near the population's mean.
        # So they are computed again under the widest plausible population.
        wide = normals(known.new_mean, known.new_covariance)
        stage = Stage.of(progress, "population, uncertainty", last=False)
        at = at.under(standardized, fine(number), wide, stage)
        known = integrated(at.likelihoods, found.population)
    start = found.at.likelihoods.under(found.population).mean
    fit = standardized.modes(found.population, start, Stage.of(progress))
    return fit, _result(found, at.likelihoods, known, coordinates)


def tell_of_population(likelihoods: Likelihoods) -> bool:
    """Whether likelihoods of segments, in standardized coordinates, say enough of a population."""
    of_all = likelihoods.precision.matrices.sum(0)
    informed = np.count_nonzero(likelihoods.precision.BB)
    return bool(informed >= 2 and np.linalg.eigvalsh(of_all)[0] >= _LITTLE)


def _result(
    found: Estimate, likelihoods: Likelihoods, known: Known, coordinates: Coordinates
) -> Population:
    """The population in the coordinates of the original scores."""
    back = np.linalg.inv(coordinates.matrix)
    root, spread = back @ found.population.factor, found.spread
    left = np.linalg.solve(
        found.population.covariance, likelihoods.under(found.population).covariance
    )
    own = likelihoods.transformed(back)
    return Population(
        mean=back @ found.population.mean,
        covariance=root @ root.T,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=covariance_errors(root, spread[2:, 2:]),
        status=found.status,
        likelihood_precision=own.precision.matrices,
        likelihood_pull=own.pull,
        posterior_mean=known.mean @ back.T,
        posterior_covariance=back @ known.covariance @ back.T,
        predictive_mean=back @ known.new_mean,
        predictive_covariance=back @ known.new_covariance @ back.T,
        shrinkage=np.clip(np.trace(left, axis1=1, axis2=2) / 2, 0, 1),
    )


def unchanged_population(population: Population, likelihoods: Likelihoods) -> Population:
    """The same population, with segments of these likelihoods, which say almost nothing of it."""
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
