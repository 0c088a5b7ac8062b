"""The isotonic reliability curve and its consistency band."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from platt_jax.metrics import isotonic_curve


def predictions(rng, n, power=1):
    p = rng.random(n)
    return (rng.random(n) < p**power).astype(int), p


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_isotonic_regression(rng, ties):
    labels, p = predictions(rng, 2000)
    p = p.round(2) if ties else p
    weights = rng.integers(0, 4, 2000)
    curve = isotonic_curve(labels, p, weights=weights, replicates=2)
    theirs = IsotonicRegression().fit(p, labels, sample_weight=weights)
    np.testing.assert_allclose(curve.prob_true, theirs.predict(curve.prob_pred), atol=1e-12)
    counted = p[weights > 0]
    assert (np.diff(curve.prob_pred) > 0).all() and set(curve.prob_pred) <= set(counted)
    # Between the points the curve is linear: all predictions lie on it.
    between = np.interp(counted, curve.prob_pred, curve.prob_true)
    np.testing.assert_allclose(between, theirs.predict(counted), atol=1e-12)


def test_the_band_holds_curves_of_right_predictions_and_not_of_wrong_ones(rng):
    def inside(power):
        held = []
        for seed in range(20):
            labels, p = predictions(rng, 1000, power)
            curve = isotonic_curve(labels, p, level=0.9, seed=seed)
            held.append(
                np.mean((curve.lower <= curve.prob_true) & (curve.prob_true <= curve.upper))
            )
        return np.mean(held)

    assert 0.86 < inside(power=1) < 0.95
    assert inside(power=2) < 0.3


def test_a_weight_counts_rows(rng):
    labels, p = predictions(rng, 300)
    weights = rng.integers(0, 4, 300)
    weighted = isotonic_curve(labels, p, weights=weights)
    repeated = isotonic_curve(np.repeat(labels, weights), np.repeat(p, weights))
    for one, same in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-12)
    heavy = isotonic_curve(labels, p, weights=100.5 * weights)
    assert np.mean(heavy.upper - heavy.lower) < 0.4 * np.mean(weighted.upper - weighted.lower)


def test_light_rows_among_heavy_ones_do_not_widen_the_band(rng):
    labels, p = predictions(rng, 400)
    heavy = np.arange(400) % 2 == 0
    curves = (
        isotonic_curve(labels, p, weights=np.where(heavy, 200, 1)),
        isotonic_curve(labels[heavy], p[heavy], weights=np.full(200, 200)),
    )
    mixed, alone = (np.mean(curve.upper - curve.lower) for curve in curves)
    np.testing.assert_allclose(mixed, alone, rtol=0.1)


def test_logits_repeat_the_probabilities(rng):
    labels, p = predictions(rng, 300)
    logits = np.log(p / (1 - p))
    for one, same in zip(
        isotonic_curve(labels, logits, from_logits=True), isotonic_curve(labels, p), strict=True
    ):
        np.testing.assert_allclose(one, same, atol=1e-12)


def test_no_curve_of_rows_that_are_nan():
    for labels, p, weights in (([0, 1], [0.2, np.nan], [1, 1]), ([0, 1], [0.2, 0.4], [0, 0])):
        curve = isotonic_curve(labels, p, weights=weights)
        assert all(np.isnan(x).all() and x.shape == (1,) for x in curve)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"level": 1}, r"level: expected a number in \(0, 1\), got 1"),
        ({"replicates": 1}, "replicates: expected an integer >= 2, got 1"),
        ({"proba": [[0.1, 0.2]]}, r"proba: expected \(N,\), one problem's, got shape \(1, 2\)"),
        ({"proba": [0.1, 2]}, r"proba: expected probabilities in \[0, 1\]"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        isotonic_curve(**{"labels": [0, 1], "proba": [0.1, 0.2]} | options)
