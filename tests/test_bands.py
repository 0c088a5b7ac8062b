"""Confidence bands, thresholds and new base rates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import batch
from scipy.special import expit
from scipy.stats import chi2, norm

import platt_jax as pj
from platt_jax.results.probabilities import critical_value


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_critical_values(level):
    np.testing.assert_allclose(critical_value(level, False), norm.ppf((1 + level) / 2))
    np.testing.assert_allclose(critical_value(level, True), np.sqrt(chi2.ppf(level, 2)))


@pytest.mark.parametrize("simultaneous", [False, True])
def test_a_band_is_the_log_odds_and_their_errors(rng, dtype, simultaneous):
    scores, labels = batch(rng, 3, 200)
    fit = pj.fit(scores.astype(dtype), labels)
    at = rng.normal(size=(3, 7)).astype(dtype)
    lower, upper = fit.band(at, level=0.9, simultaneous=simultaneous)
    assert lower.shape == upper.shape == (3, 7) and lower.dtype == dtype
    for k in range(3):
        for i, f in enumerate(at[k]):
            row = np.array([f, 1.0])
            logit = -(fit.A[k] * f + fit.B[k])
            reach = critical_value(0.9, simultaneous) * np.sqrt(row @ fit.covariance[k] @ row)
            np.testing.assert_allclose(lower[k, i], expit(logit - reach), rtol=1e-4)
            np.testing.assert_allclose(upper[k, i], expit(logit + reach), rtol=1e-4)


def test_of_one_problem_and_one_score(rng):
    scores, labels = (x[0] for x in batch(rng, 1, 50))
    fit = pj.fit(scores, labels)
    lower, upper = fit.band(0.5)
    assert np.shape(lower) == () and lower < fit.predict_proba(0.5) < upper


def test_under_jit():
    @jax.jit
    def lower(scores):
        return pj.solve(scores, jnp.array([1, 0, 1, 0])).band(jnp.array([0.0, 1.0]))[0]

    scores = np.array([1.0, 2.0, 3.0, 0.5], np.float32)
    expected = pj.fit(scores, [1, 0, 1, 0]).band(np.array([0.0, 1.0], np.float32))[0]
    np.testing.assert_allclose(lower(scores), expected, rtol=1e-3)


def test_of_segments_by_row(rng):
    scores, labels = (x.ravel() for x in batch(rng, 3, 100))
    segments = np.repeat(["a", "b", "c"], 100)
    calibrator = pj.fit_segments(scores, labels, segments)
    pooled = pj.fit(scores, labels)
    lower, upper = calibrator.band([0.2, 0.7, 0.7], ["b", "unseen", "a"], 0.9)
    for i, (one, f) in enumerate([(calibrator["b"], 0.2), (pooled, 0.7), (calibrator["a"], 0.7)]):
        np.testing.assert_allclose((lower[i], upper[i]), one.band(f, 0.9), rtol=1e-6)


def test_of_classes(rng):
    scores = rng.normal(size=(60, 3))
    calibrator = pj.fit_one_vs_rest(scores, rng.integers(0, 3, 60))
    lower, upper = calibrator.band(scores[:4], simultaneous=True)
    assert lower.shape == (4, 3)
    one = calibrator[1].band(scores[:4, 1], simultaneous=True)
    np.testing.assert_allclose((lower[:, 1], upper[:, 1]), one)


def test_constant_scores_have_no_band():
    lower, upper = pj.fit([1.0, 1.0, 1.0], [1, 0, 0]).band([1.0, 2.0])
    assert np.isnan(lower).all() and np.isnan(upper).all()


@pytest.mark.parametrize("level", [0, 1, -0.5, 95])
def test_a_level_that_is_none_is_refused(rng, level):
    scores, labels = (x[0] for x in batch(rng, 1, 50))
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1"):
        pj.fit(scores, labels).band(scores, level)


@pytest.mark.parametrize(("rows", "tolerance"), [(200, 0.02), (2000, 0.015)])
def test_bands_hold_the_truth_as_often_as_they_say(rng, rows, tolerance):
    scores = rng.normal(size=(2000, rows))
    labels = rng.random(scores.shape) < expit(1.3 * scores - 0.4)
    fit = pj.fit(scores, labels)
    at = np.linspace(-2, 2, 9)
    truth = expit(1.3 * at - 0.4)
    for simultaneous in (False, True):
        lower, upper = fit.band(np.broadcast_to(at, (2000, 9)), simultaneous=simultaneous)
        inside = (lower <= truth) & (truth <= upper)
        found = inside.all(1).mean() if simultaneous else inside.mean()
        assert abs(found - 0.95) < tolerance


def test_the_inverse_is_the_score_of_a_probability():
    sigmoid = pj.Sigmoid(np.array([-2.0, 0.5]), np.array([1.0, -3.0]))
    p = np.array([[1e-9, 0.5, 0.9], [0.1, 0.2, 1 - 1e-9]])
    np.testing.assert_allclose(sigmoid.predict_proba(sigmoid.inverse(p)), p, rtol=1e-12)
    assert np.isnan(pj.Sigmoid(np.float64(0), np.float64(0)).inverse(0.5))
    np.testing.assert_allclose(jax.jit(sigmoid.inverse)(jnp.float32(0.5)), [0.5, 6.0], rtol=1e-6)


def test_undersampled_negatives_are_put_right(rng):
    scores = rng.normal(size=400_000)
    labels = rng.random(len(scores)) < expit(1.5 * scores - 4)
    kept = labels | (rng.random(len(scores)) < 0.1)
    whole, part = pj.fit(scores, labels), pj.fit(scores[kept], labels[kept])
    shifted = part.sigmoid.shift_prior(labels[kept].mean(), labels.mean())
    assert abs(shifted.B - whole.B) < 4 * whole.standard_errors[1]
    assert abs(part.B - whole.B) > 20 * whole.standard_errors[1]


@pytest.mark.parametrize("rates", [(0.0, 0.5), (0.5, 1.0), (0.5, np.nan), ("a", 0.5)])
def test_rates_that_are_none_are_refused(rates):
    with pytest.raises(ValueError, match="_rate: expected numbers"):
        pj.Sigmoid(np.float64(-1), np.float64(0)).shift_prior(*rates)
