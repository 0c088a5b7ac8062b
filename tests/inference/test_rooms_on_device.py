"""Rows on a GPU: what is estimated of them is that of the host's arrays, and no row is copied."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, assert_same_proba

import platt_jax as pj
from platt_jax import inference

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chunks_of_all_sizes")]

KEYS = 1_024  # that are fetched at once
FEW = [40, 33, 38, 7, 40, 12, 25, 40, 39, 40]


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, np.float32):
        yield


@pytest.fixture
def rows(rng):
    """Scores, labels and segments."""
    segments = rng.permutation(np.repeat(np.arange(10) * 3 - 4, FEW)).astype(np.int32)
    scores = rng.normal(size=len(segments)).astype(np.float32)
    return scores, rng.random(len(segments)) < 1 / (1 + np.exp(-scores)), segments


def assert_same(found, expected, rtol=1e-9):
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(found[name], column, rtol=rtol, atol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], column)


def many(rows, times=20):
    """More rows than there are segments, numbers of a segment and lanes of a chunk."""
    return [jnp.asarray(np.tile(x, times)) for x in rows]


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_means(monkeypatch, rng, rows, pooling):
    calibrator = pj.fit_segments(*rows, pooling=pooling)
    pool, ids = (
        np.tile(rows[0], 5) + np.float32(0.2),
        np.tile(np.where(rows[2] > 10, 3, rows[2]), 5),
    )
    pool[np.flatnonzero(ids == 5)[0]] = np.nan
    expected = pj.inference.estimate_means(calibrator, *rows, pool=pool, pool_segments=ids)
    assert {"NON_FINITE", "NO_POOL"} < set(expected["status"])
    there = dict(pool=jnp.asarray(pool), pool_segments=jnp.asarray(ids))
    assert_same(pj.inference.estimate_means(calibrator, *rows, **there), expected)

    def job(pool, ids):
        given = dict(pool=pool, pool_segments=ids, probability=0.5)
        return pj.inference.estimate_means(calibrator, *rows, **given)["mean"]

    assert_rows_stay(monkeypatch, job, many((pool, ids), 2), KEYS)


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_robust_covariances(monkeypatch, rng, rows, pooling):
    weights = rng.integers(0, 3, len(rows[0])).astype(np.float32)
    offset = rng.normal(size=len(rows[0])).astype(np.float32) / 4
    given = dict(weights=weights, offset=offset)
    calibrator = pj.fit_segments(*rows, **given, pooling=pooling)
    expected = inference.robust_covariance(calibrator, *rows, **given)
    there, beside = list(map(jnp.asarray, rows)), {x: jnp.asarray(y) for x, y in given.items()}
    before = pj.fit_segments(*there, **beside, pooling=pooling)
    found = inference.robust_covariance(before, *there, **beside)
    fits = (found, before), (inference.robust_covariance(calibrator, *there, **beside), calibrator)
    for made, fitted in fits:
        assert type(made.fit.covariance) is type(fitted.fit.covariance)
        for x, y in (
            (made.fit.covariance, expected.fit.covariance),
            (made.fallback_covariance, expected.fallback_covariance),
        ):
            np.testing.assert_allclose(jax.device_get(x), y, rtol=1e-3)
    np.testing.assert_allclose(made.fit.covariance, expected.fit.covariance, rtol=1e-6)
    with pytest.raises(ValueError, match="with n_"):
        inference.robust_covariance(calibrator, *there)
    if pooling == "none":
        plain = pj.fit_segments(*(np.tile(x, 20) for x in rows))

        def job(*arrays):
            return inference.robust_covariance(plain, *arrays).fit.covariance

        assert_rows_stay(monkeypatch, job, many(rows), KEYS)


def test_robust_covariances_of_classes(rng):
    scores = rng.normal(size=(90, 3)).astype(np.float32)
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), 1)
    fitted = pj.fit_one_vs_rest(scores, labels)
    found = inference.robust_covariance(fitted, jnp.asarray(scores), jnp.asarray(labels))
    expected = inference.robust_covariance(fitted, scores, labels)
    np.testing.assert_allclose(
        jax.device_get(found.fit.covariance), expected.fit.covariance, rtol=1e-6
    )


OMIT = pj.Options(non_finite="omit")


def weighted(rng, shape, dtype):
    """Scores, labels, and weights and an offset; one score is NaN."""
    scores = rng.normal(size=shape)
    labels = rng.random(shape) < 1 / (1 + np.exp(-scores))
    scores[..., 3] = np.nan
    offset = (rng.normal(size=shape) / 4).astype(dtype)
    weights = rng.integers(0, 3, shape[-1:]).astype(dtype)
    return (scores.astype(dtype), labels), {"weights": weights, "offset": offset}


def assert_left_out_alike(calibrator, rows, given, prior=None):
    settings = dict(prior=prior, options=OMIT)
    expected = pj.inference.leave_one_out(calibrator, *rows, **given, **settings)
    with jax.enable_x64(rows[0].dtype == np.float64):
        there, beside = jax.tree.map(jnp.asarray, (rows, given))
        found = pj.inference.leave_one_out(calibrator, *there, **beside, **settings)
        assert isinstance(found, jax.Array) and found.dtype == expected.dtype
        atol = 1e-9 if found.dtype == np.float64 else 1e-3
        np.testing.assert_allclose(jax.device_get(found), expected, rtol=0, atol=atol)
    assert np.isnan(expected).any()


@pytest.mark.parametrize(("dtype", "pooling"), [(np.float32, "none"), (np.float64, "complete")])
def test_rows_left_out(monkeypatch, rng, dtype, pooling):
    """No segment has more than 256 rows, so that one program serves all."""
    sizes = [50, 40, 60] if pooling == "complete" else range(210, 260, 5)
    rows, given = weighted(rng, (sum(sizes),), dtype)
    segments = rng.permutation(np.repeat(np.arange(len(sizes)) * 3 - 4, sizes)).astype(np.int32)
    rows, prior = (*rows, segments), None
    if pooling == "none":  # one that moves the curve of each segment elsewhere
        mean = np.stack([-np.ones(10), np.linspace(-3, 3, 10)], 1).astype(dtype)
        prior = pj.GaussianPrior(mean, np.tile(9 * np.eye(2, dtype=dtype), (10, 1, 1)))
    settings = dict(prior=prior, options=OMIT)
    calibrator = pj.fit_segments(*rows, **given, **settings, pooling=pooling)
    assert_left_out_alike(calibrator, rows, given, prior)
    if pooling == "none":
        names = tuple(given)

        def job(*arrays):
            rows, beside = arrays[:3], dict(zip(names, arrays[3:], strict=True))
            return pj.inference.leave_one_out(calibrator, *rows, **beside, **settings)

        arrays = [jnp.asarray(x) for x in (*rows, *given.values())]
        assert_rows_stay(monkeypatch, job, arrays, KEYS)


def test_rows_left_out_are_of_the_fitted_segments(rng):
    (scores, labels), _ = weighted(rng, (60,), np.float32)
    calibrator = pj.fit_segments(scores, labels, np.repeat([3, 5], 30), options=OMIT)
    there = jnp.asarray(scores), jnp.asarray(labels), jnp.asarray(np.repeat([5, 7], 30))
    with pytest.raises(ValueError, match="2 fitted segments, got rows of 1 of them and of others"):
        pj.inference.leave_one_out(calibrator, *there, options=OMIT)


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_rows_left_out_are_those_that_were_fitted(rng, pooling):
    (scores, labels), given = weighted(rng, (60,), np.float32)
    segments, settings = np.repeat([3, 5], 30), dict(options=OMIT)
    calibrator = pj.fit_segments(scores, labels, segments, **given, **settings, pooling=pooling)
    there, beside = jax.tree.map(jnp.asarray, ((scores, ~labels, segments), given))
    with pytest.raises(ValueError, match="expected the rows that were fitted, with n_pos"):
        pj.inference.leave_one_out(calibrator, *there, **beside, **settings)


def test_rows_of_segments_that_the_population_left_out_are_told(rng):
    scores, segments = rng.normal(size=2_000), np.arange(2_000) % 20
    labels = rng.random(2_000) < 1 / (1 + np.exp(-2 * scores))
    scores[segments == 3] *= 1e4
    with pytest.warns(RuntimeWarning, match="are fitted alone"):
        calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    with jax.enable_x64(True):
        there = [jnp.asarray(x) for x in (scores, labels, segments)]
        with pytest.warns(RuntimeWarning, match="segments: some were left out of the population"):
            found = np.asarray(pj.inference.leave_one_out(calibrator, *there))
    assert (np.isnan(found) == (segments == 3)).all()


def test_rows_left_out_of_batches_and_classes(rng):
    rows, given = weighted(rng, (10, 250), np.float64)
    assert_left_out_alike(pj.fit(*rows, **given, options=OMIT), rows, given)
    one = [x[0] for x in rows], {"weights": given["weights"], "offset": given["offset"][0]}
    assert_left_out_alike(pj.fit(*one[0], **one[1], options=OMIT), *one)
    table = rows[0].T, rng.integers(0, 10, 250) - 3
    given = {"weights": given["weights"], "offset": given["offset"].T}
    classes = pj.fit_one_vs_rest(*table, **given, options=OMIT)
    assert_left_out_alike(classes, table, given)


def test_levels(monkeypatch, rng, rows):
    """Ids of several columns are on the host; unseen ones of a known region have its curve."""
    scores, labels, segments = rows
    ids = np.stack([segments % 2, segments], 1)
    calibrator = pj.fit_segments(scores, labels, ids, pooling="nested")
    ids[segments > 15, 1] += 100
    ids[segments > 20, 0] += 7
    there = jnp.asarray(scores)
    found, expected = (calibrator.predict_proba(x, ids) for x in (there, scores))
    assert_same_proba(found, expected)
    for x, y in zip(calibrator.band(there, ids), calibrator.band(scores, ids), strict=True):
        assert_same_proba(x, y)
    one = calibrator.predict_proba(there, (0, 77))
    assert_same_proba(one, calibrator.predict_proba(scores, (0, 77)))
    expected = pj.inference.estimate_rates(calibrator, scores, ids, from_rate=0.4)
    assert_same(pj.inference.estimate_rates(calibrator, there, ids, from_rate=0.4), expected)

    def job(scores):
        rates = pj.inference.estimate_rates(calibrator, scores, ids, from_rate=0.4)["rate"]
        return calibrator.band(scores, ids), rates

    assert_rows_stay(monkeypatch, job, [there], 5_000)


def test_gates(monkeypatch, rng):
    """No segment has more than 64 rows, so that one program serves all."""
    segments = rng.permutation(np.repeat(np.arange(10, dtype=np.int32), range(40, 60, 2)))
    scores = rng.normal(size=len(segments)).round(1).astype(np.float32) * 2
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-2 * scores * (segments != 5)))
    calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    segments = np.where(segments > 6, segments + 3, segments)
    weights = rng.integers(0, 3, len(segments)).astype(np.float32)
    weights[segments == 2] = 0
    scores[np.flatnonzero((segments == 3) & (weights > 0))[0]] = np.nan
    there = list(map(jnp.asarray, (scores, segments)))
    asked = dict(precision=0.8, side="both", weights=weights)
    expected = pj.gate(calibrator, scores, segments, **asked)
    assert {"OK", "UNREACHED", "NON_FINITE", "REVERSED"} == set(expected["status"])
    assert_same(pj.gate(calibrator, *there, **asked), expected)
    held = pj.SegmentRows(there[0], jnp.asarray(labels), there[1])
    expected = pj.gate(calibrator, scores, segments, side="negative")
    assert_same(pj.gate(calibrator, held, side="negative"), expected)
    with pytest.raises(ValueError, match="weights: expected finite numbers"):
        pj.gate(calibrator, *there, weights=jnp.full(len(scores), jnp.inf))
    table = rng.normal(size=(50, 10)).astype(np.float32)
    classes = pj.fit_one_vs_rest(table, np.argmax(table + rng.gumbel(size=table.shape), 1))
    found = pj.gate(classes, jnp.asarray(table), precision=0.5)
    assert_same(found, pj.gate(classes, table, precision=0.5))

    def job(scores, segments):
        return pj.gate(calibrator, scores, segments)["threshold"]

    assert_rows_stay(monkeypatch, job, there, KEYS)
