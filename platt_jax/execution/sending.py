"""Rows in NumPy arrays that are sent to a GPU as they are, and grouped by segment there.

On the host grouping takes several times as long as all else.
"""

from typing import Any

import jax
import numpy as np

from platt_jax.backend import xla
from platt_jax.columns import Column
from platt_jax.execution.device_segments import DeviceSegmentRows
from platt_jax.execution.oversized import is_out_of_memory
from platt_jax.passes import shapes

# Of fewer rows a call saves less than a third of a second, and the first one compiles for longer.
_WORTH_SENDING = 1 << 24

# Bytes on the device for each row while rows are grouped: float64 scores, weights and offset.
_BYTES_A_ROW = 100

# Names of JAX's platforms. On other accelerators nothing was measured.
_GPUS = "gpu", "cuda", "rocm"

# Kinds of NumPy's dtypes.
_FLOATS, _INTEGERS, _NUMBERS = "f", "iu", "biuf"


def sent_rows(
    scores: Column, labels: Column, segments: Column, weights: Column, offset: Column
) -> DeviceSegmentRows | None:
    """The rows on JAX's default device; None if they are better read on the host.

    These are few rows, arrays of other kinds, and rows with an error, which the host describes.

    Args:
        scores: as for `fit_segments`, as all others.
        labels: labels.
        segments: ids.
        weights: weights or None.
        offset: offset or None.
    """
    if not _has_gpu():
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


def _has_gpu() -> bool:
    return xla.platform() in _GPUS


def _is_plain(values: Any, kinds: str) -> bool:
    """Whether this is a flat array of numbers that NumPy takes without a copy."""
    if isinstance(values, np.ma.MaskedArray | jax.core.Tracer):
        return False
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, np.dtype) or not dtype.isnative or getattr(values, "ndim", 0) != 1:
        return False
    return dtype.kind in kinds and (kinds != _FLOATS or dtype.itemsize in (4, 8))
