"""Relations: the engine that runs queries over one, and checks of its columns."""

import os
from collections.abc import Mapping, Sequence
from glob import escape
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from platt_jax.extras import install_hint
from platt_jax.sql.database import Database
from platt_jax.sql.engines import DuckDB, QueryEngine, SparkSQL

# The class of engines of a relation, by the top package of the relation's type.
_ENGINES: dict[str, type[Any]] = {"duckdb": DuckDB, "_duckdb": DuckDB, "pyspark": SparkSQL}


def engine_of(relation: Any, connection: Any = None, dialect: str | None = None) -> QueryEngine:
    """The engine that runs queries over a relation.

    Raises:
        ValueError: the relation is of no known engine.
        ImportError: the relation is a Parquet file, and DuckDB is missing.
    """
    if connection is not None and isinstance(relation, str):
        return Database(relation, connection, dialect)
    if connection is not None or dialect is not None:
        raise ValueError(
            "connection, dialect: expected only beside the name of a table, got them beside a "
            f"{type(relation).__name__}"
        )
    if isinstance(relation, str) or hasattr(relation, "__fspath__"):
        return DuckDB(_parquet(str(relation)))
    package = type(relation).__module__.partition(".")[0]
    if package in _ENGINES:
        engine: QueryEngine = _ENGINES[package](relation)
        return engine
    known = " or ".join(dict.fromkeys(engine.__name__ for engine in _ENGINES.values()))
    raise ValueError(
        f"relation: expected a relation of {known}, a Parquet path, or the name of a table and its "
        f"connection, got a {type(relation).__name__}"
    )


def check_columns(
    there: dict[str, pa.DataType],
    numeric: dict[str, str | None],
    segment: Sequence[str],
    others: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Check that columns exist and have the right types.

    Args:
        there: the columns of the relation.
        numeric: names of numeric columns, by argument; None if it is left out.
        segment: names of the columns of segment ids.
        others: names of columns of any type, by argument.

    Raises:
        ValueError: a column is missing or of another type.
    """
    if not segment:
        raise ValueError("segment: expected at least one column, got none")
    if len(set(segment)) < len(segment):
        raise ValueError(f"segment: expected different columns, got {list(segment)}")
    id_columns = (("segment", column) for column in segment)
    wanted = [*numeric.items(), *others.items(), *id_columns]
    for role, column in wanted:
        if column is None:
            continue
        if column not in there:
            raise ValueError(f"{role}: expected one of the columns {list(there)}, got {column!r}")
        if pa.types.is_union(kind := there[column]):
            kinds = " and ".join(field.name for field in kind)
            raise ValueError(f"{role}, column {column!r}: expected values of one type, got {kinds}")
        if role in numeric and not _is_numeric(kind):
            raise ValueError(f"{role}, column {column!r}: expected numbers, got {kind}")


def _is_numeric(kind: pa.DataType) -> bool:
    tests = ("is_integer", "is_floating", "is_decimal", "is_boolean", "is_null")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _parquet(path: str) -> Any:
    with install_hint("a Parquet path needs DuckDB", "platt-jax[sql]"):
        import duckdb
    try:
        # An existing file is read as such, even if its name looks like a pattern.
        return duckdb.connect().read_parquet(escape(path) if os.path.isfile(path) else path)
    except duckdb.Error as error:
        raise ValueError(f"relation: no Parquet files at {path!r} ({error})") from None
