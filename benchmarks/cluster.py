"""Fits in an engine's tasks: ``python -m benchmarks.cluster --rows 20000000 --segments 100000``.

Needs the extra `spark`, and Java; `--engine dask` and `--engine ray` need theirs. Rows are in a
Parquet file; sizes of segments are log-normal. Spark has `local[2]` and 4 GB, Dask two processes of
a thread, Ray two CPUs. Beside the fits is the engine's floor: the same shuffle, followed by a map
that only counts rows. Each is called several times; the first call starts workers and compiles. The
peak of the driver's memory is that of its Python process. `--sql` adds `platt_jax.sql.rows`
(one call, in Spark). `--skew` puts nine rows in ten into one segment, and gives the seconds of fits
in Spark and of their two tasks, with that segment dealt out to both and without.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import platt_jax as pj
from benchmarks import machine
from platt_jax import cluster, sql
from platt_jax.cluster import fitting

_RESULTS = Path(__file__).parent / "results"
NAMES = {"score": "f", "label": "y", "segment": "s"}
_SIGMA = 1.0
_AT_ONCE = 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--engine", choices=ENGINES, default="spark")
    parser.add_argument("--calls", type=int, default=2)
    parser.add_argument("--sql", action="store_true")
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--out", type=Path, default=_RESULTS / "cluster.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        write_rows(file, args.rows, args.segments, share=0.9 if args.skew else 0)
        with ENGINES[args.engine](str(file)) as (rows, floor):
            found = tasks(rows) if args.skew else measure(rows, floor, args.calls, args.sql)
    print(found, flush=True)
    of_all = json.loads(args.out.read_text()) if args.out.exists() else {"results": []}
    key = {name: getattr(args, name) for name in ("engine", "rows", "segments", "skew")}
    others = [x for x in of_all["results"] if {name: x[name] for name in key} != key]
    of_all = {"machine": machine.describe(), "results": [*others, {**key, **found}]}
    args.out.write_text(json.dumps(of_all, indent=1) + "\n")


def write_rows(file: Path, rows: int, segments: int, share: float = 0) -> None:
    """Float32 scores, labels and ids; a share of the rows is of segment 0."""
    rng = np.random.default_rng(0)
    ends = np.cumsum(rng.lognormal(0, _SIGMA, segments))
    A, B = 1 + 0.4 * rng.normal(size=segments), -1 + 0.7 * rng.normal(size=segments)
    schema = pa.schema({"f": pa.float32(), "y": pa.bool_(), "s": pa.int64()})
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(0, rows, _AT_ONCE):
            number = min(_AT_ONCE, rows - first)
            s = np.searchsorted(ends, ends[-1] * rng.random(number))
            s[rng.random(number) < share] = 0
            f = rng.normal(size=number)
            y = rng.random(number) < 1 / (1 + np.exp(-A[s] * f - B[s]))
            writer.write_table(pa.table([f.astype(np.float32), y, s], schema=schema))


@contextmanager
def in_spark(file: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """The rows, and a function that shuffles and counts them; Spark's interface times its tasks."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = session.read.parquet(file)

    def counted(batches):
        yield pa.record_batch([pa.array([sum(batch.num_rows for batch in batches)])], ["n"])

    def floor():
        counts = rows.repartition(2, "s").mapInArrow(counted, "n long")
        return counts.agg(F.sum("n")).collect()

    yield rows, floor
    session.stop()


@contextmanager
def in_dask(file: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """The same in Dask."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1) as workers, Client(workers):
        rows = dd.read_parquet(file, split_row_groups=True)
        yield rows, lambda: rows.shuffle("s", npartitions=2).map_partitions(len).compute().sum()


@contextmanager
def in_ray(file: str) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """The same in Ray."""
    import ray

    def counted(rows):
        return {"n": [len(rows["s"])]}

    ray.init(num_cpus=2, include_dashboard=False)
    rows = ray.data.read_parquet(file)
    together = rows.repartition(2, keys=["s"])
    yield rows, lambda: together.map_batches(counted, batch_size=None).sum("n")
    ray.shutdown()


ENGINES = {"spark": in_spark, "dask": in_dask, "ray": in_ray}


def measure(rows: Any, floor: Callable[[], Any], number: int, with_sql: bool) -> dict:
    """Seconds of each call."""

    def partial():
        return cluster.fit_segments(rows, **NAMES, pooling="partial")

    calls = {
        "shuffle and count": floor,
        "none": lambda: cluster.fit_segments(rows, **NAMES),
        "partial": partial,
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(number):
        for name, call in calls.items():
            seconds[name].append(_timed(name, call)[0])
    if with_sql:
        of_sql, _ = _timed("sql.rows", lambda: pj.fit_segments(sql.rows(rows, **NAMES)))
        seconds["sql.rows"] = [of_sql]
    fitted = partial()
    predict, mean = _timed("predict", lambda: _mean(fitted.predict(rows)))
    return {
        "seconds": seconds,
        "predict": predict,
        "mean probability": round(mean, 5),
        "statuses": fitted.summary()["statuses"],
        "driver's peak, GiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def _mean(predicted: Any) -> float:
    """Of the probabilities, in any engine."""
    if hasattr(predicted, "sparkSession"):
        return predicted.agg({"probability": "avg"}).collect()[0][0]
    if hasattr(predicted, "compute"):
        return predicted["probability"].mean().compute()
    return predicted.mean("probability")


def tasks(rows: Any) -> dict:
    """Seconds of fits and of each of their tasks, with a large segment dealt out and not."""
    cases = {"dealt out": fitting._LARGE, "not dealt out": np.inf}
    found: dict[str, dict[str, list]] = {name: {"calls": [], "tasks": []} for name in cases}
    cluster.fit_segments(rows, **NAMES)  # compiles
    for name, large in 2 * list(cases.items()):
        fitting._LARGE = large
        seconds, _ = _timed(name, lambda: cluster.fit_segments(rows, **NAMES))
        found[name]["calls"].append(seconds)
        found[name]["tasks"].append(_seconds_of_tasks(rows.sparkSession))
    return found


def _seconds_of_tasks(session: Any) -> list[float]:
    """Of the stage of the last fit."""
    context = session.sparkContext
    stages = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"

    def read(url: str) -> Any:
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)

    both = ("shuffleReadRecords", "shuffleWriteRecords")  # of the rows, and of the results
    fits = [x for x in read(f"{stages}?status=complete") if all(x[name] for name in both)]
    stage = max(fits, key=lambda x: x["stageId"])
    found = read(f"{stages}/{stage['stageId']}/{stage['attemptId']}/taskList")
    return [round(x["duration"] / 1000, 1) for x in found]


def _timed(name: str, call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    made = call()
    seconds = round(time.perf_counter() - began, 1)
    print(name, seconds, flush=True)
    return seconds, made


if __name__ == "__main__":
    main()
