"""Fits as priors of the fits to come."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column
from platt_jax.ids.factorize import ascending, get_indexer
from platt_jax.model.prior import GaussianPrior
from platt_jax.results.calibrators import OneVsRestCalibrator, SegmentCalibrator
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population


def prior_from(
    calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator,
    keys: Column = None,
    *,
    forgetting: float = 1.0,
) -> GaussianPrior:
    """What a fit has learnt, as the prior of a fit of new rows: last night's for tonight.

    Near its optimum the objective is a quadratic with the fitted (A, B) as its mean and the Hessian
    as its precision (Laplace's approximation). A prior that the fit itself had is part of it, so
    that night after night adds to what is known; `update` does that. The coordinates are those of
    the scores as they come: where these lie a thousand times as far from 0 as they spread, float32
    leaves nothing of such a prior.

    Args:
        calibrator: the earlier fit.
        keys: the segments or classes to give priors for, (J,) ids: those of the new rows, for
            `fit_segments` distinct and ascending, as `SegmentRows.keys`. None means those of the
            calibrator, or a Fit's problems.
        forgetting: in (0, 1], what the weights of all earlier rows are multiplied by. A population
            is not forgotten: without its rows a segment's prior is that.

    Returns:
        A GaussianPrior with one mean and one precision per problem. With a population it is the
        posterior given that, for a key that the calibrator does not have the population itself.
        Without one, such a key and a fit that did not converge get mean 0 and precision 0, which is
        no prior.

    Raises:
        ValueError: a forgetting outside (0, 1], keys for a Fit, or keys of another kind than those
            fitted.

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
        raise ValueError(f"calibrator: expected a fit, got {type(calibrator).__name__}")
    where = None if keys is None else _places(calibrator, keys)
    population = getattr(calibrator, "population", None)
    if population is not None and population.estimated:
        return _posterior(population, where, forgetting)
    fit = calibrator if isinstance(calibrator, Fit) else calibrator.fit
    mean = np.stack([validation.array(x, "calibrator") for x in (fit.A, fit.B)], -1)
    precision = validation.array(fit.hessian, "calibrator")
    known = validation.array(fit.converged, "calibrator")
    if where is not None:
        mean, precision, known = (at_places(x, where) for x in (mean, precision, known))
    return GaussianPrior(
        np.where(known[..., None], mean, 0),
        forgetting * np.where(known[..., None, None], precision, 0),
    )


def _posterior(
    population: Population, where: NDArray[Any] | None, forgetting: float
) -> GaussianPrior:
    """Of the segments at these places, given what is left of their rows.

    The population is not forgotten.
    """
    precision, pull = population.likelihood_precision, population.likelihood_pull
    if where is not None:
        precision, pull = at_places(precision, where), at_places(pull, where)
    of_all = population.prior.precision
    precision = forgetting * precision + of_all
    pull = forgetting * pull + of_all @ population.mean
    return GaussianPrior(np.linalg.solve(precision, pull[..., None])[..., 0], precision)


def at_places(values: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """The values (K, ...) at these places, and 0 at -1; K may be 0."""
    nothing = np.zeros_like(values, shape=(1, *values.shape[1:]))
    found: NDArray[Any] = np.concatenate([values, nothing])[places]
    return found


def _places(
    calibrator: Fit | SegmentCalibrator | OneVsRestCalibrator, keys: Column
) -> NDArray[Any]:
    """Where the fits of these keys are, -1 for those that have none."""
    keys = ids.read(keys, "keys")
    if isinstance(calibrator, Fit):
        raise ValueError("keys: expected None for a Fit, whose problems have no ids")
    if isinstance(calibrator, SegmentCalibrator):
        return get_indexer(calibrator.keys, keys, "keys")
    ordered, place = ascending(calibrator.classes)
    found = get_indexer(ordered, keys, "keys")
    return np.where(found < 0, -1, np.argsort(place)[found])
