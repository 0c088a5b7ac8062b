"""Confidence bands, thresholds and shifts of the base rate."""

import math
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from data import labels_of, problem
from scipy import stats
from scipy.special import expit, logit

import platt_jax as pj
from platt_jax import Sigmoid
from platt_jax.results.averages import mean_probability


def oracle(one, scores, critical):
    """A band by plain loops in 50 digits, for a single fit."""
    lower, upper = [], []
    with mpmath.workdps(50):
        C = mpmath.matrix(np.asarray(one.covariance, np.float64).tolist())
        for f in scores:
            x = mpmath.matrix([float(f), 1])
            reach = critical * mpmath.sqrt((x.T * C * x)[0])
            center = -(mpmath.mpf(float(one.A)) * float(f) + mpmath.mpf(float(one.B)))
            for ends, z in ((lower, center - reach), (upper, center + reach)):
                ends.append(float(1 / (1 + mpmath.exp(-z))))
    return np.array(lower), np.array(upper)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("simultaneous", [False, True])
def test_band_of_one_fit(rng, dtype, level, simultaneous):
    scores, labels = problem(rng, 80)
    one = pj.fit(scores.astype(dtype), labels)
    at = np.linspace(-5, 5, 21).astype(dtype)
    critical = (
        math.sqrt(stats.chi2.ppf(level, 2)) if simultaneous else stats.norm.isf((1 - level) / 2)
    )
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    for found, expected in zip(
        one.band(at, level, simultaneous), oracle(one, at, critical), strict=True
    ):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=tolerance)


def test_critical_values():
    """Figures from tables: 1.960 and, for two parameters, 2.448."""
    one = replace(
        pj.fit([1.0, 2, 3, 4], [0, 1, 0, 1]), A=np.float64(0), B=np.float64(0), covariance=np.eye(2)
    )
    for simultaneous, critical in ((False, 1.959964), (True, 2.447747)):
        lower, upper = one.band([0.0], simultaneous=simultaneous)
        np.testing.assert_allclose([lower[0], upper[0]], expit([-critical, critical]), rtol=1e-6)


def test_a_batch_is_a_loop_of_singles(rng):
    scores, labels = problem(rng, (2, 3, 40))
    batch = pj.fit(scores, labels)
    lower, upper = batch.band(scores)
    assert lower.shape == upper.shape == (2, 3, 40)
    assert ((lower < batch.predict_proba(scores)) & (batch.predict_proba(scores) < upper)).all()
    for i, j in np.ndindex(2, 3):
        one = jax.tree.map(lambda x: x[i, j], batch)  # noqa: B023
        for whole, single in zip((lower, upper), one.band(scores[i, j]), strict=True):
            np.testing.assert_array_equal(whole[i, j], single)
    for ends, at in zip(batch.band(0.5), batch.band(np.full((2, 3, 1), 0.5)), strict=True):
        np.testing.assert_array_equal(ends, at[..., 0])


def test_segments_and_those_never_seen(rng):
    scores, labels = problem(rng, 90)
    segments = np.array(["a", "b", "c"])[np.arange(90) % 3]
    calibrator = pj.fit_segments(scores, labels, segments)
    asked = np.array(["c", "never", "a"])[np.arange(90) % 3]
    pooled = pj.fit(scores, labels)
    for simultaneous in (False, True):
        found = calibrator.band(scores, asked, 0.9, simultaneous)
        for segment, of_segment in (
            ("a", calibrator["a"]),
            ("c", calibrator["c"]),
            ("never", pooled),
        ):
            rows = asked == segment
            for ends, expected in zip(
                found, of_segment.band(scores[rows], 0.9, simultaneous), strict=True
            ):
                np.testing.assert_allclose(ends[rows], expected, rtol=1e-9)
    for one_for_all, by_row in zip(
        calibrator.band(scores, "b"), calibrator.band(scores, ["b"] * 90), strict=True
    ):
        np.testing.assert_array_equal(one_for_all, by_row)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_fallback_covariance_is_that_of_the_pooled_fit(rng, dtype, tmp_path):
    scores, labels = problem(rng, 60)
    scores = scores.astype(dtype)
    calibrator = pj.fit_segments(scores, labels, np.arange(60) % 4)
    assert calibrator.fallback_covariance.dtype == dtype
    np.testing.assert_allclose(
        calibrator.fallback_covariance, pj.fit(scores, labels).covariance, rtol=1e-4
    )
    pj.save(tmp_path / "file.npz", calibrator)
    loaded = pj.load(tmp_path / "file.npz")
    np.testing.assert_array_equal(loaded.fallback_covariance, calibrator.fallback_covariance)
    made_by_hand = pj.SegmentCalibrator(calibrator.keys, calibrator.fit, calibrator.fallback)
    lower, _ = made_by_hand.band([0.0, 0.0], [0, 9])
    assert np.isfinite(lower[0]) and np.isnan(lower[1])


def test_classes_each_on_their_own(rng):
    scores = rng.normal(size=(50, 3))
    calibrator = pj.fit_one_vs_rest(scores, np.arange(50) % 3)
    lower, upper = calibrator.band(scores, 0.8)
    proba = calibrator.predict_proba(scores, normalize=False)
    assert lower.shape == upper.shape == (50, 3) and ((lower < proba) & (proba < upper)).all()
    for c in range(3):
        for ends, expected in zip(
            (lower, upper), calibrator[c].band(scores[:, c], 0.8), strict=True
        ):
            np.testing.assert_array_equal(ends[:, c], expected)
    with pytest.raises(ValueError, match=r"scores: expected shape \(N, 3\)"):
        calibrator.band(scores[:, :2])


def test_levels_that_are_none(rng):
    scores, labels = problem(rng, 30)
    by_segment = pj.fit_segments(scores, labels, labels)
    by_class = pj.fit_one_vs_rest(np.stack([-scores, scores], -1), labels)
    for level in (0, 1, -0.5, 95, float("nan"), "0.95", None):
        for band, more in (
            (by_segment[0].band, ()),
            (by_segment.band, (labels,)),
            (by_class.band, ()),
        ):
            at = np.stack([-scores, scores], -1) if band == by_class.band else scores
            with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\), got "):
                band(at, *more, level)


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_unknown_covariances_give_nan(rng):
    scores, labels = problem(rng, (3, 30))
    scores[0] = 2.0
    scores[1, 3] = np.nan
    lower, upper = pj.fit(scores, labels).band(np.zeros((3, 2)))
    for ends in (lower, upper):
        assert np.isnan(ends[:2]).all() and np.isfinite(ends[2]).all()
    lower, upper = pj.fit(scores[2], labels[2]).band([np.nan, 0.0])
    assert np.isnan(lower[0] + upper[0]) and np.isfinite([lower[1], upper[1]]).all()


def test_predictions_and_bands_at_far_and_infinite_scores_are_limits(rng, dtype):
    """Squares of far scores overflowed: a band from 0 to 1, or a mean of 1/2. 0 inf was NaN."""
    most = 1e37 if dtype == np.float32 else 1e300
    at = np.tile(np.array([-np.inf, -most, -1e15, 1e15, most, np.inf], dtype), (3, 1))
    # A sure slope, one that may be 0, and none; then a slope that is known.
    A, C = np.array([-2, -0.1, 0], dtype), np.zeros((3, 2, 2), dtype)
    C[:, 0, 0], C[:, 1, 1] = [0.01, 1, 0], 0.04
    one = replace(pj.fit(*problem(rng, (3, 30))), A=A, B=np.zeros(3, dtype), covariance=C)
    shift = replace(one, A=A - 1, covariance=C * [[0, 0], [0, 1]])
    sure, flat = [0, 0, 0, 1, 1, 1], np.full(6, 0.5)
    low, high = expit(1.959963984540054 * 0.2 * np.array([-1, 1]))
    np.testing.assert_array_equal(one.predict_proba(at), [sure, sure, flat])
    lower, upper = one.band(at)
    np.testing.assert_allclose(lower, [sure, np.zeros(6), np.full(6, low)], rtol=1e-6)
    np.testing.assert_allclose(upper, [sure, np.ones(6), np.full(6, high)], rtol=1e-6)
    np.testing.assert_array_equal(shift.band(at), np.full((2, 3, 6), sure))
    normal = np.column_stack([A, np.zeros(3), C[:, 0, 0], C[:, 0, 1], C[:, 1, 1]]).repeat(6, 0)
    mean = mean_probability(at.ravel().astype(float), normal).reshape(3, 6)
    unsure = stats.norm.cdf([-0.1, 0.1]).repeat(3)
    np.testing.assert_allclose(mean, [sure, unsure, flat], rtol=1e-6, atol=1e-12)
    there = Sigmoid(jnp.zeros(1), jnp.ones(1)).predict_proba(jnp.array([[-jnp.inf, 1, jnp.inf]]))
    np.testing.assert_allclose(there, np.full((1, 3), expit(-1.0)), rtol=1e-6)


@pytest.mark.parametrize("shift", [1e3, 1e6])
def test_scores_far_from_0_do_not_make_the_band_too_narrow(rng, dtype, shift):
    """The terms of the variance cancel there; rounding alone left a variance of 0, or less."""
    scores, labels = problem(rng, 200)
    shifted = (scores + shift).astype(dtype)
    exact = pj.fit(shifted.astype(np.float64) - shift, labels)
    at = np.unique(shifted)
    expected = exact.band(at.astype(np.float64) - shift)
    found = pj.fit(shifted, labels).band(at)
    width, expected_width = (
        logit(x[1].astype(np.float64)) - logit(x[0].astype(np.float64)) for x in (found, expected)
    )
    if dtype == np.float64:
        np.testing.assert_allclose(width, expected_width, rtol=1e-2)
    finite = np.isfinite(width)
    assert (width[finite] > 0.9 * expected_width[finite]).all()


def test_integers_do_not_overflow(rng):
    scores = rng.integers(-100, 100, 200).astype(np.int8)
    one = pj.fit(scores, labels_of(rng, scores / 30.0))
    for found, expected in zip(one.band(scores), one.band(scores.astype(np.float64)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_bands_inside_a_program(rng):
    scores, labels = problem(rng, (2, 40))
    scores = scores.astype(np.float32)

    @jax.jit
    def run(scores):
        return pj.solve(scores, labels).band(scores, simultaneous=True)

    on_host = pj.fit(scores, labels).band(scores, simultaneous=True)
    for found, expected in zip(run(jnp.asarray(scores)), on_host, strict=True):
        assert isinstance(found, jax.Array)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    mixed = pj.fit(scores, labels).band(jnp.asarray(scores))
    assert isinstance(mixed[0], jax.Array)


# --- thresholds and base rates --------------------------------------------------------------------


def test_inverse_undoes_predict_proba(rng, dtype):
    sigmoid = Sigmoid(*rng.normal(size=(2, 3, 1)).astype(dtype)[:, :, 0])
    scores = rng.normal(size=(3, 50)).astype(dtype)
    tolerance = 1e-10 if dtype == np.float64 else 1e-2
    back = sigmoid.inverse(sigmoid.predict_proba(scores))
    assert back.dtype == dtype
    np.testing.assert_allclose(back, scores, rtol=tolerance, atol=tolerance)
    assert sigmoid.inverse(0.25).shape == (3,)
    np.testing.assert_allclose(
        sigmoid.predict_proba(sigmoid.inverse(0.25)[:, None]), 0.25, rtol=1e-6
    )
    np.testing.assert_allclose(
        jax.jit(Sigmoid.inverse)(sigmoid, jnp.asarray(np.array(0.25, dtype))),
        sigmoid.inverse(0.25),
        rtol=1e-5,
    )


def test_inverse_at_the_ends():
    assert Sigmoid(-2.0, 1.0).inverse([0, 1]).tolist() == [-np.inf, np.inf]
    assert Sigmoid(2.0, 1.0).inverse([0, 1]).tolist() == [np.inf, -np.inf]
    assert np.isnan(Sigmoid(0.0, 1.0).inverse([0, 0.3, 1])).all()
    assert np.isnan(Sigmoid(np.zeros(2), np.ones(2)).inverse([[0.3], [0.4]])).all()
    assert np.isnan(Sigmoid(-1.0, 0.0).inverse(np.nan))
    tiny = Sigmoid(-1.0, 0.0).inverse(1e-300)
    assert tiny == pytest.approx(-300 * math.log(10))
    for bad in (1.5, [-0.1], jnp.array([0.5, 2.0])):
        with pytest.raises(ValueError, match=r"proba: expected probabilities in \[0, 1\], got "):
            Sigmoid(-1.0, 0.0).inverse(bad)
    with pytest.raises(ValueError, match=r"proba: expected \(..., N\)"):
        Sigmoid(np.zeros(2), np.ones(2)).inverse(np.full((3, 4), 0.5))


def test_shift_prior_is_bayes_rule_on_the_rates(rng, dtype):
    """By likelihood ratios: the odds times the ratio of the rates' odds."""
    sigmoid = Sigmoid(*rng.normal(size=(2, 4)).astype(dtype))
    old, new = rng.uniform(0.01, 0.99, (2, 4))
    shifted = sigmoid.shift_prior(old, new)
    assert shifted.A is sigmoid.A and shifted.B.dtype == dtype
    p = sigmoid.predict_proba(np.linspace(-2, 2, 9).astype(dtype)[None].repeat(4, 0))
    class_1, class_0 = p * (new / old)[:, None], (1 - p) * ((1 - new) / (1 - old))[:, None]
    np.testing.assert_allclose(
        shifted.predict_proba(np.linspace(-2, 2, 9).astype(dtype)[None].repeat(4, 0)),
        class_1 / (class_1 + class_0),
        rtol=1e-12 if dtype == np.float64 else 1e-5,
    )
    there_and_back = shifted.shift_prior(new, old)
    np.testing.assert_allclose(there_and_back.B, sigmoid.B, rtol=1e-5)
    assert sigmoid.shift_prior(0.5, 0.1).B.shape == (4,)
    traced = jax.jit(lambda s: s.shift_prior(0.5, 0.1))(sigmoid)
    np.testing.assert_allclose(traced.B, sigmoid.shift_prior(0.5, 0.1).B, rtol=1e-5)


@pytest.mark.slow
def test_shift_prior_mends_undersampling(rng):
    """Of all negatives a tenth: the shifted fit is that of all rows."""
    scores = rng.normal(size=100_000)
    labels = labels_of(rng, 2 * scores - 4)
    kept = labels | (rng.random(len(scores)) < 0.1)
    fitted = pj.fit(scores[kept], labels[kept])
    shifted = fitted.sigmoid.shift_prior(labels[kept].mean(), labels.mean())
    whole = pj.fit(scores, labels)
    assert abs(shifted.B - whole.B) < 4 * fitted.standard_errors[1]
    assert abs(fitted.B - whole.B) > 20 * fitted.standard_errors[1]


@pytest.mark.parametrize("rate", [0, 1, -0.1, 5, float("nan"), [0.5, 0], "half"])
def test_rates_that_are_none(rate):
    with pytest.raises(ValueError, match="from_rate: expected numbers"):
        Sigmoid(-1.0, 0.0).shift_prior(rate, 0.5)
    with pytest.raises(ValueError, match="to_rate: expected numbers"):
        Sigmoid(-1.0, 0.0).shift_prior(0.5, rate)
    with pytest.raises(ValueError, match="from_rate, to_rate: expected shapes"):
        Sigmoid(-1.0, 0.0).shift_prior([0.5, 0.4], 0.5)


@pytest.mark.parametrize("scores", [[True, False], np.array([-128, 127], np.int8)])
def test_scores_that_are_no_floats(scores, rng):
    f = rng.normal(size=50)
    calibrator = pj.fit_segments(f, rng.random(50) < 0.5, np.arange(50) % 2)
    found = calibrator.band(np.asarray(scores), [0, 1])
    expected = calibrator.band(np.asarray(scores, float), [0, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-160, 1e-100, 1e100, 1e150, 1e160, 1e300])
def test_a_band_in_any_unit_is_the_same_or_nan(unit, rng):
    """Above 1e154 the variance of the slope is 0 in float64, and the band would be too narrow."""
    scores = rng.normal(size=300)
    labels, segments = labels_of(rng, 1.5 * scores), np.arange(300) % 2
    expected = pj.fit_segments(scores, labels, segments).band(scores, segments)
    made = pj.fit_segments(unit * scores, labels, segments)
    found = made.band(unit * scores, segments)
    if 1e-150 < unit < 1e154:
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        assert np.isnan(found).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tested = pj.triage(made, unit * scores, 1 - labels, segments)["p_value"]
    assert (np.isnan(tested) | (tested < 1e-9)).all()


@pytest.mark.parametrize(("curve", "unit"), [("beta", 1e-20), ("quadratic", 3e37)])
def test_curves_of_far_units_give_no_warning_of_numpy(curve, unit, rng):
    """Warnings are errors here."""
    scores, segments = rng.normal(size=300), np.arange(300) % 2
    labels = labels_of(rng, scores)
    made = pj.fit_segments((unit * scores).astype(np.float32), labels, segments, curve=curve)
    far = pj.fit_segments(1e300 * scores, labels, segments, curve=curve)
    assert made.threshold(0.5).shape == far.threshold(0.5).shape == (2,)
