"""Fits in Spark's tasks: ``python -m benchmarks.cluster --rows 20000000 --segments 100000``.

Needs the extra `spark`, and Java. Rows are in a Parquet file; sizes of segments are log-normal.
`local[2]` with 4 GB. Beside the fits is the engine's floor: the same shuffle, followed by a map
that only counts rows. Each is called twice; the first call starts workers and compiles. The peak
of the driver's memory is that of its Python process. `--sql` adds `platt_jax.sql.fit_segments`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import machine
from platt_jax import cluster, sql

_RESULTS = Path(__file__).parent / "results"
_NAMES = {"score": "f", "label": "y", "segment": "s"}
_SIGMA = 1.0
_AT_ONCE = 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--sql", action="store_true")
    parser.add_argument("--out", type=Path, default=_RESULTS / "cluster.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        write_rows(file, args.rows, args.segments)
        found = measure(file, args.sql)
    of_all = json.loads(args.out.read_text()) if args.out.exists() else {"results": []}
    key = {"rows": args.rows, "segments": args.segments}
    others = [x for x in of_all["results"] if {name: x[name] for name in key} != key]
    of_all = {"machine": machine.describe(), "results": [*others, {**key, **found}]}
    args.out.write_text(json.dumps(of_all, indent=1) + "\n")


def write_rows(file: Path, rows: int, segments: int) -> None:
    """Float32 scores, labels and ids."""
    rng = np.random.default_rng(0)
    share = np.cumsum(rng.lognormal(0, _SIGMA, segments))
    A, B = 1 + 0.4 * rng.normal(size=segments), -1 + 0.7 * rng.normal(size=segments)
    schema = pa.schema({"f": pa.float32(), "y": pa.bool_(), "s": pa.int64()})
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(0, rows, _AT_ONCE):
            number = min(_AT_ONCE, rows - first)
            s = np.searchsorted(share, share[-1] * rng.random(number))
            f = rng.normal(size=number)
            y = rng.random(number) < 1 / (1 + np.exp(-A[s] * f - B[s]))
            writer.write_table(pa.table([f.astype(np.float32), y, s], schema=schema))


def measure(file: Path, with_sql: bool) -> dict:
    """Seconds of the first and of the second call."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = session.read.parquet(str(file))

    def counted(batches):
        yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], ["n"])

    def floor():
        counts = rows.repartition(2, "s").mapInArrow(counted, "n long")
        return counts.agg(F.sum("n")).collect()[0][0]

    calls = {
        "shuffle and count": floor,
        "none": lambda: cluster.fit_segments(rows, **_NAMES),
        "partial": lambda: cluster.fit_segments(rows, **_NAMES, pooling="partial"),
    }
    if with_sql:
        calls["sql.fit_segments"] = lambda: sql.fit_segments(rows, **_NAMES)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    fitted = None
    for _ in range(2):
        for name, call in calls.items():
            began = time.perf_counter()
            made = call()
            seconds[name].append(round(time.perf_counter() - began, 1))
            fitted = made if name == "partial" else fitted
            print(name, seconds[name][-1], flush=True)
    began = time.perf_counter()
    mean = fitted.predict(rows).agg(F.avg("probability")).collect()[0][0]
    found = {
        "seconds": seconds,
        "predict": round(time.perf_counter() - began, 1),
        "mean probability": round(mean, 5),
        "statuses": fitted.summary()["statuses"],
        "driver's peak, GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    session.stop()
    print(found, flush=True)
    return found


if __name__ == "__main__":
    main()
