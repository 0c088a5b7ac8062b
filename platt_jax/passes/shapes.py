"""The shapes of the arrays that hold rows: a short list, so that few programs are compiled."""

from typing import Any, NamedTuple

import jax

from platt_jax.backend import threads, xla
from platt_jax.model.objective import Array

# Rows of a problem per lane of a tile row.
DEPTH = 8

# Lanes of a tile row of a block: memory delivers eight long streams faster than short ones.
BLOCK_LANES = 4096

# Rows of such a tile row.
BLOCK_TILE = DEPTH * BLOCK_LANES

# Byte alignment at which JAX uses a NumPy array on a CPU without copying it.
ALIGNMENT = 64


class TileShape(NamedTuple):
    """The layout of a tile row: the number of problems side by side, and the lanes of each."""

    above: int  # for problems with more rows than this
    lanes: int
    group: int
    # Minimum number of tile rows reserved per group; None: as many as suit the problems.
    min_tiles_per_group: int | None = None
    most: int | None = None  # maximum rows of a chunk, if fewer than `Sizes` has

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
    TileShape(0, 1, 128, min_tiles_per_group=1, most=1 << 18),
)

# For a device with kernels: a program of a kernel fits one problem. On an H200 tiles are faster for
# problems side by side; few large problems would leave most of the device idle.
KERNEL_SHAPES = TILE_SHAPES[0], VECTOR_SHAPES[0], TILE_SHAPES[2]


class Sizes(NamedTuple):
    """How many rows a call of a compiled program takes, on one kind of device."""

    chunk_rows: tuple[int, ...]  # rows per chunk, ascending; the largest is the usual one
    # Maximum rows of a problem in a chunk. A larger one is oversized and is read in blocks.
    problem_rows: int
    block_rows: int  # more than a chunk's arrays hold
    tile_shapes: tuple[TileShape, ...]
    # Rows of tiles evaluated per iteration, so that intermediate results stay in the second-level
    # cache; None: all. On a GPU the loop would return to the host in every iteration.
    tiles_at_once: int | None
    # Whether tiles are masked and standardized once, and reduced along their depth first, then
    # along their lanes. Otherwise each pass does all of it in one reduction.
    in_lanes: bool


# A chunk's arrays stay below 32 MiB. Larger ones glibc returns to the system after every call, and
# the page faults of the next call double the time of a fit.
CPU = Sizes(
    chunk_rows=(16_384, 131_072, 262_144, 524_288),
    problem_rows=524_288,
    block_rows=1_048_576,
    tile_shapes=VECTOR_SHAPES,
    tiles_at_once=131_072,
    in_lanes=True,
)
# A pass over fewer rows takes less time than it takes to start its kernels.
ACCELERATOR = Sizes(
    chunk_rows=(16_384, 131_072, *(1 << power for power in range(20, 26))),
    problem_rows=1 << 25,
    block_rows=(1 << 25) + BLOCK_TILE,
    tile_shapes=TILE_SHAPES,
    tiles_at_once=None,
    in_lanes=False,
)

# Maximum bytes on the device per row of a chunk: float64 scores, labels and weights, as they come
# and as tiles, and what is computed from them.
_BYTES_A_ROW = 64


def sizes() -> Sizes:
    """The sizes for JAX's default device, and as much memory as it has."""
    if xla.platform() == "cpu":
        # Without the fused loops rows lie on tiles.
        return CPU if xla.fused_cpu_supported() else CPU._replace(tile_shapes=TILE_SHAPES)
    return ACCELERATOR if (available := memory()) is None else _within(ACCELERATOR, available)


def memory() -> int | None:
    """The bytes of the default device's memory that JAX may use, or None if it is not known."""
    config: Any = jax.config  # type checkers do not know its attributes
    device = config.jax_default_device or jax.devices()[0]
    device = jax.devices(device)[0] if isinstance(device, str) else device
    return (device.memory_stats() or {}).get("bytes_limit")


def _within(usual: Sizes, memory: int) -> Sizes:
    """The sizes with chunks of which as many as run at a time take at most half of the memory."""
    limit = memory // 2 // (_BYTES_A_ROW * threads.AT_ONCE)
    chunk_rows = tuple(rows for rows in usual.chunk_rows if rows <= limit) or usual.chunk_rows[:1]
    top = chunk_rows[-1]
    return usual._replace(chunk_rows=chunk_rows, problem_rows=top, block_rows=top + BLOCK_TILE)


def tile_shape_for(size: int) -> TileShape:
    """The tile shape for a problem with this many rows. It depends on nothing else."""
    return next(shape for shape in TILE_SHAPES if size > shape.above or shape.above == 0)


def few_lengths(number: int, step: int) -> int:
    """The next larger of a few lengths, so that few programs are compiled.

    It is a multiple of this step, and of one that is at most a sixteenth of the number.
    """
    step = max(step, 1 << max(number.bit_length() - 5, 0))
    return -(-number // step) * step


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
