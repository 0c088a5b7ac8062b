"""How XLA compiles our programs: compiler options, and loops compiled as one function on a CPU.

XLA compiles small loops in this way by itself: operations cost nothing to start, and control flow
is free. JAX can request it for any function, by the attributes that XLA gives to small loops.
"""

import os
import re
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata

from platt_jax.backend.stored_programs import StoredProgram

# The jaxlib versions that were tested, from the first on and before the second. How XLA compiles
# loops is no public interface.
_TRIED = (0, 8), (0, 13)

# Its loops write a whole array for each number: https://github.com/jax-ml/jax/issues/40101
_REWRITING = "0.11.1"

# From 0.10.1 on, jaxlib computes some sums on CPUs with another library; 0.10.0 accepts the option.
# In 0.10.2 some of these sums are wrong: https://github.com/jax-ml/jax/issues/39103
_OTHER_SUMS = (0, 10), _TRIED[1]
_WRONG_SUMS = "0.10.2"
_NO_OTHER_SUMS = {"xla_cpu_experimental_ynn_fusion_type": ""}

# On a GPU the loop of a search is then one launch, and does not return to the host.
_LOOP_ON_GPU = {"xla_gpu_enable_command_buffer": "FUSION,WHILE,CUSTOM_CALL"}

# By default XLA uses vectors of half this width.
_WIDE = {"xla_cpu_prefer_vector_width": 512}

# Names what compiles kernels, for tests and measurements.
_KERNELS = "PLATT_JAX_KERNELS"
_COMPILERS = "mosaic", "interpreter", "none"

# The jaxlib versions whose Mosaic was tested, from the first on and before the second, and the
# oldest GPUs that it compiles for: Hopper's.
_MOSAIC = (0, 11, 2), (0, 13)
_HOPPER = 9.0

_CONCRETE = np.zeros((), np.float32)


def jit(function: Callable[..., Any], *, wide: bool = False, **settings: Any) -> Any:
    """The function as a program of its own, not part of another.

    If it is `wide`, it passes over rows: in float64, full-width vectors halve the time of a pass.
    """
    return StoredProgram(function, _options(wide), **settings)


def _options(wide: bool) -> dict[str, Any]:
    sum_options = _NO_OTHER_SUMS if _within(_version(), _OTHER_SUMS) else {}
    return {**_LOOP_ON_GPU, **sum_options, **(_WIDE if wide else {})}


def jit_or_inline(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """The function as its own program, or as part of the user's if JAX traces or transforms it.

    The user's compiler options then apply: JAX has none for a part of a program.
    """
    program, part = jit(function, **settings), jax.jit(function, **settings)

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        return (part if transformed((arguments, named)) else program)(*arguments, **named)

    return run


def transformed(arguments: Any) -> bool:
    """Whether JAX traces or transforms a user's program, or any of these arguments."""
    return tracing() or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(arguments))


def tracing() -> bool:
    """Whether JAX is tracing a user's program, which any function called now would be part of."""
    # This operation needs no program if nothing is traced, and adds none to the user's.
    return isinstance(checkpoint_name(_CONCRETE, "platt_jax"), jax.core.Tracer)


def sums_status() -> str:
    """How sums are computed on a CPU, for bug reports."""
    if not _within(_version(), _OTHER_SUMS):
        return "as XLA has them"
    return f"without YNNPACK. {wrong_sums() or ''}".removesuffix(". ")


def wrong_sums() -> str | None:
    """A warning if this jaxlib adds up some sums wrongly in users' own programs; else None."""
    (option,) = _NO_OTHER_SUMS
    # An option that is empty.
    avoided = re.search(rf"--{option}=(\s|$)", os.environ.get("XLA_FLAGS", ""))
    if _version() != _WRONG_SUMS or avoided or platform() != "cpu":
        return None
    return (
        f"jaxlib {_WRONG_SUMS} adds up some sums wrongly on CPUs in your own JAX programs, such as "
        "one with solve in it (https://github.com/jax-ml/jax/issues/39103). Start Python with "
        f"XLA_FLAGS=--{option}= in the environment, or use a newer jaxlib, which needs Python 3.12"
    )


def fused_cpu_supported() -> bool:
    """Whether the default device is a CPU, and this version of jaxlib was tested and is fast."""
    return platform() == "cpu" and _is_fast(_version())


def kernel_compiler() -> str | None:
    """What compiles kernels for the default device; None if XLA's operations compute everything."""
    chosen = os.environ.get(_KERNELS)
    if chosen is None:
        return "mosaic" if _has_mosaic() else None
    if chosen not in _COMPILERS:
        raise ValueError(f"{_KERNELS}: expected one of {_COMPILERS}, got {chosen!r}")
    return None if chosen == "none" else chosen


def _has_mosaic() -> bool:
    """Whether Mosaic was tested with this version of jaxlib and a GPU like the default device."""
    if platform() != "gpu":
        return False
    capability = getattr(_default_device(), "compute_capability", None)
    is_new = capability is not None and float(capability) >= _HOPPER
    return is_new and _within(_version(), _MOSAIC)


def is_tried(version: str) -> bool:
    """Whether this version of jaxlib was tested."""
    return _within(version, _TRIED)


@cache
def _is_fast(version: str) -> bool:
    return is_tried(version) and version != _REWRITING


def _within(version: str, limits: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether a version is at least the first limit and below the second."""
    return limits[0] <= tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < limits[1]


def _version() -> str:
    return jaxlib.__version__  # type: ignore[attr-defined]


def missing() -> str | None:
    """A warning if the device is a CPU without fused loops, which doubles the time; else None."""
    if platform() != "cpu" or _is_fast(_version()):
        return None
    first, end = (".".join(map(str, version)) for version in _TRIED)
    return (
        f"jaxlib {_version()}: on CPUs platt_jax is about twice as fast with a jaxlib >= {first}, "
        f"< {end} and not {_REWRITING}; results are as accurate with this one"
    )


def wrong_operations() -> str | None:
    """A warning if the default device is a GPU that computes single operations wrongly; else None.

    Some did with CUDA 13 and jaxlib 0.11: https://github.com/jax-ml/jax/issues/40633
    """
    return _wrong_operations() if platform() == "gpu" else None


@cache
def _wrong_operations() -> str | None:
    x = np.random.default_rng(0).normal(size=1 << 12)
    total = float(jnp.asarray(x, jnp.float32).sum())
    if np.array_equal(jnp.ones(4) + 1, np.full(4, 2)) and abs(total - x.sum()) < 1e-2:
        return None
    return (
        "this GPU computes single operations of JAX wrongly (https://github.com/jax-ml/jax/issues/"
        "40633): use another version of jax, or the CPU by JAX_PLATFORMS=cpu"
    )


def platform() -> str:
    """The platform of JAX's default device, such as "cpu" or "gpu"."""
    device = _default_device()
    return device if isinstance(device, str) else device.platform


def _default_device() -> Any:
    """JAX's default device, or the name of its platform if that is what was chosen."""
    config: Any = jax.config  # type checkers do not know its attributes
    return config.jax_default_device or jax.devices()[0]


def single_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles the function as a single call on a CPU, which one core runs.

    It is marked by the attributes of XLA's small loops. Other devices ignore these.
    """
    return _marked(function, xla_cpu_small_call="true", inlineable="false")


def noinline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles the function as separate loops, so that each result is computed only once."""
    return _marked(function, inlineable="false")


def _marked(function: Callable[..., Any], **attributes: str) -> Callable[..., Any]:
    jitted = jax.jit(function, inline=False)
    return lambda *arguments: set_xla_metadata(jitted(*arguments), **attributes)
