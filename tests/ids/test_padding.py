"""A function of batches computed by segment: that of each segment's rows alone."""

import numpy as np

from platt_jax import ids, scalers
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import SegmentsBySize


def test_a_scaler_of_each_segment_is_that_of_its_rows_alone(rng):
    segments = np.repeat(["b", "a", "d", "c"], [1, 17, 2, 8])[rng.permutation(28)]
    scores, labels, at = rng.normal(size=28), rng.random(28) < 0.5, np.array([-0.5, 0.5])
    by_size, calls = SegmentsBySize(factorize(ids.read(segments))), []

    def curves(rows):
        calls.append(rows.place.shape)
        weights = rows.inside.astype(float)
        fitted = scalers.Isotonic().fit(scores[rows.place], labels[rows.place], weights=weights)
        return fitted.predict_proba(at)

    found = by_size.map(curves)
    assert by_size.keys.tolist() == ["a", "b", "c", "d"] and by_size.sizes.tolist() == [17, 1, 8, 2]
    assert sorted(calls) == [(1, 1), (1, 2), (1, 8), (1, 32)]
    for key, curve in zip(by_size.keys, found, strict=True):
        mine = segments == key
        alone = scalers.Isotonic().fit(scores[mine], labels[mine]).predict_proba(at)
        np.testing.assert_allclose(curve, alone)
