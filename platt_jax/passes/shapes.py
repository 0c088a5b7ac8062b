"""Shapes of the arrays that rows lie in: a short list, so that few programs are compiled."""

from typing import NamedTuple

from platt_jax.model.objective import Array

# Rows of a problem in a lane of a tile row.
DEPTH = 8

# Rows of a chunk. The largest is the usual one: what a chunk needs then stays below the 32 MiB from
# which glibc gives memory back after every call, to be faulted in again by the next: that doubles
# the time of a fit.
CHUNK_ROWS = (16_384, 131_072, 262_144, 524_288)
MAX_CHUNK_ROWS = CHUNK_ROWS[-1]

# A problem of more rows is oversized: it fits no chunk. It goes by blocks of so many rows, on tile
# rows of more lanes: from memory, eight long streams come faster than eight short ones.
MAX_PROBLEM_ROWS = MAX_CHUNK_ROWS
BLOCK_ROWS = 2 * MAX_PROBLEM_ROWS
BLOCK_LANES = 4096

# JAX copies NumPy's arrays to a CPU that do not begin at a multiple of so many bytes.
ALIGNMENT = 64


class TileShape(NamedTuple):
    """What a tile row holds: a number of problems side by side, and lanes of each."""

    above: int  # for problems of more rows than these
    lanes: int
    group: int
    # A group has room for so many tile rows at least; None for as many as suit the problems.
    min_tiles_per_group: int | None = None
    most: int = MAX_CHUNK_ROWS  # no chunk is for more rows

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

# For vectors a tile row is no more than a measure of rows, and a group without problems costs
# nothing. So any mix of problems compiles two programs. Small problems have results as large as
# their rows: those of half as many wait to be put in their places.
VECTOR_SHAPES = (
    TileShape(MAX_SIDE_BY_SIDE, 16, 1, min_tiles_per_group=2),
    TileShape(0, 1, 128, min_tiles_per_group=1, most=MAX_CHUNK_ROWS // 2),
)


def tile_shape_for(size: int) -> TileShape:
    """The tile rows for a problem of this many rows, whatever its company."""
    return next(shape for shape in TILE_SHAPES if size > shape.above or shape.above == 0)


class GatherMap(NamedTuple):
    """Where the rows of a chunk of tiles lie; its problem i is at group i // G, place i % G.

    Computed by the host, for XLA would compute it anew for every row.
    """

    segment_ids: Array  # [R] int32: the group of each tile row
    start: Array  # [R, G] int32: its first row of each problem, in the chunk's flat arrays
    left: Array  # [R, G] int32: how many rows of the problem begin there, 0 if none
    tiles_per_group: Array  # [S] int32: the tile rows of each group


class RowRanges(NamedTuple):
    """The same for vectors: where the rows of each problem lie in the flat arrays; [S, G] int32."""

    start: Array
    size: Array
