"""Parts in processes of this machine, for rows in memory."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from platt_jax.cluster.engines import FitPart, parts_of
from platt_jax.cluster.meeting import AtCoordinator, Coordinator
from platt_jax.cluster.tasks import FittedPart, Names, places, read_ids

_TRIES = 3  # how often parts run whose process dies


class Local:
    """See `engines.Engine`. Rows are Arrow tables, and results stay in this process.

    Args:
        partitions: number of parts, each with a process of its own.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def schema(self, rows: pa.Table) -> pa.Schema:
        """See `Engine`."""
        return rows.schema

    def sample(self, rows: pa.Table, columns: list[str], number: int) -> pa.Table:
        """See `Engine`."""
        rng = np.random.default_rng(0)
        some = rng.integers(0, max(rows.num_rows, 1), min(number, rows.num_rows))
        return rows.select(columns).take(pa.array(some))

    def fit(
        self, rows: pa.Table, names: Names, large: NDArray[Any], task: FitPart
    ) -> list[FittedPart]:
        """See `Engine`."""
        tables = [rows.take(pa.array(some)) for some in self._split(rows, names, large)]
        spawn = multiprocessing.get_context("spawn")
        with _Manager(ctx=spawn) as manager:
            # It outlives the processes, so that a part that runs again gets the same answers.
            coordinator: Any = manager.Coordinator(self.partitions)  # type: ignore[attr-defined]
            for tries in range(1, _TRIES + 1):
                with ProcessPoolExecutor(self.partitions, spawn) as pool:
                    running = [
                        pool.submit(_fit, task, table, coordinator, part)
                        for part, table in enumerate(tables)
                    ]
                    try:
                        return [part.result() for part in running]
                    except BrokenProcessPool:
                        if tries == _TRIES:
                            raise
                    except BaseException:
                        coordinator.stop()
                        raise
        raise AssertionError

    def summaries(self, fitted: list[FittedPart]) -> list[bytes]:
        """See `Engine`."""
        return [part.summary for part in fitted]

    def calibrators(self, fitted: list[FittedPart]) -> list[bytes]:
        """See `Engine`."""
        return [part.calibrator for part in fitted]

    def map(self, fitted: list[FittedPart], task: Callable[[bytes], pa.Table]) -> pa.Table:
        """See `Engine`."""
        return pa.concat_tables([task(part.calibrator) for part in fitted])

    def join(
        self,
        fitted: list[FittedPart],
        rows: pa.Table,
        names: Names,
        large: NDArray[Any],
        task: Callable[[bytes, pa.Table], pa.Table],
        schema: pa.Schema,
    ) -> pa.Table:
        """See `Engine`. The rows stay in their order."""
        split = self._split(rows, names, large)
        made = [
            task(part.calibrator, rows.take(pa.array(some)))
            for part, some in zip(fitted, split, strict=True)
        ]
        back = np.argsort(np.concatenate(split), kind="stable")
        return pa.concat_tables(made).cast(schema).take(pa.array(back))

    def write_parquet(self, table: pa.Table, path: str) -> None:
        """See `Engine`."""
        pq.write_to_dataset(table, path)

    def _split(self, rows: pa.Table, names: Names, large: NDArray[Any]) -> list[NDArray[np.intp]]:
        """The places of each part's rows; rows of large segments are dealt out in turn."""
        if not rows.num_rows:
            return [np.arange(0)] * self.partitions
        part = parts_of(read_ids(rows, names.segment), self.partitions)
        if len(large):
            dealt = np.flatnonzero(places(rows, names.segment, large) >= 0)
            part[dealt] = np.arange(len(dealt)) % self.partitions
        return [np.flatnonzero(part == number) for number in range(self.partitions)]


class _Manager(BaseManager):
    """A process with a Coordinator."""


_Manager.register("Coordinator", Coordinator)


def _fit(task: FitPart, table: pa.Table, coordinator: Any, part: int) -> FittedPart:
    return task(table, AtCoordinator(coordinator.gather, part), part)
