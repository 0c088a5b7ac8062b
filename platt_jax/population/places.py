"""Where the numbers of many segments are computed: by NumPy, or by compiled programs on a device.

Formulas are written once, for arrays of NumPy and of JAX. Results are where the arrays are. On a
device, arrays of segments have one of a few lengths; losses of added segments are NaN, and their
likelihoods are flat.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs
from platt_jax.passes import shapes

# Fewer segments take NumPy less time than it takes to compile programs for the first call.
_WORTH_SENDING = 10_000
_STEP = 1 << 10

Function = TypeVar("Function", bound=Callable[..., Any])


def namespace(x: Any) -> Any:
    """The functions for this array: from `jax.numpy` or `numpy`."""
    return jnp if isinstance(x, jax.Array) else np


def is_there(tree: Any) -> bool:
    """Whether a pytree has arrays of JAX."""
    return any(isinstance(x, jax.Array) for x in jax.tree.leaves(tree))


def program(function: Function) -> Function:
    """The function of pytrees of arrays; a compiled program where these are on a device."""
    compiled: Any = xla.jit(function)

    @wraps(function)
    def run(*arguments: Any) -> Any:
        device_arrays = [x for x in jax.tree.leaves(arguments) if isinstance(x, jax.Array)]
        if not device_arrays or any(isinstance(x, jax.core.Tracer) for x in device_arrays):
            return function(*arguments)
        return run_programs(partial(_as_numpy, compiled, *arguments), x64=True)

    return run  # type: ignore[return-value]


def _as_numpy(compiled: Any, *arguments: Any) -> Any:
    """Shapes and dtypes are promoted as by NumPy, whatever the user's settings."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        return compiled(*arguments)


def inner(a: Any, b: Any) -> Any:
    """`a @ b.T`, with sums over segments.

    On a device, as `product`, without XLA's matrix products, for which it compiles and times dozens
    of kernels.
    """
    return (a[:, None] * b).sum(-1) if is_there((a, b)) else a @ b.T


def product(a: Any, b: Any) -> Any:
    """`a.T @ b`, where the leading axes are short."""
    return (a[:, :, None] * b[:, None]).sum(0) if is_there((a, b)) else a.T @ b


def is_worth_sending(segments: int) -> bool:
    """Whether a device computes the numbers of so many segments faster than the host."""
    return xla.platform() != "cpu" and segments >= _WORTH_SENDING


def sent(arrays: Any, fill: float) -> Any:
    """Arrays (K, ...) of NumPy on the device, with one of few lengths."""

    def lengthened(x: NDArray[Any]) -> NDArray[Any]:
        added = shapes.few_lengths(len(x), _STEP) - len(x)
        return np.pad(x, [(0, added)] + [(0, 0)] * (x.ndim - 1), constant_values=fill)

    return run_programs(lambda: jax.device_put(jax.tree.map(lengthened, arrays)), x64=True)


def placed(arrays: Any) -> Any:
    """Arrays (K, ...) of segments' numbers on the device, if it computes faster than the host.

    The numbers of added segments are 1.
    """
    segments = len(jax.tree.leaves(arrays)[0])
    return sent(arrays, 1) if is_worth_sending(segments) else arrays


def fetched(tree: Any) -> Any:
    """The same arrays on the host."""
    return jax.device_get(tree) if is_there(tree) else tree
