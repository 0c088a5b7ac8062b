"""Probabilities by a query, in the engine of the rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.results.calibrators import SegmentCalibrator, parameters
from platt_jax.results.tables import arrow_array
from platt_jax.sql.engines import POINTS, ROWS
from platt_jax.sql.queries import (
    Names,
    deviation_of_logit,
    literal,
    mean_probability,
    probability,
    quoted,
)
from platt_jax.sql.relations import check_columns, engine_of

_PARAMETERS = ("A", "B", "c_AA", "c_AB", "c_BB")


def predict(
    relation: Any,
    calibrator: SegmentCalibrator,
    *,
    score: str,
    segment: str | Sequence[str],
    offset: str | None = None,
    name: str = "probability",
    connection: Any = None,
    dialect: str | None = None,
) -> Any:
    """The rows of a relation with P(y=1) as a new column, computed in the engine.

    Args:
        relation: as in `fit_segments`.
        calibrator: the calibrator of the segments.
        score: name of the column of scores.
        segment: name of the column of segment ids, or several, as in `fit_segments`.
        offset: name of the column of offsets, as in `SegmentCalibrator.predict_proba`; None for no
            offsets.
        name: name of the new column.
        connection: as in `fit_segments`.
        dialect: as in `fit_segments`.

    Returns:
        A relation of DuckDB or a DataFrame of Spark, not computed yet; for a table of a connection,
        a cursor over the result. Probabilities equal those of `SegmentCalibrator.predict_proba`,
        but are NULL where the score or the offset is NULL, and 0 below 1e-304. With a population
        their error is at most 1e-7 where the standard deviation of the log-odds is up to 2, 5e-6 up
        to 3, and 5e-4 up to 5. A NULL segment is treated as one that was not fitted.

    Raises:
        ValueError: a column is missing, or as in `fit_segments`.

    Example:
        >>> import duckdb
        >>> from platt_jax.sql import fit_segments
        >>> rows = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> calibrator = fit_segments(rows, score="f", label="y", segment="shop")
        >>> with_p = predict(rows, calibrator, score="f", segment="shop", name="p")
        >>> [round(p, 3) for f, y, shop, p in with_p.fetchall()]
        [0.667, 0.333]
    """
    segments = [segment] if isinstance(segment, str) else list(segment)
    engine = engine_of(relation, connection, dialect)
    names = Names(score, "", segments, offset=offset)
    columns = engine.columns()
    check_columns(columns, {"score": score, "offset": offset}, segments)
    _check_kinds(columns, calibrator, segments)
    if name in columns:
        raise ValueError(f"name: expected that of a new column, {name!r} is there")
    # Without a population there are A and B only.
    numbers = dict(zip(_PARAMETERS, parameters(calibrator).T, strict=False))
    of_others = {of: float(x[-1]) for of, x in numbers.items()}
    query = _query(names, list(columns), of_others, name)
    return engine.extended(query, _points(calibrator, names, numbers))


def _check_kinds(
    columns: dict[str, pa.DataType], calibrator: SegmentCalibrator, segments: list[str]
) -> None:
    """Check ids for text instead of numbers or the reverse: engines would convert, or fail late."""
    for name, fitted in zip(segments, ids.fields(calibrator.keys), strict=False):
        there, kind = columns[name], fitted.dtype  # the number of columns is checked later
        of_text = pa.types.is_string(there) or pa.types.is_large_string(there)
        of_numbers = pa.types.is_integer(there) or pa.types.is_floating(there)
        if (kind.kind == "U" and of_numbers) or (kind.kind in "iuf" and of_text):
            raise ValueError(
                f"segment, column {name!r}: expected ids of the kind that was fitted, {kind}, got "
                f"{there}"
            )


def _query(names: Names, columns: list[str], fallback: dict[str, float], name: str) -> str:
    score = f"CAST({ROWS}.{quoted(names.score)} AS DOUBLE)"
    A, B, *covariance = (
        f"(CASE WHEN {POINTS}.known IS NULL THEN {literal(of_all)} ELSE {POINTS}.{parameter} END)"
        for parameter, of_all in fallback.items()
    )
    on = " AND ".join(
        f"{ROWS}.{quoted(column)} = {POINTS}.p_{key}"
        for column, key in zip(names.segment, names.keys, strict=True)
    )
    joined = f"FROM {ROWS} LEFT JOIN {POINTS} ON {on}"
    z = f"{A} * {score} + {B}"
    if names.offset is not None:
        z += f" - CAST({ROWS}.{quoted(names.offset)} AS DOUBLE)"
    if not covariance:
        return f"SELECT {ROWS}.*, {probability(z)} AS {quoted(name)} {joined}"
    # A mean has many terms in two columns, which are computed once.
    s = deviation_of_logit(score, *covariance)
    of_rows = ", ".join(f"platt_rows.{quoted(column)}" for column in columns)
    return f"""
        SELECT {of_rows}, {mean_probability("platt_z", "platt_s")} AS {quoted(name)} FROM (
            SELECT {ROWS}.*, {z} AS platt_z, {s} AS platt_s {joined}
        ) platt_rows
    """


def _points(
    calibrator: SegmentCalibrator, names: Names, numbers: dict[str, NDArray[np.float64]]
) -> pa.Table:
    fields = ids.fields(calibrator.keys)
    if len(fields) != len(names.segment):
        raise ValueError(
            f"segment: expected {len(fields)} columns, as the calibrator's, got {names.segment}"
        )
    columns = {}
    for key, column in zip(names.keys, fields, strict=True):
        try:
            columns[f"p_{key}"] = arrow_array(column.tolist() if column.dtype == object else column)
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            raise ValueError(
                "calibrator: expected segments of one type, that of a column of a table, got "
                f"Python's objects of several ({error})"
            ) from error
    columns["known"] = np.ones(len(calibrator), int)
    return pa.table({**columns, **{of: x[:-1] for of, x in numbers.items()}})
