"""Probabilities of arrays on a GPU: those of the host's arrays, without a copy of rows to it."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, assert_same_proba

import platt_jax as pj
from platt_jax.results import device_rows

pytestmark = pytest.mark.slow  # compiles many programs


@pytest.fixture
def dtype():
    """That of most tests; 64-bit types take programs of their own, and the same way."""
    return np.float32


@pytest.fixture
def on_accelerator(monkeypatch, dtype):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, dtype):
        yield


@pytest.fixture
def by_segment(rng, dtype):
    """Calibrators with integer keys, and with a population, and rows: scores and segments."""
    segments = rng.integers(0, 30, 900) * 3 - 20
    scores = rng.normal(size=900).astype(dtype)
    labels = rng.random(900) < 1 / (1 + np.exp(-scores))
    fits = {
        pooling: pj.fit_segments(scores, labels, segments, pooling=pooling)
        for pooling in ("none", "partial")
    }
    return fits, rng.normal(size=500).astype(dtype), rng.integers(-30, 90, 500)


def assert_same_band(found, expected):
    for ends in zip(found, expected, strict=True):
        assert_same_proba(*ends)


@pytest.mark.usefixtures("on_accelerator")
class TestPredictions:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_of_a_fit(self, monkeypatch, rng, dtype):
        scores = rng.normal(size=(2, 3, 60)).astype(dtype)
        labels = rng.random(scores.shape) < 1 / (1 + np.exp(-scores))
        for fitted in (pj.fit(scores, labels), pj.fit(*map(jnp.asarray, (scores, labels)))):
            found = fitted.predict_proba(jnp.asarray(scores))
            assert_same_proba(found, pj.fit(scores, labels).predict_proba(scores))
            assert_rows_stay(monkeypatch, fitted.predict_proba, [jnp.asarray(scores)], 0)

    @pytest.mark.parametrize(
        ("dtype", "pooling", "kind"),
        [
            (np.float32, "none", np.int32),
            (np.float32, "partial", np.uint8),
            (np.float64, "partial", np.int32),
            (np.float64, "none", np.int8),
        ],
    )
    def test_by_segment(self, monkeypatch, by_segment, pooling, kind):
        fits, scores, segments = by_segment
        segments = segments.astype(kind)
        fitted = fits[pooling]
        there = list(map(jnp.asarray, (scores, segments)))
        expected = fitted.predict_proba(scores, segments)
        assert_same_proba(fitted.predict_proba(*there), expected)
        assert_same_proba(fitted.predict_proba(there[0], segments), expected)
        assert_rows_stay(monkeypatch, fitted.predict_proba, there, 31)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("pooling", ["none", "partial"])
    def test_band_by_segment(self, monkeypatch, by_segment, pooling, dtype):
        fits, scores, segments = by_segment
        fitted, segments = fits[pooling], segments.astype(np.int32)
        there = list(map(jnp.asarray, (scores, segments)))
        offset = np.linspace(-1, 1, len(scores)).astype(dtype)
        for more in ({}, {"level": 0.5, "simultaneous": True}, {"offset": offset}):
            expected = fitted.band(scores, segments, **more)
            assert_same_band(fitted.band(*there, **more), expected)
            assert_same_band(fitted.band(there[0], segments, **more), expected)
        assert_same_band(
            fitted.band(*there, offset=jnp.asarray(offset)),
            fitted.band(scores, segments, offset=offset),
        )
        assert_rows_stay(monkeypatch, fitted.band, there, 31)

    @pytest.mark.parametrize("dtype", [np.float64])
    def test_wide_posteriors(self, by_segment, dtype):
        fitted = by_segment[0]["partial"]
        scores, segments = np.array([-50, 0, 2, 90], dtype), np.array([1, 1, 1, 1])
        found = fitted.predict_proba(jnp.asarray(scores), jnp.asarray(segments))
        assert_same_proba(found, fitted.predict_proba(scores, segments))

    def test_segments_with_other_keys(self, rng, dtype):
        scores = rng.normal(size=60).astype(dtype)
        for segments in (
            np.array(["a", "b"])[np.arange(60) % 2],
            np.array([5, 1 << 40])[np.arange(60) % 2],
            np.array([1 << 50, 1 << 40])[np.arange(60) % 2],
        ):
            fitted = pj.fit_segments(scores, scores > 0, segments)
            expected = fitted.predict_proba(scores, segments)
            assert_same_proba(fitted.predict_proba(jnp.asarray(scores), segments), expected)
            one = segments[0].item()
            of_one = fitted.predict_proba(jnp.asarray(scores), one)
            assert_same_proba(of_one, fitted.predict_proba(scores, one))
            if segments.dtype.kind != "U":
                codes = np.arange(60, dtype=np.int32) % 7
                found = fitted.predict_proba(*map(jnp.asarray, (scores, codes)))
                assert_same_proba(found, fitted.predict_proba(scores, codes))

    @pytest.mark.parametrize("dtype", [np.float64])
    @pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int64, np.uint64])
    @pytest.mark.parametrize("table", [1 << 22, 0])
    def test_ids_at_the_ends_of_their_dtype(self, monkeypatch, rng, kind, table):
        monkeypatch.setattr(device_rows, "_TABLE", table)
        least, largest = np.iinfo(kind).min, np.iinfo(kind).max
        at = range(0, 40, 3)
        for keys in (
            np.array([largest - x for x in at[::-1]], kind),
            np.array([least + x for x in at], kind),
            np.array([least, *range(5, 90, 7), largest], kind),
            np.arange(5, 12, dtype=kind),
            np.array([300, 400], np.int64),
            np.array([-300, -200, *range(9), 1000], np.int64),
            np.arange(9, dtype=np.uint64) + np.uint64(2**63 - 4),
        ):
            near = [int(key) + x for key in keys for x in (-1, 0, 1)]
            near += [least, least + 1, largest - 1, largest, 0]
            segments = np.array([x for x in near if least <= x <= largest], kind)
            A_and_B = rng.normal(size=(len(keys) + 1, 2))
            scores = rng.normal(size=len(segments))
            places = {int(key): place for place, key in enumerate(keys)}
            A, B = A_and_B[[places.get(int(one), -1) for one in segments]].T
            there = map(jnp.asarray, (scores, segments))
            found = device_rows.proba_by_segment(keys, A, A_and_B, *there)
            assert_same_proba(found, 1 / (1 + np.exp(A * scores + B)))

    def test_long_ranges_have_no_table(self):
        assert device_rows._table_length(np.array([-(2**63), 2**63 - 1])) == 0
        assert device_rows._table_length(np.array([0, 2**64 - 1], np.uint64)) == 0
        assert device_rows._table_length(np.arange(2**21) * 4) == 2**23
        assert device_rows._table_length(np.array([-4, 3], np.int8)) == 16
        assert device_rows._table_length(np.array([], np.int32)) == 1

    def test_bad_segments(self, by_segment):
        fits, scores, segments = by_segment
        fitted, there = fits["none"], jnp.asarray(scores)
        for bad in (jnp.asarray(segments[:7]), segments[:7]):
            with pytest.raises(ValueError, match="one id per row, 500 of them, got 7"):
                fitted.predict_proba(there, bad)
        for bad in (there, jnp.stack([jnp.asarray(segments)] * 2, 1)):
            with pytest.raises(ValueError, match=r"segments: expected integers \(N,\) for ids on"):
                fitted.predict_proba(there, bad)
        named = pj.fit_segments([0.0, 1.0], [0, 1], ["a", "b"])
        with pytest.raises(ValueError, match="segments: expected ids of the kind of <U1 keys"):
            named.predict_proba(there, jnp.asarray(segments))
        with pytest.raises(ValueError, match="scores: expected a flat array"):
            fitted.predict_proba(there[None], jnp.asarray(segments))

    @pytest.mark.parametrize(("dtype", "normalize"), [(np.float32, False), (np.float64, True)])
    def test_by_class(self, monkeypatch, rng, dtype, normalize):
        scores, labels = rng.normal(size=(90, 3)).astype(dtype), np.arange(90) % 3
        scores[4, 2] = np.nan
        fitted = pj.fit_one_vs_rest(np.nan_to_num(scores), labels)
        expected = fitted.predict_proba(scores, normalize)
        there = jnp.asarray(scores)
        assert_same_proba(fitted.predict_proba(there, normalize), expected)
        job = partial(fitted.predict_proba, normalize=normalize)
        assert_rows_stay(monkeypatch, job, [there], 3)
        with pytest.raises(ValueError, match=r"scores: expected shape \(N, 3\)"):
            fitted.predict_proba(there.T)
