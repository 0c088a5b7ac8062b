"""Rows in flat arrays on an accelerator, the rows of each segment end to end."""

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, Self

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
from platt_jax.groups import Groups
from platt_jax.ids.padding import joined, similar
from platt_jax.model import statistics
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.deferred import FlatRows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import ProblemInputs, fit_rows

# Places of padded rows for which a function is computed at once.
_AT_ONCE = 1 << 24


class DeviceGroupedRows:
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

    @property
    def groups(self) -> Groups:
        """The segments, as they lie end to end."""
        return Groups(self.sizes)

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of what is computed of each segment."""
        return self.sizes.shape

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
            rows: Columns = _slice(self._columns, np.int64(part.start or 0), length=space.length)
        return rows

    def padded(self, some: Ints, width: int) -> tuple[Columns, jax.Array]:
        """Rows of segments at these places, (k, width), and which are no padding.

        No segment is larger. Padding repeats the last row of a segment.
        """
        pad = partial(_padded, self._columns, self._starts[some], self.sizes[some], width=width)
        rows, inside = run_programs(pad, x64=True)
        return rows, inside

    def with_columns(
        self, function: Callable[[Columns, list[jax.Array]], Columns], *numbers: Any
    ) -> Self:
        """The rows with other columns, of float64, in the same layout.

        Args:
            function: of a module, so that its program is compiled once. Takes columns (N,), and the
                numbers (N,) of the rows' segments.
            numbers: (K,) each, of the segments in the order of the layout.
        """
        values = list(map(np.float64, numbers))
        work = partial(_other_columns, self._columns, self._starts, values, function=function)
        clone = copy.copy(self)
        clone._columns, clone.dtype = run_programs(work, x64=True), np.dtype(np.float64)
        return clone

    def as_one(self) -> Self:
        """All rows as one segment, for `map`."""
        clone = copy.copy(self)
        clone.sizes, clone._starts = np.array([self.length]), np.zeros(1, np.int64)
        return clone

    def by_size(
        self, function: Callable[..., Any], *numbers: Any, some: Ints | None = None
    ) -> Iterator[tuple[Ints, Any]]:
        """The results of a function of some segments, padded to one shape with similar ones.

        Args:
            function: as in `with_columns`, of columns (k, width), of float64 but for the labels;
                which rows are no padding; and numbers (k, 1, ...). Its results have leading axis k.
            numbers: (J, ...) each, of the segments.
            some: (J,) places of segments in the layout; None for all.

        Yields:
            The numbers of segments, counted among `some`, and their results as NumPy arrays.
        """
        for which, _, results in self._by_size(function, *numbers, some=some):
            cut = itemgetter(slice(len(which)))
            yield which, jax.tree.map(cut, jax.device_get(results))

    def by_row(self, function: Callable[..., Any], *numbers: Any) -> Any:
        """Results for each row, arrays of the layout's length on the device.

        Args:
            function: as in `by_size`, but for its results (k, width).
            numbers: as in `by_size`, of all segments.
        """
        flat, length = None, padded_length(self.length)
        for which, padded, block in self._by_size(function, *numbers):
            repeated = np.arange(len(padded)) >= len(which)
            ranges = self._starts[padded], np.where(repeated, 0, self.sizes[padded])
            flat = run_programs(partial(_placed, flat, block, *ranges, length=length), x64=True)
        return flat

    def _by_size(
        self, function: Callable[..., Any], *numbers: Any, some: Ints | None = None
    ) -> Iterator[tuple[Ints, Ints, Any]]:
        """`by_size`, with the places of padded segments, and all their results on the device."""
        some = np.arange(len(self.sizes)) if some is None else some
        for which, width in similar(self.sizes[some], _AT_ONCE):
            # One program serves several numbers of segments.
            extra = shapes.few_lengths(len(which), 1) - len(which)
            padded = np.append(which, np.full(extra, which[-1]))
            rows = self._columns, self._starts[some[padded]], self.sizes[some[padded]]
            values = [np.asarray(x)[padded] for x in numbers]
            work = partial(_of_padded, *rows, values, width=width, function=function)
            yield which, some[padded], run_programs(work, x64=True)

    def map(self, function: Callable[..., Any], *numbers: Any, some: Ints | None = None) -> Any:
        """The results as by `by_size`, of all these segments together."""
        return joined(self.by_size(function, *numbers, some=some))

    def taken(self, where: Ints, space: packing.Space) -> Columns:
        """The rows at these places of the layout; arrays on the device, as by `take`."""
        where = np.append(where, np.zeros(space.length - len(where), np.int64))
        rows: Columns = run_programs(partial(_taken, self._columns, where), x64=True)
        return rows

    def digest(self) -> bytes:
        """See `GroupedRows`."""
        hasher = hashlib.blake2b(self.sizes.tobytes(), digest_size=16)
        for column in jax.tree.leaves(jax.device_get(self._columns)):
            hasher.update(column[: self.length].data)
        return hasher.digest()

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """See `GroupedRows`."""
        sample: Columns = jax.device_get(self._every(_sample, most))
        return sample.weighted_scores()

    def quartiles(self, most: int) -> NDArray[np.float64]:
        """The quartiles and the standard deviation of about `most` scores, (4,)."""
        quartiles: NDArray[np.float64] = jax.device_get(self._every(_quartiles, most))
        return quartiles

    def _every(self, program: Any, most: int) -> Any:
        """The result of a program of about `most` rows without labels, evenly from all."""
        length = padded_length(self.length)
        step = max(1, length // most)
        work = partial(program, self._columns._replace(labels=None), length=length, step=step)
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
        rows_left = packing.rows_left(np.int64(self.length), padded_length(self.length), np)
        given = jax.tree.map(lambda x: x[None], given)

        def fit() -> Fit:
            device_fit = _fit_as_one(self._columns, rows_left, given, options=options, loss=loss)
            host_fit: Fit = accelerators.fetched_together(device_fit)
            return host_fit

        with memory_errors(), reporting(np.array([self.length]), context.stage) as advance:
            fit_of_all = run_programs(fit, x64=self.dtype == np.float64)
            advance(1)
        result: Fit = jax.tree.map(lambda x: x[0, 0, ...], fit_of_all)
        return result


def end_to_end(columns: Columns) -> Columns:
    """Columns (K, N), as `DeviceGroupedRows` has them."""
    number = columns.scores.size
    padding = padded_length(number) - number
    work = partial(_end_to_end, columns, more=padding + room())
    flat: Columns = run_programs(work, x64=True)
    return flat


def _pad(
    columns: Columns, starts: jax.Array, sizes: jax.Array, width: int
) -> tuple[Columns, jax.Array]:
    column = jnp.arange(width)[None]
    row = starts[:, None] + jnp.minimum(column, sizes[:, None] - 1)
    padded: Columns = jax.tree.map(lambda x: x[row], columns)
    return padded, column < sizes[:, None]


_padded = xla.jit(_pad, static_argnames=("width",))


@partial(xla.jit, static_argnames=("width", "function"), wide=True)
def _of_padded(
    columns: Columns,
    starts: jax.Array,
    sizes: jax.Array,
    numbers: list[jax.Array],
    width: int,
    function: Callable[..., Any],
) -> Any:
    rows, inside = _pad(columns, starts, sizes, width)
    return function(wide(rows), inside, *(x[:, None] for x in numbers))


@partial(xla.jit, static_argnames=("length",))
def _placed(whole: Any, made: Any, starts: jax.Array, sizes: jax.Array, length: int) -> Any:
    """Flat results with some segments' (k, width) in their places; `whole` is None for none yet."""
    if whole is None:
        whole = jax.tree.map(lambda x: jnp.zeros(length, x.dtype), made)

    def place(flat: jax.Array, padded: jax.Array) -> jax.Array:
        column = jnp.arange(padded.shape[1])[None]
        none = length + jnp.arange(padded.size).reshape(padded.shape)
        row = jnp.where(column < sizes[:, None], starts[:, None] + column, none)
        return flat.at[row].set(padded, mode="drop", unique_indices=True)

    return jax.tree.map(place, whole, made)


@xla.jit
def _taken(columns: Columns, where: jax.Array) -> Columns:
    rows: Columns = jax.tree.map(lambda x: x[where], columns)
    return rows


@partial(xla.jit, static_argnames=("function",), wide=True)
def _other_columns(
    columns: Columns, starts: jax.Array, numbers: list[jax.Array], function: Callable[..., Columns]
) -> Columns:
    kind = np.promote_types(np.int32, np.min_scalar_type(-len(columns.scores)))
    first = jnp.zeros(columns.scores.shape, kind).at[starts].set(1, unique_indices=True)
    owner = jnp.cumsum(first, dtype=kind) - 1
    by_row = [x.at[owner].get(mode="promise_in_bounds") for x in numbers]
    return function(wide(columns), by_row)


def wide(rows: Columns) -> Columns:
    """The columns in float64, but for the labels."""
    scores, labels, *weight_columns = rows
    f, w, o = (x if x is None else x.astype(np.float64) for x in (scores, *weight_columns))
    return Columns(f, labels, w, o)


@partial(xla.jit, static_argnames=("more",))
def _end_to_end(columns: Columns, more: int) -> Columns:
    flat: Columns = jax.tree.map(lambda x: jnp.pad(x.reshape(-1), (0, more)), columns)
    return flat


@partial(xla.jit, static_argnames=("length",))
def _slice(rows: Columns, first: jax.Array, length: int) -> Columns:
    block: Columns = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, length), rows)
    return block


@partial(xla.jit, static_argnames=("options", "loss"), wide=True)
def _fit_as_one(
    rows: Columns, left: jax.Array, given: ProblemInputs, options: Options, loss: bool
) -> Fit:
    """The fit of rows as one problem, with leading axes [1, 1]; `left` as in `FlatRows`."""
    optimum = partial(search.optimum, loss=loss)
    fit = fit_rows(FlatRows(columns=rows, left=left), given, options, optimum)
    return fit if loss else replace(fit, nll=jnp.full_like(fit.nll, np.nan))


@partial(xla.jit, static_argnames=("length", "step"))
def _quartiles(rows: Columns, length: int, step: int) -> jax.Array:
    scores, _, weights, offset = rows
    weights = jnp.ones_like(scores) if weights is None else weights
    if offset is not None:
        weights = jnp.where(jnp.isfinite(offset), weights, 0)
    scores, weights = (x[:length:step].astype(np.float64) for x in (scores, weights))
    quartiles: jax.Array = statistics.quartiles(scores, weights, jnp)
    return quartiles


@partial(xla.jit, static_argnames=("length", "step"))
def _sample(rows: Columns, length: int, step: int) -> Columns:
    sample: Columns = jax.tree.map(lambda x: x[:length:step], rows)
    return sample
