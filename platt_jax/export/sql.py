"""Calibrators as SQL."""

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from platt_jax.export.curves import Curves, Exportable, curves, is_wider, require_integers
from platt_jax.extras import needing

# Step and number of pairs of the quadrature (`results/averages.py`); each node is a term of SQL.
_FEW_NODES = 1.0, 6

# Maximum number of segments in an expression; engines take long to read more.
_MOST_IN_EXPRESSION = 1000
_ROWS_OF_INSERT = 500
_TYPES = {str: "TEXT", bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", dt.date: "DATE"}
_BITS = 64  # size of a BIGINT
# Widest integers of DuckDB; other engines are assumed to have BIGINT only.
_WIDE = {"duckdb": ("HUGEINT", 128)}


class SqlExport(NamedTuple):
    """P(y=1) in a query, in parts.

    ``SELECT *, {expression} AS p FROM rows {join}`` computes it, after the statements of `setup`.

    Attributes:
        expression: the probability; NULL where the score is NULL, and without a curve.
        join: clause after the table of rows; empty without a table of the segments.
        setup: statements that create the table of the segments; empty without one.
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
    """A calibrator as SQL, for an engine to which platt_jax has no connection.

    With few segments, all are in the expression, a CASE. With many, name a table: the statements
    create it, and the rows are joined with it. With a connection to the engine,
    `platt_jax.sql.predict` is simpler.

    With a population, probabilities differ from `predict_proba` by at most 1e-6 where the standard
    deviation of the log-odds is up to 1, by 1e-4 up to 2, and by 3e-3 up to 3.

    Args:
        calibrator: a SegmentCalibrator, a Sigmoid or a Fit of one problem.
        score: name of the column of scores.
        segment: name of the column of segments, or several; None for one sigmoid.
        dialect: a dialect of sqlglot: "duckdb", "spark", "sqlite", "postgres", "bigquery", ...
        table: name of a table to create for the segments, with columns `platt_key_0` and so on,
            `platt_known`, `platt_A`, `platt_B`, and with a population `platt_AA`, `platt_AB` and
            `platt_BB`; None for a CASE.

    Raises:
        ValueError: calibrator is not as above; columns do not match its segments; segments have a
            type without a literal; sqlglot does not know the dialect; or there are more than 1,000
            segments and no table.
        ImportError: sqlglot is missing.

    Example:
        >>> from platt_jax import Sigmoid
        >>> import duckdb
        >>> p = to_sql(Sigmoid(A=-2.0, B=1.0), "f").expression
        >>> duckdb.sql(f"SELECT {p} AS p FROM (SELECT 0.5 AS f)").fetchall()
        [(0.5,)]
    """
    with needing("to_sql needs sqlglot", "platt-jax[sql]"):
        import sqlglot
        from sqlglot.errors import SqlglotError

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
    # sqlglot reads whole queries, not fragments.
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
    """SQL types of the columns of segments, each of one type that has exact literals."""
    widest, bits = _WIDE.get(dialect, (_TYPES[int], _BITS))
    require_integers(found, bits, f"{widest} columns")
    return [
        _column_type(column, types, widest)
        for column, types in zip(found.columns, found.types, strict=True)
    ]


def _column_type(column: list[Any], types: set[type], widest: str) -> str:
    if len(types) > 1 or not types <= set(_TYPES):
        raise ValueError(
            "segments: expected text, numbers, truth values or dates, one type a column, got "
            + " and ".join(sorted(type_.__name__ for type_ in types))
        )
    for part in column:
        if type(part) is float and math.isinf(part):
            raise ValueError(
                f"segments: expected ids that SQL has a literal for, got {part}; leave it out "
                "by calibrator.only(...), or fit such ids as text"
            )
    return widest if any(is_wider(part, _BITS) for part in column) else _TYPES[next(iter(types))]


def _probability(parameters: Sequence[str], score: str) -> str:
    """The probability, given expressions of the parameters."""
    from platt_jax.sql import queries

    A, B, *covariance = parameters
    z = f"({A} * {score} + {B})"
    if not covariance:
        return queries.probability(z)
    return queries.mean_probability(z, queries.deviation_of_logit(score, *covariance), _FEW_NODES)


def _number(x: float) -> str:
    from platt_jax.sql import queries

    return "NULL" if x != x else queries.literal(x)


def _cases(found: Curves, score: str, columns: Sequence[str]) -> str:
    of_others = _probability([*map(_number, found.fallback)], score)
    if not found.segments:
        return of_others
    cases = "".join(
        f" WHEN {_equal(columns, segment)} THEN {_probability([*map(_number, numbers)], score)}"
        for segment, numbers in zip(found.segments, found.parameters, strict=True)
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
    rows = [
        f"({', '.join([*_literals(segment), '1', *map(_number, numbers)])})"
        for segment, numbers in zip(found.segments or [], found.parameters, strict=True)
    ]
    keys = ", ".join(f"platt_key_{i} {type_}" for i, type_ in enumerate(types))
    known = ", ".join(["platt_known INTEGER", *(f"platt_{name} DOUBLE" for name in found.names)])
    yield f"CREATE TABLE {table} ({keys}, {known})"
    for i in range(0, len(rows), _ROWS_OF_INSERT):
        yield f"INSERT INTO {table} VALUES {', '.join(rows[i : i + _ROWS_OF_INSERT])}"


def _joined(found: Curves, score: str) -> str:
    parameters = [
        f"(CASE WHEN platt_known IS NULL THEN {_number(x)} ELSE platt_{name} END)"
        for name, x in zip(found.names, found.fallback, strict=True)
    ]
    return _probability(parameters, score)


def _join(table: str, columns: Sequence[str]) -> str:
    on = " AND ".join(f"{column} = platt_key_{i}" for i, column in enumerate(columns))
    return f"LEFT JOIN {table} ON {on}"
