"""The text of an exported calibrator in SQL: expressions, and tables to join."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from platt_jax.export.curves import (
    ExportedCurves,
    column_types,
    is_wider,
    number_of_cases,
    other_cases,
)
from platt_jax.extras import install_hint
from platt_jax.results.pieces import Pieces

with install_hint("to_sql needs sqlglot", "platt-jax[sql]"):
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

from platt_jax.sql import expressions
from platt_jax.sql import pieces as sql_pieces

# Maximum numbers of segments and of pieces of curves in an expression, and of bytes: engines take
# long to read more. ClickHouse reads 262,144 bytes of a query (max_query_size).
_MOST_IN_EXPRESSION, _MOST_PIECES = 1000, 300
_LONGEST, _LONGEST_IN = 1_000_000, {"clickhouse": 250_000}
_TYPES = {str: "TEXT", bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", dt.date: "DATE"}
_BITS = 64  # size of a BIGINT
# Widest integers of DuckDB; other engines are assumed to have BIGINT only.
_WIDE = {"duckdb": ("HUGEINT", 128)}
# Step and number of pairs of the quadrature (`results/averages.py`); each node is a term of SQL.
_FEW_NODES = 1.0, 6
_ROWS_OF_INSERT = 500


def written(
    found: ExportedCurves,
    score: str,
    columns: list[str],
    dialect: str,
    table: str | None,
    view: str | None,
    rows: str | None,
) -> tuple[str, str, tuple[str, ...]]:
    """The parts of a `SqlExport`; see `to_sql` for the arguments and errors."""
    types = _column_types(found, dialect)
    _check(found, columns, table)
    try:
        sqlglot.Dialect.get_or_raise(dialect)
    except (SqlglotError, ValueError) as error:
        raise ValueError(f"dialect: expected one that sqlglot knows, got {dialect!r}") from error

    def in_dialect(text: str) -> str:
        return sqlglot.transpile(text, read="duckdb", write=dialect)[0]

    column_names = [score, *columns]
    score = f"CAST({expressions.quoted(score)} AS DOUBLE)"
    columns = list(map(expressions.quoted, columns))
    tables = [] if table is None else _tables(found, types, table)
    p = _joined(found, score, tables) if tables else _cases(found, score, columns)
    p = f"CASE WHEN {expressions.is_number(score)} THEN {p} END"
    names = [created.name for created in tables]
    joins = [_join(created, columns) for created in tables]
    statements = [text for created in tables for text in _setup(found, created)]
    if tables and found.pieces is not None:
        names.append(expressions.quoted(f"{table}_pieces"))
        statements += _setup_of_pieces(found.pieces, names[-1])
        (curve,) = _joined_parameters(found, tables)
        joins.append(sql_pieces.join(names[-1], curve, score))
    new_column = "probability"
    if found.decides:
        p, new_column = f"({p}) = 1", "accepted"
    if view is not None or rows is not None:
        if new_column in [name.casefold() for name in column_names]:
            raise ValueError(
                f"score, segment: expected other names than {new_column!r}, which is the "
                f"new column of a view, got {column_names}"
            )
        named = _view_and_rows(view, rows, names, dialect)
        statements = _with_view(statements, *named, f"{p} AS {new_column}", " ".join(joins))
    setup = tuple(map(in_dialect, statements))
    if not tables:
        text = in_dialect(p)
        _require_short(text, found, dialect)
        return text, "", setup
    # sqlglot reads whole queries, not fragments.
    query = in_dialect(f"SELECT {p} FROM platt_rows {' '.join(joins)}")
    expression, join = query.removeprefix("SELECT ").split(" FROM platt_rows ", 1)
    return expression, join, setup


def _view_and_rows(
    view: str | None, rows: str | None, tables: Sequence[str], dialect: str
) -> tuple[str, str]:
    """The view, and the table of rows, which nothing may drop, as DuckDB writes their names."""
    if not (view and rows):
        raise ValueError(
            f"view, rows: expected the names of a view and of its rows, or neither, got {view!r} "
            f"and {rows!r}"
        )
    try:
        table = sqlglot.to_table(rows, dialect=dialect)
    except SqlglotError as error:
        raise ValueError(f"rows: expected the name of a table, got {rows!r}") from error
    # The same name in another schema may be the same table.
    names = [expressions.quoted(table.name), expressions.quoted(view), *tables]
    if len({name.casefold() for name in names}) < len(names):
        raise ValueError(
            f"view, rows, table: expected different names, got {', '.join(names)}; what has the "
            "name of the view or of a table is replaced"
        )
    return expressions.quoted(view), table.sql("duckdb")


def _check(found: ExportedCurves, columns: Sequence[str], table: str | None) -> None:
    expected = len(found.types)
    if len(columns) != expected:
        raise ValueError(
            f"segment: expected {expected or 'no'} column{'s' * (expected > 1)}, as the "
            f"calibrator's, got {columns or None}"
        )
    if found.segments is None and table is not None:
        raise ValueError("table: expected None for one sigmoid, which has no segments to join")
    if table == "":
        raise ValueError("table: expected the name of a table, got ''")
    cases, most = number_of_cases(found), _MOST_IN_EXPRESSION
    what = "segments and values of levels" if found.levels else "segments"
    if found.pieces is not None:
        cases, most, what = len(found.pieces), _MOST_PIECES, "pieces of curves"
    if table is None and cases > most:
        raise ValueError(
            f"table: expected the name of a table to make for {cases:,} {what}; "
            f"at most {most:,} go into an expression"
        )


def _require_short(text: str, found: ExportedCurves, dialect: str) -> None:
    longest = _LONGEST_IN.get(dialect, _LONGEST)
    if len(text.encode()) > longest:
        raise ValueError(
            f"table: expected the name of a table to make for {number_of_cases(found):,} segments: "
            f"as an expression they take {len(text.encode()):,} bytes, more than the {longest:,} "
            f"that {dialect} reads soon, or at all"
        )


def _column_types(found: ExportedCurves, dialect: str) -> list[str]:
    """SQL types of the columns of segments, each of one type that has exact literals."""
    widest, bits = _WIDE.get(dialect, (_TYPES[int], _BITS))
    expected = "segments: expected text, numbers, truth values or dates"
    types = column_types(found, _TYPES, expected, bits, f"{widest} columns")
    for part in chain(*found.columns):
        if type(part) is float and math.isinf(part):
            raise ValueError(
                f"segments: expected ids that SQL has a literal for, got {part}; leave it out "
                "by calibrator.only(...), or fit such ids as text"
            )
    return [
        widest if any(is_wider(part, _BITS) for part in column) else _TYPES[type_]
        for column, type_ in zip(found.columns, types, strict=True)
    ]


def _by_curve(found: ExportedCurves, parameters: Sequence[float], score: str) -> str:
    if found.pieces is not None:
        return sql_pieces.cases(found.pieces, int(parameters[0]), score)
    return _probability([*map(_number, parameters)], score)


def _probability(parameters: Sequence[str], score: str) -> str:
    """The probability by a sigmoid, given expressions of the parameters."""
    A, B, *covariance = parameters
    z = f"({A} * {score} + {B})"
    if not covariance:
        return expressions.probability(z)
    s, far = (
        expressions.deviation_of_logit(score, *covariance),
        expressions.is_far(score, covariance[0]),
    )
    return expressions.mean_probability(z, s, _FEW_NODES, far)


def _number(x: float) -> str:
    return "NULL" if x != x else expressions.literal(x)


def _cases(found: ExportedCurves, score: str, columns: Sequence[str]) -> str:
    """The probability as a CASE over segments, and with levels over what is known of others."""
    default = _by_curve(found, found.fallback, score)
    segment_cases = (
        (dict(enumerate(_parts(segment))), numbers)
        for segment, numbers in zip(found.segments or [], found.parameters, strict=True)
    )
    whens = "".join(
        f" WHEN {_equal(columns, case_values)} THEN {_by_curve(found, numbers, score)}"
        for case_values, numbers in chain(segment_cases, other_cases(found))
    )
    return f"CASE{whens} ELSE {default} END" if whens else default


def _equal(columns: Sequence[str], known: dict[int, Any]) -> str:
    return " AND ".join(f"{columns[index]} = {_literal(part)}" for index, part in known.items())


def _parts(segment: Any) -> tuple[Any, ...]:
    return segment if isinstance(segment, tuple) else (segment,)


def _literal(part: Any) -> str:
    if isinstance(part, str):
        # Most programs end a statement at the character NUL.
        texts = [exp.Literal.string(text).sql("duckdb") for text in part.split("\0")]
        return texts[0] if len(texts) == 1 else f"({' || CHR(0) || '.join(texts)})"
    if isinstance(part, float):
        return expressions.literal(part)
    return f"DATE '{part}'" if isinstance(part, dt.date) else str(part)


class _CreatedTable(NamedTuple):
    """A table to create, of the segments or of the values of a level."""

    name: str  # its name, quoted
    prefix: str  # prefix of the names of its columns
    columns: dict[int, str]  # the places of the columns of ids that it has, with their SQL types
    rows: list[tuple[tuple[Any, ...], tuple[float, ...]]]  # ids and parameters of each row
    # with crossed levels, the parameters where no row is joined; None otherwise
    unseen: tuple[float, ...] | None = None


def _tables(found: ExportedCurves, types: Sequence[str], name: str) -> list[_CreatedTable]:
    """The table of the segments, and the tables of the levels."""
    segments = zip(map(_parts, found.segments or []), found.parameters, strict=True)
    segment_table = _CreatedTable(
        expressions.quoted(name), "platt", dict(enumerate(types)), list(segments)
    )
    level_tables = (
        _CreatedTable(
            expressions.quoted(f"{name}_level_{number}"),
            f"platt_level_{number}",
            {index: types[index] for index in level.columns},
            list(zip(level.values, level.parameters, strict=True)),
            level.unseen,
        )
        for number, level in enumerate(found.levels)
    )
    return [segment_table, *level_tables]


def _setup(found: ExportedCurves, table: _CreatedTable) -> Iterator[str]:
    """The statements that create a table of segments or values, and drop an earlier one."""
    prefix = table.prefix
    rows = [
        f"({', '.join([*map(_literal, parts), '1', *map(_number, numbers)])})"
        for parts, numbers in table.rows
    ]
    keys = [f"{prefix}_key_{i} {type_}" for i, type_ in table.columns.items()]
    numbers = [f"{prefix}_{name} DOUBLE" for name in found.names]
    return _created(table.name, [*keys, f"{prefix}_known INTEGER", *numbers], rows)


def _setup_of_pieces(pieces: Pieces, name: str) -> Iterator[str]:
    """The statements that create a table of pieces of curves, and drop an earlier one."""
    columns = sql_pieces.columns(pieces)
    literals = (map(sql_pieces.number, x.tolist()) for x in columns.values())
    rows = [f"({', '.join(row)})" for row in zip(*literals, strict=True)]
    return _created(name, [f"{column} DOUBLE" for column in columns], rows)


def _created(name: str, columns: Sequence[str], rows: Sequence[str]) -> Iterator[str]:
    """The statements that create a table, and drop an earlier one.

    PostgreSQL and SQLite have no CREATE OR REPLACE TABLE, and Spark has it for some tables only.
    """
    yield f"DROP TABLE IF EXISTS {name}"
    yield f"CREATE TABLE {name} ({', '.join(columns)})"
    for i in range(0, len(rows), _ROWS_OF_INSERT):
        yield f"INSERT INTO {name} VALUES {', '.join(rows[i : i + _ROWS_OF_INSERT])}"


def _with_view(
    statements: Sequence[str], view: str, rows: str, column: str, joins: str
) -> list[str]:
    """The statements of tables, and of a view of the rows that are joined with them.

    The earlier view is dropped first: PostgreSQL drops no table that a view needs, and a view of
    tables that are half filled would have wrong probabilities. The new column comes first: of two
    columns of its name, DuckDB and SQLite rename the second without a word.
    """
    query = f"SELECT {column}, platt_rows.* FROM {rows} AS platt_rows {joins}"
    return [f"DROP VIEW IF EXISTS {view}", *statements, f"CREATE VIEW {view} AS {query}"]


def _joined(found: ExportedCurves, score: str, tables: Sequence[_CreatedTable]) -> str:
    """The probability, given the joined tables."""
    if found.pieces is not None:
        return sql_pieces.probability(*sql_pieces.joined(found.pieces, score))
    return _probability(_joined_parameters(found, tables), score)


def _joined_parameters(found: ExportedCurves, tables: Sequence[_CreatedTable]) -> list[str]:
    """The parameters of each row, given the joined tables of the segments and of the levels."""

    def parameter_cases(place: int, name: str) -> str:
        segments, *levels = (
            expressions.Joined(
                f"{table.prefix}_known",
                f"{table.prefix}_{name}",
                None if table.unseen is None else _number(table.unseen[place]),
            )
            for table in tables
        )
        return expressions.parameter(segments, _number(found.root[place]), levels)

    return [parameter_cases(*named) for named in enumerate(found.names)]


def _join(table: _CreatedTable, columns: Sequence[str]) -> str:
    on = " AND ".join(f"{columns[i]} = {table.prefix}_key_{i}" for i in table.columns)
    return f"LEFT JOIN {table.name} ON {on}"
