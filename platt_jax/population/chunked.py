"""Segments whose rows are fitted in chunks by the compiled program: rows in memory or on disk."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.backend.threads import run_concurrently
from platt_jax.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import SILENT, Stage
from platt_jax.execution.run import fit_problems, fit_task, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import CenteredPrior
from platt_jax.model.statistics import quartiles
from platt_jax.options import Options
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs

if TYPE_CHECKING:
    from platt_jax.population.quadrature import Grid, Nodes

# Scores sampled to find coordinates.
SAMPLED_ROWS = 100_000
MIDDLE_HALF = 1.349  # the interquartile range of N(0, 1)


class ChunkedSegments(Segments):
    """Rows grouped by segment; see `Segments` for the methods.

    The checkpoint stores the segments' fits as they come.
    """

    def __init__(
        self,
        rows: SegmentRows,
        caller: Caller,
        mesh: Mesh | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._rows, self._caller, self._mesh = rows, caller, mesh
        self._checkpoint, self.has_offset = checkpoint, rows.has_offset

    @property
    def keys(self) -> NDArray[Any]:
        """See `Segments`."""
        return self._rows.keys

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `Segments`."""
        dtype: np.dtype[Any] = self._rows.dtype
        return dtype

    def fit(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        context = self._context(options, stage)._replace(checkpoint=self._checkpoint)
        return fit_problems(self._rows.problems, given, context)

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        context = self._context(replace(options, non_finite="omit"), stage)
        fit = fit_problems(self._rows.pooled, given, context, loss=False)
        pooled_fit: Fit = jax.tree.map(lambda x: x[0, ...], fit)
        return pooled_fit

    def pooled_first(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`. The fits' program is compiled at the same time."""
        if self._mesh is not None or not xla.fused_cpu_supported():
            return self.pooled(given, options, stage)
        zero: Any = np.broadcast_to(np.zeros((), self.dtype), len(self.keys))
        inputs = ProblemInputs(CenteredPrior(*[zero] * 6), (zero, zero))
        context = self._context(replace(options, targets="none"), SILENT)._replace(ahead=True)
        _, pooled = run_concurrently(
            lambda: run_problems(fit_task(True), self._rows.problems, inputs, context),
            lambda: self.pooled(given, options, stage),
        )
        return pooled

    def both(
        self, given: ProblemInputs, shared: ProblemInputs, options: Options, stage: Stage
    ) -> tuple[Fit, Fit]:
        """See `Segments`."""
        pooled, fit = run_concurrently(
            lambda: self.pooled(shared, options, SILENT), lambda: self.fit(given, options, stage)
        )
        return fit, pooled

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`."""
        return coordinates_of(self._rows.sampled_scores(SAMPLED_ROWS), self.dtype)

    def node_losses(
        self, grid: "Grid", nodes: "Nodes", options: Options, stage: Stage
    ) -> NDArray[Any]:
        """See `Segments`."""
        context = self._context(options, stage)
        losses: NDArray[Any] = run_problems(grid.losses, self._rows.problems, nodes, context)
        return losses

    def _context(self, options: Options, stage: Stage) -> Context:
        return Context(options, self._caller, stage, mesh=self._mesh)


def coordinates_of(sample: NDArray[np.float64], dtype: np.dtype[Any]) -> Coordinates:
    """The coordinates in which the middle half of the scores is as wide as N(0, 1)'s.

    The sample (N, 2) has scores and weights.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # such a width is refused
        low, middle, high, deviation = quartiles(sample[:, 0], sample[:, 1], np)
        width = (high - low) / MIDDLE_HALF or deviation
    return Coordinates.from_center_and_width(middle, width, dtype)


def coordinates_of_parts(
    parts: Iterable[Any],
    number: float,
    gather: Callable[[bytes], list[bytes]],
    dtype: np.dtype[Any],
) -> Coordinates:
    """`coordinates_of` the rows of all places, each of which sends a sample of its parts.

    `gather` returns what each place sends, and `number` is the number of rows of all.
    """
    share = min(1.0, SAMPLED_ROWS / number)
    samples = [rows.sampled_scores(math.ceil(share * len(rows))) for rows in parts]
    message = np.concatenate([*samples, np.empty((0, 2))]).tobytes()
    return coordinates_of(np.frombuffer(b"".join(gather(message))).reshape(-1, 2), dtype)
