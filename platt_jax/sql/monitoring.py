"""The sums of a night for a `Monitor`, by a query in the engine of the rows.

The query computes what `monitoring/evidence.py` computes of rows in memory.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from platt_jax.arrays import Ints
from platt_jax.caller import Caller
from platt_jax.monitoring import Monitor
from platt_jax.monitoring.evidence import ALTERNATIVES, SHIFTS, SLOPES, UNIT, Night
from platt_jax.monitoring.judging import (
    FARTHEST,
    STANDARD_ERRORS,
    WIDEST,
    BeforeNight,
    before_night,
    tell_unusable,
)
from platt_jax.monitoring.summaries import to_table
from platt_jax.results.segment_calibrator import SegmentCalibrator, parameters, require_sigmoids
from platt_jax.results.tables import Table
from platt_jax.sql import queries
from platt_jax.sql.checked import CheckedRows, checked_rows
from platt_jax.sql.engines import POINTS, numbers
from platt_jax.sql.expressions import bounded_deviation, literal, mean_probability
from platt_jax.sql.queries import RelationColumns
from platt_jax.sql.relation_rows import RelationRows, require_relation_rows

_CURVE = ("A", "B", "c_AA", "c_AB", "c_BB")  # of the prediction; A and B without a population
_MARGIN = ("m_AA", "m_AB", "m_BB")  # covariance of the fit
_LEAST = 2.0**-53  # least distance of probabilities from 0 and 1


def monitor_sums(rows: RelationRows, monitor: Monitor) -> Table:
    """The sums of a night's rows for `Monitor.add`, computed in their engine by two queries.

    All labels must be known: there is no `reported`, which `Monitor.sums` has.

    Args:
        rows: the rows of the night, from `rows`, without weights.
        monitor: the monitor after the night before.

    Returns:
        A Table, as of `Monitor.sums` of the same rows. Engines round otherwise: sums agree within
        1e-7 nats a row. With a population they agree within 1e-5 where predictions are from 1e-6 to
        1 - 1e-6; a label that contradicts a more extreme one may differ by nats. Rows without a
        finite score, label or offset are left out.

    Raises:
        ValueError: the monitor's calibrator has levels; it has a `night_sd`; a column is missing or
            of another type; an id is NULL; or there are weights.

    Example:
        >>> import duckdb
        >>> from platt_jax import fit_segments, sql
        >>> sales = duckdb.sql("SELECT * FROM (VALUES (2.0, 1, 'a'), (-1.0, 0, 'a')) t(f, y, shop)")
        >>> rows = sql.rows(sales, score="f", label="y", segment="shop")
        >>> monitor = Monitor.start(fit_segments(rows), against="predictions")
        >>> monitor.add(monitor_sums(rows, monitor)).table()["rows"].tolist()
        [2]
    """
    calibrator = monitor.calibrator
    if not isinstance(calibrator, SegmentCalibrator):
        raise ValueError("monitor: expected a calibrator of segments; Monitor.update takes classes")
    require_sigmoids(calibrator, "monitor")
    if calibrator.by_level is not None:
        raise ValueError("monitor: expected a calibrator without levels; Monitor.update takes them")
    if monitor.night_sd:
        raise ValueError("monitor: expected a night_sd of 0; Monitor.update and sums take others")
    require_relation_rows(rows)
    if rows.names.weight is not None:
        raise ValueError(f"rows: expected no weights, got the column {rows.names.weight!r}")
    caller = Caller()
    with checked_rows(rows.engine, rows.names, rows.snapshot) as checked:
        if not len(checked.keys):
            no_keys = calibrator.keys[:0]
            return to_table(no_keys, Night.without_rows(0, monitor.state.terms))
        before = before_night(calibrator, checked.keys, monitor.against)
        curves = parameters(calibrator)[before.place]
        usable = before.usable & np.isfinite(curves).all(1)
        tell_unusable(checked.keys, before.usable, caller)
        names = ["A", "B"] if curves.shape[1] == 2 else list(_CURVE)
        points = dict(zip(names, curves.T, strict=True)) | _margin_points(before)
        judged = _run(checked, monitor, points, usable)
    return to_table(*judged)


def _margin_points(before: BeforeNight) -> dict[str, Any]:
    covariance = before.covariance
    margin = {} if covariance is None else dict(zip(_MARGIN, covariance, strict=True))
    return {"turn": before.pivot} | margin


def _run(rows: CheckedRows, monitor: Monitor, points: dict[str, Any], usable: Any) -> Any:
    """The segments with rows that can be judged, and their sums."""
    keys = rows.found.select(rows.names.keys)
    ids = {f"p_{key}": keys[key] for key in rows.names.keys}
    number = pa.array(np.arange(len(rows.keys)))
    table = pa.table({**ids, "number": number, **points}).filter(pa.array(usable))
    sums = rows.engine.run(_query(rows.names, list(points), monitor.margin), table)
    indices = numbers(sums["number"]).astype(np.int64)

    def column(name: str) -> Ints:
        values: Ints = np.rint(numbers(sums[name])).astype(np.int64)
        return values

    count, positives = column("n"), column("positives")
    ratios = np.stack([column(f"r{i}") for i in range(ALTERNATIVES)], -1)
    sizes = (SHIFTS / UNIT).astype(np.int64)
    favoured = positives[:, None], (count - positives)[:, None]
    ratios[:, : 2 * len(SHIFTS)] += np.hstack([sizes * x for x in favoured])
    night = Night(ratios, count, positives, column("expected"), column("margin"))
    return rows.keys[indices], night


def _query(names: RelationColumns, points: list[str], margin: float) -> str:
    """The query; the columns r0, r1, ... are as in `evidence.py`, without the sizes of shifts.

    What is used often is computed once: DuckDB would repeat it wherever it is used.
    """
    s, unit = f"{literal(STANDARD_ERRORS)}", literal(UNIT)
    z = "-(A * f + B)" if names.offset is None else "o - (A * f + B)"
    wide = bounded_deviation("f", *_MARGIN) if _MARGIN[0] in points else "0.0"
    mean = _CURVE[2] in points
    deviation = bounded_deviation("f", *_CURVE[2:]) if mean else "0.0"
    curve = "LN(p) - LN(1 - p)" if mean else "z0"
    p = mean_probability("(-z0)", "spread") if mean else "0.5"
    most = literal(1 - _LEAST)
    on = " AND ".join(f"checked.{key} = {POINTS}.p_{key}" for key in names.keys)
    sums = ", ".join(
        f"SUM({'FLOOR' if name.startswith('r') else 'ROUND'}({term} / {unit})) AS {name}"
        for name, term in _terms().items()
    )
    return f"""
        {queries.with_rows(names)},
        joined AS (SELECT * FROM checked JOIN {POINTS} ON {on} WHERE kind = 1),
        curves AS (
            SELECT number, y, turn, {z} AS z0, {deviation} AS spread,
                {literal(margin)} + {s} * {wide} AS m0
            FROM joined
        ),
        means AS MATERIALIZED (SELECT *, {p} AS p0 FROM curves),
        inside AS (
            SELECT *, CASE WHEN p0 > {most} THEN {most} WHEN p0 < {literal(_LEAST)}
                THEN {literal(_LEAST)} ELSE p0 END AS p FROM means
        ),
        predicted AS (SELECT *, {curve} AS z1 FROM inside),
        clipped AS MATERIALIZED (
            SELECT number, y, turn, {_clipped("z1", FARTHEST)} AS z, {_clipped("m0", WIDEST)} AS m
            FROM predicted
        ),
        sides AS (
            SELECT *, ABS(z - turn) AS away,
                CASE WHEN z > turn THEN 1 WHEN z < turn THEN -1 ELSE 0 END AS outwards
            FROM clipped
        ),
        terms AS MATERIALIZED (
            SELECT *, 1 / (1 + EXP(-(z + m))) AS up, 1 / (1 + EXP(z - m)) AS down,
                1 / (1 + EXP(-z)) AS q,
                1 / (1 + EXP(outwards * z - m)) AS inner_p,
                1 / (1 + EXP(-(outwards * z + m))) AS outer_p,
                CASE WHEN (y = 1 AND outwards < 0) OR (y <> 1 AND outwards >= 0)
                    THEN away ELSE 0 END AS inner_gain,
                CASE WHEN (y = 1 AND outwards > 0) OR (y <> 1 AND outwards <= 0)
                    THEN away ELSE 0 END AS outer_gain
            FROM sides
        )
        SELECT number, COUNT(*) AS n, SUM(CASE WHEN y = 1 THEN 1 ELSE 0 END) AS positives, {sums}
        FROM terms GROUP BY number
    """


def _clipped(x: str, most: float) -> str:
    end = literal(most)
    return f"CASE WHEN {x} > {end} THEN {end} WHEN {x} < -{end} THEN -{end} ELSE {x} END"


def _terms() -> dict[str, str]:
    """The terms of a row in nats, or in probabilities, by the names of their sums."""
    shifts = [
        f"(-LN(1 + {side} * {literal(np.expm1(size))}))"
        for side in ("up", "down")
        for size in SHIFTS
    ]
    slopes = []
    for slope in SLOPES:
        side, by = ("inner" if slope < 1 else "outer"), literal(abs(slope - 1))
        slopes.append(f"({by} * {side}_gain - LN(1 + {side}_p * (EXP({by} * away) - 1)))")
    ratios = {f"r{i}": term for i, term in enumerate([*shifts, *slopes])}
    return {"expected": "q", "margin": "m", **ratios}
