"""The first run on a GPU, in at most eight minutes: ``python -m benchmarks.gpu_first_run``.

Each step writes what it found to results/gpu-<device>-<date>.json, so a run that is cut off keeps
the steps before. --small tries it all on small rows, on any device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import jax
import numpy as np

import platt_jax as pj
from benchmarks import gpu_model, machine
from benchmarks.gpu import entries
from benchmarks.gpu.compiled import RECORD
from platt_jax.passes import shapes

_SECONDS = 480  # of the whole run
_REPEATS = 7
_KERNELS = "triton", "mosaic", "mosaic+search"  # values of PLATT_JAX_KERNELS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_first_run")
    parser.add_argument("--small", action="store_true", help="small rows: does it all run?")
    parser.add_argument("--only", nargs="+", choices=list(_STEPS), default=list(_STEPS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    start, about = time.monotonic(), machine.describe()
    name = f"gpu-{machine.slug(about['device'])}-{about['date']}.json"
    found: dict[str, Any] = {"machine": about}
    for step in args.only:
        left = _SECONDS - (time.monotonic() - start)
        try:
            found[step] = _STEPS[step](args.small, left)
        except Exception as error:  # the other steps go on, and the record says what failed
            found[step] = f"{type(error).__name__}: {error}"
        found["seconds so far"] = round(time.monotonic() - start)
        print(f"{step}: {json.dumps(found[step], indent=1)}", flush=True)
        (args.out / name).write_text(json.dumps(found, indent=1) + "\n")


def _batch(problems: int, rows: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = (rng.random((problems, rows)) < 0.4).astype(np.int8)
    return rng.standard_normal((problems, rows), np.float32).astype(dtype) + labels, labels


def agreement(small: bool, left: float) -> dict[str, Any]:
    """How far fits on the device are from those on the host's CPU, in standard errors."""
    found = {}
    for dtype in (np.float32, np.float64):
        scores, labels = _batch(100, 300 if small else 5_000, dtype)
        there = pj.fit(scores, labels)
        with jax.default_device(jax.devices("cpu")[0]):
            here = pj.fit(scores.astype(np.float64), labels)
        off = np.abs(np.stack([there.A - here.A, there.B - here.B], -1)) / here.standard_errors
        found[np.dtype(dtype).name] = {
            "largest difference": float(off.max()),
            "equal statuses": bool((there.status == here.status).all()),
        }
    return found


def bits(small: bool, left: float) -> dict[str, bool]:
    """Whether bits are those of another run, and of the same problems in other company."""
    scores, labels = _batch(1_000 if small else 100_000, 100)
    many = (1_000, 300) if small else (100_000, 10_000)
    fits = {number: pj.fit(scores[:number], labels[:number]) for number in (10, *many)}
    solved = {number: pj.solve(scores[:number], labels[:number]) for number in (10, *many)}
    again = pj.fit(scores[:10], labels[:10])

    def same(x: Any, y: Any) -> bool:
        return all(
            np.array_equal(getattr(x, name)[:10], getattr(y, name)[:10], equal_nan=True)
            for name in ("A", "B", "nll", "hessian")
        )

    return {
        "fit, run again": same(again, fits[10]),
        "fit, in any company": all(same(fits[x], fits[10]) for x in many),
        "solve, in any company": all(same(solved[x], solved[10]) for x in many),
    }


def programs(small: bool, left: float) -> dict[str, Any]:
    """Milliseconds of every compiled program, beside those predicted."""
    recorded = json.loads(RECORD.read_text())["programs"]
    found, end = {}, time.monotonic() + 0.5 * left
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            every = entries.entries(np.dtype(dtype))
            if jax.default_backend() != "cpu":
                every |= entries.by_kernels(np.dtype(dtype))
            for name, entry in every.items():
                if time.monotonic() > end or (small and entry.rows > 1 << 21):
                    continue
                arguments = jax.device_put(entries.made_up(entry))
                label = f"{name}, {dtype}"
                found[label] = {
                    "predicted": gpu_model.predicted(label, recorded[label])["milliseconds"],
                    "measured": _milliseconds(partial(entry.program, **entry.static), arguments),
                }
    return found


def choices(small: bool, left: float) -> dict[str, float]:
    """Milliseconds of `solve` with the choices for a GPU, and without each of them."""
    scores, labels = jax.device_put(_batch(*((100, 300) if small else (10_000, 1_000))))
    usual = shapes.sizes()
    without = {
        "as it is": usual,
        "with the inner loop": usual._replace(tiles_at_once=shapes.CPU.tiles_at_once),
        "with reductions in two steps": usual._replace(in_lanes=True),
    }
    found = {}
    for name, sizes in without.items():
        jax.clear_caches()
        with mock.patch.object(shapes, "sizes", lambda sizes=sizes: sizes):
            found[name] = _milliseconds(pj.solve, (scores, labels))
    jax.clear_caches()
    in_a_users_program = jax.jit(pj.solve)
    found["in a user's program, without a command buffer"] = _milliseconds(
        in_a_users_program, (scores, labels)
    )
    return found


def whole_calls(small: bool, left: float) -> dict[str, float]:
    """Seconds of whole calls from NumPy arrays, and of the transfer of the same arrays."""
    rows = 100_000 if small else 100_000_000
    rng = np.random.default_rng(0)
    labels = (rng.random(rows, np.float32) < 0.4).astype(np.int8)
    scores = rng.standard_normal(rows, np.float32) + labels
    segments = rng.integers(0, rows // 1_000, rows)
    grouped = pj.SegmentRows(scores, labels, segments)

    def transfer() -> Any:
        return jax.block_until_ready(jax.device_put((scores, labels)))

    def of_device(there: tuple[jax.Array, ...]) -> Any:
        return jax.block_until_ready(pj.fit(*(x.reshape(-1, 1_000) for x in there)).A)

    found = {
        "rows": rows,
        "transfer": _seconds(transfer),
        "fit_segments": _seconds(lambda: pj.fit_segments(scores, labels, segments)),
        "fit_segments, rows grouped before": _seconds(lambda: pj.fit_segments(grouped)),
        "fit, arrays on the device": _seconds(partial(of_device, transfer())),
    }
    for kernels in () if jax.default_backend() == "cpu" else _KERNELS:
        with mock.patch.dict(os.environ, PLATT_JAX_KERNELS=kernels):
            name = f"fit_segments, rows grouped before, {kernels}"
            found[name] = _seconds(lambda: pj.fit_segments(grouped))
    return found


def tests(small: bool, left: float) -> dict[str, Any]:
    """The end of what the tests print, as many as there is time for."""
    which = ["tests/passes/test_sizes.py"] if small else ["tests"]
    command = [sys.executable, "-m", "pytest", "-q", "-x" if small else "-rf", *which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(left, 60))
        said, ended = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        said, ended = (late.stdout or b"").decode(), "out of time"
    return {"exit": ended, "printed": said.splitlines()[-60:]}


def _milliseconds(call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    return float(f"{1e3 * _seconds(lambda: jax.block_until_ready(call(*arguments))):.3g}")


def _seconds(call: Callable[[], Any]) -> float:
    """The median of some calls; the first, which may compile, does not count."""
    return float(f"{median(list(_times(call))[1:]):.3g}")


def _times(call: Callable[[], Any]) -> Iterator[float]:
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


_STEPS = {
    "agreement": agreement,
    "bits": bits,
    "programs": programs,
    "choices": choices,
    "whole calls": whole_calls,
    "tests": tests,
}

if __name__ == "__main__":
    main()
