"""Loops that XLA compiles as one function for a CPU.

It does so by itself with small ones, by a code generation in which operations cost nothing to start
and control flow is free. JAX can ask for it by the attributes with which XLA marks those.
"""

from collections.abc import Callable
from typing import Any

import jax
import jaxlib
from jax.experimental.xla_metadata import set_xla_metadata

# Versions of jaxlib on which this was tried: how XLA compiles loops is no interface of it.
_TRIED = (0, 8), (0, 13)

# For programs with passes: XLA takes to vectors of half the width on its own, and a float64 pass
# takes half the time by the full one.
COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}


def fused_cpu_supported() -> bool:
    """Whether the default device is a CPU, and jaxlib one of those on which this was tried."""
    return _platform() == "cpu" and is_tried(jaxlib.__version__)  # type: ignore[attr-defined]


def is_tried(version: str) -> bool:
    """Whether this was tried on that version of jaxlib."""
    return _TRIED[0] <= tuple(int(part) for part in version.split(".")[:2]) < _TRIED[1]


def missing() -> str | None:
    """What to tell of a CPU that goes without this, which takes about twice as long."""
    found: str = jaxlib.__version__  # type: ignore[attr-defined]
    if _platform() != "cpu" or is_tried(found):
        return None
    first, end = (".".join(map(str, version)) for version in _TRIED)
    return (
        f"jaxlib {found}: on CPUs platt_jax is about twice as fast with a jaxlib from "
        f"{first} on and before {end}; results are as good with this one"
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
