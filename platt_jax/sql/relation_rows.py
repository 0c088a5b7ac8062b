"""Rows of a relation, which stay in their engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from platt_jax.execution.caller import Caller
from platt_jax.model.statistics import ScoreRanges
from platt_jax.population.segments import FitArguments, Segments
from platt_jax.sql import moments
from platt_jax.sql.checked import ColumnArguments, checked_rows
from platt_jax.sql.engines import QueryEngine
from platt_jax.sql.names import RelationColumns
from platt_jax.sql.query_rows import QueryRows
from platt_jax.sql.relations import engine_of
from platt_jax.sql.segments import QuerySegments
from platt_jax.sql.values import numbers


@dataclass(frozen=True)
class RelationRows:
    """Rows of a relation, from `rows`, for `platt_jax.fit_segments`."""

    _engine: QueryEngine
    _columns: ColumnArguments
    _snapshot: bool

    @contextmanager
    def open_segments(self, arguments: FitArguments, caller: Caller) -> Iterator[Segments]:
        """The segments of the rows, as long as the context lasts; reads the rows once.

        Raises:
            ValueError: see `rows`.
        """
        arguments.check_without_mesh(self)
        with checked_rows(self._engine, self._columns, self._snapshot) as checked:
            held, names, keys, found = checked
            if not len(keys):
                raise ValueError("relation: expected rows to fit, got none")
            yield QuerySegments(keys, _rows(held, names, found))

    def __repr__(self) -> str:
        score, label, segment, *_ = self._columns
        return f"RelationRows: scores {score!r}, labels {label!r} and segments {segment!r}"


def rows(
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
    snapshot: bool = False,
) -> RelationRows:
    """Rows of a relation for `platt_jax.fit_segments`, which stay in their engine.

    The fit is that of rows in memory, in float64. NULL in scores, labels, weights and offsets is
    treated as NaN. A pass over the rows is a query; pooling="partial" takes about 25 queries for
    each step of the population. `Options.derivatives` has no effect. No query is made here.

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
        snapshot: whether every pass reads one state of the rows, even if other sessions write. It
            copies these columns to a temporary table, which is dropped at the end; Spark makes a
            local checkpoint. In PostgreSQL it takes no copy, and is always so, unless the
            connection is in a transaction that is not REPEATABLE READ.

    Raises:
        ValueError: the relation is of no known engine. The fit then raises one if a column is
            missing or of another type, an id is NULL, or rows change between passes.

    Example:
        >>> import duckdb
        >>> from platt_jax import fit_segments
        >>> sales = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> calibrator = fit_segments(rows(sales, score="f", label="y", segment="shop"))
        >>> calibrator.keys.tolist()
        ['a']
    """
    columns = ColumnArguments(score, label, segment, weight, offset, pos_label)
    return RelationRows(engine_of(relation, connection, dialect), columns, snapshot)


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
