"""One oversized problem: its rows are read in blocks, and the host adds up their sums.

Each method of `Rows` is one program, run on every block. All blocks have one shape: a problem of
any size compiles the same few programs.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import ordered_map
from platt_jax.model import statistics
from platt_jax.model.objective import Array
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import ScoreRanges
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.passes.deferred import DeferredRows, Request
from platt_jax.passes.vectors import VectorRows


class Block(NamedTuple):
    """Some of the rows, in arrays of one length for all blocks."""

    columns: Columns
    # The number of rows, which come first in the arrays; an array [1] for each device of a mesh.
    size: np.int32 | Array


@dataclass(frozen=True, kw_only=True)
class Blocks(DeferredRows):
    """The rows of one problem, read again by every method. See `protocol.Rows` for the methods."""

    source: Iterable[Any]  # the blocks, or items to read them from; iterated once in each pass
    # reads a block, given its item, on the thread that computes its sums; None if the items are
    # blocks
    read: Callable[[Any], Block] | None = None
    # the devices, which each get a block of every item; None for the default device
    mesh: Mesh | None = None

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        return statistics.union(list(self._block_results(Request("score_ranges", options))))

    def _sum(self, request: Request, *arrays: Any) -> Any:
        """See `DeferredRows`. Sums are taken in float64, so that counts stay exact."""
        parts = list(self._block_results(request, *arrays))
        with np.errstate(all="ignore"):
            return jax.tree.map(
                lambda *x: np.sum(np.stack(x), 0, dtype=np.float64).astype(x[0].dtype), *parts
            )

    def _block_results(self, request: Request, *arrays: Any) -> Iterator[Any]:
        program = partial(
            _block_result,
            arrays=arrays,
            standardization=self.standardization,
            request=request,
            as_vectors=xla.fused_cpu_supported(),
            mesh=self.mesh,
        )

        def sums(item: Any) -> Any:
            block = item if self.read is None else self.read(item)
            return accelerators.fetched_together(jax.block_until_ready(program(block)))

        results = ordered_map(sums, self.source)
        return results if self.mesh is None else chain.from_iterable(map(_device_results, results))


def _device_results(made: Any) -> list[Any]:
    """The results of each device, given arrays with the devices as leading axis."""
    leaves, tree = jax.tree.flatten(jax.device_get(made))
    return [
        jax.tree.unflatten(tree, leaves_of_device) for leaves_of_device in zip(*leaves, strict=True)
    ]


@partial(xla.jit, static_argnames=("request", "as_vectors", "mesh"), wide=True)
def _block_result(
    block: Block,
    arrays: tuple[Any, ...],
    standardization: Standardization | None,
    request: Request,
    as_vectors: bool,
    mesh: Mesh | None,
) -> Any:
    """The result of the method for the rows of one block, or of one block per device of a mesh."""

    def result(block: Block, arrays: Any, standardization: Standardization | None) -> Any:
        return request.of(_rows(block, as_vectors), arrays, standardization)

    def block_sums(block: Block, *more: Any) -> Any:
        if as_vectors:
            return xla.single_call(result)(block, *more)
        per_problem = jax.tree.map(lambda x: x[..., None, None], more)
        return jax.tree.map(lambda x: x[0, 0], result(block, *per_problem))

    if mesh is None:
        return block_sums(block, arrays, standardization)

    def local(block: Any, *more: Any) -> Any:
        sums = block_sums(block._replace(size=block.size[0]), *more)
        return jax.tree.map(lambda x: x[None], sums)

    over, replicated = PartitionSpec(mesh.axis_names), PartitionSpec()
    # Unchecked: the loops start from values that do not vary over the mesh.
    return jax.shard_map(
        local, mesh=mesh, in_specs=(over, replicated, replicated), out_specs=over, check_vma=False
    )(block, arrays, standardization)


def _rows(block: Any, as_vectors: bool) -> Any:
    columns, size = block
    if not as_vectors:
        rows_left = packing.rows_left(size, len(columns.scores), jnp)
        return packing.block_tiles(columns, rows_left)
    scores, labels, weights, offset = columns
    return VectorRows(scores, labels, weights, jnp.int32(0), size, offset=offset)
