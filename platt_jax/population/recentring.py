"""The mean intercept that the rows ask for.

Where the mean is integrated out, the derivative of the log posterior density by the mean has the
expectation 0 (Fisher's identity): the expected positives are those seen, up to what the mean's
prior adds. Normal likelihoods of segments with rare positives miss that, by up to a third of the
positives where the population is uncertain. So the mean intercept is moved by Newton steps until
the identity holds. The mean slope stays: a row with an extreme score would decide on it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Stage
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.quadrature import Grid, Normals
from platt_jax.population.standardized import StandardizedSegments

# Newton steps of the mean; a third would move it by a hundredth of the first.
STEPS = 2


def step_of_mean(
    segments: StandardizedSegments,
    grid: Grid,
    posteriors: Normals,
    off: float,
    response: NDArray[Any],
    stage: Stage,
) -> float:
    """One Newton step of the population's mean of B.

    Args:
        segments: the segments.
        grid: of the pass over the rows.
        posteriors: of the segments' (A, B), (K,).
        off: the mean of B minus the mean of its prior.
        response: (K, 2), the derivatives of the posterior means by the population's mean of B.
        stage: of the progress.
    """
    losses = segments.losses(grid, posteriors, stage)
    gradient, curvature = expected_derivatives(grid, losses, posteriors)
    along = np.einsum("ka,ka->k", curvature[:, 1], response)
    slope, bend = segments.total(np.array([gradient[:, 1].sum(), along.sum()]))
    return float(-(slope + MEAN_PRECISION * off) / (bend + MEAN_PRECISION))


def expected_derivatives(
    grid: Grid, losses: NDArray[np.float64], at: Normals
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The expected gradients (K, 2) and Hessians (K, 2, 2) of losses under normal distributions.

    From the losses alone: under a normal distribution of mean m and covariance C, the expected
    gradient of g is the expectation of C^-1 (x - m) g(x) (Stein 1981).

    Args:
        grid: the nodes.
        losses: (K, J), at the nodes of each segment.
        at: the distributions.
    """
    z, inverse = grid.z, np.linalg.inv(at.factor)
    weighted = losses.astype(float) * np.exp(np.add.outer(grid.log_weight, grid.log_weight).ravel())
    squares = z[:, :, None] * z[:, None, :] - np.eye(2)
    gradient = np.einsum("kba,kb->ka", inverse, weighted @ z)
    hessian = np.einsum("kca,kcd,kdb->kab", inverse, np.tensordot(weighted, squares, 1), inverse)
    return gradient, hessian
