"""What a GPU computes, and how fast, in some minutes: ``python -m benchmarks.gpu.measured``.

Each step writes what it found to results/gpu-<device>-<date>.json, so a run that is cut off keeps
the steps before. --small tries it all on small rows, on any device. The tests are apart: `pytest`
runs them on the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import platt_jax as pj
from benchmarks import machine, native, workloads
from benchmarks.gpu import entries
from platt_jax import inference, metrics
from platt_jax.passes import shapes

# A call is repeated so often at least, and so long: an idle card's clock is slow.
_REPEATS, _LEAST_SECONDS = 8, 0.3
_MOST_SECONDS = 4.0  # after which a call is not repeated, but for the second time
_PROFILED = 3  # calls


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.measured")
    parser.add_argument("--small", action="store_true", help="small rows: does it all run?")
    parser.add_argument("--seconds", type=int, default=480, help="after which no step begins")
    parser.add_argument("--only", nargs="+", choices=list(_STEPS), default=list(_STEPS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    args = parser.parse_args()
    start, about = time.monotonic(), machine.describe()
    name = f"gpu-{machine.slug(about['device'])}-{about['date']}.json"
    found: dict[str, Any] = {"machine": about}
    for step in args.only:
        left = args.seconds - (time.monotonic() - start)
        if left < 0:
            break
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
    """Milliseconds of every compiled program."""
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
                call = partial(entry.program, **entry.static)
                found[f"{name}, {dtype}"] = _milliseconds(call, arguments)
    return found


def choices(small: bool, left: float) -> dict[str, float]:
    """Milliseconds of `solve` on tiles with the choices for a GPU, and without each of them."""
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
        with (
            mock.patch.object(shapes, "sizes", lambda sizes=sizes: sizes),
            mock.patch.dict(os.environ, PLATT_JAX_KERNELS="none"),
        ):
            found[name] = _milliseconds(pj.solve, (scores, labels))
    jax.clear_caches()
    in_a_users_program = jax.jit(pj.solve)
    found["in a user's program, without a command buffer"] = _milliseconds(
        in_a_users_program, (scores, labels)
    )
    return found


def whole_calls(small: bool, left: float) -> dict[str, float]:
    """Seconds of whole calls from NumPy arrays, and of the transfer of the same arrays."""
    scores, labels, segments = _segments(small)

    def transfer() -> Any:
        return jax.block_until_ready(jax.device_put((scores, labels, segments)))

    def of_device() -> Any:
        return jax.block_until_ready(pj.fit(*(x.reshape(-1, 1_000) for x in there[:2])).A)

    found = {
        "rows": len(scores),
        "transfer of scores, labels and ids": _seconds(transfer),
        "fit_segments": _seconds(lambda: pj.fit_segments(scores, labels, segments)),
        "fit_segments, partial pooling": _seconds(
            lambda: pj.fit_segments(scores, labels, segments, pooling="partial")
        ),
    }
    there = transfer()
    found["fit, arrays on the device"] = _seconds(of_device)
    for pooling in ("none", "partial"):
        name = "" if pooling == "none" else ", partial pooling"
        found[f"fit_segments{name}, arrays on the device"] = _seconds(
            lambda: jax.block_until_ready(pj.fit_segments(*there, pooling=pooling).fit.A)  # noqa: B023
        )
    return found


def rooms(small: bool, left: float) -> dict[str, float]:
    """Seconds of what is computed of arrays on the device, which stay there."""
    scores, labels, segments = jax.device_put(_segments(small))
    pooled = pj.fit_segments(scores, labels, segments, pooling="partial")
    calibrator = pj.fit_segments(scores, labels, segments)
    proba = calibrator.predict_proba(scores, segments)
    few = [np.asarray(x[:10_000]) for x in (scores, labels, segments)]
    monitor = pj.Monitor.start(pooled)
    calls = {
        "predict_proba": lambda: calibrator.predict_proba(scores, segments),
        "predict_proba, partial pooling": lambda: pooled.predict_proba(scores, segments),
        "band": lambda: calibrator.band(scores, segments),
        "log_loss": lambda: metrics.log_loss(labels, proba),
        "brier_score": lambda: metrics.brier_score(labels, proba),
        "roc_auc": lambda: metrics.roc_auc(labels, scores),
        "reliability_curve": lambda: metrics.reliability_curve(labels, proba),
        "triage against the predictions": lambda: pj.triage(
            calibrator, scores, labels, segments, against="predictions"
        )["p_value"],
        "robust_covariance": lambda: (
            inference.robust_covariance(calibrator, scores, labels, segments).fit.covariance
        ),
        "estimate_rates": lambda: pj.inference.estimate_rates(calibrator, scores, segments)["rate"],
        "estimate_rates, partial pooling": lambda: pj.inference.estimate_rates(
            pooled, scores, segments, from_rate=0.4
        )["rate"],
        "estimate_means, of a pool": lambda: pj.inference.estimate_means(
            calibrator, *few, pool=scores, pool_segments=segments, probability=0.4
        )["mean"],
        "Monitor.update, partial pooling": lambda: monitor.update(scores, labels, segments).table()[
            "log_e_value"
        ],
    }
    return {
        name: _seconds(lambda: jax.block_until_ready(call()))  # noqa: B023
        for name, call in calls.items()
    }


def without_kernels(small: bool, left: float) -> dict[str, Any]:
    """Milliseconds of `solve` by the kernel and by XLA's operations, and how far they differ."""
    found = {}
    sizes = (10_000, 1_000), (100_000, 1_000), (12_500, 8_000)
    for dtype in (np.float32, np.float64):
        for problems, rows in [(x // 100, n) for x, n in sizes] if small else sizes:
            with jax.enable_x64(dtype == np.float64):
                arrays = jax.device_put(_batch(problems, rows, dtype))
                ours, by_kernel = _milliseconds(pj.solve, arrays), pj.solve(*arrays)
                with mock.patch.dict(os.environ, PLATT_JAX_KERNELS="none"):
                    without, by_xla = _milliseconds(pj.solve, arrays), pj.solve(*arrays)
                off = jnp.abs(by_kernel.A - by_xla.A) / jnp.sqrt(by_xla.covariance[..., 0, 0])
            found[f"{problems:,} x {rows:,}, {np.dtype(dtype).name}"] = {
                "by the kernel": ours,
                "by XLA's operations": without,
                "largest difference": float(jnp.max(off)),
                "equal statuses": bool(jnp.all(by_kernel.status == by_xla.status)),
            }
    return found


def _segments(small: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and segment ids, in no order: about a thousand rows of a segment."""
    rows = 100_000 if small else 100_000_000
    rng = np.random.default_rng(0)
    labels = (rng.random(rows, np.float32) < 0.4).astype(np.int8)
    scores = rng.standard_normal(rows, np.float32) + labels
    return scores, labels, rng.integers(0, rows // 1_000, rows)


def kernels(small: bool, left: float) -> dict[str, Any]:
    """The time of each kernel of some programs, by the profiler: microseconds of a call.

    Of programs without a loop: within a command buffer the profiler sees its first round only.
    """
    found = {}
    every = entries.by_kernels(np.dtype(np.float32))
    if jax.default_backend() == "cpu":  # which the profiler has no kernels of
        every = {}
    for name, entry in every.items():
        arguments = jax.device_put(entries.made_up(entry))
        call = partial(entry.program, *arguments, **entry.static)
        jax.block_until_ready(call())
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for _ in range(_PROFILED):
                    jax.block_until_ready(call())
            (file,) = Path(folder).rglob("*.xplane.pb")
            found[name] = _of_profile(jax.profiler.ProfileData.from_file(str(file)))
    return found


def _of_profile(profile: Any) -> dict[str, Any]:
    events = [
        event
        for plane in profile.planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        if line.name.startswith("Stream")
        for event in line.events
    ]
    times, counts = defaultdict(float), defaultdict(float)
    for event in events:
        times[event.name] += event.duration_ns / 1e3 / _PROFILED
        counts[event.name] += 1 / _PROFILED
    most = sorted(times, key=lambda name: -times[name])[:20]
    return {
        "all kernels": round(sum(times.values()), 1),
        "number": round(sum(counts.values()), 1),
        "longest": {name: [round(times[name], 1), round(counts[name], 1)] for name in most},
    }


def peers(small: bool, left: float) -> dict[str, Any]:
    """Seconds of LIBSVM's algorithm in C++ on all cores, and of `fit` of arrays on the device."""
    found = {}
    for problems, dtype in (10_000, np.float32), (10_000, np.float64), (100_000, np.float32):
        problems //= 100 if small else 1
        scores, labels = _batch(problems, 1_000, dtype)
        offsets = np.arange(problems + 1, dtype=np.int64) * 1_000
        at = workloads.Workload("dense", offsets, scores.ravel(), labels.ravel(), None, None)
        with jax.enable_x64(dtype == np.float64):
            there = jax.device_put((scores, labels))
            ours = _seconds(lambda: jax.block_until_ready(pj.fit(*there).A))  # noqa: B023
        theirs = _seconds(lambda: native.fit("appendix3", at))  # noqa: B023
        name = f"{problems:,} x 1,000, {np.dtype(dtype).name}"
        found[name] = {"fit, arrays on the device": ours, "LIBSVM's algorithm": theirs}
        found[name]["ratio"] = float(f"{theirs / ours:.3g}")
    return found


def large(small: bool, left: float) -> dict[str, Any]:
    """Milliseconds of `solve` of more rows than caches hold, made on the device."""
    found = {}
    for rows in (10**7, 10**8, 10**9):
        rows //= 1_000 if small else 1
        key = jax.random.key(0)
        labels = jax.random.bernoulli(key, 0.4, (rows // 1_000, 1_000)).astype(jnp.int8)
        scores = jax.random.normal(jax.random.key(1), labels.shape) + labels
        milliseconds = _milliseconds(pj.solve, (scores, labels))
        passes = float(np.mean(jax.device_get(pj.solve(scores, labels).iterations)))
        found[f"{rows:,} rows"] = {
            "milliseconds": milliseconds,
            "mean iterations": round(passes, 2),
            "GB of scores and labels": rows * 5 / 1e9,
        }
    return found


def _milliseconds(call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    return float(f"{1e3 * _seconds(lambda: jax.block_until_ready(call(*arguments))):.3g}")


def _seconds(call: Callable[[], Any]) -> float:
    """The median of the later half of some calls; the first may compile."""
    times = list(_times(call))
    return float(f"{median(times[len(times) // 2 :]):.3g}")


def _times(call: Callable[[], Any]) -> Iterator[float]:
    begin, turn = time.perf_counter(), 0
    while True:
        start = time.perf_counter()
        if turn > 1 and start > begin + _MOST_SECONDS:
            return
        if turn >= _REPEATS and start > begin + _LEAST_SECONDS:
            return
        call()
        yield time.perf_counter() - start
        turn += 1


_STEPS = {
    "agreement": agreement,
    "bits": bits,
    "choices": choices,
    "kernels": kernels,
    "large": large,
    "whole calls": whole_calls,
    "rooms": rooms,
    "peers": peers,
    "without kernels": without_kernels,
    "programs": programs,
}

if __name__ == "__main__":
    main()
