"""Normal distributions of (A, B): by their moments, and by the factors that nodes are made with.

The third form, natural parameters, is `likelihoods.Likelihoods`: its precision may be singular.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.population.places import namespace, program
from platt_jax.population.symmetric import Symmetric


class NormalMoments(NamedTuple):
    """Normal distributions of (A, B), of segments or of values of a level."""

    mean: NDArray[Any]  # (..., 2)
    covariance: NDArray[Any]  # (..., 2, 2)

    def of(self, some: Any) -> "NormalMoments":
        """The distributions at these places of the leading axis."""
        return NormalMoments(self.mean[some], self.covariance[some])

    def transformed(self, matrix: NDArray[Any]) -> "NormalMoments":
        """The distributions of `matrix @ (A, B)`, with a matrix (2, 2)."""
        return NormalMoments(self.mean @ matrix.T, matrix @ self.covariance @ matrix.T)


class Normals(NamedTuple):
    """A normal distribution of (A, B) for each segment, or one for all."""

    mean_A: Array
    mean_B: Array
    # The lower triangle of F, where the covariance is F F'.
    factor_AA: Array
    factor_BA: Array
    factor_BB: Array

    @property
    def mean(self) -> NDArray[Any]:
        """The means, (..., 2)."""
        return namespace(self.mean_A).stack([self.mean_A, self.mean_B], -1)

    @property
    def factor(self) -> NDArray[Any]:
        """The factors F, (..., 2, 2)."""
        factor = np.zeros((*np.shape(self.factor_AA), 2, 2))
        factor[..., 0, 0], factor[..., 1, 0], factor[..., 1, 1] = self[2:]
        return factor

    @property
    def covariance(self) -> NDArray[Any]:
        """The covariances, (..., 2, 2)."""
        factor: Any = self.factor_AA, self.factor_BA, self.factor_BB
        AA, BA, BB = factor
        return Symmetric(AA * AA, AA * BA, BA * BA + BB * BB).matrices


@program
def normals(mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> Normals:
    """The normal distributions with these means (..., 2) and covariances (..., 2, 2)."""
    return Normals(mean[..., 0], mean[..., 1], *Symmetric.of(covariance).factor())
