"""The population that segments are a sample of."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from numpy.typing import NDArray

from platt_jax import validation, xla
from platt_jax.columns import Column
from platt_jax.model.objective import Array
from platt_jax.model.prior import GaussianPrior
from platt_jax.results.fit import ComparedByValue
from platt_jax.results.probabilities import variance_of_logit


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
    PopulationStatus.MAX_ITERATIONS: "Stopped before the optimum; the estimate is near it.",
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

# The logistic distribution as a mixture of normal ones, to 2e-9 (Monahan & Stefanski 1992, "Normal
# scale mixture approximations to F*(z) and computation of the logistic-normal integral").
_SHARES = (
    *(0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818),
    *(0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354),
)
_PRECISIONS = (
    *(1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391),
    *(0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306),
)


@dataclass(frozen=True, eq=False, repr=False)
class Population(ComparedByValue):
    """(A, B) of a segment drawn at random is Normal(mean, covariance).

    Where the status is NOT_ESTIMATED all other fields are NaN, and the shrinkage is 1.

    Attributes:
        mean: (2,), of (A, B).
        covariance: (2, 2), of (A, B) between segments.
        mean_covariance: (2, 2), of the estimate of the mean.
        covariance_errors: (2, 2), standard errors of the covariance.
        status: a `PopulationStatus`.
        posterior_mean: (K, 2), each segment's, given its rows and the population.
        posterior_covariance: (K, 2, 2), likewise.
        shrinkage: (K,) from 0, by its own rows alone, to 1, by the population alone: the
            posterior's variance over the population's, on average of the two directions.
    """

    mean: NDArray[Any]
    covariance: NDArray[Any]
    mean_covariance: NDArray[Any]
    covariance_errors: NDArray[Any]
    status: PopulationStatus
    posterior_mean: NDArray[Any]
    posterior_covariance: NDArray[Any]
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
            posterior_mean=np.full((segments, 2), np.nan),
            posterior_covariance=np.full((segments, 2, 2), np.nan),
            shrinkage=np.ones(segments),
        )

    def only(self, where: NDArray[np.bool_]) -> "Population":
        """The same population, with what is each segment's of some segments."""
        of_each = ("posterior_mean", "posterior_covariance", "shrinkage")
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

    @property
    def predictive_covariance(self) -> NDArray[Any]:
        """(2, 2), of (A, B) of a segment never seen, the spread and the error of the mean."""
        covariance: NDArray[Any] = self.covariance + self.mean_covariance
        return covariance

    def __repr__(self) -> str:
        if not self.estimated:
            return f"Population: NOT_ESTIMATED. {self.status.message}"
        of_A, of_B = (
            f"mean {mean:.4g} (standard error {error:.2g}), standard deviation {variance**0.5:.4g}"
            for mean, error, variance in zip(
                self.mean, self.mean_errors, np.diag(self.covariance), strict=True
            )
        )
        number, median = len(self.shrinkage), np.median(self.shrinkage)
        return (
            f"Population of {number:,} segments, {self.status.name}\n  A: {of_A}\n  B: {of_B}\n"
            f"  shrinkage: median {median:.2f}; {_gain(median)}"
        )

    def predict_proba(self, scores: Column) -> NDArray[np.float64]:
        """P(y=1 | score) of a segment never seen: the mean of its probability over the population.

        Args:
            scores: (...) numbers.

        Returns:
            (...) in [0, 1], in float64.
        """
        scores = validation.numbers(scores, "scores").astype(np.float64)
        variance = variance_of_logit(scores, *self.predictive_covariance.ravel()[[0, 1, 3]])
        return mean_probability(-(self.mean[0] * scores + self.mean[1]), variance)


def _gain(shrinkage: float) -> str:
    """What there is to gain by pooling, in words."""
    if shrinkage < _LITTLE:
        return "most segments have rows enough of their own, and nothing to gain"
    if shrinkage > 1 - _LITTLE:
        return "most segments have hardly anything of their own to tell"
    return "most segments gain by pooling"


def mean_probability(logit: Array, variance: Array) -> NDArray[np.float64]:
    """The mean of 1 / (1 + exp(-x)) over x ~ Normal(logit, variance); float64, to 2e-9."""
    with jax.enable_x64(True):
        return np.asarray(_mean_probability(np.asarray(logit), np.asarray(variance)))


@xla.jit
def _mean_probability(logit: jax.Array, variance: jax.Array) -> Any:
    return sum(
        share * ndtr(scale * logit / jnp.sqrt(1 + scale * scale * variance))
        for share, scale in zip(_SHARES, _PRECISIONS, strict=True)
    )
