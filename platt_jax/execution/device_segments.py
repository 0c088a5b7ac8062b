"""Rows in flat arrays on an accelerator, grouped by segment there."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution import planning
from platt_jax.execution.caller import Caller
from platt_jax.execution.on_device import DeviceRows
from platt_jax.execution.oversized import is_out_of_memory
from platt_jax.execution.problems import Problems
from platt_jax.groups import Groups
from platt_jax.ids.factorize import factorize
from platt_jax.model import statistics
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns

_STEP_OF_ROWS, _STEP_OF_KEYS = 1 << 16, 1 << 10

# Of fewer rows a call saves less than a third of a second, and the first one compiles for longer.
_WORTH_SENDING = 1 << 24

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
        segments: Column,
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
        self._padded = shapes.few_lengths(len(scores), _STEP_OF_ROWS)
        rows = DeviceRows(scores, labels, weights, pos_label, offset, self._padded)
        if rows.doubtful_scores is not None:
            Caller().warn_once(rows.doubtful_scores)
        self.dtype = rows.dtype
        self._length = len(scores)
        self._rows = rows.columns
        name = columns.labelled("segments", segments)
        if accelerators.holds(segments := accelerators.taken(segments)):
            if segments.ndim != 1 or not jnp.issubdtype(segments.dtype, jnp.integer):
                raise validation.segment_codes_error(name, segments)
            self._require_length(len(segments))
            self.keys = self._grouped(segments)
        else:
            read = ids.read(segments)
            self._require_length(ids.length(read))
            numbered = factorize(read)
            self.keys = numbered.named(self._grouped(numbered.of(slice(None))))

    def _require_length(self, number: int) -> None:
        if number != self._length:
            raise ValueError(
                f"segments: expected one id per score {(self._length,)}, got shape ({number},)"
            )

    def _grouped(self, codes: Any) -> NDArray[Any]:
        """Groups the rows by their codes (N,), and returns the distinct codes, ascending."""
        # With 64-bit types, so that there may be more than 2^31 rows, and codes are not cut.
        keys: NDArray[Any] = run_programs(partial(self._group, codes), x64=True)
        return keys

    def _group(self, codes: Any) -> NDArray[Any]:
        kind = np.promote_types(np.int32, np.min_scalar_type(-self._padded))
        codes, order = _followed_by_largest(jnp.asarray(codes), length=self._padded), None
        if not jax.device_get(_are_grouped(codes)):
            codes, order = _sorted(codes, kind=kind)
        length = kind.type(self._length)
        number, among = _numbered(codes, length, kind=kind)
        count = int(jax.device_get(among))
        first, distinct = _firsts(codes, number, most=shapes.few_lengths(count, _STEP_OF_KEYS))
        starts, keys = (x[:count] for x in jax.device_get((first, distinct)))
        sizes = np.diff(starts, append=self._length)
        self.largest_first = planning.largest_first(sizes)
        self.sizes = sizes[self.largest_first]
        self._starts = Groups(self.sizes).starts
        to = np.zeros(first.shape, kind)
        to[self.largest_first] = self._starts
        self._rows = _laid_out(self._rows, order, number, first, to, length)
        return keys

    @property
    def problems(self) -> Problems:
        """A problem per segment."""
        return Problems(self.sizes, self._take, self.dtype, self.largest_first)

    @property
    def pooled(self) -> Problems:
        """All rows as one problem."""
        return Problems(np.array([self._length]), self._take, self.dtype)

    def _take(self, problems: slice, part: slice, space: packing.Space) -> Any:
        """The rows of some segments, or a part of the rows of one, with the space's length.

        What follows them is undefined.
        """
        first = self._starts[problems.start] + (part.start or 0)
        with jax.enable_x64(True):
            return _slice(self._rows, np.int64(first), length=space.length)

    def quartiles(self, most: int) -> NDArray[np.float64]:
        """The quartiles and the standard deviation of about `most` scores, (4,)."""
        step, (scores, _, weights, _) = max(1, self._padded // most), self._rows
        work = partial(_quartiles, scores, weights, length=self._padded, step=step)
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
    kinds = _FLOATS, _NUMBERS, _INTEGERS, _FLOATS, _FLOATS
    columns = scores, labels, segments, weights, offset
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
            f, y, ids, w, o = jax.device_put(
                [None if x is None else np.asarray(x) for x in columns]
            )
        return DeviceSegmentRows(f, y, ids, w, offset=o)
    except ValueError:
        return None
    except jax.errors.JaxRuntimeError as error:
        if is_out_of_memory(error):
            return None
        raise


def _is_plain(values: Any, kinds: str) -> bool:
    """Whether this is a flat array of numbers that NumPy takes without a copy."""
    if isinstance(values, np.ma.MaskedArray | jax.core.Tracer):
        return False
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or not dtype.isnative or getattr(values, "ndim", 0) != 1:
        return False
    return dtype.kind in kinds and (kinds != _FLOATS or dtype.itemsize in (4, 8))


@partial(xla.jit, static_argnames=("length",))
def _followed_by_largest(codes: jax.Array, length: int) -> jax.Array:
    """The codes with the largest of their dtype added, which a stable sort leaves at the end."""
    largest = jnp.iinfo(codes.dtype).max
    return jnp.pad(codes, (0, length - len(codes)), constant_values=largest)


@xla.jit
def _are_grouped(codes: jax.Array) -> jax.Array:
    return jnp.all(codes[1:] >= codes[:-1])


@partial(xla.jit, static_argnames=("kind",))
def _sorted(codes: jax.Array, kind: np.dtype[Any]) -> tuple[jax.Array, jax.Array]:
    """The codes, ascending, and the row of each, in the order of rows among equal codes."""
    ascending, order = lax.sort((codes, lax.iota(kind, len(codes))), num_keys=1, is_stable=True)
    return ascending, order


@partial(xla.jit, static_argnames=("kind",))
def _numbered(
    codes: jax.Array, length: jax.Array, kind: np.dtype[Any]
) -> tuple[jax.Array, jax.Array]:
    """The number of each ascending code among the distinct codes, and how many the rows have.

    Codes were added behind the codes of the `length` rows.
    """
    steps = codes[1:] != codes[:-1]
    number = jnp.cumsum(jnp.pad(steps, (1, 0)), dtype=kind)
    return number, number[length - 1] + 1


@partial(xla.jit, static_argnames=("most",))
def _firsts(codes: jax.Array, number: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """The first place of each of the distinct codes, and the code; undefined beyond their count."""
    first = jnp.searchsorted(number, jnp.arange(most, dtype=number.dtype)).astype(number.dtype)
    return first, codes[first]


@xla.jit
def _laid_out(
    rows: Columns,
    order: jax.Array | None,
    number: jax.Array,
    first: jax.Array,
    to: jax.Array,
    length: jax.Array,
) -> Columns:
    """The rows in the order of the layout, followed by those added and a block's length of others.

    Args:
        rows: the columns, in the order of the user's.
        order: the row at each place of the ascending codes; None for the same order.
        number: the number of the distinct code at each place.
        first: the first place of each distinct code.
        to: the first place of each distinct code in the layout.
        length: the number of rows, without those added.
    """
    place = jnp.arange(len(number), dtype=number.dtype)
    there = jnp.where(place < length, (to - first)[number] + place, place)
    source = place if order is None else order
    row = jnp.zeros_like(place).at[there].set(source, unique_indices=True)
    # Any requested slice exists: no chunk and no block is longer than a block.
    room = shapes.sizes().block_rows
    laid: Columns = jax.tree.map(lambda x: jnp.pad(x[row], (0, room)), rows)
    return laid


@partial(xla.jit, static_argnames=("length",))
def _slice(rows: Columns, first: jax.Array, length: int) -> Columns:
    some: Columns = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, length), rows)
    return some


@partial(xla.jit, static_argnames=("length", "step"))
def _quartiles(scores: jax.Array, weights: jax.Array | None, length: int, step: int) -> jax.Array:
    if weights is None:
        weights = jnp.ones_like(scores)
    scores, weights = (x[:length:step].astype(np.float64) for x in (scores, weights))
    found: jax.Array = statistics.quartiles(scores, weights, jnp)
    return found
