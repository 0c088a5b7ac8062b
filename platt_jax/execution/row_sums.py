"""Sums of any terms over the rows of each segment, in float64, for rows on a device."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.arrays import Floats
from platt_jax.backend import xla
from platt_jax.caller import Caller
from platt_jax.execution.device_segments import wide
from platt_jax.execution.problems import Context, Problems, Task
from platt_jax.execution.run import run_problems
from platt_jax.model.objective import Arithmetic, Row
from platt_jax.options import Options
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.passes.protocol import RowTerms, TermRows


class SumTerms(NamedTuple):
    """Terms of rows: a function of a module, so that its program is compiled once."""

    # Takes a `Row`, whose score is 0 if it is not finite; whether it is finite; and the numbers of
    # the row's problem.
    function: Callable[[Row, jax.Array, Any], Sequence[Any]]
    number: int


def row_sums(problems: Problems, terms: SumTerms, numbers: Any, caller: Caller) -> list[Floats]:
    """The sums over all rows of each problem, (K,) for each term.

    Args:
        problems: the rows, in arrays on a device.
        terms: what is added up.
        numbers: a pytree of float64 arrays (K,), numbers of the problems.
        caller: as in `Context`.
    """

    def take(some: slice, part: slice, space: packing.Space) -> Columns:
        with jax.enable_x64(True):
            columns: Columns = _wide(problems.take(some, part, space))
        return columns

    in_float64 = problems._replace(dtype=np.dtype(np.float64), take=take)
    context = Context(Options(), caller)
    sums: list[Floats] = run_problems(_task(terms), in_float64, numbers, context)
    return sums


@cache
def _task(terms: SumTerms) -> Task:
    """The task is cached: compiled programs are found by it."""
    sums = partial(_sums, RowTerms(partial(_row_terms, terms.function), terms.number))
    return Task(sums, sums)


def _sums(terms: RowTerms, rows: TermRows, given: Any, options: Options) -> list[Any]:
    return list(rows.row_sums(given, terms))


def _row_terms(
    function: Callable[[Row, jax.Array, Any], Sequence[Any]],
    row: Row,
    arithmetic: Arithmetic,
    numbers: Any,
) -> list[jax.Array]:
    """The terms, which are 0 for padding: its score is NaN, and infinite where it is not finite."""
    finite = jnp.isfinite(row.f)
    terms = function(row._replace(f=jnp.where(finite, row.f, 0)), finite, numbers)
    return [jnp.where(jnp.isnan(row.f), 0, x) for x in terms]


_wide = xla.jit(wide)
