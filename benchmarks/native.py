"""The contenders in C++: compiled when first used, called through ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.workloads import Workload

_FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-Wno-psabi"]
# Not -ffast-math: rounding by adding and subtracting 1.5 x 2^52 must stay as it is written.
_MORE_FLAGS = {"limit": ["-fno-math-errno", "-ffinite-math-only", "-fno-signed-zeros"]}


def fit(name: str, at: Workload) -> dict[str, np.ndarray]:
    """Fit all problems with "appendix3" or "limit"."""
    out = {key: np.empty(at.problems) for key in ("A", "B", "loss")}
    last = {"appendix3": "status", "limit": "passes"}[name]
    out |= {key: np.empty(at.problems, np.int32) for key in ("iterations", last)}
    arrays = [at.offsets, at.scores, at.labels, at.weights, *out.values()]
    assert at.offsets.dtype == np.int64 and at.labels.dtype == np.int8
    assert all(array is None or array.flags.c_contiguous for array in arrays)
    entry = getattr(library(name), f"{name}_{at.scores.dtype}")
    pointers = [None if x is None else x.ctypes.data_as(ctypes.c_void_p) for x in arrays]
    entry(ctypes.c_int64(at.problems), *pointers)
    return out


@cache
def library(name: str) -> ctypes.CDLL:
    """The compiled library of a source file, from the cache where it has not changed."""
    here = Path(__file__).parent
    command = [compiler(), *_FLAGS, *_MORE_FLAGS.get(name, [])]
    cpu = next((x for x in _lines("/proc/cpuinfo") if x.startswith("flags")), "")
    sources = [(here / f"{name}.cpp").read_text(), (here / "limit_rows.h").read_text()]
    key = hashlib.sha256("\n".join([*command, cpu, *sources]).encode()).hexdigest()[:16]
    path = cache_folder() / f"{name}-{key}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, str(here / f"{name}.cpp"), "-o", str(unfinished)], check=True)
        unfinished.replace(path)
    # Threads of OpenMP would go on spinning for milliseconds, on cores that the next one needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    return ctypes.CDLL(str(path))


def compiler() -> str:
    """The C++ compiler: $CXX, or g++."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        raise FileNotFoundError("the C++ contenders need g++ with OpenMP (or another through $CXX)")
    return found


def cache_folder() -> Path:
    """Where compiled libraries are kept, outside of the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "platt_jax-benchmarks"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []
