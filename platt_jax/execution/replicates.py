"""Runs bootstrap replicates of problems, which share rows, through the compiled program.

All rows of a cluster share a weight, which the hash of the cluster's id determines.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.backend import xla
from platt_jax.columns import Column
from platt_jax.execution import planning
from platt_jax.execution.grouping import GroupedRows
from platt_jax.execution.oversized import run_oversized
from platt_jax.execution.planning import Chunk
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import fit_task, in_chunks, solve_chunk
from platt_jax.groups import Groups
from platt_jax.ids.factorize import factorize
from platt_jax.ids.hashing import hashes
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.passes import deferred, packing, replicated, scan, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.protocol import Rows
from platt_jax.passes.replicated import Stream
from platt_jax.passes.shapes import GatherMap, RowRanges
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import ProblemInputs, fit_rows

# Takes a slice of the problems and a slice of each one's rows; returns these rows' clusters.
TakeClusters: TypeAlias = Callable[[slice, slice], NDArray[np.uint32]]

# Tolerance of replicates, in standard errors. A smaller one takes one more pass.
_TOL = 1e-4

# Rows of every chunk on a GPU. With fewer an H200 would spend most of its time on starting kernels.
_CHUNK_ON_GPU = 1 << 24

_ALL = slice(None)


class Replicates(NamedTuple):
    """The fits of replicates; arrays of one shape."""

    A: Array
    B: Array
    status: Array  # int8
    one_class: Array  # bool


class Plan(NamedTuple):
    """The replicates to fit."""

    kind: str
    seed: int
    number: int  # replicates per problem
    ids: NDArray[np.uint64]  # (K,) uint64, identifies each problem


def fit_replicates(
    original: Problems,
    given: ProblemInputs,
    plan: Plan,
    context: Context,
    clusters: TakeClusters | None = None,
) -> Replicates:
    """Fits the replicates of K problems; returns NumPy arrays (R, K).

    Each is a problem of its own on its original's rows. Ids of the plan are in the order of the
    problems' sizes. `clusters` returns the clusters of rows: all rows of a cluster get the same
    random weight in a replicate, and rows are copied for each replicate.
    """
    sizes, take, order = original.sizes, original.take, original.order
    options = _with_tol(validation.options(context.options), original.dtype)
    number, problems = plan.number, len(sizes)
    # XLA may add up in another order where any array has another shape. On a GPU the replicates of
    # a problem would then depend on the other problems.
    alike = None if shapes.sizes().in_lanes else _CHUNK_ON_GPU
    if order is not None:
        given = jax.tree.map(lambda leaf: leaf[order], given)

    def original_problems(some: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The problem of each of these replicates, and its number within the problem."""
        return np.divmod(np.arange(some.start, some.stop), number)

    def solve(chunk: Chunk) -> Any:
        problem, replicate = original_problems(chunk.problems)
        originals = slice(problem[0], problem[-1] + 1)
        groups = Groups(sizes[originals])
        rows = take(originals, _ALL, packing.Space(_room(groups.rows, chunk), reused=True))
        if alike is not None:
            rows = _lengthened(rows, length=chunk.capacity)
        starts = groups.starts[problem - problem[0]]
        stream = replicated.streams(plan.seed, plan.ids[problem], replicate)
        inputs = jax.tree.map(lambda leaf: leaf[problem], given), stream
        results = _solve_chunk(
            rows,
            chunk.row_map(starts),
            *chunk.on_grid(inputs),
            options=options,
            kind=plan.kind,
            block=chunk.tile_shape.block,
        )
        return chunk.off_grid(results)

    def take_clustered(which: slice, part: slice, space: packing.Space) -> Columns:
        """The rows of some replicates, or a part of one's, with the weights of their clusters."""
        assert clusters is not None
        problem, replicate = original_problems(which)
        originals = slice(problem[0], problem[-1] + 1)
        groups = Groups(sizes[originals] if part == _ALL else [part.stop - part.start])
        repeats = Groups(groups.sizes[problem - problem[0]])  # of replicates, which share rows
        index = repeats.place + repeats.by_row(groups.starts[problem - problem[0]])
        rows = take(originals, part, packing.Space(groups.rows))
        rows = jax.tree.map(itemgetter(index), rows)
        words = clusters(originals, part)[index]
        stream = replicated.streams(plan.seed, plan.ids[problem], replicate)
        row_stream = map(repeats.by_row, stream)
        padded = (packing.lengthen(x, space.length) for x in (*row_stream, words))
        drawn = np.asarray(_draw(*padded, kind=plan.kind, dtype=rows.scores.dtype))[: len(index)]
        weights = drawn if rows.weights is None else drawn * rows.weights
        return packing.flat(rows._replace(weights=weights), space)

    def solve_clustered(chunk: Chunk) -> Any:
        rows = take_clustered(chunk.problems, _ALL, packing.Space(chunk.capacity, reused=True))
        problem, _ = original_problems(chunk.problems)
        inputs = chunk.on_grid(jax.tree.map(lambda leaf: leaf[problem], given))
        block = chunk.tile_shape.block
        results = solve_chunk(
            rows, chunk.row_map(), inputs, options=options, block=block, function=_fit
        )
        return chunk.off_grid(results)

    def solve_oversized(i: int) -> Any:
        problem = i // number

        def take_one(_: slice, part: slice, space: packing.Space) -> Columns:
            if clusters is not None:
                return take_clustered(slice(i, i + 1), part, space)
            rows = take(slice(problem, problem + 1), part, space)
            stream = replicated.streams(plan.seed, plan.ids[[problem]], np.array([i % number]))
            first = np.uint32(part.start or 0)
            drawn = _draw_in_turn(*stream, first, rows, kind=plan.kind)
            return rows._replace(weights=jax.block_until_ready(drawn))

        fit = fit_task(loss=False)
        results = run_oversized(fit, problem, original._replace(take=take_one), given, options)
        return jax.tree.map(np.asarray, _replicates(results))

    def places(some: slice) -> NDArray[Any]:
        problem, replicate = original_problems(some)
        return replicate * problems + (problem if order is None else order[problem])

    replicate_problems = original._replace(sizes=np.repeat(sizes.astype(np.int32), number))
    program = fit_replicates, plan.kind, np.dtype(original.dtype), options, clusters is None
    in_chunk = solve if clusters is None else solve_clustered
    cut = partial(planning.chunks, alike=alike)
    fits = in_chunks(program, replicate_problems, context, in_chunk, solve_oversized, places, cut)
    return Replicates(*(x.reshape(number, problems) for x in fits))


def _room(rows: int, chunk: Chunk) -> int:
    """Length of flat arrays for these rows, far fewer than the rows of the replicates."""
    return next(size for size in shapes.sizes().chunk_rows if size >= rows) + chunk.tile_shape.block


def _with_tol(options: Options, dtype: np.dtype[Any]) -> Options:
    """Options with `tol` filled in. After the last step the error is nearly the square of it."""
    if options.tol is None and options.stopping == "decrement":
        return replace(options, tol=_TOL)
    return options.with_tol(dtype)


@partial(xla.jit, static_argnames=("options", "kind", "block"), wide=True)
def _solve_chunk(
    columns: Columns,
    where: GatherMap | RowRanges,
    given: ProblemInputs,
    stream: Stream,
    options: Options,
    kind: str,
    block: int,
) -> Replicates:
    """Fits the replicates of a chunk; the results have shape [S, G]."""

    def fit(rows: Rows, given_and_stream: tuple[ProblemInputs, Stream]) -> Replicates:
        return _fit(rows, given_and_stream[0], options)

    if isinstance(where, GatherMap):
        tiles = packing.gather_tiles(columns, where, block)
        tiles = replicated.reweighted(tiles, stream, kind)
        return fit(deferred.for_passes(tiles), (given, stream))

    def draw(given_and_stream: tuple[ProblemInputs, Stream], row: jax.Array) -> jax.Array:
        return replicated.draw(kind, given_and_stream[1], row, columns.scores.dtype)

    inputs = given, stream
    most = shapes.MAX_SIDE_BY_SIDE
    return scan.scan_groups(fit, columns, where.start, where.size, inputs, most, draw)


def _fit(rows: Rows, given: ProblemInputs, options: Options) -> Replicates:
    return _replicates(fit_rows(rows, given, options, partial(search.optimum, loss=False)))


def _replicates(made: Fit) -> Replicates:
    one_class = (made.n_pos > 0) != (made.n_neg > 0)
    return Replicates(made.A, made.B, made.status.astype(np.int8), one_class)


@partial(xla.jit, static_argnames=("kind", "dtype"))
def _draw(
    first: jax.Array, second: jax.Array, number: jax.Array, kind: str, dtype: np.dtype[Any]
) -> jax.Array:
    return replicated.draw(kind, Stream(first, second), number, dtype)


def clusters_of_dense_rows(clusters: Column, length: int) -> TakeClusters:
    """The clusters of rows that all problems share."""
    words = _words(clusters, length)

    def take(problems: slice, part: slice) -> NDArray[np.uint32]:
        return np.tile(words[part], problems.stop - problems.start)

    return take


def clusters_of_segment_rows(clusters: Column, length: int, segments: Column) -> TakeClusters:
    """The clusters of rows, in the order of their SegmentRows."""
    words = _words(clusters, length)
    zeros = np.zeros(length, np.float32), np.zeros(length, np.int8)
    rows = GroupedRows(factorize(ids.read(segments)), Columns(*zeros, words))

    def take(problems: slice, part: slice) -> NDArray[np.uint32]:
        size = int(np.sum(rows.sizes[problems]))
        number = len(range(size)[part])
        cluster_words = rows.take(problems, part, packing.Space(number)).weights
        assert cluster_words is not None
        return cluster_words[:number]

    return take


def _words(clusters: Column, length: int) -> NDArray[np.uint32]:
    """(N,) hash of each row's cluster; among 100,000 clusters about one pair shares a hash."""
    codes = factorize(ids.read_rows(clusters, length, "clusters"))
    words = hashes(codes.named(np.arange(codes.numbers))).astype(np.uint32)
    return words[codes.of(slice(None))]


@partial(xla.jit, static_argnames=("length",))
def _lengthened(rows: Columns, length: int) -> Columns:
    """Flat columns followed by others up to this length."""
    longer: Columns = jax.tree.map(lambda x: jnp.pad(x, (0, length - len(x))), rows)
    return longer


@partial(xla.jit, static_argnames=("kind",))
def _draw_in_turn(
    first: jax.Array, second: jax.Array, begin: jax.Array, rows: Columns, kind: str
) -> jax.Array:
    """The weights of rows of one problem in a replicate, from row number `begin` on."""
    number = begin + jnp.arange(len(rows.scores), dtype=jnp.uint32)
    drawn = replicated.draw(kind, Stream(first, second), number, rows.scores.dtype)
    return drawn if rows.weights is None else drawn * rows.weights
