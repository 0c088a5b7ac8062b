"""Segments with a given population: their fits under it, and their losses."""

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import SILENT, Stage
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.population import quadrature
from platt_jax.population.gaussians import Normals
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.places import is_there, namespace, program, sent
from platt_jax.population.quadrature import COARSE, Grid, Nodes, fine
from platt_jax.population.segments import Coordinates, Segments, finite
from platt_jax.population.symmetric import Square, Symmetric
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs
from platt_jax.status import Status

# How far out a segment's scores lie, relative to the width of all, where the segment is left out:
# its slope is below 0.02 or so in the population's unit.
_FAR = 100


class StandardizedSegments(NamedTuple):
    """Segments in the coordinates of their population: (A, B) here are less their effects."""

    segments: Segments
    coordinates: Coordinates
    options: Options
    left_out: NDArray[np.bool_] | None = None  # (K,), segments that say nothing of the population
    effects: Any = 0.0  # (K, 2), what covariates add to the mean of each segment

    def without_far_scores(self, fit: Fit) -> "StandardizedSegments":
        """Leaves out the segments whose scores are far from all others, given a first fit.

        Codes for missing values in rows of both classes make a segment's slope 0, with a standard
        error of nearly 0. That is in the unit of the codes, and says nothing of other segments. The
        standard deviation of the scores, weighted by information, is the standard error of B given
        A over that of A. Where half of the segments are as far out, none is left out.
        """
        covariance = Square.of(self.coordinates.matrix).congruent(
            Symmetric.of(fit.covariance.astype(float))
        )
        with np.errstate(invalid="ignore", divide="ignore"):  # of what has no factor
            AA, _, BB = covariance.factor()
        mask = (BB > _FAR * AA) | ~(AA > 0)
        wide, number = self.total(np.array([mask.sum(), len(mask)], float))
        if not wide:
            return self
        # Not for lack of rows, nor for a row that is not finite.
        flat = Normals(*np.zeros((5, len(mask))))
        mask &= np.asarray(self.losses(COARSE, flat))[:, 0] > 0
        mask &= self.segments.fit(ProblemInputs(), self.options, SILENT).status != Status.NON_FINITE
        (wide,) = self.total(np.array([mask.sum()], float))
        return self._replace(left_out=mask) if 0 < 2 * wide < number else self

    def curve_of_others(self, nodes: Normals, prior: Normals) -> NDArray[np.float64]:
        """(2,), the curve of all rows but those left out, by a Newton step.

        The nodes are normal approximations of the posteriors under the prior.
        """
        included = np.full(len(nodes.mean_A), True) if self.left_out is None else ~self.left_out
        precision = np.linalg.inv(nodes.covariance[included])
        before = np.linalg.inv(prior.covariance)
        pull = np.einsum("kij,kj->ki", precision, nodes.mean[included]) - before @ prior.mean
        sums = self.total(np.append((precision - before).sum(0).ravel(), pull.sum(0)))
        return np.linalg.lstsq(sums[:4].reshape(2, 2), sums[4:])[0].astype(float)

    def modes(
        self, population: Normals, start: NDArray[np.float64] | None = None, stage: Stage = SILENT
    ) -> Fit:
        """Each segment's fit with the population as prior, either one for all or one for each.

        Without `start` each search begins at its usual start. A start of NaN means the same, so one
        program serves both cases.
        """
        segments, K = self.segments, len(self.segments.keys)
        to_original = np.linalg.inv(self.coordinates.matrix)
        mean = (population.mean + self.effects) @ to_original.T
        precision = np.linalg.inv(to_original @ population.covariance @ to_original.T)
        prior = CenteredPrior.of(
            GaussianPrior(np.broadcast_to(mean, (K, 2)), np.broadcast_to(precision, (K, 2, 2))),
            segments.dtype,
        )
        start_points = np.nan if start is None else (start + self.effects) @ to_original.T
        pair: Any = tuple(np.broadcast_to(start_points, (K, 2)).astype(segments.dtype).T)
        return segments.fit(ProblemInputs(prior, pair), self.options, stage)

    def around(self, fit: Fit, population: Normals) -> Normals:
        """Normal approximations at the modes.

        They are the population where a fit has none, or where the segment is left out.
        """
        matrix = self.coordinates.matrix
        mean = np.stack([fit.A, fit.B], -1).astype(float) @ matrix.T - self.effects
        covariance = Square.of(matrix).congruent(Symmetric.of(fit.covariance.astype(float)))
        with np.errstate(invalid="ignore", divide="ignore"):  # of what has no factor
            own_normals = Normals(mean[:, 0], mean[:, 1], *covariance.factor())
        usable: Any = np.isfinite(own_normals).all(0)
        usable &= (own_normals.factor_AA > 0) & (own_normals.factor_BB > 0)
        if self.left_out is not None:
            usable &= ~self.left_out
        return Normals(
            *(np.where(usable, x, y) for x, y in zip(own_normals, population, strict=True))
        )

    def learnt(self, prior: Normals, stage: Stage = SILENT) -> tuple[Fit, Likelihoods]:
        """The fit of each segment under its own prior, and the likelihoods of the segments."""
        fit = self.modes(prior, None, stage)
        nodes = self.around(fit, prior)
        grid = fine(len(self.segments.keys))
        losses = self.losses(grid, nodes)
        return fit, Likelihoods.of(
            quadrature.posteriors(grid, losses, nodes, prior, self.total), prior
        )

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Segments`."""
        return self.segments.total(sums)

    def losses(self, grid: Grid, nodes: Normals, stage: Stage = SILENT) -> Any:
        """The loss (K, J) of each segment at its nodes, in one pass over the rows.

        On a device where the nodes are, with NaN for segments added.
        """
        segments, length, on_device = self.segments, len(nodes.mean_A), is_there(nodes)
        if np.ndim(self.effects):
            effects = sent(self.effects, 0) if on_device else self.effects
            nodes = _displaced(nodes, effects)
        coordinates: Any = (np.full(length, x, segments.dtype) for x in self.coordinates)
        placed = Nodes(nodes, Standardization(*coordinates))
        if on_device:
            losses: Any = segments.node_losses_there(grid, placed, self.options, stage)
        else:
            placed = jax.tree.map(lambda x: x.astype(segments.dtype), placed)
            losses = finite(segments.node_losses(grid, placed, self.options, stage))
        if self.left_out is None:
            return losses
        return _flat(losses, sent(self.left_out, False) if on_device else self.left_out)


@program
def _displaced(nodes: Normals, by: Any) -> Normals:
    return nodes._replace(mean_A=nodes.mean_A + by[:, 0], mean_B=nodes.mean_B + by[:, 1])


@program
def _flat(losses: Any, some: Any) -> Any:
    """Losses (K, J), flat for some segments (K,)."""
    return namespace(losses).where(some[:, None], 0, losses)
