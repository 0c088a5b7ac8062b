"""Calibrators as SQL."""

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from platt_jax.export import sql_text
from platt_jax.export.curves import (
    Curves,
    Exportable,
    curves,
    is_wider,
    number_of_cases,
    require_integers,
    require_unicode,
)
from platt_jax.extras import install_hint

# Maximum number of segments in an expression; engines take long to read more.
_MOST_IN_EXPRESSION = 1000
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
        setup: statements that create the table of the segments, one of each level, and the view,
            instead of those of an earlier call; empty without a table and a view.
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
    view: str | None = None,
    rows: str | None = None,
) -> SqlExport:
    """A calibrator as SQL, for an engine to which platt_jax has no connection.

    With few segments, all are in the expression, a CASE. With many, name a table: the statements
    create it, and the rows are joined with it. With a view, the statements are a whole script: each
    night's replaces the table and the view of the night before. With a connection to the engine,
    `platt_jax.sql.predict` is simpler.

    Text is compared as the engine compares it: one that ignores case, or spaces at the end, takes
    ids for equal that differ by these alone.

    With a population, probabilities differ from `predict_proba` by at most 2e-6 where the standard
    deviation of the log-odds is up to 1, by 5e-4 up to 2, and by 4e-3 up to 3.

    Args:
        calibrator: a SegmentCalibrator, a Sigmoid or a Fit of one problem.
        score: name of the column of scores.
        segment: name of the column of segments, or several; None for one sigmoid.
        dialect: a dialect of sqlglot: "duckdb", "spark", "sqlite", "postgres", "bigquery", ...
        table: name of a table to create for the segments, with columns `platt_key_0` and so on,
            `platt_known`, `platt_A`, `platt_B`, and with a population `platt_AA`, `platt_AB` and
            `platt_BB`; None for a CASE. With levels a table of the values of each level is added,
            {table}_level_0 with columns `platt_level_0_key_0`, ... and so on. Tables of these names
            are replaced.
        view: name of a view to create, with a column `probability` and those of `rows`; None for
            none. A view of this name is replaced.
        rows: name of the table of rows, as the dialect writes it, such as sales.visits; with a view
            only.

    Raises:
        ValueError: calibrator is not as above; columns do not match its segments; segments have a
            type without a literal; sqlglot does not know the dialect; a view is without rows, or
            would replace them; or there are more than 1,000 segments and no table. With levels also
            the values of nested ones, and all combinations of the values of crossed ones, count as
            segments.
        ImportError: sqlglot is missing.

    Example:
        >>> from platt_jax import Sigmoid
        >>> import duckdb
        >>> p = to_sql(Sigmoid(A=-2.0, B=1.0), "f").expression
        >>> duckdb.sql(f"SELECT {p} AS p FROM (SELECT 0.5 AS f)").fetchall()
        [(0.5,)]
    """
    with install_hint("to_sql needs sqlglot", "platt-jax[sql]"):
        import sqlglot
        from sqlglot.errors import SqlglotError

    from platt_jax.sql import expressions

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

    given = [score, *columns]
    score, columns = expressions.quoted(score), [expressions.quoted(column) for column in columns]
    score = f"CAST({score} AS DOUBLE)"
    tables = [] if table is None else sql_text.tables(found, types, table)
    p = sql_text.joined(found, score, tables) if tables else sql_text.cases(found, score, columns)
    joins = " ".join(sql_text.join(one, columns) for one in tables)
    statements = [text for one in tables for text in sql_text.setup(found, one)]
    if view is not None or rows is not None:
        if sql_text.PROBABILITY in [name.casefold() for name in given]:
            raise ValueError(
                f"score, segment: expected other names than {sql_text.PROBABILITY!r}, which is the "
                f"new column of a view, got {given}"
            )
        named = _view_and_rows(view, rows, [one.name for one in tables], dialect)
        statements = sql_text.with_view(statements, *named, p, joins)
    setup = tuple(map(written, statements))
    if not tables:
        return SqlExport(written(p), "", setup)
    # sqlglot reads whole queries, not fragments.
    query = f"SELECT {p} FROM platt_rows {joins}"
    expression, join = written(query).removeprefix("SELECT ").split(" FROM platt_rows ", 1)
    return SqlExport(expression, join, setup)


def _view_and_rows(
    view: str | None, rows: str | None, tables: Sequence[str], dialect: str
) -> tuple[str, str]:
    """The view, and the table of rows, which no statement may drop, as DuckDB writes their names.

    Raises:
        ValueError: one of them is missing or no name, or two tables have the same name.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    from platt_jax.sql import expressions

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


def _check(found: Curves, columns: Sequence[str], table: str | None) -> None:
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
    cases = number_of_cases(found)
    if table is None and cases > _MOST_IN_EXPRESSION:
        what = "segments and values of levels" if found.levels else "segments"
        raise ValueError(
            f"table: expected the name of a table to make for {cases:,} {what}; "
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
    require_unicode(column)
    for part in column:
        if type(part) is float and math.isinf(part):
            raise ValueError(
                f"segments: expected ids that SQL has a literal for, got {part}; leave it out "
                "by calibrator.only(...), or fit such ids as text"
            )
    return widest if any(is_wider(part, _BITS) for part in column) else _TYPES[next(iter(types))]
