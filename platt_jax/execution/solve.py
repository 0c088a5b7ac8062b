"""`solve`: the fit for users' own JAX programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import validation
from platt_jax.backend import accelerators, xla
from platt_jax.caller import Caller
from platt_jax.columns import Column, narrowed, takes_columns
from platt_jax.execution.on_device import device_labels, require_device_weights
from platt_jax.model.prior import CenteredPrior, GaussianPrior
from platt_jax.options import Options, require_honoured
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.solver.dense import solve_checked
from platt_jax.solver.solution import ProblemInputs


@takes_columns
def solve(
    scores: Column,
    labels: Column,
    *,
    weights: Column | None = None,
    offset: Column | None = None,
    prior: GaussianPrior | None = None,
    options: Options = Options(),
) -> Fit:
    """Fit as a pure function of arrays: runs under jit, vmap, grad, jacfwd and shard_map.

    Derivatives of A, B and everything computed from them flow to scores, weights, offset and prior
    by the implicit function theorem: no iteration is unrolled. They are zero for problems that did
    not converge. Derivatives of A are also zero for constant scores, unless a prior
    tells of A.

    Scores may be sharded over the devices of a mesh. Along the leading axes each device fits its
    own problems. Along the last axis each device sums over its own rows, and the sums are added.
    Rows are not moved, unless the scores are traced and the axes of the mesh are automatic: then
    the compiler decides.

    Under a JAX transformation the fit is compiled as part of your program, with your compiler
    options. jaxlib 0.10.2 adds up some sums wrongly on CPUs, anywhere in such a program; a warning,
    once in a process, says how to avoid it.

    Args:
        scores: (..., N) floating; leading axes are independent problems.
        labels: broadcastable to scores; bool, {0, 1} or {-1, +1}. Traced labels count as
            positive where they are > 0.
        weights: broadcastable to scores; weight 2 counts a row twice, weight 0 omits it.
        offset: broadcastable to scores; log-odds of class 1 that are added to the curve, as in
            `fit`.
        prior: a Gaussian prior on (A, B), with leading axes broadcastable to the scores'.
        options: how to fit; static under jit.

    Returns:
        A Fit of JAX arrays. The dtype is the one that JAX gives the scores, so it is float64 only
        if 64-bit types are switched on. Integers and float16 are promoted.

    Raises:
        ValueError: shapes do not match, concrete labels or weights are invalid, or
            Options(non_finite="raise"): a compiled program cannot raise.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> scores, labels = jnp.array([5.0, -4.0, 1.0]), jnp.array([1, 0, 0])
        >>> slope = lambda scores: -solve(scores, labels).A
        >>> jax.grad(slope)(scores).shape
        (3,)
    """
    options = require_honoured(validation.options(options), "solve")
    warning = xla.wrong_sums()
    if warning and xla.transformed((scores, labels, weights, offset, prior)):
        Caller().warn_once(warning)
    columns = _columns(scores, labels, weights, offset)
    f = columns.scores
    prior = validation.prior(prior, f.shape[:-1], f.dtype)
    inputs = ProblemInputs()
    if prior is not None:
        # Derivatives by the precision would not pass through its own center where it says nothing
        # of B.
        inputs = ProblemInputs(CenteredPrior.around_zero(prior))
    return solve_checked(columns, inputs, options)


def _columns(scores: Column, labels: Column, weights: Column, offset: Column) -> Columns:
    """Scores, labels, weights and offset of `solve` in one shape (..., N), as JAX arrays.

    Scores are NaN where a label is not finite. Of traced labels the positive ones are above 0.
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
        require_device_weights(weights)
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
        return device_labels(values)
    if not isinstance(values, jax.core.Tracer):
        return jnp.asarray(validation.labels(values)), False
    positive = (values > jnp.zeros((), values.dtype)).astype(jnp.int8)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return positive, True
    return jnp.where(jnp.isfinite(values), positive, jnp.int8(validation.BAD_LABEL)), False


def _traceable(values: Any, name: str) -> jax.Array:
    """Numbers as a JAX array. Columns that JAX cannot read, such as decimals, are read by NumPy."""
    values = narrowed(validation.plain(values))
    try:
        return jnp.asarray(values)
    except (TypeError, ValueError):
        return jnp.asarray(validation.numbers(values, name))
