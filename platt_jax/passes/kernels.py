"""Kernels that read ranges of flat arrays, for Pallas's compilers and its interpreter.

A program of a kernel uses nothing but loads of vectors and scalars, arithmetic, loops, and
reductions of a vector: Triton and Mosaic both compile it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from platt_jax.passes.folded import Fold, FoldedRows, Reduction, Terms


class Ranges(NamedTuple):
    """What each program reads; int32 [P]."""

    first: jax.Array  # the first place in the flat arrays
    size: jax.Array  # number of places, from there on
    problem: jax.Array  # the problem that they belong to


class KernelConfig(NamedTuple):
    """How a kernel reads and reduces."""

    lanes: int  # length of a vector
    compiler: str
    length: int  # length of the flat arrays
    load: Callable[..., jax.Array] = lambda column, places: column[places]  # reads a vector


@dataclass(frozen=True, kw_only=True)
class RowsInKernel(FoldedRows):
    """The rows of one problem within a kernel: the columns are references, the rest are scalars."""

    how: KernelConfig

    def _fold(self, fold: Fold) -> Terms:
        """See `FoldedRows`."""

        def terms(columns: Any, there: jax.Array) -> Sequence[jax.Array]:
            # Mosaic does not compare 8-bit numbers.
            columns = columns._replace(labels=columns.labels.astype(jnp.int32))
            return fold.terms(self._vector(columns, there), *fold.per_problem)

        own = self.columns, self.start, self.size
        return fold_range(*own, terms, fold.number, fold.reduction, self.how)


def fold_range(
    columns: Any,
    first: jax.Array,
    size: jax.Array,
    terms: Callable[..., Sequence[jax.Array]],
    number: int,
    reduction: Reduction,
    how: KernelConfig,
) -> Terms:
    """The terms of a range of the columns, reduced to scalars; within a kernel.

    Args:
        columns: a pytree of references to flat arrays.
        first: the first place.
        size: number of places.
        terms: takes vectors of the columns, and which of their places belong to the range; returns
            the terms.
        number: number of terms.
        reduction: how terms are combined.
        how: how vectors are read.
    """
    lanes = how.lanes

    def add(i: jax.Array, found: Terms) -> Terms:
        left = first + i * lanes
        at = jnp.minimum(left, how.length - lanes)  # no vector may extend past the last place
        place = at + lax.iota(jnp.int32, lanes)
        there = (place >= left) & (place < first + size)
        vectors = jax.tree.map(lambda x: how.load(x, pl.ds(at, lanes)), columns)
        return list(map(reduction.combine, found, terms(vectors, there)))

    none = [jnp.full(lanes, reduction.start, jax.tree.leaves(columns)[0].dtype)] * number
    vectors = lax.div(size + (lanes - 1), jnp.int32(lanes))
    return [reduction.across(x) for x in lax.fori_loop(0, vectors, add, none)]


def kernel(
    program_terms: Callable[..., Sequence[jax.Array]],
    columns: Any,
    ranges: Ranges,
    numbers: Any,
    dtypes: Sequence[Any],
    how: KernelConfig,
) -> Terms:
    """The results of a kernel, each [P].

    Args:
        program_terms: takes how to read, references to the columns, the program's range, and
            references to the numbers; returns scalars.
        columns: a pytree of flat arrays, at least as long as a vector.
        ranges: the range of each program.
        numbers: a pytree of flat arrays.
        dtypes: the dtypes of the results.
        how: how to read.
    """

    def body(program: jax.Array, how: KernelConfig, refs: Any, out: Any) -> None:
        columns, ranges, numbers = refs
        own = Ranges(*(x[program] for x in ranges))
        for into, x in zip(out, program_terms(how, columns, own, numbers), strict=True):
            into[program] = x

    shapes = [jax.ShapeDtypeStruct(ranges.first.shape, dtype) for dtype in dtypes]
    launch = _launch_mosaic if how.compiler == "mosaic" else _launch
    return launch(body, (columns, tuple(ranges), numbers), shapes, how)


def _launch(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], how: KernelConfig
) -> Terms:
    """Runs the body with Triton, or by the interpreter."""

    def run(refs: Any, *out: Any) -> None:
        body(pl.program_id(0), how, refs, out)

    if how.compiler == "interpreter":
        settings: dict[str, Any] = {"interpret": True}
    else:
        from jax.experimental.pallas import triton

        # 32 threads for a short vector: they reduce it without shared memory.
        settings = {"compiler_params": triton.CompilerParams(num_warps=how.lanes // 128)}
    return pl.pallas_call(run, shapes, grid=shapes[0].shape, **settings)(refs)


def _launch_mosaic(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], how: KernelConfig
) -> Terms:
    """Runs the body with Mosaic."""
    from jax.experimental.pallas import mosaic_gpu

    # Numbers are loaded one by one: rows may begin anywhere.
    layout = mosaic_gpu.Layout.WG_STRIDED((how.lanes,), vec_size=1)

    def load(ref: Any, places: Any) -> jax.Array:
        return mosaic_gpu.layout_cast(ref[places], layout)

    leaves, tree = jax.tree.flatten(refs)

    def run(*arguments: Any) -> None:
        given, out = arguments[: len(leaves)], arguments[len(leaves) :]
        refs = jax.tree.unflatten(tree, given)
        body(lax.axis_index("program"), how._replace(load=load), refs, out)

    settings = {"grid": shapes[0].shape, "grid_names": ("program",)}
    return mosaic_gpu.kernel(run, out_type=shapes, **settings)(*leaves)
