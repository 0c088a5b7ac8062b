"""The profile likelihood: the maximum likelihood of populations with a given spread.

Two steps alternate. Normal likelihoods of the segments give the maximum (`marginal.py`). A pass
over the rows gives normal likelihoods that have the right derivatives there. One pass is not
enough: if positives are rare, normal likelihoods made at one population are wrong at another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import SILENT
from platt_jax.population.estimate import START_SPREAD
from platt_jax.population.marginal import ENTRIES, Likeliest, likeliest, log_likelihood
from platt_jax.population.quadrature import Normals, fine, normals
from platt_jax.population.search import Losses, Position

_MOST_STEPS, _MOST_HALVINGS = 30, 8
_CLOSE = 2e-3  # gain of log-likelihood at which the search ends
# Maximum gain that a converged search leaves, where errors of the quadrature end it: statistics are
# then off by 0.2 at most, and by brute force by far less.
_NEAR = 0.1
# Minimum spread for the quadrature, in log-odds over the usual range of scores. Below it, the
# change of the likelihood is computed from the normal likelihoods.
_LEAST_SPREAD = 1e-2

_NOT_CONVERGED = (
    "segments: a search for the largest likelihood did not converge, and statistics and ends of "
    "intervals may be off: segments of one class each have no largest one. Use more rows a segment"
)

_FREE = (None, None, None)
_Array = NDArray[np.float64]


class Profile(NamedTuple):
    """Segments, and the parameter whose spread is given: the first entry of turn @ (A, B)."""

    segments: Losses
    turn: NDArray[np.float64]  # (2, 2), orthogonal
    caller: Caller

    def start(self, mean: NDArray[np.float64], number: int) -> Position:
        """The population from which searches start, around the curve of all rows, (A, B)."""
        population = normals(mean, START_SPREAD**2 * np.eye(2))
        nodes = Normals(*(np.full(number, x) for x in population))
        return Position.of(self.segments, fine(number), population, nodes, SILENT)

    def likeliest(
        self, at: Position, held: tuple[float | None, ...] = _FREE
    ) -> tuple[float, Likeliest, Position]:
        """The maximum log-likelihood, its population, and the position of the last pass.

        The search starts at a position; `held` is as in `marginal.likeliest`, for turn @ (A, B).
        """
        factor = None
        if held != _FREE:
            mean, covariance = self._normal(at.population)
            at = self._moved(at, mean, _widened(_held(covariance, held)))
        for _ in range(_MOST_STEPS):
            likelihoods, here = at.likelihoods.transformed(self.turn), self._normal(at.population)
            found = likeliest(likelihoods, held, factor)
            new = found.mean, _widened(found.factor @ found.factor.T)
            new_log_likelihood = log_likelihood(likelihoods, *new)
            # Of a singular covariance, which no pass is made at.
            narrowed = found.log_likelihood - new_log_likelihood
            gain = new_log_likelihood - log_likelihood(likelihoods, *here)
            if gain <= _CLOSE:
                break
            trial = self._moved(at, *new)
            for _ in range(_MOST_HALVINGS):
                if trial.log_likelihood >= at.log_likelihood:
                    break
                new = (here[0] + new[0]) / 2, (here[1] + new[1]) / 2
                trial = self._moved(at, *new)
            if trial.log_likelihood <= at.log_likelihood:
                break
            at, factor = trial, found.factor
        if not found.found or gain > _NEAR:
            self.caller.warn(_NOT_CONVERGED)
        return at.log_likelihood + narrowed, found, at

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
    for entry, value in zip(ENTRIES, held, strict=True):
        factor[entry] = factor[entry] if value is None else value
    near: NDArray[np.float64] = factor @ factor.T
    return near
