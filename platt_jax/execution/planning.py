"""The layout of problems: which problems share a chunk, and on which tiles or vectors they lie.

A chunk is one call of the compiled program. Its arrays have a shape from a short list, so any mix
of problem sizes compiles the same few programs, and memory is bounded by the chunk.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.backend import accelerators, threads, xla
from platt_jax.groups import Groups
from platt_jax.model.objective import Array
from platt_jax.passes import packing, shapes
from platt_jax.passes.shapes import GatherMap, RowRanges, TileShape

_MANY = 64  # groups of one tile row: if there are more, none gets spare tile rows

# Problems side by side per sort by size.
_SORTED_TOGETHER = 1 << 12

# Minimum number of rows that are worth the time to hand them to another core.
_WORTH_A_CORE = 1 << 16


class Chunk(NamedTuple):
    """Problems that share a call, and their layout."""

    problems: slice  # of all problems, in the order of the plan
    sizes: NDArray[Any]  # numbers of rows of these problems
    tile_shape: TileShape
    rows: int  # rows that fit
    groups: int

    @property
    def grid(self) -> tuple[int, int]:
        """(S, G), as in Tiles."""
        return self.groups, self.tile_shape.group

    @property
    def capacity(self) -> int:
        """Length of the chunk's flat arrays. A block may extend past the last row."""
        return self.rows + self.tile_shape.block

    def on_grid(self, values: Any) -> Any:
        """Puts arrays with the chunk's problems as leading axis on the grid, [S, G, ...]."""

        def place(leaf: NDArray[Any]) -> NDArray[Any]:
            lengthened = packing.lengthen(leaf, math.prod(self.grid))
            return lengthened.reshape(self.grid + leaf.shape[1:])

        return jax.tree.map(place, values)

    def off_grid(self, made: Any) -> Any:
        """Puts the program's results, [S, G, ...], in arrays with the problems as leading axis."""

        def problems(x: Array) -> NDArray[Any]:
            x = np.asarray(x)  # whose attributes are faster than JAX's
            return x.reshape((-1, *x.shape[2:]))[: len(self.sizes)]

        return jax.tree.map(problems, accelerators.fetched_together(made))

    def row_map(self, starts: NDArray[Any] | None = None) -> GatherMap | RowRanges:
        """The places of the rows, by the first row of each problem in the chunk's flat arrays.

        Problems may share rows. Without `starts` they lie end to end.
        """
        if starts is None:
            starts = Groups(self.sizes).starts
        by_tiles = self.tile_shape.min_tiles_per_group is None
        return self._gather_map(starts) if by_tiles else self._row_ranges(starts)

    def _row_ranges(self, starts: NDArray[Any]) -> RowRanges:
        """The places of the rows for vectors."""
        start, size = np.zeros((2, *self.grid), np.int32)
        start.ravel()[: len(self.sizes)] = starts
        size.ravel()[: len(self.sizes)] = self.sizes
        return RowRanges(start, size)

    def _gather_map(self, starts: NDArray[Any]) -> GatherMap:
        """The places of the rows for tiles."""
        tile_rows, block = self.rows // self.tile_shape.rows, self.tile_shape.block
        first, size = self._row_ranges(starts)
        groups = Groups(_tiles_per_group(self.sizes, self.tile_shape))
        used, counts = groups.rows, groups.sizes.astype(np.int32)
        # Spare tile rows go to the last group and hold no rows.
        segment_ids = np.full(tile_rows, self.groups - 1, np.int32)
        segment_ids[:used] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        tiles_per_group = np.zeros(self.groups, np.int32)
        tiles_per_group[: len(counts)] = counts
        tiles_per_group[-1] += tile_rows - used
        # Rows of each group's problems before its first tile row, and before each tile row, if all
        # groups were one: 32 bits hold them, and repeats are faster than a gather by tile row.
        offset = (block * groups.starts).astype(np.int32)[:, None]
        rows_before = block * np.arange(used, dtype=np.int32)[:, None]
        start, left = np.zeros((2, tile_rows, self.tile_shape.group), np.int32)
        in_use = slice(len(counts))
        np.subtract(np.repeat(size[in_use] + offset, counts, axis=0), rows_before, out=left[:used])
        np.maximum(left, 0, out=left)
        np.add(np.repeat(first[in_use] - offset, counts, axis=0), rows_before, out=start[:used])
        start *= left > 0
        return GatherMap(segment_ids, start, left, tiles_per_group)


def largest_first(sizes: NDArray[Any]) -> NDArray[Any]:
    """The order in which `chunks` takes problems of these sizes: by tile rows, then as given.

    Among problems side by side, each few thousand neighbours are sorted by size, so that few lanes
    end before their neighbours. A sort of all by size would scatter the results of a chunk over
    the whole, and putting them in place would take longer.
    """
    # Stored rows may be fitted on another kind of device, with larger chunks.
    most = shapes.ACCELERATOR.problem_rows
    sizes = np.minimum(sizes, most + 1)
    height = np.zeros(len(sizes), np.uint16)
    # Above the range of a tile shape, tile rows of the next larger shape are counted: 16 bits could
    # not count all rows in the smallest.
    tops = (most + 1, *(tile_shape.above for tile_shape in shapes.TILE_SHAPES))
    for tile_shape, top in zip(reversed(shapes.TILE_SHAPES), tops[-2::-1], strict=True):
        larger = sizes > tile_shape.above
        beyond = np.minimum(sizes[larger], top) - tile_shape.above
        height[larger] = height.max(initial=0) + -(-beyond // tile_shape.block)
    order = np.argsort(~height, kind="stable")
    side_by_side = order[np.sum(sizes > shapes.MAX_SIDE_BY_SIDE) :]
    even = len(side_by_side) // _SORTED_TOGETHER * _SORTED_TOGETHER
    for part in (
        side_by_side[:even].reshape(-1, _SORTED_TOGETHER),
        side_by_side[even:].reshape(1, -1),
    ):
        by_size = np.argsort(~sizes[part].astype(np.uint16), kind="stable")
        part[:] = np.take_along_axis(part, by_size, axis=1)
    return order


def chunks(
    sizes: NDArray[Any],
    first: int = 0,
    most: int | None = None,
    tile_shapes: tuple[TileShape, ...] | None = None,
    alike: int | None = None,
) -> Iterator[Chunk]:
    """Chunks for problems of these sizes, in the order of `largest_first`.

    The first chunk begins with problem `first`. No chunk has more than `most` rows, unless a single
    problem needs more. No problem may be oversized. `most` and the tile shapes default to the
    current device's. With `alike` all chunks of a tile shape have so many rows, unless a single
    problem needs more, and as many groups as may be in use.
    """
    capacity = shapes.sizes()
    most, tile_shapes = most or capacity.chunk_rows[-1], tile_shapes or capacity.tile_shapes
    limits = (capacity.problem_rows, *(tile_shape.above for tile_shape in tile_shapes))
    bounds = [int(np.sum(sizes > above)) for above in limits]
    bounds[-1] = len(sizes)
    for tile_shape, begin, last in zip(tile_shapes, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            allowed = _up_to(min(most, tile_shape.most or most), capacity.chunk_rows)
            shape = _shape(sizes[begin:last], tile_shape, allowed)
            if alike is not None:
                rows = _up_to(max(min(alike, most), allowed[0]), allowed)[-1]
                shape = _ChunkShape(rows, max(1, tile_shape.above // tile_shape.block), rows)
        while first < last:
            chunk = _next_chunk(sizes[:last], first, tile_shape, shape, capacity.chunk_rows)
            yield chunk
            first = chunk.problems.stop


def smaller(rows: int) -> int | None:
    """The next smaller chunk size, or None."""
    return max((size for size in shapes.sizes().chunk_rows if size < rows), default=None)


class _ChunkShape(NamedTuple):
    """The shape that chunks of one tile shape share: compiling costs more than empty rows."""

    rows: int
    # Minimum tile rows reserved per group. Where problems are large, far fewer groups suffice.
    min_tiles: int
    filled: int  # rows at which a chunk is full


def _up_to(most: int, chunk_rows: tuple[int, ...]) -> tuple[int, ...]:
    """The chunk sizes up to this one."""
    return tuple(rows for rows in chunk_rows if rows <= most)


def _shape(sizes: NDArray[Any], tile_shape: TileShape, allowed: tuple[int, ...]) -> _ChunkShape:
    """The shape of chunks for these problems, which are all problems of a tile shape."""
    most = allowed[-1]
    tiles_per_group = _tiles_per_group(sizes, tile_shape)
    groups, tile_rows = len(tiles_per_group), int(np.sum(tiles_per_group))
    if tile_shape.min_tiles_per_group is not None and xla.fused_cpu_supported():
        filled = (
            _share(tile_rows * tile_shape.rows, most)
            + int(np.max(tiles_per_group)) * tile_shape.rows
        )
        rows = _bucket(filled, allowed)
        return _ChunkShape(rows, tile_shape.min_tiles_per_group, min(filled, rows))
    rows = _bucket(tile_rows * tile_shape.rows, allowed)
    chunk_tiles = rows // tile_shape.rows

    def fits(min_tiles: int) -> bool:
        if tile_rows <= chunk_tiles:
            return min_tiles * groups <= chunk_tiles
        # Small problems leave tile rows empty, but no more than a fifth of all.
        needed: int = np.sum(np.maximum(tiles_per_group, min_tiles))
        return needed <= 1.25 * tile_rows

    return _ChunkShape(rows, next((min_tiles for min_tiles in (8, 4) if fits(min_tiles)), 2), rows)


def _bucket(rows: int, allowed: tuple[int, ...]) -> int:
    """The smallest chunk size for this many rows, or the largest that is allowed."""
    return next((size for size in allowed if rows <= size), allowed[-1])


def _share(rows: int, most: int) -> int:
    """Rows per part, for parts of at most `most` rows that keep all cores busy to the end."""
    parts, all_cores = -(-rows // most), threads.cores()
    even = -(-parts // all_cores) * all_cores
    return -(-rows // min(even, max(parts, rows // _WORTH_A_CORE)))


def block_length(size: int, devices: int = 1) -> int:
    """Rows per block of a problem of this size; the last may be shorter. All devices get some."""
    block = min(shapes.sizes().block_rows, -(-size // devices))
    share = _share(size, block) if xla.fused_cpu_supported() else block
    return -(-share // shapes.ALIGNMENT) * shapes.ALIGNMENT


def _next_chunk(
    sizes: NDArray[Any],
    first: int,
    tile_shape: TileShape,
    shape: _ChunkShape,
    chunk_rows: tuple[int, ...],
) -> Chunk:
    """A chunk with as many problems from the first on as fit."""
    most = shape.rows // tile_shape.rows * tile_shape.group  # problems
    tiles_per_group = _tiles_per_group(sizes[first : first + most], tile_shape)
    # Many groups of one tile row each, and no larger ones, get no spare tile rows.
    min_tiles = 1 if tiles_per_group[0] == 1 and len(tiles_per_group) > _MANY else shape.min_tiles
    ends = np.cumsum(tiles_per_group) * tile_shape.rows
    fitting = int(np.searchsorted(ends, shape.filled, side="right"))
    group_count = max(1, min(fitting, shape.rows // tile_shape.rows // min_tiles))
    rows = next(rows for rows in (shape.rows, *chunk_rows) if rows >= ends[group_count - 1])
    last = min(first + group_count * tile_shape.group, len(sizes))
    return Chunk(
        slice(first, last),
        sizes[first:last],
        tile_shape,
        rows,
        rows // tile_shape.rows // min_tiles,
    )


def _tiles_per_group(sizes: NDArray[Any], tile_shape: TileShape) -> NDArray[Any]:
    """The tile rows of each group of problems of these sizes; each group's first is its largest."""
    return -(-sizes[:: tile_shape.group] // tile_shape.block)


def layout_rows(sizes: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The first row of each problem in a common layout, and the layout's length.

    Problems lie end to end, but the first of each chunk and each oversized problem are aligned so
    that JAX does not copy them.
    """
    oversized = int(np.sum(sizes > shapes.sizes().problem_rows))
    firsts = np.array(
        [*range(oversized), *(chunk.problems.start for chunk in chunks(sizes, oversized))]
    )
    lengths = np.add.reduceat(sizes, firsts)
    aligned_lengths = -(-lengths // shapes.ALIGNMENT) * shapes.ALIGNMENT
    gaps = np.zeros(len(sizes), np.int64)
    gaps[firsts[1:]] = (aligned_lengths - lengths)[:-1]
    starts = Groups(sizes).starts + np.cumsum(gaps)
    return starts, int(starts[-1] + sizes[-1])
