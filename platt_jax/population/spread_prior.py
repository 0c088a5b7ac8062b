"""The prior of a covariance between segments, or between the values of a level.

Few segments, or rare positives, say so little about a spread that its likelihood has no maximum: it
grows without limit. So each standard deviation has a half-normal prior (Gelman 2006, "Prior
distributions for variance parameters in hierarchical models"), and the correlation r the density
1 - r^2, which keeps covariances from becoming singular (Lewandowski, Kurowicka & Joe 2009).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Scale of the half-normal prior of standard deviations, in log-odds per standard deviation of the
# scores.
SCALE = 1.5


class SpreadPrior(NamedTuple):
    """The log prior density of a covariance F F', and its derivatives by a change of the factor F.

    The change multiplies F by [[exp(a), 0], [b, exp(c)]] from the right.
    """

    log_density: float  # up to a constant
    gradient: NDArray[np.float64]  # (3,), by (a, b, c)
    information: NDArray[np.float64]  # (3, 3), a positive approximation of minus the Hessian

    @classmethod
    def at(cls, factor: NDArray[Any]) -> "SpreadPrior":
        """The prior at a covariance.

        Args:
            factor: (2, 2), the lower triangular F.
        """
        f, g, h = factor[0, 0], factor[1, 0], factor[1, 1]
        # 1 - r^2 = 1 / (1 + u^2), and the change moves u by u a + b - u c.
        u, along = g / h, np.array([g / h, 1, -g / h])
        square, weight = SCALE**2, 2 / (1 + u * u)
        return cls(
            -(f * f + g * g + h * h) / (2 * square) - np.log1p(u * u),
            -np.array([f * f + g * g, g * h, h * h]) / square - weight * u * along,
            # Of log(1 + u^2) the curvature of the parabola that touches it from above.
            np.array([[2 * (f * f + g * g), g * h, 0], [g * h, h * h, 0], [0, 0, 2 * h * h]])
            / square
            + weight * np.outer(along, along),
        )
