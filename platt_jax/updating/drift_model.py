"""The population of a third period from those of two, by normal distributions of (A, B).

A segment's (A, B) in period t is m_t + x_t. The deviations x_t are Normal(0, S) between segments,
and the covariance of those of two consecutive periods is c S: a share c of their variance lasts.
For two periods this is x_t = u + v_t, with u ~ Normal(0, c S) the lasting part and
v_t ~ Normal(0, (1 - c) S) the part of one period. The covariance of the third period's deviations
with the first one's is c^2 S, as in an autoregression of order one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.results.averages import mean_probability
from platt_jax.results.population import Population
from platt_jax.results.probabilities import logit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.updating.priors import at_places

# Steps of matching the mean of sigmoids. Each at least halves the error, for any variance of the
# log-odds up to 20.
_STEPS = 50


class Period(NamedTuple):
    """The likelihood of K segments' deviations from the population's mean, in one period.

    The likelihood of a deviation x is exp(information' x - x' precision x / 2) times a constant.
    Both fields are 0 for segments without rows, or with a failed fit.
    """

    information: Floats  # (K, 2)
    precision: Floats  # (K, 2, 2)

    @classmethod
    def of(cls, calibrator: SegmentCalibrator, keys: NDArray[Any]) -> "Period":
        """The likelihoods of the segments `keys`, by a calibrator with a population."""
        population: Any = calibrator.population
        usable = np.asarray(calibrator.fit.converged)
        place = get_indexer(calibrator.keys[usable], split_columns(keys))
        precision = population.likelihood_precision[usable]
        information = population.likelihood_pull[usable] - precision @ population.mean
        return cls(*(at_places(x, place) for x in (information, precision)))

    def learnt(self, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """The normal distribution of the deviations after this period, given the one before."""
        gain = np.linalg.inv(np.eye(2) + covariance @ self.precision)
        covariance = gain @ covariance
        return _times(gain, mean) + _times(covariance, self.information), covariance


def next_population(
    both: tuple[SegmentCalibrator, SegmentCalibrator],
    periods: Sequence[Period],
    weight: Floats,
    share: float,
    ahead: float,
) -> Population:
    """The population of a future period, with its segments.

    Args:
        both: calibrators of the two periods.
        periods: likelihoods of the K segments in each period.
        weight: (2,) weights of the periods in common means.
        share: share of the variance that lasts from one period to the next.
        ahead: distance of the future period, in periods.
    """
    populations: list[Any] = [x.population for x in both]
    means = np.stack([x.mean for x in populations])
    covariance = np.einsum("t,tij->ij", weight, [x.covariance for x in populations])
    number = len(periods[0].information)
    deviation, left = np.zeros((number, 2)), np.broadcast_to(covariance, (number, 2, 2))
    for period in periods:
        deviation, left = share * deviation, covariance - share**2 * (covariance - left)
        deviation, left = period.learnt(deviation, left)
    kept = share**ahead
    left = covariance - kept**2 * (covariance - left)
    pooled = np.stack([_pooled_mean(x, covariance) for x in both])
    mean = weight @ (kept * means + (1 - kept) * pooled)
    uncertain = uncertainty(weight, means, [x.mean_covariance for x in populations])
    errors = np.stack([x.covariance_errors for x in populations])
    known, prior_precision = np.linalg.inv(left), np.linalg.inv(covariance)
    population_share = np.trace(np.linalg.solve(covariance, left), axis1=1, axis2=2) / 2
    return Population(
        mean=mean,
        covariance=covariance,
        mean_covariance=uncertain,
        covariance_errors=np.sqrt(np.einsum("t,tij->ij", weight**2, errors**2)),
        status=max(x.status for x in populations),
        likelihood_precision=known - prior_precision,
        likelihood_pull=_times(known, mean + kept * deviation) - prior_precision @ mean,
        posterior_mean=mean + kept * deviation,
        posterior_covariance=left + uncertain,
        predictive_mean=mean,
        predictive_covariance=covariance + uncertain,
        shrinkage=np.clip(population_share, 0, 1),
    )


def _pooled_mean(calibrator: SegmentCalibrator, covariance: Floats) -> Floats:
    """(2,) mean of a normal (A, B) with this covariance and the pooled curve as its mean sigmoid.

    The two curves are equal at two scores, one standard deviation to each side of the mean, by the
    weights of the rows in the pooled fit.
    """
    information = np.linalg.inv(np.asarray(calibrator.fallback_covariance, float))
    center = information[0, 1] / information[1, 1]
    spread = np.sqrt(information[0, 0] / information[1, 1] - center**2)
    design = np.array([[center - spread, 1], [center + spread, 1]])
    sigmoid = calibrator.fallback
    target = -(design @ np.array([sigmoid.A, sigmoid.B], float))
    variance = np.einsum("ij,jk,ik->i", design, covariance, design)
    none, at = np.zeros(2), target
    for _ in range(_STEPS):
        mean = mean_probability(none, np.column_stack([none, -at, none, none, variance]))
        at = at + target - logit(mean)
    return -np.linalg.solve(design, at)


def uncertainty(weight: Floats, means: Floats, covariances: Sequence[Any]) -> Floats:
    """(2, 2) covariance of a weighted mean over both periods: its error plus their distance."""
    apart = means[1] - means[0]
    error = np.einsum("t,tij->ij", weight**2, np.asarray(covariances, float))
    return error + weight.prod() * np.outer(apart, apart)


def _times(matrices: NDArray[Any], vectors: NDArray[Any]) -> Floats:
    return (matrices @ vectors[..., None])[..., 0]
