"""Probabilities and bands of rows in arrays on an accelerator: computed there, as JAX arrays."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, ids, validation
from platt_jax.arrays import Ints
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.ids.indexing import indexer
from platt_jax.results.averages import mean_where_rows_are
from platt_jax.results.probabilities import (
    band,
    expit,
    log_expit,
    log_odds,
    nearer_scores,
    normalized,
    variance_of_logit,
    with_offset,
)

# Ids that may lie between the first key and the last for a table by id: a GPU's cache has it.
_TABLE = 1 << 22


def proba_by_segment(
    keys: NDArray[Any],
    A: Any,
    curves: NDArray[Any],
    scores: Column,
    segments: Column,
    offset: Column | None = None,
) -> jax.Array:
    """`SegmentCalibrator.predict_proba` for scores (N,) on an accelerator.

    `curves` (K + 1, 2) are A and B of the segments (K,), whose dtype counts, and last of the
    fallback; or (K + 1, 5) as from `SegmentCalibrator.predictive`. Segments are integers on the
    device, or any ids on the host, or one id.
    """
    scores = accelerators.taken(scores)
    dtype = _result_dtype(scores, A)
    if curves.shape[1] == 2:
        return _by_segment(_proba, keys, curves.astype(dtype), scores, segments, offset)
    return _by_segment(partial(_mean, dtype=dtype), keys, curves, scores, segments, offset)


def band_by_segment(
    keys: NDArray[Any],
    A: Any,
    normal: NDArray[Any],
    critical: float,
    scores: Column,
    segments: Column,
    offset: Column | None = None,
) -> tuple[jax.Array, jax.Array]:
    """`SegmentCalibrator.band` for scores (N,) on an accelerator, as `proba_by_segment`.

    `normal` (K + 1, 5) are means and covariances of (A, B), last of unseen segments.
    """
    scores = accelerators.taken(scores)
    program = partial(_band, critical=critical, dtype=_result_dtype(scores, A))
    lower, upper = _by_segment(program, keys, normal, scores, segments, offset)
    return lower, upper


def _by_segment(
    program: Callable[..., Any],
    keys: NDArray[Any],
    curves: NDArray[Any],
    scores: Any,
    segments: Column,
    offset: Column | None,
) -> Any:
    """Runs a program of rows and of the numbers of segments, last of unseen segments."""
    validation.require_flat(scores, "scores")
    offset = _offset(offset, scores)
    segments, keys, which = _ids(keys, segments, len(scores))
    arguments = scores, segments, keys, curves[which], offset
    work = partial(program, *arguments, length=_table_length(keys))
    return run_programs(work, x64=True)


def proba_by_class(
    A: NDArray[Any], B: NDArray[Any], scores: Any, normalize: bool, offset: Column | None = None
) -> jax.Array:
    """`OneVsRestCalibrator.predict_proba` for scores (N, C) on an accelerator."""
    dtype = _result_dtype(scores, A)
    arguments = scores, A.astype(dtype), B.astype(dtype), _offset(offset, scores)
    work = partial(_class_probabilities, *arguments, normalize=normalize)
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


def _ids(
    keys: NDArray[Any], segments: Column, rows: int, name: str = "segments"
) -> tuple[Any, NDArray[Any], Ints]:
    """Integer ids of the rows, the keys among them in their dtype, ascending, and which keys.

    Last in `which` is -1, for the fallback. Ids on the host are replaced by places of keys.
    """
    name = columns.labelled(name, segments)
    segments = accelerators.taken(segments)
    is_scalar = accelerators.holds(segments) and segments.ndim == 0
    if is_scalar or not accelerators.holds(segments):
        row_ids = ids.read_like(keys, jax.device_get(segments) if is_scalar else segments, rows)
        ids.require_length(ids.length(row_ids), rows, name)
        places = indexer(keys, row_ids, name)(slice(None)).astype(np.int32)
        return places, np.arange(len(keys), dtype=np.int32), np.arange(len(keys) + 1)
    if segments.ndim != 1 or not jnp.issubdtype(segments.dtype, jnp.integer):
        raise validation.segment_codes_error(name, segments)
    ids.require_length(len(segments), rows, name)
    if keys.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: expected ids of the kind of {keys.dtype} keys, got {segments.dtype} on a "
            "device"
        )
    limits = np.iinfo(segments.dtype)
    possible = np.flatnonzero((keys >= limits.min) & (keys <= limits.max))
    return segments, keys[possible].astype(segments.dtype), np.append(possible, -1)


def places_there(keys: NDArray[Any], segments: jax.Array, name: str) -> jax.Array:
    """(N,) the place among ascending keys of each id on an accelerator, or their number."""
    segments, device_keys, which = _ids(keys, segments, len(segments), name)
    which[-1] = len(keys)
    work = partial(_key_places, segments, device_keys, which, length=_table_length(device_keys))
    places: jax.Array = run_programs(work, x64=True)
    return places


def _table_length(keys: NDArray[Any]) -> int:
    """Entries of a table from the first key to the last and one more; 0 if that were too long.

    Powers of two, so that there are few programs.
    """
    span = int(keys[-1]) - int(keys[0]) + 1 if len(keys) else 0
    return 1 << span.bit_length() if span <= max(4 * len(keys), _TABLE) else 0


def _row_curves(segments: jax.Array, keys: jax.Array, curves: jax.Array, length: int) -> jax.Array:
    """(N, P) the numbers of each row's segment, or the last of `curves` if it has no key.

    By one look into a table by id, or by a search among the keys if `length` is 0.
    """
    if not length:
        return curves.at[_places(segments, keys)].get(mode="promise_in_bounds")
    low = keys[0] if len(keys) else 0

    def entries(values: jax.Array) -> jax.Array:
        # Differences may leave the dtype, but not the unsigned one: below `low` they are large.
        unsigned = np.dtype(f"uint{8 * values.dtype.itemsize}")
        distance = (values - low).astype(unsigned).astype(np.promote_types(unsigned, np.uint32))
        return jnp.minimum(distance, length - 1).astype(np.int32)

    unseen = jnp.broadcast_to(curves[-1], (length, curves.shape[1]))
    table = unseen.at[entries(keys)].set(
        curves[:-1], mode="promise_in_bounds", unique_indices=True, indices_are_sorted=True
    )
    return table.at[entries(segments)].get(mode="promise_in_bounds")


def _places(segments: jax.Array, keys: jax.Array) -> jax.Array:
    """(N,) the place of each row's segment among ascending keys, or their number.

    By bisection without a loop, which would return to the host, and with one number a row between
    its steps: `jnp.searchsorted` has two.
    """
    step = 1 << len(keys).bit_length()
    padded_keys = jnp.pad(keys, (0, step - len(keys)), mode="edge")
    position = jnp.zeros(segments.shape, np.int32)  # keys below the segment: at least these
    while step := step // 2:
        is_below = padded_keys.at[position + (step - 1)].get(mode="promise_in_bounds") < segments
        position = jnp.where(is_below, position + step, position)
    is_key = padded_keys.at[position].get(mode="promise_in_bounds") == segments
    return jnp.where(is_key, position, len(keys))


@partial(xla.jit, static_argnames=("length",))
def _key_places(segments: jax.Array, keys: jax.Array, which: jax.Array, length: int) -> jax.Array:
    """(N,) the numbers `which` of the rows' ids among the keys, where the last stands for none."""
    places: jax.Array = _row_curves(segments, keys, which[:, None], length)[:, 0]
    return places


@partial(xla.jit, static_argnames=("length",), wide=True)
def _proba(
    scores: jax.Array,
    segments: jax.Array,
    keys: jax.Array,
    curves: jax.Array,
    offset: jax.Array | None,
    length: int,
) -> jax.Array:
    A, B = _row_curves(segments, keys, curves, length).T
    logit = log_odds(A, scores.astype(A.dtype), B)
    if offset is not None:
        logit += offset.astype(A.dtype)
    proba: jax.Array = expit(logit)
    return proba


@partial(xla.jit, static_argnames=("length", "dtype"), wide=True)
def _mean(
    scores: jax.Array,
    segments: jax.Array,
    keys: jax.Array,
    curves: jax.Array,
    offset: jax.Array | None,
    length: int,
    dtype: np.dtype[Any],
) -> jax.Array:
    normal = _row_curves(segments, keys, curves, length)
    if offset is not None:
        normal = normal.at[:, 1].add(-offset.astype(normal.dtype))
    return mean_where_rows_are(scores.astype(normal.dtype), normal).astype(dtype)


@partial(xla.jit, static_argnames=("length", "dtype"), wide=True)
def _band(
    scores: jax.Array,
    segments: jax.Array,
    keys: jax.Array,
    curves: jax.Array,
    offset: jax.Array | None,
    length: int,
    critical: float,
    dtype: np.dtype[Any],
) -> tuple[jax.Array, jax.Array]:
    wide_dtype = np.promote_types(dtype, curves.dtype)
    A, B, *covariance = _row_curves(segments, keys, curves.astype(wide_dtype), length).T
    f = nearer_scores(scores.astype(wide_dtype), covariance[0])
    logit = with_offset(log_odds(A, f, B), offset)
    lower, upper = band(logit, variance_of_logit(f, *covariance), critical)
    return lower.astype(dtype), upper.astype(dtype)


@partial(xla.jit, static_argnames=("normalize",), wide=True)
def _class_probabilities(
    scores: jax.Array, A: jax.Array, B: jax.Array, offset: jax.Array | None, normalize: bool
) -> jax.Array:
    logit = log_odds(A[None], scores.astype(A.dtype), B[None])
    if offset is not None:
        logit += offset.astype(A.dtype)
    proba: jax.Array = normalized(log_expit(logit), jnp.isfinite(A)) if normalize else expit(logit)
    return proba
