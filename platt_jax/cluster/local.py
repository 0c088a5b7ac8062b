"""Parts in processes of this machine, for rows in memory."""

import multiprocessing
import secrets
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from platt_jax.cluster.engines import FitPart, adds_columns, parts_of_rows
from platt_jax.cluster.meeting import GatherClient, Server, alone
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_HOST = "127.0.0.1"
_TRIES = 3  # how often parts run whose process dies


class Local:
    """See `engines.Engine`. Rows are Arrow tables, and results stay in this process.

    Args:
        partitions: number of parts, each with a process of its own; a single one needs none.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def schema(self, rows: pa.Table) -> pa.Schema:
        """See `Engine`."""
        return rows.schema

    def select(self, rows: pa.Table, columns: list[str]) -> pa.Table:
        """See `Engine`."""
        return rows.select(columns)

    def sample(self, rows: pa.Table, columns: list[str], number: int) -> pa.Table:
        """See `Engine`."""
        rng = np.random.default_rng(0)
        some = rng.integers(0, max(rows.num_rows, 1), min(number, rows.num_rows))
        return rows.select(columns).take(pa.array(some))

    def fit(
        self, rows: pa.Table, names: EngineColumns, large: NDArray[Any], task: FitPart
    ) -> list[FittedPart]:
        """See `Engine`."""
        if self.partitions == 1:
            return [task(rows, alone, 0)]
        tables = [rows.take(pa.array(some)) for some in self._split(rows, names, large)]
        spawn, key = multiprocessing.get_context("spawn"), secrets.token_bytes()
        for tries in range(1, _TRIES + 1):
            with (
                closing(Server(self.partitions, _HOST, key)) as server,
                ProcessPoolExecutor(self.partitions, spawn) as pool,
            ):
                meet = partial(_fit, task, (_HOST, server.port), key, self.partitions)
                running = [pool.submit(meet, part, table) for part, table in enumerate(tables)]
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

    def summaries(self, fitted: list[FittedPart]) -> list[bytes]:
        """See `Engine`."""
        return [part.summary for part in fitted]

    def calibrators(self, fitted: list[FittedPart]) -> list[bytes]:
        """See `Engine`."""
        return [part.calibrator for part in fitted]

    def map(
        self, fitted: list[FittedPart], task: Callable[[bytes], pa.Table], schema: pa.Schema
    ) -> pa.Table:
        """See `Engine`."""
        return pa.concat_tables([task(part.calibrator).cast(schema) for part in fitted])

    def join(
        self,
        fitted: list[FittedPart],
        rows: pa.Table,
        names: EngineColumns,
        large: NDArray[Any],
        task: Callable[[bytes, pa.Table], pa.Table],
        schema: pa.Schema,
    ) -> pa.Table:
        """See `Engine`. Rows that gain columns stay in their order."""
        split = self._split(rows, names, large)
        made = [
            task(part.calibrator, rows.take(pa.array(some)))
            for part, some in zip(fitted, split, strict=True)
        ]
        table = pa.concat_tables(made).cast(schema)
        if not adds_columns(rows.schema, schema):
            return table
        back = np.argsort(np.concatenate(split), kind="stable")
        return table.take(pa.array(back))

    def kept(self, table: pa.Table) -> pa.Table:
        """See `Engine`."""
        return table

    def numbers(self, table: pa.Table, column: str) -> NDArray[np.float64]:
        """See `Engine`."""
        return table[column].to_numpy()

    def with_column(
        self, table: pa.Table, task: Callable[[pa.Table], pa.Table], schema: pa.Schema
    ) -> pa.Table:
        """See `Engine`."""
        return task(table).cast(schema)

    def write_parquet(self, table: pa.Table, path: str) -> None:
        """See `Engine`."""
        pq.write_to_dataset(table, path)

    def _split(
        self, rows: pa.Table, names: EngineColumns, large: NDArray[Any]
    ) -> list[NDArray[np.intp]]:
        """The places of each part's rows; rows of large segments are dealt out in turn."""
        part = parts_of_rows(rows, names.segment, large, self.partitions)
        return [np.flatnonzero(part == number) for number in range(self.partitions)]


def _fit(
    task: FitPart, address: tuple[str, int], key: bytes, parts: int, part: int, table: pa.Table
) -> FittedPart:
    with GatherClient(address, key, part, parts) as gather:
        return task(table, gather, part)
