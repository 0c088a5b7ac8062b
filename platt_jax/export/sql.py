"""Calibrators as SQL."""

from collections.abc import Sequence
from typing import NamedTuple

from platt_jax.export.curves import Exportable, curves, decisions


class SqlExport(NamedTuple):
    """P(y=1) in a query, in parts.

    ``SELECT *, {expression} AS p FROM rows {join}`` computes it, after the statements of `setup`.

    Attributes:
        expression: the probability; NULL where the score is NULL or NaN, and without a curve. With
            a threshold true where the row is accepted.
        join: clause after the table of rows; empty without a table of the segments.
        setup: statements that create the table of the segments, one of each level or of the pieces
            of curves, and the view. They replace tables and views of an earlier call. Empty
            without a table and a view.
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
    threshold: float | None = None,
) -> SqlExport:
    """A calibrator as SQL, for an engine to which platt_jax has no connection.

    With few segments, all are in the expression, a CASE. With many, name a table: the statements
    create it, and the rows are joined with it. With a view, the statements are a whole script: each
    night's script replaces the table and the view of the night before. With a connection to the
    engine, `platt_jax.sql.predict` is simpler. `docs/howto/export.md` says how text is compared,
    how curves are written, and how near probabilities are to `predict_proba` with a population: by
    2e-6 where the standard deviation of the log-odds is up to 1.

    Args:
        calibrator: a SegmentCalibrator with any curves, a Sigmoid or a Fit of one problem.
        score: name of the column of scores.
        segment: name of the column of segments, or several; None for one sigmoid.
        dialect: a dialect of sqlglot: "duckdb", "spark", "sqlite", "postgres", "bigquery", ...
        table: name of a table to create for the segments, with columns `platt_key_0` and so on,
            `platt_known`, `platt_A`, `platt_B`, and with a population `platt_AA`, `platt_AB` and
            `platt_BB`; None for a CASE. With levels a table of the values of each level is added,
            {table}_level_0 with columns `platt_level_0_key_0`, ... and so on. With curves that are
            no sigmoids, and with a threshold, `platt_curve` is the number of the segment's curve,
            and {table}_pieces has the pieces of each: `platt_piece`, the number of the curve, the
            scores `platt_start` and `platt_end`, and `platt_c0`, the value at `platt_start` or the
            log-odds there, or the first of several coefficients. Tables of these names are
            replaced.
        view: name of a view to create, with a column `probability`, or `accepted` with a threshold,
            and all columns of `rows`; None for none. A view of this name is replaced.
        rows: name of the table of rows, as the dialect writes it, such as sales.visits; with a view
            only.
        threshold: a probability in (0, 1), for a decision in place of the probability: whether the
            score has reached `SegmentCalibrator.threshold`, or is at most that where the curve
            falls. Exact with a population too. NULL where there is no curve, and where a curve that
            is no sigmoid falls somewhere. None for the probability.

    Raises:
        ValueError: calibrator is not as above; columns do not match its segments; segments have a
            type without a literal; sqlglot does not know the dialect; a view is without rows, or
            would replace them; or there are more than 1,000 segments, or 300 pieces of curves, and
            no table. With levels also the values of nested ones, and all combinations of the values
            of crossed ones, count as segments. A threshold is given beside levels, or without
            segments.
        ImportError: sqlglot is missing.

    Example:
        >>> from platt_jax import Sigmoid
        >>> import duckdb
        >>> p = to_sql(Sigmoid(A=-2.0, B=1.0), "f").expression
        >>> duckdb.sql(f"SELECT {p} AS p FROM (SELECT 0.5 AS f)").fetchall()
        [(0.5,)]
    """
    from platt_jax.export.sql_text import written

    columns = [] if segment is None else [segment] if isinstance(segment, str) else list(segment)
    if threshold is None:
        export = curves(calibrator, any_curve=True)
    else:
        export = decisions(calibrator, threshold)
    return SqlExport(*written(export, score, columns, dialect, table, view, rows))
