"""Fits in Spark's tasks, with a local cluster of two."""

import os
import signal
import sys

import numpy as np
import pytest
from test_cluster import NAMES, assert_near, in_memory, made

import platt_jax as pj

pytestmark = [
    pytest.mark.slow,
    # Spark forks to start Java at once, which is safe, but JAX warns of every fork.
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
    # Spark's own: of pandas, of its sockets, and of packages that it tries to import.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="pip install '.[spark]', and Java 17")


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
    builder = SparkSession.builder.master("local[2, 4]")  # two tasks; each may fail four times
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def test_answers_are_those_of_memory(rng, session, tmp_path):
    """Pooled, where most rows are of one segment; without either in `test_triage`."""
    from platt_jax import cluster

    columns = made(rng, share=0.9)
    columns["s"] = columns["s"].astype(str)
    rows = session.createDataFrame(pa.table(columns)).repartition(5)
    found = cluster.fit_segments(rows, **NAMES, weight="w", pooling="partial")
    expected = in_memory(columns, weight="w", pooling="partial")
    assert_near(found.collect(), expected, 1e-9)
    predicted = found.predict(rows).toPandas()
    np.testing.assert_allclose(
        predicted["probability"],
        expected.predict_proba(predicted["f"], predicted["s"]),
        rtol=1e-9,
    )
    table = found.table().orderBy("s").limit(3).toPandas()
    np.testing.assert_allclose(table["A"], found.collect().fit.A[:3])
    found.write_parquet(str(tmp_path / "fits"))
    assert session.read.parquet(str(tmp_path / "fits")).count() == len(expected)


def test_triage(rng, session):
    from platt_jax import cluster

    columns = made(rng)
    rows = session.createDataFrame(pa.table(columns))
    found = cluster.fit_segments(rows, **NAMES)
    later = made(rng)
    later["y"] = np.where(later["s"] == 11, ~(later["y"] > 0), later["y"] > 0)
    tested = found.triage(session.createDataFrame(pa.table(later)), label="y").toPandas()
    expected = pj.triage(in_memory(columns), later["f"], later["y"], later["s"]).to_pandas()
    both = tested.merge(expected, left_on="s", right_on="segment")
    assert len(both) == len(expected)
    np.testing.assert_allclose(both["q_value_x"], both["q_value_y"], rtol=1e-6)
    assert both.set_index("s").loc[11, "flagged_x"]


def test_a_task_that_is_killed_changes_nothing(rng, session, tmp_path):
    from platt_jax import cluster

    def killed_once(marker):
        if not os.path.exists(marker):
            with open(marker, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    class Killed:  # here, so that it travels to the tasks as code
        """The process of a task kills itself once, when it reads this argument."""

        def __reduce__(self):
            return killed_once, (str(marker),)

    rows = session.createDataFrame(pa.table(made(rng)))
    marker = tmp_path / "killed"
    first = cluster.fit_segments(rows, **NAMES, pooling="partial").collect()
    again = cluster.fit_segments(rows, **NAMES, pooling="partial", pos_label=Killed()).collect()
    assert marker.exists()
    np.testing.assert_array_equal(again.fit.A, first.fit.A)
    np.testing.assert_array_equal(again.fit.B, first.fit.B)
