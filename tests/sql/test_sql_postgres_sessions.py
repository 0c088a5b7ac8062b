"""Sessions of PostgreSQL: what others write meanwhile, what is left behind, what may not write."""

import threading
import uuid

import numpy as np
import pytest
from rows_elsewhere import fit_relation, predict_relation
from test_sql import COLUMNS, in_memory, plain
from test_sql_postgres import TYPES, put
from test_sql_postgres import connection as connection  # a fixture
from test_sql_postgres import server as server  # a fixture
from test_sql_snapshots import CHANGED
from test_sql_snapshots import between_passes as between_passes  # a fixture

import platt_jax as pj
from platt_jax.sql import database

pytestmark = pytest.mark.slow
PREDICTED = {"score": "f", "segment": "s"}
LEFT = "SELECT relname FROM pg_class WHERE relname LIKE 'platt_jax%'"


@pytest.fixture
def session(server):
    """A function that opens a connection."""
    import psycopg

    opened = []

    def connect(**given):
        opened.append(psycopg.connect(host=str(server), user="test", dbname="postgres", **given))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def shared(session):
    """Columns in a table `t` that all sessions see."""
    columns, owner = plain(), session(autocommit=True)
    owner.execute("DROP TABLE IF EXISTS shared CASCADE")  # now that no session reads it
    put(owner, columns)
    owner.execute("CREATE TABLE shared AS SELECT * FROM t")
    owner.execute("DROP TABLE t")
    return columns


def status(connection):
    return connection.info.transaction_status.name


def left(connection):
    """Names of the package's tables that are there."""
    found = connection.execute(LEFT).fetchall()
    connection.rollback()
    return found


@pytest.mark.parametrize("autocommit", [False, True])
def test_other_sessions_write_meanwhile(session, shared, between_passes, autocommit):
    def update():
        session(autocommit=True).execute("UPDATE shared SET f = -f")

    between_passes(2, update)
    mine = session(autocommit=autocommit)
    found = fit_relation("shared", connection=mine, **COLUMNS)
    np.testing.assert_allclose(found.fit.A, in_memory(shared, {}).fit.A, rtol=1e-9)
    assert status(mine) == "IDLE"
    assert left(mine) == []
    again = fit_relation("shared", connection=mine, **COLUMNS)
    moved = shared | {"f": -shared["f"]}
    np.testing.assert_allclose(again.fit.A, in_memory(moved, {}).fit.A, rtol=1e-9)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("snapshot", [False, True])
def test_in_a_transaction(session, shared, between_passes, isolation, snapshot):
    between_passes(2, lambda: session(autocommit=True).execute("UPDATE shared SET f = -f"))
    mine = session()
    mine.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    mine.execute("CREATE TABLE pending (x int)")
    given = {"relation": "shared", "connection": mine, "snapshot": snapshot, **COLUMNS}
    if isolation == "READ COMMITTED" and not snapshot:
        with pytest.raises(ValueError, match=CHANGED):
            fit_relation(**given)
    else:
        found = fit_relation(**given)
        np.testing.assert_allclose(found.fit.A, in_memory(shared, {}).fit.A, rtol=1e-9)
    assert status(mine) == "INTRANS"
    assert mine.execute("SELECT * FROM pending").fetchall() == []  # as before
    assert mine.execute(LEFT).fetchall() == []


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["fit", "predict"])
def test_a_cancelled_query(session, shared, monkeypatch, how, begun):
    import psycopg

    mine, text = session(), database.Database._text
    calibrator = in_memory(shared, {})

    def sleeping(self, query, *others):
        return f"SELECT pg_sleep(60), a.* FROM ({text(self, query, *others)}) a"

    columns = database.Database.columns

    def then_asleep(self):
        found = columns(self)
        monkeypatch.setattr(database.Database, "_text", sleeping)
        return found

    monkeypatch.setattr(database.Database, "columns", then_asleep)
    if begun:
        mine.execute("SELECT 1")
    timer = threading.Timer(1, mine.cancel_safe)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        if how == "fit":
            fit_relation("shared", connection=mine, **COLUMNS)
        else:
            predict_relation("shared", calibrator, connection=mine, **PREDICTED)
    timer.join()
    assert status(mine) == ("INTRANS" if begun else "IDLE")


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_predictions_leave_the_session_as_it_came(session, shared, autocommit, begun):
    calibrator, mine = in_memory(shared, {}), session(autocommit=autocommit)
    if begun:
        mine.execute("BEGIN" if autocommit else "SELECT 1")
    cursor = predict_relation("shared", calibrator, connection=mine, **PREDICTED)
    assert status(mine) == ("INTRANS" if begun else "IDLE")
    rows = cursor.fetchall()
    assert mine.execute(LEFT).fetchall() == []
    f, _, s, p = map(np.array, zip(*rows, strict=True))
    np.testing.assert_allclose(p, calibrator.predict_proba(f, s), rtol=1e-12)


def test_a_session_that_may_not_write(session, shared):
    mine = session(options="-c default_transaction_read_only=on")
    found = fit_relation("shared", connection=mine, snapshot=True, **COLUMNS)
    np.testing.assert_allclose(found.fit.A, in_memory(shared, {}).fit.A, rtol=1e-9)
    rows = predict_relation("shared", found, connection=mine, **PREDICTED).fetchall()
    assert len(rows) == 3000


def test_scores_drawn_anew_by_every_pass(session, shared):
    mine = session()
    mine.execute("CREATE VIEW drawn AS SELECT f + 1e-3 * random() AS f, y, s FROM shared")
    mine.commit()
    with pytest.raises(ValueError, match=CHANGED):
        fit_relation("drawn", connection=mine, **COLUMNS)
    assert status(mine) == "IDLE"


IDS = {
    "uuid": [str(uuid.UUID(int=i)) for i in (7, 8, 9)],
    "bytea": [b"\x00a", b"b", b"\xff"],
    "char(5)": ["a", "b", "ab"],
    "kind": ["large", "medium", "small"],  # in the order of the alphabet, not of the type
    "name": ["a", "b", "c"],
    "numeric(9, 2)": [0.25, 1.5, 3],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_types_of_postgres(connection, kind):
    connection.execute("CREATE TYPE kind AS ENUM ('small', 'medium', 'large')")
    columns = plain(rows=300, number=3)
    codes = columns["s"]
    columns["s"] = np.array([IDS[kind][code] for code in codes], object)
    placed = put(connection, columns, TYPES | {"s": kind})
    found = fit_relation(**placed, **COLUMNS)
    assert sorted(found.keys.tolist()) == sorted(IDS[kind])
    ids = list(map(found.keys.tolist().index, IDS[kind]))
    expected = pj.fit_segments(columns["f"], columns["y"], codes)
    np.testing.assert_allclose(found.fit.A[ids], expected.fit.A, rtol=1e-9)
    rows = predict_relation(**placed, calibrator=found, **PREDICTED).fetchall()
    p = expected.predict_proba(columns["f"], codes)
    np.testing.assert_allclose([row[-1] for row in rows], p, rtol=1e-12)
    names = [column.name for column in connection.execute("SELECT * FROM t").description]
    assert names == ["f", "y", "s"]


def test_columns_with_percent_signs(connection):
    columns = plain(rows=300, number=3)
    put(connection, columns)
    connection.execute('ALTER TABLE t RENAME f TO "f%s"')
    placed = {"relation": "t", "connection": connection}
    found = fit_relation(**placed, **COLUMNS | {"score": "f%s"})
    np.testing.assert_allclose(found.fit.A, in_memory(columns, {}).fit.A, rtol=1e-9)
    cursor = predict_relation(**placed, calibrator=found, score="f%s", segment="s", name="p%")
    assert [column.name for column in cursor.description] == ["f%s", "y", "s", "p%"]


@pytest.mark.parametrize("how", ["engine", "connection"])
def test_sqlalchemy(server, session, shared, how):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://test@/postgres?host={server}")
    opened = engine if how == "engine" else engine.connect()
    found = fit_relation("shared", connection=opened, **COLUMNS)
    np.testing.assert_allclose(found.fit.A, in_memory(shared, {}).fit.A, rtol=1e-9)
    if how == "engine":
        assert engine.pool.checkedout() == 0
    rows = predict_relation("shared", found, connection=opened, **PREDICTED).fetchall()
    assert len(rows) == 3000
    if how == "connection":
        opened.close()
    engine.dispose()


def test_expressions_are_computed_once_for_each_row(session, shared):
    """PostgreSQL would insert the text of a part wherever a later part uses it."""
    mine, plans = session(), []
    text = database.Database._text

    def explained(self, query, *others):
        plans.append(text(self, query, *others))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database.Database, "_text", explained)
        fit_relation("shared", connection=mine, **COLUMNS)
    query = next(plan for plan in plans if "h_aa" in plan)
    name = query.split(" AS platt_jax_points")[0].split()[-1]
    columns = "p_k0, j, center, scale, gap_pos, gap_neg, A, B"
    points = f"WITH {name}({columns}) AS (SELECT 1::bigint, 1, 0.5, 1.0, 0.1, 0.1, 1.0, 1.0)"
    plan = mine.execute(f"EXPLAIN (VERBOSE) {points} SELECT * FROM ({query}) a").fetchall()
    assert sum(line.count("exp(") for (line,) in plan) <= 4  # of each problem, and in one sort
