"""The whole fit of each problem in one kernel, which reads the rows from memory once.

Sums, decisions and loop run in one program per problem. So a problem waits for no other one, and
nothing as long as the rows is written.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax import lax

from platt_jax.backend import mosaic, xla
from platt_jax.model.objective import Targets
from platt_jax.options import Options
from platt_jax.passes import kernels
from platt_jax.passes.columns import Columns
from platt_jax.passes.kernels import KernelRows
from platt_jax.passes.shapes import RowRanges
from platt_jax.results.fit import Fit
from platt_jax.solver import newton, search
from platt_jax.solver.newton import SearchState
from platt_jax.solver.search import Runner
from platt_jax.solver.solution import Found, ProblemInputs, report, searched


def compiler(options: Options) -> str | None:
    """What compiles kernels; None if XLA's operations compute everything."""
    # Mosaic has not all operations of derivatives by JAX.
    return xla.kernel_compiler() if options.derivatives == "analytic" else None


def fit_ranges(
    columns: Columns, where: RowRanges, given: ProblemInputs, options: Options, compiler: str
) -> Fit:
    """`fit_rows` of the rows of flat arrays; see `kernels.by_problem`."""

    def fit_one(rows: KernelRows, given: ProblemInputs) -> Found:
        return searched(rows, given, options, optimum, _IN_KERNEL)

    optimum = partial(search.optimum, runner=_IN_KERNEL)
    result = kernels.by_problem(fit_one, columns, where, given, compiler)
    return report(result, options)


def _loop(
    running: Callable[[SearchState], jax.Array],
    advance: Callable[..., SearchState],
    rows: KernelRows,
    targets: Targets,
    state: SearchState,
) -> SearchState:
    """See `Runner`. The state is of one problem."""

    def body(state: SearchState) -> SearchState:
        return advance(state, newton.trial_point(state), rows, targets)

    return lax.while_loop(running, body, state)


_IN_KERNEL = Runner(_loop, mosaic.compilable)
