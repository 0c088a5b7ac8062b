"""Fits by several processes and on several devices of this machine: ``python -m benchmarks.hosts``.

The devices are virtual ones of the CPU. Each process or device has a core to itself, as long as
there are cores. Strong scaling: as many rows for all; weak scaling: as many rows for each.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import machine

_REPEATS = 5
_CORES = sorted(os.sched_getaffinity(0))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts", description=__doc__)
    parser.add_argument("--rows", type=int, default=32_000_000)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        way, *numbers = args.run
        print(json.dumps(_WAYS[way](*map(int, numbers))))
        return
    found: dict[str, Any] = {"machine": machine.describe(), "segments": args.segments}
    for way, start in (("processes", _processes), ("devices", _devices)):
        for scaling in ("strong", "weak"):
            here = found.setdefault(way, {})[scaling] = []
            for count in args.counts:
                rows = args.rows if scaling == "weak" else args.rows // count
                of_each = start(count, rows, args.segments)
                here.append({"count": count, "rows of each": rows, **of_each})
                print(way, scaling, here[-1], flush=True)
    (args.out / "hosts.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, args.out / "hosts.png")


def _processes(count: int, rows: int, segments: int) -> dict:
    """What the first of so many processes measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = [
        _begin("process", i, count, port, rows, segments, cores=[_CORES[i % len(_CORES)]])
        for i in range(count)
    ]
    first, *_ = [_ended(process) for process in begun]
    return first


def _devices(count: int, rows: int, segments: int) -> dict:
    flag = f"--xla_force_host_platform_device_count={count}"
    return _ended(_begin("mesh", count, rows, segments, cores=_CORES[:count], XLA_FLAGS=flag))


def _begin(way, *numbers, cores, **environment):
    # From its beginning: XLA asks only once which cores it may use.
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-m", "benchmarks.hosts"]
    command += ["--run", way, *map(str, numbers)]
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )


def _ended(process) -> dict:
    written, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    return json.loads(written.splitlines()[-1])


def _rows(number: int, rows: int, segments: int):
    random = np.random.default_rng(number)
    s = random.integers(0, segments, rows).astype(np.int32)
    f = random.standard_normal(rows, np.float32)
    return f, (random.random(rows, np.float32) < 1 / (1 + np.exp(-f))).astype(np.int8), s


def _process(number: int, count: int, port: int, rows: int, segments: int) -> dict:
    """One of the processes: its fits, and how long it waited for the others' sums."""
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", count, number)
    import platt_jax as pj
    from platt_jax import distributed
    from platt_jax.distributed.exchange import Exchange

    waits, in_time = [], Exchange._in_time

    def timed(exchange, work):
        began = time.perf_counter()
        made = in_time(exchange, work)
        waits.append(time.perf_counter() - began)
        return made

    mine = _rows(number, rows, segments)
    pj.fit_segments(distributed.rows(*mine))
    Exchange._in_time = timed
    whole = []
    for _ in range(_REPEATS):
        waits.clear()
        began = time.perf_counter()
        pj.fit_segments(distributed.rows(*mine))
        whole.append((time.perf_counter() - began, sum(waits)))
    Exchange._in_time = in_time
    alone = _bare_exchange(Exchange(None), segments)
    seconds, waited = sorted(whole)[_REPEATS // 2]
    return {
        "seconds": round(seconds, 3),
        "exchanges": len(waits),
        "share of the exchanges": round(waited / seconds, 3),
        "milliseconds of five sums by themselves": round(1e3 * alone, 2),
    }


def _bare_exchange(exchange, segments: int) -> float:
    """Seconds to add up five sums of each segment, where nobody is late."""
    sums, seconds = np.zeros((5, segments)), []
    for _ in range(20):
        began = time.perf_counter()
        exchange.merged(sums, "sum")
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def _mesh(count: int, rows: int, segments: int) -> dict:
    """Rows of all devices in one process, fitted by problems over devices."""
    import jax
    from jax.sharding import Mesh

    import platt_jax as pj

    mesh = Mesh(np.array(jax.devices()), ("problems",))
    grouped = pj.SegmentRows(*_rows(0, count * rows, segments))
    return {
        "seconds": _median(lambda: pj.fit_segments(grouped, mesh=mesh)),
        "seconds without a mesh": _median(lambda: pj.fit_segments(grouped)),
    }


def _median(call: Callable) -> float:
    call()
    seconds = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return round(median(seconds), 3)


_WAYS: dict[str, Callable[..., dict]] = {"process": _process, "mesh": _mesh}


def draw(found: dict, path: Path) -> None:
    """Speed over that of one, and the share of the exchanges."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for ax, way in zip(axes, ("processes", "devices"), strict=False):
        for scaling, color in (("strong", "#1f4e79"), ("weak", "#d1701f")):
            points = found[way][scaling]
            speed = [p["count"] * p["rows of each"] / p["seconds"] for p in points]
            ax.plot(
                [p["count"] for p in points],
                [x / speed[0] for x in speed],
                "o-",
                color=color,
                label=f"{scaling} scaling",
            )
        counts = [p["count"] for p in found[way]["strong"]]
        cores = found["machine"]["cores"]
        ideal = [min(n, cores) for n in counts]
        ax.plot(counts, ideal, "--", color="0.6", label=f"ideal on {cores} cores")
        ax.set(xticks=counts, xlabel=way, ylabel="rows per second, over those of one")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
    for scaling, color in (("strong", "#1f4e79"), ("weak", "#d1701f")):
        points = found["processes"][scaling]
        counts = [p["count"] for p in points]
        y = [100 * p["share of the exchanges"] for p in points]
        axes[2].plot(counts, y, "o-", color=color, label=f"{scaling} scaling")
    axes[2].set(xticks=counts, xlabel="processes", ylabel="exchanges and waiting, % of the time")
    axes[2].set_ylim(bottom=0)
    axes[2].legend(frameon=False)
    for ax in axes:
        ax.grid(axis="y", alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
