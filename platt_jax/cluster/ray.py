"""Parts in the tasks of Ray, for which a placement group reserves places at the same time."""

import secrets
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import ray
from numpy.typing import NDArray
from ray.data.expressions import monotonically_increasing_id
from ray.util import get_node_ip_address, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from platt_jax.cluster.engines import FitPart, parts_of_rows
from platt_jax.cluster.meeting import AtServer, Server
from platt_jax.cluster.tasks import FittedPart, Names

_PART, _PLACE = "_platt_jax_part", "_platt_jax_place"


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

    def sample(self, rows: Any, columns: list[str], number: int) -> pa.Table:
        """See `Engine`."""
        share = min(1.0, number / max(rows.count(), 1))
        some = rows.select_columns(columns)
        return _arrow(some.random_sample(share, seed=0) if share < 1 else some)

    def fit(self, rows: Any, names: Names, large: NDArray[Any], task: FitPart) -> list[Any]:
        """See `Engine`. A part whose worker dies runs again, as Ray does by itself."""
        tables = self._together(rows.select_columns(names.used), names, large)
        host, key = get_node_ip_address(), secrets.token_bytes()
        places = placement_group([{"CPU": 1}] * self.partitions)  # all at once, or none
        try:
            with closing(Server(self.partitions, host, key)) as server:
                running = []
                for part, table in enumerate(tables):
                    place = PlacementGroupSchedulingStrategy(places, part)
                    fit = ray.remote(_fit).options(num_returns=2, scheduling_strategy=place)
                    at = (host, server.port), key, part, self.partitions
                    running.append(fit.remote(task, table, *at))
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
        names: Names,
        large: NDArray[Any],
        task: Callable[[bytes, pa.Table], pa.Table],
        schema: pa.Schema,
    ) -> Any:
        """See `Engine`."""
        tables, both = self._together(rows, names, large), ray.remote(_joined)
        return ray.data.from_arrow_refs(
            [
                both.remote(task, schema, calibrator, table)
                for (calibrator, _), table in zip(fitted, tables, strict=True)
            ]
        )

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.write_parquet(path)

    def _together(self, rows: Any, names: Names, large: NDArray[Any]) -> list[Any]:
        """References to the rows of each part, in the order of the rows."""
        key = partial(_keyed, segment=names.segment, large=large, parts=self.partitions)
        keyed = rows.with_column(_PLACE, monotonically_increasing_id())
        keyed = keyed.map_batches(key, batch_format="pyarrow", batch_size=None)
        return keyed.sort(
            [_PART, _PLACE], boundaries=list(range(1, self.partitions))
        ).to_arrow_refs()


def _keyed(rows: pa.Table, segment: tuple[str, ...], large: NDArray[Any], parts: int) -> pa.Table:
    """The rows with the number of their part."""
    part = parts_of_rows(rows, segment, large, parts)
    return rows.append_column(_PART, pa.array(part))


def _fit(
    task: FitPart, table: pa.Table, address: tuple[str, int], key: bytes, part: int, parts: int
) -> FittedPart:
    with AtServer(address, key, part, parts) as gather:
        return task(table.drop_columns([_PART, _PLACE]), gather, part)


def _table(task: Callable[[bytes], pa.Table], schema: pa.Schema, calibrator: bytes) -> pa.Table:
    return task(calibrator).cast(schema)


def _joined(
    task: Callable[[bytes, pa.Table], pa.Table],
    schema: pa.Schema,
    calibrator: bytes,
    table: pa.Table,
) -> pa.Table:
    return task(calibrator, table.drop_columns([_PART, _PLACE])).cast(schema)


def _arrow(rows: Any) -> pa.Table:
    """The rows, on this machine."""
    return pa.concat_tables(ray.get(rows.to_arrow_refs()))
