"""Rows that change between passes are an error; with snapshot=True they are those of one state."""

import sqlite3

import numpy as np
import pytest
from rows_elsewhere import fit_relation, predict_relation
from test_sql import COLUMNS, ENGINES, assert_equal, in_duckdb, in_sqlite, plain
from test_sql import closed as closed  # a fixture

import platt_jax as pj
from platt_jax.sql import queries

pytestmark = pytest.mark.slow  # compiles many programs

CHANGED = "relation: expected the same rows in every pass, but rows changed.*snapshot=True"


def weighted():
    rng = np.random.default_rng(3)
    columns = plain() | {"w": rng.exponential(size=3000), "o": rng.normal(size=3000)}
    columns["f"][columns["s"] == 4] = 0.0
    return columns


@pytest.fixture
def between_passes(monkeypatch):
    """A function that has another called before the query of a pass, given its number."""

    def called(number, function):
        derivatives, asked = queries.derivatives, []

        def changing(*arguments):
            asked.append(None)
            if len(asked) == number:
                function()
            return derivatives(*arguments)

        monkeypatch.setattr(queries, "derivatives", changing)

    return called


UPDATES = [
    "UPDATE t SET f = -f",
    "UPDATE t SET f = f + 1e-6 WHERE rowid = 7",
    "UPDATE t SET y = 1 - y WHERE s = 4",  # where all scores are 0
    "UPDATE t SET w = w * 1.001 WHERE rowid = 7",
    "UPDATE t SET o = 0 WHERE rowid = 7",
    "DELETE FROM t WHERE rowid = 7",
]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("number", [1, 2])
def test_rows_that_change_between_passes(between_passes, number, update):
    placed = in_sqlite(weighted())
    between_passes(number, lambda: placed["connection"].execute(update))
    with pytest.raises(ValueError, match=CHANGED):
        fit_relation(**placed, **COLUMNS, weight="w", offset="o")


def tables(relation, connection=None):
    """Names of temporary tables that are there."""
    if connection is not None:
        return connection.execute("SELECT name FROM sqlite_temp_master").fetchall()
    found = relation.query("t", "SELECT table_name FROM duckdb_tables() WHERE temporary")
    return found.fetchall()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_snapshot_of_rows_that_change(between_passes, engine):
    columns = plain() | {"w": np.arange(3000.0) % 4}
    placed = ENGINES[engine](columns)

    def update():
        text = "UPDATE t SET f = -f, w = 1"
        if engine == "sqlite":
            placed["connection"].execute(text)
        else:
            placed["relation"].query("unused", text)

    between_passes(2, update)
    found = fit_relation(**placed, **COLUMNS, weight="w", snapshot=True)
    f, y, s, w = (columns[name] for name in "fysw")
    assert_equal(found, pj.fit_segments(f, y, s, weights=w))
    assert tables(**placed) == []
    again = fit_relation(**placed, **COLUMNS)
    np.testing.assert_allclose(again.fit.A, pj.fit_segments(-f, y, s).fit.A, rtol=1e-9)


def test_scores_drawn_anew_by_every_pass():
    relation = in_duckdb(plain())["relation"]
    drawn = relation.query("t", "SELECT f + 1e-3 * random() AS f, y, s FROM t")
    with pytest.raises(ValueError, match=CHANGED):
        fit_relation(drawn, **COLUMNS)
    assert fit_relation(drawn, **COLUMNS, snapshot=True).fit.converged.all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_snapshot_is_dropped_after_an_error(engine):
    columns = plain(rows=60)
    columns["y"] = np.arange(60) % 3
    placed = ENGINES[engine](columns)
    with pytest.raises(ValueError, match="label, column 'y'"):
        fit_relation(**placed, **COLUMNS, snapshot=True)
    assert tables(**placed) == []


@pytest.mark.parametrize("seed", range(5))
def test_rounding_is_no_change(seed):
    """The rows are of sizes from 1e-90 to 1e90 and in two threads, which add up in any order."""
    rng = np.random.default_rng(seed)
    rows = 300_000
    sizes = 10.0 ** rng.integers([[-90], [-9], [0]], [[90], [9], [9]], (3, 40))
    s = rng.integers(0, 40, rows)
    f = rng.normal(size=rows) * sizes[np.arange(rows) % 3, s] + rng.choice([0, 1e3], 40)[s]
    columns = {"f": f, "y": rng.random(rows) < 0.3, "s": s, "w": rng.lognormal(0, 9, rows)}
    columns["o"] = rng.normal(size=rows) * 10.0 ** rng.integers(-9, 2, rows)
    relation = in_duckdb(columns)["relation"]
    relation.query("t", "SET threads = 2")
    found = fit_relation(relation, **COLUMNS, weight="w", offset="o" if seed % 2 else None)
    assert len(found) == 40


def test_types_of_values_in_sqlite():
    connection = sqlite3.connect(":memory:")
    rows = [(0.1 * i, i % 2, i % 3, "note" if i else 1) for i in range(3000)]
    connection.execute("CREATE TABLE t (f, y, s, note)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    expected = fit_relation("t", connection=connection, **COLUMNS)  # other columns do not matter
    for column, value, message in (
        ("f", "'x'", "score, column 'f': expected values of one type, got real and text"),
        ("f", "x'00'", "score, column 'f': expected values of one type, got blob and real"),
        ("y", "'1'", "label, column 'y': expected values of one type, got integer and text"),
        ("s", "'x'", "segment, column 's': expected values of one type, got integer and text"),
    ):
        connection.execute(f"UPDATE t SET {column} = {value} WHERE rowid = 2500")
        with pytest.raises(ValueError, match=message):
            fit_relation("t", connection=connection, **COLUMNS)
        if column != "y":
            with pytest.raises(ValueError, match=message):
                predict_relation("t", expected, connection=connection, score="f", segment="s")
        connection.rollback()
        connection.execute("DELETE FROM t")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
