"""When tasks of a fit work and wait: ``python -m benchmarks.cluster_timeline``.

Needs the extra `dask`. Nine rows in ten are of one segment. Two processes of Dask fit the rows with
that segment dealt out to both, and without: then one of them has all its rows. Each way is called
three times, in turns; the median call is drawn.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import machine
from benchmarks.cluster import NAMES, in_dask, write_rows
from platt_jax import cluster
from platt_jax.cluster import fitting, meeting

_RESULTS = Path(__file__).parent / "results"
_WAYS = {"dealt out to both tasks": fitting._LARGE, "all its rows in one task": np.inf}
_CALLS = 3
_COLORS = {
    "sample ids": "#cfe3cf",
    "read and divide": "#9dbfd8",
    "bring together": "#e8cf8f",
    "fit": "#4c78a8",
    "wait for the other": "#e4e4e4",
}
_SHORTEST = 0.005  # seconds
_DIVIDES = "assign"  # in the keys of the tasks that Dask fuses with `_divided`


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_timeline")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=_RESULTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        write_rows(file, args.rows, args.segments, share=0.9)
        with in_dask(str(file)) as (rows, _):
            ways = measure(rows)
    found = {"machine": machine.describe(), "rows": args.rows, "ways": ways}
    (args.out / "cluster_timeline.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(ways, args.out / "cluster_timeline.png")


def measure(rows: Any) -> dict:
    """Of each way the seconds of all calls, and the tasks and waits of the median call."""
    from distributed import get_client, get_task_stream

    client = get_client()
    client.run(_record_waits)
    calls: dict[str, list] = {way: [] for way in _WAYS}
    for number in range(_CALLS + 1):
        for way, large in _WAYS.items():
            fitting._LARGE = large
            began = time.time()
            with get_task_stream(client) as stream:
                cluster.fit_segments(rows, **NAMES)
            seconds = round(time.time() - began, 2)
            waits = client.run(_waits)
            print(way, seconds, flush=True)
            if number:  # the first call compiles
                calls[way].append((seconds, _bars(stream.data, waits, began)))
    return {
        way: {
            "seconds": [seconds for seconds, _ in each],
            "workers": sorted(each, key=lambda call: call[0])[len(each) // 2][1],
        }
        for way, each in calls.items()
    }


def _record_waits(dask_worker: Any) -> None:
    """Lets a worker note when its tasks wait for others, or talk to them."""
    gather, dask_worker.waits = meeting.GatherClient.__call__, []

    def timed(*arguments: Any) -> list[bytes]:
        began = time.time()
        try:
            return gather(*arguments)
        finally:
            dask_worker.waits.append((began, time.time()))

    meeting.GatherClient.__call__ = timed  # type: ignore[method-assign]


def _waits(dask_worker: Any) -> list[tuple[float, float]]:
    found, dask_worker.waits[:] = list(dask_worker.waits), []
    return found


def _bars(tasks: Any, waits: dict, zero: float) -> list[list]:
    """For each worker what it does, from when to when, in seconds after the beginning."""
    of_workers: dict[str, list] = {worker: [] for worker in sorted(waits)}
    divided = min(x["startstops"][0]["start"] for x in tasks if _DIVIDES in str(x["key"]))
    for task in tasks:
        for part in task["startstops"]:
            name = "sample ids" if part["start"] < divided else _name(str(task["key"]))
            of_workers[task["worker"]].append((name, part["start"], part["stop"]))
    for worker, each in waits.items():
        of_workers[worker] += [("wait for the other", *wait) for wait in each]
    return [
        [(n, round(a - zero, 3), round(b - zero, 3)) for n, a, b in bars if b - a > _SHORTEST]
        for bars in of_workers.values()
    ]


def _name(key: str) -> str:
    """What a task does after the sample."""
    if "_fit" in key:
        return "fit"
    return "read and divide" if _DIVIDES in key else "bring together"


def draw(ways: dict, path: Path) -> None:
    """A line of bars for each worker."""
    figure, axes = plt.subplots(len(ways), sharex=True, figsize=(9, 3.6), layout="constrained")
    for ax, (way, found) in zip(axes, ways.items(), strict=True):
        for line, bars in enumerate(found["workers"]):
            for name in _COLORS:
                spans = [(begin, end - begin) for kind, begin, end in bars if kind == name]
                label = name if line == 0 and ax is axes[0] else None
                ax.broken_barh(spans, (line - 0.35, 0.7), color=_COLORS[name], label=label)
        ax.set_yticks(range(len(found["workers"])), ["process 1", "process 2"])
        ax.invert_yaxis()
        ax.set_title(f"The segment with nine rows in ten: {way}", loc="left", fontsize=10)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
    axes[-1].set_xlabel("seconds after the call of fit_segments")
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
