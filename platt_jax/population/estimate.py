"""The population's mean and covariance, by maximum marginal likelihood.

Newton's method on the marginal likelihood of all segments. Each iteration is one pass over the
rows, which evaluates the loss of every segment at the nodes of its own quadrature; they are placed
anew wherever a step leads.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Listener, Stage, stage
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.population.quadrature import Normals, Posteriors, normals
from platt_jax.population.rows import Coordinates, PopulationRows
from platt_jax.population.segments import Segments
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population, PopulationStatus
from platt_jax.status import Flag, Status

_MOST_PASSES = 50
# Standard errors of the population's parameters; the last step is taken without a pass.
_TOLERANCE = 1e-2
# In standard deviations of the population, and logarithms of them.
_SHORT = 0.1
# In one step no standard deviation changes by more than a factor exp(0.7).
_LONGEST = 0.7
# A spread below this, in log-odds over the usual range of scores, is none.
_NO_SPREAD = 1e-2
_START_SPREAD = 0.5


class _Position(NamedTuple):
    """A population, in standardized coordinates, and what the segments say there."""

    population: Normals
    nodes: Normals  # of the segments
    posteriors: Posteriors


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
    at = _evaluated(segments, population, segments.around(fit, population), _pass(progress, 1))
    passes, status = 1, PopulationStatus.MAX_ITERATIONS
    step, decrement = _newton_step(at.posteriors)
    while passes < _MOST_PASSES and decrement > _TOLERANCE:
        passes += 1
        trial = _evaluated(segments, *_moved(at, step), _pass(progress, passes))
        gain = np.sum(trial.posteriors.log_likelihood) - np.sum(at.posteriors.log_likelihood)
        # The gain of a short step may be lost in the errors of the quadrature.
        if gain >= 0 or np.abs(step).max() <= _SHORT:
            at = trial
            step, decrement = _newton_step(at.posteriors)
        else:
            step = step / 2
    if decrement <= _TOLERANCE:
        status = PopulationStatus.CONVERGED
    population, nodes = _moved(at, step)
    if np.linalg.eigvalsh(population.covariance)[0] < _NO_SPREAD**2:
        status = PopulationStatus.BOUNDARY
    fit = segments.modes(population, nodes.mean, stage(progress))
    return fit, _result(population, nodes, at.posteriors, coordinates, status)


def _pass(progress: bool | Listener, number: int) -> Stage:
    return stage(progress, f"population, pass {number}", last=False)


def _evaluated(segments: Segments, population: Normals, nodes: Normals, told: Stage) -> _Position:
    return _Position(population, nodes, segments.posteriors(population, nodes, told))


def _newton_step(at: Posteriors) -> tuple[NDArray[np.float64], float]:
    """The step of the population's parameters, and how far it goes in standard errors."""
    curvature = at.information
    if np.linalg.eigvalsh(curvature)[0] <= 0:
        # Far from the optimum; of much data this is nearly the same, and always positive (Berndt,
        # Hall, Hall & Hausman 1974).
        curvature = at.score_products
    step = np.linalg.lstsq(curvature, at.gradient)[0]
    decrement: Any = np.sqrt(np.maximum(step @ at.gradient, 0))
    return step / max(1, np.abs(step[[2, 4]]).max() / _LONGEST), decrement


def _moved(at: _Position, step: NDArray[np.float64]) -> tuple[Normals, Normals]:
    """The population after a step, and where the segments' posteriors then are.

    A segment's likelihood is taken to be normal for that: its precision is what its posterior has
    more than the population.
    """
    root = _factor(at.population)
    shift, stretch = step[:2], np.array([[np.exp(step[2]), 0], [step[3], np.exp(step[4])]])
    moved = normals(at.population.mean + root @ shift, _square(root @ stretch))
    precision = _Symmetric.of(at.posteriors.covariance).inverse()
    own = precision.plus(-np.eye(2)).positive_part()
    new = np.linalg.inv(_square(stretch))
    covariance = own.plus(new).inverse()
    pull = precision.times(*at.posteriors.mean.T)
    mean = covariance.times(*(x + y for x, y in zip(pull, new @ shift, strict=True)))
    factor = covariance.factor()
    P = at.population
    return moved, Normals(
        P.mean_A + P.factor_AA * mean[0],
        P.mean_B + P.factor_BA * mean[0] + P.factor_BB * mean[1],
        P.factor_AA * factor[0],
        P.factor_BA * factor[0] + P.factor_BB * factor[1],
        P.factor_BB * factor[2],
    )


class _Symmetric(NamedTuple):
    """Symmetric matrices (2, 2), by arrays of their entries: LAPACK takes them one by one."""

    AA: NDArray[np.float64]
    AB: NDArray[np.float64]
    BB: NDArray[np.float64]

    @classmethod
    def of(cls, matrices: Any) -> Self:
        return cls(matrices[:, 0, 0], matrices[:, 0, 1], matrices[:, 1, 1])

    def plus(self, matrix: NDArray[Any]) -> "_Symmetric":
        return _Symmetric(self.AA + matrix[0, 0], self.AB + matrix[0, 1], self.BB + matrix[1, 1])

    def times(self, A: Array, B: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.AA * A + self.AB * B, self.AB * A + self.BB * B

    def inverse(self) -> "_Symmetric":
        determinant = self.AA * self.BB - self.AB * self.AB
        return _Symmetric(self.BB / determinant, -self.AB / determinant, self.AA / determinant)

    def factor(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The lower triangles (AA, BA, BB) of their Cholesky factors."""
        AA = np.sqrt(self.AA)
        BA = self.AB / AA
        return AA, BA, np.sqrt(self.BB - BA * BA)

    def positive_part(self) -> "_Symmetric":
        """The matrices with 0 for their negative eigenvalues."""
        middle, half = (self.AA + self.BB) / 2, (self.AA - self.BB) / 2
        radius = np.hypot(half, self.AB)
        low, high = middle - radius, np.maximum(middle + radius, 0)
        # The projection on the larger one's eigenvector is (M - low) / (high - low).
        share = np.where(low >= 0, 1, high / np.where(radius > 0, 2 * radius, 1))
        rest = np.where(low >= 0, 0, share * low)
        return _Symmetric(share * self.AA - rest, share * self.AB, share * self.BB - rest)


def _factor(normal: Normals) -> NDArray[np.float64]:
    return np.array([[normal.factor_AA, 0], [normal.factor_BA, normal.factor_BB]])


def _square(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    return factor @ factor.T


def _result(
    population: Normals,
    nodes: Normals,
    at: Posteriors,
    coordinates: Coordinates,
    status: PopulationStatus,
) -> Population:
    """The population in the coordinates of the scores as they came."""
    back = np.linalg.inv(coordinates.matrix)
    root = back @ _factor(population)
    spread = np.linalg.pinv(at.information, hermitian=True)
    # By the entries of the covariance's factor, R at R = I: of F R R' F' with dR lower triangular.
    directions = [
        root @ (d + d.T) @ root.T
        for d in (np.diag([1.0, 0]), np.array([[0.0, 0], [1, 0]]), np.diag([0, 1.0]))
    ]
    by_factor = np.stack([d.ravel() for d in directions], -1)
    of_covariance = by_factor @ spread[2:, 2:] @ by_factor.T
    covariance = _square(root)
    own = back @ nodes.covariance @ back.T
    left = np.linalg.solve(covariance, own)
    return Population(
        mean=back @ population.mean,
        covariance=covariance,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=np.sqrt(np.maximum(np.diag(of_covariance), 0)).reshape(2, 2),
        status=status,
        posterior_mean=nodes.mean @ back.T,
        posterior_covariance=own,
        shrinkage=np.clip(np.trace(left, axis1=1, axis2=2) / 2, 0, 1),
    )
