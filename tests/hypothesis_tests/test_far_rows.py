"""Tests of rows that lie much farther out than the rows that a curve was fitted to."""

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj


def _drawn(fit, scores, labels):
    """How often labels of a curve drawn by the fit are as far from the expected number."""
    rng = np.random.default_rng(0)
    A, B = rng.multivariate_normal([fit.A[0], fit.B[0]], fit.covariance[0], 400_000).T
    proba = expit(-(A[:, None] * scores + B[:, None]))
    number, expected = (rng.random(proba.shape) < proba).sum(1), proba.mean(0).sum()
    return np.mean(np.abs(number - expected) >= np.abs(labels.sum() - expected) - 1e-9)


@pytest.mark.parametrize("rows", [3, 5])
@pytest.mark.parametrize("far", [100, 1000, 5000])
@pytest.mark.parametrize("places", [(1.0, -1.0), (1.0, -1.0, 2.0)])
def test_a_p_value_allows_for_the_curves_without_a_slope(rows, far, places):
    """All others are sure of both labels. Rows that nearly coincide say little of a slope."""
    f, y = np.repeat([0.0, 4e-4], rows), np.repeat([1, 0], rows)
    calibrator = pj.fit_segments(f, y, np.zeros(2 * rows, int))
    (slope, cross), _ = calibrator.fit.covariance[0]
    half_width = np.sqrt(np.linalg.det(calibrator.fit.covariance[0])) / slope
    scores = -cross / slope + far * half_width * np.array(places)
    labels = np.ones(len(scores), int)
    found = pj.triage(calibrator, scores, labels, np.zeros(len(scores), int))["p_value"][0]
    drawn = _drawn(calibrator.fit, scores, labels)
    # The curves of Platt's targets are not normal: up to 50 times as few are flat.
    assert drawn / 100 < found < 3 * drawn


def test_far_rows_of_a_curve_that_is_known_are_contradicted():
    rng = np.random.default_rng(1)
    f = rng.normal(size=2000)
    y = rng.random(2000) < expit(2 * f)
    calibrator = pj.fit_segments(f, y, np.zeros(2000, int))
    scores = np.array([-900.0, 800, 1000, 700])
    found = pj.triage(calibrator, scores, scores < 0, np.zeros(4, int))
    assert found["p_value"][0] < 1e-30


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("against", ["fit", "predictions"])
def test_a_positive_where_hardly_any_is_expected_is_no_overflow(against):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200)
    calibrator = pj.fit_segments(scores, rng.random(200) < expit(scores), np.zeros(200, int))
    far = (713 - calibrator.fit.B) / calibrator.fit.A
    tests = pj.triage(calibrator, far, [1], [0], against=against)
    assert 0 < tests["expected"][0] < 1e-308
    assert tests["ratio"][0] == np.inf
