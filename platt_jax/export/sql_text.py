"""The text of an exported calibrator in SQL: expressions, and tables to join."""

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from platt_jax.export.curves import Curves, other_cases

# Step and number of pairs of the quadrature (`results/averages.py`); each node is a term of SQL.
_FEW_NODES = 1.0, 6
_ROWS_OF_INSERT = 500
PROBABILITY = "probability"  # the new column of a view


def _probability(parameters: Sequence[str], score: str) -> str:
    """The probability, given expressions of the parameters."""
    from platt_jax.sql import expressions

    A, B, *covariance = parameters
    z = f"({A} * {score} + {B})"
    if not covariance:
        return expressions.probability(z)
    return expressions.mean_probability(
        z, expressions.deviation_of_logit(score, *covariance), _FEW_NODES
    )


def _number(x: float) -> str:
    from platt_jax.sql import expressions

    return "NULL" if x != x else expressions.literal(x)


def cases(found: Curves, score: str, columns: Sequence[str]) -> str:
    """The probability as a CASE over segments, and with levels over what is known of others."""
    default = _probability([*map(_number, found.fallback)], score)
    segment_cases = (
        (dict(enumerate(_parts(segment))), numbers)
        for segment, numbers in zip(found.segments or [], found.parameters, strict=True)
    )
    whens = "".join(
        f" WHEN {_equal(columns, known)} THEN {_probability([*map(_number, numbers)], score)}"
        for known, numbers in chain(segment_cases, other_cases(found))
    )
    return f"CASE{whens} ELSE {default} END" if whens else default


def _equal(columns: Sequence[str], known: dict[int, Any]) -> str:
    return " AND ".join(f"{columns[place]} = {_literal(part)}" for place, part in known.items())


def _parts(segment: Any) -> tuple[Any, ...]:
    return segment if isinstance(segment, tuple) else (segment,)


def _literal(part: Any) -> str:
    from sqlglot import exp

    from platt_jax.sql import expressions

    if isinstance(part, str):
        # Most programs end a statement at the character NUL.
        texts = [exp.Literal.string(text).sql("duckdb") for text in part.split("\0")]
        return texts[0] if len(texts) == 1 else f"({' || CHR(0) || '.join(texts)})"
    if isinstance(part, float):
        return expressions.literal(part)
    return f"DATE '{part}'" if isinstance(part, dt.date) else str(part)


class SqlTable(NamedTuple):
    """A table to create, of the segments or of the values of a level.

    Attributes:
        name: its name, quoted.
        prefix: prefix of the names of its columns.
        columns: the places of the columns of ids that it has, with their SQL types.
        rows: ids and parameters of each row.
        unseen: with crossed levels, the parameters where no row is joined; None otherwise.
    """

    name: str
    prefix: str
    columns: dict[int, str]
    rows: list[tuple[tuple[Any, ...], tuple[float, ...]]]
    unseen: tuple[float, ...] | None = None


def tables(found: Curves, types: Sequence[str], name: str) -> list[SqlTable]:
    """The table of the segments, and those of the levels."""
    from platt_jax.sql import expressions

    segments = zip(map(_parts, found.segments or []), found.parameters, strict=True)
    segment_table = SqlTable(
        expressions.quoted(name), "platt", dict(enumerate(types)), list(segments)
    )
    level_tables = (
        SqlTable(
            expressions.quoted(f"{name}_level_{number}"),
            f"platt_level_{number}",
            {place: types[place] for place in level.columns},
            list(zip(level.values, level.parameters, strict=True)),
            level.unseen,
        )
        for number, level in enumerate(found.levels)
    )
    return [segment_table, *level_tables]


def setup(found: Curves, table: SqlTable) -> Iterable[str]:
    """The statements that create a table, and drop an earlier one.

    PostgreSQL and SQLite have no CREATE OR REPLACE TABLE, and Spark has it for some tables only.
    """
    prefix = table.prefix
    rows = [
        f"({', '.join([*map(_literal, parts), '1', *map(_number, numbers)])})"
        for parts, numbers in table.rows
    ]
    keys = ", ".join(f"{prefix}_key_{i} {type_}" for i, type_ in table.columns.items())
    numbers = ", ".join(f"{prefix}_{name} DOUBLE" for name in found.names)
    yield f"DROP TABLE IF EXISTS {table.name}"
    yield f"CREATE TABLE {table.name} ({keys}, {prefix}_known INTEGER, {numbers})"
    for i in range(0, len(rows), _ROWS_OF_INSERT):
        yield f"INSERT INTO {table.name} VALUES {', '.join(rows[i : i + _ROWS_OF_INSERT])}"


def with_view(
    statements: Sequence[str], view: str, rows: str, probability: str, joins: str
) -> list[str]:
    """The statements of tables, and those of a view of the rows that are joined with them.

    The earlier view is dropped first: PostgreSQL drops no table that a view needs, and a view of
    tables that are half filled would have wrong probabilities. The probability comes first: of two
    columns of its name, DuckDB and SQLite rename the second without a word.
    """
    columns = f"{probability} AS {PROBABILITY}, platt_rows.*"
    query = f"SELECT {columns} FROM {rows} AS platt_rows {joins}"
    return [f"DROP VIEW IF EXISTS {view}", *statements, f"CREATE VIEW {view} AS {query}"]


def joined(found: Curves, score: str, tables: Sequence[SqlTable]) -> str:
    """The probability, given the joined tables of the segments and of the levels."""
    from platt_jax.sql.expressions import Joined, parameter

    def parameter_cases(place: int, name: str) -> str:
        segments, *levels = (
            Joined(
                f"{table.prefix}_known",
                f"{table.prefix}_{name}",
                None if table.unseen is None else _number(table.unseen[place]),
            )
            for table in tables
        )
        return parameter(segments, _number(found.root[place]), levels)

    return _probability([parameter_cases(*named) for named in enumerate(found.names)], score)


def join(table: SqlTable, columns: Sequence[str]) -> str:
    """The clause that joins a table."""
    on = " AND ".join(f"{columns[i]} = {table.prefix}_key_{i}" for i in table.columns)
    return f"LEFT JOIN {table.name} ON {on}"
