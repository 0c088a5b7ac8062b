"""Engines that run queries and return Arrow tables."""

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol

import pyarrow as pa
import sqlglot
from sqlglot import exp

# Names in queries: the rows, and the table of numbers that every pass sends to the engine.
ROWS, POINTS = "platt_jax_rows", "platt_jax_points"
_SAMPLED_ROWS = 1000
# DuckDB's types, by tests of Arrow's types.
_TYPES: dict[Callable[[pa.DataType], bool], str] = {
    pa.types.is_floating: "DOUBLE",
    pa.types.is_integer: "BIGINT",
    pa.types.is_boolean: "BOOLEAN",
    pa.types.is_date: "DATE",
    pa.types.is_timestamp: "TIMESTAMP",
}


class Engine(Protocol):
    """Runs queries over one relation, which is called `ROWS` in them."""

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """The result of a query in DuckDB's dialect, which may join with the table `POINTS`."""

    def columns(self) -> dict[str, pa.DataType]:
        """The names and types of the relation's columns."""

    def extended(self, query: str, points: pa.Table) -> Any:
        """The result of a query as another relation of this engine, with its rows left there."""


class DuckDB:
    """A relation of DuckDB, on its own connection."""

    def __init__(self, relation: Any) -> None:
        self._relation = relation

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `Engine`."""
        return self.extended(query, points).to_arrow_table()

    def columns(self) -> dict[str, pa.DataType]:
        """See `Engine`."""
        return schema(self._relation.limit(0).to_arrow_table())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `Engine`."""
        platt_jax_points = points  # noqa: F841 - DuckDB finds this variable by its name
        return self._relation.query(ROWS, query)


class Spark:
    """A DataFrame of Spark."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `Engine`."""
        return self.extended(query, points).toArrow()

    def columns(self) -> dict[str, pa.DataType]:
        """See `Engine`."""
        return schema(self._frame.limit(0).toArrow())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `Engine`."""
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


class Database:
    """A table on a connection of Python's database API (PEP 249) or of SQLAlchemy."""

    def __init__(self, table: str, connection: Any, dialect: str | None) -> None:
        if hasattr(connection, "raw_connection"):  # SQLAlchemy's Engine
            dialect = dialect or connection.dialect.name
            connection = connection.raw_connection()
        elif hasattr(connection, "connection") and hasattr(connection, "dialect"):  # its Connection
            dialect = dialect or connection.dialect.name
            connection = connection.connection
        if not hasattr(connection, "cursor"):
            raise ValueError(
                "connection: expected one of Python's database interface or of SQLAlchemy, got a "
                f"{type(connection).__name__}"
            )
        self._connection = connection
        driver = getattr(connection, "driver_connection", connection)
        library = type(driver).__module__.partition(".")[0]
        self._dialect = _dialect_name(dialect or library)
        self._style = getattr(sys.modules.get(library), "paramstyle", "qmark")
        self._table = sqlglot.to_table(table, dialect=self._dialect)

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `Engine`."""
        with closing(self._connection.cursor()) as cursor, self._transaction():
            table = self._upload(cursor, points)
            cursor.execute(self._text(query, table))
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            if table is not None:
                cursor.execute(f"DROP TABLE {table}")
        columns: Any = zip(*rows, strict=True) if rows else ([] for _ in names)
        return pa.table([pa.array(list(column)) for column in columns], names=names)

    def columns(self) -> dict[str, pa.DataType]:
        """See `Engine`; types are those of the first rows, because SQLite's columns have none."""
        return schema(self.run(f"SELECT * FROM {ROWS} LIMIT {_SAMPLED_ROWS}"))

    def extended(self, query: str, points: pa.Table) -> Any:
        """See `Engine`: a cursor over the result."""
        cursor = self._connection.cursor()
        with self._transaction():
            table = self._upload(cursor, points)
        cursor.execute(self._text(query, table))
        return cursor

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """End the transaction that SQLite begins, so that other connections can write."""
        ours = not getattr(self._connection, "in_transaction", True)
        try:
            yield
        except BaseException:
            if ours:
                self._connection.rollback()
            raise
        if ours:
            self._connection.commit()

    def _text(self, query: str, table: str | None) -> str:
        tables = {ROWS: self._table, **({} if table is None else {POINTS: table})}
        return with_tables(query, tables).sql(dialect=self._dialect)

    def _upload(self, cursor: Any, points: pa.Table | None) -> str | None:
        """Create a temporary table with these rows; returns its name."""
        if points is None:
            return None
        table = f"{POINTS}_{secrets.token_hex(8)}"
        kinds = ", ".join(f"{field.name} {_sql_type(field.type)}" for field in points.schema)
        create = f"CREATE TEMPORARY TABLE {table} ({kinds})"
        cursor.execute(sqlglot.transpile(create, read="duckdb", write=self._dialect)[0])
        places = ", ".join(_PLACEHOLDERS[self._style](i) for i in range(points.num_columns))
        rows: Any = zip(*(column.to_pylist() for column in points.columns), strict=True)
        if self._style in ("named", "pyformat"):
            rows = ({f"p{i}": x for i, x in enumerate(row)} for row in rows)
        cursor.executemany(f"INSERT INTO {table} VALUES ({places})", list(rows))
        return table


def with_tables(query: str, tables: Mapping[str, Any]) -> Any:
    """The parsed query, with these tables in place of the given names."""

    # Any: older releases of sqlglot have another name for the class of nodes.
    def named(node: Any) -> Any:
        if isinstance(node, exp.Table) and node.name in tables:
            table = exp.to_table(tables[node.name]).copy()
            return exp.alias_(table, node.alias or node.name, table=True)
        return node

    return sqlglot.parse_one(query, read="duckdb").transform(named)


def _sql_type(kind: pa.DataType) -> str:
    """The type of a column of points, in DuckDB's dialect."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return next((name for is_one, name in _TYPES.items() if is_one(kind)), "TEXT")


# Placeholder of parameter i, by the paramstyle of PEP 249.
_PLACEHOLDERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda i: "?",
    "numeric": lambda i: f":{i + 1}",
    "format": lambda i: "%s",
    "named": lambda i: f":p{i}",
    "pyformat": lambda i: f"%(p{i})s",
}


def _dialect_name(name: str) -> str:
    known = {"sqlite3": "sqlite", "postgresql": "postgres", "psycopg": "postgres"}
    name = {**known, "psycopg2": "postgres", "pymysql": "mysql"}.get(name, name)
    if name not in sqlglot.Dialect.classes:
        raise ValueError(
            "dialect: expected one that sqlglot knows, such as 'sqlite' or 'postgres', got "
            f"{name!r}"
        )
    return name


def schema(table: pa.Table) -> dict[str, pa.DataType]:
    """The names and types of a table's columns."""
    return {field.name: field.type for field in table.schema}
