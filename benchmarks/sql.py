"""Rows in DuckDB against its own floor, and against memory: ``python -m benchmarks.sql``.

The rows are those of `rows_on_disk`, in a Parquet file. DuckDB has a limit of memory, and spills
beyond it. Its floor for a pass is ``SELECT segments, COUNT(*), SUM(scores) ... GROUP BY segments``.
Each way runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import machine, rows_on_disk
from benchmarks.rows_on_disk import COLUMNS, resident

_FLOOR = "SELECT segments, COUNT(*), SUM(scores) FROM platt_rows GROUP BY segments"
# What a pass cannot do without: the join with eight numbers of each segment, and ten sums.
_JOINED = """SELECT j, COUNT(*), SUM(a + b + c + d + e + f + g + h + scores + labels)
    FROM platt_rows JOIN segments_numbers ON segments = j GROUP BY j"""
_SUMS = f"""SELECT segments, COUNT(*), {", ".join(f"SUM(scores + {i})" for i in range(10))}
    FROM platt_rows GROUP BY segments"""
_WAYS = ("DuckDB", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql")
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000, 300_000_000])
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--memory", default="4GB", help="DuckDB's limit")
    parser.add_argument("--folder", type=Path, help="where to put the rows; about 30 bytes each")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--run", choices=_WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        found = _in_duckdb(args.folder, args.memory) if args.run == "DuckDB" else _fit(args.folder)
        print(json.dumps(found))
        return
    found = {"machine": machine.describe(), "memory limit": args.memory, "results": {}}
    for rows in args.rows:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            rows_on_disk.make(Path(folder), rows, args.segments, parquet=True)
            name = f"{rows:,} rows of {args.segments:,} segments"
            found["results"][name] = _measured(folder, args.memory)
    (args.out / "sql.json").write_text(json.dumps(found, indent=1) + "\n")


def _measured(folder, memory) -> dict:
    found = {}
    for way in _WAYS:
        command = [sys.executable, "-m", "benchmarks.sql", "--run", way, "--folder", folder]
        command += ["--memory", memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
        print(way, found[way], flush=True)
    return found


def _in_duckdb(folder, memory) -> dict:
    import duckdb

    from platt_jax import sql
    from platt_jax.sql.engines import DuckDB

    seconds = []

    class Timed(DuckDB):
        def run(self, query, points=None):
            began = time.perf_counter()
            found = super().run(query, points)
            seconds.append(time.perf_counter() - began)
            return found

    connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": str(folder)})
    relation = connection.read_parquet(str(folder / "rows.parquet"))
    rows = len(np.load(folder / "scores.npy", mmap_mode="r"))
    sql.fitting.engine_of = lambda relation, *_: Timed(relation)
    names = {"score": "scores", "label": "labels", "segment": "segments"}
    sql.fit_segments(relation.limit(10_000), **names)
    seconds.clear()
    before = _seconds(relation, _FLOOR)
    began = time.perf_counter()
    fitted = sql.fit_segments(relation, **names)
    ended = time.perf_counter()
    floor = median(before + _seconds(relation, _FLOOR))
    numbers = ", ".join(f"random() AS {name}" for name in "abcdefgh")
    ids = "(SELECT DISTINCT segments AS j FROM platt_rows)"
    relation.query("platt_rows", f"CREATE TABLE segments_numbers AS SELECT j, {numbers} FROM {ids}")
    parts = {"join and one sum": _JOINED, "ten sums": _SUMS}
    return {
        "seconds": round(ended - began, 2),
        "floor, seconds of a pass": round(floor, 3),
        "passes": len(seconds),
        "seconds of each pass": [round(x, 3) for x in seconds],
        "median pass over floor": round(median(seconds) / floor, 2),
        **{
            f"{x} over floor": round(median(_seconds(relation, parts[x])) / floor, 2) for x in parts
        },
        "rows per second of the median pass": round(rows / median(seconds)),
        "resident GiB": resident(),
        "converged": int((fitted.fit.status == 0).sum()),
    }


def _seconds(relation, query) -> list[float]:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        relation.query("platt_rows", query).to_arrow_table()
        seconds.append(time.perf_counter() - began)
    return seconds


def _fit(folder) -> dict:
    import platt_jax as pj

    columns = [np.load(folder / f"{name}.npy") for name in COLUMNS]
    pj.fit_segments(*(x[: 1 << 21] for x in columns))
    began = time.perf_counter()
    pj.fit_segments(*columns)
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 2), "resident GiB": resident()}


if __name__ == "__main__":
    main()
