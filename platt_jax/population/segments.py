"""Segments whose population is given: their fits under it, and their posteriors."""

from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import SILENT, Stage
from platt_jax.execution.run import fit_problems, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.population import quadrature
from platt_jax.population.quadrature import Nodes, Normals, Posteriors, normals
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given

_SAMPLED_ROWS = 100_000


class Coordinates(NamedTuple):
    """(score - center) * scale: the coordinates in which a population is described."""

    center: float
    scale: float

    @classmethod
    def of(cls, rows: SegmentRows) -> "Coordinates":
        """Those in which the middle half of the scores is as wide as that of N(0, 1)."""
        scores = rows.sampled_scores(_SAMPLED_ROWS)
        scores = scores[np.isfinite(scores)].astype(float)
        low: Any
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        width = (high - low) / 1.349 or np.std(scores)
        return cls(float(middle), float(1 / width))

    @property
    def matrix(self) -> np.ndarray:
        """(2, 2), which takes (A, B) to these coordinates."""
        return np.array([[1 / self.scale, 0], [self.center, 1]])


class Segments(NamedTuple):
    """Rows by segment, and what stays the same from population to population."""

    rows: SegmentRows
    coordinates: Coordinates
    options: Options
    caller: Caller
    over: Mesh | None = None  # as of `run_problems`

    def modes(self, population: Normals, start=None, told: Stage = SILENT) -> Fit:
        """Each segment's fit under the population as its prior."""
        rows, K = self.rows, len(self.rows.keys)
        to_original = np.linalg.inv(self.coordinates.matrix)
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
            told,
            self.caller,
            order=rows.largest_first,
            reread=rows.reread,
            over=self.over,
        )

    def around(self, fit: Fit, population: Normals) -> Normals:
        """The normal approximations at the modes; where a fit has none, the population."""
        to = self.coordinates.matrix
        mean = np.stack([fit.A, fit.B], -1).astype(float) @ to.T
        covariance = to @ fit.covariance.astype(float) @ to.T
        usable = np.isfinite(mean).all(-1) & np.isfinite(covariance).all((-1, -2))
        usable &= np.linalg.det(np.where(usable[:, None, None], covariance, np.eye(2))) > 0
        return normals(
            np.where(usable[:, None], mean, population.mean),
            np.where(usable[:, None, None], covariance, population.covariance),
        )

    def posteriors(self, population: Normals, nodes: Normals, told: Stage = SILENT) -> Posteriors:
        """One pass over the rows: the posteriors, by the loss at the segments' nodes."""
        rows, order = self.rows, self.rows.largest_first
        of_each: Any = (np.full(len(order), x, rows.dtype) for x in self.coordinates)
        placed = Nodes(
            Normals(*(x[order].astype(rows.dtype) for x in nodes)), Standardization(*of_each)
        )
        losses = run_problems(
            quadrature.NODE_LOSSES,
            rows.sizes,
            rows.take,
            rows.dtype,
            placed,
            self.options,
            told,
            self.caller,
            order=order,
            reread=rows.reread,
            over=self.over,
        )
        # A segment whose rows are not finite says nothing.
        losses = np.where(np.isfinite(losses).all(1)[:, None], losses, 0)
        return quadrature.posteriors(losses, nodes, population)
