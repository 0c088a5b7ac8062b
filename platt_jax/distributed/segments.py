"""Segments whose rows are in several processes."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.caller import Caller
from platt_jax.distributed.shared_sums import LocalRows, Meeting, SummedRows
from platt_jax.execution.progress import Stage, reporting_passes
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids import read
from platt_jax.ids.indexing import get_indexer
from platt_jax.options import Options
from platt_jax.population.chunked import coordinates_of_parts
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.population.segments import Coordinates
from platt_jax.population.summed import SummedSegments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs


class ProcessSegments(SummedSegments):
    """Segments over all processes, which must call the methods of `Segments` in the same order.

    Args:
        keys: (K,) the segments of all processes.
        dtype: the dtype of all scores.
        rows: their rows in this process, None if it has none.
        meeting: adds up over all processes.
        caller: gets warnings about anything that makes the sums slower.
        has_offset: whether the rows of all processes have offsets.
        without_fit: this process's rows of other segments, which the fit of all rows has, too.
        sums_only: whether no number of a single row may leave the process.
    """

    def __init__(
        self,
        keys: NDArray[Any],
        dtype: np.dtype[Any],
        rows: SegmentRows | None,
        meeting: Meeting,
        caller: Caller,
        has_offset: bool,
        without_fit: SegmentRows | None = None,
        sums_only: bool = False,
    ) -> None:
        self._meeting, self._sums_only = meeting, sums_only
        self._here = [part for part in (without_fit, rows) if part is not None]
        own_sizes = np.zeros(len(keys) + 1)
        own_sizes[-1] = sum(map(len, self._here))
        by_segment: tuple[LocalRows, ...] = ()
        if rows is not None:
            positions = get_indexer(keys, read(rows.keys))
            own_sizes[positions[rows.largest_first]] = rows.sizes
            by_segment = (LocalRows(rows.problems, positions),)
        sizes = meeting.merged(own_sizes, "sum").astype(np.int64)
        self._number = sizes[-1:]
        summed = partial(
            SummedRows,
            dtype=dtype,
            meeting=meeting,
            caller=caller,
            has_offset=has_offset,
            rounded=sums_only,
        )
        all_rows = tuple(LocalRows(part.pooled, np.array([0])) for part in self._here)
        self._all_rows = summed(local=all_rows, number=1)
        self._summed = summed(local=by_segment, number=len(keys))
        super().__init__(keys, dtype, self._summed, sizes[:-1], has_offset)

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`. Samples of all processes are gathered, unless they send sums only."""
        if self._sums_only:
            return super().coordinates(options)
        gather = self._meeting.gather_bytes
        return coordinates_of_parts(self._here, self._number[0], gather, self._dtype)

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        options = replace(options, non_finite="omit")
        fit = self.fit_rows(self._all_rows, self._number, given, options, stage, loss=False)
        return jax.tree.map(lambda x: x[0], fit)

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`; one pass for all nodes."""
        with reporting_passes(self._sizes, stage):
            losses: NDArray[Any] = self._summed.sums(grid.losses, nodes, len(grid.z), options)
        return losses.T
