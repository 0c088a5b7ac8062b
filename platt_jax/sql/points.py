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
_MOST_OF_SQLITE = 2**63 - 1  # its largest integer


class Sent(NamedTuple):
    """A table of points in a query.

    Attributes:
        query: reads the table, with the driver's placeholders.
        parameters: one for each placeholder.
    """

    query: str
    parameters: list[Any]


def sql_type(kind: pa.DataType, dialect: str) -> str:
    """The type of a column of points."""
    name = next((name for is_one, name in _TYPES.items() if is_one(kind)), "TEXT")
    if pa.types.is_decimal(kind):
        name = f"DECIMAL({kind.precision}, {kind.scale})"
    return exp.DataType.build(name, dialect="duckdb").sql(dialect=dialect)


def as_arrays(points: pa.Table) -> Sent:
    """An array for each column, in PostgreSQL."""
    arrays = ", ".join(f"%s::{sql_type(field.type, 'postgres')}[]" for field in points.schema)
    return Sent(
        f"SELECT * FROM UNNEST({arrays})", [column.to_pylist() for column in points.columns]
    )


def as_json(points: pa.Table) -> Sent | None:
    """A JSON text of all rows, in SQLite; None if a column's type is none of JSON's."""
    expressions: list[str] = []
    columns: list[list[Any]] = []
    for field, column in zip(points.schema, points.columns, strict=True):
        if sql_type(field.type, "duckdb") == "BLOB":
            return None
        values, at = column.to_pylist(), f"JSON_EXTRACT(value, '$[{len(columns)}]')"
        if pa.types.is_floating(field.type):
            columns += map(list, zip(*map(_ratio, values), strict=True)) if values else [[], []]
            at = f"{at} * 1.0 / JSON_EXTRACT(value, '$[{len(columns) - 1}]')"
        else:
            columns.append([_in_json(x) for x in values])
        expressions.append(at)
    rows = json.dumps(list(zip(*columns, strict=True)))
    # Without LIMIT, SQLite would read the text again for every row that is joined.
    return Sent(f"SELECT {', '.join(expressions)} FROM JSON_EACH(?) LIMIT -1", [rows])


def _ratio(x: float | None) -> tuple[float | None, float]:
    """A number as a numerator and a denominator, as SQLite may round the decimals that it reads."""
    if x is None or math.isnan(x):
        return None, 1
    if math.isinf(x):  # JSON has no infinity
        return math.copysign(1e308, x), 1e-10
    numerator, denominator = x.as_integer_ratio()
    if max(abs(numerator), denominator) > _MOST_OF_SQLITE:
        return x, 1
    return numerator, denominator


def _in_json(x: Any) -> Any:
    """A value as `sqlite3` stores it."""
    if isinstance(x, dt.datetime):
        return x.isoformat(" ")
    return x if x is None or isinstance(x, (str, int)) else str(x)
