"""Rows in flat arrays on an accelerator, the rows of each segment end to end."""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Ints
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.execution.device_grouping import padded_length, room
from platt_jax.execution.oversized import memory_errors
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import reporting
from platt_jax.model import statistics
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.deferred import FlatRows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import ProblemInputs, fit_rows


class RowsThere:
    """What kinds of `SegmentRows` have in common whose rows are in arrays on an accelerator.

    Attributes:
        device: the device of the rows.
        sizes: (K,) numbers of rows, in the order of `planning.largest_first`.
        length: number of all rows.
    """

    device: jax.Device
    sizes: NDArray[Any]
    length: int
    dtype: np.dtype[Any]
    # JAX arrays: the segments end to end, rows added, and a block's length of others.
    _columns: Columns
    _starts: NDArray[Any]  # (K,) first rows

    @property
    def has_offset(self) -> bool:
        """See `GroupedRows`."""
        return self._columns.offset is not None

    def require_without(self, *names: str) -> None:
        """Refuses rows that have a column of one of these names."""
        for name in names:
            if getattr(self._columns, name) is not None:
                raise ValueError(f"scores: expected {type(self).__name__} without {name}")

    def take(self, problems: slice, part: slice, space: packing.Space) -> Columns:
        """See `GroupedRows`; arrays on the device."""
        first = self._starts[problems.start] + (part.start or 0)
        return self.all(slice(first, None), space)

    def all(self, part: slice, space: packing.Space) -> Columns:
        """See `GroupedRows`; arrays on the device."""
        with jax.enable_x64(True):
            some: Columns = _slice(self._columns, np.int64(part.start or 0), length=space.length)
        return some

    def padded(self, some: Ints, width: int) -> tuple[Columns, jax.Array]:
        """Rows of segments at these places, (k, width), and which are no padding.

        No segment is larger. Padding repeats the last row of a segment.
        """
        pad = partial(_padded, self._columns, self._starts[some], self.sizes[some], width=width)
        rows, inside = run_programs(pad, x64=True)
        return rows, inside

    def digest(self) -> bytes:
        """See `GroupedRows`."""
        whole = hashlib.blake2b(self.sizes.tobytes(), digest_size=16)
        for column in jax.tree.leaves(jax.device_get(self._columns)):
            whole.update(column[: self.length].data)
        return whole.digest()

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """See `GroupedRows`."""
        some: Columns = jax.device_get(self._every(_sample, most))
        return some.weighted_scores()

    def quartiles(self, most: int) -> NDArray[np.float64]:
        """The quartiles and the standard deviation of about `most` scores, (4,)."""
        found: NDArray[np.float64] = jax.device_get(self._every(_quartiles, most))
        return found

    def _every(self, program: Any, most: int) -> Any:
        """The result of a program of about `most` scores and weights, evenly from all."""
        length = padded_length(self.length)
        scores, _, weights, _ = self._columns
        step = max(1, length // most)
        work = partial(program, scores, weights, length=length, step=step)
        return run_programs(work, x64=True)

    def fit_as_one(self, given: ProblemInputs, context: Context) -> Fit:
        """The fit of all rows as one problem, on the host.

        Given arrays have leading axis (1,). The loss is NaN for more rows than a chunk has, for
        which it takes a pass.

        Raises:
            MemoryError: the device's memory is too small.
        """
        options = validation.options(context.options).with_tol(self.dtype)
        loss = self.length <= shapes.sizes().problem_rows
        left = packing.rows_left(np.int64(self.length), padded_length(self.length), np)
        given = jax.tree.map(lambda x: x[None], given)

        def fit() -> Fit:
            made = _fit_as_one(self._columns, left, given, options=options, loss=loss)
            found: Fit = accelerators.fetched_together(made)
            return found

        with memory_errors(), reporting(np.array([self.length]), context.stage) as advance:
            fit_of_all = run_programs(fit, x64=self.dtype == np.float64)
            advance(1)
        one: Fit = jax.tree.map(lambda x: x[0, 0, ...], fit_of_all)
        return one


def end_to_end(columns: Columns) -> Columns:
    """Columns (K, N), as `RowsThere` has them."""
    number = columns.scores.size
    more = padded_length(number) - number
    work = partial(_end_to_end, columns, more=more + room())
    made: Columns = run_programs(work, x64=True)
    return made


@partial(xla.jit, static_argnames=("width",))
def _padded(
    columns: Columns, starts: jax.Array, sizes: jax.Array, width: int
) -> tuple[Columns, jax.Array]:
    place = jnp.arange(width)[None]
    row = starts[:, None] + jnp.minimum(place, sizes[:, None] - 1)
    padded: Columns = jax.tree.map(lambda x: x[row], columns)
    return padded, place < sizes[:, None]


@partial(xla.jit, static_argnames=("more",))
def _end_to_end(columns: Columns, more: int) -> Columns:
    flat: Columns = jax.tree.map(lambda x: jnp.pad(x.reshape(-1), (0, more)), columns)
    return flat


@partial(xla.jit, static_argnames=("length",))
def _slice(rows: Columns, first: jax.Array, length: int) -> Columns:
    some: Columns = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, length), rows)
    return some


@partial(xla.jit, static_argnames=("options", "loss"), wide=True)
def _fit_as_one(
    rows: Columns, left: jax.Array, given: ProblemInputs, options: Options, loss: bool
) -> Fit:
    """The fit of rows as one problem, with leading axes [1, 1]; `left` as in `FlatRows`."""
    optimum = partial(search.optimum, loss=loss)
    fit = fit_rows(FlatRows(columns=rows, left=left), given, options, optimum)
    return fit if loss else replace(fit, nll=jnp.full_like(fit.nll, np.nan))


@partial(xla.jit, static_argnames=("length", "step"))
def _quartiles(scores: jax.Array, weights: jax.Array | None, length: int, step: int) -> jax.Array:
    if weights is None:
        weights = jnp.ones_like(scores)
    scores, weights = (x[:length:step].astype(np.float64) for x in (scores, weights))
    found: jax.Array = statistics.quartiles(scores, weights, jnp)
    return found


@partial(xla.jit, static_argnames=("length", "step"))
def _sample(scores: jax.Array, weights: jax.Array | None, length: int, step: int) -> Columns:
    """Columns of scores and weights alone."""
    some: Columns = jax.tree.map(
        lambda x: x[:length:step], Columns(scores, labels=None, weights=weights)
    )
    return some
