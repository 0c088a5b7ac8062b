"""Logistic regression on many rows: beta calibration's search in float32."""

import time

import numpy as np
import pytest
from data import labels_of

from platt_jax.scalers import BetaCalibration, Temperature


@pytest.mark.slow
def test_many_rows_in_float32_take_no_more_passes(rng):
    """Sums of all rows at once lost small terms: 1,000,000 rows took 29 s in place of 0.1 s."""
    scores = rng.normal(size=300_000)
    labels = labels_of(rng, 1.3 * scores - 0.2)

    def fitted_in(dtype):
        seconds = []
        for _ in range(3):  # the first compiles
            started = time.process_time()
            fitted = BetaCalibration().fit(scores.astype(dtype), labels)
            seconds.append(time.process_time() - started)
        return fitted.predict_proba(scores.astype(dtype)), min(seconds)

    (single, seconds), (double, seconds_of_double) = map(fitted_in, (np.float32, np.float64))
    assert seconds < 5 * seconds_of_double
    np.testing.assert_allclose(single, double, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scaler", [BetaCalibration(), Temperature()], ids=repr)
@pytest.mark.parametrize("exponent", [-20, -100])
def test_the_scale_of_weights_does_not_matter(scaler, exponent, rng, dtype):
    """Tiny ones ended the search before its first step."""
    scores = rng.normal(size=48).astype(dtype)
    labels = labels_of(rng, scores)
    weights = rng.integers(1, 4, 48)
    plain, tiny = (
        scaler.fit(scores, labels, weights=w) for w in (weights, weights * 2.0**exponent)
    )
    np.testing.assert_allclose(
        tiny.predict_proba(scores),
        plain.predict_proba(scores),
        rtol=1e-4 if dtype == np.float32 else 1e-7,
    )
