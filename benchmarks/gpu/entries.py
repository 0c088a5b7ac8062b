"""The programs behind every public function that computes on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import platt_jax as pj
from platt_jax.backend import xla
from platt_jax.decisions.gate import _first_accepted_there
from platt_jax.execution import (
    device_grouping,
    device_segments,
    devices,
    planning,
    predicted_rows,
    replicates,
    run,
)
from platt_jax.execution.problems import Task
from platt_jax.hypothesis_tests import device_tests
from platt_jax.inference import expansion, influence, left_out_there, mean_rows, sandwich
from platt_jax.model.objective import Targets
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes import blocks, deferred, packing, replicated, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.deferred import Request
from platt_jax.population import gaussians, integral, quadrature
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.symmetric import Symmetric
from platt_jax.results import averages, device_rows
from platt_jax.solver import dense
from platt_jax.solver.solution import ProblemInputs, fit_rows


class Entry(NamedTuple):
    """A program, and what it is compiled for."""

    program: Any  # what `jax.jit` returns
    arguments: tuple[Any, ...]  # pytrees of arrays, and of `jax.ShapeDtypeStruct` for others
    static: dict[str, Any]  # its static arguments
    rows: int  # that it reads, padding included
    searches: bool = True  # whether it runs a search: a loop of passes
    devices: int = 1
    parts: int = 1  # of the rows, which a pass reads one after another in a loop
    sorts: bool = False  # whether it sorts rows


def entries(dtype: np.dtype) -> dict[str, Entry]:
    """The entries for one device, by name; call and lower them within `target.chosen()`."""
    sizes = (10_000, 1_000), (100_000, 1_000), (100_000, 100), (1, 10_000_000)
    found = {f"solve {k:,} x {n:,}": _solve(k, n, dtype) for k, n in sizes}
    found["gradient 10,000 x 1,000"] = _gradient(10_000, 1_000, dtype)
    for size in (100, 1_000, 20_000):
        found[f"fit_segments, about {size:,} rows each"] = _fit_segments(size, dtype)
    if dtype == np.float64:  # with 64-bit types, which any grouping has
        found["grouping by 64-bit ids"] = _grouping(100_000_000)
        found["moments of 100,000 segments"] = _moments(100_000)
        found["populations of 100,000 segments"] = _plausible(100_000)
        found |= _rooms()
    return found | {
        "bootstrap": _bootstrap(dtype),
        "posteriors of partial pooling": _posteriors(dtype),
        "block of one problem": _block(dtype),
        "all rows as one problem": _as_one(100_000_000, dtype),
        "leave_one_out": _leave_one_out(32, 1024, dtype),
        "predict_proba": _predict(1 << 20, dtype),
        "predict_proba by segment": _predict_by_segment(1 << 20, 1 << 14, dtype),
        "predict_proba by segment, ids far apart": _predict_by_segment(1 << 20, 0, dtype),
    }


def by_kernels(dtype: np.dtype) -> dict[str, Entry]:
    """The entries that one kernel fits, which has the search in it."""
    sizes = (10_000, 1_000), (100_000, 1_000)
    found = {f"solve {k:,} x {n:,}, by a kernel": _solve_by_kernel(k, n, dtype) for k, n in sizes}
    fit, losses = run.fit_task(True), quadrature.COARSE.losses
    return found | {
        "fit_segments, about 1,000 rows each, by a kernel": _chunk_by_kernel(
            fit, dtype, lambda _: ProblemInputs()
        ),
        "posteriors of partial pooling, by a kernel": _chunk_by_kernel(losses, dtype, _nodes),
    }


def of_meshes(dtype: np.dtype, mesh: Mesh) -> dict[str, Entry]:
    """The entries for a mesh with axes "problems" and "rows", by name."""
    shape = " x ".join(str(x) for x in mesh.devices.shape)
    return {
        f"solve 10,000 x 1,000 on {shape} devices": _solve_on_mesh(10_000, 1_000, dtype, mesh),
        f"fit_segments on {shape} devices": _fit_segments_on_mesh(dtype, mesh),
    }


def _array(shape: tuple[int, ...], dtype: Any, sharding: Any = None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def made_up(entry: Entry, seed: int = 0) -> tuple[Any, ...]:
    """The arguments, with random numbers in place of arrays that only have a shape.

    Scores are higher where the labels of an array of the same shape are 1.
    """

    def filled(x: Any) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return x
        rng = np.random.default_rng(seed)
        ones = rng.random(x.shape, np.float32) < 0.4
        if np.issubdtype(x.dtype, np.floating):
            return (rng.standard_normal(x.shape, np.float32) + ones).astype(x.dtype)
        return ones.astype(x.dtype)

    return jax.tree.map(filled, entry.arguments)


def _options(dtype: np.dtype) -> Options:
    return Options().with_tol(dtype)


def _dense(problems: int, rows: int, dtype: np.dtype, sharding: Any = None) -> tuple[Any, Any]:
    """Scores and labels."""
    shape = problems, rows
    return _array(shape, dtype, sharding), _array(shape, np.int8, sharding)


def _columns(rows: int, dtype: np.dtype) -> Columns:
    """Scores and labels."""
    return Columns(_array((rows,), dtype), _array((rows,), np.int8))


def _chunk(size: int, tile_shapes: Any = None, alike: int | None = None) -> planning.Chunk:
    """The first chunk of 100,000 segments whose sizes are half to one and a half times `size`."""
    sizes = np.random.default_rng(0).integers(size // 2, 3 * size // 2, 100_000)
    sizes = sizes[planning.largest_first(sizes)]
    return next(planning.chunks(sizes, tile_shapes=tile_shapes, alike=alike))


def _solve(problems: int, rows: int, dtype: np.dtype) -> Entry:
    program = xla.jit(dense._solve_dense.__wrapped__, static_argnames=("options", "axes"))
    arguments = Columns(*_dense(problems, rows, dtype)), ProblemInputs()
    return Entry(program, arguments, {"options": _options(dtype)}, problems * rows)


def _solve_by_kernel(problems: int, rows: int, dtype: np.dtype) -> Entry:
    arguments = Columns(*_dense(problems, rows, dtype)), ProblemInputs()
    static = {"options": _options(dtype), "compiler": "mosaic"}
    return Entry(dense._solve_by_kernel, arguments, static, problems * rows, searches=False)


def _gradient(problems: int, rows: int, dtype: np.dtype) -> Entry:
    slopes = jax.grad(lambda f, y: jnp.sum(pj.solve(f, y).A))
    # The options that the how-to for GPUs recommends for users' programs.
    program = xla.jit(slopes)
    return Entry(program, _dense(problems, rows, dtype), {}, problems * rows)


def _fit_segments(size: int, dtype: np.dtype) -> Entry:
    chunk = _chunk(size)
    arguments = _columns(chunk.capacity, dtype), chunk.row_map(), ProblemInputs()
    static = {"options": _options(dtype), "block": chunk.tile_shape.block}
    return Entry(run.solve_chunk, arguments, static, chunk.rows)


def _chunk_by_kernel(task: Task, dtype: np.dtype, given: Callable[[Any], Any]) -> Entry:
    """A chunk of segments of about 1,000 rows; `given` takes an array of the grid's shape."""
    chunk = _chunk(1_000, shapes.KERNEL_SHAPES)
    arguments = _columns(chunk.capacity, dtype), chunk.row_map(), given(_array(chunk.grid, dtype))
    static = {"options": _options(dtype), "function": task.by_kernel, "compiler": "mosaic"}
    return Entry(run.solve_by_kernel, arguments, static, chunk.rows, searches=False)


def _bootstrap(dtype: np.dtype) -> Entry:
    chunk = _chunk(1_000, alike=replicates._CHUNK_ON_GPU)
    word = _array(chunk.grid, np.uint32)
    stream = replicated.Stream(word, word)
    arguments = _columns(chunk.capacity, dtype), chunk.row_map(), ProblemInputs(), stream
    static = {"options": _options(dtype), "kind": "poisson", "block": chunk.tile_shape.block}
    return Entry(replicates._solve_chunk, arguments, static, chunk.rows)


def _posteriors(dtype: np.dtype) -> Entry:
    chunk = _chunk(1_000)
    nodes = _nodes(_array(chunk.grid, dtype))
    arguments = _columns(chunk.capacity, dtype), chunk.row_map(), nodes
    static = {
        "options": _options(dtype),
        "block": chunk.tile_shape.block,
        "function": quadrature.COARSE.losses.traced,
    }
    return Entry(run.solve_chunk, arguments, static, chunk.rows)


def _nodes(number: Any) -> quadrature.Nodes:
    normals = gaussians.Normals(*[number] * len(gaussians.Normals._fields))
    return quadrature.Nodes(normals, Standardization(number, number))


def _moments(segments: int) -> Entry:
    """One step of the search for the population."""
    grid, number = quadrature.fine(segments), _array((segments,), np.float64)
    axis = grid.axis, grid.log_weight
    nodes = gaussians.Normals(*[number] * len(gaussians.Normals._fields))
    losses = _array((segments, len(grid.z)), np.float64)
    program = xla.jit(quadrature._moments.__wrapped__)
    return Entry(program, (axis, (losses, nodes)), {}, segments, searches=False)


def _plausible(segments: int) -> Entry:
    """One round of the integral over populations."""
    number = _array((segments,), np.float64)
    spreads = Symmetric(*[_array((integral._LEAST_DRAWS,), np.float64)] * 3)
    likelihoods = Likelihoods(Symmetric(*[number] * 3), number, number)
    program = xla.jit(integral._sums.__wrapped__)
    evidence = integral._Evidence(likelihoods, _array((segments, 0), np.float64))
    return Entry(program, (spreads, evidence), {}, segments, searches=False)


def _block(dtype: np.dtype) -> Entry:
    rows, number, options = shapes.sizes().block_rows, _array((), dtype), _options(dtype)
    block = blocks.Block(_columns(rows, dtype), np.int32(rows))
    point_and_targets = (number, number), Targets(*[number] * 4)
    arguments = block, point_and_targets, Standardization(number, number)
    request = Request("derivatives", options, options)
    static = {"request": request, "as_vectors": False, "mesh": None}
    return Entry(blocks._block_result, arguments, static, rows, searches=False)


def _as_one(number: int, dtype: np.dtype) -> Entry:
    room = -(-shapes.sizes().block_rows // shapes.BLOCK_TILE) * shapes.BLOCK_TILE
    rows = device_grouping.padded_length(number)
    left = packing.rows_left(np.int64(number), rows, np)
    given = jax.tree.map(lambda x: x[None, None], ProblemInputs())
    arguments = _columns(rows + room, dtype), left, given
    static = {"options": replace(_options(dtype), non_finite="omit"), "loss": False}
    return Entry(device_segments._fit_as_one, arguments, static, rows, parts=deferred.PARTS)


def _grouping(number: int) -> Entry:
    """The order of rows by int64 ids that are fewer than 2^32; scores have no part in it."""
    wide = _array((), np.int64)
    arguments = _array((number,), np.int64), wide, wide
    rows = device_grouping.padded_length(number)
    static = {"kind": np.dtype(np.uint32), "place": np.dtype(np.int32), "padded": rows}
    static |= {"ascending": False}
    return Entry(device_grouping._in_order, arguments, static, rows, searches=False, sorts=True)


def _leave_one_out(problems: int, rows: int, dtype: np.dtype) -> Entry:
    number, held = _array((problems,), dtype), _array((problems,), np.bool_)
    arrays = Columns(*_dense(problems, rows, dtype)), np.full(problems, rows, np.int32)
    center = expansion.Center(number, number, Standardization(number, number), held, None)
    sums = expansion.sums.eval_shape(arrays, center)
    static = {"options": Options(), "tolerance": 1e-3}
    arguments = arrays, center, sums
    return Entry(expansion.leave_each_out, arguments, static, problems * rows, searches=False)


def _rooms() -> dict[str, Entry]:
    """What is computed of 16,384 segments of up to 1,024 rows, in float64 of scores in float32."""
    k, width = 1 << 14, 1 << 10
    rows, number = k * width, _array((k,), np.float64)
    given, starts = _columns(rows, np.dtype(np.float32)), _array((k,), np.int64)
    predict = {"function": predicted_rows._predicted}
    wide = _array((rows,), np.float64)
    predicted = given._replace(scores=wide, offset=wide)

    def of_padded(function: Any, columns: Columns, *numbers: Any, sorts: bool = False) -> Entry:
        static = {"width": width, "function": function}
        arguments = columns, starts, starts, list(numbers)
        program = device_segments._of_padded
        return Entry(program, arguments, static, rows, searches=False, sorts=sorts)

    streams, deviations = _array((k, 32), np.uint64), _array((k, 3), np.float64)
    draws = streams, number, number, deviations, number, number
    held, of_rows = _array((k,), np.bool_), np.dtype(np.float32)
    left_out = left_out_there._left_out(Options(), 5e-4, of_rows)
    return {
        "each row left out": of_padded(left_out, given, *[number] * 4, held),
        "results of rows in their places": Entry(
            device_segments._placed,
            (wide, _array((k, width), np.float64), starts, starts),
            {"length": rows},
            rows,
            searches=False,
        ),
        "gate": of_padded(_first_accepted_there, predicted, *[number] * 9, sorts=True),
        "predictions of rows in float64": Entry(
            device_segments._other_columns,
            (given, starts, [number] * 2),
            predict,
            rows,
            searches=False,
        ),
        "sums of triage": of_padded(device_tests._sums_of_tests, predicted, number),
        "32 draws of triage": of_padded(
            device_tests._are_extreme, predicted, *draws, sorts=True
        )._replace(searches=True),
        "sums of estimate_means": of_padded(mean_rows.sums_there, predicted),
        "influences of bootstrap": of_padded(influence._sums_there, given, *[number] * 8),
        "sums of robust_covariance": of_padded(sandwich.sums_there, given, number, number, number),
    }


def _predict(rows: int, dtype: np.dtype) -> Entry:
    arguments = _array((rows,), dtype), _array((rows, 5), dtype)
    return Entry(averages._by_trapezoids, arguments, {}, rows, searches=False)


def _predict_by_segment(rows: int, length: int, dtype: np.dtype) -> Entry:
    """10,000 segments; `length` is that of the table by id."""
    segments = _array((rows,), np.int32), _array((10_000,), np.int32), _array((10_001, 2), dtype)
    arguments = _array((rows,), dtype), *segments, None
    return Entry(device_rows._proba, arguments, {"length": length}, rows, searches=False)


def _solve_on_mesh(problems: int, rows: int, dtype: np.dtype, mesh: Mesh) -> Entry:
    sharding = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
    program = xla.jit(dense._solve_sharded.__wrapped__, static_argnames=("run", "sharding"))
    arguments = Columns(*_dense(problems, rows, dtype, sharding)), ProblemInputs()
    solve = partial(dense._solve_dense, options=_options(dtype))
    static = {"run": solve, "sharding": sharding}
    return Entry(program, arguments, static, problems * rows, devices=mesh.size)


def _fit_segments_on_mesh(dtype: np.dtype, mesh: Mesh) -> Entry:
    chunk = _chunk(1_000)
    rows = Columns(np.zeros(chunk.capacity, dtype), np.zeros(chunk.capacity, np.int8))
    share = devices._split(rows, chunk.row_map(), chunk, mesh.shape[devices.ROWS])[0]
    sharding = NamedSharding(mesh, devices.OVER_ALL)
    columns, where = jax.tree.map(
        lambda x: _array((mesh.size * len(x), *x.shape[1:]), x.dtype, sharding), share
    )
    static = {
        "options": _options(dtype),
        "block": chunk.tile_shape.block,
        "function": fit_rows,
        "mesh": mesh,
    }
    read = mesh.shape[devices.PROBLEMS] * chunk.rows
    return Entry(
        run._solve_on_mesh, (columns, where, ProblemInputs()), static, read, devices=mesh.size
    )
