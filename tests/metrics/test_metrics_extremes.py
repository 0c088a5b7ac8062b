"""Metrics of weights of any size, of probabilities of 0 and 1, and with the classes exchanged."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import platt_jax as pj
from platt_jax import metrics

SCALE_FREE = {
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "brier_decomposition": metrics.brier_decomposition,
    "ece": metrics.expected_calibration_error,
    "ece mass": partial(metrics.expected_calibration_error, strategy="quantile"),
    "mce": metrics.maximum_calibration_error,
    "smooth_ece": metrics.smooth_ece,
    "roc_auc": metrics.roc_auc,
}
OF_COUNTS = {
    "reliability_curve": metrics.reliability_curve,
    "ece_by_chance": metrics.ece_by_chance,
    "ece_interval": metrics.ece_interval,
    "spiegelhalter": metrics.spiegelhalter,
    "hosmer_lemeshow": metrics.hosmer_lemeshow,
    "cox_calibration": metrics.cox_calibration,
    "isotonic_curve": partial(metrics.isotonic_curve, replicates=2),
    "smooth_curve": metrics.smooth_curve,
    "expected": lambda labels, proba, weights: metrics.expected(proba, weights=weights),
    "multicalibration_error": partial(metrics.multicalibration_error, replicates=2),
    **{
        name: partial(
            lambda metric, labels, proba, weights: metric(
                labels, proba, np.arange(len(proba)) % 3, weights=weights
            ),
            getattr(metrics, name),
        )
        for name in ("field_calibration_error", "field_relative_error", "field_squared_error")
    },
}
# Dyadic ones, of which 1 - p is exact. 1/2 is an edge of bins, which are closed on one side.
DYADIC = st.integers(0, 2**20 - 1).map(lambda k: (2 * k + 1) / 2**21)
PROBABILITIES = st.one_of(DYADIC, st.sampled_from([0.0, 1.0, 0.25, 0.25]))
ANY = st.one_of(PROBABILITIES, st.sampled_from([1e-17, 1 - 2**-53, 0.5]))
HOSTILE = st.one_of(ANY, st.just(1e-310))
WEIGHTS = st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.1, 1e-300, 1e-320, 1e300, 1e308, 1e18])

few_examples = settings(max_examples=10, deadline=None)
of_clipped = pytest.mark.filterwarnings("ignore:proba. probabilities of 0 or 1")
of_no_curve = pytest.mark.filterwarnings("ignore:labels. .*smooth curve")


def leaves(result, name=""):
    """Every array of a result by its name."""
    if hasattr(result, "_asdict"):
        result = result._asdict()
    if not hasattr(result, "items"):
        return {name: np.asarray(result)}
    return {k: x for key, part in result.items() for k, x in leaves(part, f"{name}.{key}").items()}


@pytest.mark.parametrize("name", SCALE_FREE)
@few_examples
@given(
    rows=st.lists(st.tuples(st.booleans(), ANY, st.integers(0, 3)), min_size=1, max_size=20),
    power=st.integers(-1070, 1020),
)
def test_the_scale_of_the_weights_does_not_matter(name, rows, power):
    labels, proba, weights = (np.array(x) for x in zip(*rows, strict=True))
    once, scaled = (
        SCALE_FREE[name](labels, proba, weights=np.ldexp(1.0, k) * weights) for k in (0, power)
    )
    for key, x in leaves(once).items():
        np.testing.assert_array_equal(leaves(scaled)[key], x)


@of_clipped
@of_no_curve
@pytest.mark.parametrize("name", [*SCALE_FREE, *OF_COUNTS])
@few_examples
@given(rows=st.lists(st.tuples(st.booleans(), HOSTILE, WEIGHTS), min_size=1, max_size=12))
def test_no_weight_overflows(name, rows):
    """Warnings are errors, probabilities are probabilities, and errors are not negative."""
    labels, proba, weights = (np.array(x) for x in zip(*rows, strict=True))
    found = leaves((SCALE_FREE | OF_COUNTS)[name](labels, proba, weights=weights))
    for key, x in found.items():
        if x.dtype.kind != "f":
            continue
        unsigned = key in ("", ".value", ".by_chance") and name != "field_squared_error"
        if unsigned or key.endswith(("p_value", "prob_true", "prob_pred", "rate.value")):
            assert np.all((x >= -1e-12) | np.isnan(x))
        if key.endswith(("p_value", "prob_true", "prob_pred")) or "rate." in key:
            assert np.all((x <= 1 + 1e-12) | np.isnan(x)), key
    counted = weights > 0
    if name in SCALE_FREE and name != "roc_auc" and counted.any():
        assert all(np.isfinite(x).all() for x in found.values())


@pytest.mark.parametrize("name", [*SCALE_FREE, "ece_by_chance", "ece_interval", "spiegelhalter"])
@few_examples
@given(rows=st.lists(st.tuples(st.booleans(), PROBABILITIES, st.integers(0, 3)), min_size=1))
def test_either_class_may_be_called_1(name, rows):
    if name == "ece mass":
        rows = rows[:1]  # a row on an edge between bins belongs to that above it
    labels, proba, weights = (np.array(x) for x in zip(*rows, strict=True))
    metric = (SCALE_FREE | OF_COUNTS)[name]
    one, other = metric(labels, proba, weights=weights), metric(~labels, 1 - proba, weights=weights)
    for key, x in leaves(one).items():
        np.testing.assert_allclose(leaves(other)[key], x, rtol=1e-9, atol=1e-12)


def test_either_class_of_tests_over_groups_may_be_called_1(rng):
    proba = (2 * rng.permutation(2**10)[:64] + 1) / 2**11  # of an even number no row is on an edge
    labels = rng.random(64) < proba**2
    one, other = metrics.hosmer_lemeshow(labels, proba), metrics.hosmer_lemeshow(~labels, 1 - proba)
    np.testing.assert_allclose(one, other, rtol=1e-9)
    proba[:3], labels[:3] = [0.0, 1.0, 1e-30], [True, False, True]
    with pytest.warns(RuntimeWarning, match="from_logits"):
        one = metrics.cox_calibration(labels, proba)
    with pytest.warns(RuntimeWarning, match="from_logits"):
        other = metrics.cox_calibration(~labels, 1 - proba)
    np.testing.assert_allclose(other.slope, one.slope, rtol=1e-6)
    np.testing.assert_allclose(other.intercept, -one.intercept, rtol=1e-6)
    np.testing.assert_allclose(other.joint_test, one.joint_test, rtol=1e-6)
    of_logits = metrics.cox_calibration(labels, pj.logit(proba), from_logits=True)
    assert one.slope == of_logits.slope and one.joint_test == of_logits.joint_test


def test_log_odds_of_certainties_are_opposite(dtype):
    certain = pj.logit(np.array([0, 1], dtype))
    assert certain[0] == -certain[1] == pytest.approx(np.log(1e-12), rel=1e-7)


@of_clipped
@pytest.mark.parametrize("power", [-300, 300])
def test_tests_are_proportional_to_weights(rng, power):
    proba = rng.uniform(0.05, 0.95, 200)
    labels = rng.random(200) < proba**2
    many = np.full(200, np.ldexp(1.0, 2 * power))
    for test, factor in ((metrics.spiegelhalter, power), (metrics.hosmer_lemeshow, 2 * power)):
        once, scaled = test(labels, proba), test(labels, proba, weights=many)
        np.testing.assert_allclose(scaled.statistic, np.ldexp(once.statistic, factor), rtol=1e-12)
        assert scaled.p_value == pytest.approx(0 if power > 0 else 1)
    once, scaled = (metrics.cox_calibration(labels, proba, weights=w) for w in (None, many))
    np.testing.assert_allclose(scaled.slope, once.slope, rtol=1e-6)
    np.testing.assert_allclose(scaled.se_slope, np.ldexp(once.se_slope, -power), rtol=1e-6)
    np.testing.assert_allclose(
        scaled.joint_test.statistic, np.ldexp(once.joint_test.statistic, 2 * power), rtol=1e-6
    )


@pytest.mark.parametrize("weight", [1.0, 0.5, 1e-6, 1e-300])
def test_chance_never_exceeds_two_labels_far_apart(weight):
    """One row of weight w: as a label, 2 p (1 - p); no number in [0, w] is farther off."""
    found = metrics.ece_by_chance([1], [0.2], weights=weight)
    assert found == pytest.approx(2 * 0.2 * 0.8)


def test_a_million_times_a_million_rows_have_a_band(rng):
    proba = rng.uniform(0.05, 0.95, 300)
    labels = rng.random(300) < proba
    curve, many = (metrics.isotonic_curve(labels, proba, weights=w) for w in (None, 1e300))
    np.testing.assert_allclose(many.prob_true, curve.prob_true, rtol=1e-12)
    np.testing.assert_allclose([many.lower, many.upper], [many.prob_pred] * 2, atol=1e-7)


@pytest.mark.parametrize("value", [0.4, 1e-9])
def test_equal_probabilities_have_the_band_of_a_mean(value):
    labels = np.arange(90) % 3 == 0
    curve = metrics.smooth_curve(labels, np.full(90, value))
    reach = stats.norm.ppf(0.975) / np.sqrt(90 / 3 * 2 / 3)
    expected = 1 / (1 + np.exp(np.log(2) + reach * np.array([1, 0, -1])))
    np.testing.assert_allclose([curve.lower, curve.prob_true, curve.upper], expected[:, None])
    assert curve.prob_pred == pytest.approx(value)


def test_nearly_equal_probabilities_have_a_curve(rng):
    logit = 30 + 1e-9 * rng.normal(size=500)
    labels = rng.random(500) < 1 / (1 + np.exp((30 - logit) * 1e9))
    narrow = metrics.smooth_curve(labels, logit, from_logits=True)
    wide = metrics.smooth_curve(labels, (logit - 30) * 1e9, from_logits=True)
    np.testing.assert_allclose(narrow.prob_true, wide.prob_true, rtol=1e-6)
    np.testing.assert_allclose(narrow.lower, wide.lower, rtol=1e-6)


@pytest.mark.parametrize("split", [lambda p: p > 0.5, lambda p: p < 0.2])
def test_a_smooth_curve_of_classes_apart_is_nan(split):
    proba = np.linspace(0.1, 0.9, 60)
    with pytest.warns(RuntimeWarning, match="threshold of proba splits the classes") as told:
        curve = metrics.smooth_curve(split(proba), proba)
    assert told[0].filename == __file__
    assert np.isnan([curve.prob_true, curve.lower, curve.upper]).all()
    assert np.isfinite(curve.prob_pred).all()
