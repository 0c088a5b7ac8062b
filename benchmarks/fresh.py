"""What only a new process can tell: import time, first-call compile time, peak memory.

Each function runs this file as a program of its own, which prints one line of JSON.
"""

from __future__ import annotations

import compileall
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import clock

ROOT = Path(__file__).parent.parent


def import_seconds(repeats: int = 5) -> dict[str, float]:
    """What `import platt_jax` takes after `import jax`, and what that took."""
    compileall.compile_dir(ROOT / "platt_jax", quiet=1)  # to byte code, as pip does
    return _medians(repeats, "import")


def compile_seconds(dtype: str, ragged: bool, repeats: int = 5) -> dict[str, float]:
    """The first fit of a process, and the second."""
    return _medians(repeats, "compile", dtype, str(int(ragged)))


def peak_memory(problems: int, rows: int, dtype: str, ragged: bool) -> dict[str, float]:
    """Bytes beyond the caller's arrays at the peak of a fit, results included."""
    return _in_a_new_process("memory", str(problems), str(rows), dtype, str(int(ragged)))


def _medians(repeats: int, *arguments: str) -> dict[str, float]:
    """Medians of what new processes find, and of what the host took from them."""
    found = []
    for _ in range(repeats):
        given, stolen = clock.least_disturbed(lambda: _in_a_new_process(*arguments))
        found.append(given | {"stolen": stolen})
    return {key: median(one[key] for one in found) for key in found[0]}


def _in_a_new_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.fresh", *arguments]
    # One heap for all threads: malloc_trim gives back the top of no other, where a fit's buffers
    # would lie unseen.
    env = os.environ | {"MALLOC_ARENA_MAX": "1"} if arguments[0] == "memory" else None
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def _import() -> dict[str, float]:
    start = time.perf_counter()
    import jax  # noqa: F401

    between = time.perf_counter()
    import platt_jax  # noqa: F401

    return {"jax": between - start, "platt_jax": time.perf_counter() - between}


def _call(problems: int, rows: int, dtype: str, ragged: bool):
    """A whole call on one workload, and that workload."""
    import numpy as np

    import platt_jax as pj
    from benchmarks import workloads

    if ragged:
        at = workloads.ragged("", np.full(problems, rows), np.dtype(dtype).type)
        return lambda: pj.fit_segments(*at.ungrouped), at
    at = workloads.even("", problems, rows, np.dtype(dtype).type)
    scores, labels = at.dense(at.scores), at.dense(at.labels)
    return lambda: pj.fit(scores, labels), at


def _compile(dtype: str, ragged: str) -> dict[str, float]:
    import jax

    jax.devices()
    call, _ = _call(1_000, 1_000, dtype, ragged == "1")
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return {"first": seconds[0], "second": seconds[1]}


def _memory(problems: str, rows: str, dtype: str, ragged: str) -> dict[str, float]:
    call, at = _call(int(problems), int(rows), dtype, ragged == "1")
    call()  # compiling takes memory of its own
    gc.collect()  # JAX lets go of NumPy's arrays then
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    call()
    packed = at.rows * at.row_bytes
    extra = _status("VmHWM") - before
    return {"packed_bytes": packed, "extra_bytes": extra, "ratio": extra / packed}


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    print(json.dumps({"import": _import, "compile": _compile, "memory": _memory}[what](*rest)))
