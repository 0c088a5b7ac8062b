"""Parts in the tasks of Ray, for which a placement group reserves places at the same time."""

import secrets
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from numpy.typing import NDArray
from ray.data.expressions import monotonically_increasing_id
from ray.util import get_node_ip_address, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from platt_jax.cluster.engines import FitPart, pieces, whole
from platt_jax.cluster.meeting import GatherClient, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_PLACE = "_platt_jax_place"


class Ray:
    """See `engines.Engine`. Results are references to objects of the parts.

    Args:
        partitions: number of parts; None for the number of CPUs.

    Raises:
        ValueError: there are fewer CPUs than parts.
    """

    def __init__(self, partitions: int | None) -> None:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if (partitions or 1) > cpus:
            raise ValueError(
                f"partitions: expected at most {cpus}, the number of CPUs of Ray, got {partitions}"
            )
        self.partitions = partitions or cpus

    def schema(self, rows: Any) -> pa.Schema:
        """See `Engine`."""
        found = rows.schema()
        if found is None:
            raise ValueError("rows: expected rows, got none")
        if isinstance(found.base_schema, pa.Schema):
            return found.base_schema
        return _arrow(rows.limit(1)).schema

    def select(self, rows: Any, columns: list[str]) -> Any:
        """See `Engine`. Blocks may come in any order, so that rows need numbers."""
        return (
            rows.select_columns(columns)
            .with_column(_PLACE, monotonically_increasing_id())
            .materialize()
        )

    def sample(self, rows: Any, columns: list[str], number: int) -> pa.Table:
        """See `Engine`."""
        share = min(1.0, number / max(rows.count(), 1))
        some = rows.select_columns(columns)
        return _arrow(some.random_sample(share, seed=0) if share < 1 else some)

    def fit(self, rows: Any, names: EngineColumns, large: NDArray[Any], task: FitPart) -> list[Any]:
        """See `Engine`. A part whose worker dies runs again, as Ray does by itself."""
        tables = self._together(rows, names, large)
        host, key = get_node_ip_address(), secrets.token_bytes()
        places = placement_group([{"CPU": 1}] * self.partitions)  # all at once, or none
        try:
            with closing(Server(self.partitions, host, key)) as server:
                running = []
                for part in range(self.partitions):
                    place = PlacementGroupSchedulingStrategy(places, part)
                    fit = ray.remote(_fit).options(num_returns=2, scheduling_strategy=place)
                    at = (host, server.port), key, part, self.partitions
                    running.append(fit.remote(task, at, *tables[part]))
                waiting = [summary for _, summary in running]
                while waiting:
                    done, waiting = ray.wait(waiting)
                    ray.get(done)  # the first error ends the others
        finally:
            remove_placement_group(places)
        return running

    def summaries(self, fitted: list[Any]) -> list[bytes]:
        """See `Engine`."""
        return ray.get([summary for _, summary in fitted])

    def calibrators(self, fitted: list[Any]) -> list[bytes]:
        """See `Engine`."""
        return ray.get([calibrator for calibrator, _ in fitted])

    def map(self, fitted: list[Any], task: Callable[[bytes], pa.Table], schema: pa.Schema) -> Any:
        """See `Engine`."""
        each = ray.remote(_table)
        return ray.data.from_arrow_refs(
            [each.remote(task, schema, calibrator) for calibrator, _ in fitted]
        )

    def join(
        self,
        fitted: list[Any],
        rows: Any,
        names: EngineColumns,
        large: NDArray[Any],
        task: Callable[[bytes, pa.Table], pa.Table],
        schema: pa.Schema,
    ) -> Any:
        """See `Engine`."""
        rows = self.select(rows, self.schema(rows).names)
        tables, both = self._together(rows, names, large), ray.remote(_joined)
        return ray.data.from_arrow_refs(
            [
                both.remote(task, schema, calibrator, *pieces)
                for (calibrator, _), pieces in zip(fitted, tables, strict=True)
            ]
        )

    def kept(self, table: Any) -> Any:
        """See `Engine`."""
        return table.materialize()

    def numbers(self, table: Any, column: str) -> NDArray[np.float64]:
        """See `Engine`."""
        return _arrow(table.select_columns([column]))[column].to_numpy()

    def with_column(
        self, table: Any, task: Callable[[pa.Table], pa.Table], schema: pa.Schema
    ) -> Any:
        """See `Engine`."""
        return table.map_batches(task, batch_format="pyarrow", batch_size=None)

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.write_parquet(path)

    def _together(
        self, rows: Any, names: EngineColumns, large: NDArray[Any]
    ) -> list[tuple[Any, ...]]:
        """References to the pieces of each part's rows, in their order."""
        schema = self.schema(rows)
        schema = schema.remove(schema.get_field_index(_PLACE))
        divide = ray.remote(_divided).options(num_returns=1 + self.partitions)
        divided = [
            divide.remote(block, schema, names.segment, large, self.partitions)
            for block in rows.to_arrow_refs()
        ]
        places = ray.get([place for place, *_ in divided])  # blocks come in any order
        in_order = [divided[i][1:] for i in np.argsort(places, kind="stable")]
        return list(zip(*in_order, strict=True))


def _divided(
    block: pa.Table, schema: pa.Schema, segment: tuple[str, ...], large: NDArray[Any], parts: int
) -> list[Any]:
    """The place of a block among others, and the piece of each part's rows."""
    if not block.num_rows:
        return [0, *pieces(schema.empty_table(), segment, large, parts)]
    rows = block.select(schema.names).cast(schema)
    return [block[_PLACE][0].as_py(), *pieces(rows, segment, large, parts)]


def _fit(
    task: FitPart,
    at: tuple[tuple[str, int], bytes, int, int],
    *pieces: bytes,
) -> FittedPart:
    with GatherClient(*at) as gather:
        part = at[2]
        return task(whole(pieces), gather, part)


def _table(task: Callable[[bytes], pa.Table], schema: pa.Schema, calibrator: bytes) -> pa.Table:
    return task(calibrator).cast(schema)


def _joined(
    task: Callable[[bytes, pa.Table], pa.Table],
    schema: pa.Schema,
    calibrator: bytes,
    *pieces: bytes,
) -> pa.Table:
    return task(calibrator, whole(pieces)).cast(schema)


def _arrow(rows: Any) -> pa.Table:
    """The rows, on this machine."""
    return pa.concat_tables(ray.get(rows.to_arrow_refs()))
