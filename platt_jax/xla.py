"""How XLA is told to compile: the options of our programs, and loops as one function for a CPU.

With small loops XLA does that by itself, by a code generation in which operations cost nothing to
start and control flow is free. JAX can ask for it by the attributes with which XLA marks those.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jaxlib
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata

# Versions of jaxlib on which this was tried: how XLA compiles loops is no interface of it.
_TRIED = (0, 8), (0, 13)

# Whose loops write a whole array for each number in it: https://github.com/jax-ml/jax/issues/40101
_REWRITING = "0.11.1"

# From 0.10.1 on jaxlib gives some sums on CPUs to another library; 0.10.0 takes the option, too.
# That of 0.10.2 gets some wrong: https://github.com/jax-ml/jax/issues/39103
_OTHER_SUMS = (0, 10), _TRIED[1]
_WRONG_SUMS = "0.10.2"
_NO_OTHER_SUMS = {"xla_cpu_experimental_ynn_fusion_type": ""}

# XLA takes to vectors of half the width on its own.
_WIDE = {"xla_cpu_prefer_vector_width": 512}

_CONCRETE = np.zeros((), np.float32)


def jit(function: Callable[..., Any], *, wide: bool = False, **settings: Any) -> Any:
    """The function as a program, which cannot be part of another.

    Args:
        function: as `jax.jit` takes it.
        wide: whether it has passes; those of float64 take half the time by vectors of full width.
        settings: other arguments of `jax.jit`.
    """
    return jax.jit(function, compiler_options=_options(wide), **settings)


def _options(wide: bool) -> dict[str, Any]:
    own = _NO_OTHER_SUMS if _within(_version(), _OTHER_SUMS) else {}
    return {**own, **(_WIDE if wide else {})}


def jit_or_inline(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """The function as a program; where JAX traces or transforms it, as a part of the user's.

    The user's compiler options hold there: JAX takes none for a part.
    """
    program, part = jit(function, **settings), jax.jit(function, **settings)

    @wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        leaves = jax.tree.leaves((arguments, named))
        transformed = tracing() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        return (part if transformed else program)(*arguments, **named)

    return run


def tracing() -> bool:
    """Whether JAX is tracing a program of the user's, which would take in whatever is called."""
    # By an operation that needs no program where nothing is traced, and is none in a user's.
    return isinstance(checkpoint_name(_CONCRETE, "platt_jax"), jax.core.Tracer)


def sums_told() -> str:
    """What a bug report says of who adds up the sums on a CPU."""
    if not _within(_version(), _OTHER_SUMS):
        return "as XLA has them"
    if _version() != _WRONG_SUMS:
        return "without YNNPACK"
    (option,) = _NO_OTHER_SUMS
    return (
        f"without YNNPACK, by which jaxlib {_WRONG_SUMS} adds up some sums wrongly in programs of "
        f"your own, solve in them included; cured by XLA_FLAGS=--{option}="
    )


def fused_cpu_supported() -> bool:
    """Whether the default device is a CPU, and jaxlib one of those on which this was tried."""
    return _platform() == "cpu" and _is_fast(_version())


def is_tried(version: str) -> bool:
    """Whether this was tried on that version of jaxlib."""
    return _within(version, _TRIED)


def _is_fast(version: str) -> bool:
    return is_tried(version) and version != _REWRITING


def _within(version: str, limits: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    """Whether a version is from the first limit on and before the second."""
    return limits[0] <= tuple(int(part) for part in version.split(".")[:2]) < limits[1]


def _version() -> str:
    found: str = jaxlib.__version__  # type: ignore[attr-defined]
    return found


def missing() -> str | None:
    """What to tell of a CPU that goes without this, which takes about twice as long."""
    if _platform() != "cpu" or _is_fast(_version()):
        return None
    first, end = (".".join(map(str, version)) for version in _TRIED)
    return (
        f"jaxlib {_version()}: on CPUs platt_jax is about twice as fast with a jaxlib from "
        f"{first} on and before {end}, but {_REWRITING}; results are as good with this one"
    )


def _platform() -> str:
    config: Any = jax.config  # whose attributes type checkers do not know
    device: Any = config.jax_default_device or jax.devices()[0]
    return device if isinstance(device, str) else device.platform


def single_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled as one for a CPU, which one core runs.

    By the attributes with which XLA marks small loops. Where they mean nothing, the function is
    compiled like any other.
    """
    return _marked(function, xla_cpu_small_call="true", inlineable="false")


def noinline(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, in loops of its own: what it returns is computed once for all its uses."""
    return _marked(function, inlineable="false")


def _marked(function: Callable[..., Any], **attributes: str) -> Callable[..., Any]:
    jitted = jax.jit(function, inline=False)
    return lambda *arguments: set_xla_metadata(jitted(*arguments), **attributes)
