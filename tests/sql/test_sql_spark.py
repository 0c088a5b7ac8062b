"""Rows in Spark, on two local threads; skewed, and with a worker that is killed."""

import os
import signal
import sys

import numpy as np
import pyarrow as pa
import pytest
from data import rows_of
from rows_elsewhere import fit_relation, predict_relation

import platt_jax as pj

pytestmark = [
    pytest.mark.slow,
    # Spark forks to start Java at once, which is safe, but JAX warns of every fork.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    # As in test_export.py, of which these are the checks in Spark.
    pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing:RuntimeWarning"),
]
pyspark = pytest.importorskip("pyspark", reason="pip install '.[spark]', and Java 17")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2, 4]")  # two threads; a task may fail four times
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def columns():
    """Nine rows in ten are of one segment."""
    rng = np.random.default_rng(0)
    rows = 60_000
    s = np.where(rng.random(rows) < 0.9, 0, rng.integers(0, 300, rows))
    f, y, _ = rows_of(rng, s, A=-2, B=rng.normal(size=300))
    return {"f": f, "y": y, "s": s.astype(str), "w": rng.integers(0, 3, rows).astype(float)}


def test_columns_of_any_name(session):

    made = columns()
    names = {"f": "{score}", "y": "a{b", "s": "platt_jax_points of"}
    table = pa.table({name: made[short][:2000] for short, name in names.items()})
    score, label, segment = names.values()
    frame = session.createDataFrame(table)
    found = fit_relation(frame, score=score, label=label, segment=segment)
    expected = pj.fit_segments(*(made[short][:2000] for short in names))
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-8, atol=1e-8)


def test_answers_are_those_of_rows_in_memory(session, tmp_path):

    made = columns()
    expected = pj.fit_segments(made["f"], made["y"], made["s"], weights=made["w"])
    frame = session.createDataFrame(pa.table(made)).repartition(8)
    killed = tmp_path / "killed"

    def killed_once(batches):
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    for rows in (frame, frame.mapInPandas(killed_once, frame.schema)):
        found = fit_relation(rows, score="f", label="y", segment="s", weight="w")
        assert (found.keys == expected.keys).all()
        for name in ("status", "flags", "n_pos", "n_neg"):
            assert (getattr(found.fit, name) == getattr(expected.fit, name)).all(), name
        np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.fallback.A, expected.fallback.A, rtol=1e-9)
    assert killed.exists()

    odd = pa.table({"f": [0.3, np.nan, np.inf, None], "s": ["0", "1", "unseen", "0"]})
    with_p = predict_relation(
        session.createDataFrame(odd), expected, score="f", segment="s"
    ).toArrow()
    assert with_p["probability"].null_count == 1
    by_score = {str(row["f"]): row["probability"] for row in with_p.to_pylist()}
    assert by_score["0.3"] == pytest.approx(expected.predict_proba([0.3], ["0"])[0], rel=1e-12)
    assert np.isnan(by_score["nan"]) and by_score["inf"] == 1


def test_a_snapshot_of_scores_drawn_anew_by_every_pass(session):

    def drawn(batches):
        for batch in batches:
            batch["f"] += 1e-3 * np.random.default_rng().random(len(batch))
            yield batch

    table = pa.table({name: x[:2000] for name, x in columns().items()} | {"an id": ["a"] * 2000})
    frame = session.createDataFrame(table)
    frame = frame.mapInPandas(drawn, frame.schema)
    names = {"score": "f", "label": "y", "segment": "an id"}
    with pytest.raises(ValueError, match="rows changed"):
        fit_relation(frame, **names)
    assert fit_relation(frame, **names, snapshot=True).fit.converged.all()


@pytest.mark.parametrize("table", [None, "sigmoids"])
@pytest.mark.parametrize("kind", ["text", "integers", "dates", "truth", "floats", "columns"])
def test_an_exported_calibrator_predicts_what_it_does_here(session, kind, table):
    from exported import check_sql

    class InSpark:
        dialect = "spark"

        def __call__(self, statement):
            return [tuple(row) for row in session.sql(statement).collect()]

        def table(self, rows, names):
            made = dict(zip(names, zip(*rows, strict=True), strict=True))
            session.createDataFrame(pa.table(made)).createOrReplaceTempView("t")

    session.sql("DROP TABLE IF EXISTS sigmoids")
    check_sql(InSpark(), kind, table)


@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_levels(session, kind):
    from levelled import assert_predicted, levelled, rows_of

    from platt_jax import export

    fitted = levelled(kind, "mixed")
    rows, expected, spread = rows_of(fitted, "mixed")
    names = ["f", "land", "city"]
    table = pa.table(
        {"i": range(len(rows)), **dict(zip(names, zip(*rows, strict=True), strict=True))}
    )
    frame = session.createDataFrame(table)
    found = predict_relation(frame, fitted, score="f", segment=["land", "city"], name="p")
    predicted = [row["p"] for row in found.orderBy("i").toArrow().to_pylist()]
    assert_predicted(predicted, expected, spread, 1e-7, 1e-9)
    frame.createOrReplaceTempView("t")
    for number in ("", "_level_0", "_level_1"):
        session.sql(f"DROP TABLE IF EXISTS curves{number}")
    made = export.to_sql(fitted, "f", ["land", "city"], dialect="spark", table="curves")
    for statement in made.setup:
        session.sql(statement)
    found = session.sql(f"SELECT i, {made.expression} AS p FROM t {made.join}").toArrow()
    predicted = [row["p"] for row in sorted(found.to_pylist(), key=lambda row: row["i"])]
    assert_predicted(predicted, expected, spread, 5e-4, 2e-6)
