"""Points as parameters of a query, so that predictions leave no tables behind."""

import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from rows_elsewhere import fit_relation, predict_relation
from test_sql import COLUMNS, in_sqlite
from test_sql import closed as closed  # a fixture

import platt_jax as pj
from platt_jax.sql.database import as_json

FLOATS = [0.1, -1 / 3, 1e-300, 1e300, 0.0, 1e16, None]
VALUES = {
    "floats": (pa.array(FLOATS), FLOATS),
    "NaN": (pa.array([np.nan, 1.0]), [None, 1.0]),
    "integers": (pa.array([2**63 - 1, -(2**63), None]), [2**63 - 1, -(2**63), None]),
    "text": (pa.array(["", "it's", 'x"y', "ß%?\n", None]), ["", "it's", 'x"y', "ß%?\n", None]),
    "truth": (pa.array([True, False]), [1, 0]),
    "dates": (pa.array([dt.date(2024, 2, 29)]), ["2024-02-29"]),
    "times": (pa.array([dt.datetime(2024, 2, 29, 1)]), ["2024-02-29 01:00:00"]),
    "none": (pa.array([], pa.float64()), []),
}


@pytest.mark.parametrize("kind", VALUES)
def test_sqlite_reads_what_was_sent(kind):
    column, expected = VALUES[kind]
    sent = as_json(pa.table({"i": pa.array(range(len(column)), pa.int64()), "x": column}))
    with closing(sqlite3.connect(":memory:")) as connection:
        found = connection.execute(sent.query, sent.parameters).fetchall()
    assert found == list(enumerate(expected))


@pytest.mark.parametrize(
    "column", [[1.0, -np.inf], [b"a"], [Decimal("0.5")]], ids=["infinity", "bytes", "decimals"]
)
def test_what_json_does_not_have(column):
    assert as_json(pa.table({"x": column})) is None


def test_sqlite_reads_any_float():
    rng = np.random.default_rng(0)
    floats = rng.integers(-(2**63), 2**63 - 1, 20_000).view(float)
    floats = floats[np.isfinite(floats) & (abs(floats) > 1e-17) & (abs(floats) < 1e17)]
    sent = as_json(pa.table({"x": floats}))
    with closing(sqlite3.connect(":memory:")) as connection:
        found = connection.execute(sent.query, sent.parameters).fetchall()
    assert np.array_equal(np.array(found)[:, 0], floats)


@pytest.mark.parametrize(
    "ids",
    [[1, 2, 3], ["a", "it's", "50%?"], [0.1, -1 / 3, 1e10]],
    ids=lambda ids: type(ids[0]).__name__,
)
def test_predictions_of_sqlite_leave_nothing_behind(ids):
    rng = np.random.default_rng(1)
    which, f = rng.integers(0, 3, 300), rng.normal(size=300)
    segments = np.array(ids)[which]
    fitted = pj.fit_segments(f, rng.random(300) < 0.4, segments)
    placed = in_sqlite({"f": f, "s": segments})
    placed["connection"].commit()
    cursor = predict_relation(**placed, calibrator=fitted, score="f", segment="s")
    p = np.array([row[-1] for row in cursor])
    np.testing.assert_allclose(p, fitted.predict_proba(f, segments), rtol=1e-14)
    assert [column[0] for column in cursor.description] == ["f", "s", "probability"]
    connection = placed["connection"]
    assert connection.execute("SELECT * FROM sqlite_temp_master").fetchall() == []
    assert not connection.in_transaction


def test_ids_of_bytes_in_sqlite():
    rng = np.random.default_rng(1)
    which, f, y = rng.integers(0, 2, 300), rng.normal(size=300), rng.integers(0, 2, 300)
    connection = in_sqlite({"f": f, "y": y, "s": which})["connection"]
    connection.execute("UPDATE t SET s = CASE s WHEN 0 THEN x'0061' ELSE x'62' END")
    fitted = fit_relation("t", connection=connection, **COLUMNS)
    assert fitted.keys.tolist() == [b"\x00a", b"b"]
    rows = predict_relation("t", fitted, connection=connection, score="f", segment="s").fetchall()
    np.testing.assert_allclose(
        [row[-1] for row in rows], fitted.predict_proba(f, fitted.keys[which])
    )
