"""Probabilities of rows in arrays on an accelerator: computed there, as JAX arrays."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.ids.indexing import indexer
from platt_jax.results.averages import mean_where_rows_are
from platt_jax.results.probabilities import expit, log_expit, normalized


def proba_by_segment(
    keys: NDArray[Any],
    parameters: tuple[NDArray[Any], NDArray[Any]],
    normal: NDArray[Any] | None,
    scores: Column,
    segments: Column,
    offset: Column | None = None,
) -> jax.Array:
    """`SegmentCalibrator.predict_proba` for scores (N,) on an accelerator.

    `parameters` are A and B of the segments, and last of the fallback, each (K + 1,). `normal`
    (K + 1, 5), as from `SegmentCalibrator.predictive`, replaces them unless it is None. Segments
    are integers on the device, or any ids on the host, or one id.
    """
    scores = accelerators.taken(scores)
    validation.require_flat(scores, "scores")
    dtype = _result_dtype(scores, parameters[0])
    offset = _offset(offset, scores)

    def run() -> jax.Array:
        places = _places(keys, segments, len(scores))
        if normal is not None:
            return _mean(scores, places, normal, offset, dtype=dtype)
        A, B = (x.astype(dtype) for x in parameters)
        return _proba(scores, places, A, B, offset)

    proba: jax.Array = run_programs(run, x64=True)
    return proba


def proba_by_class(
    A: NDArray[Any], B: NDArray[Any], scores: Any, normalize: bool, offset: Column | None = None
) -> jax.Array:
    """`OneVsRestCalibrator.predict_proba` for scores (N, C) on an accelerator."""
    dtype = _result_dtype(scores, A)
    own = scores, A.astype(dtype), B.astype(dtype), _offset(offset, scores)
    work = partial(_class_probabilities, *own, normalize=normalize)
    proba: jax.Array = run_programs(work, x64=True)
    return proba


def _result_dtype(scores: jax.Array, A: NDArray[Any]) -> np.dtype[Any]:
    """The dtype of probabilities by JAX's rules. float64 scores always get float64."""
    if not (jnp.issubdtype(scores.dtype, jnp.number) or scores.dtype == bool):
        raise ValueError(f"scores: expected numbers, got dtype {scores.dtype}")
    if scores.dtype == np.float64:
        return np.dtype(np.float64)
    return np.dtype(jax.dtypes.canonicalize_dtype(np.result_type(scores.dtype, A.dtype)))


def _offset(offset: Column | None, scores: jax.Array) -> Any:
    """Offsets of any container in the shape of the scores, or None."""
    offset = accelerators.taken(offset)
    if offset is not None and not accelerators.holds(offset):
        offset = validation.floating(offset, "offset")
    return validation.broadcast(offset, scores.shape, "offset")


def _places(keys: NDArray[Any], segments: Column, rows: int) -> Any:
    """The place of each row's segment among the keys, or -1; (N,) int32."""
    name = columns.labelled("segments", segments)
    segments = accelerators.taken(segments)
    one = accelerators.holds(segments) and segments.ndim == 0
    if one or not accelerators.holds(segments):
        read = ids.read_like(keys, jax.device_get(segments) if one else segments, rows)
        ids.require_length(ids.length(read), rows, name)
        return indexer(keys, read, name)(slice(None)).astype(np.int32)
    if segments.ndim != 1 or not jnp.issubdtype(segments.dtype, jnp.integer):
        raise validation.segment_codes_error(name, segments)
    ids.require_length(len(segments), rows, name)
    if keys.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: expected ids of the kind of {keys.dtype} keys, got {segments.dtype} on a "
            "device"
        )
    ends = np.iinfo(segments.dtype)
    possible = (keys >= ends.min) & (keys <= ends.max)
    below = int(np.count_nonzero(keys < ends.min))
    return _found(keys[possible].astype(segments.dtype), segments, np.int32(below))


@xla.jit
def _found(keys: jax.Array, segments: jax.Array, below: jax.Array) -> jax.Array:
    """The place of each segment among all keys, or -1; `below` other keys come first."""
    if not len(keys):
        return jnp.full(segments.shape, -1, jnp.int32)
    found = jnp.minimum(jnp.searchsorted(keys, segments), len(keys) - 1).astype(jnp.int32)
    return jnp.where(keys[found] == segments, found + below, -1)


@partial(xla.jit, wide=True)
def _proba(
    scores: jax.Array, places: jax.Array, A: jax.Array, B: jax.Array, offset: jax.Array | None
) -> jax.Array:
    log_odds = -(A[places] * scores.astype(A.dtype) + B[places])
    if offset is not None:
        log_odds += offset.astype(A.dtype)
    proba: jax.Array = expit(log_odds)
    return proba


@partial(xla.jit, static_argnames=("dtype",), wide=True)
def _mean(
    scores: jax.Array,
    places: jax.Array,
    normal: jax.Array,
    offset: jax.Array | None,
    dtype: np.dtype[Any],
) -> jax.Array:
    row_parameters = normal[places]
    if offset is not None:
        row_parameters = row_parameters.at[:, 1].add(-offset.astype(normal.dtype))
    return mean_where_rows_are(scores.astype(normal.dtype), row_parameters).astype(dtype)


@partial(xla.jit, static_argnames=("normalize",), wide=True)
def _class_probabilities(
    scores: jax.Array, A: jax.Array, B: jax.Array, offset: jax.Array | None, normalize: bool
) -> jax.Array:
    logit = -(A[None] * scores.astype(A.dtype) + B[None])
    if offset is not None:
        logit += offset.astype(A.dtype)
    proba: jax.Array = normalized(log_expit(logit), jnp.isfinite(A)) if normalize else expit(logit)
    return proba
