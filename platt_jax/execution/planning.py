"""Where problems lie: which share a chunk, and on which of its tiles or strips.

A chunk is one call of the compiled program. Its arrays have a shape from a short ladder, so any
mix of problem sizes compiles the same few programs, and memory is bounded by the chunk.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from platt_jax import threads
from platt_jax.model.objective import Array
from platt_jax.passes import xla
from platt_jax.passes.tiles import DEPTH

# Rows of a chunk. The usual size is the largest: it keeps what a chunk needs below the 32 MiB from
# which glibc gives memory back after every call, to be faulted in again by the next: that doubles
# the time of a fit.
_BUCKETS = (16_384, 131_072, 262_144, 524_288)
LARGEST = _BUCKETS[-1]

# A problem of more rows than these fits no chunk. It goes by slabs of so many rows, on tile rows of
# more lanes: from memory, eight long streams come faster than eight short ones.
MAX_CHUNK_PROBLEM = LARGEST
BLOCK = 2 * MAX_CHUNK_PROBLEM
BLOCK_LANES = 4096

# JAX copies NumPy's arrays to a CPU that do not begin at a multiple of so many bytes.
ALIGNMENT = 64

_MANY = 64  # slices of one tile row each

# Problems side by side that are sorted by size together.
_SORTED_TOGETHER = 1 << 12

# Fewer rows are not worth the time to hand them to another core.
_WORTH_A_CORE = 1 << 16


class TileShape(NamedTuple):
    """What a tile row holds: a number of problems side by side, and lanes of each."""

    above: int  # for problems of more rows than these
    lanes: int
    group: int
    room: int | None = None  # a slice for so many tile rows; None for as many as suits them
    most: int = LARGEST  # no chunk is for more rows

    @property
    def block(self) -> int:
        """Rows of one problem in a tile row, end to end in the flat arrays."""
        return DEPTH * self.lanes

    @property
    def rows(self) -> int:
        """Rows of a tile row."""
        return self.block * self.group


# Long tile rows are cheaper, but problems are padded to whole ones.
MAX_SIDE_BY_SIDE = 256
TILE_SHAPES = (TileShape(8192, 128, 1), TileShape(MAX_SIDE_BY_SIDE, 16, 1), TileShape(0, 1, 128))

# For strips a tile row is no more than a measure of rows, and a slice without problems costs
# nothing. So any mix of problems compiles two programs. Small problems have results as large as
# their rows: those of half as many wait to be put in their places.
VECTOR_SHAPES = (TileShape(MAX_SIDE_BY_SIDE, 16, 1, room=2), TileShape(0, 1, 128, room=1, most=LARGEST // 2))


def _tile_shapes() -> tuple[TileShape, ...]:
    """Those for the device at hand."""
    return VECTOR_SHAPES if xla.fused_cpu_supported() else TILE_SHAPES


class GatherMap(NamedTuple):
    """Where the rows of a chunk lie; its problem i is at slice i // G, place i % G.

    Reckoned by the host, for XLA would do it anew for every row.
    """

    owner: Array  # [R] int32: the slice of each tile row
    start: Array  # [R, G] int32: its first row of each problem, in the chunk's flat arrays
    left: Array  # [R, G] int32: how many rows of the problem begin there, 0 if none
    heights: Array  # [S] int32: the tile rows of each slice


class RowRanges(NamedTuple):
    """The same for strips: where the rows of each problem lie in the flat arrays; [S, G] int32."""

    start: Array
    size: Array


class Chunk(NamedTuple):
    """Problems that share a call, and how they are laid out."""

    problems: slice  # of the problems, in the order of the plan
    sizes: np.ndarray  # of these
    kind: TileShape
    rows: int  # room for so many
    slices: int

    @property
    def grid(self) -> tuple[int, int]:
        """(S, G), as of Tiles."""
        return self.slices, self.kind.group

    @property
    def capacity(self) -> int:
        """Length of the chunk's flat arrays: a block may be taken past the last row."""
        return self.rows + self.kind.block

    def row_map(self) -> GatherMap | RowRanges:
        """Where the rows lie."""
        return self.gather_map() if self.kind.room is None else self.row_ranges()

    def row_ranges(self) -> RowRanges:
        """Where the rows lie for strips."""
        size = np.zeros(self.grid, np.int32)
        size.ravel()[: len(self.sizes)] = self.sizes
        start = (np.cumsum(size) - size.ravel()).astype(np.int32).reshape(size.shape)
        return RowRanges(start, size)

    def gather_map(self) -> GatherMap:
        """Where the rows lie for tiles."""
        tile_rows, block = self.rows // self.kind.rows, self.kind.block
        first, size = self.row_ranges()
        heights = _heights(self.sizes, self.kind)
        used = np.sum(heights)
        # Spare tile rows go to the last slice; no row is left for them.
        owner = np.full(tile_rows, self.slices - 1, np.int32)
        owner[:used] = np.repeat(np.arange(len(heights)), heights)
        start, left = np.zeros((2, tile_rows, self.kind.group), np.int32)
        part = np.arange(used) - np.repeat(np.cumsum(heights) - heights, heights)
        before = (part * block).astype(np.int32)[:, None]
        left[:used] = np.maximum(size[owner[:used]] - before, 0)
        np.add(first[owner[:used]], before, out=start[:used], where=left[:used] > 0)
        heights = np.bincount(owner, minlength=self.slices).astype(np.int32)
        return GatherMap(owner, start, left, heights)


def largest_first(sizes: np.ndarray) -> np.ndarray:
    """In which order `chunks` takes problems of these sizes: by tile rows, else as they come.

    Of those that stand side by side some thousands in a row go by size, so that few lanes end
    before their neighbours. Were it by size altogether, the results of a chunk would be farther
    apart, and longer on their way home.
    """
    sizes = np.minimum(sizes, MAX_CHUNK_PROBLEM + 1)
    height = np.zeros(len(sizes), np.uint16)
    for kind in reversed(TILE_SHAPES):
        more = sizes > kind.above
        height[more] = height.max(initial=0) - (kind.above - sizes[more]) // kind.block
    order = np.argsort(~height, kind="stable")
    side_by_side = order[np.sum(sizes > MAX_SIDE_BY_SIDE) :]
    even = len(side_by_side) // _SORTED_TOGETHER * _SORTED_TOGETHER
    for part in (
        side_by_side[:even].reshape(-1, _SORTED_TOGETHER),
        side_by_side[even:].reshape(1, -1),
    ):
        by_size = np.argsort(~sizes[part].astype(np.uint16), kind="stable")
        part[:] = np.take_along_axis(part, by_size, axis=1)
    return order


def tile_shape_for(size: int) -> TileShape:
    """The tile rows for a problem of this many rows, whatever its company."""
    return next(kind for kind in TILE_SHAPES if size > kind.above or kind.above == 0)


def chunks(
    sizes: np.ndarray,
    first: int = 0,
    most: int = LARGEST,
    kinds: tuple[TileShape, ...] | None = None,
) -> Iterator[Chunk]:
    """Chunks for problems of these sizes, whose order is that of `largest_first`.

    They begin with the problem `first`, and have no more than `most` rows, unless one problem
    alone needs more. None may have more than MAX_CHUNK_PROBLEM. They are of the kinds for the device at hand,
    or of these.
    """
    kinds = kinds or _tile_shapes()
    bounds = [
        int(np.sum(sizes > above)) for above in (MAX_CHUNK_PROBLEM, *(kind.above for kind in kinds))
    ]
    bounds[-1] = len(sizes)
    for kind, begin, last in zip(kinds, bounds[:-1], bounds[1:], strict=True):
        if first < last:
            shape = _shape(sizes[begin:last], kind, min(most, kind.most))
        while first < last:
            chunk = _next_chunk(sizes[:last], first, kind, shape)
            yield chunk
            first = chunk.problems.stop


def smaller(rows: int) -> int | None:
    """The size of chunks below this one, if there is one."""
    return max((size for size in _BUCKETS if size < rows), default=None)


class _Shape(NamedTuple):
    """What the chunks of a kind have in common: compiling takes longer than rows left empty."""

    rows: int
    room: int  # there is a slice for so many tile rows; far fewer do where problems are tall
    filled: int  # a chunk is full with so many rows


def _shape(sizes, kind, most) -> _Shape:
    """For problems of these sizes, all that there are of a kind."""
    heights = _heights(sizes, kind)
    slices, tile_rows = len(heights), int(np.sum(heights))
    if kind.room is not None:
        filled = _share(tile_rows * kind.rows, most) + int(np.max(heights)) * kind.rows
        rows = _bucket(filled, most)
        return _Shape(rows, kind.room, min(filled, rows))
    rows = _bucket(tile_rows * kind.rows, most)
    in_a_chunk = rows // kind.rows

    def fits(room):
        if tile_rows <= in_a_chunk:
            return room * slices <= in_a_chunk
        # Flatter problems leave tile rows empty, but no more than a fifth of all.
        return np.sum(np.maximum(heights, room)) <= 1.25 * tile_rows

    return _Shape(rows, next((room for room in (8, 4) if fits(room)), 2), rows)


def _bucket(rows: int, most: int) -> int:
    """The ladder's size for so many rows, or the largest that is allowed."""
    ladder = [rung for rung in _BUCKETS if rung <= most]
    return next((rung for rung in ladder if rows <= rung), ladder[-1])


def _share(rows: int, most: int) -> int:
    """Rows for each of as many parts as end together on all cores, with `most` rows or fewer."""
    parts, all_cores = -(-rows // most), threads.cores()
    even = -(-parts // all_cores) * all_cores
    return -(-rows // min(even, max(parts, rows // _WORTH_A_CORE)))


def block_length(size: int) -> int:
    """Rows of each slab of a problem of this size, but the last."""
    share = _share(size, BLOCK) if xla.fused_cpu_supported() else BLOCK
    return -(-share // ALIGNMENT) * ALIGNMENT


def _next_chunk(sizes, first, kind, shape):
    """As many problems from the first on as fit."""
    most = shape.rows // kind.rows * kind.group  # problems
    heights = _heights(sizes[first : first + most], kind)
    # Where there are many of one tile row and none of more, they have a slice each.
    room = 1 if heights[0] == 1 and len(heights) > _MANY else shape.room
    ends = np.cumsum(heights) * kind.rows
    fitting = int(np.searchsorted(ends, shape.filled, side="right"))
    taken = max(1, min(fitting, shape.rows // kind.rows // room))
    rows = next(rows for rows in (shape.rows, *_BUCKETS) if rows >= ends[taken - 1])
    last = min(first + taken * kind.group, len(sizes))
    return Chunk(slice(first, last), sizes[first:last], kind, rows, rows // kind.rows // room)


def _heights(sizes, kind):
    """The tile rows of each slice of problems of these sizes, the first of a slice the tallest."""
    return -(-sizes[:: kind.group] // kind.block)


def layout_rows(sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Where to put the rows of each problem, and the length of all.

    One after the other, but whatever begins a chunk or is too tall for one begins where JAX takes
    it as it is.
    """
    tall = int(np.sum(sizes > MAX_CHUNK_PROBLEM))
    firsts = np.array([*range(tall), *(chunk.problems.start for chunk in chunks(sizes, tall))])
    lengths = np.add.reduceat(sizes, firsts)
    aligned_lengths = -(-lengths // ALIGNMENT) * ALIGNMENT
    gaps = np.zeros(len(sizes), np.int64)
    gaps[firsts[1:]] = (aligned_lengths - lengths)[:-1]
    starts = np.cumsum(sizes) - sizes + np.cumsum(gaps)
    return starts, int(starts[-1] + sizes[-1])
