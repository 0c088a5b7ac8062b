"""The search for the population of the greatest marginal likelihood.

Each pass evaluates the loss of every segment at the nodes of its own quadrature. With the losses at
hand, Newton's method moves the population; the nodes then follow the posteriors.
"""

from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.population import quadrature
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import (
    COARSE,
    FINE,
    Grid,
    Normals,
    Posteriors,
    Total,
    normals,
    posteriors,
)
from platt_jax.results.population import PopulationStatus

_MOST_PASSES = 60
_MOST_COARSE = 8  # of these passes
_LOST = 0.1, 1e-3  # of a log likelihood, in the errors of the coarse and of the fine grid
_ROUGH_ERROR = 2.5  # standard errors
# Standard errors of the population's parameters; the last step is taken without a pass.
_TOLERANCE = 1e-2
# So near it, where the last step is the largest that gains: on a ridge, to the quadrature's errors.
_NEAR = 0.1
# In one pass no standard deviation changes by more than a factor exp(0.7).
_LONGEST = 0.7
# A spread below this, in log-odds over the usual range of scores, is none.
_NO_SPREAD = 1e-2
# So small are the relative errors of spreads that are as good as known.
_CERTAIN = 0.05

# Where Newton's method takes more passes, several steps are made on the losses of one, as far as
# they tell.
_FEW_PASSES = 4
_MOST_STEPS = 8
_SHORT = 0.3
# Less curvature than this part of what the segments' scores vary by is too little to go by.
_LEAST_CURVATURE = 1e-2

# The population's parameters: its mean, and the factor [[exp(a), 0], [b, exp(c)]] of its change.
_MEAN, _a, _b, _c = slice(0, 2), 2, 3, 4


class Losses(Protocol):
    """What has a loss of each of K segments at any (A, B)."""

    def losses(self, grid: Grid, nodes: Normals, stage: Stage) -> NDArray[Any]:
        """(K, J), at the segments' nodes."""

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """As of `Segments`."""


class Position(NamedTuple):
    """A population, in standardized coordinates, and what the segments say there."""

    population: Normals
    grid: Grid
    nodes: Normals  # of the segments
    losses: NDArray[Any]  # (K, J), there
    posteriors: Posteriors
    total: Total  # of sums over the segments

    @classmethod
    def of(
        cls, segments: Losses, grid: Grid, population: Normals, nodes: Normals, stage: Stage
    ) -> Self:
        """By a pass over the segments."""
        losses = segments.losses(grid, nodes, stage)
        made = posteriors(grid, losses, nodes, population, segments.total)
        return cls(population, grid, nodes, losses, made, segments.total)

    def under(self, segments: Losses, grid: Grid, population: Normals, stage: Stage) -> "Position":
        """Another population, by a pass; the nodes are where posteriors then should be."""
        return Position.of(segments, grid, population, self.likelihoods.under(population), stage)

    def at(self, population: Normals) -> "Position":
        """Another population, by the same losses."""
        return self._replace(
            population=population,
            posteriors=posteriors(self.grid, self.losses, self.nodes, population, self.total),
        )

    @property
    def likelihoods(self) -> Likelihoods:
        """Of the segments."""
        return Likelihoods.of(self.posteriors, self.population)

    @property
    def log_likelihood(self) -> float:
        """Of the population."""
        return self.posteriors.log_likelihood


class _Step(NamedTuple):
    """A step of the population's parameters."""

    parameters: NDArray[np.float64]  # (5,)
    decrement: float  # how far it goes, in standard errors
    free: NDArray[np.bool_]  # (5,), which of them can move: there is no spread left to lose


class Estimate(NamedTuple):
    """The population that the search came to."""

    population: Normals
    at: Position  # of the last pass
    status: PopulationStatus
    spread: NDArray[np.float64]  # (5, 5), the covariance of its parameters; 0 where held
    certain: bool  # whether its covariance is as good as known


def estimated(
    segments: Losses, population: Normals, nodes: Normals, progress: bool | Listener = False
) -> Estimate:
    """The population of the greatest likelihood.

    Args:
        segments: whose it is.
        population: where the search starts.
        nodes: the segments' posteriors there, about.
        progress: as in `fit_segments`.
    """
    at, step = _largest(segments, population, nodes, progress)
    status = PopulationStatus.MAX_ITERATIONS
    if step.decrement <= _NEAR:
        status = PopulationStatus.CONVERGED if step.free.all() else PopulationStatus.BOUNDARY
    spread = _spread(at.posteriors, step.free)
    certain = step.free.all() and np.sqrt(np.diag(spread)[[_a, _c]]).max() <= _CERTAIN
    return Estimate(_moved(at, step.parameters), at, status, spread, bool(certain))


def _pass(progress: bool | Listener, number: int) -> Stage:
    return Stage.of(progress, f"population, pass {number}", last=False)


def _largest(
    segments: Losses, population: Normals, nodes: Normals, progress: bool | Listener
) -> tuple[Position, _Step]:
    """From a first population to that of the greatest likelihood, and the step that is left."""
    at = Position.of(segments, COARSE, population, nodes, _pass(progress, 1))
    step, part = _newton_step(at), 1.0
    for passes in range(2, _MOST_PASSES + 1):
        done, stage = part * step.decrement <= _TOLERANCE, _pass(progress, passes)
        if done and (at.grid is FINE or _is_fine_enough(at)):
            break
        way = part * step.parameters
        if at.grid is COARSE and (done or passes > _MOST_COARSE):
            at = at.under(segments, FINE, _moved(at, way), stage)
            step, part = _newton_step(at), 1.0
            continue
        short = np.abs(way).max() <= _SHORT
        hard = passes > _FEW_PASSES and short and part == 1
        origin, way = _polished(at, step) if hard else (at, way)
        trial = origin.under(segments, at.grid, _moved(origin, way), stage)
        # The gain of a short step may be lost in the errors of the quadrature.
        lost = _LOST[at.grid is FINE] if short else 0
        if trial.log_likelihood >= at.log_likelihood - lost:
            at = trial
            step, part = _newton_step(at), 1.0
        else:
            part /= 2
    return at, step._replace(parameters=part * step.parameters)


def _is_fine_enough(at: Position) -> bool:
    """Whether the coarse grid tells the gradient to a tenth of a standard error.

    By how far that of the rough grid is off: in trials ten to two hundred times as much.
    """
    rough = quadrature.posteriors(
        quadrature.ROUGH, quadrature.rough(at.losses), at.nodes, at.population, at.total
    )
    off = rough.gradient - at.posteriors.gradient
    error = off @ np.linalg.lstsq(at.posteriors.score_products, off)[0]
    return bool(error <= _ROUGH_ERROR**2)


def _polished(at: Position, step: _Step) -> tuple[Position, NDArray[np.float64]]:
    """The greatest likelihood near by, by the losses at hand, and the step that is left."""
    way = 0.0
    for _ in range(_MOST_STEPS):
        way += np.abs(step.parameters).max()
        trial = at.at(_moved(at, step.parameters))
        if trial.log_likelihood < at.log_likelihood or way > _SHORT:
            break
        at, step = trial, _newton_step(trial)
        if step.decrement <= _TOLERANCE / 10:
            break
    return at, step.parameters


def _newton_step(at: Position) -> _Step:
    """The step of the population's parameters, and how far it goes in standard errors.

    In directions without curvature that of the score products stands in (Berndt, Hall, Hall &
    Hausman 1974), of which no eigenvalue is negative.
    """
    gradient, population = at.posteriors.gradient, at.population
    free = np.ones(5, bool)
    # Spread at the least there is, but for rounding, which the likelihood would have smaller.
    least = (1 + 1e-6) * _NO_SPREAD
    free[_a] = population.factor_AA > least or gradient[_a] > 0
    free[_c] = population.factor_BB > least or gradient[_c] > 0
    free[_b] = free[_a]
    among = np.ix_(free, free)
    products = at.posteriors.score_products[among]
    scale = 1 / np.sqrt(np.maximum(np.diag(products), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(scale[:, None] * at.posteriors.information[among] * scale)
    values = np.maximum(np.abs(values), _LEAST_CURVATURE)
    along = vectors.T @ (scale * gradient[free])
    step = np.zeros(5)
    step[free] = scale * (vectors @ (along / values))
    step /= max(1, np.abs(step[[_a, _c]]).max() / _LONGEST)
    for spread, i in ((population.factor_AA, _a), (population.factor_BB, _c)):
        step[i] = max(step[i], min(np.log(_NO_SPREAD / spread), 0))
    return _Step(step, float(np.sqrt(np.sum(along**2 / values))), free)


def _moved(at: Position, step: NDArray[np.float64]) -> Normals:
    """The population after a step."""
    root = at.population.factor
    changed = root @ np.array([[np.exp(step[2]), 0], [step[3], np.exp(step[4])]])
    return normals(at.population.mean + root @ step[:2], changed @ changed.T)


def _spread(at: Posteriors, free: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(5, 5), the covariance of the estimate; 0 of parameters that cannot move.

    By the score products where the information is that of no maximum: no variance is negative.
    """
    among = np.ix_(free, free)
    information = at.information[among]
    if np.linalg.eigvalsh(information)[0] <= 0:
        information = at.score_products[among]
    spread = np.zeros((5, 5))
    spread[among] = np.linalg.pinv(information, hermitian=True)
    return spread
