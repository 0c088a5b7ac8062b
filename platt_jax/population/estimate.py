"""The population's mean and covariance, by maximum marginal likelihood.

Newton's method on the marginal likelihood of all segments. Each iteration is one pass over the
rows, which evaluates the loss of every segment at the nodes of its own quadrature; they are placed
anew wherever a step leads.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage, stage
from platt_jax.execution.run import fit_problems, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.population import quadrature
from platt_jax.population.quadrature import Nodes, Normals, Posteriors, normals
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population, PopulationStatus
from platt_jax.solver.solution import Given
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
_SAMPLED_ROWS = 100_000


class _Coordinates(NamedTuple):
    """(score - center) * scale."""

    center: float
    scale: float


class _Position(NamedTuple):
    """A population, in standardized coordinates, and what the segments say there."""

    population: Normals
    segments: Normals  # where their nodes are
    posteriors: Posteriors


def estimate_population(
    rows: SegmentRows, pooled: Fit, options: Options, progress, caller: Caller
) -> tuple[Fit, Population] | None:
    """The fit of each segment under the population as its prior, and the population.

    None where there is no population to estimate.

    Args:
        rows: of the segments.
        pooled: the fit of all rows, without leading axes.
        options: how to fit; but labels are used as they are.
        progress: as in `fit_segments`.
        caller: is warned of what makes the fit slower.
    """
    flagged = pooled.flags & (Flag.ONE_CLASS | Flag.CONSTANT_SCORES)
    if len(rows.keys) < 2 or pooled.status != Status.CONVERGED or flagged:
        return None
    options = replace(options, targets="none")
    coordinates = _coordinates(rows)
    mean = _to_coordinates(coordinates, np.array([pooled.A, pooled.B], float))
    job = _Job(rows, coordinates, options, caller)
    population = normals(mean, _START_SPREAD**2 * np.eye(2))
    fit = job.modes(population, None, stage(progress, "first fit", last=False))
    at = job.evaluate(population, _around(fit, population, coordinates), _pass(progress, 1))
    passes, status = 1, PopulationStatus.MAX_ITERATIONS
    step, decrement = _newton_step(at.posteriors)
    while passes < _MOST_PASSES and decrement > _TOLERANCE:
        passes += 1
        trial = job.evaluate(*_moved(at, step), _pass(progress, passes))
        gain = trial.posteriors.log_likelihood - at.posteriors.log_likelihood
        # The gain of a short step may be lost in the errors of the quadrature.
        if gain >= 0 or np.abs(step).max() <= _SHORT:
            at = trial
            step, decrement = _newton_step(at.posteriors)
        else:
            step = step / 2
    if decrement <= _TOLERANCE:
        status = PopulationStatus.CONVERGED
    population, segments = _moved(at, step)
    if np.linalg.eigvalsh(population.covariance)[0] < _NO_SPREAD**2:
        status = PopulationStatus.BOUNDARY
    fit = job.modes(population, segments.mean, stage(progress))
    return fit, _result(population, segments, at.posteriors, coordinates, status)


def _pass(progress, number) -> Stage:
    return stage(progress, f"population, pass {number}", last=False)


class _Job(NamedTuple):
    """What stays the same from pass to pass."""

    rows: SegmentRows
    coordinates: _Coordinates
    options: Options
    caller: Caller

    def modes(self, population, start, progress: Stage) -> Fit:
        """Each segment's fit under the population as its prior."""
        rows, K = self.rows, len(self.rows.keys)
        to_original = np.linalg.inv(_map(self.coordinates))
        mean = to_original @ population.mean
        precision = np.linalg.inv(to_original @ population.covariance @ to_original.T)
        prior = GaussianPrior(
            np.broadcast_to(mean, (K, 2)).astype(rows.dtype),
            np.broadcast_to(precision, (K, 2, 2)).astype(rows.dtype),
        )
        if start is not None:
            start = tuple((start @ to_original.T)[rows.largest_first].astype(rows.dtype).T)
        return fit_problems(
            rows.sizes,
            rows.take,
            rows.dtype,
            Given(prior, start),
            self.options,
            progress,
            self.caller,
            order=rows.largest_first,
        )

    def evaluate(self, population: Normals, segments: Normals, progress: Stage) -> _Position:
        """One pass over the rows: the posteriors at the segments' nodes."""
        rows, order = self.rows, self.rows.largest_first
        of_each: Any = (np.full(len(order), x, rows.dtype) for x in self.coordinates)
        nodes = Nodes(
            Normals(*(x[order].astype(rows.dtype) for x in segments)),
            Standardization(*of_each),
        )
        losses = run_problems(
            quadrature.NODE_LOSSES,
            rows.sizes,
            rows.take,
            rows.dtype,
            nodes,
            self.options,
            progress,
            self.caller,
            order=order,
        )
        # A segment whose rows are not finite says nothing.
        losses = np.where(np.isfinite(losses).all(1)[:, None], losses, 0)
        return _Position(population, segments, quadrature.posteriors(losses, segments, population))


def _coordinates(rows) -> _Coordinates:
    """Those in which the middle half of the scores is as wide as that of N(0, 1)."""
    scores = rows.all(slice(0, None), rows.length)[0]
    scores = scores[:: max(1, len(scores) // _SAMPLED_ROWS)]
    scores = scores[np.isfinite(scores)].astype(float)
    low: Any
    low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
    width = (high - low) / 1.349 or np.std(scores)
    return _Coordinates(float(middle), float(1 / width))


def _map(coordinates):
    """The matrix that takes (A, B) to these coordinates."""
    return np.array([[1 / coordinates.scale, 0], [coordinates.center, 1]])


def _to_coordinates(coordinates, parameters):
    return parameters @ _map(coordinates).T


def _around(fit: Fit, population: Normals, coordinates) -> Normals:
    """The normal approximations at the modes; where a fit has none, the population."""
    to = _map(coordinates)
    mean = _to_coordinates(coordinates, np.stack([fit.A, fit.B], -1).astype(float))
    covariance = to @ fit.covariance.astype(float) @ to.T
    usable = np.isfinite(mean).all(-1) & np.isfinite(covariance).all((-1, -2))
    usable &= np.linalg.det(np.where(usable[:, None, None], covariance, np.eye(2))) > 0
    return normals(
        np.where(usable[:, None], mean, population.mean),
        np.where(usable[:, None, None], covariance, population.covariance),
    )


def _newton_step(at: Posteriors):
    """The step of the population's parameters, and how far it goes in standard errors."""
    curvature = at.information
    if np.linalg.eigvalsh(curvature)[0] <= 0:
        # Far from the optimum; of much data this is nearly the same, and always positive (Berndt,
        # Hall, Hall & Hausman 1974).
        curvature = at.score_products
    step = np.linalg.lstsq(curvature, at.gradient)[0]
    decrement = np.sqrt(np.maximum(step @ at.gradient, 0))
    return step / max(1, np.abs(step[[2, 4]]).max() / _LONGEST), decrement


def _moved(at: _Position, step) -> tuple[Normals, Normals]:
    """The population after a step, and where the segments' posteriors then are.

    A segment's likelihood is taken to be normal for that: its precision is what its posterior has
    more than the population.
    """
    root = _factor(at.population)
    shift, stretch = step[:2], np.array([[np.exp(step[2]), 0], [step[3], np.exp(step[4])]])
    moved = normals(at.population.mean + root @ shift, _square(root @ stretch))
    mean, covariance = at.posteriors.mean, at.posteriors.covariance
    precision = np.linalg.inv(covariance)
    values, vectors = np.linalg.eigh(precision - np.eye(2))
    own = (vectors * np.maximum(values, 0)[:, None]) @ vectors.transpose(0, 2, 1)
    towards = (precision @ mean[..., None])[..., 0]
    new = np.linalg.inv(_square(stretch))
    covariance = np.linalg.inv(own + new)
    mean = (covariance @ (towards + new @ shift)[..., None])[..., 0]
    return moved, normals(at.population.mean + mean @ root.T, root @ covariance @ root.T)


def _factor(normal: Normals):
    return np.array([[normal.factor_AA, 0], [normal.factor_BA, normal.factor_BB]])


def _square(factor):
    return factor @ factor.T


def _result(population, segments, at: Posteriors, coordinates, status) -> Population:
    """The population in the coordinates of the scores as they came."""
    back = np.linalg.inv(_map(coordinates))
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
    own = back @ segments.covariance @ back.T
    left = np.linalg.solve(covariance, own)
    return Population(
        mean=back @ population.mean,
        covariance=covariance,
        mean_covariance=root @ spread[:2, :2] @ root.T,
        covariance_errors=np.sqrt(np.maximum(np.diag(of_covariance), 0)).reshape(2, 2),
        status=status,
        posterior_mean=segments.mean @ back.T,
        posterior_covariance=own,
        shrinkage=np.clip(np.trace(left, axis1=1, axis2=2) / 2, 0, 1),
    )
