"""Problems through the compiled program, chunk by chunk."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax import validation, xla
from platt_jax.execution import devices, planning
from platt_jax.execution.caller import Caller
from platt_jax.execution.checkpoint import Checkpoint
from platt_jax.execution.grids import off_grid, on_grid
from platt_jax.execution.planning import Chunk
from platt_jax.execution.progress import Stage, reporting, unheard
from platt_jax.options import Options
from platt_jax.passes import packing, scan, shapes
from platt_jax.passes.blocks import Block, Blocks
from platt_jax.passes.protocol import Rows
from platt_jax.passes.shapes import GatherMap, RowRanges
from platt_jax.passes.sharded import ShardedRows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import Given, fit_rows
from platt_jax.threads import ordered_map, run_programs

# Given a slice of the problems, which rows of each, and a space: these rows end to end in arrays of
# its length, scores, labels, and weights or None. What follows them may be anything.
TakeRows: TypeAlias = Callable[[slice, slice, packing.Space], packing.Columns]
# The same rows where they are traced.
_Columns: TypeAlias = tuple[jax.Array, jax.Array, jax.Array | None]
# Given a slice of the problems, where their results go.
_Places: TypeAlias = Callable[[slice], NDArray[Any]]
_ALL = slice(None)

_TOO_SMALL = "the device's memory is too small for this fit"


class Task(NamedTuple):
    """What to compute for every problem; both functions take rows, what is given, and options."""

    of_rows: Callable[..., Any]  # traced; results lead with the problems' shape
    of_blocks: Callable[..., Any]  # of an oversized problem; on the host


def fit_task(loss: bool) -> Task:
    """A fit; `loss` as in `fit_problems`."""
    return Task(fit_rows, partial(fit_on_host, loss=loss))


def fit_problems(
    sizes: NDArray[Any],
    take: TakeRows,
    dtype: np.dtype[Any],
    given: Given,
    options: Options,
    stage: Stage,
    caller: Caller,
    order: NDArray[Any] | None = None,
    loss: bool = True,
    reread: bool = False,
    checkpoint: Checkpoint | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Fit K problems: `run_problems` for a task that gives a Fit.

    Args as there, and:
        loss: whether the loss is wanted. If not, that of problems that fit no chunk is NaN: it
            takes a pass.
        checkpoint: where results are kept as they come, and those of a call that was stopped are.
    """
    fit: Fit = run_problems(
        fit_task(loss),
        sizes,
        take,
        dtype,
        given,
        options,
        stage,
        caller,
        order,
        reread,
        checkpoint,
        mesh,
    )
    return fit


def run_problems(
    task: Task,
    sizes: NDArray[Any],
    take: TakeRows,
    dtype: np.dtype[Any],
    given: Any,
    options: Options,
    stage: Stage,
    caller: Caller,
    order: NDArray[Any] | None = None,
    reread: bool = False,
    checkpoint: Checkpoint | None = None,
    mesh: Mesh | None = None,
) -> Any:
    """What the task computes for K problems.

    Args:
        task: what to compute.
        sizes: (K,) numbers of rows, in the order of `planning.largest_first`.
        take: gives their rows; called on several threads.
        dtype: of the scores.
        given: a pytree of arrays that lead with (K,).
        options: how to fit.
        stage: whose progress is reported.
        caller: is warned of what makes the fit slower.
        order: (K,) where each goes in the result; None for as they come.
        reread: whether every pass over a problem that fits no chunk takes its rows anew, since the
            device's memory may not hold them.
        checkpoint: as in `fit_problems`; for a task that gives a Fit.
        mesh: as `devices.checked` returns it; None for the default device.

    Returns:
        A pytree of NumPy arrays that lead with (K,).

    Raises:
        MemoryError: the device's memory is too small even for the smallest chunks, or for all rows
            of a problem that fits no chunk.
    """
    options = validation.options(options).with_tol(dtype)

    def run_chunk(chunk: Chunk) -> Any:
        space = packing.Space(chunk.capacity, reused=True)
        return _run_chunk(task, chunk, take(chunk.problems, _ALL, space), given, options)

    def run_on_mesh(mesh: Mesh, chunks: list[Chunk]) -> Any:
        block, function = chunks[0].tile_shape.block, task.of_rows
        program = partial(
            _solve_on_mesh, options=options, block=block, function=function, mesh=mesh
        )
        return devices.solve_chunks(mesh, chunks, take, given, program)

    def solve_oversized(i: int) -> Any:
        return run_oversized(task, i, sizes[i], take, given, options, reread, mesh)

    places: _Places | None = None if order is None else order.__getitem__
    program = task.of_rows, np.dtype(dtype), options, mesh
    solve: Callable[..., Any] = run_chunk
    cut: Callable[..., Iterator[Any]] = planning.chunks
    if mesh is not None:
        solve, cut = partial(run_on_mesh, mesh), devices.cut(mesh)
    with devices.as_default(mesh):
        return in_chunks(
            program, sizes, solve, solve_oversized, dtype, stage, caller, places, checkpoint, cut
        )


# What was run before in this process, and is compiled.
_compiled: set[Hashable] = set()


def in_chunks(
    program: Hashable,
    sizes: NDArray[Any],
    solve: Callable[..., Any],
    solve_oversized: Callable[[int], Any],
    dtype: np.dtype[Any],
    stage: Stage,
    caller: Caller,
    places: _Places | None = None,
    checkpoint: Checkpoint | None = None,
    cut: Callable[..., Iterator[Any]] = planning.chunks,
) -> Any:
    """What is made of each of K problems, chunk by chunk.

    Args:
        program: what the compiled program depends on.
        sizes: (K,) numbers of rows, in the order of `planning.largest_first`.
        solve: given a Chunk, the results of its problems: a pytree of NumPy arrays that lead with
            them; called on several threads.
        solve_oversized: given the number of an oversized problem, its results likewise.
        dtype: of the scores.
        stage: whose progress is reported.
        caller: is warned of what makes this slower.
        places: given a slice of the problems, where their results go; None for as they come.
        checkpoint: as in `run_problems`.
        cut: how the problems are cut into what `solve` takes at a time; called as `planning.chunks`
            is.

    Returns:
        The results of all, leading with (K,).

    Raises:
        MemoryError: as `run_problems`.
    """
    if (slower := xla.missing()) is not None:
        caller.warn_once(slower)

    def run_all() -> Any:
        results = _Results(len(sizes), places, checkpoint)
        most = shapes.MAX_CHUNK_ROWS
        with reporting(sizes, stage) as advance:
            if results.count:
                advance(results.count)
            for i in range(results.count, int(np.sum(sizes > shapes.MAX_PROBLEM_ROWS))):
                advance(results.add(solve_oversized(i)))
            while results.count < len(sizes):
                chunks = cut(sizes, results.count, most)
                # Else all threads that `ordered_map` shares would wait for one to compile.
                first: Iterable[Any] = [] if program in _compiled else islice(chunks, 1)
                try:
                    for made in chain(map(solve, first), ordered_map(solve, chunks)):
                        advance(results.add(made))
                        _compiled.add(program)
                except jax.errors.JaxRuntimeError as error:
                    if not _is_want_of_memory(error):
                        raise
                    most = _smaller_chunks(most, error, caller)
        return results.whole

    return run_programs(run_all, x64=dtype == np.float64)


class _Results:
    """The results of the problems, each put in its place as it comes."""

    whole: Any

    def __init__(self, length: int, places: _Places | None, checkpoint: Checkpoint | None) -> None:
        self._length = length
        self._places = places
        self._checkpoint = checkpoint
        self.count = 0
        if checkpoint is not None and (kept := checkpoint.restored()) is not None:
            self.count, self.whole = kept

    def add(self, made: Any) -> int:
        """Take in the results of the next problems, and say how many they are."""
        if self.count == 0:
            shape = (self._length,)
            self.whole = jax.tree.map(lambda x: np.empty(shape + x.shape[1:], x.dtype), made)
        number = len(jax.tree.leaves(made)[0])
        where: Any = slice(self.count, self.count + number)
        if self._places is not None:
            where = self._places(where)
        for whole, part in zip(*map(jax.tree.leaves, (self.whole, made)), strict=True):
            _items(whole)[where] = _items(part)
        self.count += number
        if self._checkpoint is not None:
            self._checkpoint.keep(self.count, self.whole)
        return number


def _items(x: NDArray[Any]) -> NDArray[Any]:
    """All numbers of a problem as one item, of which NumPy places many in the time of a row."""
    kind = np.dtype((np.void, x.nbytes // len(x)))
    return x.reshape(len(x), -1).view(kind)[:, 0]


def _smaller_chunks(rows: int, error: Exception, caller: Caller) -> int:
    """The size to go on with after this error.

    Raises:
        MemoryError: there is no smaller size.
    """
    smaller = planning.smaller(rows)
    if smaller is None:
        raise MemoryError(_TOO_SMALL) from error
    if rows == shapes.MAX_CHUNK_ROWS:
        caller.warn("the device's memory ran out: going on with smaller chunks, which takes longer")
    return smaller


def _is_want_of_memory(error: Exception) -> bool:
    return "RESOURCE_EXHAUSTED" in str(error)


def run_oversized(
    task: Task,
    i: int,
    size: int,
    take: Callable[..., packing.Columns],
    given: Any,
    options: Options,
    reread: bool = False,
    mesh: Mesh | None = None,
) -> Any:
    """The results of the problem i, which fits no chunk; `reread`, `mesh` as in `run_problems`."""
    given = jax.tree.map(lambda leaf: leaf[i], given)
    take = partial(take, slice(i, i + 1))
    try:
        rows = _blocks(size, take, reread, mesh)
        made = task.of_blocks(rows, given, options)
    except jax.errors.JaxRuntimeError as error:
        if _is_want_of_memory(error):
            raise MemoryError(_TOO_SMALL) from error
        raise
    return jax.tree.map(lambda x: np.asarray(x)[None], made)


def _blocks(
    size: int, take: Callable[..., packing.Columns], reread: bool, mesh: Mesh | None
) -> Blocks:
    """The rows of an oversized problem."""
    parts: list[Any] = block_slices(size, 1 if mesh is None else mesh.size)
    read: Callable[..., Block] = partial(read_block, take, reused=reread)
    if mesh is not None:
        parts = list(devices.together(parts, mesh.size))
        read = partial(devices.put_blocks, mesh, partial(read_block, take))
    if reread:
        return Blocks(source=parts, read=read, mesh=mesh)
    blocks = list(ordered_map(lambda part: jax.device_put(read(part)), parts))
    return Blocks(source=blocks, mesh=mesh)


def block_slices(size: int, devices: int = 1) -> list[slice]:
    """Which rows of an oversized problem of this size are a block."""
    length = planning.block_length(size, devices)
    return [slice(first, min(first + length, size)) for first in range(0, size, length)]


def read_block(
    take: Callable[[slice, packing.Space], packing.Columns], part: slice, reused: bool = False
) -> Block:
    """A block of an oversized problem.

    Args:
        take: gives scores, labels and weights (or None) of a slice of its rows, in a space.
        part: which of its rows.
        reused: as of Space.
    """
    scores, labels, weights = take(part, packing.Space(shapes.BLOCK_ROWS, reused))
    return Block(scores, labels, weights, np.int32(part.stop - part.start))


def fit_on_host(
    rows: Rows,
    given: Given,
    options: Options,
    loss: bool = True,
    report: Callable[[NDArray[np.bool_]], Any] = unheard,
) -> Fit:
    """Fit by the host's loop; nll is NaN if the loss, which takes a pass, is not wanted.

    `report` is as in `search.host`.
    """
    runner = search.host(report)
    optimum = partial(search.optimum, runner=runner, loss=loss)
    fitted = fit_rows(rows, given, options, optimum, runner)
    return fitted if loss else replace(fitted, nll=np.full_like(fitted.nll, np.nan))


def _run_chunk(
    task: Task, chunk: Chunk, rows: packing.Columns, given: Any, options: Options
) -> Any:
    given = on_grid(jax.tree.map(lambda leaf: leaf[chunk.problems], given), chunk)
    block, function = chunk.tile_shape.block, task.of_rows
    made = solve_chunk(
        *rows, chunk.row_map(), given, options=options, block=block, function=function
    )
    return off_grid(made, chunk)


@partial(xla.jit, static_argnames=("options", "block", "function"), wide=True)
def solve_chunk(
    scores: jax.Array,
    labels: jax.Array,
    weights: jax.Array | None,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any] = fit_rows,
) -> Any:
    """What the function makes of the problems of a chunk; every result leads with [S, G]."""
    return _solve(scores, labels, weights, where, given, options, block, function)


@partial(
    xla.jit,
    static_argnames=("options", "block", "function", "mesh"),
    wide=True,
)
def _solve_on_mesh(
    columns: _Columns,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any],
    mesh: Mesh,
) -> Any:
    """The same of a chunk for each place along the axis of the problems."""

    def local(columns: _Columns, where: GatherMap | RowRanges, given: Any) -> Any:
        axes = (devices.ROWS,) if mesh.shape[devices.ROWS] > 1 else ()
        scores, labels, weights = columns
        return _solve(scores, labels, weights, where, given, options, block, function, axes)

    specs = devices.OVER_ALL, devices.OVER_ALL, devices.OVER_PROBLEMS
    # Unchecked: the loops of `scan` begin with what does not vary over the mesh.
    return jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=devices.OVER_PROBLEMS, check_vma=False
    )(columns, where, given)


def _solve(
    scores: jax.Array,
    labels: jax.Array,
    weights: jax.Array | None,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any],
    axes: tuple[str, ...] = (),
) -> Any:
    if isinstance(where, GatherMap):
        tiles: Any = packing.gather_tiles(scores, labels, weights, where, block)
        return function(ShardedRows(tiles, axes) if axes else tiles, given, options)
    fit = partial(function, options=options)
    columns = scores, labels, weights
    return scan.scan_groups(fit, columns, where.start, where.size, given, shapes.MAX_SIDE_BY_SIDE)
