"""The profile likelihood of a given spread, and likelihood-ratio tests of no spread.

Two steps alternate. Normal likelihoods of the segments give the maximum: the marginal likelihood
and the mean that maximizes it then have closed forms, and an inner search that reads no rows finds
the covariance, with or without a fixed standard deviation. A pass over the rows gives normal
likelihoods that have the right derivatives there. One pass is not enough: if positives are rare,
normal likelihoods made at one population are wrong at another.

A population without spread is at the boundary of the possible covariances. There the statistic is
distributed as the squared length of a normal vector's projection on a cone: a mixture of
chi-squares with 0 to 3 degrees of freedom (Self & Liang 1987; Shapiro 1988, "Towards a unified
theory of inequality constrained testing in multivariate analysis").
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import SILENT
from platt_jax.population.estimate import START_SPREAD
from platt_jax.population.gaussians import Normals, normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import fine
from platt_jax.population.search import Losses, Position
from platt_jax.population.symmetric import Symmetric

_MOST_STEPS, _MOST_HALVINGS = 30, 8
_CLOSE = 2e-3  # gain of log-likelihood at which the search ends
# Maximum gain that a converged search leaves, where errors of the quadrature end it: statistics are
# then off by 0.2 at most, and by brute force by far less.
_NEAR = 0.1
# Minimum spread for the quadrature, in log-odds over the usual range of scores. Below it, the
# change of the likelihood is computed from the normal likelihoods.
_LEAST_SPREAD = 1e-2

_FREE = (None, None, None)
_Array = NDArray[np.float64]

# Of the inner search, given normal likelihoods.
_MOST_INNER_STEPS = 100
_INNER_TOLERANCE = 1e-7  # gain of log-likelihood at which a search ends
_INNER_NEAR = 0.05  # maximum gain that a whole step from its end still promises
# Damping of steps, relative to the curvature (Levenberg 1944, Marquardt 1963).
_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-8, 1e10
# Standard deviations to start from, in standard errors of one segment. With few segments the
# likelihood may have several maxima.
_STARTS = 0.3, 1.0, 3.0
_OFF_0 = 0.1  # of these standard deviations: a start is kept off 0
# Maximum standard deviation, in log-odds per standard deviation of the scores. If each segment has
# only one class, the likelihood grows with the spread and has no maximum.
_WIDEST = 30.0
_ALMOST = 0.999  # share of it from which the search has come to its end
# The entries of the lower triangular factor F of a covariance F F'. F[0, 0] is the standard
# deviation of the first parameter.
_ENTRIES = ((0, 0), (1, 0), (1, 1))
_UNITS = [np.eye(2)[[i]].T @ np.eye(2)[[j]] for i, j in _ENTRIES]

# Weights for a test of one spread and the covariance, while the other spread is free: the cone is a
# half-plane (Stram & Lee 1994, "Variance components testing in the longitudinal mixed effects
# model").
ONE_SPREAD = np.array([0, 0.5, 0.5, 0])
_AROUND = 2 * np.pi * np.arange(1024) / 1024
# Minimum information about a direction, relative to the largest. With less, the cone would be too
# sharp for the integral.
_LITTLE = 1e-3


class Maximum(NamedTuple):
    """A maximum of the log-likelihood, possibly with some entries of the factor held."""

    log_likelihood: float
    factor: NDArray[np.float64]  # (2, 2), of the population's covariance
    at: Position  # of the last pass
    converged: bool


class Profile(NamedTuple):
    """Segments, and the parameter whose spread is given: the first entry of turn @ (A, B)."""

    segments: Losses
    turn: NDArray[np.float64]  # (2, 2), orthogonal

    def start(self, mean: NDArray[np.float64], number: int) -> Position:
        """The population from which searches start, around the curve of all rows, (A, B)."""
        population = normals(mean, START_SPREAD**2 * np.eye(2))
        nodes = Normals(*(np.full(number, x) for x in population))
        return Position.of(self.segments, fine(number), population, nodes, SILENT)

    def likeliest(self, at: Position, held: tuple[float | None, ...] = _FREE) -> Maximum:
        """The maximum found by a search that starts at a position.

        `held` is as in the function `likeliest`, for turn @ (A, B).
        """
        factor = None
        if held != _FREE:
            mean, covariance = self._normal(at.population)
            at = self._moved(at, mean, _widened(_held(covariance, held)))
        for _ in range(_MOST_STEPS):
            likelihoods, before = at.likelihoods.transformed(self.turn), self._normal(at.population)
            candidate = likeliest(likelihoods, held, factor)
            new = candidate.mean, _widened(candidate.factor @ candidate.factor.T)
            new_log_likelihood = log_likelihood(likelihoods, *new)
            # Of a singular covariance, which no pass is made at.
            narrowed = candidate.log_likelihood - new_log_likelihood
            gain = new_log_likelihood - log_likelihood(likelihoods, *before)
            if gain <= _CLOSE:
                break
            trial = self._moved(at, *new)
            for _ in range(_MOST_HALVINGS):
                if trial.log_likelihood >= at.log_likelihood:
                    break
                new = (before[0] + new[0]) / 2, (before[1] + new[1]) / 2
                trial = self._moved(at, *new)
            if trial.log_likelihood <= at.log_likelihood:
                break
            at, factor = trial, candidate.factor
        converged = candidate.found and bool(gain <= _NEAR)
        return Maximum(at.log_likelihood + narrowed, candidate.factor, at, converged)

    def _moved(self, at: Position, mean: _Array, covariance: _Array) -> Position:
        back = self.turn.T
        population = normals(back @ mean, back @ covariance @ self.turn)
        return at.under(self.segments, at.grid, population, SILENT)

    def _normal(self, population: Normals) -> tuple[_Array, _Array]:
        return self.turn @ population.mean, self.turn @ population.covariance @ self.turn.T


def _widened(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(covariance)
    widened: NDArray[np.float64] = (vectors * np.maximum(values, _LEAST_SPREAD**2)) @ vectors.T
    return widened


def _held(covariance: NDArray[np.float64], held: tuple[float | None, ...]) -> NDArray[np.float64]:
    """The covariance after the held entries of its factor are set."""
    factor = np.linalg.cholesky(covariance)
    for entry, value in zip(_ENTRIES, held, strict=True):
        factor[entry] = factor[entry] if value is None else value
    near: NDArray[np.float64] = factor @ factor.T
    return near


# --- the inner search, given normal likelihoods ---------------------------------------------------


class _Likeliest(NamedTuple):
    """The population of maximum likelihood, possibly with some entries of F held."""

    mean: NDArray[np.float64]  # (2,)
    factor: NDArray[np.float64]  # (2, 2), F of the covariance F F'
    log_likelihood: float
    found: bool  # whether the search converged


class _ProfilePoint(NamedTuple):
    """The likelihood at a covariance, maximized over the mean."""

    mean: NDArray[np.float64]  # (2,)
    log_likelihood: float
    gradient: NDArray[np.float64]  # (3,), by `_ENTRIES` of the factor
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
    held: tuple[float | None, ...] = _FREE,
    start: NDArray[np.float64] | None = None,
) -> _Likeliest:
    """The population of maximum likelihood; a search starts near `start`, (2, 2) F, or None.

    `held` has values of F[0, 0], F[1, 0] and F[1, 1], None for a free entry. F[1, 0] and F[1, 1]
    can only be held at 0.
    """
    free = np.array([x is None for x in held])
    fixed = np.array([0.0 if x is None else x for x in held])
    precision = np.array([likelihoods.precision.AA.mean(), likelihoods.precision.BB.mean()])
    unit = 1 / np.sqrt(np.maximum(precision, np.finfo(float).tiny))
    unit = np.minimum(unit, _WIDEST / max(_STARTS))
    starts = [np.array([scale * unit[0], 0, scale * unit[1]]) for scale in _STARTS]
    if start is not None:
        # At 0 nothing drives a standard deviation away from it.
        off_0 = np.maximum(np.abs(np.diag(start)), _OFF_0 * unit)
        starts = [np.array([off_0[0], start[1, 0], off_0[1]])]
    if not free.any():
        starts = starts[:1]
    maxima = (_climbed(likelihoods, np.where(free, x, fixed), free) for x in starts)
    return max(maxima, key=lambda x: x.log_likelihood)


def _climbed(
    likelihoods: Likelihoods,
    entries: NDArray[np.float64],
    free: NDArray[np.bool_],
) -> _Likeliest:
    """By Newton's method with the expected information."""
    point, damping, among = _at(likelihoods, entries), _DAMPING, np.ix_(free, free)
    for _ in range(_MOST_INNER_STEPS if free.any() else 0):
        curvature, gradient = point.curvature[among], point.gradient[free]
        damped = curvature + np.diag(damping * np.diag(curvature) + 1e-14)
        step = np.linalg.solve(damped, gradient)
        further = entries.copy()
        further[free] += step
        trial = _at(likelihoods, further) if np.abs(further).max() <= _WIDEST else None
        if trial is not None and trial.log_likelihood >= point.log_likelihood:
            point, entries, damping = trial, further, max(damping / 5, _LEAST_DAMPING)
        else:
            damping *= 8
        if gradient @ step < _INNER_TOLERANCE or damping > _MOST_DAMPING:
            break
    curvature, gradient = point.curvature[among], point.gradient[free]
    undamped = curvature + np.diag(_LEAST_DAMPING * np.diag(curvature) + 1e-14)
    promised = gradient @ np.linalg.solve(undamped, gradient) / 2
    converged = promised <= _INNER_NEAR or np.abs(entries).max() > _ALMOST * _WIDEST
    return _Likeliest(point.mean, _factor(entries), point.log_likelihood, bool(converged))


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
        mean, mean_likelihood.at(mean), np.array([slope[entry] for entry in _ENTRIES]), curvature
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


# --- tests of no spread ---------------------------------------------------------------------------


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
    ones, zeros = np.ones_like(_AROUND), np.zeros_like(_AROUND)
    edge = matrix @ np.stack([ones, np.cos(_AROUND), np.sin(_AROUND)])
    along = matrix @ np.stack([zeros, -np.sin(_AROUND), np.cos(_AROUND)])
    axis = matrix[:, 0] / np.linalg.norm(matrix[:, 0])
    height, length = axis @ edge, np.linalg.norm(edge, axis=0)
    turned = axis @ np.cross(edge, along, axis=0) / (length**2 - height**2)
    return float(abs(np.mean((1 - height / length) * turned)) / 2)
