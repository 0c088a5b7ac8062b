"""Points as parameters of the query that reads them, so that no table is made for them."""

import datetime as dt
import json
import math
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

# DuckDB's types, by tests of Arrow's types.
_TYPES = {
    pa.types.is_floating: "DOUBLE",
    pa.types.is_integer: "BIGINT",
    pa.types.is_boolean: "BOOLEAN",
    pa.types.is_date: "DATE",
    pa.types.is_timestamp: "TIMESTAMP",
    pa.types.is_binary: "BLOB",
    pa.types.is_large_binary: "BLOB",
}
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


def sql_type(kind: pa.DataType, dialect: str) -> str:
    """The type of a column of points."""
    name = next((name for is_one, name in _TYPES.items() if is_one(kind)), "TEXT")
    if pa.types.is_decimal(kind):
        name = f"DECIMAL({kind.precision}, {kind.scale})"
    return exp.DataType.build(name, dialect="duckdb").sql(dialect=dialect)


def as_arrays(points: pa.Table) -> ParameterizedQuery:
    """An array for each column, in PostgreSQL."""
    arrays = ", ".join(f"%s::{sql_type(field.type, 'postgres')}[]" for field in points.schema)
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
    each = ", ".join(f"JSON_EXTRACT(value, '$[{i}]')" for i in range(points.num_columns))
    # Without LIMIT, SQLite would read the text again for every row that is joined.
    return ParameterizedQuery(f"SELECT {each} FROM JSON_EACH(?) LIMIT -1", [rows])


def _in_json(x: Any) -> Any:
    """A value as `sqlite3` stores it."""
    if isinstance(x, dt.datetime):
        return x.isoformat(" ")
    if isinstance(x, float) and math.isnan(x):
        return None
    return x if x is None or isinstance(x, (str, int, float)) else str(x)
