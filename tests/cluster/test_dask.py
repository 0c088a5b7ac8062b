"""Rows in Dask, in two worker processes; one of them is killed."""

import os
import signal
import time

import in_engines
import pandas as pd
import pytest

pytestmark = pytest.mark.slow
pytest.importorskip("distributed", reason="pip install '.[dask]'")
dd = pytest.importorskip("dask.dataframe", reason="pip install '.[dask]'")


def _rows(frame):
    """The rows in five partitions, of which the first comes last."""
    rows = dd.from_pandas(frame, npartitions=5)
    return rows.map_partitions(_in_time, meta=rows._meta)


def _in_time(frame, partition_info):
    time.sleep(0.5 * (partition_info["number"] == 0))
    return frame


WAYS = in_engines.Ways(_rows, lambda x: x.compute())


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers) as client,
    ):
        yield client


def test_needs_a_client():  # comes first: the others share one
    rows = WAYS.rows(in_engines.made_frame(2))
    with pytest.raises(ValueError, match=r"rows: .* distributed.Client"):
        in_engines.cluster.fit_segments(rows, **in_engines.NAMES)


def test_same_bits_as_in_memory(client, tmp_path):
    in_engines.check_same_bits(WAYS, tmp_path / "fits")


def test_most_rows_in_one_segment(client):
    in_engines.check_skew(WAYS)


def test_other_curves(client):
    in_engines.check_curves(WAYS)


def test_triage(client):
    in_engines.check_triage(WAYS)


def test_errors(client, monkeypatch):
    in_engines.check_errors(WAYS, pytest.raises, monkeypatch)


def test_more_parts_than_threads(client):
    """They all meet, although only two threads are there."""
    frame = in_engines.made_frame(20)
    rows = WAYS.rows(frame)
    fitted = in_engines.cluster.fit_segments(rows, **in_engines.NAMES, partitions=7)
    assert fitted.collect().fit.A.tolist() == in_engines.in_memory(frame).fit.A.tolist()


def test_rows_keep_their_index_and_their_types(client):
    frame = in_engines.made_frame(20)
    frame["other"] = pd.array([1, None] * (len(frame) // 2), "Int64")
    frame.index = pd.Index(range(1, 3 * len(frame), 3), name="row")
    fitted = in_engines.cluster.fit_segments(WAYS.rows(frame), **in_engines.NAMES)
    rows = WAYS.rows(frame)
    predicted = fitted.predict(rows)
    found = predicted.compute()
    assert found.dtypes.tolist() == predicted.dtypes.tolist()
    pd.testing.assert_frame_equal(
        found.drop(columns="probability").sort_index(), rows.compute().sort_index()
    )


def test_partial_pooling_where_a_worker_is_killed(client, monkeypatch):
    pids = list(client.run(os.getpid).values())
    in_engines.check_partial(WAYS, lambda: os.kill(pids[0], signal.SIGKILL), monkeypatch)
