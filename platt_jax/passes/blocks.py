"""One oversized problem: its rows come block by block, and the host adds up the sums.

Each method of `Rows` is one program, run on every block. All blocks have one shape: a problem of
any size compiles the same few programs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.model import statistics
from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes import packing, xla
from platt_jax.passes.vectors import VectorRows
from platt_jax.threads import ordered_map


class Block(NamedTuple):
    """Some of the rows, in arrays of one length for all blocks."""

    scores: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None
    size: np.int32  # how many rows there are, from the first place on


@dataclass(frozen=True)
class Blocks:
    """The rows of one problem, which every method reads anew. See `protocol.Rows` for the methods.

    Attributes:
        source: what the blocks are made of; something that can be iterated over again and again.
        read: makes a block of an item of the source, on the thread that then takes its sums; None
            where the items are the blocks.
        masked: how rows that are not finite were masked, if they were.
        standardization: of the scores, if any.
    """

    source: Iterable
    read: Callable[[Any], Block] | None = None
    masked: Options | None = None
    standardization: Standardization | None = None

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        return statistics.union(list(self._of_blocks("score_ranges", options)))

    def mask_nonfinite(self, options: Options) -> "Blocks":
        """See `Rows`."""
        return replace(self, masked=options)

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        return self._sum("moments", standardization)

    def standardized(self, standardization: Standardization) -> "Blocks":
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(self, point, targets: Targets, options: Options, active=None) -> Derivatives:
        """See `Rows`."""
        return self._sum("derivatives", point, targets, options)

    def loss(self, point, targets: Targets):
        """See `Rows`."""
        return self._sum("loss", point, targets)

    def loss_change(self, before, after, targets: Targets):
        """See `Rows`."""
        return self._sum("loss_change", before, after, targets)

    def _sum(self, method, *arguments):
        """The sum over the blocks, in float64 whatever its type: counts stay exact."""
        parts = list(self._of_blocks(method, *arguments))
        with np.errstate(all="ignore"):
            return jax.tree.map(
                lambda *x: np.sum(np.stack(x), 0, dtype=np.float64).astype(x[0].dtype), *parts
            )

    def _of_blocks(self, method, *arguments):
        options = tuple(x for x in arguments if isinstance(x, Options))
        arrays = tuple(x for x in arguments if not isinstance(x, Options))
        program = partial(
            _of_block,
            arrays=arrays,
            standardization=self.standardization,
            options=options,
            masked=self.masked,
            method=method,
            as_vectors=xla.fused_cpu_supported(),
        )

        def sums(item):
            block = item if self.read is None else self.read(item)
            return jax.block_until_ready(program(block))

        return ordered_map(sums, self.source)


@partial(
    jax.jit,
    static_argnames=("method", "options", "masked", "as_vectors"),
    compiler_options=xla.COMPILER_OPTIONS,
)
def _of_block(block, arrays, standardization, method, options, masked, as_vectors):
    """What the method returns for the rows of one block."""

    def run(block, arrays, standardization):
        rows = _rows(block, as_vectors)
        if masked is not None:
            rows = rows.mask_nonfinite(masked)
        if standardization is not None:
            rows = rows.standardized(standardization)
        return getattr(rows, method)(*arrays, *options)

    if as_vectors:
        return xla.single_call(run)(block, arrays, standardization)
    per_problem = jax.tree.map(lambda x: x[..., None, None], (arrays, standardization))
    return jax.tree.map(lambda x: x[0, 0], run(block, *per_problem))


def _rows(block, as_vectors):
    if not as_vectors:
        return packing.block_tiles(*block)
    scores, labels, weights, size = block
    return VectorRows(scores, labels, weights, jnp.int32(0), size)
