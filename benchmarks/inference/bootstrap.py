"""The bootstrap beside one fit of the same rows: time, peak memory.

``python -m benchmarks.inference.bootstrap`` writes results/inference/bootstrap-DEVICE-DATE.json;
how often intervals hold the truth is in `bootstrap_coverage`.
"""

from __future__ import annotations

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

import numpy as np

import platt_jax as pj
from benchmarks import fresh, machine

_RESULTS = Path(__file__).parents[1] / "results" / "inference"
_REPLICATES = 200
_JOBS = [
    (1_000, 1_000, "float64", "poisson"),
    (1_000, 1_000, "float64", "bayesian"),
    (1_000, 1_000, "float32", "poisson"),
    (10_000, 100, "float64", "poisson"),
]


def main():
    """Measure, print and write everything."""
    found = {
        "machine": machine.describe(),
        "replicates": _REPLICATES,
        "time": [_times(*job) for job in _JOBS],
        "memory": [_in_a_new_process(*job[:3]) for job in _JOBS if job[3] == "poisson"],
    }
    text = json.dumps(found, indent=1)
    print(text)
    at = found["machine"]
    kind = "cpu" if at["device"].lower() == "cpu" else machine.slug(at["device"])
    _RESULTS.mkdir(parents=True, exist_ok=True)
    (_RESULTS / f"bootstrap-{kind}-{at['date']}.json").write_text(text + "\n")


def _data(problems: int, rows: int, dtype: str):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(problems, rows)).astype(dtype)
    return scores, rng.random(scores.shape) < 1 / (1 + np.exp(-1.3 * scores + 0.4))


def _times(problems: int, rows: int, dtype: str, kind: str) -> dict[str, Any]:
    """Seconds of the two in turn: the wall's, and those of all cores, which others do not take."""
    scores, labels = _data(problems, rows, dtype)

    def fit():
        pj.fit(scores, labels)

    def bootstrap(replicates=_REPLICATES):
        pj.inference.bootstrap(scores, labels, replicates=replicates, kind=kind)

    fit(), bootstrap(2)
    ratios = []
    for _ in range(3):
        fits, (whole,) = _seconds(fit, 15), _seconds(bootstrap, 1)
        one = [median(x) for x in zip(*fits, strict=True)]
        ratios.append((*one, *whole, whole[0] / one[0], whole[1] / one[1]))
    names = ("fit", "fit_cpu", "bootstrap", "bootstrap_cpu", "ratio", "ratio_cpu")
    medians = dict(zip(names, (median(x) for x in zip(*ratios, strict=True)), strict=True))
    return {"problems": problems, "rows": rows, "dtype": dtype, "kind": kind} | medians


def _seconds(call, repeats):
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    return found


def _in_a_new_process(*job) -> dict[str, Any]:
    # As in benchmarks.fresh: one heap for all threads.
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, *map(str, job)],
        capture_output=True,
        text=True,
        check=True,
        cwd=fresh.ROOT,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def _memory(problems: str, rows: str, dtype: str) -> dict[str, Any]:
    """Bytes beyond the caller's arrays at the peak of either call, and those of the parameters."""
    scores, labels = _data(int(problems), int(rows), dtype)

    def peak(call):
        call()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = fresh._status("VmRSS")
        call()
        return fresh._status("VmHWM") - before

    of_fit = peak(lambda: pj.fit(scores, labels))
    of_bootstrap = peak(lambda: pj.inference.bootstrap(scores, labels, replicates=_REPLICATES))
    made = int(problems) * _REPLICATES * (2 * np.dtype(dtype).itemsize + 2)
    rows_bytes = scores.nbytes + labels.nbytes
    return {
        "problems": int(problems),
        "rows": int(rows),
        "dtype": dtype,
        "fit": of_fit,
        "bootstrap": of_bootstrap,
        "of_these_results": made,
        "callers_rows": rows_bytes,
        "ratio_of_working_memory": (of_bootstrap - made) / of_fit,
        "ratio_with_rows": (of_bootstrap - made + rows_bytes) / (of_fit + rows_bytes),
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(_memory(*sys.argv[1:])))
    else:
        main()
