"""The arrays of `solve`, which may be traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import columns, validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column
from platt_jax.execution import device_checks
from platt_jax.passes.columns import Columns


def traced_arrays(scores: Column, labels: Column, weights: Column, offset: Column) -> Columns:
    """Scores, labels, weights and offset of one shape (..., N), as JAX arrays.

    Args:
        scores: see `solve`, as the others; NaN in the result where a label is not finite.
        labels: of traced labels the positive ones are above 0.
        weights: weights or None.
        offset: offset or None.

    Raises:
        ValueError: the shapes do not match, or concrete labels or weights are invalid.
    """
    scores, labels, weights, offset = map(accelerators.taken, (scores, labels, weights, offset))
    f = _traceable(scores, "scores")
    if not jnp.issubdtype(f.dtype, jnp.floating):
        f = f.astype(float)
    elif jnp.finfo(f.dtype).bits < 32:  # a class of ml_dtypes
        f = f.astype(jnp.float32)
    if f.ndim == 0 or f.size == 0:
        raise ValueError(f"scores: expected (..., N) with rows to fit, got shape {f.shape}")
    if accelerators.holds(weights):
        device_checks.require_weights(weights)
    elif not isinstance(weights, jax.core.Tracer):
        validation.weights(weights, np.float64)
    w, o = (
        None if x is None else _traceable(x, name).astype(f.dtype)
        for x, name in ((weights, "weights"), (offset, "offset"))
    )
    y, all_finite = _labels(labels)
    y = validation.broadcast(y, f.shape, "labels")
    return Columns(
        f if all_finite else jnp.where(y == validation.BAD_LABEL, jnp.nan, f),
        y,
        validation.broadcast(w, f.shape, "weights"),
        validation.broadcast(o, f.shape, "offset"),
    )


def _labels(values: Column) -> tuple[jax.Array, bool]:
    """Labels as int8, as by `validation.labels`, and whether they are known to be finite."""
    if accelerators.holds(values):
        return device_checks.labels(values)
    if not isinstance(values, jax.core.Tracer):
        return jnp.asarray(validation.labels(values)), False
    positive = (values > jnp.zeros((), values.dtype)).astype(jnp.int8)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return positive, True
    return jnp.where(jnp.isfinite(values), positive, jnp.int8(validation.BAD_LABEL)), False


def _traceable(values: Any, name: str) -> jax.Array:
    """Numbers as a JAX array. Columns that JAX cannot read, such as decimals, are read by NumPy."""
    values = columns.narrowed(validation.plain(values))
    try:
        return jnp.asarray(values)
    except (TypeError, ValueError):
        return jnp.asarray(validation.numbers(values, name))
