"""platt_jax's compiled solve alone: all rows packed, chunks on the device, before the clock starts.

Slabs wait on the host, where a CPU takes them as they are.

All that the benchmark knows of the library's inside is in this file.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from benchmarks.workloads import Workload
from platt_jax import Fit, Options
from platt_jax.execution import planning, run
from platt_jax.passes import blocks, packing
from platt_jax.threads import ordered_map


class Packed:
    """A workload's problems, ready to solve."""

    def __init__(self, at: Workload, options: Options = Options()):  # noqa: B008 - immutable
        sizes = np.diff(at.offsets)
        self._x64 = at.scores.dtype == np.float64
        self._options = options.with_tol(at.scores.dtype)
        self._order = planning.largest_first(sizes)
        sizes = sizes[self._order]
        grouped = at if np.all(self._order[:-1] < self._order[1:]) else at.only(self._order)
        columns = (grouped.scores, grouped.labels, grouped.weights)

        def rows(problems: slice, part: slice, space: packing.Space):
            mine = slice(grouped.offsets[problems.start], grouped.offsets[problems.stop])
            return packing.flat([None if x is None else x[mine][part] for x in columns], space)

        tall_ones = int(np.sum(sizes > planning.MAX_CHUNK_PROBLEM))
        chunks = list(planning.chunks(sizes, tall_ones))
        self._problems = [1] * tall_ones + [c.problems.stop - c.problems.start for c in chunks]
        with jax.enable_x64(self._x64):
            self._slabs = [
                list(blocks.blocks_of(sizes[i], partial(rows, slice(i, i + 1))))
                for i in range(tall_ones)
            ]
            self._chunks = [
                jax.device_put(
                    (
                        *rows(chunk.problems, slice(None), packing.Space(chunk.capacity)),
                        chunk.row_map(),
                    )
                )
                for chunk in chunks
            ]

    def solve(self) -> list[Fit]:
        """Run the compiled programs over all slabs and chunks, and wait for them."""
        with jax.enable_x64(self._x64):
            by_slabs = [blocks.fit_oversized(slabs, None, self._options) for slabs in self._slabs]
            return jax.block_until_ready([*by_slabs, *ordered_map(self._solve_chunk, self._chunks)])

    def _solve_chunk(self, chunk) -> Fit:
        return jax.block_until_ready(run.solve_chunk(*chunk, None, options=self._options))

    def in_order(self, done: list[Fit]) -> dict[str, np.ndarray]:
        """What `solve` returned, an entry per problem in the order of the workload."""
        out = {}
        for name in ("A", "B", "iterations", "passes"):
            fields = [np.asarray(getattr(fit, name)).reshape(-1) for fit in done]
            values = np.concatenate([x[:n] for x, n in zip(fields, self._problems, strict=True)])
            out[name] = np.empty_like(values)
            out[name][self._order] = values
        return out
