"""Rows on a GPU, each left out of its segment's fit there: sums and optima are one program."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Ints
from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs
from platt_jax.inference.expansion import Center, LeftOut, leave_each_of_all_out
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes import shapes
from platt_jax.passes.columns import Columns


def expanded_there(
    rows: Any, center: Center, options: Options, tolerance: float
) -> tuple[jax.Array, Ints, tuple[NDArray[Any], NDArray[Any]]]:
    """Probabilities of all rows by expansion; positions and (A, B) of rows to be refitted.

    Probabilities are on the device, and others follow them.

    Args:
        rows: rows of segments with the methods of `DeviceGroupedRows`.
        center: of the segments, in the order of the layout, on the host.
        options: the options of the fits.
        tolerance: maximum error of the log-odds.
    """
    numbers = [np.asarray(x) for x in jax.tree.leaves(center)]
    numbers = [x if x.dtype == bool else x.astype(np.float64) for x in numbers]
    left_out: LeftOut = rows.by_row(_left_out(options, tolerance, rows.dtype), *numbers)
    number = int(jax.device_get(run_programs(lambda: _count(left_out.doubtful), x64=True)))
    if not number:
        nothing = np.zeros(0, rows.dtype)
        return left_out.probability, np.zeros(0, np.int64), (nothing, nothing)
    size = shapes.few_lengths(number, 1)
    doubtful = run_programs(lambda: _doubtful(left_out, size=size), x64=True)
    positions, A, B = (x[:number] for x in jax.device_get(doubtful))
    return left_out.probability, positions, (A.astype(rows.dtype), B.astype(rows.dtype))


@cache
def _left_out(options: Options, tolerance: float, dtype: np.dtype[Any]) -> Callable[..., LeftOut]:
    """The function is cached: compiled programs are found by it."""

    def function(rows: Columns, inside: jax.Array, *numbers: jax.Array) -> LeftOut:
        A, B, middle, scale, held, *prior = (x[:, 0] for x in numbers)
        problem_prior = GaussianPrior(*prior) if prior else None
        center = Center(A, B, Standardization(middle, scale), held, problem_prior)
        size = jnp.sum(inside, -1, dtype=np.int32)
        left_out = leave_each_of_all_out((rows, size), center, options, tolerance)
        return left_out._replace(probability=left_out.probability.astype(dtype))

    return function


def ordered_there(
    found: jax.Array,
    which: Ints,
    refitted: NDArray[Any],
    order: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """The probabilities, with others in these places, as a function puts them in order."""
    more = shapes.few_lengths(len(which), 1) - len(which)
    places = np.append(which, len(found) + np.arange(more))
    values = np.append(refitted, np.zeros(more, refitted.dtype))

    def ordered() -> jax.Array:
        return order(_replaced(found, places, values) if len(which) else found)

    proba: jax.Array = run_programs(ordered, x64=True)
    return proba


@xla.jit
def _count(doubtful: jax.Array) -> jax.Array:
    return jnp.sum(doubtful)


@partial(xla.jit, static_argnames=("size",))
def _doubtful(found: LeftOut, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Positions and (A, B) of the first doubtful rows, so many."""
    (positions,) = jnp.nonzero(found.doubtful, size=size)
    return positions, found.A[positions], found.B[positions]


@xla.jit
def _replaced(found: jax.Array, places: jax.Array, values: jax.Array) -> jax.Array:
    return found.at[places].set(values, mode="drop", unique_indices=True)
