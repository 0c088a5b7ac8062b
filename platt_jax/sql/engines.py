"""Engines that run queries and return Arrow tables."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from platt_jax.sql.expressions import quoted

# Names in queries: the rows, and the table of numbers that every pass sends to the engine.
ROWS, POINTS = "platt_jax_rows", "platt_jax_points"


class QueryEngine(Protocol):
    """Runs queries over one relation, which is called `ROWS` in them."""

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """The result of a query in DuckDB's dialect, which may join with the table `POINTS`."""

    def columns(self) -> dict[str, pa.DataType]:
        """The names and types of the relation's columns."""

    def extended(self, query: str, points: pa.Table) -> Any:
        """The result of a query as another relation of this engine, with its rows left there."""

    def held(self, columns: Sequence[str], snapshot: bool) -> "AbstractContextManager[QueryEngine]":
        """An engine over these columns for the queries of a fit, which is ended with the context.

        With a snapshot every query has to read the same state of the rows.
        """


class DuckDB:
    """A relation of DuckDB, on its own connection."""

    def __init__(self, relation: Any) -> None:
        self._relation = relation

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `QueryEngine`."""
        return self.extended(query, points).to_arrow_table()

    def columns(self) -> dict[str, pa.DataType]:
        """See `QueryEngine`."""
        return schema(self._relation.limit(0).to_arrow_table())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `QueryEngine`."""
        platt_jax_points = points  # noqa: F841 - DuckDB finds this variable by its name
        return self._relation.query(ROWS, query)

    @contextmanager
    def held(self, columns: Sequence[str], snapshot: bool) -> Iterator[QueryEngine]:
        """See `QueryEngine`."""
        if not snapshot:
            yield self
            return
        table, chosen = f"{ROWS}_{secrets.token_hex(8)}", ", ".join(map(quoted, columns))
        self._relation.query(ROWS, f"CREATE TEMPORARY TABLE {table} AS SELECT {chosen} FROM {ROWS}")
        try:
            yield DuckDB(self._relation.query(ROWS, f"SELECT * FROM {table}"))
        finally:
            self._relation.query(ROWS, f"DROP TABLE {table}")


class SparkSQL:
    """A DataFrame of Spark."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `QueryEngine`."""
        return self.extended(query, points).toArrow()

    def columns(self) -> dict[str, pa.DataType]:
        """See `QueryEngine`."""
        return schema(self._frame.limit(0).toArrow())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `QueryEngine`."""
        from pyspark.sql.functions import broadcast

        session = self._frame.sparkSession
        # Unique names, which are replaced by {name} in the text.
        rows, joined = (f"{name}_{secrets.token_hex(8)}" for name in (ROWS, POINTS))
        text = with_tables(query, {ROWS: rows, POINTS: joined}).sql(dialect="spark")
        text = text.replace("{", "{{").replace("}", "}}")  # braces in column names
        frames = {rows: self._frame}
        if points is not None:
            frames[joined] = broadcast(session.createDataFrame(points))
        for name in frames:
            text = text.replace(name, f"{{{name}}}")
        return session.sql(text, **frames)

    @contextmanager
    def held(self, columns: Sequence[str], snapshot: bool) -> Iterator[QueryEngine]:
        """See `QueryEngine`. Unlike a cache, a checkpoint that is lost is not computed again."""
        if not snapshot:
            yield self
            return
        names = ["`" + name.replace("`", "``") + "`" for name in columns]
        yield SparkSQL(self._frame.select(*names).localCheckpoint())


def with_tables(query: str, tables: Mapping[str, Any], materialized: bool = False) -> Any:
    """The parsed query, in DuckDB's dialect, with these tables in place of the names in it.

    `materialized` says whether the engine's dialect has `AS MATERIALIZED`; else it is left out.
    """

    # Any: older releases of sqlglot have another name for the class of nodes.
    def named(node: Any) -> Any:
        if isinstance(node, exp.CTE) and not materialized:
            node.set("materialized", None)
        if isinstance(node, exp.Table) and node.name in tables:
            table = exp.to_table(tables[node.name]).copy()
            return exp.alias_(table, node.alias or node.name, table=True)
        return node

    return sqlglot.parse_one(query, read="duckdb").transform(named)


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of a result as float64, with NaN for NULL."""
    return pc.cast(column, pa.float64()).to_numpy()


def schema(table: pa.Table) -> dict[str, pa.DataType]:
    """The names and types of a table's columns."""
    return {field.name: field.type for field in table.schema}
