"""Levels of segments: effects of countries and cities, or of carriers and routes.

Each segment's (A, B) is the mean curve plus an effect of one value per level. With each segment's
likelihood as a normal density (`likelihoods`), everything is normal, and the posteriors of all
effects follow from linear algebra: `nested` for a tree, `crossed` for any other design.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import spread_log_prior
from platt_jax.population.symmetric import Square, Symmetric

_Array: TypeAlias = NDArray[Any]

# Smallest standard deviation of effects, in log-odds over the usual range of scores.
NO_SPREAD = 1e-2
# Maximum change of a log standard deviation in one step.
_LONGEST = 0.7


class LevelPosteriors(NamedTuple):
    """Posteriors of all effects, given the covariance of each level's effects."""

    root: NormalMoments  # (1,), the mean curve
    effects: list[NormalMoments]  # of the values of each level
    segments: NormalMoments  # of the segments' (A, B)
    # Sums of effects for prediction, see `results.levels.Level`.
    root_for_prediction: NormalMoments
    for_prediction: list[NormalMoments]


class Design(Protocol):
    """How segments depend on the values of the levels."""

    sizes: list[int]  # number of values of each level
    settled: bool  # whether each search for posterior means has converged since this was True

    def posteriors(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> LevelPosteriors:
        """The posteriors of the effects, given the covariance of each level's effects.

        The center (2,) is the mean of the prior of the mean curve; see `population_prior`.
        """

    def effects(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> list[NormalMoments]:
        """The posteriors of the effects alone; they take less time than the segments'."""
        return self.posteriors(likelihoods, covariances, center).effects


class Scoring(NamedTuple):
    """One step of Fisher scoring for the covariance of a level's effects."""

    covariance: _Array  # (2, 2), after the step
    decrement: float = np.inf  # its length in standard errors, if taken whole
    # (3, 3), the covariance of the parameters (a, b, c), by whose change [exp(a), 0; b, exp(c)] the
    # factor is multiplied from the right; 0 where held.
    spread: _Array = np.zeros((3, 3))
    at_edge: bool = False  # whether a standard deviation is held at the minimum
    step: _Array = np.zeros(3)  # of these parameters
    part: float = 1.0  # the part of it that was taken


def scored(effects: NormalMoments, before: Scoring) -> Scoring:
    """One more step towards the most probable covariance.

    Few values do not determine all of a covariance, and steps overshoot: a step back is halved.
    """
    root = np.linalg.cholesky(before.covariance)
    gradient, information = derivatives(effects, root)
    deviations = np.diag(root)
    least = (1 + 1e-6) * NO_SPREAD
    free = (np.repeat(deviations, [2, 1]) > least) | (gradient[[0, 0, 2]] > 0)
    among = np.ix_(free, free)
    spread, step = np.zeros((3, 3)), np.zeros(3)
    spread[among] = np.linalg.pinv(information[among], rcond=1e-6, hermitian=True)
    step = spread @ gradient
    decrement = float(np.sqrt(max(float(step @ gradient), 0.0)))
    part = before.part / 2 if step @ before.step < 0 else min(1.5 * before.part, 1)
    step *= min(part, _LONGEST / max(np.abs(step).max(), _LONGEST))
    step[[0, 2]] = np.maximum(step[[0, 2]], np.minimum(np.log(NO_SPREAD / deviations), 0))
    moved = changed(root, step)
    covariance = moved @ moved.T
    if not free[0]:
        # Next to no spread of the slopes: a correlation with it would only bound the other spread.
        covariance = np.diag(np.diag(covariance))
    return Scoring(covariance, decrement, spread, not free.all(), step, part)


def derivatives(effects: NormalMoments, root: _Array) -> tuple[_Array, _Array]:
    """Gradient (3,) and information (3, 3) of the log density of a level's covariance F F'.

    The gradient is the mean score under the posterior (Fisher's identity). In units of the prior,
    the posterior mean of an effect has covariance R = I - C with C the posterior covariance, which
    gives the information if the effects of a level are estimated independently of each other.
    Derivatives are by the change of the root F, see `Scoring`.
    """
    to_units = Square.of(np.linalg.inv(root))
    A, B = to_units.times(*effects.mean.T)
    unknown = to_units.congruent(Symmetric.of(effects.covariance))
    explained = np.stack(unknown.scaled(-1).plus(np.eye(2)))
    gradient: _Array = (np.stack([A * A, A * B, B * B]) - explained).sum(1)
    (aa, ab, ac), (_, bb, bc), (_, _, cc) = explained @ explained.T
    information = np.array(
        [[2 * aa, 2 * ab, 2 * bb], [2 * ab, ac + bb, 2 * bc], [2 * bb, 2 * bc, 2 * cc]]
    )
    prior = spread_log_prior(root)
    return gradient + prior.gradient, information + prior.positive_information


def changed(root: _Array, change: _Array) -> _Array:
    """The factor (2, 2) after a change (a, b, c), see `Scoring`."""
    factor: _Array = root @ np.array([[np.exp(change[0]), 0], [change[1], np.exp(change[2])]])
    return factor


def summed(codes: NDArray[Any], x: _Array, number: int) -> _Array:
    """(number, ...) sums of x (n, ...) over the places with each code."""
    flat = x.reshape(len(x), -1)
    columns = [np.bincount(codes, column, number) for column in flat.T]
    sums: _Array = np.stack(columns, -1).reshape(number, *x.shape[1:])
    return sums


def times(matrices: _Array, vectors: _Array) -> _Array:
    """The product of each matrix (n, 2, 2) and its vector (n, 2)."""
    return np.stack(Square.of(matrices).times(*vectors.T), -1)
