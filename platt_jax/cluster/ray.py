"""Parts in the tasks of Ray, for which a placement group reserves places at the same time."""

from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.data.expressions import monotonically_increasing_id
from ray.util import get_node_ip_address, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from platt_jax.cluster.engines import FitPart, JoinPart, MapPart, MapTable, meet, pieces, whole
from platt_jax.cluster.meeting import Invitation, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_PLACE = "_platt_jax_place"


class Ray:
    """See `engines.Engine`. Results are references to objects; by default each CPU has a part."""

    def __init__(self, partitions: int | None) -> None:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if (partitions or 1) > cpus:
            raise ValueError(
                f"partitions: expected at most {cpus}, the number of CPUs of Ray, got {partitions}"
            )
        self.partitions = partitions or cpus

    def schema(self, rows: Any) -> pa.Schema:
        """See `Engine`."""
        row_schema = rows.schema()
        if row_schema is None:
            raise ValueError("rows: expected rows, got none")
        if isinstance(row_schema.base_schema, pa.Schema):
            return row_schema.base_schema
        return _arrow(rows.limit(1)).schema

    def select(self, rows: Any, columns: list[str]) -> Any:
        """See `Engine`. Blocks may come in any order, so that rows need numbers."""
        return (
            rows.select_columns(columns)
            .with_column(_PLACE, monotonically_increasing_id())
            .materialize()
        )

    def collect(self, rows: Any, columns: list[str], most: int | None = None) -> pa.Table:
        """See `Engine`."""
        chosen = rows.select_columns(columns)
        share = 1.0 if most is None else most / max(rows.count(), 1)
        return _arrow(chosen.random_sample(share, seed=0) if share < 1 else chosen)

    def fit(self, rows: Any, names: EngineColumns, task: FitPart) -> list[FittedPart]:
        """See `Engine`. A part whose worker dies runs again, as Ray does by itself."""
        tables = self._together(rows, names)
        group = placement_group([{"CPU": 1}] * self.partitions)  # all at once, or none
        try:
            with closing(Server(self.partitions, get_node_ip_address())) as server:
                running = []
                for part, blocks in enumerate(tables):
                    strategy = PlacementGroupSchedulingStrategy(group, part)
                    fit = ray.remote(_fit).options(num_returns=2, scheduling_strategy=strategy)
                    running.append(FittedPart(*fit.remote(task, server.invitation, part, *blocks)))
                waiting = [part.summary for part in running]
                while waiting:
                    finished, waiting = ray.wait(waiting)
                    ray.get(finished)  # the first error ends the others
        finally:
            remove_placement_group(group)
        return running

    def results(self, fitted: list[FittedPart], field: str) -> list[bytes]:
        """See `Engine`."""
        return ray.get([getattr(part, field) for part in fitted])

    def map(self, fitted: list[FittedPart], task: MapPart, schema: pa.Schema) -> Any:
        """See `Engine`."""
        map_part = ray.remote(_table)
        return ray.data.from_arrow_refs([map_part.remote(task, part.calibrator) for part in fitted])

    def join(
        self,
        fitted: list[FittedPart],
        rows: Any,
        names: EngineColumns,
        task: JoinPart,
        schema: pa.Schema,
    ) -> Any:
        """See `Engine`."""
        rows = self.select(rows, self.schema(rows).names)
        tables, combine = self._together(rows, names), ray.remote(_joined)
        return ray.data.from_arrow_refs(
            [
                combine.remote(task, part.calibrator, *blocks)
                for part, blocks in zip(fitted, tables, strict=True)
            ]
        )

    def kept(self, table: Any) -> Any:
        """See `Engine`."""
        return table.materialize()

    def with_column(self, table: Any, task: MapTable, schema: pa.Schema) -> Any:
        """See `Engine`."""
        return table.map_batches(task, batch_format="pyarrow", batch_size=None)

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.write_parquet(path)

    def _together(self, rows: Any, names: EngineColumns) -> list[tuple[Any, ...]]:
        """References to the pieces of each part's rows, in their order."""
        schema = self.schema(rows)
        schema = schema.remove(schema.get_field_index(_PLACE))
        divide = ray.remote(_divided).options(num_returns=1 + self.partitions)
        divided = [
            divide.remote(block, schema, names, self.partitions) for block in rows.to_arrow_refs()
        ]
        positions = ray.get([position for position, *_ in divided])  # blocks come in any order
        in_order = [divided[i][1:] for i in np.argsort(positions, kind="stable")]
        return list(zip(*in_order, strict=True))


def _divided(block: pa.Table, schema: pa.Schema, names: EngineColumns, parts: int) -> list[Any]:
    """The place of a block among others, and the piece of each part's rows."""
    if not block.num_rows:
        return [0, *pieces(schema.empty_table(), names, parts)]
    rows = block.select(schema.names).cast(schema)
    return [block[_PLACE][0].as_py(), *pieces(rows, names, parts)]


def _fit(task: FitPart, invitation: Invitation, part: int, *sent: bytes) -> FittedPart:
    return meet(task, invitation, part, whole(sent))


def _table(task: MapPart, calibrator: bytes) -> pa.Table:
    return task(calibrator)


def _joined(task: JoinPart, calibrator: bytes, *sent: bytes) -> pa.Table:
    return task(calibrator, whole(sent))


def _arrow(rows: Any) -> pa.Table:
    return pa.concat_tables(ray.get(rows.to_arrow_refs()))
