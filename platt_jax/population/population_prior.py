"""The prior of a population, and of the effects of a level.

Few segments, or rare positives, say so little about a spread that its likelihood has no maximum: it
grows without limit. So each standard deviation has a half-normal prior (Gelman 2006, "Prior
distributions for variance parameters in hierarchical models"), and the correlation r the density
1 - r^2, which keeps covariances from becoming singular (Lewandowski, Kurowicka & Joe 2009). The
mean has a normal prior around the curve of all rows, which is flatter than the mean curve by no
more than the spread explains.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Scale of all priors, in log-odds per standard deviation of the scores.
SCALE = 1.5
# Precision of the prior of the mean, in each direction of (A, B).
MEAN_PRECISION = 1 / SCALE**2


class LogDensity(NamedTuple):
    """A log density, with its derivatives by n parameters."""

    value: float  # up to a constant
    gradient: NDArray[np.float64]  # (n,)
    information: NDArray[np.float64]  # (n, n), minus the Hessian

    @property
    def positive_information(self) -> NDArray[np.float64]:
        """The information without its negative eigenvalues."""
        values, vectors = np.linalg.eigh(self.information)
        positive: NDArray[np.float64] = (vectors * np.maximum(values, 0)) @ vectors.T
        return positive


def spread_log_prior(factor: NDArray[Any]) -> LogDensity:
    """The prior at the covariance F F', with derivatives by a change [exp(a), 0; b, exp(c)] of F.

    The change multiplies the lower triangular F (2, 2) from the right.
    """
    f, g, h = factor[0, 0], factor[1, 0], factor[1, 1]
    # 1 - r^2 = 1 / (1 + u^2), and u is (u exp(a) + b) exp(-c) after the change.
    u, along = g / h, np.array([g / h, 1, -g / h])
    bend = np.array([[u, 0, -u], [0, 0, -1], [-u, -1, u]])
    slope, curvature = 2 * u / (1 + u * u), 2 * (1 - u * u) / (1 + u * u) ** 2
    squares = np.array([[2 * (f * f + g * g), g * h, 0], [g * h, h * h, 0], [0, 0, 2 * h * h]])
    return LogDensity(
        float(-(f * f + g * g + h * h) / (2 * SCALE**2) - np.log1p(u * u)),
        -np.array([f * f + g * g, g * h, h * h]) / SCALE**2 - slope * along,
        squares / SCALE**2 + curvature * np.outer(along, along) + slope * bend,
    )


def population_log_prior(off: NDArray[np.float64], factor: NDArray[np.float64]) -> LogDensity:
    """The prior of a population, with derivatives by the moves of its mean, F u, and of F.

    `off` is the mean minus the (A, B) of all rows.
    """
    spread = spread_log_prior(factor)
    information = np.zeros((5, 5))
    information[:2, :2] = MEAN_PRECISION * factor.T @ factor
    information[2:, 2:] = spread.information
    return LogDensity(
        float(spread.value - MEAN_PRECISION * off @ off / 2),
        np.concatenate([-MEAN_PRECISION * off @ factor, spread.gradient]),
        information,
    )
