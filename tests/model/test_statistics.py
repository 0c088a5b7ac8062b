"""Statistics of the rows before a search."""

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
