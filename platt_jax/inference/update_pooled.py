"""Updates of partially pooled calibrators, which keep a normal likelihood of each segment's rows.

New rows are added to it by assumed-density filtering (Opper 1998): their normal likelihood is the
one that gives the posterior the mean and covariance that the rows give it. The population is then
estimated anew from the likelihoods of all segments.
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
    """The likelihoods of the segments' earlier rows, discounted by `forgetting`."""
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
    """The fits of new rows given the earlier ones, and the likelihoods of both.

    Args:
        population: population of the segments.
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
    prior = own.under(normals(to @ population.mean, to @ population.covariance @ to.T))
    segments = StandardizedSegments(ChunkedSegments(rows, caller), coordinates, options)
    fit, of_rows = segments.learnt(prior, stage)
    of_both = own.plus(of_rows.times(np.asarray(fit.converged)))
    return fit, of_both.transformed(np.linalg.inv(to))


def renewed(fit: Fit, population: Population, likelihoods: Likelihoods) -> tuple[Fit, Population]:
    """The population estimated from all likelihoods, and the fits under it."""
    now = renewed_population(population, likelihoods)
    return under(fit, population, 1, now), now
