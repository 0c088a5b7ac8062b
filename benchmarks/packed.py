"""platt_jax's compiled solve alone: all rows packed, chunks on the device, before the clock starts.

Blocks wait on the host, where a CPU takes them as they are.

All that the benchmark knows of the library's inside is in this file.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np

from benchmarks.workloads import Workload
from platt_jax import Fit, Options
from platt_jax.backend.threads import ordered_map
from platt_jax.execution import planning, run
from platt_jax.execution.oversized import block_slices, fit_on_host, read_block
from platt_jax.passes import packing, shapes
from platt_jax.passes.blocks import Blocks
from platt_jax.passes.columns import Columns
from platt_jax.solver.solution import ProblemInputs


class Packed:
    """A workload's problems, ready to solve."""

    def __init__(self, at: Workload, options: Options = Options()):  # noqa: B008 - immutable
        sizes = np.diff(at.offsets)
        self._x64 = at.scores.dtype == np.float64
        self._options = options.with_tol(at.scores.dtype)
        self._order = planning.largest_first(sizes)
        sizes = sizes[self._order]
        grouped = at if np.all(self._order[:-1] < self._order[1:]) else at.only(self._order)
        columns = Columns(grouped.scores, grouped.labels, grouped.weights)

        def rows(problems: slice, part: slice, space: packing.Space):
            mine = slice(grouped.offsets[problems.start], grouped.offsets[problems.stop])
            return packing.flat(jax.tree.map(lambda x: x[mine][part], columns), space)

        oversized = int(np.sum(sizes > shapes.sizes().problem_rows))
        chunks = list(planning.chunks(sizes, oversized))
        self._problems = [1] * oversized + [c.problems.stop - c.problems.start for c in chunks]
        with jax.enable_x64(self._x64):
            self._blocks = [
                [read_block(partial(rows, slice(i, i + 1)), x) for x in block_slices(sizes[i])]
                for i in range(oversized)
            ]
            self._chunks = [
                (
                    jax.device_put((rows(chunk.problems, slice(None), space), chunk.row_map())),
                    chunk.tile_shape.block,
                )
                for chunk in chunks
                for space in [packing.Space(chunk.capacity)]
            ]

    def solve(self) -> list[Fit]:
        """Run the compiled programs over all blocks and chunks, and wait for them."""
        with jax.enable_x64(self._x64):
            by_blocks = [
                fit_on_host(Blocks(source=x), ProblemInputs(), self._options) for x in self._blocks
            ]
            return jax.block_until_ready(
                [*by_blocks, *ordered_map(self._solve_chunk, self._chunks)]
            )

    def _solve_chunk(self, chunk) -> Fit:
        arrays, block = chunk
        fitted = run.solve_chunk(*arrays, ProblemInputs(), options=self._options, block=block)
        return jax.block_until_ready(fitted)

    def in_order(self, done: list[Fit]) -> dict[str, np.ndarray]:
        """What `solve` returned, an entry per problem in the order of the workload."""
        out = {}
        for name in ("A", "B", "iterations", "passes"):
            fields = [np.asarray(getattr(fit, name)).reshape(-1) for fit in done]
            values = np.concatenate([x[:n] for x, n in zip(fields, self._problems, strict=True)])
            out[name] = np.empty_like(values)
            out[name][self._order] = values
        return out
