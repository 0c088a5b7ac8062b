"""What the rows of each segment say of its (A, B), as a normal distribution."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.quadrature import Posteriors
from platt_jax.population.symmetric import Symmetric


class Likelihoods(NamedTuple):
    """The segments' likelihoods of (A, B): normal, by precisions that may be singular."""

    precision: Symmetric  # (K,)
    # The precision times the mean.
    pull_A: NDArray[np.float64]  # (K,)
    pull_B: NDArray[np.float64]  # (K,)

    @classmethod
    def of(cls, posteriors: Posteriors) -> Self:
        """Those that make the posteriors under N(0, I) what they are, to their second moments.

        So the marginal likelihood of the population has the derivatives there that quadrature gives
        it (expectation propagation, Minka 2001).
        """
        precision = Symmetric.of(posteriors.covariance).inverse()
        own = precision.plus(-np.eye(2)).positive_part()
        return cls(own, *precision.times(*posteriors.mean.T))

    def under(
        self, mean: NDArray[np.float64], precision: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], Symmetric]:
        """The posteriors' means of A and of B, and their covariances, under a population.

        Args:
            mean: (2,) of the population.
            precision: (2, 2) likewise.
        """
        covariance = self.precision.plus(precision).inverse()
        at_A, at_B = precision @ mean
        return *covariance.times(self.pull_A + at_A, self.pull_B + at_B), covariance
