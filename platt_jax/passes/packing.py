"""Copies rows into the layout of the compiled programs: flat arrays on the host, or tiles."""

import math
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.model.objective import Array
from platt_jax.passes import shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.shapes import DEPTH, GatherMap
from platt_jax.passes.tiles import Tiles, bad_as_infinite


class Space(NamedTuple):
    """Memory into which rows are copied end to end: arrays of one length."""

    length: int
    # Whether the arrays belong to this thread and are reused by its next call. Memory that was
    # written before costs no page faults, which are a tenth of the time of a fit.
    reused: bool = False


def flat(rows: Columns, space: Space) -> Columns:
    """The columns in the space. The score of a bad label is NaN."""
    columns = rows._replace(scores=bad_labels_as_nan(rows.scores, rows.labels))
    return Columns(
        *(
            None if x is None else _fill(room(space, number, x.dtype), x)
            for number, x in enumerate(columns)
        )
    )


def room(space: Space, number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The space's uninitialized array for the column with this number."""
    size = space.length * dtype.itemsize
    if not space.reused:
        return aligned((space.length,), dtype)
    memories: dict[Any, NDArray[Any]] = _thread_memories.__dict__
    if number not in memories or len(memories[number]) < size:
        memories[number] = aligned((size,), np.dtype(np.uint8))
    return memories[number][:size].view(dtype)


_thread_memories = threading.local()


def bad_labels_as_nan(scores: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """The scores, with NaN where the label is bad."""
    if labels.min() != validation.BAD_LABEL:
        return scores
    return np.where(labels == validation.BAD_LABEL, np.asarray(np.nan, scores.dtype), scores)


def lengthen(values: NDArray[Any], length: int) -> NDArray[Any]:
    """Values followed by zeros up to this length, aligned so that JAX on a CPU does not copy."""
    return _fill(aligned((length, *values.shape[1:]), values.dtype), values)


def _fill(out: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    out[: len(values)] = values
    out[len(values) :] = 0
    return out


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialized array, aligned so that JAX on a CPU does not copy it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + shapes.ALIGNMENT, np.uint8)
    skipped = -memory.ctypes.data % shapes.ALIGNMENT
    return memory[skipped : skipped + size].view(dtype).reshape(shape)


def gather_tiles(columns: Columns, where: GatherMap, block: int) -> Tiles:
    """Tiles of `block` rows of a problem per tile row, from a chunk's flat columns; traceable."""
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=(2,), collapsed_slice_dims=(), start_index_map=(0,)
    )

    def tiled(flat: jax.Array) -> jax.Array:
        start = where.start[..., None]
        blocks = lax.gather(flat, start, dimensions, (block,), mode="promise_in_bounds")
        return blocks.swapaxes(1, 2)

    number = jnp.arange(block, dtype=jnp.int32).reshape(1, block, 1)
    inside = number < where.left[:, None]
    scores, labels, weights, offset = columns
    return Tiles(
        scores=jnp.where(inside, bad_as_infinite(tiled(scores)), jnp.nan),
        # The mask only serves XLA, which would otherwise copy this byte by byte to another layout.
        positive=(tiled(labels) > 0) & inside,
        weights=None if weights is None else jnp.where(inside, tiled(weights), 0),
        segment_ids=jnp.asarray(where.segment_ids),
        tiles_per_group=jnp.asarray(where.tiles_per_group),
        offset=None if offset is None else jnp.where(inside, tiled(offset), 0),
    )


def block_tiles(columns: Columns, left: Array) -> Tiles:
    """Tiles of one problem from columns whose first rows are its own; traceable.

    Columns have R tile rows, of any shape; `left` [R] is by `rows_left`.
    """
    scores, labels, weights, offset = columns
    tile_rows = len(left)
    shape = tile_rows, shapes.BLOCK_TILE, 1
    inside = lax.broadcasted_iota(jnp.int32, shape, 1) < jnp.asarray(left)[:, None, None]

    def tiled(x: jax.Array) -> jax.Array:
        return x.reshape(shape)

    return Tiles(
        scores=jnp.where(inside, bad_as_infinite(tiled(scores)), jnp.nan),
        positive=tiled(labels) > 0,
        weights=None if weights is None else jnp.where(inside, tiled(weights), 0),
        segment_ids=jnp.zeros(tile_rows, jnp.int32),
        tiles_per_group=jnp.full(1, tile_rows, jnp.int32),
        even=True,
        offset=None if offset is None else jnp.where(inside, tiled(offset), 0),
    )


def rows_left(size: Any, length: int, xp: Any) -> Any:
    """[R] int32, the problem's rows in each tile row of `block_tiles` of columns of this length."""
    before = shapes.BLOCK_TILE * xp.arange(length // shapes.BLOCK_TILE, dtype=size.dtype)
    return xp.clip(size - before, 0, shapes.BLOCK_TILE).astype(np.int32)


def dense_tiles(columns: Columns) -> Tiles:
    """Tiles from dense columns [..., N]; traceable and differentiable.

    A large problem's rows are split into tile rows in order. On a CPU small problems lie side by
    side.
    """
    scores, labels, weights, offset = columns
    *batch, rows = scores.shape
    problems = math.prod(batch)
    small = problems > 1 and shapes.tile_shape_for(rows).group > 1
    in_lanes = shapes.sizes().in_lanes
    side_by_side = small and in_lanes
    group = problems if side_by_side else 1
    parts = -(-rows // (DEPTH if side_by_side else shapes.TILE_SHAPES[0].rows))
    if not in_lanes:
        # Without padding the tiles are no copy.
        parts = next((n for n in range(parts, 2 * parts) if rows % n == 0), parts)
    depth = DEPTH if in_lanes else 1
    length = depth * -(-rows // (depth * parts))
    groups, missing = problems // group, parts * length - rows
    padded = in_lanes or missing > 0

    def tiled(dense: jax.Array, padding: Any) -> jax.Array:
        dense = dense.reshape((problems, rows))
        dense = jnp.pad(dense, ((0, 0), (0, missing)), constant_values=padding)
        dense = dense.reshape(groups, group, parts, length)
        return dense.transpose(0, 2, 3, 1).reshape(groups * parts, length, group)

    return Tiles(
        scores=tiled(bad_as_infinite(scores) if padded else scores, jnp.nan),
        positive=tiled(labels > 0, False) if padded else tiled(labels, 0),
        weights=None if weights is None else tiled(weights, 0),
        segment_ids=jnp.repeat(jnp.arange(groups, dtype=jnp.int32), parts),
        tiles_per_group=jnp.full(groups, parts, jnp.int32),
        even=True,
        offset=None if offset is None else tiled(offset, 0),
        padded=padded,
    )
