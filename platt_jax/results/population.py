"""The population that segments are a sample of."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.model.prior import GaussianPrior
from platt_jax.results.averages import mean_probability
from platt_jax.results.equality import ComparedByValue


class PopulationStatus(IntEnum):
    """How the estimate of a population ended. `message` says what it means."""

    CONVERGED = 0
    MAX_ITERATIONS = 1
    BOUNDARY = 2
    NOT_ESTIMATED = 3

    @property
    def message(self) -> str:
        """What happened, and what to do."""
        return _MESSAGES[self]


_MESSAGES = {
    PopulationStatus.CONVERGED: "The optimum was found.",
    PopulationStatus.MAX_ITERATIONS: (
        "Stopped before the optimum: the rows say little of the population. Give more rows, or "
        "fewer segments."
    ),
    PopulationStatus.BOUNDARY: (
        "The segments differ by no more than chance in at least one direction of (A, B): there the "
        "covariance is all but 0, and all segments have nearly the population's value."
    ),
    PopulationStatus.NOT_ESTIMATED: (
        "There is no population to estimate: fewer than two segments, one class only, scores that "
        "are all the same, or a pooled fit that failed. All segments have the pooled curve."
    ),
}

# Where the median shrinkage is no more than this, pooling hardly changes any curve.
_LITTLE = 0.05


@dataclass(frozen=True, eq=False, repr=False)
class Population(ComparedByValue):
    """(A, B) of a segment drawn at random is Normal(mean, covariance).

    Where the status is NOT_ESTIMATED all other fields are NaN, and the shrinkage is 1.

    Attributes:
        mean: (2,), of (A, B).
        covariance: (2, 2), of (A, B) between segments.
        mean_covariance: (2, 2), of the estimate of the mean.
        covariance_errors: (2, 2), standard errors of the covariance; at a BOUNDARY with the
            direction held in which it is all but 0.
        status: a `PopulationStatus`.
        likelihood_precision: (K, 2, 2), what the rows of each segment say of its (A, B), as a
            normal distribution: its precision, 0 without rows.
        likelihood_pull: (K, 2), the precision times the mean.
        posterior_mean: (K, 2), each segment's, given all rows: the population's own uncertainty is
            counted in.
        posterior_covariance: (K, 2, 2), given all rows, too.
        predictive_mean: (2,), of a segment never seen.
        predictive_covariance: (2, 2), of the same: the spread between segments, what is not known
            of it, and the error of the mean.
        shrinkage: (K,) from 0, by its own rows alone, to 1, by the population alone: the
            posterior's variance over the population's, on average of the two directions.
    """

    mean: NDArray[Any]
    covariance: NDArray[Any]
    mean_covariance: NDArray[Any]
    covariance_errors: NDArray[Any]
    status: PopulationStatus
    likelihood_precision: NDArray[Any]
    likelihood_pull: NDArray[Any]
    posterior_mean: NDArray[Any]
    posterior_covariance: NDArray[Any]
    predictive_mean: NDArray[Any]
    predictive_covariance: NDArray[Any]
    shrinkage: NDArray[Any]

    @classmethod
    def not_estimated(cls, segments: int) -> "Population":
        """What stands for the population of so many segments where there is no estimating it."""
        return cls(
            mean=np.full(2, np.nan),
            covariance=np.full((2, 2), np.nan),
            mean_covariance=np.full((2, 2), np.nan),
            covariance_errors=np.full((2, 2), np.nan),
            status=PopulationStatus.NOT_ESTIMATED,
            likelihood_precision=np.full((segments, 2, 2), np.nan),
            likelihood_pull=np.full((segments, 2), np.nan),
            posterior_mean=np.full((segments, 2), np.nan),
            posterior_covariance=np.full((segments, 2, 2), np.nan),
            predictive_mean=np.full(2, np.nan),
            predictive_covariance=np.full((2, 2), np.nan),
            shrinkage=np.ones(segments),
        )

    def only(self, where: NDArray[np.bool_]) -> "Population":
        """The same population, with what is each segment's of some segments."""
        likelihood = "likelihood_precision", "likelihood_pull"
        of_each = (*likelihood, "posterior_mean", "posterior_covariance", "shrinkage")
        return replace(self, **{name: getattr(self, name)[where] for name in of_each})

    @property
    def estimated(self) -> bool:
        """Whether there is one; False where the status is NOT_ESTIMATED."""
        return self.status != PopulationStatus.NOT_ESTIMATED

    @property
    def prior(self) -> GaussianPrior:
        """The population as the prior of a segment's (A, B); labels are then used as they are."""
        return GaussianPrior(self.mean, np.linalg.inv(self.covariance))

    @property
    def mean_errors(self) -> NDArray[Any]:
        """(2,), standard errors of the mean."""
        errors: NDArray[Any] = np.sqrt(np.diag(self.mean_covariance))
        return errors

    def __repr__(self) -> str:
        if not self.estimated:
            return f"Population: NOT_ESTIMATED. {self.status.message}"
        of_A, of_B = (
            f"mean {mean:.4g} (standard error {error:.2g}), standard deviation {variance**0.5:.4g}"
            for mean, error, variance in zip(
                self.mean, self.mean_errors, np.diag(self.covariance), strict=True
            )
        )
        number = len(self.shrinkage)
        lines = [
            f"Population of {number:,} segments, {self.status.name}",
            f"A: {of_A}",
            f"B: {of_B}",
        ]
        if number:
            median = np.median(self.shrinkage)
            lines.append(f"shrinkage: median {median:.2f}; {_gain(median)}")
        return "\n  ".join(lines)

    def predict_proba(self, scores: Column) -> NDArray[np.float64]:
        """P(y=1 | score) of a segment never seen: the mean of its probability over the population.

        Args:
            scores: (...) numbers.

        Returns:
            (...) in [0, 1], in float64.
        """
        scores = validation.numbers(scores, "scores").astype(np.float64)
        normal = np.append(self.predictive_mean, self.predictive_covariance.ravel()[[0, 1, 3]])
        of_each = np.broadcast_to(normal, (scores.size, 5))
        return mean_probability(scores.ravel(), of_each).reshape(scores.shape)


def _gain(shrinkage: float) -> str:
    """What there is to gain by pooling, in words."""
    if shrinkage < _LITTLE:
        return "most segments have rows enough of their own, and nothing to gain"
    if shrinkage > 1 - _LITTLE:
        return "most segments have hardly anything of their own to tell"
    return "most segments gain by pooling"
