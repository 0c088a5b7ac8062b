"""Rows whose sums are computed by Pallas kernels, for a GPU.

The rows of a problem lie end to end in the flat arrays, without padding. A problem is divided among
programs of a kernel, at most 4,096 rows each. A program reads its rows once, some hundred at a
time, and writes one number per term. A second kernel adds the numbers of each problem's programs in
their order. So the bits depend neither on the other problems nor on the order in which programs
run.

A program uses nothing but loads of vectors and scalars, arithmetic, and reductions of a vector,
which both of Pallas's compilers for GPUs take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from platt_jax.model.objective import Array
from platt_jax.passes.folded import SUM, FoldedRows, Reduction, Terms, read_vector

# Rows of one problem per program, at most.
_ROWS = 4_096

# Rows per vector; few for small problems. Mosaic takes multiples of 128, a program's threads.
_FEW, _MANY = 128, 512


class Ranges(NamedTuple):
    """What each program reads; int32 [P]."""

    first: jax.Array  # the first place in the flat arrays
    size: jax.Array  # number of places, from there on
    problem: jax.Array  # the problem that they belong to


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PallasRows(FoldedRows):
    """The rows of S x G problems; `start` and `size` are [S, G]. Made by `pallas_rows`."""

    programs: Ranges  # [P], ordered by problem
    # [S G], the programs of each problem; None if each problem has one program.
    of_problems: Ranges | None
    # What compiles the kernels: "triton", "mosaic", or "interpreter" for any device.
    compiler: str = field(metadata={"static": True})

    def _fold(
        self,
        terms: Callable[..., Sequence[jax.Array]],
        number: int,
        *per_problem: Any,
        reduction: Reduction = SUM,
        active: jax.Array | None = None,
    ) -> Terms:
        """See `FoldedRows`. Programs of problems that are not active read no rows."""

        def of_rows(columns: Any, there: jax.Array, of_problem: Any) -> Sequence[jax.Array]:
            numbers, standardization = of_problem
            f, label, weight = columns
            label = label.astype(jnp.int32)  # Mosaic does not compare 8-bit numbers
            how = standardization, self.finite, self.arithmetic
            return terms(read_vector(f, label, weight, there, *how), *numbers)

        def of_programs(columns: Any, there: jax.Array, _: Any) -> Sequence[jax.Array]:
            return [jnp.where(there, x, reduction.start) for x in columns]

        programs = self.programs
        if active is not None:
            going = active.ravel()[programs.problem]
            programs = programs._replace(size=jnp.where(going, programs.size, 0))
        columns = self.scores, self.labels, self.weights
        numbers = jax.tree.map(jnp.ravel, (per_problem, self.standardization))
        one_each = self.of_problems is None
        how = _How(reduction, number, _FEW if one_each else _MANY, self.compiler)
        found = _kernel(columns, programs, numbers, of_rows, how)
        if self.of_problems is not None:
            how = how._replace(lanes=_FEW)
            found = _kernel(found, self.of_problems, (), of_programs, how)
        return [x.reshape(self.size.shape) for x in found]


def pallas_rows(
    scores: jax.Array,
    labels: jax.Array,
    weights: jax.Array | None,
    start: Array,
    size: Array,
    compiler: str,
) -> PallasRows:
    """The rows of S x G problems.

    Args:
        scores: [C], at least 512 of them.
        labels: [C], above 0 for class 1.
        weights: [C], or None.
        start: [S, G] int32, the first row of each problem.
        size: [S, G] int32, the number of rows of each problem. If G is above 1, all problems are
            small: each has one program.
        compiler: see `PallasRows`.
    """
    start, size = jnp.asarray(start), jnp.asarray(size)
    programs, of_problems = _programs(start.ravel(), size.ravel(), len(scores), size.shape[1] > 1)
    return PallasRows(
        scores,
        labels,
        weights,
        start,
        size,
        programs=programs,
        of_problems=of_problems,
        compiler=compiler,
    )


def _programs(
    start: jax.Array, size: jax.Array, length: int, small: bool
) -> tuple[Ranges, Ranges | None]:
    """The programs for problems in arrays of this length, and those of each problem."""
    problems = len(size)
    numbers = jnp.arange(problems, dtype=jnp.int32)
    if small:
        return Ranges(start, size, numbers), None
    number = -(-size // _ROWS)
    ends = jnp.cumsum(number, dtype=jnp.int32)
    most = max(length // _ROWS + problems, _FEW)
    programs = jnp.arange(most, dtype=jnp.int32)
    problem = jnp.searchsorted(ends, programs, side="right", method="scan_unrolled")
    # Spare programs count as the last problem's, but have no rows.
    problem = jnp.minimum(problem, problems - 1).astype(jnp.int32)
    before = (programs - (ends - number)[problem]) * _ROWS
    rows = jnp.clip(size[problem] - before, 0, _ROWS)
    return (
        Ranges(start[problem] + before, rows, problem),
        Ranges(ends - number, number, numbers),
    )


class _How(NamedTuple):
    """How a kernel reduces terms."""

    reduction: Reduction
    terms: int  # number of terms
    lanes: int  # length of a vector
    compiler: str


def _kernel(
    columns: Any,
    ranges: Ranges,
    numbers: Any,
    terms: Callable[..., Sequence[jax.Array]],
    how: _How,
) -> Terms:
    """The terms of each range of the columns, reduced; each [P].

    Args:
        columns: a pytree of flat arrays of one length, at least that of a vector.
        ranges: the ranges, one per program.
        numbers: a pytree of flat arrays with a number for each problem.
        terms: takes vectors of the columns, which of their places belong to the range, and the
            numbers of its problem; returns the terms.
        how: how terms are reduced.
    """
    first_column = jax.tree.leaves(columns)[0]
    length, lanes, reduction = len(first_column), how.lanes, how.reduction

    def body(program: jax.Array, load: Callable[..., jax.Array], refs: Any, out: Any) -> None:
        columns, (first, size, problem), numbers = refs
        begin, end = first[program], first[program] + size[program]
        of_problem = jax.tree.map(lambda x: x[problem[program]], numbers)

        def add(i: jax.Array, found: Terms) -> Terms:
            left = begin + i * lanes
            at = jnp.minimum(left, length - lanes)  # no vector may extend past the last place
            place = at + lax.iota(jnp.int32, lanes)
            there = (place >= left) & (place < end)
            vectors = jax.tree.map(lambda x: load(x, pl.ds(at, lanes)), columns)
            return list(map(reduction.combine, found, terms(vectors, there, of_problem)))

        none = [jnp.full(lanes, reduction.start, first_column.dtype)] * how.terms
        vectors = lax.div(end - begin + (lanes - 1), jnp.int32(lanes))
        for into, x in zip(out, lax.fori_loop(0, vectors, add, none), strict=True):
            into[program] = reduction.across(x)

    shape = jax.ShapeDtypeStruct(ranges.first.shape, first_column.dtype)
    launch = _launch_mosaic if how.compiler == "mosaic" else _launch
    return launch(body, (columns, tuple(ranges), numbers), [shape] * how.terms, how)


def _launch(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], how: _How
) -> Terms:
    """Runs the body with Triton, or by the interpreter."""

    def kernel(refs: Any, *out: Any) -> None:
        body(pl.program_id(0), lambda ref, places: ref[places], refs, out)

    if how.compiler == "interpreter":
        settings: dict[str, Any] = {"interpret": True}
    else:
        from jax.experimental.pallas import triton

        # 32 threads for a short vector: they reduce it without shared memory.
        settings = {"compiler_params": triton.CompilerParams(num_warps=how.lanes // 128)}
    return pl.pallas_call(kernel, shapes, grid=shapes[0].shape, **settings)(refs)


def _launch_mosaic(
    body: Callable[..., None], refs: Any, shapes: list[jax.ShapeDtypeStruct], how: _How
) -> Terms:
    """Runs the body with Mosaic."""
    from jax.experimental.pallas import mosaic_gpu

    # Numbers are loaded one by one: rows may begin anywhere.
    layout = mosaic_gpu.Layout.WG_STRIDED((how.lanes,), vec_size=1)

    def load(ref: Any, places: Any) -> jax.Array:
        return mosaic_gpu.layout_cast(ref[places], layout)

    leaves, tree = jax.tree.flatten(refs)

    def kernel(*arguments: Any) -> None:
        given, out = arguments[: len(leaves)], arguments[len(leaves) :]
        body(lax.axis_index("program"), load, jax.tree.unflatten(tree, given), out)

    run = mosaic_gpu.kernel(kernel, out_type=shapes, grid=shapes[0].shape, grid_names=("program",))
    return run(*leaves)
