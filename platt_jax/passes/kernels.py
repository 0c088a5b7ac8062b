"""Rows within a kernel: one program for each problem, which reads the problem's rows in every pass.

The rows come from memory once, and then from a cache. A program uses nothing but loads of vectors
and scalars, arithmetic, loops, and reductions of a vector. Pallas's Mosaic compiles it for a GPU,
and its interpreter runs it anywhere. Pallas is imported where a
kernel is made: that takes a tenth of the time of `import jax`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.passes.columns import Columns
from platt_jax.passes.folded import Fold, FoldedRows, Terms
from platt_jax.passes.shapes import RowRanges

# Bytes of a vector, four numbers of each thread in float32. On an H200 no other length was faster.
_BYTES_OF_VECTOR = 2048


class Reading(NamedTuple):
    """How a kernel reads flat arrays."""

    lanes: int  # length of a vector
    length: int  # length of the flat arrays
    load: Callable[..., jax.Array] = lambda column, places: column[places]  # reads a vector


@dataclass(frozen=True, kw_only=True)
class KernelRows(FoldedRows):
    """The rows of one problem within a kernel: the columns are references, the rest are scalars."""

    reading: Reading

    def _fold(self, fold: Fold) -> Terms:
        """See `FoldedRows`."""
        from jax.experimental import pallas as pl

        lanes, length, load = self.reading
        combine = fold.reduction.combine

        def add(i: jax.Array, found: Terms) -> Terms:
            first = self.start + i * lanes
            start = jnp.minimum(first, length - lanes)  # no vector may extend past the last place
            positions = start + lax.iota(jnp.int32, lanes)
            inside = (positions >= first) & (positions < self.start + self.size)
            columns = jax.tree.map(lambda x: load(x, pl.ds(start, lanes)), self.columns)
            # Mosaic does not compare 8-bit numbers.
            columns = columns._replace(labels=columns.labels.astype(jnp.int32))
            terms = fold.terms(self._vector(columns, inside), *fold.per_problem)
            return list(map(combine, found, terms))

        none = [jnp.full(lanes, fold.reduction.start, self.scores.dtype)] * fold.number
        vectors = lax.div(self.size + (lanes - 1), jnp.int32(lanes))
        return [fold.reduction.across(x) for x in lax.fori_loop(0, vectors, add, none)]


def lanes(dtype: Any) -> int:
    """The length of a vector of this dtype, and of the shortest flat arrays."""
    return _BYTES_OF_VECTOR // jnp.dtype(dtype).itemsize


def by_problem(
    function: Callable[..., Any], columns: Columns, where: RowRanges, numbers: Any, compiler: str
) -> Any:
    """The results of a function of each problem's rows, computed by one program per problem.

    Args:
        function: takes `KernelRows` of one problem and its numbers; returns a pytree of scalars.
        columns: flat arrays, at least as long as a vector.
        where: the rows of each problem.
        numbers: a pytree of arrays with the shape of `where.size`, which are not bool.
        compiler: "mosaic", or "interpreter" for any device.

    Returns:
        A pytree of arrays with the shape of `where.size`.
    """
    reading = Reading(lanes(columns.scores.dtype), len(columns.scores))
    flat = jax.tree.map(jnp.ravel, (where, numbers))

    def results(reading: Reading, columns: Columns, where: RowRanges, numbers: Any) -> Any:
        scores, labels, weights, offset = columns
        extra = {"start": where.start, "size": where.size, "offset": offset, "reading": reading}
        return function(KernelRows(scores=scores, labels=labels, weights=weights, **extra), numbers)

    kinds = _kinds(partial(results, Reading(1, 1, lambda column, _: column)), columns, flat)
    shapes = [
        jax.ShapeDtypeStruct(flat[0].size.shape, jnp.int32 if kind.dtype == bool else kind.dtype)
        for kind in jax.tree.leaves(kinds)
    ]

    def body(program: jax.Array, reading: Reading, refs: Any, out: Sequence[Any]) -> None:
        columns, flat = refs
        problem = jax.tree.map(lambda x: x[program], flat)
        for into, x in zip(out, jax.tree.leaves(results(reading, columns, *problem)), strict=True):
            # Kernels neither read nor write bool.
            into[program] = jnp.where(x, jnp.int32(1), jnp.int32(0)) if x.dtype == bool else x

    launch = _interpreted if compiler == "interpreter" else _compiled
    outputs = launch(body, (columns, flat), shapes, reading)
    tree = jax.tree.structure(kinds)
    return jax.tree.map(
        lambda kind, x: x.astype(kind.dtype).reshape(where.size.shape),
        kinds,
        jax.tree.unflatten(tree, outputs),
    )


def _kinds(results: Callable[..., Any], columns: Columns, flat: Any) -> Any:
    """The dtypes of the results, from a trace for a single row."""

    def scalar(x: jax.Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((), x.dtype)

    one_row = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1,), x.dtype), columns)
    return jax.eval_shape(results, one_row, *jax.tree.map(scalar, flat))


def _interpreted(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], reading: Reading
) -> Any:
    from jax.experimental import pallas as pl

    def run(refs: Any, *out: Any) -> None:
        body(pl.program_id(0), reading, refs, out)

    return pl.pallas_call(run, shapes, grid=shapes[0].shape, interpret=True)(refs)


def _compiled(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], reading: Reading
) -> Any:
    from jax.experimental.pallas import mosaic_gpu

    # Numbers are loaded one by one: rows may begin anywhere.
    layout = mosaic_gpu.Layout.WG_STRIDED((reading.lanes,), vec_size=1)

    def load(ref: Any, places: Any) -> jax.Array:
        return mosaic_gpu.layout_cast(ref[places], layout)

    leaves, tree = jax.tree.flatten(refs)

    def run(*arguments: Any) -> None:
        inputs, out = arguments[: len(leaves)], arguments[len(leaves) :]
        refs = jax.tree.unflatten(tree, inputs)
        body(lax.axis_index("program"), reading._replace(load=load), refs, out)

    settings = {"grid": shapes[0].shape, "grid_names": ("program",)}
    return mosaic_gpu.kernel(run, out_type=shapes, **settings)(*leaves)
