"""Parts in processes of this machine, for rows in memory."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from platt_jax.cluster.engines import (
    FitPart,
    JoinPart,
    MapPart,
    MapTable,
    adds_columns,
    meet,
    parts_of_rows,
)
from platt_jax.cluster.meeting import Alone, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_HOST = "127.0.0.1"
_TRIES = 3  # how often parts run whose process dies


def as_table(rows: Any) -> pa.Table:
    """A frame in memory as an Arrow table; pyarrow cannot take rows of polars' type of text."""
    table = pa.table(rows)
    plain_types = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}
    fields = [x.with_type(plain_types.get(str(x.type), x.type)) for x in table.schema]
    return table.cast(pa.schema(fields))


class Local:
    """See `engines.Engine`. Rows are frames in memory, and results stay in this process.

    Each part has a process of its own; a single one needs none.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def schema(self, rows: Any) -> pa.Schema:
        """See `Engine`."""
        return as_table(rows).schema

    def select(self, rows: pa.Table, columns: list[str]) -> pa.Table:
        """See `Engine`."""
        return rows.select(columns)

    def collect(self, rows: pa.Table, columns: list[str], most: int | None = None) -> pa.Table:
        """See `Engine`."""
        chosen = rows.select(columns)
        if most is None or rows.num_rows <= most:
            return chosen
        return chosen.take(pa.array(np.random.default_rng(0).integers(0, rows.num_rows, most)))

    def fit(self, rows: pa.Table, names: EngineColumns, task: FitPart) -> list[FittedPart]:
        """See `Engine`."""
        if self.partitions == 1:
            return [task(rows, Alone(), 0)]
        tables = [rows.take(pa.array(indices)) for indices in self._split(rows, names)]
        for tries in range(1, _TRIES + 1):
            with (
                closing(Server(self.partitions, _HOST)) as server,
                ProcessPoolExecutor(self.partitions, multiprocessing.get_context("spawn")) as pool,
            ):
                met = partial(meet, task, server.invitation)
                running = [pool.submit(met, part, table) for part, table in enumerate(tables)]
                # A pool watches a process that it starts only from the next call on.
                pool.submit(int)
                try:
                    for future in as_completed(running):
                        future.result()  # the first error ends the others
                    return [future.result() for future in running]
                except BrokenProcessPool:
                    if tries == _TRIES:
                        raise
                finally:
                    server.close()
        raise AssertionError

    def results(self, fitted: list[FittedPart], field: str) -> list[bytes]:
        """See `Engine`."""
        return [getattr(part, field) for part in fitted]

    def map(self, fitted: list[FittedPart], task: MapPart, schema: pa.Schema) -> pa.Table:
        """See `Engine`."""
        return pa.concat_tables([task(part.calibrator) for part in fitted])

    def join(
        self,
        fitted: list[FittedPart],
        rows: Any,
        names: EngineColumns,
        task: JoinPart,
        schema: pa.Schema,
    ) -> pa.Table:
        """See `Engine`. Rows that gain columns stay in their order."""
        rows = as_table(rows)
        split = self._split(rows, names)
        table = pa.concat_tables(
            task(part.calibrator, rows.take(pa.array(indices)))
            for part, indices in zip(fitted, split, strict=True)
        )
        if not adds_columns(rows.schema, schema):
            return table
        return table.take(pa.array(np.argsort(np.concatenate(split), kind="stable")))

    def kept(self, table: pa.Table) -> pa.Table:
        """See `Engine`."""
        return table

    def with_column(self, table: pa.Table, task: MapTable, schema: pa.Schema) -> pa.Table:
        """See `Engine`."""
        return task(table)

    def write_parquet(self, table: pa.Table, path: str) -> None:
        """See `Engine`."""
        pq.write_to_dataset(table, path)

    def _split(self, rows: pa.Table, names: EngineColumns) -> list[NDArray[np.intp]]:
        """The places of each part's rows; rows of large segments are dealt out in turn."""
        part = parts_of_rows(rows, names, self.partitions)
        return [np.flatnonzero(part == number) for number in range(self.partitions)]
