"""How far (A, B) move between two updates: the prediction step of Kalman's filter (1960)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.population.likelihoods import Likelihoods


class Walk(NamedTuple):
    """The move of a segment's (A, B) between two updates.

    Its deviation from the population's mean becomes `share` times the deviation plus
    Normal(0, noise). This is a random walk if the share is 1.
    """

    noise: Floats  # (2, 2)
    share: float = 1.0

    def moved_precision(self, precision: Floats) -> Floats:
        """(..., 2, 2), the precisions after a random walk; they may be singular."""
        if not self.noise.any():
            return precision
        moved = np.linalg.solve(np.eye(2) + precision @ self.noise, precision)
        # In the dtype of the precision, which says how it was rounded.
        return ((moved + np.swapaxes(moved, -1, -2)) / 2).astype(precision.dtype)

    def moved_likelihoods(
        self, likelihoods: Likelihoods, mean: Floats, covariance: Floats
    ) -> Likelihoods:
        """The likelihoods of the (A, B) after the move, from those of the (A, B) before.

        A segment has the posterior N(m + d, C) before and N(m + share d, share^2 C + noise) after,
        where the population has N(m, S) and N(m, share^2 S + noise). The likelihood after is the
        one that gives the latter posterior. Where (A, B) have moved far in comparison with S, the
        (A, B) before lie nearer to the mean than those after; a likelihood without a population
        would leave the spread too small.

        Args:
            likelihoods: (K,) the likelihoods.
            mean: (2,) the mean m of the population.
            covariance: (2, 2) its covariance S.
        """
        if self.share == 1 and not self.noise.any():
            return likelihoods
        to = likelihoods.coordinates(likelihoods.total).matrix
        own = likelihoods.transformed(to)
        m, S, noise = to @ mean, to @ covariance @ to.T, to @ self.noise @ to.T
        P, c = own.precision.matrices, self.share
        C = np.linalg.inv(np.linalg.inv(S) + P)
        prior_precision, own_precision = (np.linalg.inv(c**2 * X + noise) for X in (S, C))
        # The difference of both inverses, without cancellation: S - C = S P C.
        precision = c**2 * prior_precision @ S @ P @ C @ own_precision
        precision = (precision + np.swapaxes(precision, -1, -2)) / 2
        pull = c * _times(own_precision @ C, own.pull - P @ m) + precision @ m
        return Likelihoods.from_arrays(precision, pull).transformed(np.linalg.inv(to))


def _times(matrices: NDArray[Any], vectors: NDArray[Any]) -> Floats:
    return (matrices @ vectors[..., None])[..., 0]
