"""An H200 to compile for. JAX needs its CUDA plugin for that, but no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, SingleDeviceSharding

from benchmarks.gpu.entries import Entry
from platt_jax.backend import xla
from platt_jax.passes import shapes

_DESCRIPTION = (Path(__file__).parent / "h200.txtpb").read_text()
_MEMORY = int(re.search(r"device_memory_size: (\d+)", _DESCRIPTION).group(1))
_OF_MEMORY = 0.75  # the share that JAX allocates


@cache
def devices(number: int = 1) -> list[jax.Device]:
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=_DESCRIPTION, topology=f"1x1x{number}"
    )
    return topology.devices


def mesh(shape: tuple[int, int]) -> Mesh:
    """A mesh of H200s with axes "problems" and "rows"."""
    of_devices = np.array(devices(int(np.prod(shape)))).reshape(shape)
    return Mesh(of_devices, ("problems", "rows"), axis_types=(AxisType.Auto,) * 2)


def lowered(entry: Entry, device: jax.Device | None = None) -> Any:
    """What `jax.jit(...).lower` returns for an entry on a device; by default on the first H200."""
    here = SingleDeviceSharding(device or devices()[0])

    def placed(x: Any) -> jax.ShapeDtypeStruct:
        sharding = getattr(x, "sharding", None) or here
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    return entry.program.lower(*jax.tree.map(placed, entry.arguments), **entry.static)


@contextmanager
def chosen() -> Iterator[None]:
    """The package plans programs as if JAX's default device were the H200."""
    with (
        mock.patch.object(xla, "platform", lambda: "gpu"),
        mock.patch.object(shapes, "memory", lambda: int(_OF_MEMORY * _MEMORY)),
    ):
        yield
