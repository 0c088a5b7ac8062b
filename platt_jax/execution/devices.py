"""Chunks and blocks on the devices of a mesh: problems along one axis, rows along another."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.execution import planning
from platt_jax.execution.planning import Chunk
from platt_jax.model.objective import Array
from platt_jax.passes import packing, shapes
from platt_jax.passes.blocks import Block
from platt_jax.passes.columns import Columns
from platt_jax.passes.shapes import GatherMap, RowRanges

AXES = PROBLEMS, ROWS = "problems", "rows"
OVER_ALL, OVER_PROBLEMS = PartitionSpec(AXES), PartitionSpec(PROBLEMS)

# Programs whose devices exchange sums must start in the same order on all devices.
_one_at_a_time = threading.Lock()

Item = TypeVar("Item")

# The data of one device: rows, and their places.
_Share: TypeAlias = tuple[Columns, GatherMap | RowRanges]


def checked(mesh: Mesh | None) -> Mesh | None:
    """The mesh with both axes, of automatic types. A missing axis is added with length 1.

    Raises:
        ValueError: mesh is not a Mesh, has other axes, or has devices of another process.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise ValueError(f"mesh: expected a jax.sharding.Mesh, got {type(mesh).__name__}")
    names = mesh.axis_names
    if not names or not set(names) <= set(AXES):
        raise ValueError(f'mesh: expected axes named "problems", "rows" or both, got {names}')
    if any(device.process_index != jax.process_index() for device in mesh.devices.flat):
        raise ValueError(
            "mesh: expected devices of this process, got some of other processes; "
            "for rows in several processes see platt_jax.distributed"
        )
    devices = mesh.devices if names != AXES[::-1] else mesh.devices.T
    shape = tuple(mesh.shape.get(name, 1) for name in AXES)
    return Mesh(devices.reshape(shape), AXES, axis_types=(AxisType.Auto,) * 2)


@contextmanager
def as_default(mesh: Mesh | None) -> Iterator[None]:
    """Makes the mesh's first device JAX's default, so that programs are planned for its kind.

    The mesh becomes the one of the context, too, where the user has set one: JAX refuses arrays of
    other meshes there. If the user's program is being traced, programs run on a thread without one.
    """
    with ExitStack() as stack:
        if mesh is not None:
            stack.enter_context(jax.default_device(mesh.devices.flat[0]))
            if not xla.tracing() and not jax.sharding.get_abstract_mesh().empty:
                stack.enter_context(jax.set_mesh(mesh))
        yield


def cut(mesh: Mesh) -> Callable[[NDArray[Any], int, int], Iterator[list[Chunk]]]:
    """A replacement for `planning.chunks` that yields lists of chunks which share a call.

    The chunks of a list have the same shape. There is one for each place on the axis of problems.
    """
    # Shared rows use tiles on any device: devices meet once per pass, for all problems of a chunk.
    tile_shapes = shapes.TILE_SHAPES if mesh.shape[ROWS] > 1 else None
    number, chunk_rows = mesh.shape[PROBLEMS], shapes.sizes().chunk_rows

    def alike(sizes: NDArray[Any], first: int, most: int) -> Iterator[list[Chunk]]:
        share = int(np.sum(sizes[first:])) // number  # so that there is work for all devices
        most = min(most, max((x for x in chunk_rows if x <= share), default=1))
        chunks = planning.chunks(sizes, first, max(most, chunk_rows[0]), tile_shapes)
        for _, batch in groupby(chunks, key=lambda chunk: chunk[2:]):
            yield from together(batch, number)

    return alike


def together(items: Iterable[Item], number: int) -> Iterator[list[Item]]:
    """Lists of `number` items each; the last may be shorter."""
    items = iter(items)
    while batch := list(islice(items, number)):
        yield batch


def solve_chunks(
    mesh: Mesh,
    chunks: list[Chunk],
    take: Callable[..., Columns],
    given: Any,
    program: Callable[..., Any],
) -> Any:
    """The results of the program for chunks of one shape, one per place on the axis of problems.

    Args:
        mesh: a mesh from `checked`.
        chunks: chunks from `cut`.
        take: returns the rows of some problems.
        given: a pytree of arrays with all problems as leading axis.
        program: takes the columns, the maps, and the given arrays, all on the mesh.

    Returns:
        A pytree of NumPy arrays with the problems of all chunks as leading axis.
    """
    shares: list[_Share] = []
    on_grids = []
    for chunk in _filled_up(chunks, mesh.shape[PROBLEMS]):
        if shares and not len(chunk.sizes):
            rows = jax.tree.map(np.zeros_like, shares[0][0])
        else:
            rows = take(chunk.problems, slice(None), packing.Space(chunk.capacity))
        where: Any = chunk.row_map()  # a GatherMap where rows are shared
        number = mesh.shape[ROWS]
        shares += [(rows, where)] if number == 1 else _split(rows, where, chunk, number)
        inputs = jax.tree.map(lambda leaf, chunk=chunk: leaf[chunk.problems], given)
        on_grids.append(chunk.on_grid(inputs))
    columns, where = _put(mesh, shares)
    given = jax.tree.map(lambda *parts: np.concatenate(parts), *on_grids)
    given = jax.device_put(given, NamedSharding(mesh, OVER_PROBLEMS))
    with _one_at_a_time if mesh.shape[ROWS] > 1 else nullcontext():
        results = jax.device_get(program(columns, where, given))
    grids = (
        jax.tree.map(lambda x, i=i, chunk=chunk: x[i * chunk.groups :][: chunk.groups], results)
        for i, chunk in enumerate(chunks)
    )
    parts = [chunk.off_grid(grid) for grid, chunk in zip(grids, chunks, strict=True)]
    return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def put_blocks(mesh: Mesh, read: Callable[[slice], Block], parts: list[slice]) -> Block:
    """The blocks of these parts, one per device. Devices without a part get an empty block."""
    blocks = [block._replace(size=np.array([block.size])) for block in map(read, parts)]
    empty = blocks[0]._replace(size=np.zeros(1, np.int32))
    return _put(mesh, [*blocks, *[empty] * (mesh.size - len(blocks))])


def _filled_up(chunks: list[Chunk], number: int) -> list[Chunk]:
    """The chunks, followed by chunks without problems up to this number."""
    last = chunks[-1]
    end = last.problems.stop
    empty = last._replace(problems=slice(end, end), sizes=last.sizes[:0])
    return [*chunks, *[empty] * (number - len(chunks))]


def _split(rows: Columns, where: GatherMap, chunk: Chunk, number: int) -> list[_Share]:
    """A chunk's rows and map in `number` shares with about equally many tile rows.

    Where problems lie side by side, some rows are in two shares. They count in the share that has
    their tile rows.
    """
    tile_rows, tile = len(where.segment_ids), chunk.tile_shape
    per_share = -(-tile_rows // number)
    # The first tile row of a share, and of the next, may begin in the middle of a group.
    overlap = 0 if tile.group == 1 else 2 * shapes.MAX_SIDE_BY_SIDE * tile.group
    room = len(rows.scores)
    length = min(per_share * tile.rows + overlap + tile.block, room)
    shares: list[_Share] = []
    for first in range(0, number * per_share, per_share):
        share_tiles = slice(first, first + per_share)
        left = _lengthened(where.left[share_tiles], per_share, 0)
        start = _lengthened(where.start[share_tiles], per_share, 0)
        segment_ids = _lengthened(where.segment_ids[share_tiles], per_share, chunk.groups - 1)
        begin = min(int(start[left > 0].min(initial=room)), room - length)
        tiles_per_group = np.bincount(segment_ids, minlength=chunk.groups).astype(np.int32)
        columns = jax.tree.map(itemgetter(slice(begin, begin + length)), rows)
        start = np.where(left > 0, start - begin, 0).astype(np.int32)
        shares.append((columns, GatherMap(segment_ids, start, left, tiles_per_group)))
    return shares


def _lengthened(values: Array, length: int, filler: int) -> NDArray[Any]:
    missing = length - len(values)
    return np.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1), constant_values=filler)


def _put(mesh: Mesh, parts: list[Any]) -> Any:
    """Puts each pytree of arrays on its device, and combines them to arrays of the mesh."""
    sharding, devices = NamedSharding(mesh, OVER_ALL), mesh.devices.ravel()

    def place(*leaves: NDArray[Any]) -> jax.Array:
        shape = len(leaves) * len(leaves[0]), *leaves[0].shape[1:]
        placed = [jax.device_put(x, device) for x, device in zip(leaves, devices, strict=True)]
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)

    return jax.tree.map(place, *parts)
