"""The likeliest population of those in which a spread is held: the profile likelihood.

Normal likelihoods of the segments say where it is, a pass over the rows makes others that have the
right derivatives there, and so on. Those of one population alone will not do: where positives are
rare they are far off the likelihood of another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import SILENT
from platt_jax.population.estimate import START_SPREAD
from platt_jax.population.marginal import ENTRIES, Likeliest, likeliest, log_likelihood
from platt_jax.population.quadrature import FINE, Normals, normals
from platt_jax.population.search import Losses, Position

_MOST_STEPS, _MOST_HALVINGS = 30, 8
_CLOSE = 2e-3  # log likelihood that is left to gain
# The quadrature needs spread in all directions, in log-odds over the usual range of scores. What
# less spread changes of the likelihood, the normal ones tell.
_LEAST_SPREAD = 1e-2

_FREE = (None, None, None)
_Array = NDArray[np.float64]


class Profile(NamedTuple):
    """Segments, and the parameter of which the spread is held.

    It is the first after the orthogonal matrix `turn`, (2, 2), of (A, B).
    """

    segments: Losses
    turn: NDArray[np.float64]

    def start(self, mean: NDArray[np.float64], number: int) -> Position:
        """A population where searches start, around the curve of all rows.

        Args:
            mean: (2,), that curve's (A, B).
            number: of segments.
        """
        population = normals(mean, START_SPREAD**2 * np.eye(2))
        nodes = Normals(*(np.full(number, x) for x in population))
        return Position.of(self.segments, FINE, population, nodes, SILENT)

    def likeliest(
        self, at: Position, held: tuple[float | None, ...] = _FREE
    ) -> tuple[float, Likeliest, Position]:
        """The greatest log likelihood, the population, and where the last pass was made.

        Args:
            at: where the search starts.
            held: as of `marginal.likeliest`, whose first parameter is the one here.
        """
        factor = None
        if held != _FREE:
            mean, covariance = self._normal(at.population)
            at = self._moved(at, mean, _widened(_held(covariance, held)))
        for _ in range(_MOST_STEPS):
            told, here = at.likelihoods.transformed(self.turn), self._normal(at.population)
            found = likeliest(told, held, factor)
            new = found.mean, _widened(found.factor @ found.factor.T)
            of_new = log_likelihood(told, *new)
            # Of a singular covariance, which no pass is made at.
            narrowed = found.log_likelihood - of_new
            if of_new - log_likelihood(told, *here) <= _CLOSE:
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
        return at.log_likelihood + narrowed, found, at

    def _moved(self, at: Position, mean: _Array, covariance: _Array) -> Position:
        back = self.turn.T
        population = normals(back @ mean, back @ covariance @ self.turn)
        return at.under(self.segments, FINE, population, SILENT)

    def _normal(self, population: Normals) -> tuple[_Array, _Array]:
        return self.turn @ population.mean, self.turn @ population.covariance @ self.turn.T


def _widened(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    values, vectors = np.linalg.eigh(covariance)
    widened: NDArray[np.float64] = (vectors * np.maximum(values, _LEAST_SPREAD**2)) @ vectors.T
    return widened


def _held(covariance: NDArray[np.float64], held: tuple[float | None, ...]) -> NDArray[np.float64]:
    """The covariance with what is held of its factor as it should be."""
    factor = np.linalg.cholesky(covariance)
    for entry, value in zip(ENTRIES, held, strict=True):
        factor[entry] = factor[entry] if value is None else value
    near: NDArray[np.float64] = factor @ factor.T
    return near
