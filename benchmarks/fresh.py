"""What only a new process can tell: import time, first-call compile time, peak memory.

Each function runs this file as a program of its own, which prints one line of JSON.
``python -m benchmarks.fresh`` stores the times of imports, of first calls without kept programs and
with them, and of commands.
"""

from __future__ import annotations

import compileall
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import clock

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("results") / "fresh.json"
# One heap for all threads: malloc_trim gives back the top of no other, where a fit's buffers would
# lie unseen.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}


def import_seconds(repeats: int = 5) -> dict[str, float]:
    """What `import platt_jax` and its `fit` take after `import jax`, and what that took."""
    compileall.compile_dir(ROOT / "platt_jax", quiet=1)  # to byte code, as pip does
    return _medians(repeats, "import")


def compile_seconds(dtype: str, ragged: bool, repeats: int = 5) -> dict[str, float]:
    """The first fit of a process, and the second."""
    return _medians(repeats, "compile", dtype, str(int(ragged)))


def kept_seconds(repeats: int = 5) -> dict[str, dict[str, float]]:
    """The first fit of a process without kept programs, while they are kept, and with them."""
    with tempfile.TemporaryDirectory() as folder:
        empty = [str(Path(folder) / str(number)) for number in range(repeats)]
        found = {
            "compiled": [_in_a_new_process("first") for _ in empty],
            "kept": [_in_a_new_process("first", cache=path) for path in empty],
            "read": [_in_a_new_process("first", cache=path) for path in empty],
        }
    return {
        how: {call: median(one[call] for one in each) for call in each[0]}
        for how, each in found.items()
    }


def command_seconds(repeats: int = 5) -> dict[str, float]:
    """Whole processes: `import jax`, and commands with programs that are kept.

    Commands fit a CSV file of 100,000 rows as one problem, and in 1,000 segments (partial pooling).
    """
    import numpy as np

    from benchmarks import workloads

    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.csv", Path(folder) / "fitted.npz"
        each = zip(*workloads.ragged("", np.full(1_000, 100), np.float64).ungrouped, strict=True)
        lines = (f"{score:.6f},{label:d},s{shop}\n" for score, label, shop in each)
        rows.write_text("".join(["f,y,shop\n", *lines]))
        run = "from platt_jax.cli import run; run()"
        fit = (run, "fit", str(rows), "--score", "f", "--label", "y", "--out", str(out))
        programs = {
            "import jax": ("import jax",),
            "platt-jax --help": (run, "--help"),
            "platt-jax fit": fit,
            "platt-jax fit --segment": (*fit, "--segment", "shop"),
            "platt-jax demo": (run, "demo"),
        }
        env = os.environ | {"PLATT_JAX_CACHE": folder}
        found: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(1 + repeats):  # the first one compiles
            for name, program in programs.items():
                start = time.perf_counter()
                command = [sys.executable, "-c", *program]
                subprocess.run(command, capture_output=True, check=True, cwd=ROOT, env=env)
                found[name].append(time.perf_counter() - start)
    return {name: median(seconds[1:]) for name, seconds in found.items()}


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


def _in_a_new_process(*arguments: str, cache: str = "off") -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.fresh", *arguments]
    env = os.environ | {"PLATT_JAX_CACHE": cache}
    env |= ONE_HEAP if arguments[0] == "memory" else {}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env)
    return json.loads(done.stdout.splitlines()[-1])


def _import() -> dict[str, float]:
    start = time.perf_counter()
    import jax  # noqa: F401

    between = time.perf_counter()
    import platt_jax

    platt_jax.fit  # noqa: B018 - which imports the modules of all fits

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


def _first() -> dict[str, float]:
    """The first calls of a process, for 1,000 segments of 100 rows, in this order."""
    import jax
    import numpy as np

    import platt_jax as pj
    from benchmarks import workloads

    jax.devices()
    at = workloads.ragged("", np.full(1_000, 100), np.float64)
    scores, labels = at.dense(at.scores), at.dense(at.labels)
    fit, fit_segments = pj.fit, pj.fit_segments  # `import_seconds` has this time
    calls = {
        "fit": lambda: fit(scores, labels),
        "fit_segments": lambda: fit_segments(*at.ungrouped),
        'pooling="partial"': lambda: fit_segments(*at.ungrouped, pooling="partial"),
    }
    seconds = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        seconds[name] = time.perf_counter() - start
    return seconds


def _memory(problems: str, rows: str, dtype: str, ragged: str) -> dict[str, float]:
    call, at = _call(int(problems), int(rows), dtype, ragged == "1")
    packed = at.rows * at.row_bytes
    extra = extra_bytes(call)
    return {"packed_bytes": packed, "extra_bytes": extra, "ratio": extra / packed}


def extra_bytes(call: Callable[[], object]) -> int:
    """What the second call takes at its peak beyond what the process has, its result included."""
    call()  # compiling takes memory of its own
    gc.collect()  # JAX lets go of NumPy's arrays then
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    _ = call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def main() -> None:
    """Stores the times of imports, first calls and commands."""
    from benchmarks import machine  # imports JAX, of which `_import` takes the time

    found = {
        "machine": machine.describe(),
        "import_seconds": import_seconds(),
        "first_call_seconds": kept_seconds(),
        "command_seconds": command_seconds(),
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__" and sys.argv[1:]:
    what, *rest = sys.argv[1:]
    of = {"import": _import, "compile": _compile, "first": _first, "memory": _memory}
    print(json.dumps(of[what](*rest)))
elif __name__ == "__main__":
    main()
