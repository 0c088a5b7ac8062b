"""What two periods say of a third: normal distributions of segments' (A, B), and algebra on them.

A segment's (A, B) in period t is m_t + x_t. The deviations x_t are Normal(0, S) between segments,
and those of two consecutive periods have the covariance c S: a share c of their variance lasts.
For two periods this is x_t = u + v_t with u ~ Normal(0, c S) for what lasts and
v_t ~ Normal(0, (1 - c) S) for what is of one period. In the third period c^2 S is left of the first
one's, as in an autoregression of order one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.ids.factorize import get_indexer, split_columns
from platt_jax.inference.priors import at_places
from platt_jax.results.averages import mean_probability
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.population import Population
from platt_jax.results.probabilities import logit

_Array = NDArray[np.float64]

# The mean of sigmoids is matched in so many steps; what is left falls by half with each, or faster,
# for any variance of the log-odds up to 20.
_STEPS = 50


class Period(NamedTuple):
    """What a period says of K segments' deviations from its population's mean.

    The likelihood of a deviation x is exp(information' x - x' precision x / 2) times a constant;
    both are 0 of segments without rows, or with a failed fit.
    """

    information: _Array  # (K, 2)
    precision: _Array  # (K, 2, 2)

    @classmethod
    def of(cls, calibrator: SegmentCalibrator, keys: NDArray[Any]) -> "Period":
        """Given a calibrator with a population, of its segments among the keys."""
        population: Any = calibrator.population
        usable = np.asarray(calibrator.fit.converged)
        place = get_indexer(calibrator.keys[usable], split_columns(keys))
        precision = population.likelihood_precision[usable]
        information = population.likelihood_pull[usable] - precision @ population.mean
        return cls(*(at_places(x, place) for x in (information, precision)))

    def learnt(self, mean: _Array, covariance: _Array) -> tuple[_Array, _Array]:
        """A normal distribution of the deviations with what this period adds to it."""
        unlearnt = np.linalg.inv(np.eye(2) + covariance @ self.precision)
        covariance = unlearnt @ covariance
        return _times(unlearnt, mean) + _times(covariance, self.information), covariance


def next_population(
    both: tuple[SegmentCalibrator, SegmentCalibrator],
    periods: Sequence[Period],
    weight: _Array,
    share: float,
    ahead: float,
) -> Population:
    """The population so far ahead, and its segments there.

    Args:
        both: calibrators.
        periods: what each says of the K segments.
        weight: (2,), of each in what they say together.
        share: what lasts from one period to the next.
        ahead: in such steps.
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
    known, of_all = np.linalg.inv(left), np.linalg.inv(covariance)
    of_population = np.trace(np.linalg.solve(covariance, left), axis1=1, axis2=2) / 2
    return Population(
        mean=mean,
        covariance=covariance,
        mean_covariance=uncertain,
        covariance_errors=np.sqrt(np.einsum("t,tij->ij", weight**2, errors**2)),
        status=max(x.status for x in populations),
        likelihood_precision=known - of_all,
        likelihood_pull=_times(known, mean + kept * deviation) - of_all @ mean,
        posterior_mean=mean + kept * deviation,
        posterior_covariance=left + uncertain,
        predictive_mean=mean,
        predictive_covariance=covariance + uncertain,
        shrinkage=np.clip(of_population, 0, 1),
    )


def _pooled_mean(calibrator: SegmentCalibrator, covariance: _Array) -> _Array:
    """(2,), of the normal (A, B) of this covariance whose mean sigmoid is that of all rows.

    At two scores, one standard deviation to each side of the mean, by the weights that the rows
    have in the pooled fit.
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
    solved: _Array = -np.linalg.solve(design, at)
    return solved


def uncertainty(weight: _Array, means: _Array, covariances: Sequence[Any]) -> _Array:
    """(2, 2), of a mean of both periods by these weights: its error, and how far they lie apart."""
    apart = means[1] - means[0]
    error = np.einsum("t,tij->ij", weight**2, np.asarray(covariances, float))
    total: _Array = error + weight.prod() * np.outer(apart, apart)
    return total


def _times(matrices: NDArray[Any], vectors: NDArray[Any]) -> _Array:
    product: _Array = (matrices @ vectors[..., None])[..., 0]
    return product
