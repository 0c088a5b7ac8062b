"""Runs the compiled program on problems, chunk by chunk."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import xla
from platt_jax.backend.threads import ordered_map, run_programs
from platt_jax.caller import Caller
from platt_jax.execution import devices, planning
from platt_jax.execution.checkpoint import Checkpoint
from platt_jax.execution.oversized import (
    TOO_SMALL,
    fit_on_host,
    is_out_of_memory,
    run_oversized,
)
from platt_jax.execution.planning import Chunk
from platt_jax.execution.problems import Context, Problems, Task
from platt_jax.execution.progress import reporting
from platt_jax.options import Options
from platt_jax.passes import deferred, packing, scan, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.shapes import GatherMap, RowRanges
from platt_jax.passes.sharded import ShardedRows
from platt_jax.results.fit import Fit
from platt_jax.solver import in_kernel
from platt_jax.solver.solution import ProblemInputs, fit_rows, last_checks, unchecked

# Maps a slice of the problems to the places of their results.
_Places: TypeAlias = Callable[[slice], NDArray[Any]]
_ALL = slice(None)


def fit_task(loss: bool) -> Task:
    """The task of a fit; `loss` as in `fit_problems`."""
    return Task(unchecked, partial(fit_on_host, loss=loss), in_kernel.fit_ranges, last_checks)


def fit_problems(
    problems: Problems, given: ProblemInputs, context: Context, loss: bool = True
) -> Fit:
    """Fits K problems: `run_problems` for a task that returns a Fit.

    If `loss` is False, it is NaN for oversized problems, for which it takes a pass.
    """
    fit: Fit = run_problems(fit_task(loss), problems, given, context)
    return fit


def run_problems(task: Task, problems: Problems, given: Any, context: Context) -> Any:
    """The results of a task for K problems, a pytree of NumPy arrays with leading axis (K,).

    `given` is a pytree of arrays with that axis. A MemoryError says that the device's memory is too
    small even for the smallest chunks, or for all rows of an oversized problem.
    """
    take, dtype, order = problems.take, problems.dtype, problems.order
    options, mesh = validation.options(context.options).with_tol(dtype), context.mesh
    compiler = _compiler(task, options) if mesh is None else None
    places: _Places | None = None
    if order is not None:
        given = jax.tree.map(lambda leaf: leaf[order], given)
        places = order.__getitem__

    def run_chunk(chunk: Chunk) -> Any:
        space = packing.Space(chunk.capacity, reused=True)
        on_grid = chunk.on_grid(jax.tree.map(lambda leaf: leaf[chunk.problems], given))
        rows = take(chunk.problems, _ALL, space)
        return chunk.off_grid(_solved(task, chunk, rows, on_grid, options, compiler))

    def run_on_mesh(mesh: Mesh, chunks: list[Chunk]) -> Any:
        program = partial(
            _solve_on_mesh,
            options=options,
            block=chunks[0].tile_shape.block,
            function=task.traced,
            then=task.then,
            mesh=mesh,
        )
        return devices.solve_chunks(mesh, chunks, take, given, program)

    def solve_oversized(i: int) -> Any:
        return run_oversized(task, i, problems, given, options, mesh)

    program = task.traced, np.dtype(dtype), options, mesh, compiler
    solve: Callable[..., Any] = run_chunk
    cut: Callable[..., Iterator[Any]] = planning.chunks
    if compiler is not None:
        cut = partial(planning.chunks, tile_shapes=shapes.KERNEL_SHAPES)
    if mesh is not None:
        solve, cut = partial(run_on_mesh, mesh), devices.cut(mesh)
    with devices.as_default(mesh):
        return in_chunks(program, problems, context, solve, solve_oversized, places, cut)


def run_there(
    task: Task, problems: Problems, given: Any, context: Context
) -> list[tuple[NDArray[Any], Any]]:
    """The results of a task for K problems, which stay on the device. None may be oversized.

    `given` are arrays on the device, whose leading axis may be longer than K. Returns for each
    chunk the places of its problems, (S G,), and their results, a pytree of arrays [S, G, ...]
    there. A place behind all problems is none.
    """
    dtype, order = problems.dtype, problems.order
    options = validation.options(context.options).with_tol(dtype)
    compiler, by_start = _compiler(task, options), {}

    def run_chunk(chunk: Chunk) -> NDArray[Any]:
        begin, end = chunk.problems.start, chunk.problems.stop
        places = np.full(math.prod(chunk.grid), np.iinfo(np.int32).max, np.int32)
        places[: end - begin] = np.arange(begin, end) if order is None else order[begin:end]
        rows = problems.take(chunk.problems, _ALL, packing.Space(chunk.capacity, reused=True))
        with jax.enable_x64(True):
            on_grid = _on_grid(given, places, grid=chunk.grid, dtype=np.dtype(dtype))
        results = _solved(task, chunk, rows, on_grid, options, compiler)
        by_start[begin] = places, jax.block_until_ready(results)
        return places[: end - begin]

    def refused(_: int) -> Any:
        raise AssertionError

    cut = planning.chunks
    if compiler is not None:
        cut = partial(planning.chunks, tile_shapes=shapes.KERNEL_SHAPES)
    program = task.traced, np.dtype(dtype), options, compiler, "there"
    in_chunks(program, problems, context, run_chunk, refused, cut=cut)
    return list(by_start.values())


@partial(xla.jit, static_argnames=("grid", "dtype"))
def _on_grid(given: Any, places: jax.Array, grid: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """What is given for problems at these places, [S, G, ...], in this dtype."""

    def at_places(x: jax.Array) -> jax.Array:
        return x.at[places].get(mode="clip").astype(dtype).reshape(grid + x.shape[1:])

    return jax.tree.map(at_places, given)


# Programs that ran before in this process, and so are compiled.
_compiled: set[Hashable] = set()


def in_chunks(
    program: Hashable,
    problems: Problems,
    context: Context,
    solve: Callable[..., Any],
    solve_oversized: Callable[[int], Any],
    places: _Places | None = None,
    cut: Callable[..., Iterator[Any]] = planning.chunks,
) -> Any:
    """The results of K problems, computed chunk by chunk.

    Args:
        program: everything that the compiled program depends on.
        problems: the problems; only their sizes and their dtype are used.
        context: what receives progress, warnings and results so far.
        solve: maps a Chunk to the results of its problems, a pytree of NumPy arrays that have the
            problems as leading axis; called on several threads.
        solve_oversized: maps the number of an oversized problem to its results, with leading
            axis 1.
        places: maps a slice of the problems to the places of their results; None for the same
            order.
        cut: cuts the problems into the parts that `solve` takes; called like `planning.chunks`.

    Returns:
        The results of all problems, with leading axis (K,).

    Raises:
        MemoryError: see `run_problems`.
    """
    sizes, caller = problems.sizes, context.caller
    for warning in (xla.missing(), xla.wrong_operations()):
        if warning is not None:
            caller.warn_once(warning)

    def run_all() -> Any:
        capacity = shapes.sizes()
        most, oversized = capacity.chunk_rows[-1], int(np.sum(sizes > capacity.problem_rows))
        if context.ahead:
            head = () if program in _compiled else islice(cut(sizes, oversized, most), 1)
            try:
                for _ in map(solve, head):
                    _compiled.add(program)
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):  # the fits themselves go on with smaller chunks
                    raise
            return None
        results = _Results(len(sizes), places, context.checkpoint)
        with reporting(sizes, context.stage) as advance:
            if results.count:
                advance(results.count)
            for i in range(results.count, oversized):
                advance(results.add(solve_oversized(i)))
            while results.count < len(sizes):
                chunks = cut(sizes, results.count, most)
                # The first compiles alone. Else all threads of `ordered_map` would wait for it.
                first: Iterable[Any] = [] if program in _compiled else islice(chunks, 1)
                try:
                    for chunk_results in chain(map(solve, first), ordered_map(solve, chunks)):
                        advance(results.add(chunk_results))
                        _compiled.add(program)
                except jax.errors.JaxRuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    most = _smaller_chunks(most, error, caller)
        return results.whole

    return run_programs(run_all, x64=problems.dtype == np.float64)


class _Results:
    """The results of the problems, each put in its place as it arrives."""

    whole: Any

    def __init__(self, length: int, places: _Places | None, checkpoint: Checkpoint | None) -> None:
        self._length = length
        self._places = places
        self._checkpoint = checkpoint
        self.count = 0
        if checkpoint is not None and (restored := checkpoint.restored()) is not None:
            self.count, self.whole = restored

    def add(self, made: Any) -> int:
        """Stores the results of the next problems, and returns their number."""
        if self.count == 0:
            shape = (self._length,)
            self.whole = jax.tree.map(lambda x: np.empty(shape + x.shape[1:], x.dtype), made)
        number = len(jax.tree.leaves(made)[0])
        places: Any = slice(self.count, self.count + number)
        if self._places is not None:
            places = self._places(places)
        for target, part in zip(*map(jax.tree.leaves, (self.whole, made)), strict=True):
            _items(target)[places] = _items(part)
        self.count += number
        if self._checkpoint is not None:
            self._checkpoint.keep(self.count, self.whole)
        return number


def _items(x: NDArray[Any]) -> NDArray[Any]:
    """Each problem's numbers as one item: NumPy copies items much faster than rows."""
    kind = np.dtype((np.void, x.nbytes // len(x)))
    return x.reshape(len(x), -1).view(kind)[:, 0]


def _smaller_chunks(rows: int, error: Exception, caller: Caller) -> int:
    """The chunk size to continue with after this error; a MemoryError if there is none."""
    smaller = planning.smaller(rows)
    if smaller is None:
        raise MemoryError(TOO_SMALL) from error
    if rows == shapes.sizes().chunk_rows[-1]:
        caller.warn("the device's memory ran out: going on with smaller chunks, which takes longer")
    return smaller


def _solved(
    task: Task,
    chunk: Chunk,
    rows: Columns,
    given: Any,
    options: Options,
    compiler: str | None,
) -> Any:
    """The results of the chunk, and what is given, have axes [S, G]."""
    where = chunk.row_map()
    if compiler is not None and isinstance(where, RowRanges):
        function = task.by_kernel
        return solve_by_kernel(
            rows, where, given, options=options, function=function, compiler=compiler
        )
    return solve_chunk(
        rows,
        where,
        given,
        options=options,
        block=chunk.tile_shape.block,
        function=task.traced,
        then=task.then,
    )


def _compiler(task: Task, options: Options) -> str | None:
    """What compiles the task's kernel; None if XLA's operations compute everything."""
    return None if task.by_kernel is None else in_kernel.compiler(options)


@partial(xla.jit, static_argnames=("options", "function", "compiler"))
def solve_by_kernel(
    columns: Columns,
    where: RowRanges,
    given: Any,
    options: Options,
    function: Callable[..., Any],
    compiler: str,
) -> Any:
    """The results of a `Task.by_kernel` for the problems of a chunk, with leading axes [S, G]."""
    return function(columns, where, given, options, compiler)


@partial(xla.jit, static_argnames=("options", "block", "function", "then"), wide=True)
def solve_chunk(
    columns: Columns,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any] = fit_rows,
    then: Callable[..., Any] | None = None,
) -> Any:
    """The results of a function for the problems of a chunk, with leading axes [S, G]."""
    return _solve(columns, where, given, options, block, function, then)


@partial(
    xla.jit,
    static_argnames=("options", "block", "function", "then", "mesh"),
    wide=True,
)
def _solve_on_mesh(
    columns: Columns,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any],
    mesh: Mesh,
    then: Callable[..., Any] | None = None,
) -> Any:
    """`solve_chunk` for one chunk at each place along the mesh's axis of problems."""

    def local(columns: Columns, where: GatherMap | RowRanges, given: Any) -> Any:
        axes = (devices.ROWS,) if mesh.shape[devices.ROWS] > 1 else ()
        return _solve(columns, where, given, options, block, function, then, axes)

    specs = devices.OVER_ALL, devices.OVER_ALL, devices.OVER_PROBLEMS
    # Unchecked: the loops of `scan` start from values that do not vary over the mesh.
    return jax.shard_map(
        local, mesh=mesh, in_specs=specs, out_specs=devices.OVER_PROBLEMS, check_vma=False
    )(columns, where, given)


def _solve(
    columns: Columns,
    where: GatherMap | RowRanges,
    given: Any,
    options: Options,
    block: int,
    function: Callable[..., Any],
    then: Callable[..., Any] | None,
    axes: tuple[str, ...] = (),
) -> Any:
    last = None if then is None else partial(then, options=options)
    if isinstance(where, GatherMap):
        tiles: Any = deferred.for_passes(packing.gather_tiles(columns, where, block))
        results = function(ShardedRows(tiles, axes) if axes else tiles, given, options)
        results = results if last is None else (results, last(results))
    else:
        fit, most = partial(function, options=options), shapes.MAX_SIDE_BY_SIDE
        results = scan.scan_groups(fit, columns, where.start, where.size, given, most, then=last)
    return results if last is None else results[0].checked(*results[1])
