"""Likelihood-ratio tests of a population without spread: mixtures of chi-squares.

A population without spread is at the boundary of the possible covariances. There the statistic is
distributed as the squared length of a normal vector's projection on a cone: a mixture of
chi-squares with 0 to 3 degrees of freedom (Self & Liang 1987; Shapiro 1988, "Towards a unified
theory of inequality constrained testing in multivariate analysis").
"""

import math

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.likelihoods import Likelihoods

# Weights for a test of one spread and the covariance, while the other spread is free: the cone is a
# half-plane (Stram & Lee 1994, "Variance components testing in the longitudinal mixed effects
# model").
ONE_SPREAD = np.array([0, 0.5, 0.5, 0])
_AROUND = 2 * np.pi * np.arange(1024) / 1024
# Minimum information about a direction, relative to the largest. With less, the cone would be too
# sharp for the integral.
_LITTLE = 1e-3


def p_value(statistic: float, weights: NDArray[np.float64]) -> float:
    """The probability of a larger statistic, twice a difference of log likelihoods."""
    if statistic <= 0:
        return 1.0
    one, two = math.erfc(math.sqrt(statistic / 2)), math.exp(-statistic / 2)
    three = one + math.sqrt(2 * statistic / math.pi) * two
    return float(weights[1:] @ [one, two, three])


def weights_of_both(likelihoods: Likelihoods) -> NDArray[np.float64]:
    """(4,) weights of the chi-squares in a test of both spreads at once.

    The covariances [[AA, AB], [AB, BB]] without negative eigenvalues form a circular cone:
    AA + BB >= |(AA - BB, 2 AB)|. Its solid angle in the metric of the information is the weight of
    3 degrees of freedom, and its polar cone's is the weight of 0. The weights of odd degrees of
    freedom sum to 1/2, and so do weights of even ones. If all segments have equal rows, the weights
    are (2 - r)/4, r/4, r/4 and (2 - r)/4, where r is the square root of 2 (Kuriki 1993, "One-sided
    test for the equality of two covariance matrices").
    """
    P = likelihoods.transformed(likelihoods.coordinates(likelihoods.total).matrix).precision
    AA, AB, BB = P.AA, P.AB, P.BB
    # tr(P D P E) / 2 for the entries AA, AB and BB of changes D and E.
    entries = [
        [AA * AA, 2 * AA * AB, AB * AB],
        [2 * AA * AB, 2 * (AA * BB + AB * AB), 2 * AB * BB],
        [AB * AB, 2 * AB * BB, BB * BB],
    ]
    information = np.array([[x.sum() for x in row] for row in entries]) / 2
    # Coordinates AA + BB, AA - BB and 2 AB, in which the cone is circular.
    to_entries = np.array([[1, 1, 0], [0, 0, 1], [1, -1, 0]]) / 2
    values, vectors = np.linalg.eigh(to_entries.T @ information @ to_entries)
    root = (
        np.sqrt(np.maximum(values, max(_LITTLE * values[-1], np.finfo(float).tiny)))[:, None]
        * vectors.T
    )
    inside, polar = _solid_angle(root), _solid_angle(np.linalg.inv(root).T)
    return np.array([polar, 0.5 - inside, 0.5 - polar, inside])


def _solid_angle(matrix: NDArray[np.float64]) -> float:
    """The solid angle of the image of the cone x >= |(y, z)| by a matrix (3, 3); 1 is the sphere.

    It is the integral of 1 - cos around the axis. The trapezoidal rule gives many digits.
    """
    one, zero = np.ones_like(_AROUND), np.zeros_like(_AROUND)
    edge = matrix @ np.stack([one, np.cos(_AROUND), np.sin(_AROUND)])
    along = matrix @ np.stack([zero, -np.sin(_AROUND), np.cos(_AROUND)])
    axis = matrix[:, 0] / np.linalg.norm(matrix[:, 0])
    height, length = axis @ edge, np.linalg.norm(edge, axis=0)
    turned = axis @ np.cross(edge, along, axis=0) / (length**2 - height**2)
    return float(abs(np.mean((1 - height / length) * turned)) / 2)
