"""Statistics of the rows before a search."""

import jax.numpy as jnp
import numpy as np
import pytest

from platt_jax.model import statistics
from platt_jax.model.statistics import ScoreRanges


def ranges(scores, labels, weights):
    """Of the rows of one problem, as they stand in the definition."""

    def ends(of_class):
        some = scores[of_class & (weights > 0)]
        return some.min(initial=np.inf), some.max(initial=-np.inf)

    bad = not np.isfinite(scores).all()
    return ScoreRanges(bad, *ends(labels), *ends(~labels), weights[weights > 0].min())


@pytest.mark.parametrize("bad", [False, True])
def test_ranges_of_parts_are_united_to_those_of_all_rows(rng, bad):
    scores, labels, weights = rng.normal(size=90), rng.random(90) < 0.4, rng.integers(0, 5, 90) / 2
    weights[30:] += 0.25  # the lightest row is in one part
    labels[:30] = False  # a part without a row of class 1
    if bad:
        scores[40] = np.inf
    columns = scores, labels, weights
    parts = [ranges(*(x[part] for x in columns)) for part in np.split(np.arange(90), 3)]
    assert statistics.union(parts) == ranges(*columns)


@pytest.mark.parametrize("unit", [1, 1e-9])
@pytest.mark.parametrize("where", [np, jnp])
def test_quartiles_are_those_of_rows_as_often_as_their_weight(rng, x64, where, unit):
    """Weights below 1 are shares; rows of weight 0 and rows that are not finite do not count."""
    scores, weights = rng.normal(size=40).round(1), rng.integers(0, 4, 40).astype(float)
    bad = np.array([np.nan, np.inf, -np.inf, 7.0]), np.array([1, 2, 1, np.nan])
    if unit != 1:
        weights = np.minimum(weights, 1)
    repeated = np.repeat(scores, weights.astype(int))
    given = np.r_[scores, bad[0]], np.r_[weights * unit, bad[1]]
    found = statistics.quartiles(*map(where.asarray, given), where)
    expected = [*np.quantile(repeated, [0.25, 0.5, 0.75]), repeated.std()]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
