"""Rows whose sums are computed by Pallas kernels, for a GPU.

The rows of a problem lie end to end in the flat arrays, without padding. A problem is divided among
programs of a kernel, at most 4,096 rows each. A program reads its rows once, some hundred at a
time, and writes one number per term. A second kernel adds the numbers of each problem's programs in
their order. So the bits depend neither on the other problems nor on the order in which programs
run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Array
from platt_jax.passes.columns import Columns
from platt_jax.passes.folded import Fold, FoldedRows, Terms
from platt_jax.passes.kernels import KernelConfig, Ranges, RowsInKernel, fold_range, kernel

# Rows of one problem per program, at most.
_ROWS = 4_096

# Rows per vector; few for small problems.
_FEW, _MANY = 128, 512


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PallasRows(FoldedRows):
    """The rows of S x G problems; `start` and `size` are [S, G]. Made by `pallas_rows`."""

    programs: Ranges  # [P], ordered by problem
    # [S G], the programs of each problem; None if each problem has one program.
    problem_programs: Ranges | None
    # What compiles the kernels: "triton", "mosaic", or "interpreter" for any device.
    compiler: str = field(metadata={"static": True})

    def _fold(self, fold: Fold) -> Terms:
        """See `FoldedRows`. Programs of problems that are not active read no rows."""

        def program_terms(how: KernelConfig, columns: Any, programs: Ranges, numbers: Any) -> Terms:
            rows, numbers = self._program_rows(how, columns, programs, numbers)
            return rows._fold(fold._replace(per_problem=numbers, active=None))

        def sum_terms(how: KernelConfig, sums: Any, programs: Ranges, _: Any) -> Terms:
            def masked(vectors: Terms, there: jax.Array) -> Terms:
                return [jnp.where(there, x, fold.reduction.start) for x in vectors]

            first, size, _ = programs
            return fold_range(sums, first, size, masked, fold.number, fold.reduction, how)

        programs = self.programs
        if fold.active is not None:
            going = fold.active.ravel()[programs.problem]
            programs = programs._replace(size=jnp.where(going, programs.size, 0))
        dtypes = [self.scores.dtype] * fold.number
        numbers = jax.tree.map(jnp.ravel, (fold.per_problem, self.standardization))
        found: Any = kernel(program_terms, self.columns, programs, numbers, dtypes, self._how)
        if self.problem_programs is not None:
            how = KernelConfig(_FEW, self.compiler, len(programs.first))
            found = kernel(sum_terms, found, self.problem_programs, (), dtypes, how)
        return [x.reshape(self.size.shape) for x in found]

    def by_problem(self, function: Callable[..., Any], numbers: Any, dtypes: Any) -> Any:
        """The results of a function of each problem's rows, computed by one program per problem.

        However often the function reads the rows of a small problem, only the first time do they
        come from the device's memory, and not from a cache.

        Args:
            function: takes rows of one problem, which have the methods of `Rows` for scalars, and
                its numbers; returns a pytree of scalars.
            numbers: a pytree of arrays with the shape of `size`, which are not bool.
            dtypes: the dtypes of the function's results, a pytree of the same structure.
        """

        def program_terms(how: KernelConfig, columns: Any, programs: Ranges, numbers: Any) -> Any:
            return jax.tree.leaves(function(*self._program_rows(how, columns, programs, numbers)))

        start, size = self.start.ravel(), self.size.ravel()
        programs = Ranges(start, size, jnp.arange(len(size), dtype=jnp.int32))
        flat = jax.tree.map(jnp.ravel, (numbers, self.standardization))
        leaves, tree = jax.tree.flatten(dtypes)
        found = kernel(program_terms, self.columns, programs, flat, leaves, self._how)
        return jax.tree.unflatten(tree, [x.reshape(self.size.shape) for x in found])

    def _program_rows(
        self, how: KernelConfig, columns: Any, programs: Ranges, numbers: Any
    ) -> tuple[RowsInKernel, Any]:
        """Within a kernel: a program's rows, and the numbers of its problem."""
        numbers, standardization = jax.tree.map(lambda x: x[programs.problem], numbers)
        own = programs.first, programs.size, standardization, self.finite
        scores, labels, weights, offset = columns
        return RowsInKernel(scores, labels, weights, *own, offset, how=how), numbers

    @property
    def _how(self) -> KernelConfig:
        lanes = _FEW if self.problem_programs is None else _MANY
        return KernelConfig(lanes, self.compiler, len(self.scores))


def pallas_rows(columns: Columns, start: Array, size: Array, compiler: str) -> PallasRows:
    """The rows of S x G problems.

    Args:
        columns: [C], at least 512 rows.
        start: [S, G] int32, the first row of each problem.
        size: [S, G] int32, the number of rows of each problem. If G is above 1, all problems are
            small: each has one program.
        compiler: see `PallasRows`.
    """
    start, size = jnp.asarray(start), jnp.asarray(size)
    scores, labels, weights, offset = columns
    programs, problem_programs = _programs(
        start.ravel(), size.ravel(), len(scores), size.shape[1] > 1
    )
    return PallasRows(
        scores,
        labels,
        weights,
        start,
        size,
        offset=offset,
        programs=programs,
        problem_programs=problem_programs,
        compiler=compiler,
    )


def _programs(
    start: jax.Array, size: jax.Array, length: int, small: bool
) -> tuple[Ranges, Ranges | None]:
    """The programs for problems in arrays of this length, and the programs of each problem."""
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
