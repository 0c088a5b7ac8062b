"""Parts in the tasks of Dask, which give up their places while they meet."""

import secrets
from collections.abc import Callable
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
from numpy.typing import NDArray

from platt_jax.cluster.engines import FitPart, adds_columns, pieces, whole
from platt_jax.cluster.meeting import GatherClient, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart

_PART, _PIECE = "part", "piece"
_PIECES = pd.DataFrame({_PART: np.array([], np.int64), _PIECE: np.array([], object)})


class Dask:
    """See `engines.Engine`. Results are futures of the parts.

    The workers must reach this machine by the address at which the scheduler sees it.

    Args:
        partitions: number of parts; None for the number of the workers' threads.
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

    def sample(self, rows: Any, columns: list[str], number: int) -> pa.Table:
        """See `Engine`."""
        share = min(1.0, number / max(len(rows), 1))
        some = rows[columns]
        some = (some.sample(frac=share, random_state=0) if share < 1 else some).compute()
        return pa.Table.from_pandas(some, preserve_index=False)

    def fit(self, rows: Any, names: EngineColumns, large: NDArray[Any], task: FitPart) -> list[Any]:
        """See `Engine`."""
        tables = self._client.compute(self._together(rows, self.schema(rows), names, large))
        host = get_address_host(self._client.scheduler_comm.comm.local_address)
        key = secrets.token_bytes()
        with closing(Server(self.partitions, host, key)) as server:
            meet = partial(_fit, task, (host, server.port), key, self.partitions)
            running = [
                self._client.submit(meet, part, table, pure=False)
                for part, table in enumerate(tables)
            ]
            for future in as_completed(running):
                future.result()  # the first error ends the others
        return running

    def summaries(self, fitted: list[Any]) -> list[bytes]:
        """See `Engine`."""
        return self._client.gather(self._client.map(attrgetter("summary"), fitted))

    def calibrators(self, fitted: list[Any]) -> list[bytes]:
        """See `Engine`."""
        return self._client.gather(self._client.map(attrgetter("calibrator"), fitted))

    def map(self, fitted: list[Any], task: Callable[[bytes], pa.Table], schema: pa.Schema) -> Any:
        """See `Engine`."""
        made = [delayed(_table)(task, part, schema) for part in fitted]
        return dd.from_delayed(made, meta=schema.empty_table().to_pandas())

    def join(
        self,
        fitted: list[Any],
        rows: Any,
        names: EngineColumns,
        large: NDArray[Any],
        task: Callable[[bytes, pa.Table], pa.Table],
        schema: pa.Schema,
    ) -> Any:
        """See `Engine`. Rows that gain columns keep their index."""
        if not adds_columns(self.schema(rows), schema):
            rows = rows[names.used]
            tables = self._together(rows, self.schema(rows), names, large)
            make = partial(_made, task=task, schema=schema)
            made = [delayed(make)(*each) for each in zip(fitted, tables, strict=True)]
            return dd.from_delayed(made, meta=schema.empty_table().to_pandas())
        new = pa.schema([field for field in schema if field.name not in rows.columns])
        tables = self._together(rows, None, names, large)
        used_schema = self.schema(rows[names.used])
        both = partial(_joined, task=task, used_schema=used_schema, new=new, meta=rows._meta)
        made = [delayed(both)(*each) for each in zip(fitted, tables, strict=True)]
        meta = rows._meta.assign(**new.empty_table().to_pandas())
        return dd.from_delayed(made, meta=meta)

    def kept(self, table: Any) -> Any:
        """See `Engine`."""
        return table.persist()

    def numbers(self, table: Any, column: str) -> NDArray[np.float64]:
        """See `Engine`."""
        return table[column].compute().to_numpy(float)

    def with_column(
        self, table: Any, task: Callable[[pa.Table], pa.Table], schema: pa.Schema
    ) -> Any:
        """See `Engine`."""
        meta, before = schema.empty_table().to_pandas(), self.schema(table)
        return table.map_partitions(_mapped, task, before, schema, meta=meta)

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.to_parquet(path, write_index=False)

    def _together(
        self, rows: Any, row_schema: pa.Schema | None, names: EngineColumns, large: NDArray[Any]
    ) -> list[Any]:
        """For each part, a frame of the pieces of its rows; without a schema with the index."""
        divided = rows.map_partitions(
            _divided, row_schema, names.segment, large, self.partitions, meta=_PIECES
        )
        ends = list(range(self.partitions + 1))
        # The pieces are few, and "p2p" would copy them many times.
        return divided.set_index(_PART, divisions=ends, shuffle_method="tasks").to_delayed()


def _divided(
    rows: pd.DataFrame,
    row_schema: pa.Schema | None,
    segment: tuple[str, ...],
    large: NDArray[Any],
    parts: int,
    partition_info: dict[str, Any],
) -> pd.DataFrame:
    """The pieces of each part's rows."""
    table = pa.Table.from_pandas(rows, row_schema, preserve_index=row_schema is None)
    divided = pieces(table, segment, large, parts, partition_info["number"])
    return pd.DataFrame({_PART: range(parts), _PIECE: divided})


def _fit(
    task: FitPart, address: tuple[str, int], key: bytes, parts: int, part: int, rows: pd.DataFrame
) -> FittedPart:
    secede()  # all parts can run at the same time, however few threads there are
    with GatherClient(address, key, part, parts) as gather:
        return task(whole(rows[_PIECE]), gather, part)


def _table(
    task: Callable[[bytes], pa.Table], fitted: FittedPart, schema: pa.Schema
) -> pd.DataFrame:
    return task(fitted.calibrator).cast(schema).to_pandas()


def _mapped(
    rows: pd.DataFrame, task: Callable[[pa.Table], pa.Table], before: pa.Schema, after: pa.Schema
) -> pd.DataFrame:
    table = pa.Table.from_pandas(rows, before, preserve_index=False)
    return task(table).cast(after).to_pandas()


def _made(
    fitted: FittedPart,
    rows: pd.DataFrame,
    task: Callable[[bytes, pa.Table], pa.Table],
    schema: pa.Schema,
) -> pd.DataFrame:
    return task(fitted.calibrator, whole(rows[_PIECE])).cast(schema).to_pandas()


def _joined(
    fitted: FittedPart,
    rows: pd.DataFrame,
    task: Callable[[bytes, pa.Table], pa.Table],
    used_schema: pa.Schema,
    new: pa.Schema,
    meta: pd.DataFrame,
) -> pd.DataFrame:
    """The rows with the new columns of what the task makes; the others stay as they are."""
    table = whole(rows[_PIECE])
    made = task(fitted.calibrator, table.select(used_schema.names).cast(used_schema)).select(
        new.names
    )
    columns = made.cast(new).to_pandas()
    frame = from_pyarrow_table_dispatch(meta, table)
    return frame.assign(**{name: columns[name].to_numpy() for name in new.names})
