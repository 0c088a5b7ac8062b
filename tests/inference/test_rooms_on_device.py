"""Rows on a GPU: what is estimated of them is that of the host's arrays, and no row is copied."""

import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay

import platt_jax as pj

pytestmark = pytest.mark.slow  # compiles many programs

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
    expected = pj.estimate_means(calibrator, *rows, pool=pool, pool_segments=ids)
    assert {"NON_FINITE", "NO_POOL"} < set(expected["status"])
    there = dict(pool=jnp.asarray(pool), pool_segments=jnp.asarray(ids))
    assert_same(pj.estimate_means(calibrator, *rows, **there), expected)

    def job(pool, ids):
        given = dict(pool=pool, pool_segments=ids, probability=0.5)
        return pj.estimate_means(calibrator, *rows, **given)["mean"]

    assert_rows_stay(monkeypatch, job, many((pool, ids), 2), KEYS)
