"""A calibrator as SQL."""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from platt_jax.export.curves import Curves, Exportable, curves, require_integers

# An expression with more segments than this is refused: engines take long to read it.
_MOST_IN_EXPRESSION = 1000
_ROWS_OF_INSERT = 500
_TYPES = {str: "TEXT", bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", dt.date: "DATE"}
# DuckDB's widest integers; of other engines' no more is assumed than their BIGINT.
_WIDE = {"duckdb": ("HUGEINT", 128)}


class SqlExport(NamedTuple):
    """What computes P(y=1) in a query.

    ``SELECT *, {expression} AS p FROM rows {join}`` does it, after the statements of `setup`.

    Attributes:
        expression: the probability; NULL where the score is, and without a curve.
        join: what stands behind the rows; empty without a table of the segments.
        setup: statements that make the table of the segments; empty without one.
    """

    expression: str
    join: str
    setup: tuple[str, ...]


def to_sql(
    calibrator: Exportable,
    score: str,
    segment: str | Sequence[str] | None = None,
    *,
    dialect: str = "duckdb",
    table: str | None = None,
) -> SqlExport:
    """A calibrator as SQL for an engine that platt_jax need not reach.

    With few segments all of them stand in the expression, a CASE. With many, name a table: the
    statements make it, and the rows are joined with it. Where the engine is at hand,
    `platt_jax.sql.predict` is simpler.

    Args:
        calibrator: a SegmentCalibrator without a population, a Sigmoid or a Fit of one problem.
        score: the column of scores.
        segment: the column of segments, or several; None for one sigmoid.
        dialect: one that sqlglot knows: "duckdb", "spark", "sqlite", "postgres", "bigquery", ...
        table: the name of a table to make for the segments, in columns `platt_key_0` and so on,
            `platt_known`, `platt_A` and `platt_B`; None for a CASE.

    Returns:
        An SqlExport.

    Raises:
        ValueError: something else; columns that are not the calibrator's; segments of a type that
            has no literal; a dialect that sqlglot does not know; or more than 1,000 segments and
            no table.
        ImportError: sqlglot is missing.

    Example:
        >>> from platt_jax import Sigmoid
        >>> import duckdb
        >>> p = to_sql(Sigmoid(A=-2.0, B=1.0), "f").expression
        >>> duckdb.sql(f"SELECT {p} AS p FROM (SELECT 0.5 AS f)").fetchall()
        [(0.5,)]
    """
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError:
        raise ImportError("to_sql needs sqlglot: pip install 'platt-jax[sql]'") from None

    from platt_jax.sql import queries

    found = curves(calibrator)
    types = _column_types(found, dialect)
    columns = [] if segment is None else [segment] if isinstance(segment, str) else list(segment)
    _check(found, columns, table)
    try:
        sqlglot.Dialect.get_or_raise(dialect)
    except (SqlglotError, ValueError) as error:
        raise ValueError(f"dialect: expected one that sqlglot knows, got {dialect!r}") from error

    def written(text: str) -> str:
        return sqlglot.transpile(text, read="duckdb", write=dialect)[0]

    score, columns = queries.quoted(score), [queries.quoted(column) for column in columns]
    score = f"CAST({score} AS DOUBLE)"
    if table is None:
        return SqlExport(written(_cases(found, score, columns)), "", ())
    table = queries.quoted(table)
    setup = tuple(written(statement) for statement in _setup(found, types, table))
    # A fragment of its own would be no query that sqlglot could read.
    query = f"SELECT {_joined(found, score)} FROM platt_rows {_join(table, columns)}"
    expression, join = written(query).removeprefix("SELECT ").split(" FROM platt_rows ", 1)
    return SqlExport(expression, join, setup)


def _check(found: Curves, columns: Sequence[str], table: str | None) -> None:
    expected = len(found.types)
    if len(columns) != expected:
        raise ValueError(
            f"segment: expected {expected or 'no'} column{'s' * (expected > 1)}, as the "
            f"calibrator's, got {columns or None}"
        )
    if found.segments is None and table is not None:
        raise ValueError("table: expected None for one sigmoid, which has no segments to join")
    if table is None and found.segments and len(found.segments) > _MOST_IN_EXPRESSION:
        raise ValueError(
            f"table: expected the name of a table to make for {len(found.segments):,} segments; "
            f"at most {_MOST_IN_EXPRESSION:,} go into an expression"
        )


def _column_types(found: Curves, dialect: str) -> list[str]:
    """Of a table's columns of segments.

    Raises:
        ValueError: an id has no literal that is it exactly, or a column holds several types.
    """
    integers, bits = _WIDE.get(dialect, (_TYPES[int], 64))
    require_integers(found, bits, f"{integers} columns")
    made = []
    for types in found.types:
        if len(types) > 1 or not types <= set(_TYPES):
            raise ValueError(
                "segments: expected text, numbers, truth values or dates, one type a column, got "
                + " and ".join(sorted(type_.__name__ for type_ in types))
            )
        made.append(_TYPES[next(iter(types))])
    for segment in found.segments or []:
        for part in segment if isinstance(segment, tuple) else (segment,):
            if type(part) is float and math.isinf(part):
                raise ValueError(
                    f"segments: expected ids that SQL has a literal for, got {part}; leave it out "
                    "by calibrator.only(...), or fit such ids as text"
                )
    return made


def _probability(A: str, B: str, score: str) -> str:
    from platt_jax.sql import queries

    return queries.probability(f"({A} * {score} + {B})")


def _number(x: float) -> str:
    from platt_jax.sql import queries

    return "NULL" if x != x else queries.literal(x)


def _cases(found: Curves, score: str, columns: Sequence[str]) -> str:
    A, B = map(_number, found.fallback)
    of_others = _probability(A, B, score)
    if not found.segments:
        return of_others
    cases = "".join(
        f" WHEN {_equal(columns, segment)} THEN {_probability(_number(a), _number(b), score)}"
        for segment, a, b in zip(found.segments, found.A, found.B, strict=True)
    )
    return f"CASE{cases} ELSE {of_others} END"


def _equal(columns: Sequence[str], segment: Any) -> str:
    return " AND ".join(
        f"{column} = {literal}" for column, literal in zip(columns, _literals(segment), strict=True)
    )


def _literals(segment: Any) -> list[str]:
    return [_literal(part) for part in (segment if isinstance(segment, tuple) else (segment,))]


def _literal(part: Any) -> str:
    from sqlglot import exp

    from platt_jax.sql import queries

    if isinstance(part, str):
        return exp.Literal.string(part).sql("duckdb")
    if isinstance(part, float):
        return queries.literal(part)
    return f"DATE '{part}'" if isinstance(part, dt.date) else str(part)


def _setup(found: Curves, types: Sequence[str], table: str) -> Iterable[str]:
    segments = found.segments or []
    rows = [
        f"({', '.join([*_literals(segment), '1', _number(A), _number(B)])})"
        for segment, A, B in zip(segments, found.A, found.B, strict=True)
    ]
    keys = ", ".join(f"platt_key_{i} {type_}" for i, type_ in enumerate(types))
    known = "platt_known INTEGER, platt_A DOUBLE, platt_B DOUBLE"
    yield f"CREATE TABLE {table} ({keys}, {known})"
    for i in range(0, len(rows), _ROWS_OF_INSERT):
        yield f"INSERT INTO {table} VALUES {', '.join(rows[i : i + _ROWS_OF_INSERT])}"


def _joined(found: Curves, score: str) -> str:
    A, B = (
        f"(CASE WHEN platt_known IS NULL THEN {_number(x)} ELSE platt_{name} END)"
        for name, x in zip("AB", found.fallback, strict=True)
    )
    return _probability(A, B, score)


def _join(table: str, columns: Sequence[str]) -> str:
    on = " AND ".join(f"{column} = platt_key_{i}" for i, column in enumerate(columns))
    return f"LEFT JOIN {table} ON {on}"
