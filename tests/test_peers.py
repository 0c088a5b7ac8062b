"""What the tests of other libraries ask of their calibrators, asked of this one.

After scikit-learn's tests of sigmoid calibration, chemprop's of calibrators for many tasks with
missing labels, and MCGrad's of calibration by segment; retold, not copied.
"""

import numpy as np
import pytest
from data import few_rows, labels_of, problem

import platt_jax as pj
from platt_jax import Flag, Options, Status


def brier(probabilities, labels):
    return np.mean((probabilities - labels) ** 2)


def log_loss(probabilities, labels):
    return -np.mean(np.log(np.where(labels == 1, probabilities, 1 - probabilities)))


def auc(scores, labels):
    """The share of pairs of a positive and a negative that are in order; ties count half."""
    pos, neg = scores[labels == 1, None], scores[labels == 0]
    return np.mean((pos > neg) + 0.5 * (pos == neg))


# --- scikit-learn --------------------------------------------------------------------------------


def test_a_fit_of_three_rows_by_hand(dtype):
    """The optimum that scikit-learn checks to three decimals and LIBSVM to four."""
    scores = np.array([5, -4, 1], dtype)
    for labels in ([1, -1, -1], [1, 0, 0], [True, False, False]):
        one = pj.fit(scores, labels)
        np.testing.assert_allclose(
            [one.A, one.B], [-0.20261449, 0.65236664], atol=1e-8 if dtype == np.float64 else 1e-4
        )
    expected = 1 / (1 + np.exp(one.A * scores + one.B))
    np.testing.assert_allclose(one.sigmoid.predict_proba(scores), expected, rtol=1e-6)


def test_weights_change_the_calibration(rng):
    scores, labels = problem(rng, 100)
    weights = rng.uniform(size=100)
    plain, weighted = pj.fit(scores, labels), pj.fit(scores, labels, weights=weights)
    difference = plain.sigmoid.predict_proba(scores) - weighted.sigmoid.predict_proba(scores)
    assert np.linalg.norm(difference) > 0.1


def test_weights_zero_and_two_are_rows_dropped_and_repeated(rng):
    scores, labels = problem(rng, 100)
    weights = np.repeat([0, 1, 2], [30, 40, 30])
    repeated = np.repeat(np.arange(100), weights)
    for name in ("A", "B", "nll"):
        one = getattr(pj.fit(scores, labels, weights=weights), name)
        other = getattr(pj.fit(scores[repeated], labels[repeated]), name)
        assert one == pytest.approx(other, rel=1e-9)


def test_half_the_weight_on_every_row_twice_is_no_weights_at_all(rng):
    """Balanced by repetition or by weights, the answer is one."""
    scores, labels = problem(rng, 60, base_rate=0.25)
    twice = np.tile(scores, 2), np.tile(labels, 2)
    one, other = pj.fit(scores, labels), pj.fit(*twice, weights=np.full(120, 0.5))
    assert other.A == pytest.approx(one.A, rel=1e-9)


@pytest.mark.parametrize("scale", [1e2, 1e6, 1e12, 1e30])
def test_large_scores_do_not_flatten_the_sigmoid(scale, dtype, rng):
    """Scores in the thousands once ended at a slope of 0, and an AUC of 0.5, without a word."""
    scores, labels = problem(rng, 300, shift=1.5)
    scores = (scores * scale).astype(dtype)
    one = pj.fit(scores, labels)
    assert one.converged
    probabilities = one.sigmoid.predict_proba(scores)
    assert auc(probabilities, labels) == pytest.approx(auc(scores, labels), abs=1e-3)
    assert auc(probabilities, labels) > 0.8


def test_calibrated_probabilities_are_no_worse_by_brier_and_log_loss(rng):
    """Of an overconfident classifier, on rows that the calibration has not seen."""
    scores, labels = problem(rng, 4000, shift=1.5)
    overconfident = 5 * scores
    seen, new = slice(2000), slice(2000, None)
    sigmoid = pj.fit(overconfident[seen], labels[seen]).sigmoid
    before = 1 / (1 + np.exp(-overconfident))
    after = sigmoid.predict_proba(overconfident[new])
    assert brier(after, labels[new]) < brier(before[new], labels[new])
    assert log_loss(after, labels[new]) < log_loss(before[new], labels[new])


def test_the_ranking_is_preserved(rng):
    scores, labels = problem(rng, 500)
    probabilities = pj.fit(scores, labels).sigmoid.predict_proba(scores)
    order = np.argsort(scores)
    assert np.all(np.diff(probabilities[order]) > 0)
    assert auc(probabilities, labels) == auc(scores, labels)


def test_scores_of_the_wrong_sign_are_turned_round(rng):
    scores, labels = problem(rng, 500, shift=2)
    one = pj.fit(-scores, labels)
    assert Flag.REVERSED in Flag(int(one.flags))
    probabilities = one.sigmoid.predict_proba(-scores)
    assert auc(probabilities, labels) == auc(scores, labels) > 0.8
    assert auc(-scores, labels) < 0.2


def test_scores_that_are_constant_predict_the_base_rate():
    """A calibrated constant classifier tells how often class 1 occurs, smoothed or not."""
    labels = np.array([0, 0, 0, 1])
    plain = pj.fit(np.zeros(4), labels, options=Options(targets="none"))
    np.testing.assert_allclose(plain.sigmoid.predict_proba(np.zeros(3)), 0.25, rtol=1e-12)
    smoothed = pj.fit(np.zeros(4), labels).sigmoid.predict_proba(0.0)
    assert smoothed == pytest.approx((3 * 1 / 5 + 2 / 3) / 4, rel=1e-12)


def test_well_calibrated_log_odds_stay_as_they_are(rng):
    """The log-odds of a true model need no calibration: A = -1, B = 0, within three errors."""
    logit = rng.normal(size=20_000)
    labels = labels_of(rng, logit)
    one = pj.fit(logit, labels)
    assert np.all(np.abs([one.A + 1, one.B]) < 3 * one.standard_errors)


def test_mean_probability_is_the_mean_target(rng):
    """The condition g_B = 0, which every calibration with a free intercept fulfils."""
    scores, labels = problem(rng, 200)
    one = pj.fit(scores, labels, options=Options(targets="none"))
    mean = one.sigmoid.predict_proba(scores).mean()
    assert mean == pytest.approx(labels.mean(), rel=1e-8)


@pytest.mark.parametrize("normalize", [True, False])
def test_multiclass_probabilities(normalize, rng):
    """They sum to 1 where normalised, and no class loses its accuracy to calibration."""
    labels = rng.integers(0, 4, 800)
    scores = rng.normal(size=(800, 4)) + 2 * np.eye(4)[labels]
    calibrator = pj.fit_one_vs_rest(scores, labels)
    probabilities = calibrator.predict_proba(scores, normalize=normalize)
    assert np.all((probabilities >= 0) & (probabilities <= 1))
    if normalize:
        np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    accuracy = np.mean(scores.argmax(1) == labels)
    assert np.mean(probabilities.argmax(1) == labels) >= accuracy - 0.02


def test_a_class_absent_from_a_fold_does_not_stop_the_others(rng):
    labels = rng.integers(0, 3, 90)
    scores = rng.normal(size=(90, 4)) + 2 * np.eye(4)[labels]
    calibrator = pj.fit_one_vs_rest(scores, labels, classes=np.arange(4))
    assert calibrator.fit.converged.all()
    assert Flag(int(calibrator.fit.flags[3])) == Flag.ONE_CLASS
    probabilities = calibrator.predict_proba(scores)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-12)
    assert np.all(probabilities[:, 3] < 0.1)


# --- chemprop: rows x tasks, labels missing here and there ---------------------------------------


@pytest.fixture
def tasks(rng):
    """Scores (tasks, rows), labels, and which of the labels are known; two tasks are special."""
    labels = rng.integers(0, 2, (6, 80))
    scores = rng.normal(size=labels.shape) + 2 * labels
    known = rng.random(labels.shape) < 0.7
    known[4] = False  # no label at all
    labels[5] = 1
    return scores, labels, known


def assert_fits_of_the_known(fit, scores, labels, known):
    for k in range(len(scores)):
        if not known[k].any():
            assert fit.status[k] == Status.EMPTY and np.isnan(fit.A[k])
            continue
        alone = pj.fit(scores[k, known[k]], labels[k, known[k]])
        assert fit.status[k] == alone.status == Status.CONVERGED
        assert fit.flags[k] == alone.flags
        np.testing.assert_allclose([fit.A[k], fit.B[k]], [alone.A, alone.B], rtol=1e-8, atol=1e-12)
        assert fit.n_pos[k] + fit.n_neg[k] == known[k].sum()


def test_missing_labels_as_weights_of_0(tasks):
    scores, labels, known = tasks
    fit = pj.fit(scores, labels, weights=known)
    assert_fits_of_the_known(fit, scores, labels, known)
    # Whatever stands where nothing is known has no say.
    garbage = np.where(known, scores, np.nan), np.where(known, labels, np.nan)
    again = pj.fit(*garbage, weights=known)
    np.testing.assert_array_equal(again.A, fit.A)


def test_missing_labels_as_nan_that_is_omitted(tasks):
    scores, labels, known = tasks
    missing = np.where(known, labels, np.nan)
    fit = pj.fit(scores, missing, options=Options(non_finite="omit"))
    assert_fits_of_the_known(fit, scores, labels, known)
    columns = pj.fit_one_vs_rest(scores.T, missing.T, options=Options(non_finite="omit"))
    np.testing.assert_array_equal(columns.fit.A, fit.A)


def test_a_task_without_labels_predicts_nan_and_the_others_do_not_notice(tasks):
    scores, labels, known = tasks
    sigmoids = pj.fit(scores, labels, weights=known).sigmoid
    probabilities = sigmoids.predict_proba(scores)
    assert probabilities.shape == scores.shape
    assert np.isnan(probabilities[4]).all() and np.isfinite(np.delete(probabilities, 4, 0)).all()
    without = np.delete(np.arange(6), 4)
    others = pj.fit(scores[without], labels[without], weights=known[without])
    np.testing.assert_array_equal(others.A, sigmoids.A[without])


def test_each_task_is_better_calibrated_on_its_known_labels(tasks):
    scores, labels, known = tasks
    calibrated = pj.fit(scores, labels, weights=known).sigmoid.predict_proba(scores)
    raw = 1 / (1 + np.exp(-4 * scores))
    for k in range(4):
        one = known[k]
        assert log_loss(calibrated[k, one], labels[k, one]) < log_loss(raw[k, one], labels[k, one])


# --- MCGrad: by segment --------------------------------------------------------------------------


@pytest.fixture
def segmented(rng):
    """Scores that are off by another amount in each of three segments of 400 rows."""
    scores, labels = problem(rng, 1200, shift=2)
    segments = np.repeat(["a", "b", "c"], 400)
    offset = np.repeat([-3.0, 0.0, 3.0], 400)
    return scores + offset, labels, segments


@pytest.mark.slow
def test_segments_beat_one_calibration_for_all(segmented):
    scores, labels, segments = segmented
    each = pj.fit_segments(scores, labels, segments).predict_proba(scores, segments)
    pooled = pj.fit(scores, labels).sigmoid.predict_proba(scores)
    assert brier(each, labels) < brier(pooled, labels) - 0.01
    plain = pj.fit_segments(scores, labels, segments, options=Options(targets="none"))
    probabilities = plain.predict_proba(scores, segments)
    for name in "abc":
        mine = segments == name
        assert probabilities[mine].mean() == pytest.approx(labels[mine].mean(), rel=1e-7)


def test_a_segment_of_one_class_gets_platts_target_and_a_flag(segmented):
    """Not the identity, and not certainty: the log-odds of a smoothed count."""
    scores, labels, segments = segmented
    labels[segments == "b"] = 1
    labels[segments == "c"] = 0
    calibrator = pj.fit_segments(scores, labels, segments)
    assert calibrator.fit.converged.all()
    one_class = [Flag.ONE_CLASS in Flag(int(f)) for f in calibrator.fit.flags]
    assert one_class == [False, True, True]
    for name, target in (("b", 401 / 402), ("c", 1 / 402)):
        mine = segments == name
        probabilities = calibrator.predict_proba(scores[mine], segments[mine])
        np.testing.assert_allclose(probabilities, target, rtol=1e-7)


def test_a_segment_never_seen_gets_the_pooled_fit(segmented):
    scores, labels, segments = segmented
    calibrator = pj.fit_segments(scores, labels, segments)
    pooled = pj.fit(scores, labels).sigmoid.predict_proba(scores[:5])
    unseen = calibrator.predict_proba(scores[:5], ["a", "z", "a", "z", "zz"])
    np.testing.assert_allclose(unseen[[1, 3, 4]], pooled[[1, 3, 4]], rtol=1e-9)
    known = calibrator.predict_proba(scores[:5], "a")
    np.testing.assert_array_equal(unseen[[0, 2]], known[[0, 2]])


@few_rows
def test_segments_of_few_rows(rng):
    """Down to a single row, every segment gets finite probabilities away from 0 and 1."""
    sizes = np.repeat([1, 2, 3, 4], 5)
    segments = np.repeat(np.arange(20), sizes)
    scores, labels = problem(rng, len(segments))
    calibrator = pj.fit_segments(scores, labels, segments)
    assert calibrator.fit.converged.all()
    probabilities = calibrator.predict_proba(scores, segments)
    # No target of at most four rows is beyond 1/6 and 5/6.
    assert np.all((probabilities > 0.1) & (probabilities < 0.9))


def test_four_separable_rows_do_not_become_certain():
    """Without Platt's targets such a segment ends at 4e-7 and 0.9999996, and nothing says so."""
    scores, labels = [-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]
    one = pj.fit(scores, labels)
    assert one.converged and Flag(int(one.flags)) == Flag.SEPARABLE
    probabilities = one.sigmoid.predict_proba(scores)
    assert np.all((probabilities > 0.1) & (probabilities < 0.9))
    plain = pj.fit(scores, labels, options=Options(targets="none"))
    assert plain.status == Status.MAX_ITERATIONS and Flag(int(plain.flags)) == Flag.SEPARABLE


def test_two_columns_make_one_segment(rng):
    """A segment may be a combination of features, and any row order will do."""
    scores, labels = problem(rng, 300)
    country, device = rng.choice(["DE", "FR"], 300), rng.choice(["phone", "tv"], 300)
    pairs = np.array([f"{c}/{d}" for c, d in zip(country, device, strict=True)])
    calibrator = pj.fit_segments(scores, labels, pairs)
    assert calibrator.keys.tolist() == ["DE/phone", "DE/tv", "FR/phone", "FR/tv"]
    mine = (country == "FR") & (device == "tv")
    alone = pj.fit(scores[mine], labels[mine])
    assert calibrator.fit.A[3] == pytest.approx(alone.A, rel=1e-9)
    assert calibrator.table()["n_pos"][3] == labels[mine].sum()


def test_weights_of_a_segment_stay_in_it(segmented):
    scores, labels, segments = segmented
    plain = pj.fit_segments(scores, labels, segments, weights=np.ones(len(scores)))
    weights = np.where((segments == "b") & (labels == 1), 3.0, 1.0)
    weighted = pj.fit_segments(scores, labels, segments, weights=weights)
    np.testing.assert_array_equal(weighted.fit.A[[0, 2]], plain.fit.A[[0, 2]])
    mine = segments == "b"
    before = plain.predict_proba(scores[mine], "b").mean()
    assert weighted.predict_proba(scores[mine], "b").mean() > before + 0.1
