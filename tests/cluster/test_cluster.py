"""Parts in threads, which meet as parts in processes do; processes themselves are slow tests."""

import os
import pickle
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from data import rows_of

import platt_jax as pj
from platt_jax import cluster
from platt_jax.cluster import local
from platt_jax.cluster.engines import parts_of
from platt_jax.cluster.meeting import MeetingByServer, Server

pa = pytest.importorskip("pyarrow")

NAMES = {"score": "f", "label": "y", "segment": "s"}


@pytest.fixture
def threads(monkeypatch):
    in_threads(monkeypatch)


def in_threads(patch):
    patch.setattr(local, "ProcessPoolExecutor", lambda parts, _: ThreadPoolExecutor(parts))


def made(rng, rows=8_000, segments=60, share=0.0, dtype=np.float64):
    """Rows of segments, a share of them of segment 7."""
    s = np.where(rng.random(rows) < share, 7, rng.integers(0, segments, rows))
    f, y, _ = rows_of(rng, s, A=-1 - rng.random(segments), B=rng.normal(size=segments))
    return {"f": f.astype(dtype), "y": y, "s": s, "w": rng.integers(0, 3, rows).astype(dtype)}


def in_memory(columns, **options):
    more = {"weights": columns["w"]} if options.pop("weight", None) else {}
    return pj.fit_segments(columns["f"], columns["y"], columns["s"], **more, **options)


def assert_near(found, expected, errors):
    """Within so many standard errors, with the same ids, statuses and flags."""
    np.testing.assert_array_equal(found.keys, expected.keys)
    np.testing.assert_array_equal(found.fit.status, expected.fit.status)
    np.testing.assert_array_equal(found.fit.flags, expected.fit.flags)
    for i, name in enumerate("AB"):
        off = np.abs(getattr(found.fit, name) - getattr(expected.fit, name))
        assert (off <= errors * expected.fit.standard_errors[:, i]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "weight"), [(np.float32, "w"), (np.float64, None)])
def test_the_bits_of_memory(rng, threads, dtype, weight):
    columns = made(rng, dtype=dtype)
    found = cluster.fit_segments(pa.table(columns), **NAMES, weight=weight, partitions=3)
    expected = in_memory(columns, weight=weight)
    together = found.collect()
    for field in ("A", "B", "status", "flags", "covariance", "n_pos", "n_neg", "nll"):
        np.testing.assert_array_equal(getattr(together.fit, field), getattr(expected.fit, field))
    np.testing.assert_array_equal(together.keys, expected.keys)
    np.testing.assert_allclose(found.fallback.A, expected.fallback.A, rtol=1e-6)
    assert len(found) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "share"), [("none", 0.9), ("partial", 0.9), ("complete", 0)])
def test_answers_are_those_of_memory(rng, threads, pooling, share):
    columns = made(rng, share=share)
    found = cluster.fit_segments(pa.table(columns), **NAMES, pooling=pooling, partitions=3)
    expected = in_memory(columns, pooling=pooling)
    together = found.collect()
    assert_near(together, expected, 1e-9)
    p = found.predict(pa.table(columns))["probability"].to_numpy()
    np.testing.assert_allclose(p, expected.predict_proba(columns["f"], columns["s"]), rtol=1e-6)
    unseen = pa.table({"f": [0.3, -1.0], "s": [-1, 10_000]})
    np.testing.assert_allclose(
        found.predict(unseen, out="p")["p"].to_numpy(),
        expected.predict_proba([0.3, -1.0], [-1, 10_000]),
        rtol=1e-6,
    )
    table = found.table().sort_by("s")
    np.testing.assert_array_equal(table["A"].to_numpy(), together.fit.A)
    if pooling == "partial":
        np.testing.assert_allclose(found.population.mean, expected.population.mean, rtol=1e-6)
        np.testing.assert_array_equal(table["shrinkage"].to_numpy(), together.shrinkage)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "pooling"),
    [
        *(("isotonic", "none"), ("venn_abers", "none"), ("beta", "none"), ("bins", "complete")),
        ("spline", "none"),
        *(("shift", "none"), ("temperature", "partial")),
    ],
)
def test_other_curves_are_those_of_memory(rng, threads, curve, pooling):
    columns = made(rng, rows=3_000, segments=12, share=0.5)
    chosen = {"curve": curve, "pooling": pooling}
    if pooling == "partial":
        with pytest.raises(ValueError, match="pooling"):
            cluster.fit_segments(pa.table(columns), **NAMES, **chosen, partitions=3)
        chosen["pooling"] = "none"
    found = cluster.fit_segments(pa.table(columns), **NAMES, **chosen, partitions=3)
    expected = in_memory(columns, **chosen)
    p = found.predict(pa.table(columns))["probability"].to_numpy()
    mine = columns["f"], columns["s"]
    np.testing.assert_allclose(p, expected.predict_proba(*mine), rtol=1e-9)
    unseen = pa.table({"f": [0.3, -1.0], "s": [-1, 10_000]})
    p = found.predict(unseen, out="p")["p"].to_numpy()
    np.testing.assert_allclose(p, expected.predict_proba([0.3, -1.0], [-1, 10_000]), rtol=1e-6)
    together = found.collect()
    np.testing.assert_allclose(
        together.predict_proba(*mine), expected.predict_proba(*mine), rtol=1e-9
    )
    table, own = found.table().sort_by("s"), expected.table()
    assert table["status"].to_pylist() == own["status"].tolist()
    assert len(found) == sum(found.summary()["statuses"].values()) == 12
    rarer = found.shift_prior(0.5, 0.1).predict(pa.table(columns))["probability"].to_numpy()
    exact = expected.shift_prior(0.5, 0.1).predict_proba(*mine)
    np.testing.assert_allclose(rarer, exact, rtol=1e-9)
    tested = found.triage(pa.table(columns), label="y", against="predictions").sort_by("s")
    exact = pj.triage(expected, columns["f"], columns["y"], columns["s"], against="predictions")
    p_values = exact["p_value"][np.argsort(exact["segment"])]
    np.testing.assert_allclose(tested["p_value"].to_numpy(), p_values, rtol=1e-6)
    if expected.curves is not None:
        with pytest.raises(
            ValueError, match="calibrator: expected sigmoids, got a calibrator with"
        ):
            found.triage(pa.table(columns), label="y")


def test_curves_that_parts_cannot_fit_are_refused(rng):
    rows = pa.table(made(rng, rows=20))
    for given, message in (
        ({"curve": "isotonic", "offset": "w"}, "offset: expected None beside curve=Isotonic"),
        ({"curve": "beta", "pooling": "partial"}, 'pooling: expected "none" or "complete" beside'),
        ({"curve": "bends"}, "curve: expected one of 'sigmoid', 'shift'"),
        ({"curve": "shift", "prior": pj.GaussianPrior(np.zeros(2), np.eye(2))}, "prior: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            cluster.fit_segments(rows, **NAMES, **given, partitions=1)


@pytest.mark.slow
def test_ids_of_several_columns_text_and_parts_without_rows(rng, threads):
    columns = made(rng, rows=400, segments=3)
    columns["t"] = np.where(columns["s"] == 0, "a", "b")
    by = {**NAMES, "segment": ["s", "t"]}
    found = cluster.fit_segments(pa.table(columns), **by, pooling="partial", partitions=4)
    pairs = pa.table(columns).select(["s", "t"])
    expected = pj.fit_segments(columns["f"], columns["y"], pairs, pooling="partial")
    assert_near(found.collect(), expected, 1e-9)
    p = found.predict(pa.table(columns))["probability"].to_numpy()
    np.testing.assert_allclose(p, expected.predict_proba(columns["f"], pairs), rtol=1e-9)
    tested = found.triage(pa.table(columns), label="y", against="predictions")
    assert tested.column_names[:2] == ["s", "t"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("against", "share", "pooling"),
    [("fit", 0, "none"), ("predictions", 0.9, "none"), ("fit", 0.3, "partial")],
)
def test_triage_is_that_of_memory(rng, threads, against, share, pooling):
    columns = made(rng, share=share)
    found = cluster.fit_segments(pa.table(columns), **NAMES, pooling=pooling, partitions=3)
    expected = in_memory(columns, pooling=pooling)
    later = made(rng, share=share)
    later["y"] = np.where(later["s"] == 11, ~(later["y"] > 0), later["y"] > 0)
    table = found.triage(pa.table(later), label="y", against=against).sort_by("s").to_pydict()
    tested = pj.triage(expected, later["f"], later["y"], later["s"], against=against)
    order = np.argsort(tested["segment"])
    assert table["flagged"][11] or share  # with few rows it may not be found
    for name in tested:
        values = table["s" if name == "segment" else name]
        np.testing.assert_allclose(values, tested[name][order], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_a_shift_is_that_of_memory(rng, threads, pooling):
    columns = made(rng, share=0.5)
    found = cluster.fit_segments(pa.table(columns), **NAMES, pooling=pooling, partitions=3)
    there = found.shift_prior(0.5, 0.1).shift_prior(0.1, 0.02)
    expected = in_memory(columns, pooling=pooling).shift_prior(0.5, 0.02)
    assert_near(there.collect(), expected, 1e-9)
    rows = pa.table({"f": np.append(columns["f"], 0.3), "s": np.append(columns["s"], -1)})
    p = there.predict(rows)["probability"].to_numpy()
    given = rows["f"].to_numpy(), rows["s"].to_numpy()
    np.testing.assert_allclose(p, expected.predict_proba(*given), rtol=1e-6)
    table = there.table().sort_by("s")
    np.testing.assert_array_equal(table["B"].to_numpy(), there.collect().fit.B)
    assert there.fallback == there.collect().fallback
    # The engine keeps what was fitted.
    assert_near(found.collect(), in_memory(columns, pooling=pooling), 1e-9)
    with pytest.raises(ValueError, match="to_rate: expected numbers between 0 and 1, got 2"):
        there.shift_prior(0.5, 2)
    with pytest.raises(ValueError, match="from_rate, to_rate: expected shapes"):
        there.shift_prior(0.5, [0.1, 0.2])


def test_a_summary(rng, threads):
    columns = made(rng)
    columns["f"][:5] = np.nan
    found = cluster.fit_segments(
        pa.table(columns), **NAMES, options=pj.Options(non_finite="omit"), partitions=2
    )
    expected = in_memory(columns, options=pj.Options(non_finite="omit"))
    summary = found.summary()
    assert summary["segments"] == len(expected)
    assert summary["statuses"] == {"CONVERGED": len(expected)}
    assert summary["n_pos"] + summary["n_neg"] == len(columns["f"]) - 5
    assert repr(found).startswith("ClusterCalibrator of 60 segments: 60 CONVERGED")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"score": "g"}, "rows: expected a column 'g'"),
        ({"score": "s"}, "score, column 's': expected float32 or float64, got int64"),
        ({"label": "s"}, "labels: expected"),
        ({"pooling": "nested"}, "pooling: expected one of"),
        ({"partitions": 0}, "partitions: expected a positive int"),
        ({"prior": pj.GaussianPrior(np.zeros((60, 2)), np.eye(2))}, "prior: expected one for all"),
    ],
)
def test_bad_arguments(rng, threads, more, message):
    arguments = {**NAMES, "partitions": 2, **more}
    with pytest.raises(ValueError, match=message):
        cluster.fit_segments(pa.table(made(rng, rows=200)), **arguments)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_in_memory_are_read_by_every_method(rng, threads, library):
    """Text of polars comes as a type whose rows pyarrow cannot take."""
    frame = pytest.importorskip(library).DataFrame
    columns = made(rng, rows=2_000, segments=9)
    columns["s"] = np.array([f"shop {x}" for x in columns["s"]])
    found = cluster.fit_segments(frame(columns), **NAMES, partitions=2)
    expected = in_memory(columns)
    predicted = found.predict(frame(columns))["probability"].to_numpy()
    np.testing.assert_allclose(predicted, expected.predict_proba(columns["f"], columns["s"]))
    tested = found.triage(frame(columns), label="y")
    assert sorted(tested["s"].to_pylist()) == expected.keys.tolist()


def test_no_rows_and_no_table(rng):
    with pytest.raises(ValueError, match="rows: expected rows to fit, got none"):
        cluster.fit_segments(pa.table(made(rng)).slice(0, 0), **NAMES)
    with pytest.raises(
        ValueError, match="rows: expected a DataFrame of Spark or Dask, a Dataset of Ray or a table"
    ):
        cluster.fit_segments([1.0], **NAMES)


# --- where parts meet -----------------------------------------------------------------------------


def test_a_part_that_runs_again_gets_the_same_answers():
    with closing(Server(2, "127.0.0.1")) as server, ThreadPoolExecutor() as pool:

        def part(number, rounds):
            with MeetingByServer(server.invitation, number) as met:
                return [met.gather_bytes(b"%d of %d" % (i, number)) for i in range(rounds)]

        first = pool.submit(part, 0, 3)
        pool.submit(part, 1, 2).result()  # ends before the last round
        again = pool.submit(part, 1, 3).result()
        assert again == first.result()
        assert again[2] == [b"2 of 0", b"2 of 1"]


def test_who_does_not_know_the_key_is_not_heard():
    from multiprocessing import AuthenticationError

    with closing(Server(1, "127.0.0.1")) as server:
        with pytest.raises(AuthenticationError):
            MeetingByServer(server.invitation._replace(key=b"other"), 0)
        with MeetingByServer(server.invitation, 0) as met:
            assert met.gather_bytes(b"x") == [b"x"]


def test_an_end_of_the_meeting_ends_those_who_wait():
    with (
        closing(Server(2, "127.0.0.1")) as server,
        ThreadPoolExecutor() as pool,
        MeetingByServer(server.invitation, 0) as met,
    ):
        waiting = pool.submit(met.gather_bytes, b"")
        server.close()
        with pytest.raises(RuntimeError, match="another part has ended"):
            waiting.result(timeout=20)


def test_a_server_waits_until_all_have_left():
    with closing(Server(2, "127.0.0.1")) as server, ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.wait)
        with MeetingByServer(server.invitation, 0) as met:
            with MeetingByServer(server.invitation, 1) as other:
                pool.submit(other.gather_bytes, b"")
                assert met.gather_bytes(b"") == [b"", b""]
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
        waiting.result(timeout=20)


def test_parts_of_ids_are_even_and_do_not_depend_on_the_dtype(rng):
    ids = np.arange(10_000)
    part = parts_of(ids, 7)
    counts = np.bincount(part)
    assert len(counts) == 7
    assert counts.min() > 1_200
    np.testing.assert_array_equal(parts_of(ids.astype(np.int32), 7), part)
    some = rng.permutation(ids)[:50]
    np.testing.assert_array_equal(parts_of(some, 7), part[some])


def test_many_rows_are_predicted_in_pieces(monkeypatch, rng):
    from platt_jax.cluster import tasks

    rows = pa.table(made(rng, share=0.5))
    found = cluster.fit_segments(rows, **NAMES, partitions=1)
    whole = found.predict(rows)
    monkeypatch.setattr(tasks, "_PREDICTED_AT_ONCE", 999)
    assert found.predict(rows) == whole


def test_pieces_of_results_make_the_whole_in_any_order(monkeypatch, rng):
    from platt_jax.cluster import spark
    from platt_jax.cluster.tasks import FittedPart

    monkeypatch.setattr(spark, "_PIECE", 10)
    for length, number in ((0, 1), (10, 1), (95, 10)):
        part = FittedPart(rng.bytes(length), b"summary")
        pieces = pa.Table.from_batches(spark._pieces(part, 3))
        assert pieces.num_rows == number
        shuffled = pieces.take(pa.array(rng.permutation(number)))
        assert spark._whole(shuffled, "calibrator") == part.calibrator
        assert pieces["summary"].drop_null().to_pylist() == [b"summary"]


# --- processes ------------------------------------------------------------------------------------


class _Killed:
    """A process kills itself once, when it unpickles the scores' name."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return _killed_once, (str(self.marker),)


def _killed_once(marker):
    if not os.path.exists(marker):
        with open(marker, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return None


@pytest.mark.slow
def test_a_process_that_is_killed_changes_nothing(rng, tmp_path, monkeypatch):
    columns = made(rng)
    with monkeypatch.context() as patch:
        in_threads(patch)
        expected = cluster.fit_segments(pa.table(columns), **NAMES, pooling="partial", partitions=2)
    marker = tmp_path / "killed"
    found = cluster.fit_segments(
        pa.table(columns), **NAMES, pooling="partial", pos_label=_Killed(marker), partitions=2
    )
    assert marker.exists()
    for field in ("A", "B", "covariance"):
        np.testing.assert_array_equal(
            getattr(found.collect().fit, field), getattr(expected.collect().fit, field)
        )
    assert pickle.loads(pickle.dumps(found.collect())) == found.collect()


def test_curves_that_depend_on_the_number_of_rows_are_told(rng, threads):
    """By the driver, once, of all parts."""
    worth = rng.normal(size=120)
    s = np.repeat(np.arange(120), np.maximum(3, 40 * np.exp(worth)).astype(int))
    f = rng.normal(size=len(s))
    y = rng.random(len(s)) < 1 / (1 + np.exp(-2 * f - 0.8 * worth[s]))
    with pytest.warns(RuntimeWarning, match="depend on how many rows") as said:
        found = cluster.fit_segments(
            pa.table({"f": f, "y": y.astype(int), "s": s}), **NAMES, pooling="partial", partitions=2
        )
    assert len(said) == 1
    assert found.collect().events == ("sizes",)
