"""Rows of a relation, which stay in their engine, and their segments."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, ClassVar

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from platt_jax.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.extras import install_hint
from platt_jax.model.statistics import ScoreRanges
from platt_jax.options import Options
from platt_jax.population.chunked import SAMPLED_ROWS, coordinates_of
from platt_jax.population.segments import Coordinates, FitArguments, Segments
from platt_jax.population.summed import SummedSegments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs
from platt_jax.sql import moments
from platt_jax.sql.checked import checked_rows
from platt_jax.sql.database import Database
from platt_jax.sql.engines import DuckDB, QueryEngine, SparkSQL, numbers
from platt_jax.sql.queries import RelationColumns
from platt_jax.sql.query_rows import QueryRows
from platt_jax.validation import HeldRows, named_with_takers

_DTYPE = np.dtype(np.float64)
# The class of engines of a relation, by the top package of the relation's type.
_ENGINES: dict[str, type[Any]] = {"duckdb": DuckDB, "_duckdb": DuckDB, "pyspark": SparkSQL}


@dataclass(frozen=True)
class RelationRows(HeldRows):
    """Rows of a relation, from `rows`, for `platt_jax.fit_segments` and the functions here."""

    _taken_by: ClassVar[str] = "fit_segments, sql.predict and sql.monitor_sums (for Monitor.add)"

    engine: QueryEngine
    names: RelationColumns
    snapshot: bool

    @contextmanager
    def open_segments(self, arguments: FitArguments, caller: Caller) -> Iterator[Segments]:
        """The segments of the rows, as long as the context lasts; reads the rows once."""
        arguments.check_without_mesh(self)
        with checked_rows(self.engine, self.names, self.snapshot) as checked:
            held_engine, names, keys, summary = checked
            if not len(keys):
                raise ValueError("relation: expected rows to fit, got none")
            yield QuerySegments(keys, _rows(held_engine, names, summary))

    def __repr__(self) -> str:
        score, label, segment, *_ = self.names
        several = segment if len(segment) > 1 else segment[0]
        return f"RelationRows: scores {score!r}, labels {label!r} and segments {several!r}"


def rows(
    relation: Any,
    *,
    score: str,
    segment: str | Sequence[str],
    label: str | None = None,
    weight: str | None = None,
    offset: str | None = None,
    pos_label: str | float | None = None,
    connection: Any = None,
    dialect: str | None = None,
    snapshot: bool = False,
) -> RelationRows:
    """Rows of a relation, which stay in their engine, for a fit, `predict` or `monitor_sums`.

    The fit is as for rows in memory, in float64; with pooling="partial" and more than 100,000 rows
    the unit of the population's prior is by means and variances of the scores, not quartiles. NULL
    in scores, labels, weights and offsets is treated as NaN. A pass over the rows is a query;
    pooling="partial" takes about 25 queries for each step of the population. `Options.derivatives`
    has no effect. No query is made here.

    Args:
        relation: a relation of DuckDB; the path or pattern of Parquet files, which DuckDB reads; a
            DataFrame of Spark; or the name of a table, with its connection.
        score: name of the column of scores.
        segment: name of the column of segment ids, or several, whose combinations are the segments.
        label: name of the column of labels: booleans, {0, 1} or {-1, +1}; None to predict only.
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
        ValueError: the relation is of no known engine, there is no segment, or pos_label is neither
            a text nor a number. A fit then raises one if a column is missing or of another type, an
            id is NULL, or rows change between passes.
        ImportError: the relation is a Parquet file, and DuckDB is missing.

    Example:
        >>> import duckdb
        >>> from platt_jax import fit_segments
        >>> sales = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> calibrator = fit_segments(rows(sales, score="f", label="y", segment="shop"))
        >>> calibrator.keys.tolist()
        ['a']
    """
    engine = engine_of(relation, connection, dialect)
    segments = [segment] if isinstance(segment, str) else list(segment or ())
    if not segments or not all(segments):
        raise ValueError(f"segment: expected at least one column, got {segment!r}")
    positive = None if pos_label is None else _literal(pos_label)
    names = RelationColumns(score, label, segments, weight, offset, positive)
    return RelationRows(engine, names, snapshot)


def require_relation_rows(value: object) -> None:
    """Refuses anything but the rows of a relation."""
    if not isinstance(value, RelationRows):
        raise ValueError(
            f"rows: expected the result of platt_jax.sql.rows, got {named_with_takers(value)}"
        )


def engine_of(relation: Any, connection: Any = None, dialect: str | None = None) -> QueryEngine:
    """The engine that runs queries over a relation."""
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
    kinds = " or ".join(dict.fromkeys(engine.__name__ for engine in _ENGINES.values()))
    raise ValueError(
        f"relation: expected a relation of {kinds}, a Parquet path, or the name of a table and its "
        f"connection, got a {type(relation).__name__}"
    )


def _parquet(path: str) -> Any:
    with install_hint("a Parquet path needs DuckDB", "platt-jax[sql]"):
        import duckdb
    try:
        # An existing file is read as such, even if its name looks like a pattern.
        return duckdb.connect().read_parquet(escape(path) if os.path.isfile(path) else path)
    except duckdb.Error as error:
        raise ValueError(f"relation: no Parquet files at {path!r} ({error})") from None


def _literal(label: Any) -> str:
    """A label as a literal in DuckDB's dialect."""
    if isinstance(label, str):
        return exp.Literal.string(label).sql("duckdb")
    if isinstance(label, Real) and np.isfinite(float(label)):
        return repr(int(label) if isinstance(label, Integral) else float(label))
    raise ValueError(f"pos_label: expected a text or a number, got {label!r}")


# --- segments -------------------------------------------------------------------------------------


class QuerySegments(SummedSegments):
    """Segments of a relation; see `Segments` for the methods.

    A query reads the relation's rows once, for the segments and, last, for all rows: K + 1
    problems.
    """

    def __init__(self, keys: NDArray[Any], rows: QueryRows) -> None:
        has_offset = rows.names.offset is not None
        super().__init__(keys, _DTYPE, rows.without_all(), rows.good[:-1], has_offset)
        self._with_all = rows

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`. As in memory, or by moments where the scores are too many to send."""
        if self._with_all.good[-1] > SAMPLED_ROWS:
            return super().coordinates(options)
        return coordinates_of(self._with_all.scores(), _DTYPE)

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        segment_inputs = ProblemInputs()
        return self.both(segment_inputs, given, options, stage)[1]

    def both(
        self, given: ProblemInputs, shared: ProblemInputs, options: Options, stage: Stage
    ) -> tuple[Fit, Fit]:
        """See `Segments`."""
        together, sizes = _together(given, shared, len(self.keys)), self._with_all.good
        fit = self.fit_rows(self._with_all, sizes, together, options, stage)
        by_segment, pooled = (jax.tree.map(itemgetter(index), fit) for index in (slice(-1), -1))
        return by_segment, pooled


def _together(each: ProblemInputs, shared: ProblemInputs, segments: int) -> ProblemInputs:
    """Priors and starts of the segments and, last, of all rows.

    A start of NaN means the default start, and a precision of 0 no prior.
    """
    if each.prior is not None and shared.prior is None:
        nothing = jax.tree.map(lambda x: np.zeros_like(x[:1]), each.prior)
        shared = shared._replace(prior=nothing)
    if each.start is not None:
        usual: Any = (np.full(1, np.nan),) * 2
        shared = shared._replace(start=usual)
    return jax.tree.map(lambda *x: np.concatenate(x), each, shared)


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
    all_ranges: ScoreRanges = jax.tree.map(np.append, ranges, ScoreRanges(**ends))
    return QueryRows(
        engine,
        names,
        keys,
        all_ranges,
        moments.from_columns(partial(column, missing=0), names.offset is not None),
        np.append(good, good.sum()),
    )
