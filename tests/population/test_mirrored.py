"""Scores with the other sign, and labels changed: the same curves, read from the other side."""

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj

POINTS = np.linspace(-4, 4, 17)


def rows(seed, values):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, values, 600)
    scores = 1.3 * rng.normal(size=600) + 0.2
    slope, intercept = rng.normal([[1.2], [-1.0]], [[0.4], [0.7]], (2, values))[:, which]
    return scores, labels_of(rng, slope * scores + intercept).astype(int), which


@pytest.mark.parametrize("pooling", ["partial", "nested", "crossed"])
@pytest.mark.parametrize("seed, values", [(1, 6), (2, 30)])
def test_pooling_does_not_depend_on_the_sign_of_the_scores(pooling, seed, values):
    scores, labels, which = rows(seed, values)
    ids = which if pooling == "partial" else np.stack([which % 5, which // 5], -1)
    unseen = [99] if pooling == "partial" else [(0, 99)]
    asked = np.concatenate([np.repeat(ids[:40], len(POINTS), 0), np.repeat(unseen, len(POINTS), 0)])
    at = np.tile(POINTS, len(asked) // len(POINTS))
    one = pj.fit_segments(scores, labels, ids, pooling=pooling).predict_proba(at, asked)
    other = pj.fit_segments(-scores, 1 - labels, ids, pooling=pooling).predict_proba(-at, asked)
    np.testing.assert_allclose(1 - other, one, rtol=0, atol=1e-11)
