"""Which segments have changed since they were fitted: p-values, and discoveries, where known."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from data import curves, few_rows, labels_of, rows_of
from scipy.special import expit, log_ndtr, ndtr
from scipy.stats import binom, fisher_exact, norm

import platt_jax as pj
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.count_tails import quantiles
from platt_jax.hypothesis_tests.count_tests import (
    LARGE,
    CountTests,
    axes_of,
    large_tails,
    log_tails,
)
from platt_jax.hypothesis_tests.curve_distributions import LogBeta, Normal
from platt_jax.hypothesis_tests.posteriors import SegmentPosteriors, posteriors
from platt_jax.hypothesis_tests.segment_tests import FreshRows, judged
from platt_jax.population.gaussians import NormalMoments

pytestmark = few_rows


def population(rng, K, rare=False):
    """The slopes and intercepts of K segments."""
    return curves(rng, K, *(((1.0, -5.0), (0.3, 1.0)) if rare else ((1.5, 0.5), (0.4, 1.0))))


def rows_from(rng, known, n, shift=0.0):
    """n rows of each of these curves, the log-odds shifted."""
    slope, intercept = known
    return rows_of(rng, np.repeat(np.arange(len(slope)), n), -slope, -intercept - shift)


def p_values(seed, K, fitted, judged, pooling, unseen=False, rare=False):
    """Of segments of which none has changed."""
    rng = np.random.default_rng(seed)
    known = population(rng, K, rare)
    calibrator = pj.fit_segments(*rows_from(rng, known, fitted), pooling=pooling)
    if unseen:
        scores, labels, segments = rows_from(rng, population(rng, K, rare), judged)
        return pj.triage(calibrator, scores, labels, segments + K)
    return pj.triage(calibrator, *rows_from(rng, known, judged))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        dict(fitted=10, judged=100, pooling="none"),
        dict(fitted=10, judged=100, pooling="partial"),
        dict(fitted=10, judged=100, pooling="partial", unseen=True),
        dict(fitted=30, judged=300, pooling="partial"),
        dict(fitted=100, judged=500, pooling="none", rare=True),
        dict(fitted=3, judged=100, pooling="partial", rare=True),
    ],
    ids=str,
)
def test_segments_that_have_not_changed_are_not_flagged(cell):
    made = p_values(1, 600, **cell)
    assert made["flagged"].sum() == 0
    for level in (0.1, 0.01):
        error = np.sqrt(level * (1 - level) / 600)
        assert (made["p_value"] <= level).mean() < level + 3 * error


SURE_SLOPE = pj.GaussianPrior([-1.0, 0.0], np.diag([1e6, 0.0]))


@pytest.mark.parametrize(
    ("rows", "rate", "how"),
    [
        pytest.param(40, -1.5, dict(curve="shift"), id="shift"),
        pytest.param(40, -1.5, dict(prior=SURE_SLOPE), id="prior"),
        pytest.param(20, 0.0, dict(options=pj.Options(targets="none")), id="labels as they are"),
    ],
)
def test_however_curves_were_fitted_only_changed_segments_have_small_p_values(rng, rows, rate, how):
    """Slopes may be known, and targets be the labels."""
    known = np.ones(600), np.full(600, rate)
    calibrator = pj.fit_segments(*rows_from(rng, known, rows), **how)
    same, moved = (pj.triage(calibrator, *rows_from(rng, known, 300, x)) for x in (0.0, 2.0))
    assert (same["p_value"] < 0.05).mean() < 0.05
    assert (moved["p_value"] < 0.05).mean() > 0.6


def sure_rows(rng, rows, wrong, spread):
    """Log-odds 33 to 33 + spread away from 0, and labels of which as many are wrong at each end."""
    log_odds = np.sort(np.r_[-33, 33].repeat(rows // 2) * 1.0)
    log_odds += np.sign(log_odds) * rng.uniform(1, spread, rows)
    labels = log_odds > 0
    for end in (0, rows // 2):
        labels[end + rng.choice(rows // 2, wrong, replace=False)] ^= True
    return log_odds, labels


def test_wrong_labels_of_sure_rows_are_found_in_any_company():
    """Beside a larger segment half of the labels could be wrong without a small p-value."""
    rng = np.random.default_rng(0)
    segments = np.repeat([0, 1], 4_000)
    scores = rng.uniform(-6, 6, 8_000)
    calibrator = pj.fit_segments(scores, labels_of(rng, scores), segments)
    sure = sure_rows(rng, 40, 10, 30)
    alone = pj.triage(calibrator, *sure, np.zeros(40, int))
    scores = rng.uniform(-6, 6, 20_000)
    others = scores, labels_of(rng, scores), np.ones(20_000, int)
    rows = [np.concatenate(x) for x in zip((*sure, np.zeros(40, int)), others, strict=True)]
    beside = pj.triage(calibrator, *rows)
    assert beside["segment"][0] == 0 and beside["flagged"][0]
    assert beside["p_value"][0] == alone["p_value"][0] < 1e-100


def test_one_wrong_label_at_each_end_of_sure_rows_is_found_wherever_it_is():
    """Two wrong labels among the inner rows left the number of positives, so p-values were 1."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(-6, 6, 100_000)
    segments = np.arange(100_000) % 100
    calibrator = pj.fit_segments(scores, labels_of(rng, scores), segments)
    fresh = [sure_rows(rng, rows, 1, 4) for rows in (10, 20, 40, 100) for _ in range(25)]
    sizes = [len(x) for x, _ in fresh]
    rows = *(np.concatenate(x) for x in zip(*fresh, strict=True)), np.repeat(np.arange(100), sizes)
    assert pj.triage(calibrator, *rows)["p_value"].max() < 1e-10


def test_few_labels_of_a_class_say_little_of_a_slope():
    """Of scores with heavy tails, p-values were up to 200 times too small at 1e-4."""
    rng = np.random.default_rng(0)
    fitted, fresh = (np.repeat(np.arange(4_000), n) for n in (8, 40))
    data = []
    for segments in (fitted, fresh):
        scores = rng.standard_t(2, len(segments))
        data.append((scores, labels_of(rng, 2.5 * scores + 2), segments))
    p = pj.triage(pj.fit_segments(*data[0]), *data[1])["p_value"]
    assert (p <= 0.01).mean() < 0.01 and p.min() > 1e-4


@pytest.mark.slow
def test_of_few_segments_the_population_is_not_taken_for_known():
    flagged = [
        p_values(seed, 5, 30, 200, "partial", unseen)["flagged"].any()
        for seed in range(20)
        for unseen in (False, True)
    ]
    assert np.mean(flagged) <= 0.05 + 3 * np.sqrt(0.05 / 40)


@pytest.mark.slow
def test_segments_fitted_on_many_rows_are_found_as_against_the_predictions():
    rng = np.random.default_rng(2)
    known = population(rng, 300)
    shift = np.where(np.arange(300) < 15, 1.0, 0.0)
    fresh = rows_from(rng, known, 200, shift)
    for pooling in ("none", "partial"):
        calibrator = pj.fit_segments(*rows_from(rng, known, 4_000), pooling=pooling)
        by_fit = pj.triage(calibrator, *fresh)
        by_predictions = pj.triage(calibrator, *fresh, against="predictions")
        changed = [(x["flagged"] & (x["segment"] < 15)).sum() for x in (by_fit, by_predictions)]
        # A shift alone moves the number of positives most, so this may find more.
        assert changed[0] >= 10 and changed[0] >= changed[1] - 1
        assert (by_fit["flagged"] & (by_fit["segment"] >= 15)).sum() <= 2


def poisson_binomial(log_odds, least):
    """P(at least so many positives) for log-odds (..., n), by adding up positive numbers."""
    n = log_odds.shape[-1]
    chance = np.zeros((*log_odds.shape[:-1], n + 1))
    chance[..., 0] = 1
    for i in range(n):
        p, q = expit(log_odds[..., i, None]), expit(-log_odds[..., i, None])
        chance[..., 1:] = chance[..., 1:] * q + chance[..., :-1] * p
        chance[..., :1] *= q
    return chance[..., least:].sum(-1)


@pytest.mark.parametrize(("center", "spread"), [(0, 1), (-9, 0), (-5, 2), (3, 2), (0, 15), (50, 9)])
def test_tails_given_the_curve_are_those_of_sums_over_all_labels(center, spread):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 10, 100):
        log_odds = center + spread * rng.normal(size=n)
        if spread == 15:
            log_odds[::3] = -40 * (np.arange(len(log_odds[::3])) % 3)  # gaps
        least = np.arange(1, n + 1)
        z = quantiles(np.tile(log_odds, (n, 1)), np.ones((n, n)), least.astype(float))
        exact = np.array([poisson_binomial(log_odds, k) for k in least])
        known = exact > 1e-250
        assert known.any() and np.isfinite(z).all()
        ratio = np.exp(log_ndtr(-z[known])) / exact[known]
        assert 0.6 < ratio.min() and ratio.max() < 1.6, (n, ratio.min(), ratio.max())


def uncertain(kind, mean, deviation):
    """A distribution of the log-odds at the ends, and its log densities on two axes."""
    if kind == "normal":
        curves = Normal(mean[None], np.full((1, 2), deviation**2))
    else:
        p = expit(mean[None])
        labels = 1 / (8 * deviation**2) / np.stack([1 - p, p])
        curves = LogBeta(*np.maximum(labels + np.array([[[0.5]], [[0]]]), 0.1))
    low, high = curves.bounds(45.0)
    axes = np.stack([low[0] + (high - low)[0] * t for t in np.linspace(0, 1, 601)], -1)
    log_density = curves.log_density(axes[None])[0]
    weight = np.exp(log_density - log_density.max(1, keepdims=True))
    return curves, axes, weight / weight.sum(1, keepdims=True)


@pytest.mark.parametrize("kind", ["normal", "labels"])
@pytest.mark.parametrize("far", [0.0, 8.0])
@pytest.mark.parametrize("deviation", [0.1, 0.6])
def test_tails_under_uncertain_curves_are_those_of_dense_quadrature(kind, far, deviation):
    rng = np.random.default_rng(1)
    for n, mean in ((1, (1.3, -0.7)), (5, (0.2, -0.2)), (20, (-2.0, -4.0))):
        place = np.sort(rng.normal(size=n)) + far
        basis = np.stack([1 + place, 1 - place]) / 2
        curves, (first, second), weight = uncertain(kind, np.array(mean), deviation)
        some = slice(None, None, 4)
        log_odds = first[some, None, None] * basis[0] + second[some][:, None] * basis[1]
        chance = weight[0, some, None] * weight[1, some]
        for least in sorted({1, (n + 1) // 2, n}):
            tests = CountTests(
                basis[:, None], np.zeros((1, n)), np.ones((1, n)), np.array([float(least)]), None
            )
            exact = (chance * poisson_binomial(log_odds, least)).sum() / chance.sum()
            if exact > 1e-13:
                (found,) = np.exp(log_tails(tests, axes_of(curves, 40.0, np.arange(1))))
                assert 0.8 < found / exact < 1.25, (n, least, exact, found)
                (large,) = large_tails(tests, axes_of(curves, 8.0, np.arange(1)))
                z = quantiles(log_odds, np.ones(n), np.array(float(least)))
                given_curves = (chance * ndtr(-z)).sum() / chance.sum()
                if large >= LARGE:
                    assert 0.93 < large / given_curves < 1.07, (n, least, large, given_curves)
                else:
                    assert given_curves < 1.1 * LARGE


def fitted_curve():
    """A calibrator of one segment, with 2,000 rows of slope 1.5, and its draws."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2_000)
    calibrator = pj.fit_segments(scores, labels_of(rng, 1.5 * scores), np.zeros(2_000, int))
    A, B = calibrator.fit.A[0], calibrator.fit.B[0]
    return calibrator, np.array([A, B]), calibrator.fit.covariance[0]


@pytest.mark.parametrize("score", [6.0, 8.0, 35.0, 1e5])
def test_a_wrong_label_is_as_unlikely_as_the_prediction_is_sure(score):
    calibrator, mean, covariance = fitted_curve()
    z, weight = np.polynomial.hermite_e.hermegauss(60)
    place = np.array([score, 1.0])
    log_odds = -mean @ place + np.sqrt(place @ covariance @ place) * z
    for n in (1, 2, 5):
        some_wrong = -np.expm1(-n * np.logaddexp(0, -log_odds)) @ weight / weight.sum()
        labels = np.arange(n) > 0
        found = pj.triage(calibrator, np.full(n, score), labels, np.zeros(n, int))
        if some_wrong > 1e-13:
            # The curve's distribution is by labels: its tails are longer than normal ones.
            assert 0.7 * some_wrong < found["p_value"][0] < 2 * some_wrong
        else:
            assert found["p_value"][0] < 1e-12
    half = np.arange(200) % 2
    found = pj.triage(calibrator, np.full(200, score), half, np.zeros(200, int))
    assert found["p_value"][0] < 1e-100 and found["flagged"][0]


def test_of_curves_that_are_known_the_p_value_is_that_of_the_number_of_positives():
    rng = np.random.default_rng(11)
    log_odds = np.repeat(np.linspace(-1, 1, 20), 30)  # one score for each segment
    labels = labels_of(rng, 1.3 * log_odds + 0.5)
    rows = FreshRows(
        log_odds, expit(log_odds), labels, Groups(np.full(20, 30)), np.arange(20).astype(np.uint64)
    )
    covariance, nothing = np.tile(1e-8 * np.eye(2), (20, 1, 1)), np.zeros(20)
    curves = NormalMoments(np.tile([-1.0, 0.0], (20, 1)), covariance)
    exact = SegmentPosteriors(curves, nothing, nothing, True, 1e-16)
    found = judged(rows, exact)["p_value"]
    for k, p in enumerate(expit(log_odds[::30])):
        every = np.arange(31)
        as_far = np.abs(every - 30 * p) >= abs(labels.reshape(20, 30)[k].sum() - 30 * p) - 1e-9
        np.testing.assert_allclose(found[k], binom.pmf(every, 30, p)[as_far].sum(), rtol=0.05)


@pytest.mark.slow
def test_a_slope_that_has_changed_is_found():
    rng = np.random.default_rng(13)
    known = population(rng, 40)
    for pooling in ("none", "partial"):
        calibrator = pj.fit_segments(*rows_from(rng, known, 1_500), pooling=pooling)
        slope = known[0] * np.where(np.arange(40) < 5, 0.2, 1)
        made = pj.triage(calibrator, *rows_from(rng, (slope, known[1]), 500))
        assert set(made["segment"][:4]) <= set(range(5)) and made["flagged"].sum() in range(4, 7)


def test_no_rows_give_no_lines():
    calibrator, *_ = fitted_curve()
    none, one = pj.triage(calibrator, [], [], []), pj.triage(calibrator, [1.0], [1], [0])
    assert list(none) == list(one) and {len(x) for x in none.values()} == {0}
    assert [x.dtype for x in none.values()] == [x.dtype for x in one.values()]
    with pytest.raises(ValueError, match="rows to fit"):
        pj.triage(calibrator, [], [1], [])


def test_no_rows_of_segments_of_several_columns_give_no_lines():
    rng = np.random.default_rng(0)
    ids = np.stack([np.repeat(["a", "b"], 40), np.repeat(["u", "v", "w", "x"], 20)], 1)
    calibrator = pj.fit_segments(rng.normal(size=80), rng.random(80) < 0.5, ids)
    none = pj.triage(calibrator, [], [], ids[:0])
    assert [*none][:2] == ["segment_0", "segment_1"] and {len(x) for x in none.values()} == {0}


def test_few_positives_do_not_contradict_a_fit_without_any():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=4_000)
    calibrator = pj.fit_segments(scores[:100], np.zeros(100), np.zeros(100, int))
    none = pj.triage(calibrator, scores, np.zeros(4_000), np.zeros(4_000, int))
    assert none["p_value"][0] > 0.3
    labels = np.arange(4_000) < 400
    many = pj.triage(calibrator, scores, labels, np.zeros(4_000, int))["p_value"][0]
    # More than where the slope is known to be 0.
    assert fisher_exact([[400, 3_600], [0, 100]], "greater").pvalue < many < 0.01


def test_p_values_depend_neither_on_the_order_of_rows_nor_on_other_segments():
    rng = np.random.default_rng(4)
    known = population(rng, 60)
    for pooling in ("none", "partial"):
        calibrator = pj.fit_segments(*rows_from(rng, known, 50), pooling=pooling)
        shift = np.where(np.arange(60) % 3 == 0, 2.0, 0.0)
        scores, labels, segments = rows_from(rng, known, 80, shift)
        scores = np.round(scores, 1)
        made = pj.triage(calibrator, scores, labels, segments)
        order = rng.permutation(len(scores))
        again = pj.triage(calibrator, scores[order], labels[order], segments[order])
        np.testing.assert_array_equal(again["p_value"], made["p_value"])
        for k in (0, 1, 59):
            mine = segments == k
            alone = pj.triage(calibrator, scores[mine], labels[mine], segments[mine])
            of_all = made["p_value"][made["segment"] == k]
            np.testing.assert_allclose(alone["p_value"], of_all, rtol=1e-9)


def test_the_p_value_does_not_depend_on_the_unit_of_scores():
    rng = np.random.default_rng(5)
    scores, labels, segments = rows_from(rng, population(rng, 30), 20)
    fresh = rows_from(rng, population(rng, 30), 60)
    made = []
    for scale, origin in ((1.0, 0.0), (1e-7, 0.0), (1e6, 1e3)):
        calibrator = pj.fit_segments(scale * (scores + origin), labels, segments)
        made.append(pj.triage(calibrator, scale * (fresh[0] + origin), *fresh[1:])["p_value"])
    np.testing.assert_allclose(made[1], made[0], rtol=0.2)
    np.testing.assert_allclose(made[2], made[0], rtol=0.2)


def test_a_population_is_as_wide_where_scores_are_far_from_0():
    rng = np.random.default_rng(4)
    scores, labels, segments = rows_from(rng, curves(rng, 500, (1.5, 2.0), (0.3, 0.3)), 5)
    made = []
    for origin in (0.0, 1e6):
        calibrator = pj.fit_segments(scores + origin, labels, segments, pooling="partial")
        fresh = np.full(300, origin + 1.5), np.arange(300) % 2, np.arange(300) // 100
        made.append(np.sort(pj.triage(calibrator, *fresh)["p_value"]))
    np.testing.assert_allclose(made[1], made[0], rtol=0.02)


def few_rows_each(pooling="partial"):
    """A calibrator of 1,000 segments of 3 rows, whose curves are the same."""
    rng = np.random.default_rng(17)
    segments = np.repeat(np.arange(1_000), 3)
    scores = np.clip(rng.normal(size=3_000), -0.7, 0.7)
    labels = labels_of(rng, 3 * scores + 3)
    if pooling != "partial":
        segments = np.stack([segments % 30, segments], 1)
    return pj.fit_segments(scores, labels, segments, pooling=pooling)


def test_where_a_wide_band_is_sure_half_of_the_labels_are_not_wrong_by_chance():
    calibrator = few_rows_each()
    scores, half = np.full(200, 20.0), np.arange(200) % 2
    lower, _ = calibrator.band(scores, 0, 1 - 1e-8)  # 5.73 standard errors
    assert lower[0] > 0.99
    for segment in (0, -1):  # -1 was not fitted
        found = pj.triage(calibrator, scores, half, np.full(200, segment))
        assert found["p_value"][0] < norm.sf(5.73 / 4.5**0.5)


def test_only_an_average_over_populations_bounds_a_population():
    def times_as_wide(calibrator):
        found = posteriors(calibrator, calibrator.keys[:1], np.zeros(1, int)).curves.covariance[0]
        return np.diag(found) / np.diag(calibrator.population.predictive_covariance)

    calibrator = few_rows_each()
    assert (times_as_wide(calibrator) < 5).all()
    # The estimate alone, as of a drift, and the two spreads of each level say too little.
    estimate = calibrator.population
    alone = estimate.covariance + estimate.mean_covariance
    known = replace(calibrator, population=replace(estimate, predictive_covariance=alone))
    for other in (known, few_rows_each("nested")):
        assert (times_as_wide(other) > 10).all()


@pytest.mark.slow
def test_large_segments_are_judged_by_normal_sums():
    rng = np.random.default_rng(6)
    known = population(rng, 8)
    calibrator = pj.fit_segments(*rows_from(rng, known, 200))
    shift = np.where(np.arange(8) < 4, 0.0, 3.0)
    made = pj.triage(calibrator, *rows_from(rng, known, 10_000, shift))
    assert made["flagged"].tolist() == (made["segment"] >= 4).tolist()


def test_of_what_fits_say_too_little_there_is_no_test():
    rng = np.random.default_rng(7)
    known = population(rng, 4)
    scores, labels, segments = rows_from(rng, known, 200)
    few = (segments != 0) | (np.arange(len(segments)) < 4)
    scores[segments == 1] = 0.5
    calibrator = pj.fit_segments(scores[few], labels[few], segments[few])
    fresh_scores, fresh_labels, fresh_segments = rows_from(rng, known, 50)
    fresh = fresh_scores, fresh_labels, np.where(fresh_segments == 3, 9, fresh_segments)
    with pytest.warns(RuntimeWarning, match=r"3 of 4 segments not tested, .*against=.predictions"):
        made = pj.triage(calibrator, *fresh)
    assert made["segment"][0] == 2 and np.isnan(made["p_value"][1:]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every = pj.triage(calibrator, *fresh, against="predictions")
    assert np.isfinite(every["p_value"]).all()


def test_a_population_of_one_row_each_tells_nothing():
    rng = np.random.default_rng(8)
    known = population(rng, 500)
    calibrator = pj.fit_segments(*rows_from(rng, known, 1), pooling="partial")
    with pytest.warns(RuntimeWarning, match="500 of 500 segments not tested"):
        made = pj.triage(calibrator, *rows_from(rng, known, 20))
    assert not made["flagged"].any()


def test_of_completely_pooled_segments_those_unlike_the_rest_are_found():
    rng = np.random.default_rng(9)
    known = np.full(100, 1.5), np.where(np.arange(100) < 3, 2.5, 0.0)
    calibrator = pj.fit_segments(*rows_from(rng, known, 50), pooling="complete")
    made = pj.triage(calibrator, *rows_from(rng, known, 100))
    assert set(made["segment"][:3]) == {0, 1, 2} and made["flagged"].sum() in (3, 4)


def test_segments_left_out_leave_the_population_as_known_as_it_was():
    rng = np.random.default_rng(10)
    known = population(rng, 400)
    calibrator = pj.fit_segments(*rows_from(rng, known, 40), pooling="partial")
    keys, place = np.array([0, 999]), np.array([0, -1])
    every, some = (
        posteriors(calibrator, keys, place),
        posteriors(calibrator.only(np.arange(400) < 40), keys, place),
    )
    np.testing.assert_allclose(some.curves.covariance, every.curves.covariance, rtol=0.1)
    none = posteriors(calibrator.only(np.zeros(400, bool)), keys[1:], place[1:])
    np.testing.assert_allclose(none.curves.covariance[0], every.curves.covariance[1], rtol=0.3)


def test_score_tests_are_those_of_known_curves_where_nothing_is_open():
    rng = np.random.default_rng(11)
    scores, labels, _ = rows_from(rng, population(rng, 50), 60)
    groups, ids = Groups(np.full(50, 60)), np.arange(50).astype(np.uint64)
    rows = FreshRows(scores, expit(scores), labels, groups, ids)
    covariance, nothing = np.tile(1e-8 * np.eye(2), (50, 1, 1)), np.zeros(50)
    curves = NormalMoments(np.tile([-1.0, 0.0], (50, 1)), covariance)
    exact = SegmentPosteriors(curves, nothing, nothing, True, 1e-16)
    one, other = judged(rows, exact), judged(rows, None)
    for name in ("cox_p_value", "spiegelhalter_z"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_rows_with_offsets_are_judged_by_curves_with_offsets(pooling):
    """P-values are uniform where nothing changed, although offsets move the log-odds by 1.5."""
    rng = np.random.default_rng(12)
    slope, intercept = 1 + 0.4 * rng.normal(size=100), -1 + 0.7 * rng.normal(size=100)

    def week(number, moved):
        which = np.repeat(np.arange(100), number)
        scores = rng.normal(size=len(which))
        offset = 1.5 * rng.normal(size=len(which)) - 0.5 * scores
        log_odds = slope[which] * scores + intercept[which] + offset + moved * (which < 5)
        return scores, rng.random(len(which)) < expit(log_odds), which, offset

    *rows, offset = week(60, 0)
    calibrator = pj.fit_segments(*rows, offset=offset, pooling=pooling)
    *rows, offset = week(200, 0)
    p_values = pj.triage(calibrator, *rows, offset=offset)["p_value"]
    assert (p_values < 0.05).mean() < 0.13 and (p_values < 0.5).mean() < 0.65
    *rows, offset = week(200, 2.5)
    judged = pj.triage(calibrator, *rows, offset=offset)
    assert set(range(5)) <= set(judged["segment"][judged["flagged"]].tolist())
    without = pj.triage(calibrator, *rows)
    assert without["flagged"].sum() > 20


def test_the_likeliest_shock_is_found_where_labels_are_surprising():
    """Of two rows with a common shift of variance 10, both positive: an integral says how often."""
    log_odds = np.array([[-3.0, -5.0], [4.0, -3.0], [-5.0, -12.0]])
    at, weight = np.polynomial.hermite_e.hermegauss(101)
    rows = expit(log_odds[..., None] + np.sqrt(10) * at)
    exact = rows.prod(1) @ weight / weight.sum()
    z = quantiles(log_odds, np.ones((3, 2)), np.full(3, 2.0), np.full(3, 10.0))
    np.testing.assert_allclose(norm.sf(z), exact, rtol=0.5)


def test_bounds_of_log_odds_are_at_their_depth():
    """Also of a few positives among a billion, whose search starts far off."""
    few, many = np.array([[0.5, 3.0], [1e9, 1e3]])[:, None]
    for positives, negatives in ((few, many), (many, few)):
        curves = LogBeta(positives, negatives)
        most = curves.log_density(curves.center()[..., None])[..., 0]
        for bound in curves.bounds(8.0):
            np.testing.assert_allclose(most - curves.log_density(bound[..., None])[..., 0], 8, 1e-6)


@pytest.mark.parametrize("score", [0.297, 0.8, 0.86])
def test_float32_scores_far_from_zero_do_not_make_a_steep_curve_certain(score):
    """The covariance of (A, B) has no digit left at the center: p-values fell to 4e-4 from .095."""
    scores, labels, weights = np.array([0.8644791, 0.860672]), [1, 0], [4.8, 1.1]

    def p_value(dtype, shift):
        calibrator = pj.fit_segments(
            (scores + shift).astype(dtype), labels, ["a", "a"], weights=weights
        )
        fresh = np.array([score + shift], dtype)
        return pj.triage(calibrator, fresh, [1], ["a"], against="fit")["p_value"][0]

    assert abs(p_value(np.float32, 100) - p_value(np.float64, 0)) < 0.05


def test_which_segments_a_calibrator_keeps_changes_no_test(rng, tmp_path):
    """One segment has half of all rows: without it, the others know no more of the population."""
    sizes = np.r_[600, rng.integers(10, 40, 11)]
    which = np.repeat(np.arange(12), sizes)
    slope, intercept = population(rng, 12)
    calibrator = pj.fit_segments(*rows_of(rng, which, -slope, -intercept), pooling="partial")
    scores, labels, segments = rows_from(rng, (slope, intercept), 60, 0.8)
    kept = np.arange(12) % 3 > 0
    some = calibrator.only(kept)
    pj.save(tmp_path / "some", some)
    whole = pj.triage(calibrator, scores, labels, segments)
    by_segment = dict(zip(whole["segment"].tolist(), whole["p_value"], strict=True))
    for found in (some, pj.load(tmp_path / "some"), some.only(some.keys > 4)):
        rows = np.isin(segments, found.keys)
        tested = pj.triage(found, scores[rows], labels[rows], segments[rows])
        expected = [by_segment[key] for key in tested["segment"].tolist()]
        np.testing.assert_allclose(tested["p_value"], expected, rtol=1e-9)
        fresh = scores[rows], segments[rows]
        one, other = (pj.gate(x, *fresh, precision=0.8) for x in (found, calibrator))
        np.testing.assert_allclose(one["threshold"], other["threshold"], rtol=1e-9)
        assert one["status"].tolist() == other["status"].tolist()
    # The numbers would be others if those left out were of like sizes.
    unlike = replace(some, population=replace(some.population, elsewhere=None))
    mine = kept[segments]
    one, other = (
        pj.triage(x, scores[mine], labels[mine], segments[mine])["p_value"] for x in (unlike, some)
    )
    assert not np.allclose(np.sort(one), np.sort(other), equal_nan=True)
