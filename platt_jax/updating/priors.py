"""Fits as priors of later fits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.prior import GaussianPrior
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_sigmoids


def prior_from(
    calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator,
    keys: Column = None,
    *,
    forgetting: float = 1.0,
) -> GaussianPrior:
    """The information in a fit, as the prior of a fit of new rows.

    Near its optimum the objective is a quadratic with the fitted (A, B) as its mean and the Hessian
    as its precision (Laplace's approximation). The fit's own prior is part of it, so information
    accumulates over repeated fits; `update` does that. The prior is in the coordinates of the
    scores as given: if these lie a thousand times as far from 0 as they spread, rounding in float32
    removes all information from it.

    Args:
        calibrator: the earlier fit.
        keys: (J,) ids of the segments or classes to make priors for. For `fit_segments` these are
            the new rows' ids, distinct and ascending, as in `SegmentRows.keys`. None means the keys
            of the calibrator, or the problems of a Fit.
        forgetting: factor in (0, 1] for the weights of all earlier rows. It does not apply to a
            population: with its rows forgotten, a segment's prior is the population.

    Returns:
        A GaussianPrior with one mean and one precision per problem. With a population it is the
        segment's posterior, and the population itself for a key that was not fitted. Without one, a
        key that was not fitted and a fit that did not converge get mean 0 and precision 0, that is
        no prior.

    Raises:
        ValueError: forgetting is outside (0, 1]; keys are given for a Fit; keys are of another type
            than the fitted keys; or the calibrator has other curves than sigmoids.

    Example:
        >>> from platt_jax import SegmentRows, fit_segments
        >>> last_night = fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"])
        >>> rows = SegmentRows([1.5, -1.0, 1.0, 0.5], [1, 0, 1, 0], ["b", "b", "c", "c"])
        >>> tonight = fit_segments(rows, prior=prior_from(last_night, rows.keys))
        >>> tonight.keys.tolist()
        ['b', 'c']
    """
    if not 0 < forgetting <= 1:
        raise ValueError(f"forgetting: expected a number in (0, 1], got {forgetting!r}")
    if not isinstance(calibrator, Fit | SegmentCalibrator | OneVsRestCalibrator):
        raise ValueError(f"calibrator: expected a fit, got {named_with_part(calibrator)}")
    require_sigmoids(calibrator, "calibrator")
    where = None
    if isinstance(calibrator, Fit):
        if keys is not None:
            raise ValueError("keys: expected None for a Fit, whose problems have no ids")
    elif keys is not None:
        where = calibrator._places(keys, "keys")
    population = getattr(calibrator, "population", None)
    fit = calibrator if isinstance(calibrator, Fit) else calibrator.fit
    mean = np.stack([validation.array(x, "calibrator") for x in (fit.A, fit.B)], -1)
    precision = validation.array(fit.hessian, "calibrator")
    converged = validation.array(fit.converged, "calibrator")
    alone = converged
    if population is not None and population.estimated:
        alone = converged & population.left_out(fit.flags)
    mean = np.where(alone[..., None], mean, 0)
    precision = forgetting * np.where(alone[..., None, None], precision, 0)
    if where is not None:
        mean, precision, alone = (at_places(x, where) for x in (mean, precision, alone))
    if population is None or not population.estimated:
        return GaussianPrior(mean, precision)
    pooled = _posterior(population, where, forgetting)
    return GaussianPrior(
        np.where(alone[:, None], mean, pooled.mean),
        np.where(alone[:, None, None], precision, pooled.precision),
    )


def _posterior(
    population: Population, where: NDArray[Any] | None, forgetting: float
) -> GaussianPrior:
    """The posteriors of the segments at these places, with their rows discounted by `forgetting`.

    The population is not discounted.
    """
    precision, pull = population.likelihood_precision, population.likelihood_pull
    effects = population.means - population.mean
    prior_precision = population.prior.precision
    if where is not None:
        if population.covariates is not None and (where < 0).any():
            raise ValueError(
                "keys: expected segments whose covariates are known, got others; add them by "
                "calibrator.with_segments"
            )
        precision, pull, effects = (at_places(x, where) for x in (precision, pull, effects))
    precision = forgetting * precision + prior_precision
    pull = forgetting * pull + (population.mean + effects) @ prior_precision
    return GaussianPrior(np.linalg.solve(precision, pull[..., None])[..., 0], precision)


def at_places(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """The values (K, ...) at these places, and 0 where a place is -1; K may be 0."""
    nothing = np.zeros_like(values, shape=(1, *values.shape[1:]))
    return np.concatenate([values, nothing])[places]
