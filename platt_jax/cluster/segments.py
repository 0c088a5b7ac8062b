"""The segments of one part: its own, and a share of the rows of segments that all parts have."""

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.api import fit
from platt_jax.caller import Caller
from platt_jax.distributed.segments import ProcessSegments
from platt_jax.distributed.shared_sums import Meeting
from platt_jax.execution.progress import Stage
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids.factorize import factorize
from platt_jax.options import Options
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs


class PartSegments(ProcessSegments):
    """Segments of one part; see `Segments` for the methods.

    Each part sums over its share of the rows of the large segments, whose ids are the same in all
    parts. Their results belong to part 0. A part without own segments, or without a share, has
    None.
    """

    def __init__(
        self,
        own: SegmentRows | None,
        share: SegmentRows | None,
        large: NDArray[Any],
        dtype: np.dtype[Any],
        has_offset: bool,
        meeting: Meeting,
        part: int,
        caller: Caller,
    ) -> None:
        super().__init__(large, dtype, share, meeting, caller, has_offset, without_fit=own)
        self._own = None if own is None else ChunkedSegments(own, caller)
        self._number_large, self._is_owner = len(large), part == 0
        keys = [] if own is None else [own.keys]
        self._keys, self._order = ascending_order([*keys, large] if self._is_owner else keys, large)

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """See `Segments`."""
        return self._meeting.merged(sums, "sum")

    def fit(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        own_inputs, large_inputs = self._split(given)
        fits = [self._own.fit(own_inputs, options, stage)] if self._own else []
        if self._number_large:
            fits.append(super().fit(large_inputs, options, stage))
        return self._merged(fits or [_no_fits(self._dtype)])

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`."""
        own_inputs, large_inputs = self._split(nodes)
        losses = [np.empty((0, len(grid.z)), self._dtype)]
        if self._own:
            losses.append(self._own.node_losses(grid, own_inputs, options, stage))
        if self._number_large:
            losses.append(super().node_losses(grid, large_inputs, options, stage))
        return self._merged(losses)

    def _split(self, given: Any) -> tuple[Any, Any]:
        """Arrays for this part's own segments, and for the large ones as part 0 has them."""
        own_count, large = len(self._own.keys) if self._own else 0, self._number_large

        def placed(x: Any) -> Any:
            by_place = np.empty_like(x)
            by_place[self._order] = x
            return by_place

        placed_all = jax.tree.map(placed, given)
        own_inputs = jax.tree.map(lambda x: x[:own_count], placed_all)
        if not large:
            return own_inputs, None

        def entries_of_owner(x: Any) -> Any:
            entries = x[own_count:] if self._is_owner else np.zeros((large, *x.shape[1:]))
            return self._meeting.merged(entries.astype(float), "sum").astype(x.dtype)

        return own_inputs, jax.tree.map(entries_of_owner, placed_all)

    def _merged(self, found: list[Any]) -> Any:
        """Results in the order of the keys, from results of own and of large segments."""

        def merged(*each: Any) -> Any:
            return np.concatenate([np.asarray(x) for x in each])[self._order]

        return jax.tree.map(merged, *found)


def _no_fits(dtype: np.dtype[Any]) -> Fit:
    fitted = fit(np.zeros((1, 1), dtype), np.zeros((1, 1)))
    empty: Fit = jax.tree.map(lambda x: np.asarray(x)[:0], fitted)
    return empty


def ascending_order(
    parts: list[NDArray[Any]], like: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The ids of all parts in ascending order, and their places among the parts end to end."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return like[:0], np.arange(0)
    rows = factorize(ids.read(ids.join(parts)))
    rank = rows.of(slice(None))
    order = np.argsort(rank, kind="stable")
    return rows.named(rank[order]), order
