"""platt_jax's compiled solve alone: chunks packed and on the device before the clock starts.

All that the benchmark knows of the library's inside is in this file.
"""

from __future__ import annotations

import jax
import numpy as np

from benchmarks.workloads import Workload
from platt_jax import Fit, Options, packing, run


class Packed:
    """A workload's chunks, ready to solve."""

    def __init__(self, at: Workload):
        sizes = np.diff(at.offsets)
        self._x64 = at.scores.dtype == np.float64
        self._apart = run.stragglers_apart(sizes)
        self._options = Options().with_tol(at.scores.dtype)
        self._order = np.argsort(-sizes, kind="stable")
        sizes = sizes[self._order]
        grouped = at if np.all(self._order[:-1] < self._order[1:]) else at.only(self._order)
        columns = (grouped.scores, grouped.labels, grouped.weights)
        self._chunks = list(packing.chunks(sizes))
        self._calls = []
        with jax.enable_x64(self._x64):
            for chunk in self._chunks:
                problems = chunk.problems
                rows = slice(grouped.offsets[problems.start], grouped.offsets[problems.stop])
                flat = [
                    None if x is None else packing.lengthen(x[rows], chunk.capacity)
                    for x in columns
                ]
                layout = (chunk.start, chunk.size, chunk.owner, chunk.part)
                self._calls.append(jax.device_put((*flat, layout)))

    def solve(self) -> list[Fit]:
        """Run the compiled program over all chunks, and wait for it."""
        with jax.enable_x64(self._x64):
            return jax.block_until_ready(
                [
                    run._solve_chunk(*call, None, options=self._options, apart=self._apart)
                    for call in self._calls
                ]
            )

    def in_order(self, done: list[Fit]) -> dict[str, np.ndarray]:
        """What `solve` returned, an entry per problem in the order of the workload."""
        out = {}
        for name in ("A", "B", "iterations", "passes"):
            fields = [np.asarray(getattr(fit, name)).reshape(-1) for fit in done]
            lengths = [chunk.problems.stop - chunk.problems.start for chunk in self._chunks]
            values = np.concatenate([x[:n] for x, n in zip(fields, lengths, strict=True)])
            out[name] = np.empty_like(values)
            out[name][self._order] = values
        return out
