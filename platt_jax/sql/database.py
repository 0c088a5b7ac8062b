"""Tables of databases, through Python's database API (PEP 249) or SQLAlchemy.

Where an engine can take them so, points are parameters of the query that reads them, and no table
is made for them. A connection is left as it came, with the transaction that it had or without one.
"""

import datetime as dt
import json
import math
import secrets
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

import pyarrow as pa
import sqlglot
from sqlglot import exp

from platt_jax.sql.engines import POINTS, ROWS, QueryEngine, schema, with_tables
from platt_jax.sql.expressions import quoted
from platt_jax.sql.queries import COMPUTED_ONCE

_SAMPLED_ROWS = 1000
_MATERIALIZING = "sqlite", "postgres"  # dialects with AS MATERIALIZED
_PADDED = 1042  # PostgreSQL's number of the type char(n)
# Arrow's types of values in SQLite, by their name there.
_OF_SQLITE = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
    "blob": pa.binary(),
}
# Placeholder of parameter i, by the paramstyle of PEP 249.
_PLACEHOLDERS: dict[str, Callable[[int], str]] = {
    "qmark": lambda i: "?",
    "numeric": lambda i: f":{i + 1}",
    "format": lambda i: "%s",
    "named": lambda i: f":p{i}",
    "pyformat": lambda i: f"%(p{i})s",
}
# DuckDB's types of columns of points, by tests of Arrow's types.
_TYPES = {
    pa.types.is_floating: "DOUBLE",
    pa.types.is_integer: "BIGINT",
    pa.types.is_boolean: "BOOLEAN",
    pa.types.is_date: "DATE",
    pa.types.is_timestamp: "TIMESTAMP",
    pa.types.is_binary: "BLOB",
    pa.types.is_large_binary: "BLOB",
}
# Types whose values JSON has.
_IN_JSON = (
    pa.types.is_floating,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
)


class ParameterizedQuery(NamedTuple):
    """A table of points in a query."""

    query: str  # reads the table, with the driver's placeholders
    parameters: list[Any]  # one for each placeholder


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
        library = type(_driver(connection)).__module__.partition(".")[0]
        self._dialect = _dialect_name(dialect or library)
        self._style = getattr(sys.modules.get(library), "paramstyle", "qmark")
        self._table = sqlglot.to_table(table, dialect=self._dialect)

    def run(self, query: str, points: pa.Table | None = None) -> pa.Table:
        """See `QueryEngine`."""
        with (
            closing(self._connection.cursor()) as cursor,
            _restored_transaction(self._connection, self._dialect),
            self._sent(cursor, query, points) as statement,
        ):
            _execute(cursor, statement)
            names = [column[0] for column in cursor.description]
            kinds = [column[1] for column in cursor.description]
            rows = cursor.fetchall()
        columns: Any = zip(*rows, strict=True) if rows else ([] for _ in names)
        padded = [self._dialect == "postgres" and kind == _PADDED for kind in kinds]
        return pa.table([_array(*x) for x in zip(columns, padded, strict=True)], names=names)

    def columns(self) -> dict[str, pa.DataType]:
        """See `QueryEngine`; elsewhere than in SQLite, types come from the first rows."""
        if self._dialect != "sqlite":
            return schema(self.run(f"SELECT * FROM {ROWS} LIMIT {_SAMPLED_ROWS}"))
        # SQLite's columns have no types, but each value has one.
        names = self.run(f"SELECT * FROM {ROWS} LIMIT 0").column_names
        expressions = ", ".join(
            f"GROUP_CONCAT(DISTINCT TYPEOF({quoted(name)})) AS kinds_{i}"
            for i, name in enumerate(names)
        )
        kinds = self.run(f"SELECT {expressions} FROM {ROWS}").to_pylist()[0].values()
        return dict(zip(names, map(_common, kinds), strict=True))

    def extended(self, query: str, points: pa.Table) -> Any:
        """See `QueryEngine`: a cursor over the result."""
        cursor = self._connection.cursor()
        with _restored_transaction(self._connection, self._dialect):
            statement = self._as_parameters(query, points)
            if statement is None:  # the table has to stay as long as the cursor
                table = f"{POINTS}_{secrets.token_hex(8)}"
                self._upload(cursor, points, table)
                statement = ParameterizedQuery(self._text(query, table, points), [])
        with _restored_transaction(self._connection, self._dialect):
            _execute(cursor, statement)
        return cursor

    @contextmanager
    def held(self, columns: Sequence[str], snapshot: bool) -> Iterator[QueryEngine]:
        """See `QueryEngine`."""
        state = _repeatable if self._dialect == "postgres" else nullcontext
        with (
            state(self._connection) as fixed,
            self._copied(columns, snapshot and fixed is not True) as engine,
        ):
            yield engine

    @contextmanager
    def _copied(self, columns: Sequence[str], wanted: bool) -> Iterator[QueryEngine]:
        """This engine or, if wanted, one over a copy of the columns."""
        if not wanted:
            yield self
            return
        table = f"{ROWS}_{secrets.token_hex(8)}"
        chosen = f"SELECT {', '.join(map(quoted, columns))} FROM {ROWS}"
        with _restored_transaction(self._connection, self._dialect):
            create = self._text(f"CREATE TEMPORARY TABLE {table} AS {chosen}")
            _run_statement(self._connection, create)
        try:
            yield Database(table, self._connection, self._dialect)
        finally:
            # After an error PostgreSQL drops the table itself, and refuses statements until then.
            with suppress(Exception), _restored_transaction(self._connection, self._dialect):
                _run_statement(self._connection, f"DROP TABLE {table}")

    @contextmanager
    def _sent(
        self, cursor: Any, query: str, points: pa.Table | None
    ) -> Iterator[ParameterizedQuery]:
        """The query in the database's dialect, with its points there as long as the context."""
        if points is None:
            yield ParameterizedQuery(self._text(query), [])
            return
        statement = self._as_parameters(query, points) if self._dialect == "postgres" else None
        if statement is not None:
            yield statement
            return
        table = f"{POINTS}_{secrets.token_hex(8)}"
        try:
            self._upload(cursor, points, table)
            yield ParameterizedQuery(self._text(query, table, points), [])
        finally:
            _run_statement(self._connection, f"DROP TABLE IF EXISTS {table}")

    def _as_parameters(self, query: str, points: pa.Table) -> ParameterizedQuery | None:
        """The query with its points as parameters; None where they need a table."""
        source = None
        if self._dialect == "postgres" and self._style in ("format", "pyformat"):
            source = _as_arrays(points)
        elif self._dialect == "sqlite" and self._style == "qmark":
            source = as_json(points)
        if source is None:
            return None
        table = f"{POINTS}_{secrets.token_hex(8)}"
        text = self._text(query, table, points)
        if self._style != "qmark":
            text = text.replace("%", "%%")  # in names of columns
        names = ", ".join(points.column_names)
        return source._replace(
            query=f"WITH {table}({names}) AS ({source.query}) SELECT * FROM ({text}) AS platt_found"
        )

    def _text(self, query: str, table: str | None = None, points: pa.Table | None = None) -> str:
        """The query in the database's dialect, with the name of the table of points, if any."""
        tables = {ROWS: self._table, **({} if table is None else {POINTS: table})}
        parsed = with_tables(query, tables, materialized=self._dialect in _MATERIALIZING)
        if self._dialect == "postgres":
            _adapt_to_postgres(parsed, points)
        return parsed.sql(dialect=self._dialect)

    def _upload(self, cursor: Any, points: pa.Table, table: str) -> None:
        """Create a temporary table of this name with these rows."""
        kinds = ", ".join(
            f"{field.name} {_sql_type(field.type, 'duckdb')}" for field in points.schema
        )
        create = f"CREATE TEMPORARY TABLE {table} ({kinds})"
        cursor.execute(sqlglot.transpile(create, read="duckdb", write=self._dialect)[0])
        placeholders = ", ".join(_PLACEHOLDERS[self._style](i) for i in range(points.num_columns))
        rows: Any = zip(*(column.to_pylist() for column in points.columns), strict=True)
        if self._style in ("named", "pyformat"):
            rows = ({f"p{i}": x for i, x in enumerate(row)} for row in rows)
        cursor.executemany(f"INSERT INTO {table} VALUES ({placeholders})", list(rows))


def _execute(cursor: Any, sent: ParameterizedQuery) -> None:
    # Without parameters some drivers leave each % as it is.
    cursor.execute(sent.query, *([sent.parameters] if sent.parameters else []))


def _adapt_to_postgres(parsed: Any, points: pa.Table | None) -> None:
    """Compare texts with columns of any type, and compute what is used often once for each row."""
    kinds = {} if points is None else schema(points)
    texts = {name for name, kind in kinds.items() if _sql_type(kind, "duckdb") == "TEXT"}
    for equal in list(parsed.find_all(exp.EQ)):
        if isinstance(equal.expression, exp.Column) and equal.expression.name in texts:
            equal.set("this", exp.cast(equal.this.copy(), "text"))
    for part in parsed.find_all(exp.CTE):
        if part.alias in COMPUTED_ONCE:
            part.this.offset(0, copy=False)  # PostgreSQL would insert it wherever it is used


def _array(values: Sequence[Any], padded: bool) -> pa.Array:
    """A column of a result; ids without the blanks of char(n), and ids of type uuid as text."""
    plain_values: list[Any] = [str(x) if isinstance(x, uuid.UUID) else x for x in values]
    return pa.array([x and x.rstrip(" ") for x in plain_values] if padded else plain_values)


def _common(there: str | None) -> pa.DataType:
    """The type of a column whose values have these types in SQLite; None without rows."""
    kinds = sorted(set((there or "null").split(",")) - {"null"})
    types = [_OF_SQLITE[kind] for kind in kinds]
    if kinds == ["integer", "real"]:
        return pa.float64()
    if len(types) > 1:
        return pa.dense_union(list(map(pa.field, kinds, types)))
    return types[0] if types else pa.null()


def _dialect_name(name: str) -> str:
    aliases = {"sqlite3": "sqlite", "postgresql": "postgres", "psycopg": "postgres"}
    name = {**aliases, "psycopg2": "postgres", "pymysql": "mysql"}.get(name, name)
    if name not in sqlglot.Dialect.classes:
        raise ValueError(
            "dialect: expected one that sqlglot knows, such as 'sqlite' or 'postgres', got "
            f"{name!r}"
        )
    return name


# --- points as parameters -------------------------------------------------------------------------


def _as_arrays(points: pa.Table) -> ParameterizedQuery:
    """An array for each column, in PostgreSQL."""
    arrays = ", ".join(f"%s::{_sql_type(field.type, 'postgres')}[]" for field in points.schema)
    return ParameterizedQuery(
        f"SELECT * FROM UNNEST({arrays})", [column.to_pylist() for column in points.columns]
    )


def as_json(points: pa.Table) -> ParameterizedQuery | None:
    """A JSON text of all rows, in SQLite; None if JSON has no such values.

    SQLite reads decimals between 1e-17 and 1e17 exactly, and others within two units in the last
    place.
    """
    columns = [column.to_pylist() for column in points.columns]
    if not all(any(is_one(kind) for is_one in _IN_JSON) for kind in points.schema.types):
        return None
    if any(isinstance(x, float) and math.isinf(x) for values in columns for x in values):
        return None
    rows = json.dumps([[_in_json(x) for x in row] for row in zip(*columns, strict=True)])
    fields = ", ".join(f"JSON_EXTRACT(value, '$[{i}]')" for i in range(points.num_columns))
    # Without LIMIT, SQLite would read the text again for every row that is joined.
    return ParameterizedQuery(f"SELECT {fields} FROM JSON_EACH(?) LIMIT -1", [rows])


def _in_json(x: Any) -> Any:
    """A value as `sqlite3` stores it."""
    if isinstance(x, dt.datetime):
        return x.isoformat(" ")
    if isinstance(x, float) and math.isnan(x):
        return None
    return x if x is None or isinstance(x, (str, int, float)) else str(x)


def _sql_type(kind: pa.DataType, dialect: str) -> str:
    """The type of a column of points."""
    name = next((name for is_one, name in _TYPES.items() if is_one(kind)), "TEXT")
    if pa.types.is_decimal(kind):
        name = f"DECIMAL({kind.precision}, {kind.scale})"
    return exp.DataType.build(name, dialect="duckdb").sql(dialect=dialect)


# --- transactions ---------------------------------------------------------------------------------


@contextmanager
def _repeatable(connection: Any) -> Iterator[bool]:
    """Let PostgreSQL's queries within read one state of the database; says whether they do.

    They do not in a transaction that was begun with a lower isolation.
    """
    was_open = _in_transaction(connection)
    with _restored_transaction(connection, "postgres"), closing(connection.cursor()) as cursor:
        if was_open is False:
            if _autocommits(connection):
                cursor.execute("BEGIN")
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SHOW transaction_isolation")
        yield cursor.fetchone()[0] in ("repeatable read", "serializable")


@contextmanager
def _restored_transaction(connection: Any, dialect: str) -> Iterator[None]:
    """End a transaction that begins within; in one that was there, undo only what failed."""
    was_open = _in_transaction(connection)
    if was_open and dialect == "postgres":
        with _savepoint(connection):
            yield
        return
    try:
        yield
    except BaseException:
        if was_open is False:
            with suppress(Exception):  # the first error tells more
                _end(connection, "ROLLBACK")
        raise
    if was_open is False:
        _end(connection, "COMMIT")


@contextmanager
def _savepoint(connection: Any) -> Iterator[None]:
    name = "platt_jax"
    _run_statement(connection, f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error tells more
            _run_statement(connection, f"ROLLBACK TO SAVEPOINT {name}")
            _run_statement(connection, f"RELEASE SAVEPOINT {name}")
        raise
    _run_statement(connection, f"RELEASE SAVEPOINT {name}")


def _run_statement(connection: Any, statement: str) -> None:
    """Execute a statement without a result."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)


def _end(connection: Any, how: str) -> None:
    if not _in_transaction(connection):
        return
    if _autocommits(connection):  # some drivers then ignore their own methods
        _run_statement(connection, how)
    else:
        (connection.commit if how == "COMMIT" else connection.rollback)()


def _in_transaction(connection: Any) -> bool | None:
    """Whether a transaction has begun; None if the driver does not tell.

    The connection is one of Python's database interface, or SQLAlchemy's cover of one.
    """
    driver = _driver(connection)
    begun: bool | None = getattr(driver, "in_transaction", None)  # of sqlite3
    status = getattr(getattr(driver, "info", None), "transaction_status", None)  # of psycopg
    return begun if status is None else status != 0


def _autocommits(connection: Any) -> bool:
    return getattr(_driver(connection), "autocommit", None) is True


def _driver(connection: Any) -> Any:
    return getattr(connection, "driver_connection", connection)
