"""Rows in PostgreSQL: the answers are those of rows in memory. Needs its server, and psycopg."""

import datetime as dt
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from levelled import NAMES
from rows_elsewhere import fit_relation, predict_relation, sum_relation
from test_sql import COLUMNS, assert_equal, in_memory, made, plain
from test_sql_levels import check_predictions

import platt_jax as pj
from platt_jax import Options, export

pytestmark = pytest.mark.slow
TYPES = {"f": "double precision", "y": "boolean", "s": "bigint", "w": "double precision"}


def path_of(program):
    """The path of a program of the server, which Debian keeps apart; None where it is missing."""
    there = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    return str(there[-1]) if there else shutil.which(program)


@pytest.fixture(scope="module")
def server():
    """The folder of the socket of a server, which refuses to be started by root."""
    pytest.importorskip("psycopg")
    control, initdb = path_of("pg_ctl"), path_of("initdb")
    if control is None or initdb is None:
        pytest.skip("needs PostgreSQL's server")
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's path has to be short
    who = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    if who:
        shutil.chown(folder, "nobody")
    run = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder, **who}
    subprocess.run([initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "test"], **run)
    options = f"-k {folder} -c listen_addresses="
    start = ["start", "-w", "-l", f"{folder}/log", "-o", options]
    subprocess.run([control, "-D", f"{folder}/data", *start], **run)
    yield folder
    subprocess.run([control, "-D", f"{folder}/data", "stop", "-m", "immediate"], **run)
    shutil.rmtree(folder)


@pytest.fixture
def connection(server):
    import psycopg

    with psycopg.connect(host=str(server), user="test", dbname="postgres") as connection:
        yield connection
        connection.rollback()


def put(connection, columns, types=TYPES):
    """The arguments that name the columns."""
    kinds = ", ".join(f"{name} {types[name]}" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE t ({kinds})")
        with cursor.copy(f"COPY t ({', '.join(columns)}) FROM STDIN") as copy:
            for row in zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True):
                copy.write_row(row)
    return {"relation": "t", "connection": connection}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"weight": "w"},
        {"start": (-1000.0, 0.0)},
        {"pooling": "complete"},
        {"options": Options.libsvm()},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_answers_are_those_of_rows_in_memory(connection, given):
    columns = made()
    found = fit_relation(**put(connection, columns), **COLUMNS, **given)
    assert_equal(found, in_memory(columns, given))


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1e200])
def test_scores_of_any_size(connection, scale):
    columns = plain(number=5)
    columns["f"] *= scale
    expected = pj.fit_segments(columns["f"], columns["y"], columns["s"])
    result = fit_relation(**put(connection, columns), **COLUMNS)
    np.testing.assert_allclose(result.fit.A, expected.fit.A, rtol=1e-9)


@pytest.mark.parametrize(
    "kind, ids",
    [
        ("text", ["a", "b'", 'c"']),
        ("date", [dt.date(2026, 1, day) for day in (1, 2, 3)]),
        ("timestamp", [dt.datetime(2026, 1, day, 12) for day in (1, 2, 3)]),
        ("integer", [1, 2, 3]),
    ],
)
def test_ids_and_predictions(connection, kind, ids):
    columns = plain(rows=300, number=3)
    codes = columns["s"]
    columns["s"] = [ids[code] for code in codes]
    placed = put(connection, columns, TYPES | {"s": kind})
    calibrator = fit_relation(**placed, **COLUMNS)
    expected = pj.fit_segments(columns["f"], columns["y"], codes)
    np.testing.assert_allclose(calibrator.fit.A, expected.fit.A, rtol=1e-9)
    rows = predict_relation(**placed, calibrator=calibrator, score="f", segment="s").fetchall()
    p = calibrator.predict_proba(
        np.array([row[0] for row in rows]), np.array([row[2] for row in rows])
    )
    np.testing.assert_allclose([row[-1] for row in rows], p, rtol=1e-12)
    if kind == "integer":  # as an array has them
        calibrator = replace(calibrator, keys=calibrator.keys.astype(np.int32))
        rows = predict_relation(**placed, calibrator=calibrator, score="f", segment="s").fetchall()
        np.testing.assert_allclose([row[-1] for row in rows], p, rtol=1e-12)


@pytest.mark.parametrize("ids", NAMES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_levels(connection, kind, ids):
    def placed(columns):
        land = "bigint" if ids == "integers" else "text"
        city = "text" if ids == "text" else "bigint"
        return put(
            connection, columns, {"i": "bigint", "f": TYPES["f"], "land": land, "city": city}
        )

    check_predictions(placed, kind, ids)


def test_an_exported_view_is_replaced_the_second_night(connection):
    """PostgreSQL drops no table that a view needs, and replaces no view by other columns."""
    columns = plain(rows=300, number=3)
    rows = [columns[x] for x in "fys"]
    put(connection, columns)
    for pooling in ("none", "partial"):
        fitted = pj.fit_segments(*rows, pooling=pooling)
        more = {"dialect": "postgres", "table": "curves", "view": "predicted", "rows": "t"}
        for statement in export.to_sql(fitted, "f", "s", **more).setup:
            connection.execute(statement)
        found = connection.execute("SELECT f, s, probability FROM predicted").fetchall()
        f, s, p = map(np.array, zip(*found, strict=True))
        np.testing.assert_allclose(p, fitted.predict_proba(f, s), rtol=0, atol=1e-4)


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_the_sums_of_a_night(connection, pooling):
    fitted, tonight = plain(), plain(rows=900)
    calibrator = pj.fit_segments(*(fitted[x] for x in "fys"), pooling=pooling)
    monitor = pj.Monitor.start(calibrator)
    found = sum_relation(**put(connection, tonight), monitor=monitor, **COLUMNS)
    expected = monitor.sums(*(tonight[x] for x in "fys"))
    order, other = np.argsort(found["segment"]), np.argsort(expected["segment"])
    for name in expected:
        away = np.abs(found[name][order] - expected[name][other])
        assert away.max() <= (0 if name in ("segment", "rows", "positives") else 1e-4 * 2**24)


@pytest.mark.parametrize("door", ["expression", "table", "predict"])
def test_scores_whose_square_overflows_end_no_query(connection, door, rng):
    """PostgreSQL refuses results that are out of range, of any row."""
    ids = np.repeat(np.arange(8), 30)
    scores = rng.normal(size=240)
    labels = rng.random(240) < 1 / (1 + np.exp(-2 * scores - rng.normal(size=8)[ids]))
    pooled = pj.fit_segments(scores, labels, ids, pooling="partial")
    assert pooled.pooling == "partial"
    f = np.array([1e300, -1e300, 1e160, -1e154, np.inf, -np.inf, 1.0, 0.0, np.nan])
    segments = np.arange(9)  # of which one was not fitted
    placed = put(connection, {"f": f, "s": segments})
    if door == "predict":
        rows = predict_relation(**placed, calibrator=pooled, score="f", segment="s").fetchall()
    else:
        table = "curves" if door == "table" else None
        made = export.to_sql(pooled, "f", "s", dialect="postgres", table=table)
        with connection.cursor() as cursor:
            for statement in made.setup:
                cursor.execute(statement)
            cursor.execute(f"SELECT f, s, {made.expression} FROM t {made.join}")
            rows = cursor.fetchall()
    # NULL is what an exported expression says of NaN.
    found = {segment: np.nan if p is None else p for _, segment, p in rows}
    expected = pooled.predict_proba(f, segments)
    np.testing.assert_allclose([found[s] for s in segments], expected, rtol=2e-6, atol=1e-3)
