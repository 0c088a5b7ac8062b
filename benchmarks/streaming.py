"""Rows on disk against rows in memory: ``python -m benchmarks.streaming --rows 30000000``.

Each way runs in a process of its own, which fits a few rows first, so that no time is compilation,
and reports the most memory it had resident. The rows are those of `rows_on_disk`, read from
memory-mapped arrays, and with --parquet from a Parquet file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import machine, rows_on_disk
from benchmarks.rows_on_disk import COLUMNS, resident


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming")
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--parquet", action="store_true", help="read a Parquet file, too")
    parser.add_argument("--folder", type=Path, help="where to put the rows; about 30 bytes each")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(_run(args.run, args.folder)))
        return
    about = machine.describe()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        found = measure(Path(folder), args.rows, args.segments, args.parquet)
    path = args.out / "streaming.json"
    rows = f"{args.rows:,} rows of {args.segments:,} segments"
    path.write_text(json.dumps({"machine": about, "results": {rows: found}}, indent=1) + "\n")


def measure(folder: Path, rows: int, segments: int, parquet: bool) -> dict:
    """What each way takes."""
    rows_on_disk.make(folder, rows, segments, parquet)
    ways = ["store arrays", "fit stored rows", "fit rows in memory"]
    ways += ["store Parquet"] if parquet else []
    found = {}
    for way in ways:
        command = [sys.executable, "-m", "benchmarks.streaming", "--run", way, "--folder", folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
        print(way, found[way], flush=True)
    stored, in_memory = found["fit stored rows"], found["fit rows in memory"]
    found["share of the speed in memory"] = {
        "grouped before": round(in_memory["seconds, grouped before"] / stored["seconds"], 2),
        "with grouping": round(in_memory["seconds, with grouping"] / stored["seconds"], 2),
    }
    found["same bits"] = stored["digest"] == in_memory["digest"]
    return found


def _run(way, folder):
    """One way, in this process."""
    import platt_jax as pj
    from platt_jax import streaming

    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in COLUMNS}
    names = {"score": "scores", "label": "labels", "segment": "segments"}
    few = {name: np.array(x[: 1 << 21]) for name, x in arrays.items()}
    pj.fit_segments(*few.values())
    with tempfile.TemporaryDirectory(dir=folder) as small:
        pj.fit_segments(streaming.rows(few, Path(small) / "rows", **names))
    before, found = resident(), {}
    rows, cache = len(arrays["scores"]), folder / "cache"
    began = time.perf_counter()
    if way == "store arrays":
        streaming.rows(arrays, cache, **names)
        found["bytes per row"] = sum(x.stat().st_size for x in cache.iterdir()) / rows
    elif way == "store Parquet":
        streaming.rows(folder / "rows.parquet", folder / "cache of Parquet", **names)
    elif way == "fit stored rows":
        found["digest"] = _digest(pj.fit_segments(streaming.StoredRows(cache)))
    else:
        in_memory = [np.array(x) for x in arrays.values()]
        began = time.perf_counter()
        made = pj.SegmentRows(*in_memory)
        grouped = time.perf_counter()
        found["digest"] = _digest(pj.fit_segments(made))
        ended = time.perf_counter()
        found["seconds, grouped before"] = round(ended - grouped, 2)
        found["seconds, with grouping"] = round(ended - began, 2)
        found["rows per second, grouped before"] = round(rows / (ended - grouped))
    seconds = time.perf_counter() - began
    return {
        "seconds": round(seconds, 2),
        "rows per second": round(rows / seconds),
        "resident GiB": resident(),
        "resident GiB before": before,
        **found,
    }


def _digest(calibrator):
    """Text that fits of other bits do not share."""
    import hashlib

    numbers = (calibrator.fit.A, calibrator.fit.hessian, calibrator.fallback.A)
    return hashlib.blake2b(b"".join(np.asarray(x).tobytes() for x in numbers)).hexdigest()[:16]


if __name__ == "__main__":
    main()
