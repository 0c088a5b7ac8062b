"""ICI, E50, E90 and Emax: against the smooth curve, and their intervals by simulation."""

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import metrics


def rows_of(rng, n=500, rate=0.3, bend=0.5, batch=()):
    logits = rng.normal(float(pj.logit(rate)), 1, (*batch, n))
    true = 1 / (1 + np.exp(-(bend * logits)))
    return rng.random(logits.shape) < true, logits, true


def four(distance):
    return distance.mean(-1), *np.quantile(distance, [0.5, 0.9], axis=-1), distance.max(-1)


def test_they_are_distances_of_the_smooth_curve(rng):
    y, logits, _ = rows_of(rng, 150)
    curve = metrics.smooth_curve(y, logits, from_logits=True)  # it has all rows as points
    found = metrics.integrated_calibration_index(y, logits, from_logits=True)
    expected = four(np.abs(curve.prob_true - curve.prob_pred))
    for each, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(each.value, value, rtol=0.03)
        assert 0 <= each.lower <= each.value <= each.upper <= 1
    np.testing.assert_allclose(found.ici.value, expected[0], rtol=1e-9)
    np.testing.assert_allclose(found.emax.value, expected[3], rtol=1e-9)


def test_weights_count_rows_and_seeds_repeat(rng):
    y, logits, _ = rows_of(rng)
    w = rng.integers(0, 4, 500)
    w[:2], logits[0] = 0, np.nan
    options = {"from_logits": True}
    weighted = metrics.integrated_calibration_index(y, logits, weights=w, **options)
    rows = np.repeat(y, w), np.repeat(logits, w)
    for seed, same in ((0, True), (1, False)):
        repeated = metrics.integrated_calibration_index(*rows, seed=seed, **options)
        for a, b in zip(weighted, repeated, strict=True):
            np.testing.assert_allclose(a.value, b.value, rtol=1e-6)
            assert np.isclose(a.upper, b.upper, rtol=1e-6) == same


def test_where_there_is_no_curve_they_are_nan(rng):
    y, logits, _ = rows_of(rng, 100, batch=(4,))
    y[0] = False
    y[1] = logits[1] > 0
    logits[2, 5] = np.nan
    found = metrics.integrated_calibration_index(y, logits, from_logits=True)
    assert np.isnan(found.ici.value).tolist() == [True, True, True, False]
    equal = metrics.integrated_calibration_index(y[3], np.full(100, 0.2))
    np.testing.assert_allclose(equal.ici.value, abs(y[3].mean() - 0.2), rtol=1e-6)
    with pytest.raises(ValueError, match="replicates: expected"):
        metrics.integrated_calibration_index(y, logits, from_logits=True, replicates=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "rate", "bend"), [(300, 0.05, 1), (300, 0.3, 1), (1000, 0.3, 0.7)]
)
def test_intervals_hold_the_true_indices(rows, rate, bend):
    y, logits, true = rows_of(np.random.default_rng(5), rows, rate, bend, (400,))
    found = metrics.integrated_calibration_index(y, logits, from_logits=True)
    truth = four(np.abs(true - 1 / (1 + np.exp(-logits))))
    for name, each, value in zip(found._fields, found, truth, strict=True):
        some = np.isfinite(each.value)
        held = (each.lower - 1e-12 <= value) & (value <= each.upper)
        # The maximum is mostly at the ends, where few predictions are.
        least = 0.85 if name == "emax" else 0.9
        assert some.mean() > 0.9 and held[some].mean() > least, name
