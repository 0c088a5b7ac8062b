"""Where the figures come from: the machine, the versions, the commit."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optimistix", "platt-jax")


def describe() -> dict[str, Any]:
    """Everything that a figure depends on, as JSON has it."""
    device = jax.devices()[0]
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cpu_family_model": [_field("/proc/cpuinfo", x) for x in ("cpu family", "model")],
        "avx512": "avx512f" in (_field("/proc/cpuinfo", "flags") or ""),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": " ".join([platform.system(), *platform.libc_ver()]),
        "python": platform.python_version(),
        "device": device.device_kind,
        "device_copy_gb_per_s": round(copy_bandwidth() / 1e9, 1),
        "compiler": _output("g++", "--version").split("\n")[0],
        "versions": {name: _version(name) for name in _PACKAGES},
        **commit(),
        "load_before": os.getloadavg()[0],
    }


def commit() -> dict[str, Any]:
    """The commit of the checkout, and whether its code differs from it; None outside of one."""
    at = _output("git", "rev-parse", "HEAD") or None
    # From the checkout's root, wherever git runs. What a run before this one wrote is no code.
    code = (":/platt_jax", ":/benchmarks", ":(top,exclude)benchmarks/results")
    changed = bool(_output("git", "status", "--porcelain", "--", *code))
    return {"commit": at, "uncommitted_changes": changed if at else None}


def slug(text: str) -> str:
    """A device's name as part of a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of an array's update on the device."""
    # On a GPU a small one would lie in the second-level cache, and its update end too soon.
    mebibytes = 256 if jax.default_backend() == "cpu" else 8_192
    buffer = jnp.zeros(mebibytes * 2**18, jnp.float32)
    # In place: on a CPU the pages of a new array would take longer than the copy.
    copy = jax.jit(lambda x: x + 1, donate_argnums=0)
    buffer = copy(buffer).block_until_ready()
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        buffer = copy(buffer).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * buffer.nbytes / statistics.median(seconds)


def _field(path: str, name: str) -> str | None:
    if not Path(path).exists():
        return None
    lines = Path(path).read_text().splitlines()
    found = (line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == name)
    return next(found, None)


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
