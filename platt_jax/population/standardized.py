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
from platt_jax.population.places import is_there
from platt_jax.population.quadrature import Grid, Nodes, fine
from platt_jax.population.segments import Coordinates, Segments, finite
from platt_jax.population.symmetric import Square, Symmetric
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs


class StandardizedSegments(NamedTuple):
    """Segments in the coordinates of their population."""

    segments: Segments
    coordinates: Coordinates
    options: Options

    def modes(
        self, population: Normals, start: NDArray[np.float64] | None = None, stage: Stage = SILENT
    ) -> Fit:
        """Each segment's fit with the population as prior, either one for all or one for each.

        Without `start` each search begins at its usual start. A start of NaN means the same, so one
        program serves both cases.
        """
        segments, K = self.segments, len(self.segments.keys)
        to_original = np.linalg.inv(self.coordinates.matrix)
        mean = population.mean @ to_original.T
        precision = np.linalg.inv(to_original @ population.covariance @ to_original.T)
        prior = CenteredPrior.of(
            GaussianPrior(np.broadcast_to(mean, (K, 2)), np.broadcast_to(precision, (K, 2, 2))),
            segments.dtype,
        )
        begin = np.nan if start is None else start @ to_original.T
        pair: Any = tuple(np.broadcast_to(begin, (K, 2)).astype(segments.dtype).T)
        return segments.fit(ProblemInputs(prior, pair), self.options, stage)

    def around(self, fit: Fit, population: Normals) -> Normals:
        """Normal approximations at the modes, or the population where a fit has none."""
        to = self.coordinates.matrix
        mean = np.stack([fit.A, fit.B], -1).astype(float) @ to.T
        own = Square.of(to).congruent(Symmetric.of(fit.covariance.astype(float)))
        with np.errstate(invalid="ignore", divide="ignore"):  # of what has no factor
            own_normals = Normals(mean[:, 0], mean[:, 1], *own.factor())
        usable: Any = np.isfinite(own_normals).all(0)
        usable &= (own_normals.factor_AA > 0) & (own_normals.factor_BB > 0)
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
        segments, length = self.segments, len(nodes.mean_A)
        coordinates: Any = (np.full(length, x, segments.dtype) for x in self.coordinates)
        placed = Nodes(nodes, Standardization(*coordinates))
        if is_there(nodes):
            return segments.node_losses_there(grid, placed, self.options, stage)
        placed = jax.tree.map(lambda x: x.astype(segments.dtype), placed)
        return finite(segments.node_losses(grid, placed, self.options, stage))
