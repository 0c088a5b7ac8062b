"""What partially pooled calibrators remember of rows: each segment's likelihood, as a normal one.

New rows add to it (assumed-density filtering, Opper 1998): their likelihood is the normal one with
which the posterior has the mean and the covariance that it has with theirs. The population is then
estimated from all segments' anew.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.inference.earlier_fits import under
from platt_jax.inference.priors import at_places
from platt_jax.options import Options
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.estimate import renewed_population
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import normals
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population


def remembered(population: Population, forgetting: float) -> Likelihoods:
    """What is left of the segments' rows."""
    own = Likelihoods.from_arrays(population.likelihood_precision, population.likelihood_pull)
    return own.times(forgetting)


def learnt(
    population: Population,
    earlier: Likelihoods,
    place: NDArray[Any],
    rows: SegmentRows,
    options: Options,
    stage: Stage,
    caller: Caller,
) -> tuple[Fit, Likelihoods]:
    """The fits of new rows under what was known of their segments, and what is known by now.

    Args:
        population: of the segments.
        earlier: (K,) what is remembered.
        place: (J,) where the segments of the new rows are among these; -1 for those that are not.
        rows: the new ones.
        options: as in `fit_segments`.
        stage: as there.
        caller: is warned.
    """
    coordinates = earlier.coordinates(earlier.total)
    to = coordinates.matrix
    arrays = at_places(earlier.precision.matrices, place), at_places(earlier.pull, place)
    own = Likelihoods.from_arrays(*arrays).transformed(to)
    prior = own.under(normals(to @ population.mean, to @ population.covariance @ to.T))
    segments = StandardizedSegments(ChunkedSegments(rows, caller), coordinates, options)
    fit, of_rows = segments.learnt(prior, stage)
    of_both = own.plus(of_rows.times(np.asarray(fit.converged)))
    return fit, of_both.transformed(np.linalg.inv(to))


def renewed(fit: Fit, population: Population, likelihoods: Likelihoods) -> tuple[Fit, Population]:
    """The population that the segments have by now, and their fits under it."""
    now = renewed_population(population, likelihoods)
    return under(fit, population, 1, now), now
