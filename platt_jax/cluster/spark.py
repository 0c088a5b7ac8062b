"""Parts in the tasks of Spark, which run at the same time as one barrier stage."""

import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from platt_jax.cluster.engines import FitPart, JoinPart, MapPart, MapTable
from platt_jax.cluster.meeting import MeetingByServer, Server
from platt_jax.cluster.tasks import EngineColumns, FittedPart
from platt_jax.ids import fields

_KEY = "_platt_jax_part"
_SCHEMA = f"{_KEY} int, piece int, calibrator binary, summary binary"
_PIECE = 1 << 24  # bytes of a calibrator in one row, because Spark holds rows in memory
# Numbers that are tried for each part, to find one that Spark's hash sends there.
_TRIED = 50


class Spark:
    """See `engines.Engine`. Results are a cached DataFrame with one or more rows for each part.

    The rows' session is used. By default there are as many parts as places for tasks.
    """

    def __init__(self, rows: Any, partitions: int | None) -> None:
        self._session = rows.sparkSession
        self.partitions = partitions or self._places()
        self._keys = self._keys_part_table()

    def _places(self) -> int:
        """The number of tasks that run at the same time."""
        default = self._session.conf.get("spark.default.parallelism", "")
        context = getattr(self._session, "_sc", None)  # none with Spark Connect
        return int(default or (context.defaultParallelism if context else 1))

    def _keys_part_table(self) -> NDArray[np.int64]:
        """A number for each part, which `repartition` sends to the partition of that number."""
        from pyspark.sql import functions as F

        parts = self.partitions
        numbers = self._session.range(_TRIED * parts).select(
            "id", F.pmod(F.hash("id"), F.lit(parts)).alias("part")
        )
        rows = numbers.groupBy("part").agg(F.min("id").alias("id")).collect()
        keys = np.full(parts, -1)
        keys[[row.part for row in rows]] = [row.id for row in rows]
        return keys

    def schema(self, rows: Any) -> pa.Schema:
        """See `Engine`."""
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(rows.schema)

    def select(self, rows: Any, columns: list[str]) -> Any:
        """See `Engine`."""
        return rows.select(columns)

    def collect(self, rows: Any, columns: list[str], most: int | None = None) -> pa.Table:
        """See `Engine`."""
        chosen = rows.select(columns)
        share = 1.0 if most is None else most / max(rows.count(), 1)
        return (chosen.sample(share, seed=0) if share < 1 else chosen).toArrow()

    def fit(self, rows: Any, names: EngineColumns, task: FitPart) -> Any:
        """See `Engine`. The rows are shuffled once, and read once by the tasks."""
        together = rows.repartition(self.partitions, self._key(names))
        schema, keys = self.schema(rows), self._keys

        def fit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import BarrierTaskContext

            context = BarrierTaskContext.get()
            blocks = list(batches)
            table = pa.Table.from_batches(blocks, None if blocks else schema).cast(schema)
            part = context.partitionId()
            with _meeting(context) as meeting:
                fitted_part = task(table, meeting, part)
            yield from _pieces(fitted_part, int(keys[part]))

        fitted = together.mapInArrow(fit, _SCHEMA, barrier=True)
        # A barrier stage runs again after a failure only if a shuffle follows. Without its lineage,
        # because what follows a barrier stage may not be limited or joined.
        return fitted.repartition(self.partitions, _KEY).localCheckpoint()

    def results(self, fitted: Any, field: str) -> list[bytes]:
        """See `Engine`."""
        table = fitted.select(_KEY, "piece", field).where(f"{field} is not null").toArrow()
        keys = self._keys.tolist()
        return [_whole(table.filter(pc.field(_KEY) == key), field) for key in keys]

    def map(self, fitted: Any, task: MapPart, schema: pa.Schema) -> Any:
        """See `Engine`."""

        def map_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pieces = list(batches)  # a partition has the batches of one part
            if pieces:
                table = task(_whole(pa.Table.from_batches(pieces), "calibrator"))
                yield from table.to_batches()

        return fitted.select("piece", "calibrator").mapInArrow(map_part, _spark_schema(schema))

    def join(
        self, fitted: Any, rows: Any, names: EngineColumns, task: JoinPart, schema: pa.Schema
    ) -> Any:
        """See `Engine`. Each task holds the rows of a part in memory."""
        keyed = rows.withColumn(_KEY, self._key(names))

        def combine(row_table: pa.Table, part_table: pa.Table) -> pa.Table:
            table = task(_whole(part_table, "calibrator"), row_table.drop_columns([_KEY]))
            return table.cast(schema)

        parts = fitted.select(_KEY, "piece", "calibrator").groupBy(_KEY)
        return keyed.groupBy(_KEY).cogroup(parts).applyInArrow(combine, _spark_schema(schema))

    def kept(self, table: Any) -> Any:
        """See `Engine`."""
        return table.localCheckpoint()

    def with_column(self, table: Any, task: MapTable, schema: pa.Schema) -> Any:
        """See `Engine`."""

        def map_table(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from task(pa.Table.from_batches([batch])).to_batches()

        return table.mapInArrow(map_table, _spark_schema(schema))

    def write_parquet(self, table: Any, path: str) -> None:
        """See `Engine`."""
        table.write.parquet(path)

    def _key(self, names: EngineColumns) -> Any:
        """The column of the key of each row's part; rows of large segments are dealt out."""
        from pyspark.sql import functions as F

        parts = F.lit(self.partitions)
        part = F.pmod(F.xxhash64(*names.segment), parts)
        if len(names.large):
            is_large = F.lit(False)
            for values in zip(*(x.tolist() for x in fields(names.large)), strict=True):
                is_equal = F.lit(True)
                for name, value in zip(names.segment, values, strict=True):
                    is_equal = is_equal & (F.col(name) == F.lit(value))
                is_large = is_large | is_equal
            dealt = F.pmod(F.monotonically_increasing_id(), parts)
            part = F.when(is_large, dealt).otherwise(part)
        return F.element_at(F.lit(self._keys.tolist()), (part + 1).cast("int")).cast("int")


def _pieces(fitted: FittedPart, key: int) -> Iterator[pa.RecordBatch]:
    """The rows of a part's results."""
    for piece, first in enumerate(range(0, max(len(fitted.calibrator), 1), _PIECE)):
        columns = [
            pa.array([key], pa.int32()),
            pa.array([piece], pa.int32()),
            pa.array([fitted.calibrator[first : first + _PIECE]], pa.binary()),
            pa.array([None if piece else fitted.summary], pa.binary()),
        ]
        yield pa.record_batch(columns, [_KEY, "piece", "calibrator", "summary"])


def _whole(pieces: pa.Table, column: str) -> bytes:
    """What a part's rows have in a column."""
    return b"".join(pieces.sort_by("piece")[column].to_pylist())


@contextmanager
def _meeting(context: Any) -> Iterator[MeetingByServer]:
    """Where all tasks meet, by a server in the first; Spark's own takes a second each."""
    infos, part = context.getTaskInfos(), context.partitionId()
    with ExitStack() as stack:
        server, message = None, ""
        if part == 0:
            host = infos[0].address.rsplit(":", 1)[0]
            server = stack.enter_context(closing(Server(len(infos), host)))
            message = pickle.dumps(server.invitation).hex()
        invitation = pickle.loads(bytes.fromhex(context.allGather(message)[0]))
        with MeetingByServer(invitation, part) as meeting:
            yield meeting
        if server:
            server.wait()


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
