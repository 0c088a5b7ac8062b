"""Rows in flat arrays on an accelerator, grouped by segment there."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.device_grouping import DeviceGroups, group_ids
from platt_jax.execution.on_device import DeviceRows, require_rows
from platt_jax.execution.oversized import is_out_of_memory, memory_errors
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.progress import reporting
from platt_jax.model import statistics
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.deferred import FlatRows
from platt_jax.results.fit import Fit
from platt_jax.solver import search
from platt_jax.solver.solution import ProblemInputs, fit_rows

# Of fewer rows a call saves less than a third of a second, and the first one compiles for longer.
_WORTH_SENDING = 1 << 24

# Rows of a column in each piece that is sent.
_PIECE = 1 << 23

# Bytes on the device for each row while rows are grouped: float64 scores, weights and offset.
_BYTES_A_ROW = 100

# Names of JAX's platforms. On other accelerators nothing was measured.
_GPUS = "gpu", "cuda", "rocm"

# Kinds of NumPy's dtypes.
_FLOATS, _INTEGERS, _NUMBERS = "f", "iu", "biuf"


class DeviceSegmentRows:
    """The rows of every segment end to end, with segments in the order of `planning.largest_first`.

    Scores are on an accelerator. Ids are integers there, or any ids on the host. The other
    arguments are as in `SegmentRows`.

    Attributes:
        keys: (K,) the segments, ascending or in order of appearance; on the host.
        dtype: the dtype of the scores and of the fits, float32 or float64.
        device: the device of the rows.
    """

    def __init__(
        self,
        scores: Column,
        labels: Column,
        segments: Column | DeviceGroups,
        weights: Column | None = None,
        pos_label: Any = None,
        offset: Column | None = None,
    ) -> None:
        scores = accelerators.taken(scores)
        validation.require_flat(scores, "scores")
        self.device, *others = accelerators.devices(scores)
        if others:
            raise ValueError(
                f"scores: expected an array on one device, got one on {1 + len(others)}; "
                "pass np.asarray(scores), and the devices as mesh"
            )
        require_rows(scores)
        if not isinstance(segments, DeviceGroups):
            segments = group_ids(segments, len(scores))
        rows = DeviceRows(scores, labels, weights, pos_label, offset, segments.padded)
        if rows.doubtful_scores is not None:
            Caller().warn_once(rows.doubtful_scores)
        self.dtype = rows.dtype
        self.keys = segments.keys
        self._rows = segments.laid_out(rows.columns)
        self._groups = segments._replace(places=())

    @property
    def problems(self) -> Problems:
        """A problem per segment."""
        groups = self._groups
        return Problems(groups.sizes, self._take, self.dtype, groups.largest_first)

    def _take(self, problems: slice, part: slice, space: packing.Space) -> Any:
        """The rows of some segments, or a part of the rows of one, with the space's length.

        What follows them is undefined.
        """
        first = self._groups.starts[problems.start] + (part.start or 0)
        with jax.enable_x64(True):
            return _slice(self._rows, np.int64(first), length=space.length)

    def fit_as_one(self, given: ProblemInputs, context: Context) -> Fit:
        """The fit of all rows as one problem, on the host.

        Given arrays have leading axis (1,). The loss is NaN for more rows than a chunk has, for
        which it takes a pass.

        Raises:
            MemoryError: the device's memory is too small.
        """
        options = validation.options(context.options).with_tol(self.dtype)
        loss = self._groups.length <= shapes.sizes().problem_rows
        left = packing.rows_left(np.int64(self._groups.length), self._groups.padded, np)
        given = jax.tree.map(lambda x: x[None], given)

        def fit() -> Fit:
            made = _fit_as_one(self._rows, left, given, options=options, loss=loss)
            found: Fit = accelerators.fetched_together(made)
            return found

        with memory_errors(), reporting(np.array([self._groups.length]), context.stage) as advance:
            fit_of_all = run_programs(fit, x64=self.dtype == np.float64)
            advance(1)
        one: Fit = jax.tree.map(lambda x: x[0, 0, ...], fit_of_all)
        return one

    def quartiles(self, most: int) -> NDArray[np.float64]:
        """The quartiles and the standard deviation of about `most` scores, (4,)."""
        step, (scores, _, weights, _) = max(1, self._groups.padded // most), self._rows
        work = partial(_quartiles, scores, weights, length=self._groups.padded, step=step)
        found: NDArray[np.float64] = jax.device_get(run_programs(work, x64=True))
        return found


def sent_rows(
    scores: Column, labels: Column, segments: Column, weights: Column, offset: Column
) -> DeviceSegmentRows | None:
    """Rows in NumPy arrays as they are, grouped on JAX's default device.

    On the host grouping takes several times as long as all else. None if the host better reads
    the rows: few rows, arrays of other kinds, and rows with an error, which the host describes.
    """
    if xla.platform() not in _GPUS:
        return None
    kinds = _INTEGERS, _FLOATS, _NUMBERS, _FLOATS, _FLOATS
    columns = segments, scores, labels, weights, offset
    taken = [x is None or _is_plain(x, kind) for x, kind in zip(columns, kinds, strict=True)]
    if not all(taken) or scores is None or labels is None or segments is None:
        return None
    rows, memory = len(scores), shapes.memory()
    if rows < _WORTH_SENDING or any(x is not None and len(x) != rows for x in columns):
        return None
    if memory is not None and rows * _BYTES_A_ROW > memory // 2:
        return None
    try:
        with jax.enable_x64(True):
            sent = jax.device_put(list(map(_pieces, columns)))
        # The first to arrive is grouped while others do. What is popped is freed once it is joined.
        groups = group_ids(_joined(sent.pop(0)), rows)
        f, y, w, o = (_joined(sent.pop(0)) for _ in range(len(sent)))
        return DeviceSegmentRows(f, y, groups, w, offset=o)
    except ValueError:
        return None
    except jax.errors.JaxRuntimeError as error:
        if is_out_of_memory(error):
            return None
        raise


def _pieces(column: Column | None) -> list[NDArray[Any]]:
    """A column in pieces; none for None.

    JAX copies each array to pinned memory on one thread, at a small part of the speed of the bus,
    and several arrays on several threads.
    """
    x = np.empty(0) if column is None else np.asarray(column)
    return [x[first : first + _PIECE] for first in range(0, len(x), _PIECE)]


def _joined(pieces: list[jax.Array]) -> jax.Array | None:
    """The column from its pieces, once they have arrived."""
    if not pieces:
        return None
    joined: jax.Array = run_programs(partial(_end_to_end, pieces), x64=True)
    return joined


def _is_plain(values: Any, kinds: str) -> bool:
    """Whether this is a flat array of numbers that NumPy takes without a copy."""
    if isinstance(values, np.ma.MaskedArray | jax.core.Tracer):
        return False
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or not dtype.isnative or getattr(values, "ndim", 0) != 1:
        return False
    return dtype.kind in kinds and (kinds != _FLOATS or dtype.itemsize in (4, 8))


@xla.jit
def _end_to_end(pieces: list[jax.Array]) -> jax.Array:
    return jnp.concatenate(pieces)


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
