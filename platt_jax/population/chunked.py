"""Segments whose rows are fitted in chunks by the compiled program: rows in memory or on disk."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint
from platt_jax.execution.progress import SILENT, Stage
from platt_jax.execution.run import fit_problems, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given
from platt_jax.threads import run_concurrently

# Scores sampled to find coordinates.
_SAMPLED_ROWS = 100_000
_MIDDLE_HALF = 1.349  # the interquartile range of N(0, 1)


class ChunkedSegments(Segments):
    """Rows grouped by segment; see `Segments` for the methods.

    Args:
        rows: the rows of the segments.
        caller: gets warnings about anything that makes this slower.
        mesh: see `run_problems`.
        checkpoint: stores the segments' fits as they come.
    """

    def __init__(
        self,
        rows: SegmentRows,
        caller: Caller,
        mesh: Mesh | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._rows, self._caller, self._mesh = rows, caller, mesh
        self._checkpoint = checkpoint

    @property
    def keys(self) -> NDArray[Any]:
        """See `Segments`."""
        return self._rows.keys

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `Segments`."""
        dtype: np.dtype[Any] = self._rows.dtype
        return dtype

    def fit(self, given: Given, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        run = partial(fit_problems, checkpoint=self._checkpoint)
        fit: Fit = self._each(run, given, options, stage)
        return fit

    def pooled(self, given: Given, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        rows = self._rows

        def take(_: slice, part: slice, space: packing.Space) -> packing.Columns:
            return rows.all(part, space)

        fit = fit_problems(
            np.array([rows.length]),
            take,
            rows.dtype,
            given,
            # This also omits the gaps between segments.
            replace(options, non_finite="omit"),
            stage,
            self._caller,
            loss=False,
            reread=rows.reread,
            mesh=self._mesh,
        )
        one: Fit = jax.tree.map(lambda x: x[0, ...], fit)
        return one

    def both(self, given: Given, shared: Given, options: Options, stage: Stage) -> tuple[Fit, Fit]:
        """See `Segments`."""
        pooled, each = run_concurrently(
            lambda: self.pooled(shared, options, SILENT), lambda: self.fit(given, options, stage)
        )
        return each, pooled

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`."""
        scores = self._rows.sampled_scores(_SAMPLED_ROWS)
        scores = scores[np.isfinite(scores)].astype(float)
        low: Any
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        width = (high - low) / _MIDDLE_HALF or np.std(scores)
        return Coordinates(float(middle), float(1 / width))

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`."""
        losses: NDArray[Any] = self._each(partial(run_problems, grid.losses), nodes, options, stage)
        return losses

    def _each(self, run: Any, given: Any, options: Options, stage: Stage) -> Any:
        """The results of `run_problems` for each segment."""
        rows = self._rows
        return run(
            rows.sizes,
            rows.take,
            rows.dtype,
            jax.tree.map(lambda x: x[rows.largest_first], given),
            options,
            stage,
            self._caller,
            order=rows.largest_first,
            reread=rows.reread,
            mesh=self._mesh,
        )
