"""Parts in the tasks of Dask, which give up their places while they meet."""

from contextlib import closing
from functools import partial
from operator import attrgetter
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask import delayed
from dask.dataframe.dispatch import from_pyarrow_table_dispatch
from distributed import as_completed, get_client, secede
from distributed.comm.addressing import get_address_host

from platt_jax.cluster.engines import (
    FitPart,
    JoinPart,
    MapPart,
    MapTable,
    adds_columns,
    meet,
    pieces,
    whole,
)
from platt_jax.cluster.meeting import Invitation, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_PART, _PIECE = "part", "piece"
_PIECES = pd.DataFrame({_PART: np.array([], np.int64), _PIECE: np.array([], object)})


class Dask:
    """See `engines.Engine`. Results are futures; by default each worker's thread has a part.

    The workers must reach this machine by the address at which the scheduler sees it.
    """

    def __init__(self, partitions: int | None) -> None:
        try:
            self._client = get_client()
        except ValueError as error:
            raise ValueError("rows: a DataFrame of Dask needs a distributed.Client") from error
        self.partitions = partitions or max(1, sum(self._client.nthreads().values()))

    def schema(self, rows: Any) -> pa.Schema:
        """See `Engine`."""
        return pa.Schema.from_pandas(rows._meta_nonempty, preserve_index=False)

    def select(self, rows: Any, columns: list[str]) -> Any:
        """See `Engine`."""
        return rows[columns]

    def collect(self, rows: Any, columns: list[str], most: int | None = None) -> pa.Table:
        """See `Engine`."""
        chosen = rows[columns]
        share = 1.0 if most is None else most / max(len(rows), 1)
        chosen = (chosen.sample(frac=share, random_state=0) if share < 1 else chosen).compute()
        return pa.Table.from_pandas(chosen, preserve_index=False)

    def fit(self, rows: Any, names: EngineColumns, task: FitPart) -> list[Any]:
        """See `Engine`."""
        tables = self._client.compute(self._together(rows, self.schema(rows), names))
        host = get_address_host(self._client.scheduler_comm.comm.local_address)
        with closing(Server(self.partitions, host)) as server:
            running = [
                self._client.submit(_fit, task, server.invitation, part, table, pure=False)
                for part, table in enumerate(tables)
            ]
            for future in as_completed(running):
                future.result()  # the first error ends the others
        return running

    def results(self, fitted: list[Any], field: str) -> list[bytes]:
        """See `Engine`."""
        return self._client.gather(self._client.map(attrgetter(field), fitted))

    def map(self, fitted: list[Any], task: MapPart, schema: pa.Schema) -> Any:
        """See `Engine`."""
        tables = [delayed(_table)(task, part) for part in fitted]
        return dd.from_delayed(tables, meta=schema.empty_table().to_pandas())

    def join(
        self,
        fitted: list[Any],
        rows: Any,
        names: EngineColumns,
        task: JoinPart,
        schema: pa.Schema,
    ) -> Any:
        """See `Engine`. Rows that gain columns keep their index."""
        used_schema = self.schema(rows[names.used])
        if adds_columns(self.schema(rows), schema):
            new = pa.schema([field for field in schema if field.name not in rows.columns])
            tables = self._together(rows, None, names)
            combine = partial(_joined, task=task, used_schema=used_schema, new=new, meta=rows._meta)
            meta = rows._meta.assign(**new.empty_table().to_pandas())
        else:
            tables = self._together(rows[names.used], used_schema, names)
            combine, meta = partial(_made, task=task), schema.empty_table().to_pandas()
        results = [delayed(combine)(*pair) for pair in zip(fitted, tables, strict=True)]
        return dd.from_delayed(results, meta=meta)

    def kept(self, table: Any) -> Any:
        """See `Engine`."""
        return table.persist()

    def with_column(self, table: Any, task: MapTable, schema: pa.Schema) -> Any:
        """See `Engine`."""
        meta, table_schema = schema.empty_table().to_pandas(), self.schema(table)
        return table.map_partitions(_mapped, task, table_schema, meta=meta)

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.to_parquet(path, write_index=False)

    def _together(self, rows: Any, row_schema: pa.Schema | None, names: EngineColumns) -> list[Any]:
        """For each part, a frame of the pieces of its rows; without a schema with the index."""
        divided = rows.map_partitions(_divided, row_schema, names, self.partitions, meta=_PIECES)
        ends = list(range(self.partitions + 1))
        # The pieces are few, and "p2p" would copy them many times.
        return divided.set_index(_PART, divisions=ends, shuffle_method="tasks").to_delayed()


def _divided(
    rows: pd.DataFrame,
    row_schema: pa.Schema | None,
    names: EngineColumns,
    parts: int,
    partition_info: dict[str, Any],
) -> pd.DataFrame:
    """The pieces of each part's rows."""
    table = pa.Table.from_pandas(rows, row_schema, preserve_index=row_schema is None)
    divided = pieces(table, names, parts, partition_info["number"])
    return pd.DataFrame({_PART: range(parts), _PIECE: divided})


def _fit(task: FitPart, invitation: Invitation, part: int, rows: pd.DataFrame) -> FittedPart:
    secede()  # all parts can run at the same time, however few threads there are
    return meet(task, invitation, part, whole(rows[_PIECE]))


def _table(task: MapPart, fitted: FittedPart) -> pd.DataFrame:
    return task(fitted.calibrator).to_pandas()


def _mapped(rows: pd.DataFrame, task: MapTable, before: pa.Schema) -> pd.DataFrame:
    return task(pa.Table.from_pandas(rows, before, preserve_index=False)).to_pandas()


def _made(fitted: FittedPart, rows: pd.DataFrame, task: JoinPart) -> pd.DataFrame:
    return task(fitted.calibrator, whole(rows[_PIECE])).to_pandas()


def _joined(
    fitted: FittedPart,
    rows: pd.DataFrame,
    task: JoinPart,
    used_schema: pa.Schema,
    new: pa.Schema,
    meta: pd.DataFrame,
) -> pd.DataFrame:
    """The rows with the new columns of what the task makes; the others stay as they are."""
    table = whole(rows[_PIECE])
    result = task(fitted.calibrator, table.select(used_schema.names).cast(used_schema))
    columns = result.select(new.names).to_pandas()
    frame = from_pyarrow_table_dispatch(meta, table)
    return frame.assign(**{name: columns[name].to_numpy() for name in new.names})
