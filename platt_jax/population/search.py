"""The search for the most probable population: by its marginal likelihood and its prior.

Each pass evaluates the loss of every segment at the nodes of its own quadrature. With these losses,
Newton's method moves the population. The nodes then follow the posteriors.
"""

from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage
from platt_jax.population import quadrature
from platt_jax.population.gaussians import Normals, normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import LogDensity, population_log_prior
from platt_jax.population.quadrature import (
    COARSE,
    MANY,
    Grid,
    Posteriors,
    Total,
    fine,
    posteriors,
)
from platt_jax.status import Status

_MOST_PASSES = 60  # maximum number of passes
_MOST_COARSE = 8  # maximum number of passes with the coarse grid
_LOST = 0.1, 1e-3  # errors of a log-likelihood, by the coarse and by the fine grid
_ROUGH_ERROR = 1.0  # maximum error of the rough grid, in standard errors
# Maximum length of the last step, in standard errors; it is taken without a pass.
_TOLERANCE = 1e-2
# The same with many segments, on the coarse and on the fine grid. Where their log-likelihood is
# well curved, it is quadratic over such steps, and Newton's step ends near its maximum.
_TOLERANCE_OF_MANY = 2.0, 0.2
_WELL_CURVED = 0.2  # minimum curvature, relative to the score products
# Maximum length of a converged search's last step. On a ridge, quadrature errors limit what gains.
_NEAR = 0.05
# The same where errors of the quadrature, not the tolerance, end the search: it has gained less
# than this in so many passes.
_NEAR_ON_PLATEAU, _LITTLE_GAIN, _PLATEAU = 0.35, 0.02, 6
# Maximum change of a log standard deviation in one pass.
_LONGEST = 0.7
# Smallest spread, in log-odds over the usual range of scores. A spread below it counts as none.
_NO_SPREAD = 1e-2
_LEAST = (1 + 1e-6) * _NO_SPREAD  # up to rounding
# Maximum relative error of spreads that are treated as known.
_CERTAIN = 0.05

# Several short steps are made with the losses of one pass if Newton's method takes more passes than
# this, or if there are many segments: a pass then costs several times as much as a step.
_FEW_PASSES = 4
_MOST_STEPS = 8  # maximum number of steps
_SHORT = 0.3  # maximum length of all steps
# Largest change of the logarithm of a spread that is called vanishing, and largest such spread.
_SHRINKING, _SMALL = -0.25, 0.2
# Minimum curvature, relative to the score products. Less is not reliable.
_LEAST_CURVATURE = 1e-2

# The population's parameters: the mean, and the factor [[exp(a), 0], [b, exp(c)]] of its change.
_a, _b, _c = 2, 3, 4


class Losses(Protocol):
    """A source of the losses of K segments at any (A, B)."""

    def losses(self, grid: Grid, nodes: Normals, stage: Stage) -> NDArray[Any]:
        """The losses (K, J) at the segments' nodes."""

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Segments`."""


class Position(NamedTuple):
    """A population, in standardized coordinates, and the segments' posteriors under it."""

    population: Normals
    grid: Grid
    nodes: Normals  # the segments' nodes
    losses: NDArray[Any]  # (K, J), at the nodes
    posteriors: Posteriors
    total: Total  # see `Segments`

    @classmethod
    def of(
        cls, segments: Losses, grid: Grid, population: Normals, nodes: Normals, stage: Stage
    ) -> Self:
        """A position whose losses are computed by a pass over the segments."""
        losses = segments.losses(grid, nodes, stage)
        integrals = posteriors(grid, losses, nodes, population, segments.total)
        return cls(population, grid, nodes, losses, integrals, segments.total)

    def under(self, segments: Losses, grid: Grid, population: Normals, stage: Stage) -> "Position":
        """Another population, by a pass with nodes at the posteriors expected under it."""
        return Position.of(segments, grid, population, self.likelihoods.under(population), stage)

    def at(self, population: Normals) -> "Position":
        """Another population, with the same losses."""
        return self._replace(
            population=population,
            posteriors=posteriors(self.grid, self.losses, self.nodes, population, self.total),
        )

    @property
    def likelihoods(self) -> Likelihoods:
        """The likelihoods of the segments."""
        return Likelihoods.of(self.posteriors, self.population)

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of the population."""
        return self.posteriors.log_likelihood

    def prior(self, center: NDArray[np.float64]) -> LogDensity:
        """The prior of the population, around the mean `center` (2,)."""
        return population_log_prior(self.population.mean - center, self.population.factor)


class _Step(NamedTuple):
    """A step of the population's parameters, from a position."""

    log_density: float  # of the population before the step, up to a constant
    parameters: NDArray[np.float64]  # (5,)
    decrement: float  # its length in standard errors
    free: NDArray[np.bool_]  # (5,), False for parameters held at the smallest spread
    # The least curvature in the free directions, relative to the score products; at a maximum it is
    # not negative.
    curvature: float


class Estimate(NamedTuple):
    """The result of the search."""

    population: Normals
    at: Position  # the position of the last pass
    status: Status
    spread: NDArray[np.float64]  # (5, 5), the covariance of the parameters; 0 where held
    certain: bool  # whether to treat the population's covariance as known


def estimated(
    segments: Losses,
    center: NDArray[np.float64],
    start: Normals,
    nodes: Normals,
    progress: bool | Listener = False,
) -> Estimate:
    """The most probable population, by a search from `start`.

    The center (2,) is the mean of the prior of the population's mean. The nodes are approximate
    posteriors of the segments at the start.
    """
    point, step, on_plateau = _most_probable(segments, center, start, nodes, progress)
    status = Status.MAX_ITERATIONS
    # Otherwise this is a ridge, and the maximum may be far away though the gradient is small.
    at_top = step.decrement <= max(_NEAR, _tolerance(point, step)) and step.curvature >= 0
    if at_top or (on_plateau and step.decrement <= _NEAR_ON_PLATEAU):
        status = Status.CONVERGED if step.free.all() else Status.BOUNDARY
    spread = _spread(point, center, step.free)
    certain = step.free.all() and np.sqrt(np.diag(spread)[[_a, _c]]).max() <= _CERTAIN
    return Estimate(_moved(point, step.parameters), point, status, spread, bool(certain))


def covariance_errors(
    root: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(2, 2), standard errors of a covariance F F' with the root F.

    `spread` (3, 3) is the covariance of the parameters of its change [[exp(a), 0], [b, exp(c)]].
    """
    # Derivatives of F R R' F' at R = I by the entries of the lower triangular factor R.
    directions = [
        root @ (d + d.T) @ root.T
        for d in (np.diag([1.0, 0]), np.array([[0.0, 0], [1, 0]]), np.diag([0, 1.0]))
    ]
    by_factor = np.stack([d.ravel() for d in directions], -1)
    variances = np.diag(by_factor @ spread @ by_factor.T)
    errors: NDArray[np.float64] = np.sqrt(np.maximum(variances, 0)).reshape(2, 2)
    return errors


def _pass(progress: bool | Listener, number: int) -> Stage:
    return Stage.of(progress, f"population, pass {number}", last=False)


def _most_probable(
    segments: Losses,
    center: NDArray[np.float64],
    start: Normals,
    nodes: Normals,
    progress: bool | Listener,
) -> tuple[Position, _Step, bool]:
    """Searches from a first population; returns the last position, and the step left to take.

    Also returns whether the search ended on a plateau, where it no longer gains.
    """
    point = Position.of(segments, COARSE, start, nodes, _pass(progress, 1))
    step, part = _newton_step(point, center), 1.0
    best, since = -np.inf, 0
    for passes in range(2, _MOST_PASSES + 1):
        many = point.posteriors.number >= MANY
        tolerance = _tolerance(point, step)
        origin, refined = point, step
        if part == 1 and (many or passes > _FEW_PASSES):
            # Densities of positions without a pass of their own have errors: the next one is
            # compared with the density at the last pass.
            origin, refined = _polished(point, step, center, tolerance if many else _TOLERANCE / 10)
        remaining, stage = refined if many else step, _pass(progress, passes)
        settled = part * remaining.decrement <= tolerance
        if settled and (point.grid is not COARSE or _is_fine_enough(point)):
            point, step = (origin, refined) if many else (point, step)
            break
        if step.log_density > best + _LITTLE_GAIN:
            best, since = step.log_density, 0
        since += 1
        if since > _PLATEAU and step.decrement <= _NEAR_ON_PLATEAU and point.grid is not COARSE:
            break
        move = part * refined.parameters
        if point.grid is COARSE and (settled or passes > _MOST_COARSE):
            grid = fine(point.posteriors.number)
            point = origin.under(segments, grid, _moved(origin, move), stage)
            step, part = _newton_step(point, center), 1.0
            best = -np.inf
            continue
        short = np.abs(move).max() <= _SHORT
        end = _moved(origin, move)
        if part == 1 and not many and _is_vanishing(move, end):
            end = _by_normal_likelihoods(origin, center)
        trial = origin.under(segments, point.grid, end, stage)
        after = _newton_step(trial, center)
        # The gain of a short step may be lost in the errors of the quadrature.
        lost = _LOST[point.grid is not COARSE] if short else 0
        if after.log_density >= step.log_density - lost:
            point, step, part = trial, after, 1.0
        else:
            part /= 2
    on_plateau = part < 1 or since > _PLATEAU
    return point, step._replace(parameters=part * step.parameters), on_plateau


def _tolerance(at: Position, step: _Step) -> float:
    """The maximum length of the last step, in standard errors."""
    if at.posteriors.number < MANY:
        return _TOLERANCE
    is_fine = at.grid is not COARSE
    if is_fine and step.curvature < _WELL_CURVED:
        return _NEAR
    return _TOLERANCE_OF_MANY[is_fine]


def _is_fine_enough(at: Position) -> bool:
    """Whether the coarse grid gives the gradient to a tenth of a standard error.

    Estimated from the error of the rough grid, in trials ten to two hundred times as large.
    """
    rough = quadrature.posteriors(
        quadrature.ROUGH, quadrature.rough(at.losses), at.nodes, at.population, at.total
    )
    off = rough.gradient - at.posteriors.gradient
    error = off @ np.linalg.lstsq(at.posteriors.score_products, off)[0]
    return bool(error <= _ROUGH_ERROR**2)


def _polished(
    at: Position, step: _Step, center: NDArray[np.float64], tolerance: float
) -> tuple[Position, _Step]:
    """The largest density nearby for the current losses, and the step left to take."""
    distance = np.abs(step.parameters).max()
    for _ in range(_MOST_STEPS):
        if distance > _SHORT or step.decrement <= tolerance:
            break
        trial = at.at(_moved(at, step.parameters))
        after = _newton_step(trial, center)
        # Away from the nodes the quadrature may invent a ridge.
        invented = after.curvature < 0 <= step.curvature
        if invented or after.log_density < step.log_density:
            break
        at, step = trial, after
        distance += np.abs(step.parameters).max()
    return at, step


def _is_vanishing(step: NDArray[np.float64], end: Normals) -> bool:
    """Whether a spread that is small at the end of a step shrinks by much."""
    spreads = np.array([end.factor_AA, end.factor_BB])
    return bool(((step[[_a, _c]] < _SHRINKING) & (spreads < _SMALL)).any())


def _by_normal_likelihoods(at: Position, center: NDArray[np.float64]) -> Normals:
    """The most probable population if the likelihoods at a position were normal, without a pass.

    Newton's method in the logarithm of a spread only halves a spread that tends to 0. Here such
    steps read no rows.
    """
    likelihoods, grid = at.likelihoods, quadrature.EXACT
    for _ in range(_MOST_PASSES):
        nodes = likelihoods.under(at.population)
        losses = likelihoods.losses(grid, nodes)
        integrals = posteriors(grid, losses, nodes, at.population, at.total)
        at = Position(at.population, grid, nodes, losses, integrals, at.total)
        step = _newton_step(at, center)
        at = at._replace(population=_moved(at, step.parameters))
        if step.decrement <= _TOLERANCE:
            break
    return at.population


def _newton_step(at: Position, center: NDArray[np.float64]) -> _Step:
    """The step of the population's parameters, and its length in standard errors.

    In directions without curvature, the curvature of the score products is used instead (Berndt,
    Hall, Hall & Hausman 1974). Their matrix has no negative eigenvalue.
    """
    prior, population = at.prior(center), at.population
    gradient = at.posteriors.gradient + prior.gradient
    free = np.ones(5, bool)
    # Spreads at the minimum are held if smaller ones would be more likely.
    free[_a] = population.factor_AA > _LEAST or gradient[_a] > 0
    free[_c] = population.factor_BB > _LEAST or gradient[_c] > 0
    free[_b] = free[_a]
    among, information = np.ix_(free, free), at.posteriors.information + prior.information
    products = (at.posteriors.score_products + prior.positive_information)[among]
    scale = 1 / np.sqrt(np.maximum(np.diag(products), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(scale[:, None] * information[among] * scale)
    curvature = float(values[0]) if len(values) else 0.0
    values = np.maximum(np.abs(values), _LEAST_CURVATURE)
    along = vectors.T @ (scale * gradient[free])
    step = np.zeros(5)
    step[free] = scale * (vectors @ (along / values))
    step /= max(1, np.abs(step[[_a, _c]]).max() / _LONGEST)
    for spread, i in ((population.factor_AA, _a), (population.factor_BB, _c)):
        step[i] = max(step[i], min(np.log(_NO_SPREAD / spread), 0))
    decrement = float(np.sqrt(np.sum(along**2 / values)))
    return _Step(at.log_likelihood + prior.value, step, decrement, free, curvature)


def _moved(at: Position, step: NDArray[np.float64]) -> Normals:
    """The population after a step."""
    root = at.population.factor
    changed = root @ np.array([[np.exp(step[2]), 0], [step[3], np.exp(step[4])]])
    covariance = changed @ changed.T
    if changed[0, 0] <= _LEAST:  # a correlation is held there, and would hold up the spread of B
        covariance = np.diag(np.diag(covariance))
    return normals(at.population.mean + root @ step[:2], covariance)


def _spread(
    at: Position, center: NDArray[np.float64], free: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(5, 5), the covariance of the estimate; 0 for parameters that are held.

    Where the information does not belong to a maximum, the score products replace it, so that no
    variance is negative.
    """
    among = np.ix_(free, free)
    prior = at.prior(center)
    information = (at.posteriors.information + prior.information)[among]
    if np.linalg.eigvalsh(information)[0] <= 0:
        information = (at.posteriors.score_products + prior.positive_information)[among]
    spread = np.zeros((5, 5))
    spread[among] = np.linalg.pinv(information, hermitian=True)
    return spread
