"""A night's sums by a query are those of rows in memory."""

import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from rows_elsewhere import sum_relation

import platt_jax as pj

COLUMNS = {"score": "f", "label": "y", "segment": "s"}


def rows(seed, each, number=40, kind=int):
    rng = np.random.default_rng(seed)
    s = np.repeat(np.arange(number), each)
    f, o = rng.normal(size=len(s)), 0.5 * rng.normal(size=len(s))
    y = rng.random(len(s)) < 1 / (1 + np.exp(-(1.5 * f - 1 + o + 0.02 * s)))
    return {"f": f, "y": y.astype(int), "s": s.astype(kind), "o": o}


def in_duckdb(columns):
    in_arrow = pa.table(columns)  # noqa: F841 - DuckDB finds it by its name
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT * FROM in_arrow")
    return {"relation": connection.table("t")}


def in_sqlite(columns):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (f REAL, y INTEGER, s, o REAL)")
    lines = zip(*(x.tolist() for x in columns.values()), strict=True)
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", lines)
    return {"relation": "t", "connection": connection}


def in_order(table):
    order = np.argsort(table["segment"])
    return {name: column[order] for name, column in table.items()}


def compared(monitor, columns, opened, **more):
    """Sums of the query, and the largest distances from those in memory, in nats or rows."""
    given = opened(columns)
    by_query = sum_relation(**given, monitor=monitor, **COLUMNS, **more)
    if "connection" in given:
        given["connection"].close()
    offset = columns["o"] if more else None
    by_memory = monitor.sums(*(columns[x] for x in "fys"), offset=offset)
    a, b = (in_order(table) for table in (by_query, by_memory))
    assert list(a) == list(b)
    assert (a["segment"] == b["segment"]).all()
    assert (a["rows"] == b["rows"]).all()
    assert (a["positives"] == b["positives"]).all()
    assert all(a[name].dtype == np.int64 for name in a if name != "segment")
    return max(np.abs(a[n] - b[n]).max() * 2.0**-24 for n in a if n != "segment")


@pytest.mark.parametrize("opened", [in_duckdb, in_sqlite])
@pytest.mark.parametrize("against", ["fit", "predictions"])
@pytest.mark.parametrize(("pooling", "within"), [("none", 1e-5), ("partial", 1e-4)])
def test_sums_are_those_of_rows_in_memory(opened, against, pooling, within):
    fitted, tonight = rows(0, 100), rows(1, 20, number=42)
    calibrator = pj.fit_segments(*(fitted[x] for x in "fys"), pooling=pooling)
    monitor = pj.Monitor.start(calibrator, against=against)
    if against == "fit" and pooling == "none":  # of segments that were not fitted little is known
        with pytest.warns(RuntimeWarning, match="2 of 42 segments not judged"):
            away = compared(monitor, tonight, opened)
    else:
        away = compared(monitor, tonight, opened)
    assert away < within


def test_offsets_texts_and_extreme_scores():
    fitted, tonight = rows(0, 100, kind=str), rows(1, 20, kind=str)
    tonight["f"][::50] = 1e4
    tonight["f"][1::50] = -1e4
    calibrator = pj.fit_segments(*(fitted[x] for x in "fys"))
    monitor = pj.Monitor.start(calibrator, margin=0.3)
    assert compared(monitor, tonight, in_duckdb, offset="o") < 1e-4


def test_the_monitor_goes_on_as_in_memory():
    fitted, tonight = rows(0, 100), rows(1, 30)
    monitor = pj.Monitor.start(pj.fit_segments(*(fitted[x] for x in "fys")))
    by_query = monitor.add(sum_relation(**in_duckdb(tonight), monitor=monitor, **COLUMNS))
    by_memory = monitor.update(*(tonight[x] for x in "fys"))
    a, b = (x.table() for x in (by_query, by_memory))
    assert a["segment"].tolist() == b["segment"].tolist()
    assert a["log_e_value"] == pytest.approx(b["log_e_value"], abs=1e-5)


def test_rows_that_are_not_finite_are_left_out():
    fitted, tonight = rows(0, 100), rows(1, 20)
    tonight["f"][:3] = np.nan
    monitor = pj.Monitor.start(pj.fit_segments(*(fitted[x] for x in "fys")))
    sums = sum_relation(**in_duckdb(tonight), monitor=monitor, **COLUMNS)
    assert sums["rows"][sums["segment"] == 0] == 17


def test_a_table_without_rows():
    fitted, tonight = rows(0, 100), rows(1, 20)
    monitor = pj.Monitor.start(pj.fit_segments(*(fitted[x] for x in "fys")))
    opened = in_duckdb(tonight)
    opened["relation"] = opened["relation"].filter("f > 1000")
    sums = sum_relation(**opened, monitor=monitor, **COLUMNS)
    assert [len(x) for x in sums.values()] == [0] * 21
    assert list(sums) == list(monitor.sums([], [], []))
    after = monitor.add(sums)
    assert (after.night, len(after.table()["rows"])) == (1, 0)


def test_what_is_refused():
    columns = rows(0, 100)
    by_two = np.stack([columns["s"] % 3, columns["s"]], 1)
    crossed = pj.fit_segments(columns["f"], columns["y"], by_two, pooling="crossed")
    with pytest.raises(ValueError, match="monitor: expected a calibrator without levels"):
        sum_relation(**in_duckdb(columns), monitor=pj.Monitor.start(crossed), **COLUMNS)
    monitor = pj.Monitor.start(pj.fit_segments(*(columns[x] for x in "fys")))
    with pytest.raises(ValueError, match="score: expected one of the columns"):
        sum_relation(**in_duckdb(columns), monitor=monitor, **(COLUMNS | {"score": "g"}))
    with pytest.raises(ValueError, match="rows: expected no weights, got the column 'f'"):
        sum_relation(**in_duckdb(columns), monitor=monitor, **COLUMNS, weight="f")
