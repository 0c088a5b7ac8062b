"""How far segments' (A, B) move between two updates: the prediction step of Kalman's filter.

With y the rows before the move, (A, B) = share * (before - mean) + mean + Normal(0, noise), in both
directions of time, so that y's likelihood of the (A, B) before becomes one of the (A, B) after.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats


class Walk(NamedTuple):
    """The move of each segment's (A, B); a random walk if the share is 1."""

    noise: Floats  # (2, 2)
    share: float = 1.0

    def of_likelihoods(
        self, precision: Floats, pull: Floats, mean: Floats
    ) -> tuple[Floats, Floats]:
        """Likelihoods (K,) of the (A, B) after the move, from those of the (A, B) before.

        Args:
            precision: (K, 2, 2), which may be singular.
            pull: (K, 2), the precision times the mean.
            mean: (2,), to which the (A, B) return by the share that does not last.
        """
        if self.share == 1 and not self.noise.any():
            return precision, pull
        left = self.of_precisions(precision)
        blurred = np.linalg.inv(np.eye(2) + precision @ self.noise)
        own = _times(blurred, pull - precision @ mean)
        moved = self.share**2 * left
        return moved, self.share * own + moved @ mean

    def of_precisions(self, precision: Floats) -> Floats:
        """(..., 2, 2), the inverse of the inverse precision plus the noise; 0 stays 0."""
        if not self.noise.any():
            return precision
        moved = np.linalg.solve(np.eye(2) + precision @ self.noise, precision)
        return (moved + np.swapaxes(moved, -1, -2)) / 2


def _times(matrices: NDArray[Any], vectors: NDArray[Any]) -> Floats:
    return (matrices @ vectors[..., None])[..., 0]
