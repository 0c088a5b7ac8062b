"""`fit_segments` for rows in an engine."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Listener
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.statistics import ScoreRanges
from platt_jax.options import Options, Pooling
from platt_jax.population.fitting import fit_by_segment
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.sql import moments
from platt_jax.sql.checked import ColumnArguments, checked_rows
from platt_jax.sql.engines import QueryEngine
from platt_jax.sql.names import RelationColumns
from platt_jax.sql.relations import engine_of
from platt_jax.sql.rows import QueryRows
from platt_jax.sql.segments import QuerySegments
from platt_jax.sql.values import numbers


def fit_segments(
    relation: Any,
    *,
    score: str,
    label: str,
    segment: str | Sequence[str],
    weight: str | None = None,
    offset: str | None = None,
    pos_label: str | float | None = None,
    connection: Any = None,
    dialect: str | None = None,
    prior: GaussianPrior | None = None,
    start: tuple[Column, Column] | None = None,
    pooling: Pooling = "none",
    options: Options = Options(),
    progress: bool | Listener = False,
    snapshot: bool = False,
) -> SegmentCalibrator:
    """Fit one sigmoid to the rows of each segment of a relation, and one to all rows.

    Like `platt_jax.fit_segments`, in float64, but the rows stay in their engine. NULL in scores,
    labels, weights and offsets is treated as NaN.

    Args:
        relation: a relation of DuckDB; the path or pattern of Parquet files, which DuckDB reads; a
            DataFrame of Spark; or the name of a table, with its connection.
        score: name of the column of scores.
        label: name of the column of labels: booleans, {0, 1} or {-1, +1}.
        segment: name of the column of segment ids, or several, whose combinations are the segments.
        weight: name of the column of weights; None for no weights.
        offset: name of the column of offsets; None for no offsets.
        pos_label: label of class 1, a text or a number, if labels are two other values.
        connection: connection of a table given by name, of Python's database API (PEP 249) or of
            SQLAlchemy. Its engine needs EXP, LN and, other than PostgreSQL, temporary tables. A
            connection of PostgreSQL or SQLite is left as it came.
        dialect: sqlglot's name of the connection's dialect, such as "sqlite"; None to determine it
            from the connection's type.
        prior: as in `platt_jax.fit_segments`.
        start: as in `platt_jax.fit_segments`.
        pooling: as in `platt_jax.fit_segments`; "partial" takes about 25 queries for each step of
            the population.
        options: as in `platt_jax.fit_segments`; `derivatives` has no effect.
        progress: as in `platt_jax.fit_segments`; reports come with the queries.
        snapshot: whether every pass reads one state of the rows, even if other sessions write. It
            copies these columns to a temporary table, which is dropped at the end; Spark makes a
            local checkpoint. In PostgreSQL it takes no copy, and is always so, unless the
            connection is in a transaction that is not REPEATABLE READ.

    Raises:
        ValueError: an argument is not as above; a column is missing or of another type; an id is
            NULL; or rows change between passes.

    Example:
        >>> import duckdb
        >>> rows = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> calibrator = fit_segments(rows, score="f", label="y", segment="shop")
        >>> calibrator.keys.tolist()
        ['a']
    """
    caller = Caller()
    # Checked before the first query.
    validation.pooling(pooling, prior, start, validation.options(options))
    columns = ColumnArguments(score, label, segment, weight, offset, pos_label)
    with checked_rows(engine_of(relation, connection, dialect), columns, snapshot) as rows:
        held, names, keys, found = rows
        if not len(keys):
            raise ValueError("relation: expected rows to fit, got none")
        by_segment = QuerySegments(keys, _rows(held, names, found))
        return fit_by_segment(by_segment, prior, start, pooling, options, progress, caller)


def _rows(engine: QueryEngine, names: RelationColumns, found: pa.Table) -> QueryRows:
    """The rows of the segments and of all rows, given the result of `queries.summary`."""

    # Any: traced rows have JAX arrays where these are NumPy arrays.
    def column(name: str, missing: float) -> Any:
        values = numbers(found[name])
        return np.where(np.isnan(values), missing, values)

    ranges = ScoreRanges(
        bad=column("bad", 0) > 0,
        low_pos=column("low_pos", np.inf),
        high_pos=column("high_pos", -np.inf),
        low_neg=column("low_neg", np.inf),
        high_neg=column("high_neg", -np.inf),
        lightest=column("lightest", 1 if names.weight is None else np.inf),
        widest_offset=None if names.offset is None else column("widest_offset", 0),
    )
    keys = found.select(names.keys).rename_columns([f"p_{key}" for key in names.keys])
    good = column("good", 0).astype(np.int64)
    # One bad row must not spoil the calibration of unseen segments.
    ends: dict[str, Any] = {"bad": False}
    for name, x in ranges._asdict().items():
        if name != "bad" and x is not None:
            largest = name.startswith(("high", "widest"))
            ends[name] = np.max(x) if largest else np.min(x)
    both: ScoreRanges = jax.tree.map(np.append, ranges, ScoreRanges(**ends))
    return QueryRows(
        engine,
        names,
        keys,
        both,
        moments.from_columns(partial(column, missing=0), names.offset is not None),
        np.append(good, good.sum()),
    )
