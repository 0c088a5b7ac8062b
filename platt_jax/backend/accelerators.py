"""Arrays on a GPU or another accelerator: which they are, and how JAX takes them without a copy."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax.backend import xla

# What `__dlpack_device__` returns first for the accelerators of which JAX may have devices.
_PLATFORMS = {2: "cuda", 10: "rocm", 13: "cuda"}  # device memory, and CUDA's managed memory


def holds(values: Any) -> bool:
    """Whether this is a concrete array on an accelerator that JAX can use."""
    if isinstance(values, jax.Array):
        if isinstance(values, jax.core.Tracer) or values.is_deleted():
            return False
        return all(device.platform != "cpu" for device in devices(values))
    if isinstance(values, np.ndarray) or not hasattr(values, "__dlpack_device__"):
        return False
    return _has(_PLATFORMS.get(int(values.__dlpack_device__()[0])))


def devices(array: jax.Array) -> set[jax.Device]:
    """The devices of an array."""
    return array.devices()


def _has(platform: str | None) -> bool:
    """Whether JAX has devices of this platform."""
    if platform is None:
        return False
    try:
        return bool(jax.devices(platform))
    except RuntimeError:  # JAX was installed without it
        return False


def taken(values: Any) -> Any:
    """An array on an accelerator as a JAX array of the same memory; others are returned as given.

    Only an array whose elements do not lie end to end is copied, on its device.
    """
    if isinstance(values, jax.Array) or not holds(values):
        return values
    if hasattr(values, "detach"):  # torch: without the gradient
        values = values.detach().contiguous()
    elif hasattr(values, "flags") and not values.flags.c_contiguous:  # CuPy
        values = values.copy()
    with jax.enable_x64(True):  # else float64 would become float32
        return jax.dlpack.from_dlpack(values)


def precision_of(values: Any) -> AbstractContextManager[Any]:
    """Switches on JAX's 64-bit types for an array of float64 on an accelerator."""
    wide = holds(values) and str(values.dtype).endswith("float64")
    return jax.enable_x64(True) if wide else nullcontext()


def as_default(device: jax.Device | None) -> AbstractContextManager[Any]:
    """Makes a device JAX's default; None changes nothing."""
    return nullcontext() if device is None else jax.default_device(device)


def fetched(tree: Any) -> Any:
    """Results with their arrays on the host; results on a CPU are returned as given."""
    return jax.device_get(tree) if holds(jax.tree.leaves(tree)[0]) else tree


def fetched_together(tree: Any) -> Any:
    """`fetched` for results of a program of ours, within `run_programs`: as one array per dtype.

    Every fetch takes the host longer than most arrays need.
    """
    leaves, structure = jax.tree.flatten(tree)
    if not holds(leaves[0]):
        return tree
    by_dtype: dict[Any, list[int]] = {}
    for number, leaf in enumerate(leaves):
        by_dtype.setdefault(leaf.dtype, []).append(number)
    if len(devices(leaves[0])) > 1 or len(by_dtype) == len(leaves):
        return jax.device_get(tree)
    for numbers, flat in zip(by_dtype.values(), jax.device_get(_end_to_end(leaves)), strict=True):
        ends = np.cumsum([leaves[number].size for number in numbers])
        for number, part in zip(numbers, np.split(flat, ends[:-1]), strict=True):
            leaves[number] = part.reshape(leaves[number].shape)
    return jax.tree.unflatten(structure, leaves)


@xla.jit
def _end_to_end(arrays: list[jax.Array]) -> list[jax.Array]:
    """The arrays of each dtype as one, in the order in which the dtypes come."""
    dtypes = dict.fromkeys(x.dtype for x in arrays)
    return [jnp.concatenate([x.ravel() for x in arrays if x.dtype == kind]) for kind in dtypes]


def results(tree: Any, dtype: Any, device: jax.Device | None = None) -> Any:
    """Results of this dtype as users get them: arrays on the device, or where they are if None.

    NumPy arrays for float64 while JAX's 64-bit types are off: JAX would round what users compute.
    """
    config: Any = jax.config  # type checkers do not know its attributes
    if dtype == np.float64 and not config.jax_enable_x64:
        return jax.device_get(tree)
    return tree if device is None else jax.device_put(tree, device)
