"""The whole search of each problem as one kernel, which reads the rows from memory once.

Sums, decisions and loop run in one program per problem. So a problem waits for no other one, and
the rows of a small problem are in a cache from the second pass on.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.prior import CenteredPrior
from platt_jax.options import Options
from platt_jax.passes.pallas import PallasRows
from platt_jax.passes.protocol import Rows
from platt_jax.solver import newton, search
from platt_jax.solver.newton import State
from platt_jax.solver.search import Problem, Runner, Solution


def optimum(
    rows: PallasRows,
    targets: Targets,
    prior: CenteredPrior | None,
    problem: Problem,
    options: Options,
    loss: bool = True,
) -> Solution:
    """`search.optimum` by one kernel; with a prior, by one kernel for each sum."""
    if prior is not None:
        return search.optimum(rows, targets, prior, problem, options, loss=loss)

    def solve(rows: Rows, numbers: tuple[Targets, Problem]) -> Solution:
        targets, problem = numbers
        problem = problem._replace(bad=problem.bad > 0, unbounded=problem.unbounded > 0)
        made = search.optimum(rows, targets, None, problem, options, _IN_KERNEL, loss)
        return made._replace(pinned=_as_int(made.pinned))

    # Kernels neither read nor write bool.
    numbers = problem._replace(bad=_as_int(problem.bad), unbounded=_as_int(problem.unbounded))
    real: Any = problem.A.dtype
    whole: Any = jnp.dtype(jnp.int32)
    dtypes = Solution(real, real, real, Derivatives(*[real] * 5), *[whole] * 4)
    found: Solution = rows.by_problem(solve, (targets, numbers), dtypes)
    return found._replace(pinned=found.pinned > 0)


def _as_int(x: jax.Array) -> jax.Array:
    return jnp.where(x, jnp.int32(1), jnp.int32(0))


def _loop(
    running: Callable[[State], jax.Array],
    advance: Callable[..., State],
    rows: Any,
    targets: Targets,
    state: State,
) -> State:
    """See `Runner`. The state is of one problem."""

    def body(state: State) -> State:
        return advance(state, newton.trial_point(state), rows, targets)

    return lax.while_loop(running, body, state)


_IN_KERNEL = Runner(_loop, lambda function: function)
