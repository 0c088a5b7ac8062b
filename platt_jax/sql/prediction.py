"""Probabilities as a query, where the rows are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Sigmoid
from platt_jax.results.tables import arrow_array
from platt_jax.sql.engines import POINTS, ROWS, check_columns, engine_of
from platt_jax.sql.queries import Names, literal, probability, quoted


def predict(
    relation: Any,
    calibrator: SegmentCalibrator,
    *,
    score: str,
    segment: str | Sequence[str],
    name: str = "probability",
    connection: Any = None,
    dialect: str | None = None,
) -> Any:
    """The rows of a relation and their P(y=1), in one more column; no row moves.

    Args:
        relation: as in `fit_segments`.
        calibrator: of the segments.
        score: the column of scores.
        segment: the column of segment ids, or several, as in `fit_segments`.
        name: of the new column.
        connection: as in `fit_segments`.
        dialect: likewise.

    Returns:
        A relation of DuckDB or a DataFrame of Spark, not computed yet; or, of the table of a
        connection, a cursor over the result. Probabilities are those of
        `SegmentCalibrator.predict_proba`, and NULL where the score is; below 1e-304 they are 0.
        Rows of a segment that was not fitted, or is NULL, have the fallback's.

    Raises:
        ValueError: a column is missing, or as `fit_segments`; or the calibrator has a population,
            whose probability for segments that were not fitted is an integral.

    Example:
        >>> import duckdb
        >>> from platt_jax.sql import fit_segments
        >>> rows = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> calibrator = fit_segments(rows, score="f", label="y", segment="shop")
        >>> with_p = predict(rows, calibrator, score="f", segment="shop", name="p")
        >>> [round(p, 3) for f, y, shop, p in with_p.fetchall()]
        [0.667, 0.333]
    """
    if calibrator.pooling == "partial":
        raise ValueError(
            "calibrator: expected one without a population, whose probability for segments that "
            "were not fitted is an integral; predict_proba computes it"
        )
    segments = [segment] if isinstance(segment, str) else list(segment)
    engine = engine_of(relation, connection, dialect)
    names = Names(score, "", segments)
    columns = engine.columns()
    check_columns(columns, {"score": score}, segments)
    _check_kinds(columns, calibrator, segments)
    if name in columns:
        raise ValueError(f"name: expected that of a new column, {name!r} is there")
    return engine.extended(_query(names, calibrator.fallback, name), _points(calibrator, names))


def _check_kinds(
    columns: dict[str, pa.DataType], calibrator: SegmentCalibrator, segments: list[str]
) -> None:
    """Refuse text for numbers and numbers for text: engines would convert one, or fail late."""
    dtype = calibrator.keys.dtype
    kinds = [dtype] if dtype.names is None else [dtype[name] for name in dtype.names]
    for name, kind in zip(segments, kinds, strict=False):  # their number is checked later
        there = columns[name]
        of_text = pa.types.is_string(there) or pa.types.is_large_string(there)
        of_numbers = pa.types.is_integer(there) or pa.types.is_floating(there)
        if (kind.kind == "U" and of_numbers) or (kind.kind in "iuf" and of_text):
            raise ValueError(
                f"segment, column {name!r}: expected ids of the kind that was fitted, {kind}, got "
                f"{there}"
            )


def _query(names: Names, fallback: Sigmoid, name: str) -> str:
    A, B = (
        f"CASE WHEN {POINTS}.known IS NULL THEN {literal(of_all)} ELSE {POINTS}.{parameter} END"
        for parameter, of_all in (("A", fallback.A), ("B", fallback.B))
    )
    z = f"({A}) * CAST({ROWS}.{quoted(names.score)} AS DOUBLE) + ({B})"
    on = " AND ".join(
        f"{ROWS}.{quoted(column)} = {POINTS}.p_{key}"
        for column, key in zip(names.segment, names.keys, strict=True)
    )
    return f"""
        SELECT {ROWS}.*, {probability(z)} AS {quoted(name)} FROM {ROWS} LEFT JOIN {POINTS} ON {on}
    """


def _points(calibrator: SegmentCalibrator, names: Names) -> pa.Table:
    keys = calibrator.keys
    fields = [keys] if keys.dtype.names is None else [keys[x] for x in keys.dtype.names]
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
    A, B = (np.asarray(x, float) for x in (calibrator.fit.A, calibrator.fit.B))
    return pa.table({**columns, "known": np.ones(len(A), int), "A": A, "B": B})
