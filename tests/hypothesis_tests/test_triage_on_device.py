"""Tests of segments for rows on a GPU: those of the host's arrays, without a copy of rows to it."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, outcome

import platt_jax as pj

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("chunks_of_all_sizes")]

triage = partial(pj.triage, against="predictions")


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch):
    """JAX arrays are taken for arrays on an accelerator."""
    with accelerated(monkeypatch, np.float32):
        yield


def made(rng, sizes, off=0.5):
    """A calibrator, and later rows of its segments and of a new one; every second is off."""
    segments = rng.permutation(np.repeat(np.arange(len(sizes)) * 3 - 4, sizes)).astype(np.int32)
    scores = rng.normal(size=len(segments)).astype(np.float32)
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-scores))
    calibrator = pj.fit_segments(scores, labels, np.where(segments == -4, -1, segments))
    later = rng.random(len(segments)) < 1 / (1 + np.exp(-scores - off * (segments % 2)))
    return calibrator, scores, later, segments


def assert_same(found, expected):
    """But for p-values by tilted draws: rounding may tilt them otherwise, within their error."""
    assert found.keys() == expected.keys()
    simulated = expected["p_value"] < 0.05
    for name, column in expected.items():
        if column.dtype.kind == "f":
            drawn = simulated if name == "p_value" else np.full(len(column), name == "q_value")
            off = np.abs(found[name] - column) - 1e-9
            off = off / np.maximum(np.abs(column), 1e-3)
            assert not np.any(off > np.where(drawn, 0.05, 1e-6)), name
            np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(column))
        else:
            np.testing.assert_array_equal(found[name], column)


FEW = [40, 33, 38, 7, 40, 12, 25, 40, 39, 40]


@pytest.mark.parametrize("margin", [0, 0.1])
def test_as_on_the_host(rng, margin):
    calibrator, *rows = made(rng, [*FEW, 20_000], 0.8 if margin else 0.5)
    job = partial(triage, calibrator, margin=margin)
    told, expected = outcome(job, *rows)
    found = outcome(job, *map(jnp.asarray, rows))
    assert found[0] == told
    p = expected["p_value"]
    assert np.any(p < 0.05) and np.any(p > 0.3) and p[expected["rows"] == 20_000] < 0.05
    assert_same(found[1], expected)


def test_rows_that_are_not_finite(rng):
    calibrator, scores, labels, segments = made(rng, FEW)
    offset = rng.normal(size=len(scores)).astype(np.float32) / 4
    scores[np.flatnonzero(segments == 2)[3]] = np.inf
    offset[np.flatnonzero(segments == 5)[:2]] = np.nan
    segments = np.where(segments == 8, 100, segments)
    rows, there = (scores, labels, segments), [jnp.asarray(x) for x in (scores, labels, segments)]
    for treatment in ("flag", "omit", "raise"):
        job = partial(triage, calibrator, non_finite=treatment)
        told, expected = outcome(job, *rows, offset=offset)
        found = outcome(job, *there, offset=jnp.asarray(offset))
        assert found[0] == told
        if treatment == "raise":
            assert found[1] == expected and "2 of 10" in expected
        else:
            assert_same(found[1], expected)


def test_posteriors_and_held_rows(rng):
    _, *rows = made(rng, FEW)
    pooled = pj.fit_segments(*rows, pooling="partial").shift_prior(0.5, 0.4)
    later = made(rng, FEW)[1:]
    found = triage(pooled, pj.SegmentRows(*map(jnp.asarray, later)))
    assert_same(found, triage(pooled, *later))


def test_classes(rng):
    scores = rng.normal(size=(90, 3)).astype(np.float32)
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), 1)
    fitted = pj.fit_one_vs_rest(scores, labels)
    found = triage(fitted, jnp.asarray(scores), jnp.asarray(labels))
    assert_same(found, triage(fitted, scores, labels))


def test_no_row_is_copied(monkeypatch, rng):
    calibrator, *rows = made(rng, [*FEW, 20_000], 0)

    def job(*arrays):
        return triage(calibrator, *arrays)["p_value"]

    assert_rows_stay(monkeypatch, job, list(map(jnp.asarray, rows)), 5_000)
