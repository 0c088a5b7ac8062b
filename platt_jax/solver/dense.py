"""The code of `solve`: dense problems, within users' own programs too, on any devices."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec, auto_axes

from platt_jax.backend import accelerators, xla
from platt_jax.options import Options
from platt_jax.passes import deferred, kernels, packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.shapes import RowRanges
from platt_jax.passes.sharded import ShardedRows
from platt_jax.results.fit import Fit
from platt_jax.solver import implicit, in_kernel
from platt_jax.solver.solution import ProblemInputs, fit_rows


def solve_checked(columns: Columns, given: ProblemInputs, options: Options) -> Fit:
    """`solve` for arguments that were checked.

    The columns are JAX arrays (..., N): scores, NaN where a label is not finite; labels; and in the
    dtype of the scores weights and offset.
    """
    scores = columns.scores
    run = partial(_solve_dense, options=options.with_tol(scores.dtype))
    sharding = _known_sharding(scores)
    if sharding is not None:
        return _solve_sharded(columns, given, run, sharding)
    compiler = _kernel_compiler(columns, given, options)
    if compiler is not None:
        return _solve_by_kernel(columns, given, options.with_tol(scores.dtype), compiler)
    return _over_hidden_axes(run, scores)(columns, given)


def _known_sharding(scores: jax.Array) -> NamedSharding | None:
    """The sharding of scores that lie on several devices of a mesh, or None if it is not known.

    For traced scores it is known if the axes of the mesh are explicit.
    """
    traced = isinstance(scores, jax.core.Tracer)
    sharding = jax.typeof(scores).sharding if traced else getattr(scores, "sharding", None)
    used = isinstance(sharding, NamedSharding) and any(sharding.spec)
    return sharding if used else None


def _over_hidden_axes(run: Callable[..., Fit], scores: jax.Array) -> Callable[..., Fit]:
    """`run`, sharded by the compiler if the mesh has explicit axes, which vmap may hide.

    JAX 0.10 cannot batch a reshape along such an axis.
    """
    mesh = jax.typeof(scores).sharding.mesh
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    explicit = tuple(name for name, kind in kinds if kind is AxisType.Explicit)
    if not explicit:
        return run
    return auto_axes(
        run,
        axes=explicit,
        out_sharding=NamedSharding(mesh, PartitionSpec()),
    )


@partial(xla.jit_or_inline, static_argnames=("run", "sharding"))
def _solve_sharded(
    columns: Columns,
    given: ProblemInputs,
    run: Callable[..., Fit],
    sharding: NamedSharding,
) -> Fit:
    """Each device fits its problems over its rows; devices that share problems exchange sums.

    The compiler alone would gather the rows.
    """
    scores = columns.scores
    *problem_axes, row_axes = (*sharding.spec, *(None,) * scores.ndim)[: scores.ndim]
    along, over = PartitionSpec(*problem_axes, row_axes), PartitionSpec(*problem_axes)
    axes = row_axes if isinstance(row_axes, tuple) else (row_axes,)

    def reshard(x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """Reshards an array as explicit axes require."""
        explicit = AxisType.Explicit in sharding.mesh.axis_types
        return jax.sharding.reshard(x, NamedSharding(sharding.mesh, spec)) if explicit else x

    def as_scores(x: jax.Array) -> jax.Array:
        return reshard(jnp.broadcast_to(x, scores.shape), along)

    row_columns = jax.tree.map(as_scores, columns._replace(scores=None))
    given = jax.tree.map(lambda x: reshard(x, over), given)
    return jax.shard_map(
        partial(run, axes=() if row_axes is None else axes),
        mesh=sharding.mesh,
        in_specs=(along, over),
        out_specs=over,
        check_vma=False,
    )(row_columns._replace(scores=scores), given)


@partial(xla.jit_or_inline, static_argnames=("options", "axes"))
def _solve_dense(
    columns: Columns, given: ProblemInputs, options: Options, axes: tuple[str, ...] = ()
) -> Fit:
    """Fits the problems of dense arrays, on all rows of the devices along these axes of a mesh."""
    batch = columns.scores.shape[:-1]
    rows: Any = deferred.for_passes(packing.dense_tiles(columns))
    shape = rows.grid
    if axes:
        rows = ShardedRows(rows, axes)
    given = jax.tree.map(lambda x: x.reshape(shape + x.shape[len(batch) :]), given)
    fit = fit_rows(rows, given, options, implicit.optimum)
    return jax.tree.map(lambda x: x.reshape(batch + x.shape[2:]), fit)


def _kernel_compiler(columns: Columns, given: ProblemInputs, options: Options) -> str | None:
    """What compiles the kernel that fits these problems; None if there is none.

    A kernel has no derivatives, and no rule for a transformation.
    """
    scores, most = columns.scores, shapes.KERNEL_SHAPES[0].above
    fits = shapes.MAX_SIDE_BY_SIDE < scores.shape[-1] <= most
    fits &= kernels.lanes(scores.dtype) <= scores.size <= jnp.iinfo(jnp.int32).max
    if not fits or xla.transformed((columns, given)):
        return None
    compiler = in_kernel.compiler(options)
    return compiler if compiler != "mosaic" or accelerators.holds(scores) else None


@partial(xla.jit, static_argnames=("options", "compiler"))
def _solve_by_kernel(
    columns: Columns, given: ProblemInputs, options: Options, compiler: str
) -> Fit:
    """`_solve_dense` by one kernel."""
    *batch, rows = columns.scores.shape
    size = jnp.full((math.prod(batch), 1), rows, jnp.int32)
    start = jnp.arange(len(size), dtype=jnp.int32)[:, None] * rows
    given = jax.tree.map(lambda x: x.reshape(size.shape), given)
    flat = jax.tree.map(jnp.ravel, columns)
    fit = in_kernel.fit_ranges(flat, RowRanges(start, size), given, options, compiler)
    return jax.tree.map(lambda x: x.reshape((*batch, *x.shape[2:])), fit)
