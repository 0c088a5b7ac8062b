"""Segments whose rows lie in several processes."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.distributed.journal import Journal
from platt_jax.distributed.rows import LocalRows, SummedRows
from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage, reporting_passes
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids import read
from platt_jax.ids.factorize import Integers, get_indexer
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.population.summed import SummedSegments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given


class LocalSegments:
    """This process's rows of the K segments of all processes.

    Args:
        rows: this process's.
        keys: (K,) of all.
    """

    def __init__(self, rows: SegmentRows, keys: NDArray[Any]) -> None:
        self._rows = rows
        places = get_indexer(keys, read(rows.keys))[rows.largest_first]
        self.by_segment = LocalRows(rows.sizes, rows.take, rows.dtype, places)
        self.sizes = np.zeros(len(keys))
        self.sizes[places] = rows.sizes

    @property
    def pooled(self) -> LocalRows:
        """As one problem."""
        rows = self._rows

        def take(_: slice, part: slice, space: packing.Space) -> packing.Columns:
            return rows.all(part, space)

        return LocalRows(np.array([rows.length]), take, rows.dtype, np.array([0]))


class ProcessSegments(SummedSegments):
    """See `Segments` for the methods, which all processes call in the same order.

    Args:
        keys: (K,) of the segments of all processes.
        dtype: of all scores.
        local: this process's rows, None where it has none.
        sizes: (K,) numbers of rows in all processes.
        journal: of the sums over all processes.
        caller: is warned of what makes the sums slower.
    """

    def __init__(
        self,
        keys: NDArray[Any],
        dtype: np.dtype[Any],
        local: LocalSegments | None,
        sizes: Integers,
        journal: Journal,
        caller: Caller,
    ) -> None:
        of_each, of_all = (None, None) if local is None else (local.by_segment, local.pooled)
        summed = partial(SummedRows, dtype=dtype, journal=journal, caller=caller)
        self._summed = summed(local=of_each, number=len(keys))
        self._all_rows = summed(local=of_all, number=1)
        super().__init__(keys, dtype, self._summed, sizes)

    def pooled(self, given: Given, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        options = replace(options, non_finite="omit")
        sizes = self._sizes.sum(keepdims=True)
        fit = self.fit_rows(self._all_rows, sizes, given, options, stage, loss=False)
        one: Fit = jax.tree.map(lambda x: x[0], fit)
        return one

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`; one pass for all nodes."""
        with reporting_passes(self._sizes, stage):
            losses: NDArray[Any] = self._summed.sums(grid.losses, nodes, len(grid.z), options)
        of_each: NDArray[Any] = losses.T
        return of_each
