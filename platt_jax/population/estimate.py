"""The population's mean and covariance, by maximum marginal likelihood.

Each pass over the rows evaluates the loss of every segment at the nodes of its own quadrature. With
the losses at hand, Newton's method moves the population; the nodes then follow the posteriors.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage, stage
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.population import quadrature
from platt_jax.population.integral import Known, over_populations
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import (
    COARSE,
    FINE,
    Grid,
    Normals,
    Posteriors,
    normals,
    posteriors,
)
from platt_jax.population.rows import Coordinates, PopulationRows
from platt_jax.population.segments import Segments
from platt_jax.population.symmetric import Symmetric
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population, PopulationStatus
from platt_jax.status import Flag, Status

_MOST_PASSES = 60
_MOST_COARSE = 8  # of these passes
_LOST = 0.1, 1e-3  # of a log likelihood, in the errors of the coarse and of the fine grid
_ROUGH_ERROR = 5  # standard errors
# Standard errors of the population's parameters; the last step is taken without a pass.
_TOLERANCE = 1e-2
# So near it, where the last step is the largest that gains: on a ridge, to the quadrature's errors.
_NEAR = 0.1
# In one pass no standard deviation changes by more than a factor exp(0.7).
_LONGEST = 0.7
# A spread below this, in log-odds over the usual range of scores, is none.
_NO_SPREAD = 1e-2
_START_SPREAD = 0.5
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


class _Position(NamedTuple):
    """A population, in standardized coordinates, and what the segments say there."""

    population: Normals
    grid: Grid
    nodes: Normals  # of the segments
    losses: NDArray[Any]  # (K, J), there
    posteriors: Posteriors

    def at(self, population: Normals) -> "_Position":
        """Another population, by the same losses."""
        return self._replace(
            population=population,
            posteriors=posteriors(self.grid, self.losses, self.nodes, population),
        )

    @property
    def log_likelihood(self) -> float:
        """Of the population."""
        return float(np.sum(self.posteriors.log_likelihood))


class _Step(NamedTuple):
    """A step of the population's parameters."""

    parameters: NDArray[np.float64]  # (5,)
    decrement: float  # how far it goes, in standard errors
    free: NDArray[np.bool_]  # (5,), which of them can move: there is no spread left to lose


def estimate_population(
    rows: PopulationRows, pooled: Fit, options: Options, progress: bool | Listener = False
) -> tuple[Fit | None, Population]:
    """The fit of each segment under the population as its prior, and the population.

    No fit where there is no population to estimate.

    Args:
        rows: of the segments.
        pooled: the fit of all rows, without leading axes.
        options: how to fit; but labels are used as they are.
        progress: as in `fit_segments`.
    """
    flagged = pooled.flags & (Flag.ONE_CLASS | Flag.CONSTANT_SCORES)
    if rows.number < 2 or pooled.status != Status.CONVERGED or flagged:
        return None, Population.not_estimated(rows.number)
    options = replace(options, targets="none")
    coordinates = rows.coordinates(options)
    segments = Segments(rows, coordinates, options)
    mean = coordinates.matrix @ np.array([pooled.A, pooled.B], float)
    population = normals(mean, _START_SPREAD**2 * np.eye(2))
    fit = segments.modes(population, None, stage(progress, "first fit", last=False))
    at, step = _largest(segments, population, segments.around(fit, population), progress)
    population, nodes = _moved(at, step.parameters)
    status = PopulationStatus.MAX_ITERATIONS
    if step.decrement <= _NEAR:
        status = PopulationStatus.CONVERGED if step.free.all() else PopulationStatus.BOUNDARY
    spread = _spread(at.posteriors, step.free)
    known = _known(segments, at, _is_certain(spread, step.free), progress)
    fit = segments.modes(population, nodes.mean, stage(progress))
    return fit, _result(population, nodes, spread, known, coordinates, status)


def _pass(progress: bool | Listener, number: int) -> Stage:
    return stage(progress, f"population, pass {number}", last=False)


def _placed(
    segments: Segments, grid: Grid, population: Normals, nodes: Normals, told: Stage
) -> _Position:
    losses = segments.losses(grid, nodes, told)
    return _Position(population, grid, nodes, losses, posteriors(grid, losses, nodes, population))


def _largest(
    segments: Segments, population: Normals, nodes: Normals, progress: bool | Listener
) -> tuple[_Position, _Step]:
    """From a first population to that of the greatest likelihood, and the step that is left."""
    at = _placed(segments, COARSE, population, nodes, _pass(progress, 1))
    step, part = _newton_step(at), 1.0
    for passes in range(2, _MOST_PASSES + 1):
        done, told = part * step.decrement <= _TOLERANCE, _pass(progress, passes)
        if done and (at.grid is FINE or _is_fine_enough(at)):
            break
        way = part * step.parameters
        if at.grid is COARSE and (done or passes > _MOST_COARSE):
            at = _placed(segments, FINE, *_moved(at, way), told)
            step, part = _newton_step(at), 1.0
            continue
        short = np.abs(way).max() <= _SHORT
        hard = passes > _FEW_PASSES and short and part == 1
        origin, way = _polished(at, step) if hard else (at, way)
        trial = _placed(segments, at.grid, *_moved(origin, way), told)
        # The gain of a short step may be lost in the errors of the quadrature.
        lost = _LOST[at.grid is FINE] if short else 0
        if trial.log_likelihood >= at.log_likelihood - lost:
            at = trial
            step, part = _newton_step(at), 1.0
        else:
            part /= 2
    return at, step._replace(parameters=part * step.parameters)


def _is_fine_enough(at: _Position) -> bool:
    """Whether the coarse grid tells the gradient to a tenth of a standard error.

    By how far that of the rough grid is off: in trials ten to two hundred times as much.
    """
    rough = quadrature.posteriors(
        quadrature.ROUGH, quadrature.rough(at.losses), at.nodes, at.population
    )
    off = rough.gradient - at.posteriors.gradient
    error = off @ np.linalg.lstsq(at.posteriors.score_products, off)[0]
    return bool(error <= _ROUGH_ERROR**2)


def _polished(at: _Position, step: _Step) -> tuple[_Position, NDArray[np.float64]]:
    """The greatest likelihood near by, by the losses at hand, and the step that is left."""
    way = 0.0
    for _ in range(_MOST_STEPS):
        way += np.abs(step.parameters).max()
        trial = at.at(_moved(at, step.parameters)[0])
        if trial.log_likelihood < at.log_likelihood or way > _SHORT:
            break
        at, step = trial, _newton_step(trial)
        if step.decrement <= _TOLERANCE / 10:
            break
    return at, step.parameters


def _newton_step(at: _Position) -> _Step:
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


def _moved(at: _Position, step: NDArray[np.float64]) -> tuple[Normals, Normals]:
    """The population after a step, and where the segments' posteriors then are."""
    root = _factor(at.population)
    stretch = np.array([[np.exp(step[2]), 0], [step[3], np.exp(step[4])]])
    moved = normals(at.population.mean + root @ step[:2], _square(root @ stretch))
    return moved, _posteriors_under(at, moved)


def _posteriors_under(at: _Position, population: Normals) -> Normals:
    """The segments' posteriors under another population, as their likelihoods were normal."""
    to_unit = np.linalg.inv(_factor(at.population))
    shift = to_unit @ (population.mean - at.population.mean)
    precision = np.linalg.inv(_square(to_unit @ _factor(population)))
    mean_A, mean_B, covariance = Likelihoods.of(at.posteriors).under(shift, precision)
    AA, BA, BB = covariance.factor()
    P = at.population
    return Normals(
        P.mean_A + P.factor_AA * mean_A,
        P.mean_B + P.factor_BA * mean_A + P.factor_BB * mean_B,
        P.factor_AA * AA,
        P.factor_BA * AA + P.factor_BB * BA,
        P.factor_BB * BB,
    )


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


def _is_certain(spread: NDArray[np.float64], free: NDArray[np.bool_]) -> bool:
    """Whether the population's covariance is as good as known."""
    return bool(free.all() and np.sqrt(np.diag(spread)[[_a, _c]]).max() <= _CERTAIN)


def _known(segments: Segments, at: _Position, certain: bool, progress: bool | Listener) -> Known:
    """What is known of the segments; where the population is not certain, by another pass.

    Posteriors under a population of little spread tell how the likelihoods are near its mean. So
    they are taken again under one that is as wide as it may be.
    """
    known = over_populations(Likelihoods.of(at.posteriors), at.population, certain)
    if certain:
        return known
    wide = normals(known.new_mean, known.new_covariance)
    told = stage(progress, "population, uncertainty", last=False)
    at = _placed(segments, FINE, wide, _posteriors_under(at, wide), told)
    return over_populations(Likelihoods.of(at.posteriors), wide, certain)


def _factor(normal: Normals) -> NDArray[np.float64]:
    return np.array([[normal.factor_AA, 0], [normal.factor_BA, normal.factor_BB]])


def _square(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    return factor @ factor.T


def _result(
    population: Normals,
    nodes: Normals,
    spread: NDArray[np.float64],
    known: Known,
    coordinates: Coordinates,
    status: PopulationStatus,
) -> Population:
    """The population in the coordinates of the scores as they came."""
    back = np.linalg.inv(coordinates.matrix)
    root = back @ _factor(population)
    # By the entries of the covariance's factor, R at R = I: of F R R' F' with dR lower triangular.
    directions = [
        root @ (d + d.T) @ root.T
        for d in (np.diag([1.0, 0]), np.array([[0.0, 0], [1, 0]]), np.diag([0, 1.0]))
    ]
    by_factor = np.stack([d.ravel() for d in directions], -1)
    of_covariance = by_factor @ spread[2:, 2:] @ by_factor.T
    covariance = _square(root)
    left = np.linalg.solve(covariance, back @ nodes.covariance @ back.T)
    return Population(
        mean=back @ population.mean,
        covariance=covariance,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=np.sqrt(np.maximum(np.diag(of_covariance), 0)).reshape(2, 2),
        status=status,
        posterior_mean=known.mean @ back.T,
        posterior_covariance=back @ known.covariance @ back.T,
        predictive_mean=back @ known.new_mean,
        predictive_covariance=back @ known.new_covariance @ back.T,
        shrinkage=np.clip(np.trace(left, axis1=1, axis2=2) / 2, 0, 1),
    )
