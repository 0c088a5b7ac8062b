"""By simulation: intervals cover, p-values are uniform, errors fade as they are said to."""

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import metrics

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("n", [10, 50, 400])
def test_wilson_intervals_cover_as_often_as_they_say(rng, n, level):
    rate = rng.random(20000)[:, None]
    # The n rows of a problem as two, weighted by how often each label was drawn.
    positives = rng.binomial(n, rate)
    curve = metrics.reliability_curve(
        [[1, 0]],
        np.full((20000, 2), 0.5),
        weights=np.concatenate([positives, n - positives], axis=1),
        n_bins=1,
        level=level,
    )
    covered = np.mean((curve.lower <= rate) & (rate <= curve.upper))
    assert abs(covered - level) < 0.015
    assert np.all(curve.rows == n)


def calibrated(rng, problems, rows):
    """Logits, and labels drawn from their probabilities."""
    logits = rng.normal(size=(problems, rows)) * 1.5
    return labels_of(rng, logits), logits


TESTS = {
    "spiegelhalter": metrics.spiegelhalter,
    "slope": lambda *rows, **how: metrics.cox_calibration(*rows, **how).slope_test,
    "intercept": lambda *rows, **how: metrics.cox_calibration(*rows, **how).intercept_test,
    "slope and intercept": lambda *rows, **how: metrics.cox_calibration(*rows, **how).joint_test,
    "hosmer_lemeshow": metrics.hosmer_lemeshow,
}


def assert_uniform(p_values):
    """Of 2000 of them, three standard errors are 0.015 at 0.05 and 0.034 at 0.5."""
    for level, off in ((0.05, 0.018), (0.25, 0.033), (0.5, 0.038), (0.9, 0.023)):
        assert abs(np.mean(p_values < level) - level) < off, level


@pytest.mark.parametrize("name", TESTS)
def test_p_values_are_uniform_where_calibrated(rng, name):
    labels, logits = calibrated(rng, 2000, 250)
    assert_uniform(TESTS[name](labels, logits, from_logits=True).p_value)


def test_hosmer_lemeshow_of_the_rows_fitted_to(rng):
    """Two parameters fitted, two degrees of freedom fewer."""
    labels, scores = calibrated(rng, 2000, 250)
    fitted = pj.fit(scores, labels, weights=1, options=pj.Options(targets="none")).sigmoid
    logits = fitted.logit(scores)
    assert_uniform(
        metrics.hosmer_lemeshow(labels, logits, from_logits=True, in_sample=True).p_value
    )
    naive = metrics.hosmer_lemeshow(labels, logits, from_logits=True).p_value
    assert np.mean(naive < 0.25) < 0.2


@pytest.mark.parametrize("name", [name for name in TESTS if name != "intercept"])
def test_overconfidence_is_found(rng, name):
    labels, logits = calibrated(rng, 2000, 250)
    assert np.mean(TESTS[name](labels, 2 * logits, from_logits=True).p_value < 0.01) > 0.95


def test_a_shift_is_found(rng):
    labels, logits = calibrated(rng, 2000, 250)
    shifted = metrics.cox_calibration(labels, logits + 0.8, from_logits=True)
    assert np.mean(shifted.intercept_test.p_value < 0.01) > 0.95
    assert np.mean(shifted.slope_test.p_value < 0.01) < 0.05


@pytest.mark.parametrize("rows", [1000, 30000])
def test_errors_of_calibrated_probabilities_fade(rng, rows):
    proba = rng.random((20, rows))
    labels = rng.random((20, rows)) < proba
    smooth = metrics.smooth_ece(labels, proba).mean()
    assert 0.25 < smooth * rows ** (1 / 3) < 0.35
    for strategy in ("uniform", "quantile"):
        binned = metrics.expected_calibration_error(labels, proba, strategy=strategy).mean()
        # |normal| with the variance of 10 bins' frequencies: 0.8 sqrt(10 p (1-p) / n)
        assert 0.85 < binned / np.mean(0.798 * np.sqrt(10 * proba * (1 - proba) / rows)) < 1.15
