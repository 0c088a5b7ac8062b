"""Updates of partially pooled calibrators: fits of new rows beside a memory of the earlier ones.

Earlier rows are remembered as a normal likelihood of each segment's (A, B). The loss of a segment
is the exact loss of its new rows plus the loss of the memory. So the population and the levels
are estimated as from any other rows, and what is remembered of all rows is the normal
likelihood that gives the new posteriors (assumed-density filtering, Opper 1998).
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Integers
from platt_jax.caller import Caller
from platt_jax.execution.progress import Listener, Stage
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids import join
from platt_jax.ids.factorize import ascending, split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.options import Options
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.device_segments import segments_of
from platt_jax.population.estimate import (
    estimate_population,
    identifies_population,
    unchanged_population,
    with_left_out,
)
from platt_jax.population.fitting import with_pooled_curve
from platt_jax.population.gaussians import normals
from platt_jax.population.level_fitting import fit_levels, levels_of
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.fit import Fit
from platt_jax.results.levels import Levels
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Status
from platt_jax.updating.earlier_fits import Walk, chosen, placed
from platt_jax.updating.priors import at_places


class UpdatedSegments(Segments):
    """Segments with new rows, and a memory of earlier ones; see `Segments` for the methods.

    Args:
        keys: (K,) the earlier and the new segments, ascending.
        rows: the new rows, of J segments.
        at: (J,) the places of these segments among the keys.
        memory: (K,) the likelihoods of the earlier rows; 0 where there are none.
        earlier: (K,) the earlier fits, of which new segments have none.
        known: (K,) whether a segment has an earlier fit.
    """

    def __init__(
        self,
        keys: NDArray[Any],
        rows: ChunkedSegments,
        at: Integers,
        memory: Likelihoods,
        earlier: Fit,
        known: Bools,
    ) -> None:
        self._keys, self._rows, self._at = keys, rows, at
        self.has_offset = rows.has_offset
        self._earlier, self._known = earlier, known
        # In coordinates in which slopes and intercepts are of one size.
        self._coordinates = memory.coordinates(memory.total)
        self.memory = memory.transformed(self._coordinates.matrix)
        self.together = self.new_fits = earlier  # the last fits: (K,), and of the new rows (J,)

    @property
    def keys(self) -> NDArray[Any]:
        """See `Segments`."""
        return self._keys

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `Segments`."""
        return self._rows.dtype

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`."""
        return self._coordinates

    def fit(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`. Without new rows, or where their fit fails, fits of earlier rows.

        Without a prior, new rows are fitted without the memory of earlier ones.
        """
        if given.prior is None:
            return placed(self._earlier, self._at, self._rows.fit(given, options, stage))
        start: Any = given.start
        prior = self._with_memory(given.prior)
        new_prior = CenteredPrior.of(GaussianPrior(*(x[self._at] for x in prior)), self.dtype)
        pair = tuple(x[self._at] for x in start)
        self.new_fits = self._rows.fit(ProblemInputs(new_prior, pair), options, stage)
        keep = np.asarray(self._known).copy()
        keep[self._at] &= ~np.asarray(self.new_fits.converged)
        together = placed(self._earlier, self._at, self.new_fits)
        together = replace(
            together,
            n_pos=self._counted(together.n_pos, self._earlier.n_pos),
            n_neg=self._counted(together.n_neg, self._earlier.n_neg),
        )
        if keep.any():
            together = chosen(keep, _at(prior, self._earlier), together)
        self.together = together
        return together

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`; of the new rows."""
        return self._rows.pooled(given, options, stage)

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`."""
        new_nodes: Any = jax.tree.map(lambda x: x[self._at], nodes)
        new_losses = self._rows.node_losses(grid, new_nodes, options, stage)
        learnt = np.asarray(self.new_fits.converged) & np.isfinite(new_losses).all(1)
        losses = self.memory.losses(grid, jax.tree.map(lambda x: x.astype(float), nodes.posterior))
        losses[self._at] += np.where(learnt[:, None], new_losses, 0)
        return losses

    def _counted(self, counts: Any, earlier: Any) -> NDArray[Any]:
        """The rows of all, (K,), where new rows have been placed among the earlier ones."""
        total = np.array(counts)
        total[self._at] += np.where(self._known, earlier, 0)[self._at]
        return total

    def _with_memory(self, given: Any) -> GaussianPrior:
        """The priors (K,) of the new rows, given the earlier ones."""
        prior: GaussianPrior = given.original()
        to = self._coordinates.matrix
        back = np.linalg.inv(to)
        prior_precision = back.T @ prior.precision @ back
        pull = (prior_precision @ (prior.mean @ to.T)[..., None])[..., 0]
        precision = prior_precision + self.memory.precision.matrices
        mean = np.linalg.solve(precision, (pull + self.memory.pull)[..., None])[..., 0]
        return GaussianPrior(mean @ back.T, to.T @ precision @ to)


def left_out(calibrator: SegmentCalibrator) -> Bools:
    """(K,) which segments the population left out: it has no likelihood of their rows.

    Without new rows they keep their fits. With new rows these are learnt as of new segments.
    """
    population: Any = calibrator.population
    return np.asarray(population.left_out(calibrator.fit.flags))


def _at(prior: GaussianPrior, fit: Fit) -> Fit:
    """The fits with (A, B) and the Hessian of these priors."""
    dtype = fit.A.dtype
    A, B = np.asarray(prior.mean).T.astype(dtype)
    covariance = np.linalg.inv(prior.precision).astype(dtype)
    return replace(fit, A=A, B=B, hessian=np.asarray(prior.precision, dtype), covariance=covariance)


def remembered(population: Population, forgetting: float, walk: Walk) -> Likelihoods:
    """The likelihoods of the segments' earlier rows, discounted by `forgetting`, after a walk."""
    memory = Likelihoods.from_arrays(population.likelihood_precision, population.likelihood_pull)
    predictive = population.predictive_mean, population.predictive_covariance
    return walk.moved_likelihoods(memory.times(forgetting), *predictive)


class Updated(NamedTuple):
    """The segments (K,) after an update, and the last fits of the new rows (J,)."""

    keys: NDArray[Any]
    at: Integers  # (J,), places of the segments with new rows
    fit: Fit
    new_fits: Fit
    population: Population
    levels: Levels | None


def updated(
    calibrator: SegmentCalibrator,
    memory: tuple[Fit, Likelihoods],
    rows: SegmentRows,
    pooled: Fit,
    options: Options,
    progress: bool | Listener,
    caller: Caller,
) -> Updated:
    """The fits of all segments, their population and their levels.

    `memory` has the fits of the earlier segments, and the likelihoods of their rows, as remembered;
    `pooled` is the fit of all rows, earlier and new.
    """
    new = get_indexer(calibrator.keys, split_columns(rows.keys)) < 0
    keys, _ = ascending(join([calibrator.keys, rows.keys[new]]))
    old = get_indexer(calibrator.keys, split_columns(keys))
    indices = get_indexer(keys, split_columns(rows.keys))
    earlier, likelihoods = jax.tree.map(lambda x: at_places(x, old), memory)
    out = at_places(left_out(calibrator), old)
    has_earlier = (old >= 0) & np.asarray(earlier.converged)
    has_earlier[indices] &= ~out[indices]
    out[indices] = False
    new_rows = segments_of(rows, caller)
    segments = UpdatedSegments(keys, new_rows, indices, likelihoods, earlier, has_earlier)
    levels = None
    if calibrator.by_level is not None:
        kind = calibrator.by_level.kind
        values = levels_of(keys, kind)
        fitted, population, levels = fit_levels(segments, values, kind, pooled, options, progress)
        fit = with_pooled_curve(segments.together, pooled) if fitted is None else fitted
    else:
        fit, population = _estimated(
            segments, calibrator.keys, calibrator.population, pooled, options, progress
        )
    if out.any() and population.estimated:
        fit, population = with_left_out(fit, population, earlier, out)
    return Updated(keys, indices, fit, segments.new_fits, population, levels)


def _estimated(
    segments: UpdatedSegments,
    keys: NDArray[Any],
    before: Any,
    pooled: Fit,
    options: Options,
    progress: bool | Listener,
) -> tuple[Fit, Population]:
    """The segments' fits and their population, or the earlier one if rows tell of no other.

    The keys are those of the segments before, whose covariates are known.
    """
    coordinates = segments.coordinates(options)
    to = coordinates.matrix
    alone = StandardizedSegments(segments, coordinates, options)
    prior_of_segments = normals(
        to @ before.predictive_mean, to @ before.predictive_covariance @ to.T
    )

    def unchanged(status: Status) -> tuple[Fit, Population, bool]:
        fit, likelihoods = alone.learnt(prior_of_segments, Stage.of(progress))
        original = likelihoods.transformed(np.linalg.inv(to))
        previous = unchanged_population(replace(before, status=status), original)
        return fit, previous, identifies_population(likelihoods)

    covariates = None if before.covariates is None else before.covariates.given(keys)
    if covariates is None and not identifies_population(segments.memory):
        fit, population, identified = unchanged(before.status)
        if not identified:
            return fit, population
    fitted, population = estimate_population(
        segments, pooled, options, progress, near=before, covariates=covariates
    )
    if fitted is not None:
        return fitted, population
    if covariates is not None:
        raise ValueError(
            "calibrator: expected one whose population can be estimated with the new rows, got "
            f"{population.status.name}; fit all rows again"
        )
    return unchanged(population.status)[:2]
