"""The marginal likelihood of a population, from normal likelihoods of its segments.

The likelihood and the mean that maximizes it have closed forms. The covariance that maximizes it,
with or without a fixed standard deviation, is found by a search that reads no rows.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.symmetric import Symmetric

_MOST_STEPS = 100
_TOLERANCE = 1e-7  # gain of log-likelihood at which a search ends
_NEAR = 0.05  # maximum gain that a whole step from its end still promises
# Damping of steps, relative to the curvature (Levenberg 1944, Marquardt 1963).
_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-8, 1e10
# Standard deviations to start from, in standard errors of one segment. With few segments the
# likelihood may have several maxima.
_STARTS = 0.3, 1.0, 3.0
_OFF_0 = 0.1  # of these standard deviations: a start is kept off 0
# Maximum standard deviation, in log-odds per standard deviation of the scores. If each segment has
# only one class, the likelihood grows with the spread and has no maximum.
WIDEST = 30.0
_ALMOST = 0.999  # share of it from which the search has come to its end
# The entries of the lower triangular factor F of a covariance F F'. F[0, 0] is the standard
# deviation of the first parameter.
ENTRIES = ((0, 0), (1, 0), (1, 1))
_UNITS = [np.eye(2)[[i]].T @ np.eye(2)[[j]] for i, j in ENTRIES]


class Likeliest(NamedTuple):
    """The population of maximum likelihood, possibly with some entries of F held."""

    mean: NDArray[np.float64]  # (2,)
    factor: NDArray[np.float64]  # (2, 2), F of the covariance F F'
    log_likelihood: float
    found: bool  # whether the search converged


class _ProfilePoint(NamedTuple):
    """The likelihood at a covariance, maximized over the mean."""

    mean: NDArray[np.float64]  # (2,)
    log_likelihood: float
    gradient: NDArray[np.float64]  # (3,), by `ENTRIES` of the factor
    curvature: NDArray[np.float64]  # (3, 3), without negative eigenvalues


class _MeanLikelihood(NamedTuple):
    """The segments' likelihoods of the population's mean: precisions V = (P^-1 + S)^-1, pulls r."""

    V: NDArray[np.float64]  # (K, 2, 2)
    r: NDArray[np.float64]  # (K, 2)
    log_likelihood: float  # at mean 0

    def at(self, mean: NDArray[np.float64]) -> float:
        """The log-likelihood of a mean."""
        V, r = self.V.sum(0), self.r.sum(0)
        return float(self.log_likelihood + mean @ (r - V @ mean / 2))


def log_likelihood(
    likelihoods: Likelihoods, mean: NDArray[np.float64], covariance: NDArray[np.float64]
) -> float:
    """The log-likelihood of a population, up to a constant."""
    return _mean_likelihood(likelihoods, covariance).at(mean)


def likeliest(
    likelihoods: Likelihoods,
    held: tuple[float | None, ...] = (None, None, None),
    start: NDArray[np.float64] | None = None,
) -> Likeliest:
    """The population of maximum likelihood; a search starts near `start`, (2, 2) F, or None.

    `held` has values of F[0, 0], F[1, 0] and F[1, 1], None for a free entry. F[1, 0] and F[1, 1]
    can only be held at 0.
    """
    free = np.array([x is None for x in held])
    fixed = np.array([0.0 if x is None else x for x in held])
    precision = np.array([likelihoods.precision.AA.mean(), likelihoods.precision.BB.mean()])
    unit = 1 / np.sqrt(np.maximum(precision, np.finfo(float).tiny))
    unit = np.minimum(unit, WIDEST / max(_STARTS))
    starts = [np.array([scale * unit[0], 0, scale * unit[1]]) for scale in _STARTS]
    if start is not None:
        # At 0 nothing drives a standard deviation away from it.
        off_0 = np.maximum(np.abs(np.diag(start)), _OFF_0 * unit)
        starts = [np.array([off_0[0], start[1, 0], off_0[1]])]
    if not free.any():
        starts = starts[:1]
    found = (_climbed(likelihoods, np.where(free, x, fixed), free) for x in starts)
    return max(found, key=lambda x: x.log_likelihood)


def _climbed(
    likelihoods: Likelihoods,
    entries: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> Likeliest:
    """By Newton's method with the expected information."""
    at, damping, among = _at(likelihoods, entries), _DAMPING, np.ix_(free, free)
    for _ in range(_MOST_STEPS if free.any() else 0):
        curvature, gradient = at.curvature[among], at.gradient[free]
        damped = curvature + np.diag(damping * np.diag(curvature) + 1e-14)
        step = np.linalg.solve(damped, gradient)
        further = entries.copy()
        further[free] += step
        trial = _at(likelihoods, further) if np.abs(further).max() <= WIDEST else None
        if trial is not None and trial.log_likelihood >= at.log_likelihood:
            at, entries, damping = trial, further, max(damping / 5, _LEAST_DAMPING)
        else:
            damping *= 8
        if gradient @ step < _TOLERANCE or damping > _MOST_DAMPING:
            break
    curvature, gradient = at.curvature[among], at.gradient[free]
    undamped = curvature + np.diag(_LEAST_DAMPING * np.diag(curvature) + 1e-14)
    promised = gradient @ np.linalg.solve(undamped, gradient) / 2
    found = promised <= _NEAR or np.abs(entries).max() > _ALMOST * WIDEST
    return Likeliest(at.mean, _factor(entries), at.log_likelihood, bool(found))


def _factor(entries: NDArray[np.float64]) -> NDArray[np.float64]:
    factor: NDArray[np.float64] = np.tensordot(entries, _UNITS, 1)
    return factor


def _at(likelihoods: Likelihoods, entries: NDArray[np.float64]) -> _ProfilePoint:
    """The likelihood at a factor, by G, its derivative by the covariance.

    The curvature is the expected information. Where G has negative eigenvalues, their part of the
    second derivative by the factor is added: it dominates near a factor of 0.
    """
    F = _factor(entries)
    mean_likelihood = _mean_likelihood(likelihoods, F @ F.T)
    V, r, _ = mean_likelihood
    mean = np.linalg.lstsq(V.sum(0), r.sum(0))[0]
    u = r - V @ mean
    G = (u.T @ u - V.sum(0)) / 2
    slope = 2 * G @ F
    changes = np.array([E @ F.T + F @ E.T for E in _UNITS])
    pairs = V.reshape(-1, 4)
    squares = (pairs.T @ pairs).reshape(2, 2, 2, 2)
    curvature = np.einsum("abcd,ibc,jda->ij", squares, changes, changes) / 2
    values, vectors = np.linalg.eigh(-G)
    turning = (vectors * np.maximum(values, 0)) @ vectors.T
    curvature += 2 * np.array([[np.trace(D.T @ turning @ E) for E in _UNITS] for D in _UNITS])
    return _ProfilePoint(
        mean, mean_likelihood.at(mean), np.array([slope[entry] for entry in ENTRIES]), curvature
    )


def _mean_likelihood(likelihoods: Likelihoods, S: NDArray[Any]) -> _MeanLikelihood:
    """V = (1 + P S)^-1 P and r = (1 + P S)^-1 h; the precisions P may be singular."""
    P, h_A, h_B = likelihoods
    covariance = Symmetric.of(S)
    T = covariance.product(P).plus_identity()
    inverse = T.inverse()  # transposed
    r_A, r_B = inverse.transposed_times(h_A, h_B)
    s_A, s_B = covariance.times(r_A, r_B)
    gain = h_A * s_A + h_B * s_B - np.log(T.determinant)
    V = P.symmetric_product(inverse).matrices
    return _MeanLikelihood(V, np.stack([r_A, r_B], -1), float(gain.sum() / 2))
