"""The engines that run queries: each names the rows, runs a text, and returns an arrow table."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

import pyarrow as pa
import sqlglot
from sqlglot import exp

# In queries: the rows, and the numbers that every pass hands to the engine.
ROWS, POINTS = "platt_rows", "platt_points"
_SAMPLED_ROWS = 1000
_TYPES = {"double": "DOUBLE", "int64": "BIGINT", "string": "TEXT", "bool": "BOOLEAN"}


class Engine(Protocol):
    """Runs queries over one relation, which they call `ROWS`."""

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """The result of a query in DuckDB's dialect, which may join with `POINTS`."""

    def columns(self) -> dict[str, pa.DataType]:
        """The names and types of the relation's columns."""

    def extended(self, query: str, points: pa.Table) -> Any:
        """The result of a query as another relation of this engine, whose rows stay there."""


def engine_of(relation: Any, connection: Any = None, dialect: str | None = None) -> Engine:
    """The engine that a relation belongs to.

    Raises:
        ValueError: it belongs to none that is known.
        ImportError: a Parquet file, and DuckDB is missing.
    """
    library = type(relation).__module__.partition(".")[0]
    if connection is not None and isinstance(relation, str):
        return Database(relation, connection, dialect)
    if connection is not None or dialect is not None:
        raise ValueError(
            "connection, dialect: expected only beside the name of a table, got them beside a "
            f"{type(relation).__name__}"
        )
    if library in ("duckdb", "_duckdb"):
        return DuckDB(relation)
    if library == "pyspark":
        return Spark(relation)
    if isinstance(relation, str) or hasattr(relation, "__fspath__"):
        return DuckDB(_parquet(str(relation)))
    raise ValueError(
        "relation: expected a relation of DuckDB, a Parquet path, a DataFrame of Spark, or the "
        f"name of a table and its connection, got a {type(relation).__name__}"
    )


def check_columns(
    there: dict[str, pa.DataType], numeric: dict[str, str | None], segment: Sequence[str]
) -> None:
    """Refuse columns that are missing, or not numbers.

    Args:
        there: the columns of the relation.
        numeric: those wanted, by the argument that names each; None where it is left out.
        segment: those of the segment ids.

    Raises:
        ValueError: a column is missing or of another type.
    """
    if not segment:
        raise ValueError("segment: expected at least one column, got none")
    wanted = [*numeric.items(), *(("segment", column) for column in segment)]
    for role, column in wanted:
        if column is None:
            continue
        if column not in there:
            raise ValueError(f"{role}: expected one of the columns {list(there)}, got {column!r}")
        if role != "segment" and not _is_numeric(there[column]):
            raise ValueError(f"{role}, column {column!r}: expected numbers, got {there[column]}")


def _is_numeric(kind: pa.DataType) -> bool:
    tests = ("is_integer", "is_floating", "is_decimal", "is_boolean", "is_null")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _parquet(path: str) -> Any:
    try:
        import duckdb
    except ImportError:
        raise ImportError("a Parquet path needs DuckDB: pip install 'platt-jax[sql]'") from None
    try:
        return duckdb.connect().read_parquet(path)
    except duckdb.Error as error:
        raise ValueError(f"relation: no Parquet files at {path!r} ({error})") from None


class DuckDB:
    """A relation of DuckDB, on whatever connection it was made."""

    def __init__(self, relation: Any) -> None:
        self._relation = relation

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `Engine`."""
        return self.extended(query, points).to_arrow_table()

    def columns(self) -> dict[str, pa.DataType]:
        """See `Engine`."""
        return _schema(self._relation.limit(0).to_arrow_table())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `Engine`."""
        platt_points = points  # noqa: F841 - DuckDB finds it by its name
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
        return _schema(self._frame.limit(0).toArrow())

    def extended(self, query: str, points: pa.Table | None) -> Any:
        """See `Engine`."""
        from pyspark.sql.functions import broadcast

        session = self._frame.sparkSession
        text = sqlglot.transpile(query, read="duckdb", write="spark")[0]
        frames = {ROWS: self._frame}
        if points is not None:
            frames[POINTS] = broadcast(session.createDataFrame(points))
        for name in frames:
            text = text.replace(name, f"{{{name}}}")
        return session.sql(text, **frames)


class Database:
    """A table on a connection of Python's database interface (PEP 249), or of SQLAlchemy."""

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
        with closing(self._connection.cursor()) as cursor, self._uploaded(cursor, points):
            cursor.execute(self._text(query))
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        columns: Any = zip(*rows, strict=True) if rows else ([] for _ in names)
        return pa.table([pa.array(list(column)) for column in columns], names=names)

    def columns(self) -> dict[str, pa.DataType]:
        """See `Engine`; the types are those of the first rows, for SQLite has no others."""
        return _schema(self.run(f"SELECT * FROM {ROWS} LIMIT {_SAMPLED_ROWS}"))

    def extended(self, query: str, points: pa.Table) -> Any:
        """See `Engine`: a cursor over the result."""
        cursor = self._connection.cursor()
        self._upload(cursor, points)
        cursor.execute(self._text(query))
        return cursor

    def _text(self, query: str) -> str:
        parsed = sqlglot.parse_one(query, read="duckdb")

        # Any: the class of nodes has another name in older releases of sqlglot.
        def named(node: Any) -> Any:
            if isinstance(node, exp.Table) and node.name == ROWS:
                return exp.alias_(self._table.copy(), ROWS, table=True)
            return node

        text: str = parsed.transform(named).sql(dialect=self._dialect)
        return text

    @contextmanager
    def _uploaded(self, cursor: Any, points: pa.Table | None) -> Iterator[None]:
        if points is None:
            yield
            return
        self._upload(cursor, points)
        try:
            yield
        finally:
            cursor.execute(f"DROP TABLE {POINTS}")

    def _upload(self, cursor: Any, points: pa.Table) -> None:
        kinds = ", ".join(f"{f.name} {_TYPES.get(str(f.type), 'TEXT')}" for f in points.schema)
        cursor.execute(f"DROP TABLE IF EXISTS {POINTS}")
        create = f"CREATE TEMPORARY TABLE {POINTS} ({kinds})"
        cursor.execute(sqlglot.transpile(create, read="duckdb", write=self._dialect)[0])
        places = ", ".join(_PLACEHOLDERS[self._style](i) for i in range(points.num_columns))
        rows: Any = zip(*(column.to_pylist() for column in points.columns), strict=True)
        if self._style in ("named", "pyformat"):
            rows = ({f"p{i}": x for i, x in enumerate(row)} for row in rows)
        cursor.executemany(f"INSERT INTO {POINTS} VALUES ({places})", list(rows))


# By the paramstyle of PEP 249.
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


def _schema(table: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in table.schema}
