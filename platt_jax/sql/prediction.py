"""Probabilities by a query, in the engine of the rows."""

from collections.abc import Sequence
from typing import Any
from unicodedata import combining, normalize

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.groups import Groups
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.levels import Part
from platt_jax.results.segment_calibrator import (
    SegmentCalibrator,
    parameters,
    require_segment_calibrator,
)
from platt_jax.results.tables import arrow_array
from platt_jax.sql import pieces as sql_pieces
from platt_jax.sql.checked import check_columns
from platt_jax.sql.engines import POINTS, ROWS
from platt_jax.sql.expressions import (
    Joined,
    bounded_deviation,
    literal,
    mean_probability,
    parameter,
    probability,
    quoted,
)
from platt_jax.sql.queries import RelationColumns
from platt_jax.sql.relation_rows import RelationRows, require_relation_rows

_PARAMETERS = ("A", "B", "c_AA", "c_AB", "c_BB")
# What ids of types of Arrow are.
_KINDS = {
    "numbers": ("integer", "floating", "decimal", "boolean"),
    "text": ("string", "large_string", "string_view"),
    "bytes": ("binary", "large_binary", "fixed_size_binary"),
    "times": ("date",),
}
# The beginning of names of columns that the inner query has.
_INNER = "platt_jax_"


def predict(rows: RelationRows, calibrator: SegmentCalibrator, name: str = "probability") -> Any:
    """The rows of a relation with P(y=1) as a new column, computed in the engine.

    Args:
        rows: the rows, from `rows`; labels and weights are not read.
        calibrator: the calibrator of the segments, with any curves.
        name: name of the new column.

    Returns:
        A relation of DuckDB or a DataFrame of Spark, not computed yet; for a table of a connection,
        a cursor over the result. Probabilities equal `SegmentCalibrator.predict_proba`,
        but are NULL where the score or the offset is NULL, and 0 below 1e-304. With a population
        their error is at most 1e-7 where the standard deviation of the log-odds is up to 2, 6e-6 up
        to 3, and 5e-4 up to 5; where the log-odds and seven deviations together exceed 700, they
        are 0 or 1, and `predict_proba` its limit. A NULL segment is treated as one that was not
        fitted, and with levels a NULL in a column as an unseen value.

    Raises:
        ValueError: a column is missing or of another type, or there is one of the new name, or
            whose name begins with ``platt_jax_``; the calibrator is of classes; or the engine calls
            two of its segments equal to one id.

    Example:
        >>> import duckdb
        >>> from platt_jax import fit_segments, sql
        >>> sales = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> rows = sql.rows(sales, score="f", label="y", segment="shop")
        >>> with_p = predict(rows, fit_segments(rows), name="p")
        >>> [round(p, 3) for f, y, shop, p in with_p.fetchall()]
        [0.667, 0.333]
    """
    require_relation_rows(rows)
    names = rows.names._replace(label=None, weight=None, pos_label=None)
    columns = rows.engine.columns()
    check_columns(columns, names)
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    # Engines take names that differ by case alone for one.
    if name.casefold() in map(str.casefold, columns):
        raise ValueError(f"name: expected a new column's name, {name!r} is there")
    if inner := [x for x in columns if x.casefold().startswith(_INNER)]:
        raise ValueError(
            f"rows: expected no column whose name begins with {_INNER!r}, as those of the query, "
            f"got {inner}"
        )
    number = len(ids.fields(calibrator.keys))
    if number != len(names.segment):
        raise ValueError(
            f"segment: expected {number} columns, as the calibrator's, got {names.segment}"
        )
    if calibrator.curves is not None:
        indices: Any = np.arange(len(calibrator.keys))[:, None]
        all_parts = [Part(range(number), calibrator.keys, indices, None)]
        query, points = _by_pieces(names, list(columns), calibrator, calibrator.curves, name)
    else:
        curves, by_level = parameters(calibrator), calibrator.by_level
        root, parts = (curves[-1], []) if by_level is None else by_level.parts()
        all_parts = [Part(range(number), calibrator.keys, curves[:-1], None), *parts]
        query = _query(names, list(columns), root, all_parts, name)
        points = _points(names, all_parts)
    _check_kinds(columns, points, names)
    _require_one_match(rows, columns, points, all_parts)
    return rows.engine.extended(query, points)


def _check_kinds(columns: dict[str, pa.DataType], points: pa.Table, names: RelationColumns) -> None:
    """Refuses ids of another kind than the keys: engines would convert, each in its own way."""
    for index, name in enumerate(names.segment):
        column_type, fitted = columns[name], points.schema.field(f"p_{index}").type
        kinds = _kind(column_type), _kind(fitted)
        if None not in kinds and kinds[0] != kinds[1]:
            raise ValueError(
                f"segment, column {name!r}: expected ids of the kind that was fitted, {fitted}, "
                f"got {column_type}"
            )


def _kind(there: pa.DataType) -> str | None:
    """What ids of a type are; None for other types."""
    if pa.types.is_dictionary(there):
        there = there.value_type
    if pa.types.is_timestamp(there):
        return "times" if there.tz is None else "times with a zone"
    for kind, tests in _KINDS.items():
        if any(getattr(pa.types, f"is_{test}")(there) for test in tests):
            return kind
    return None


def _require_one_match(
    rows: RelationRows, columns: dict[str, pa.DataType], points: pa.Table, known: list[Part]
) -> None:
    """Refuses keys of which the engine calls two equal to one id: its row would be there twice.

    A collation may ignore case, accents or spaces at the end, and a column of floats may hold none
    of two near integers. Only where keys are so alike is the engine asked.
    """
    segment = rows.names.segment
    owner = points["level"].to_numpy()
    for number, part in enumerate(known):
        part_points = points.filter(pa.array(owner == number))
        keys = [_forms(part_points[f"p_{i}"], columns[segment[i]]) for i in part.columns]
        if len(set(zip(*keys, strict=True))) == len(part.keys):
            continue
        chosen = [quoted(segment[i]) for i in part.columns]
        on = [
            f"platt_rows.{x} = platt_keys.p_{i}" for x, i in zip(chosen, part.columns, strict=True)
        ]
        id_columns = ", ".join(f"platt_rows.{x}" for x in chosen)
        query = f"""
            SELECT COUNT(*) AS n FROM (SELECT DISTINCT {", ".join(chosen)} FROM {ROWS}) platt_rows
            JOIN {POINTS} AS platt_keys ON {" AND ".join(on)} AND platt_keys.level = {number}
            GROUP BY {id_columns} HAVING COUNT(*) > 1
        """
        if rows.engine.run(query, points).num_rows:
            raise ValueError(
                f"segment: expected ids that equal one of the calibrator's at most, got some of "
                f"the columns {[segment[i] for i in part.columns]} that the engine calls equal to "
                "several; cast them to the type that was fitted, with a collation that tells all "
                "keys apart"
            )


def _forms(keys: pa.ChunkedArray, there: pa.DataType) -> list[Any]:
    """Keys (n,) as an engine may see them at most alike: two of one form may be equal to it."""
    values = keys.to_pylist()
    if _kind(keys.type) == "text":
        return [x if x is None else _bare(x) for x in values]
    if pa.types.is_floating(there):
        kind = np.float32 if there.bit_width <= 32 else np.float64
        return [x if x is None else kind(x) for x in values]
    return values


def _bare(text: str) -> str:
    """The text without case, accents and spaces at the end."""
    if not text.isascii():
        text = "".join(x for x in normalize("NFKD", text) if not combining(x))
    return text.casefold().rstrip()


def _by_pieces(
    names: RelationColumns,
    columns: list[str],
    calibrator: SegmentCalibrator,
    curves: FittedCurves,
    name: str,
) -> tuple[str, pa.Table]:
    """The query for curves in pieces, and its points: the segments, then the pieces."""
    shift, pieces = calibrator.shift, curves.pieces()
    pieces = pieces if shift is None else pieces.lowered(shift)
    unseen, score = len(calibrator.keys), _double(names.score)
    part = Part(range(len(names.segment)), calibrator.keys, np.arange(unseen)[:, None], None)
    points = [_points(names, [part], ("curve",)), pa.table(sql_pieces.columns(pieces))]
    curve, prefix = f"COALESCE({_alias(0)}.curve, {unseen})", "platt_pieces.platt_"
    join = sql_pieces.join(f"{POINTS} AS platt_pieces", curve, score, prefix)
    value, link, odds = sql_pieces.joined(pieces, score, prefix)
    offset = None if names.offset is None else _double(names.offset)
    # Each is many times in the expression of the probability.
    inner = {"value": value, "link": link, "odds": odds, "offset": offset, "score": score}
    aliases = {term: f"platt_rows.{_INNER}{term}" for term, x in inner.items() if x is not None}
    link = aliases["link"] if link.startswith(prefix) else link
    p = sql_pieces.probability(aliases["value"], link, aliases.get("odds"), aliases.get("offset"))
    row_columns = ", ".join(f"platt_rows.{quoted(column)}" for column in columns)
    inner_columns = ", ".join(f"{inner[term]} AS {_INNER}{term}" for term in aliases)
    # Of NaN, as of NULL, there is no piece.
    query = f"""
        SELECT {row_columns}, CASE WHEN {sql_pieces.finite(aliases["score"])} IS NULL
            THEN {aliases["score"]} ELSE {p} END AS {quoted(name)} FROM (
            SELECT {ROWS}.*, {inner_columns} {_joined(names, [part])} {join}
        ) platt_rows
    """
    return query, pa.concat_tables(points, promote_options="default")


def _double(column: str) -> str:
    return f"CAST({ROWS}.{quoted(column)} AS DOUBLE)"


def _query(
    names: RelationColumns,
    columns: list[str],
    root: NDArray[np.float64],
    known: list[Part],
    name: str,
) -> str:
    """The query, given the parameters of other segments, and what is known of some."""
    score = _double(names.score)
    # Without a population there are A and B only.
    A, B, *covariance = (
        _parameter(i, symbol, root[i], known) for i, symbol in enumerate(_PARAMETERS[: len(root)])
    )
    joined = _joined(names, known)
    z = f"{A} * {score} + {B}"
    if names.offset is not None:
        z += f" - {_double(names.offset)}"
    if not covariance:
        return f"SELECT {ROWS}.*, {probability(z)} AS {quoted(name)} {joined}"
    # A mean has many terms in two columns, which are computed once.
    s = bounded_deviation(score, *covariance)
    row_columns = ", ".join(f"platt_rows.{quoted(column)}" for column in columns)
    mean = mean_probability(f"{_INNER}z", f"{_INNER}s")
    return f"""
        SELECT {row_columns}, {mean} AS {quoted(name)} FROM (
            SELECT {ROWS}.*, {z} AS {_INNER}z, {s} AS {_INNER}s {joined}
        ) platt_rows
    """


def _alias(number: int) -> str:
    """The name of `POINTS` where it is joined for the segments, 0, or for a level."""
    return f"platt_level_{number}"


def _parameter(place: int, of: str, root: float, known: list[Part]) -> str:
    """The expression of a parameter, given its place and its column in `POINTS`."""
    segments, *levels = (
        Joined(
            f"{_alias(number)}.known",
            f"{_alias(number)}.{of}",
            None if part.unseen is None else literal(part.unseen[place]),
        )
        for number, part in enumerate(known)
    )
    return parameter(segments, literal(root), levels)


def _joined(names: RelationColumns, known: list[Part]) -> str:
    """The rows with the points of their segments and of the values of each level."""
    text = f"FROM {ROWS}"
    for number, part in enumerate(known):
        alias = _alias(number)
        on = [f"{ROWS}.{quoted(names.segment[i])} = {alias}.p_{i}" for i in part.columns]
        if len(known) > 1:
            on.append(f"{alias}.level = {number}")
        text += f" LEFT JOIN {POINTS} AS {alias} ON {' AND '.join(on)}"
    return text


def _points(
    names: RelationColumns, known: list[Part], parameters: Sequence[str] = _PARAMETERS
) -> pa.Table:
    """The segments with their parameters, then the values of each level with their own."""
    rows = Groups([len(part.keys) for part in known])
    columns: dict[str, Any] = {}
    for index in range(len(names.segment)):
        try:
            columns[f"p_{index}"] = _keys(index, known)
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            raise ValueError(
                "calibrator: expected segments of one type, as in a column of a table, got "
                f"Python's objects of several ({error})"
            ) from error
    columns |= {"known": np.ones(rows.rows, int), "level": rows.owner}
    numbers = np.concatenate([part.normal for part in known])
    return pa.table({**columns, **dict(zip(parameters, numbers.T, strict=False))})


def _keys(place: int, known: list[Part]) -> Any:
    """A column of the ids of the segments and of the levels; NULL if these lack it."""
    values, indices, end = [], [], 0
    for part in known:
        if place in part.columns:
            values.append(ids.fields(part.keys)[part.columns.index(place)])
            indices.append(end + np.arange(len(part.keys)))
            end += len(part.keys)
        else:
            indices.append(np.full(len(part.keys), -1))
    all_values, row_indices = np.concatenate(values), np.concatenate(indices)
    # Arrow ends an array's bytes at the first that is 0, but not Python's bytes.
    array = arrow_array(all_values.tolist() if all_values.dtype.kind in "OS" else all_values)
    return array.take(pa.array(row_indices, mask=row_indices < 0)) if len(known) > 1 else array
