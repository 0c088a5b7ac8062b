"""Where problems lie: which share a chunk, and on which of its tiles or vectors.

A chunk is one call of the compiled program. Its arrays have a shape from a short list, so any mix
of problem sizes compiles the same few programs, and memory is bounded by the chunk.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import threads, xla
from platt_jax.passes import shapes
from platt_jax.passes.shapes import GatherMap, RowRanges, TileShape

_MANY = 64  # groups of one tile row each

# Problems side by side that are sorted by size together.
_SORTED_TOGETHER = 1 << 12

# Fewer rows are not worth the time to hand them to another core.
_WORTH_A_CORE = 1 << 16


def _tile_shapes() -> tuple[TileShape, ...]:
    """Those for the device at hand."""
    return shapes.VECTOR_SHAPES if xla.fused_cpu_supported() else shapes.TILE_SHAPES


class Chunk(NamedTuple):
    """Problems that share a call, and how they are laid out."""

    problems: slice  # of the problems, in the order of the plan
    sizes: NDArray[Any]  # of these
    tile_shape: TileShape
    rows: int  # room for so many
    groups: int

    @property
    def grid(self) -> tuple[int, int]:
        """(S, G), as of Tiles."""
        return self.groups, self.tile_shape.group

    @property
    def capacity(self) -> int:
        """Length of the chunk's flat arrays: a block may be taken past the last row."""
        return self.rows + self.tile_shape.block

    def row_map(self, starts: NDArray[Any] | None = None) -> GatherMap | RowRanges:
        """Where the rows lie.

        Args:
            starts: where the rows of each problem begin in the chunk's flat arrays, which may be
                where another's do; None for end to end.
        """
        if starts is None:
            starts = np.cumsum(self.sizes) - self.sizes
        by_tiles = self.tile_shape.min_tiles_per_group is None
        return self._gather_map(starts) if by_tiles else self._row_ranges(starts)

    def _row_ranges(self, starts: NDArray[Any]) -> RowRanges:
        """Where the rows lie for vectors."""
        start, size = np.zeros((2, *self.grid), np.int32)
        start.ravel()[: len(self.sizes)] = starts
        size.ravel()[: len(self.sizes)] = self.sizes
        return RowRanges(start, size)

    def _gather_map(self, starts: NDArray[Any]) -> GatherMap:
        """Where the rows lie for tiles."""
        tile_rows, block = self.rows // self.tile_shape.rows, self.tile_shape.block
        first, size = self._row_ranges(starts)
        tiles_per_group = _tiles_per_group(self.sizes, self.tile_shape)
        used = np.sum(tiles_per_group)
        # Spare tile rows go to the last group; no row is left for them.
        segment_ids = np.full(tile_rows, self.groups - 1, np.int32)
        segment_ids[:used] = np.repeat(np.arange(len(tiles_per_group)), tiles_per_group)
        start, left = np.zeros((2, tile_rows, self.tile_shape.group), np.int32)
        part = np.arange(used) - np.repeat(
            np.cumsum(tiles_per_group) - tiles_per_group, tiles_per_group
        )
        before = (part * block).astype(np.int32)[:, None]
        left[:used] = np.maximum(size[segment_ids[:used]] - before, 0)
        np.add(first[segment_ids[:used]], before, out=start[:used], where=left[:used] > 0)
        tiles_per_group = np.bincount(segment_ids, minlength=self.groups).astype(np.int32)
        return GatherMap(segment_ids, start, left, tiles_per_group)


def largest_first(sizes: NDArray[Any]) -> NDArray[Any]:
    """In which order `chunks` takes problems of these sizes: by tile rows, else as they come.

    Of those that stand side by side some thousands in a row go by size, so that few lanes end
    before their neighbours. Were it by size altogether, the results of a chunk would be farther
    apart in the whole, and take longer to be put there.
    """
    sizes = np.minimum(sizes, shapes.MAX_PROBLEM_ROWS + 1)
    height = np.zeros(len(sizes), np.uint16)
    # Above what a tile shape is for, tile rows of a larger one are counted: sixteen bits would not
    # do for all rows in the smallest.
    tops = (shapes.MAX_PROBLEM_ROWS + 1, *(tile_shape.above for tile_shape in shapes.TILE_SHAPES))
    for tile_shape, top in zip(reversed(shapes.TILE_SHAPES), tops[-2::-1], strict=True):
        more = sizes > tile_shape.above
        beyond = np.minimum(sizes[more], top) - tile_shape.above
        height[more] = height.max(initial=0) + -(-beyond // tile_shape.block)
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
    most: int = shapes.MAX_CHUNK_ROWS,
    tile_shapes: tuple[TileShape, ...] | None = None,
) -> Iterator[Chunk]:
    """Chunks for problems of these sizes, whose order is that of `largest_first`.

    They begin with the problem `first`, and have no more than `most` rows, unless one problem
    alone needs more. None may be oversized. They have the tile shapes for the device at hand, or
    these.
    """
    tile_shapes = tile_shapes or _tile_shapes()
    limits = (shapes.MAX_PROBLEM_ROWS, *(tile_shape.above for tile_shape in tile_shapes))
    bounds = [int(np.sum(sizes > above)) for above in limits]
    bounds[-1] = len(sizes)
    for tile_shape, begin, last in zip(tile_shapes, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            shape = _shape(sizes[begin:last], tile_shape, min(most, tile_shape.most))
        while first < last:
            chunk = _next_chunk(sizes[:last], first, tile_shape, shape)
            yield chunk
            first = chunk.problems.stop


def smaller(rows: int) -> int | None:
    """The size of chunks below this one, if there is one."""
    return max((size for size in shapes.CHUNK_ROWS if size < rows), default=None)


class _ChunkShape(NamedTuple):
    """What the chunks of a tile shape share: compiling takes longer than rows left empty."""

    rows: int
    # A group has room for so many tile rows. Where problems are large, far fewer groups do.
    min_tiles: int
    filled: int  # a chunk is full with so many rows


def _shape(sizes: NDArray[Any], tile_shape: TileShape, most: int) -> _ChunkShape:
    """For problems of these sizes, all that there are of a tile shape."""
    tiles_per_group = _tiles_per_group(sizes, tile_shape)
    groups, tile_rows = len(tiles_per_group), int(np.sum(tiles_per_group))
    if tile_shape.min_tiles_per_group is not None:
        filled = (
            _share(tile_rows * tile_shape.rows, most)
            + int(np.max(tiles_per_group)) * tile_shape.rows
        )
        rows = _bucket(filled, most)
        return _ChunkShape(rows, tile_shape.min_tiles_per_group, min(filled, rows))
    rows = _bucket(tile_rows * tile_shape.rows, most)
    in_a_chunk = rows // tile_shape.rows

    def fits(min_tiles: int) -> bool:
        if tile_rows <= in_a_chunk:
            return min_tiles * groups <= in_a_chunk
        # Flatter problems leave tile rows empty, but no more than a fifth of all.
        needed: int = np.sum(np.maximum(tiles_per_group, min_tiles))
        return needed <= 1.25 * tile_rows

    return _ChunkShape(rows, next((min_tiles for min_tiles in (8, 4) if fits(min_tiles)), 2), rows)


def _bucket(rows: int, most: int) -> int:
    """The smallest chunk for so many rows, or the largest that is allowed."""
    allowed = [size for size in shapes.CHUNK_ROWS if size <= most]
    return next((size for size in allowed if rows <= size), allowed[-1])


def _share(rows: int, most: int) -> int:
    """Rows for each of as many parts as end together on all cores, with `most` rows or fewer."""
    parts, all_cores = -(-rows // most), threads.cores()
    even = -(-parts // all_cores) * all_cores
    return -(-rows // min(even, max(parts, rows // _WORTH_A_CORE)))


def block_length(size: int, devices: int = 1) -> int:
    """Rows of each block of a problem of this size, but the last; all devices get some."""
    block = min(shapes.BLOCK_ROWS, -(-size // devices))
    share = _share(size, block) if xla.fused_cpu_supported() else block
    return -(-share // shapes.ALIGNMENT) * shapes.ALIGNMENT


def _next_chunk(
    sizes: NDArray[Any], first: int, tile_shape: TileShape, shape: _ChunkShape
) -> Chunk:
    """As many problems from the first on as fit."""
    most = shape.rows // tile_shape.rows * tile_shape.group  # problems
    tiles_per_group = _tiles_per_group(sizes[first : first + most], tile_shape)
    # Where there are many of one tile row and none of more, they have a group each.
    min_tiles = 1 if tiles_per_group[0] == 1 and len(tiles_per_group) > _MANY else shape.min_tiles
    ends = np.cumsum(tiles_per_group) * tile_shape.rows
    fitting = int(np.searchsorted(ends, shape.filled, side="right"))
    taken = max(1, min(fitting, shape.rows // tile_shape.rows // min_tiles))
    rows = next(rows for rows in (shape.rows, *shapes.CHUNK_ROWS) if rows >= ends[taken - 1])
    last = min(first + taken * tile_shape.group, len(sizes))
    return Chunk(
        slice(first, last),
        sizes[first:last],
        tile_shape,
        rows,
        rows // tile_shape.rows // min_tiles,
    )


def _tiles_per_group(sizes: NDArray[Any], tile_shape: TileShape) -> NDArray[Any]:
    """The tile rows of each group of problems of these sizes, the first of a group the largest."""
    return -(-sizes[:: tile_shape.group] // tile_shape.block)


def layout_rows(sizes: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Where to put the rows of each problem, and the length of all.

    One after the other, but whatever begins a chunk or is oversized begins where JAX takes
    it as it is.
    """
    oversized = int(np.sum(sizes > shapes.MAX_PROBLEM_ROWS))
    firsts = np.array(
        [*range(oversized), *(chunk.problems.start for chunk in chunks(sizes, oversized))]
    )
    lengths = np.add.reduceat(sizes, firsts)
    aligned_lengths = -(-lengths // shapes.ALIGNMENT) * shapes.ALIGNMENT
    gaps = np.zeros(len(sizes), np.int64)
    gaps[firsts[1:]] = (aligned_lengths - lengths)[:-1]
    starts = np.cumsum(sizes) - sizes + np.cumsum(gaps)
    return starts, int(starts[-1] + sizes[-1])
