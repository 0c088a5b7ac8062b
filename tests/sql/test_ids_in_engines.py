"""`sql.predict` returns each row once, also where an engine takes two ids for one."""

import sqlite3

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import sql

duckdb = pytest.importorskip("duckdb")

ALIKE = "equal to several"
KIND = "expected ids of the kind that was fitted"


def calibrator_of(keys, pooling="none"):
    rng = np.random.default_rng(0)
    each = np.repeat(np.asarray(keys), 200, axis=0)
    scores = rng.normal(size=len(each))
    labels = rng.random(len(each)) < np.where(np.arange(len(each)) < 200, 0.3, 0.6)
    return pj.fit_segments(scores, labels, each, pooling=pooling)


def relation(kind, value):
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE t(f DOUBLE, id {kind})")
    connection.execute(f"INSERT INTO t SELECT 0.5, {value}")
    return connection, connection.table("t")


@pytest.mark.parametrize(
    "keys, kind, value, told",
    [
        (["07", "7"], "DECIMAL(9,0)", "7", KIND),
        (["07", "7"], "HUGEINT", "7", KIND),
        (["true", "t"], "BOOLEAN", "true", KIND),
        (["2024-3-8", "2024-03-08"], "DATE", "'2024-03-08'", KIND),
        ([1, 2], "VARCHAR", "'1'", KIND),
        (np.array(["2024-03-08", "2024-03-09"], "M8[us]"), "TIMESTAMPTZ", "'2024-03-08'", KIND),
        ([2**53, 2**53 + 1], "DOUBLE", "9007199254740992", ALIKE),
        ([2**24, 2**24 + 1], "FLOAT", "16777216", ALIKE),
        (["A", "a"], "VARCHAR COLLATE NOCASE", "'a'", ALIKE),
        (["é", "e"], "VARCHAR COLLATE NOACCENT", "'e'", ALIKE),
    ],
)
def test_ids_that_the_engine_would_convert_are_refused(keys, kind, value, told):
    _connection, rows = relation(kind, value)
    with pytest.raises(ValueError, match=told):
        sql.predict(sql.rows(rows, score="f", segment="id"), calibrator_of(keys))


@pytest.mark.parametrize(
    "keys, kind, value",
    [
        (["A", "a"], "VARCHAR", "'a'"),
        (["é", "e "], "VARCHAR", "'e '"),
        (["a", "b"], "ENUM('a', 'b')", "'b'"),
        ([2**53, 2**53 + 1], "BIGINT", str(2**53 + 1)),
        ([1, 2], "DOUBLE", "2"),
        ([1, 2], "DECIMAL(9,2)", "2"),
        (np.array(["2024-03-08", "2024-03-09"], "M8[us]"), "DATE", "'2024-03-09'"),
    ],
)
def test_ids_that_are_told_apart_have_their_own_curve(keys, kind, value):
    _connection, rows = relation(kind, value)
    calibrator = calibrator_of(keys)
    got = sql.predict(sql.rows(rows, score="f", segment="id"), calibrator, name="p").fetchall()
    want = calibrator.predict_proba([0.5], np.asarray(keys)[1:])
    assert [p for _, _, p in got] == pytest.approx(want.tolist(), rel=1e-12)


@pytest.mark.parametrize("pooling", ["none", "nested", "crossed"])
def test_levels_are_looked_at_one_by_one(pooling):
    """Cities that differ by case in pairs with shops that do not: of pairs one matches at most."""
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 12, 2000)
    city = np.array(["Oslo", "OSLO", "Bern", "bern"])[shop % 4]
    f, y = rng.normal(size=2000), (rng.random(2000) < 0.3 + 0.1 * (shop % 4)).astype(int)
    lite = sqlite3.connect(":memory:")
    lite.execute("CREATE TABLE t(f REAL, y INT, city TEXT COLLATE NOCASE, shop INT)")
    each = zip(f.tolist(), y.tolist(), city.tolist(), shop.tolist(), strict=True)
    lite.executemany("INSERT INTO t VALUES(?, ?, ?, ?)", list(each))
    rows = sql.rows("t", score="f", label="y", segment=["city", "shop"], connection=lite)
    calibrator = pj.fit_segments(rows, pooling=pooling)
    if pooling == "none":
        assert len(sql.predict(rows, calibrator, name="p").fetchall()) == 2000
    else:
        with pytest.raises(ValueError, match=ALIKE):
            sql.predict(rows, calibrator, name="p")
    lite.close()
