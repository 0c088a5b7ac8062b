"""A function of batches computed by segment: that of each segment's rows alone."""

import numpy as np
import pytest

from platt_jax import ids
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import SegmentsBySize


def test_a_function_of_each_segment_is_that_of_its_rows_alone(rng):
    segments = np.repeat(["b", "a", "d", "c"], [1, 17, 2, 8])[rng.permutation(28)]
    scores = rng.normal(size=28)
    by_size, calls = SegmentsBySize(factorize(ids.read(segments))), []

    def means(rows):
        calls.append(rows.place.shape)
        return np.average(scores[rows.place], weights=rows.inside, axis=1)

    found = by_size.map(means)
    assert by_size.keys.tolist() == ["a", "b", "c", "d"] and by_size.sizes.tolist() == [17, 1, 8, 2]
    assert sorted(calls) == [(1, 8), (1, 32), (2, 2)]
    for key, mean in zip(by_size.keys, found, strict=True):
        assert mean == pytest.approx(scores[segments == key].mean())
