"""Fits by segment of arrays on a GPU: those of the host's arrays, without a copy of rows to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import Fetched, accelerated, assert_rows_stay, assert_same_fit, outcome

import platt_jax as pj
from platt_jax.execution import segment_rows, sent_rows
from platt_jax.passes import shapes

# Compiles many programs, for chunks as users have them: fewer rows come back than are given.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chunks_of_all_sizes")]

FEW = [40, 33, 38, 7, 40, 12, 25, 40, 39, 40]  # rows of segments that lie on one shape of tiles


@pytest.fixture
def dtype():
    """That of most tests; 64-bit types take programs of their own, and the same way."""
    return np.float32


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch, dtype):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, dtype):
        yield


@pytest.fixture
def rows(rng, dtype):
    """Scores, labels, segments of 1 to 700 rows, and weights."""
    return made(rng, dtype, [600, 1, 300, 40, 2, 700, 270, 5, 5, 5])


@pytest.fixture
def many_rows(rng, dtype):
    """The same of segments of up to 12,000 rows, which compile one program more."""
    return made(rng, dtype, [9_000, 1, 300, 40, 2, 12_000, 270, 5, 5, 5])


def made(rng, dtype, sizes):
    segments = rng.permutation(np.repeat(rng.permutation(10) * 7 - 20, sizes))
    scores = rng.normal(size=len(segments)).astype(dtype)
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-scores * (1 + segments / 50)))
    return (
        scores,
        labels,
        segments.astype(np.int32),
        rng.integers(0, 3, len(segments)).astype(dtype),
    )


def fit(scores, labels=None, segments=None, weights=None, **more):
    return pj.fit_segments(scores, labels, segments, weights=weights, **more)


def assert_same(found, expected, dtype):
    """The same keys and fits; those found are JAX arrays."""
    np.testing.assert_array_equal(found.keys, expected.keys)
    assert found.keys.dtype == expected.keys.dtype
    assert_same_fit(found.fit, expected.fit, dtype)
    of_all = [*jax.tree.leaves(found.fallback), found.fallback_covariance]
    assert all(isinstance(x, jax.Array) for x in of_all)
    errors = np.sqrt(np.diag(expected.fallback_covariance))
    for x, y, error in zip(of_all, jax.tree.leaves(expected.fallback), errors, strict=False):
        assert abs(jax.device_get(x) - y) < error * (1e-9 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize(
    ("dtype", "weighted", "grouped"), [(np.float64, True, False), (np.float32, False, True)]
)
def test_as_on_the_host(rows, dtype, weighted, grouped):
    if grouped:
        order = np.argsort(rows[2], kind="stable")
        rows = [x[order] for x in rows]
    rows = rows if weighted else rows[:3]
    assert_same(fit(*map(jnp.asarray, rows)), fit(*rows), dtype)


def test_segments_of_many_rows(many_rows, dtype):
    assert_same(fit(*map(jnp.asarray, many_rows)), fit(*many_rows), dtype)


def test_no_row_is_copied(monkeypatch, many_rows):
    def job(*rows):
        return fit(pj.SegmentRows(*rows)).fit.A

    assert_rows_stay(monkeypatch, job, list(map(jnp.asarray, many_rows)), 5_000)


def test_results_are_fetched_together(monkeypatch, many_rows):
    """Three fetches group the rows, one checks them, and each chunk takes one, as do all rows."""
    rows, fetched = list(map(jnp.asarray, many_rows[:3])), Fetched()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_get", fetched)
        found = fit(*rows)
    assert len(found.keys) == 10
    *fetched, _, _ = fetched  # the last two are NumPy's already
    arrays = sum(len(jax.tree.leaves(x)) for x in fetched)
    assert len(fetched) == 4 + 3 + 1 and arrays == 5 + 2 * (3 + 1)


@pytest.mark.parametrize(
    ("dtype", "more"),
    [(np.float32, "nothing"), (np.float64, "bad rows")],
)
def test_the_curve_of_all_rows(rng, dtype, more):
    """It is one program, which reads the rows in parts; without bad rows, whatever they are."""
    scores, labels, segments, _ = made(rng, dtype, 10 * [7_000])
    given = {}
    if more != "nothing":
        given["weights"] = rng.integers(0, 3, len(scores)).astype(dtype)
        given["offset"] = rng.normal(size=len(scores)).astype(dtype)
        scores[given["weights"] == 0] = 1e6
    if more == "bad rows":
        scores[:50], given["weights"][50:70] = np.nan, np.inf
        given["offset"][70:90], labels = np.nan, labels.astype(dtype)
        labels[90:99] = np.nan
    there = {name: jnp.asarray(x) for name, x in given.items()}
    _, found = outcome(fit, *map(jnp.asarray, (scores, labels, segments)), **there)
    wide = {name: x.astype(np.float64) for name, x in given.items()}
    _, expected = outcome(fit, scores.astype(np.float64), labels, segments, **wide)
    errors = np.sqrt(np.diag(expected.fallback_covariance))
    expected_AB = np.array(jax.tree.leaves(expected.fallback))
    off = np.array(jax.device_get(jax.tree.leaves(found.fallback)), np.float64) - expected_AB
    rounding = 2 * np.finfo(dtype).eps * np.abs(expected_AB)
    assert np.all(np.abs(off) < rounding + errors * (1e-9 if dtype == np.float64 else 1e-5))
    covariance = jax.device_get(found.fallback_covariance)
    np.testing.assert_allclose(covariance, expected.fallback_covariance, rtol=1e-3)


@pytest.mark.parametrize(("pooling", "dtype"), [("complete", np.float32), ("partial", np.float64)])
def test_pooling(monkeypatch, rows, dtype, pooling):
    found = fit(*map(jnp.asarray, rows[:3]), pooling=pooling)
    expected = fit(*rows[:3], pooling=pooling)
    assert_same(found, expected, dtype)
    assert found.pooling == pooling
    if pooling == "partial":
        rtol = 1e-5 if dtype == np.float64 else 1e-2
        for name in ("mean", "covariance"):
            x, y = (getattr(made.population, name) for made in (found, expected))
            np.testing.assert_allclose(x, y, rtol=rtol)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.uint32])
def test_codes_of_any_kind(rows, dtype, kind):
    codes = rows[2].astype(kind)
    found = fit(*map(jnp.asarray, (*rows[:2], codes)))
    expected = fit(*rows[:2], jax.device_get(jnp.asarray(codes)))
    assert_same(found, expected, dtype)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_largest_id_is_no_padding(rows, dtype, grouped):
    scores, labels, segments, _ = rows
    segments = np.where(segments == segments.max(), np.iinfo(np.int32).max, segments)
    order = np.argsort(segments, kind="stable") if grouped else slice(None)
    rows = scores[order], labels[order], segments[order]
    assert_same(fit(*map(jnp.asarray, rows)), fit(*rows), dtype)


@pytest.mark.parametrize("names", [list("abcdefghij"), [(x, -x) for x in range(10)]])
def test_ids_on_the_host(rows, dtype, names):
    segments = [names[i] for i in (rows[2] + 20) // 7]
    found = fit(*map(jnp.asarray, rows[:2]), segments)
    assert_same(found, fit(*rows[:2], segments), dtype)


def test_prior_and_start(rows, dtype):
    prior = pj.GaussianPrior(np.zeros((10, 2), dtype), np.tile(np.eye(2, dtype=dtype), (10, 1, 1)))
    start = np.full(10, -1.0, dtype), np.arange(10.0).astype(dtype)
    expected = fit(*rows[:3], prior=prior, start=start)
    there = jax.tree.map(jnp.asarray, (prior, start))
    found = fit(*map(jnp.asarray, rows[:3]), prior=there[0], start=there[1])
    assert_same(found, expected, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_non_finite_rows(rows, dtype):
    scores, labels, segments, _ = rows
    scores[np.flatnonzero(segments == -6)[:2]] = np.nan, np.inf
    expected = outcome(fit, scores, labels, segments)
    found = outcome(fit, *map(jnp.asarray, (scores, labels, segments)))
    assert found[0] == expected[0] and len(found[0]) == 1
    assert_same(found[1], expected[1], dtype)


def test_oversized_segments(rng, dtype):
    segments = np.arange(1_200_000, dtype=np.int32) % 2 * (np.arange(1_200_000) < 1_150_000)
    scores = rng.normal(size=len(segments)).astype(dtype)
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-scores))
    found = fit(*map(jnp.asarray, (scores, labels, segments)))
    assert_same(found, fit(scores, labels, segments), dtype)


@pytest.mark.parametrize("dtype", [np.float64])
def test_results_are_used_as_the_hosts(rows, tmp_path, dtype):
    found, expected = fit(*map(jnp.asarray, rows[:3])), fit(*rows[:3])
    assert repr(found) == repr(expected)
    assert found.pooling == "none" and len(found.only(found.fit.n_pos > 2)) > 2
    new = rows[0][:100], rows[2][:100]
    rtol = 1e-9 if dtype == np.float64 else 1e-4
    proba = expected.predict_proba(*new)
    np.testing.assert_allclose(found.predict_proba(*new), proba, rtol=rtol)
    there = found.predict_proba(*map(jnp.asarray, new))
    np.testing.assert_allclose(jax.device_get(there), proba, rtol=rtol)
    for x, y in zip(found.band(*new), expected.band(*new), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol)
    pj.save(tmp_path / "fits.npz", found)
    loaded = pj.load(tmp_path / "fits.npz")
    assert loaded.fit == jax.device_get(found.fit)
    np.testing.assert_array_equal(found[-6].A, loaded[-6].A)
    np.testing.assert_array_equal(found.table()["A"], loaded.table()["A"])


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_updates(monkeypatch, rng, dtype, pooling):
    rows = made(rng, dtype, FEW)
    scores, labels, segments, _ = rows
    before = fit(scores, labels, segments // 14 * 14, pooling=pooling)
    there = list(map(jnp.asarray, (scores, labels, segments)))
    found = pj.update(before, *there, night=1)
    expected = pj.update(before, scores, labels, segments, night=1)
    assert_same(found, expected, dtype)
    assert found.nights == ("1",)
    if pooling == "none":
        assert_same(pj.update(found, *there), pj.update(expected, *rows[:3]), dtype)

        def job(*arrays):
            return pj.update(before, *arrays).fit.A

        assert_rows_stay(monkeypatch, job, there, 5_000)


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_rates(monkeypatch, rng, dtype, pooling):
    scores, labels, segments, weights = made(rng, dtype, FEW)
    before = fit(scores, labels, np.where(segments > 30, 1, segments), pooling=pooling)
    later = scores + np.float32(0.5)
    later[np.flatnonzero(segments == -6)[3]] = np.nan
    later[np.flatnonzero(segments == 8)[:2]] = np.inf, -np.inf
    rate = 0.4 if pooling == "partial" else None
    found = pj.inference.estimate_rates(
        before, *map(jnp.asarray, (later, segments)), from_rate=rate
    )
    expected = pj.inference.estimate_rates(before, later, segments, from_rate=rate)
    assert np.isfinite(expected["expected"]).sum() == 9
    assert found.keys() == expected.keys() and len(set(expected["status"])) == 2
    for name, column in expected.items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(found[name], column, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(found[name], column)
    held = pj.SegmentRows(*map(jnp.asarray, (later, labels, segments, weights)))
    with pytest.raises(ValueError, match="without weights"):
        pj.inference.estimate_rates(before, held)

    def job(*arrays):
        return pj.inference.estimate_rates(before, *arrays, from_rate=rate)["rate"]

    assert_rows_stay(monkeypatch, job, list(map(jnp.asarray, (later, segments))), 5_000)


@pytest.mark.parametrize(("night_sd", "pooling"), [(0, "none"), (0.3, "none"), (0, "partial")])
def test_monitors(monkeypatch, rng, dtype, night_sd, pooling):
    scores, labels, segments, _ = made(rng, dtype, FEW)
    before = fit(scores, labels, np.where(segments > 30, 1, segments), pooling=pooling)
    later = scores + np.float32(0.5)
    later[np.flatnonzero(segments == -6)[3]] = np.nan
    against = "fit" if night_sd else "predictions"
    monitor = pj.Monitor.start(before, against=against, night_sd=night_sd)
    rows = later, labels, segments
    told, expected = outcome(monitor.update, *rows, reported=0.9 if night_sd else None)
    there = list(map(jnp.asarray, rows))
    found = outcome(monitor.update, *there, reported=0.9 if night_sd else None)
    assert found[0] == told and len(told) >= 1
    for name, column in expected.table().items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(found[1].table()[name], column, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(found[1].table()[name], column)
    if night_sd == 0:

        def job(*arrays):
            return monitor.update(*arrays).table()["log_e_value"]

        finite = list(map(jnp.asarray, (scores, labels, segments)))
        # Each of the 21 sums has a number for every lane of a chunk.
        assert_rows_stay(monkeypatch, job, finite, 50_000)


def test_bootstraps(monkeypatch, rng, dtype):
    rows = made(rng, dtype, FEW)
    there = list(map(jnp.asarray, rows))
    beside = dict(segments=rows[2], weights=rows[3], replicates=5)
    expected = pj.inference.bootstrap(*rows[:2], **beside)
    for found in (
        pj.inference.bootstrap(*there[:2], **beside | dict(segments=there[2], weights=there[3])),
        pj.inference.bootstrap(pj.SegmentRows(*there), replicates=5),
    ):
        np.testing.assert_array_equal(found.A, expected.A)
        np.testing.assert_array_equal(found.status, expected.status)
        np.testing.assert_allclose(found.influence.cubes, expected.influence.cubes, rtol=1e-9)
        assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(found.fit))
    batch = [x[: 7 * 40].reshape(7, 40) for x in rows[:2]]
    found = pj.inference.bootstrap(*map(jnp.asarray, batch), replicates=5)
    expected = pj.inference.bootstrap(*batch, replicates=5)
    np.testing.assert_array_equal(found.A, expected.A)
    np.testing.assert_allclose(found.influence.squares, expected.influence.squares, rtol=1e-9)

    def job(*arrays):
        return pj.inference.bootstrap(
            *arrays[:2], segments=arrays[2], weights=arrays[3], replicates=5
        ).A

    # Each replicate's four numbers have a place in every lane of a chunk.
    assert_rows_stay(monkeypatch, job, there, 4_096)


def test_bad_arguments(rows):
    scores, labels, segments, weights = map(jnp.asarray, rows)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("problems",))
    for arguments, more, message in (
        ((scores[None], labels, segments), {}, r"scores: expected a flat array \(N,\)"),
        ((scores, labels, segments[1:]), {}, "segments: expected one id per score"),
        ((scores, labels, [1, 2]), {}, "segments: expected one id per score"),
        ((scores, labels, scores), {}, r"segments: expected integers \(N,\) for ids on a device"),
        ((scores, labels, segments[:, None]), {}, r"segments: expected integers \(N,\)"),
        ((scores, segments, segments), {}, "labels: expected bool"),
        ((scores, None, segments), {}, "labels: expected one per row"),
        ((scores, labels, None), {}, "segments: expected one per row"),
        ((scores, labels, segments, -weights), {}, "weights: expected >= 0"),
        ((scores, labels, segments), {"mesh": mesh}, "mesh: expected None for scores on a device"),
        ((scores, labels, segments), {"pooling": "some"}, "pooling: expected one of"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(*arguments, **more)


def test_rows_are_held_there(rows, dtype):
    held, expected = pj.SegmentRows(*map(jnp.asarray, rows)), pj.SegmentRows(*rows)
    assert isinstance(held, pj.SegmentRows) and len(held) == len(expected)
    assert repr(held).startswith(repr(expected)) and held.device == jax.devices()[0]
    assert_same(pj.fit_segments(held), pj.fit_segments(expected), dtype)
    keys, groups, columns = segment_rows.laid_out(held)
    of_host = segment_rows.laid_out(expected)
    np.testing.assert_array_equal(keys, of_host.keys)
    np.testing.assert_array_equal(groups.sizes, of_host.groups.sizes)
    for x, y in zip(columns[:3], of_host.columns[:3], strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(held.sampled_scores(100)) >= 100

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("problems",))
    with pytest.raises(ValueError, match="mesh: expected None for scores on a device"):
        pj.fit_segments(held, mesh=mesh)
    with pytest.raises(ValueError, match="scores: expected arrays in memory beside curve"):
        pj.fit_segments(held, curve="isotonic")


@pytest.mark.parametrize("weighted", [False, True])
def test_numpy_arrays_are_sent(monkeypatch, rows, dtype, weighted):
    rows = rows if weighted else rows[:3]
    expected = fit(*rows)
    counts_sent(monkeypatch)
    monkeypatch.setattr(sent_rows, "_PIECE", 700)
    found = fit(*rows)
    assert len(SENT) == 1
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(found.fit))
    np.testing.assert_array_equal(found.keys, expected.keys)
    assert_same_fit(jax.tree.map(jnp.asarray, found.fit), expected.fit, dtype)


def test_what_is_not_sent(monkeypatch, rows):
    scores, labels, segments, weights = rows
    counts_sent(monkeypatch)
    for arguments in (
        (scores.tolist(), labels, segments),
        (scores, labels, segments.astype(str)),
        (scores, labels, np.ma.masked_equal(segments, 3)),
        (scores, labels, segments.astype(">i4")),
        (scores.astype(np.float16), labels, segments),
        (scores[:5], labels[:5], segments[:5]),
    ):
        fit(*arguments)
    for arguments, message in (
        ((scores, labels + 1, segments), "labels: expected .* for class ids"),
        ((scores, labels, segments[1:]), "segments: expected one id per score"),
        ((scores, labels, segments, -weights - 1), "weights: expected >= 0, got"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(*arguments)
    assert not SENT


SENT = []


def counts_sent(monkeypatch):
    """NumPy arrays of 10 rows or more are sent; `SENT` has the rows of each call."""
    SENT.clear()
    kind = sent_rows.DeviceSegmentRows

    def counted(*arguments, **named):
        made = kind(*arguments, **named)
        SENT.append(made)
        return made

    monkeypatch.setattr(sent_rows, "_GPUS", ("cpu",))
    monkeypatch.setattr(sent_rows, "_WORTH_SENDING", 10)
    monkeypatch.setattr(sent_rows, "DeviceSegmentRows", counted)


@pytest.mark.parametrize("number", [1, 1023, 1024, 1025, 99_999, 10**6 + 1, 10**8 - 5])
def test_lengths_are_few(number):
    found = shapes.few_lengths(number, 1 << 10)
    assert number <= found <= max(number * 17 // 16 + 1, number + 1023)
    lengths = {shapes.few_lengths(x, 1 << 10) for x in range(2 * 10**6, 4 * 10**6, 999)}
    assert len(lengths) <= 17
