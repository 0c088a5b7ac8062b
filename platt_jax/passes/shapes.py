"""The shapes of the arrays that hold rows: a short list, so that few programs are compiled."""

from typing import NamedTuple

from platt_jax.model.objective import Array

# Rows of a problem per lane of a tile row.
DEPTH = 8

# Rows per chunk. The largest is the usual one: a chunk's arrays then stay below 32 MiB. Larger
# ones glibc returns to the system after every call, and the page faults of the next call double
# the time of a fit.
CHUNK_ROWS = (16_384, 131_072, 262_144, 524_288)
MAX_CHUNK_ROWS = CHUNK_ROWS[-1]

# Maximum rows of a problem in a chunk. A larger problem is oversized and is read in blocks of
# BLOCK_ROWS. Their tile rows have more lanes: memory delivers eight long streams faster than short.
MAX_PROBLEM_ROWS = MAX_CHUNK_ROWS
BLOCK_ROWS = 2 * MAX_PROBLEM_ROWS
BLOCK_LANES = 4096

# Byte alignment at which JAX uses a NumPy array on a CPU without copying it.
ALIGNMENT = 64


class TileShape(NamedTuple):
    """The layout of a tile row: the number of problems side by side, and the lanes of each."""

    above: int  # for problems with more rows than this
    lanes: int
    group: int
    # Minimum number of tile rows reserved per group; None: as many as suit the problems.
    min_tiles_per_group: int | None = None
    most: int = MAX_CHUNK_ROWS  # maximum rows of a chunk

    @property
    def block(self) -> int:
        """Rows of one problem in a tile row, end to end in the flat arrays."""
        return DEPTH * self.lanes

    @property
    def rows(self) -> int:
        """Rows in a tile row."""
        return self.block * self.group


# Long tile rows are cheaper, but problems are padded to whole tile rows.
MAX_SIDE_BY_SIDE = 256
TILE_SHAPES = (TileShape(8192, 128, 1), TileShape(MAX_SIDE_BY_SIDE, 16, 1), TileShape(0, 1, 128))

# For vectors, a tile row is only a unit of size, and a group without problems costs nothing. So any
# mix of problems compiles two programs. Chunks of small problems are half as long: their results
# are as large as their rows, and wait in memory until they are put in place.
VECTOR_SHAPES = (
    TileShape(MAX_SIDE_BY_SIDE, 16, 1, min_tiles_per_group=2),
    TileShape(0, 1, 128, min_tiles_per_group=1, most=MAX_CHUNK_ROWS // 2),
)

# For kernels: those for vectors, but larger problems are apart. Each has several programs.
KERNEL_SHAPES = (VECTOR_SHAPES[0]._replace(above=8192), *VECTOR_SHAPES)


def tile_shape_for(size: int) -> TileShape:
    """The tile shape for a problem with this many rows. It depends on nothing else."""
    return next(shape for shape in TILE_SHAPES if size > shape.above or shape.above == 0)


class GatherMap(NamedTuple):
    """Where the rows of a chunk of tiles lie. Problem i is at group i // G, place i % G.

    Computed on the host: XLA would recompute it for every row.
    """

    segment_ids: Array  # [R] int32: the group of each tile row
    start: Array  # [R, G] int32: each problem's first row in the tile row, in the flat arrays
    left: Array  # [R, G] int32: the number of the problem's rows from there on, or 0
    tiles_per_group: Array  # [S] int32: the number of tile rows of each group


class RowRanges(NamedTuple):
    """Where the rows of each problem lie in the flat arrays, for vectors; [S, G] int32."""

    start: Array
    size: Array
