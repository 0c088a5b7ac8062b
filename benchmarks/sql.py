"""Rows in an engine against its own floor, and against memory: ``python -m benchmarks.sql``.

The rows are those of `rows_on_disk`, in a Parquet file. DuckDB has a limit of memory, and spills
beyond it; so has Spark, which runs in threads of one process. The floor for a pass is
``SELECT segments, COUNT(*), SUM(scores) ... GROUP BY segments``. Each way runs in a process of its
own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks import machine, rows_on_disk
from benchmarks.rows_on_disk import COLUMNS, resident

_FLOOR = "SELECT segments, COUNT(*) AS n, SUM(scores) AS s FROM platt_jax_rows GROUP BY segments"
# What a pass cannot do without: the join with six numbers of each segment, and ten sums.
_PRODUCTS = [("scores", x) for x in "abcdef"] + [("labels", x) for x in "abcd"]
_TEN = ", ".join(f"SUM({x} * {y}) AS {x}_{y}" for x, y in _PRODUCTS)
_SUMS = f"""SELECT j, COUNT(*) AS n, {_TEN}
    FROM platt_jax_rows JOIN platt_jax_points ON segments = j GROUP BY j"""
_WAYS = ("DuckDB", "memory", "SparkSQL")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql")
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000, 300_000_000])
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--memory", default="4GB", help="of DuckDB, or of Spark's driver")
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=_WAYS[:2])
    parser.add_argument("--folder", type=Path, help="where to put the rows; about 30 bytes each")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--run", choices=_WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(_RUNS[args.run](args.folder, args.memory)))
        return
    found = {"machine": machine.describe(), "memory limit": args.memory, "results": {}}
    for rows in args.rows:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            rows_on_disk.make(Path(folder), rows, args.segments, parquet=True)
            name = f"{rows:,} rows of {args.segments:,} segments"
            found["results"][name] = _measured(folder, args.memory, args.ways)
    name = "spark.json" if "SparkSQL" in args.ways else "sql.json"
    (args.out / name).write_text(json.dumps(found, indent=1) + "\n")


def _measured(folder, memory, ways) -> dict:
    found = {}
    for way in ways:
        command = [sys.executable, "-m", "benchmarks.sql", "--run", way, "--folder", folder]
        command += ["--memory", memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
        print(way, found[way], flush=True)
    return found


def _in_duckdb(folder, memory) -> dict:
    import duckdb

    from platt_jax.sql.engines import DuckDB

    connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": str(folder)})
    return _in_engine(folder, connection.read_parquet(str(folder / "rows.parquet")), DuckDB)


def _in_spark(folder, memory) -> dict:
    from pyspark.sql import SparkSession

    from platt_jax.sql.engines import SparkSQL

    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]")
    for name, value in (
        ("spark.driver.memory", memory.removesuffix("B")),
        ("spark.local.dir", str(folder)),
        ("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1))),
        ("spark.ui.enabled", "false"),
    ):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    return _in_engine(folder, session.read.parquet(str(folder / "rows.parquet")), SparkSQL)


def _in_engine(folder, relation, engine) -> dict:
    import platt_jax as pj
    from platt_jax import sql
    from platt_jax.sql import relation_rows

    seconds = []

    class Timed(engine):
        def run(self, query, points=None):
            began = time.perf_counter()
            found = super().run(query, points)
            seconds.append(time.perf_counter() - began)
            return found

    relation_rows.engine_of = lambda relation, *_: Timed(relation)
    names = {"score": "scores", "label": "labels", "segment": "segments"}
    pj.fit_segments(sql.rows(relation.limit(10_000), **names))
    numbers = np.load(folder / "scores.npy", mmap_mode="r")
    ids = np.unique(np.load(folder / "segments.npy", mmap_mode="r"))
    points = pa.table(
        {"j": ids, **{name: np.array(numbers[: len(ids)], float) for name in "abcdef"}}
    )
    timed = Timed(relation)

    def parts(query, points=None):
        seconds.clear()
        for _ in range(3):
            timed.run(query, points)
        return list(seconds)

    floor = parts(_FLOOR)
    seconds.clear()
    began = time.perf_counter()
    fitted = pj.fit_segments(sql.rows(relation, **names))
    ended = time.perf_counter()
    passes = list(seconds)
    floor = median(floor + parts(_FLOOR))
    over_floor = {
        "median pass": median(passes),
        "join and ten sums": median(parts(_SUMS, points)),
    }
    return {
        "seconds": round(ended - began, 2),
        "floor, seconds of a pass": round(floor, 3),
        "passes": len(passes),
        "seconds of each pass": [round(x, 3) for x in passes],
        **{f"{name} over floor": round(x / floor, 2) for name, x in over_floor.items()},
        "rows per second of the median pass": round(len(numbers) / median(passes)),
        "resident GiB": resident(),
        "converged": int((fitted.fit.status == 0).sum()),
    }


def _in_memory(folder, memory) -> dict:
    import platt_jax as pj

    columns = [np.load(folder / f"{name}.npy") for name in COLUMNS]
    pj.fit_segments(*(x[: 1 << 21] for x in columns))
    began = time.perf_counter()
    pj.fit_segments(*columns)
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 2), "resident GiB": resident()}


_RUNS = dict(zip(_WAYS, (_in_duckdb, _in_memory, _in_spark), strict=True))

if __name__ == "__main__":
    main()
