"""Rows in NumPy arrays that are sent to a GPU as they are, and grouped by segment there."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.device_grouping import group_ids
from platt_jax.execution.oversized import is_out_of_memory
from platt_jax.execution.segment_rows import DeviceSegmentRows
from platt_jax.passes import shapes

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
    usable = [x is None or _is_plain(x, kind) for x, kind in zip(columns, kinds, strict=True)]
    if not all(usable) or scores is None or labels is None or segments is None:
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
