"""Which segments need a look: p-values against enumeration, and discoveries against the truth."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from data import curves, few_rows, labels_of, rows_of
from scipy.special import expit
from scipy.stats import binom, chi2, false_discovery_control

import platt_jax as pj
from platt_jax import metrics
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests import simulation
from platt_jax.hypothesis_tests.score_tests import ScoreTests
from platt_jax.hypothesis_tests.tilting import tilted_p_values

pytestmark = few_rows
# The curves of most tests here are known, not fitted.
triage = partial(pj.triage, against="predictions")


def known_curves(A, B, keys=None):
    """A calibrator with these curves."""
    keys = np.arange(len(A)) if keys is None else keys
    scores, labels = np.tile([2.0, -1.0, 0.5], len(A)), np.tile([1, 0, 1], len(A))
    fitted = pj.fit_segments(scores, labels, np.repeat(keys, 3))
    return replace(fitted, fit=replace(fitted.fit, A=np.asarray(A), B=np.asarray(B)))


def fresh(seed, K, sizes, share_off=0.0):
    """Curves, and rows that come from them; but of a share of the segments they do not."""
    rng = np.random.default_rng(seed)
    segments = np.repeat(np.arange(K), rng.integers(*sizes, size=K))
    A, B = curves(rng, K, spread=(0.4, 1))
    off = rng.random(K) < share_off
    scores = rng.normal(size=len(segments))
    logit = -(A[segments] * scores + B[segments])
    shift, stretch = np.where(off, rng.choice([-1, 1], K), 0), np.where(off, 0.4, 1)
    logit = shift[segments] + stretch[segments] * logit
    labels = labels_of(rng, logit)
    return known_curves(A, B), scores, labels, segments, off


def score_tests(logit, labels, sizes):
    return ScoreTests(logit, expit(logit), labels, Groups(sizes))


def test_the_least_p_value_counts_what_enumeration_counts(monkeypatch):
    # With so many draws as extreme, the p-value is known to 2 %.
    monkeypatch.setattr(simulation, "_EXTREME", 2_500)
    rng = np.random.default_rng(0)
    sizes = np.array([3, 6, 6, 7])
    logit, labels = rng.normal(-0.5, 1.5, sizes.sum()), rng.random(sizes.sum()) < 0.4
    tests = score_tests(logit, labels, sizes)
    ids = np.arange(4, dtype=np.uint64)
    found = simulation.sequential_p_values(tests, ids, np.arange(4), 100_000)
    for k, some in enumerate(np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])):
        least, exact = enumerated(logit[some])
        of_ours = np.isclose(least, tests.least_p_value[k], rtol=1e-9)
        np.testing.assert_allclose(found[k], exact[of_ours][0], rtol=0.08)


def enumerated(logit):
    """The least p-value, and the exact one, of all labels of some rows."""
    n = len(logit)
    labels = np.array(list(product([False, True], repeat=n)))
    chance = expit(np.where(labels, logit, -logit)).prod(axis=1)
    least = score_tests(np.tile(logit, 2**n), labels.ravel(), np.full(2**n, n)).least_p_value
    order = np.argsort(least)
    last = np.searchsorted(least[order], least * (1 + 1e-9), side="right") - 1
    return least, np.cumsum(chance[order])[last]


def small_p_values(logit, labels, number=1):
    """By that many streams of draws."""
    tests = score_tests(logit, labels, [len(logit)])
    made = [tilted_p_values(tests, np.array([k], np.uint64), np.arange(1)) for k in range(number)]
    return np.concatenate(made)


@pytest.mark.parametrize("rows", [5, 12, 13, 15])
def test_small_p_values_are_those_of_enumeration(rows):
    rng = np.random.default_rng(rows)
    for mean, spread in ((0, 2), (-2.5, 0.7), (-4, 1.5), (3, 0)):
        logit = np.sort(rng.normal(mean, spread, rows))
        _, exact = enumerated(logit)
        labels = np.array(list(product([False, True], repeat=rows)))
        for goal in (1e-2, 1e-4, 1e-7, 1e-12):
            k = np.argmin(np.abs(np.log(exact / goal)))
            made = small_p_values(logit, labels[k], 16)
            np.testing.assert_allclose(made.mean(), exact[k], rtol=0.04)
            assert np.std(made / exact[k]) < 0.07


@pytest.mark.parametrize(
    ("n", "p", "positives"),
    [(250, 43 / 250, 69), (250, 43 / 250, 90), (3_000, 0.002, 20), (20_000, 0.3, 6_460)],
)
def test_small_p_values_of_equal_probabilities_are_binomial(n, p, positives):
    every = np.arange(n + 1)
    as_far = np.abs(every - n * p) >= np.abs(positives - n * p) * (1 - 1e-9)
    exact = binom.pmf(every, n, p)[as_far].sum()
    logit = np.full(n, np.log(p / (1 - p)))
    made = small_p_values(logit, np.arange(n) < positives, 4)
    np.testing.assert_allclose(made.mean(), exact, rtol=0.1)


def test_the_p_values_of_normal_sums_are_those_of_labels(monkeypatch):
    rng = np.random.default_rng(3)
    logit = np.sort(rng.uniform(-1, 1, 12_000))
    labels = labels_of(rng, 0.13 + logit)
    by_sums = small_p_values(logit, labels, 4).mean()
    assert score_tests(logit, labels, [12_000]).normal.all() and by_sums < 1e-4
    monkeypatch.setattr("platt_jax.hypothesis_tests.score_tests._NORMAL", 0)
    np.testing.assert_allclose(small_p_values(logit, labels, 2).mean(), by_sums, rtol=0.15)


def test_p_values_do_not_depend_on_the_order_of_rows():
    calibrator, scores, labels, segments, _ = fresh(13, 200, (3, 60), share_off=0.3)
    scores = np.round(scores, 1)  # ties
    made = triage(calibrator, scores, labels, segments)
    order = np.random.default_rng(0).permutation(len(scores))
    again = triage(calibrator, scores[order], labels[order], segments[order])
    for name in ("segment", "p_value", "q_value", "cox_p_value", "spiegelhalter_z"):
        np.testing.assert_array_equal(again[name], made[name])


def test_the_score_tests_are_the_textbooks():
    rng = np.random.default_rng(1)
    logit = rng.normal(-1, 1, 400)
    labels = labels_of(rng, 0.7 * logit)
    tests, p = score_tests(logit, labels, [400]), expit(logit)
    design = np.stack([np.ones(400), logit], -1)
    score = design.T @ (labels - p)
    chi_square = score @ np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design, score)
    np.testing.assert_allclose(tests.cox_p_value, np.exp(-chi_square / 2), rtol=1e-9)
    z = metrics.spiegelhalter(labels, p).statistic
    np.testing.assert_allclose(tests.spiegelhalter_z, z, rtol=1e-9)


def test_probabilities_that_are_all_the_same_have_one_degree_of_freedom():
    labels = np.arange(50) < 40
    tests = score_tests(np.full(50, 0.3), labels, [50])
    p = expit(0.3)
    chi_square = (40 - 50 * p) ** 2 / (50 * p * (1 - p))
    np.testing.assert_allclose(tests.cox_p_value, chi2.sf(chi_square, 1), rtol=1e-9)
    assert np.isnan(score_tests(np.zeros(50), labels, [50]).spiegelhalter_z)


@pytest.mark.parametrize("sizes", [(3, 8), (5, 60)])
def test_p_values_are_valid_at_any_number_of_rows(sizes):
    made = triage(*fresh(3, 2_000, sizes)[:-1])["p_value"]
    for level in (0.5, 0.1, 0.01):
        error = np.sqrt(level * (1 - level) / len(made))
        assert (made <= level).mean() < level + 3 * error
        # And not much too large: rows are few, and p-values few of them.
        assert (made <= level).mean() > 0.5 * level - 3 * error


@pytest.mark.slow
def test_small_p_values_are_valid_where_positives_are_rare():
    rng = np.random.default_rng(14)
    K, n = 20_000, 30
    A, B = curves(rng, K, (-1, 4.5), (0.3, 0.7))
    rows = rows_of(rng, np.repeat(np.arange(K), n), A, B)
    made = triage(known_curves(A, B), *rows)["p_value"]
    for level in (0.05, 0.01, 0.001):
        assert (made <= level).mean() < level + 3 * np.sqrt(level / K)
        assert (made <= level).mean() > 0.6 * level - 3 * np.sqrt(level / K)


@pytest.mark.slow
def test_false_discoveries_are_as_few_as_asked_for():
    shares, found, off = [], 0, 0
    for seed in range(4):
        *rows, is_off = fresh(10 + seed, 2_000, (5, 300), share_off=0.05)
        made = triage(*rows, fdr=0.1)
        true = is_off[made["segment"]]
        shares.append((made["flagged"] & ~true).sum() / made["flagged"].sum())
        found, off = found + (made["flagged"] & true).sum(), off + true.sum()
    # 0.095 and its error over so many discoveries.
    assert np.mean(shares) < 0.095 + 3 * np.sqrt(0.095 / found)
    assert found > 0.5 * off


def test_one_segment_among_many_is_found():
    # It takes a p-value that draws by the hypothesis cannot give.
    K = 20_000
    calibrator, scores, labels, segments, _ = fresh(4, K, (1, 3))
    rng = np.random.default_rng(5)
    more = rng.normal(size=300)
    wrong = rng.random(300) > calibrator.predict_proba(more, np.full(300, 7))
    made = triage(
        calibrator,
        np.append(scores, more),
        np.append(labels, wrong),
        np.append(segments, np.full(300, 7)),
    )
    assert made["segment"][0] == 7
    assert made["flagged"].tolist() == [True] + [False] * (K - 1)


def test_a_segment_is_judged_without_regard_to_the_others():
    calibrator, scores, labels, segments, _ = fresh(6, 50, (5, 60))
    every = triage(calibrator, scores, labels, segments)
    for k in (0, 20, 49):
        mine = segments == k
        alone = triage(calibrator, scores[mine], labels[mine], segments[mine])
        (line,) = np.flatnonzero(every["segment"] == k)
        for name in set(every) - {"q_value", "flagged"}:
            np.testing.assert_allclose(alone[name][0], every[name][line], rtol=1e-12, err_msg=name)


def test_the_table():
    *rows, _ = fresh(8, 300, (5, 100), share_off=0.2)
    calibrator, scores, labels, segments = rows
    made = triage(*rows)
    np.testing.assert_allclose(made["q_value"], false_discovery_control(made["p_value"]))
    assert (np.diff(made["p_value"]) >= 0).all()
    proba = calibrator.predict_proba(scores, segments)
    by_row = {"rows": np.ones(len(scores)), "positives": labels, "expected": proba}
    for name, values in by_row.items():
        sums = np.bincount(segments, values)[made["segment"]]
        np.testing.assert_allclose(made[name], sums, rtol=1e-12)
    largest = made["segment"][np.argmax(made["rows"])]
    cox = metrics.cox_calibration(labels[segments == largest], proba[segments == largest])
    line = made["segment"] == largest
    # The prior moves neither by more than a fraction of its standard error.
    assert abs(made["slope"][line] - cox.slope) < 0.5 * cox.se_slope
    assert abs(made["intercept"][line] - cox.intercept) < 0.5 * cox.se_intercept
    np.testing.assert_allclose(made["se_slope"][line], cox.se_slope, rtol=0.1)
    assert made.to_pandas().columns.tolist() == list(made)


def with_bad_rows():
    """Segment 3 has no finite row, 1 (the largest) has one that is not, and label 0 of 2 is NaN."""
    calibrator, scores, labels, segments, _ = fresh(9, 5, (20, 30))
    more = np.random.default_rng(0).normal(size=50)
    scores, segments = np.append(scores, more), np.append(segments, np.full(50, 1))
    labels = np.append(labels, more > 0).astype(float)
    scores[segments == 3] = np.nan
    scores[np.flatnonzero(segments == 1)[0]] = np.inf
    labels[np.flatnonzero(segments == 2)[0]] = np.nan
    return calibrator, scores, labels, segments


def test_segments_that_cannot_be_tested_come_last():
    with pytest.warns(RuntimeWarning, match="3 of 5 segments not tested, the largest 1: .*omit"):
        made = triage(*with_bad_rows())
    assert made["segment"][2] == 1 and set(made["segment"][3:]) == {2, 3}
    assert (np.diff(made["rows"][2:]) <= 0).all() and not made["flagged"][2:].any()
    for name in set(made) - {"segment", "rows", "flagged"}:
        assert np.isnan(made[name]).tolist() == [False, False, True, True, True]
    calibrator, *_ = with_bad_rows()
    with pytest.warns(RuntimeWarning, match="1 of 1 segment not tested, the largest 0"):
        nothing = triage(calibrator, np.full(4, np.nan), np.ones(4), np.zeros(4, int))
    assert np.isnan(nothing["p_value"]).all()


def test_rows_that_are_not_finite_are_left_out():
    calibrator, scores, labels, segments = with_bad_rows()
    with pytest.warns(RuntimeWarning, match="1 of 5 segments not tested, the largest 3: they have"):
        made = triage(calibrator, scores, labels, segments, non_finite="omit")
    kept = np.isfinite(scores) & np.isfinite(labels)
    clean = triage(calibrator, scores[kept], labels[kept], segments[kept])
    for name, column in clean.items():
        np.testing.assert_array_equal(made[name][:4], column)
    assert made["segment"][4] == 3 and made["rows"][4] == 0 and np.isnan(made["expected"][4])
    with pytest.warns(RuntimeWarning, match="2 of 2 segments not tested"):
        triage(calibrator, [np.nan, np.inf], [0, 1], [0, 1], non_finite="omit")


def test_rows_that_are_not_finite_are_an_error_if_asked_for():
    calibrator, scores, labels, segments = with_bad_rows()
    with pytest.raises(ValueError, match=r"expected finite values, found .* 3 of 5 .* largest 1"):
        triage(calibrator, scores, labels, segments, non_finite="raise")
    kept = np.isfinite(scores) & np.isfinite(labels)
    clean = (calibrator, scores[kept], labels[kept], segments[kept])
    assert (
        triage(*clean, non_finite="raise")["p_value"].tolist() == triage(*clean)["p_value"].tolist()
    )


def test_a_segment_without_a_curve_is_not_tested():
    calibrator, scores, labels, segments, _ = fresh(8, 4, (50, 60))
    A = np.where(calibrator.keys == 2, np.nan, calibrator.fit.A)
    calibrator = replace(calibrator, fit=replace(calibrator.fit, A=A))
    with pytest.warns(
        RuntimeWarning, match="1 of 4 segments not tested, the largest 2: .*no curve"
    ):
        made = triage(calibrator, scores, labels, segments, non_finite="omit")
    assert made["segment"][3] == 2 and np.isnan(made["p_value"][3]) and made["rows"][3] > 0


def test_segments_that_were_not_fitted_are_judged_by_what_is_predicted():
    calibrator, scores, labels, segments, _ = fresh(11, 3, (300, 301))
    made = triage(calibrator, scores, labels, segments + 2)
    unseen = made["segment"] > 2
    expected = [calibrator.fallback.predict_proba(scores[segments + 2 == k]).sum() for k in (3, 4)]
    np.testing.assert_allclose(np.sort(made["expected"][unseen]), np.sort(expected))


def test_rows_grouped_before_and_segments_of_several_columns():
    calibrator, scores, labels, segments, _ = fresh(12, 6, (20, 40))
    made = triage(calibrator, scores, labels, segments)
    grouped = triage(calibrator, pj.SegmentRows(scores, labels, segments))
    for name, column in made.items():
        np.testing.assert_array_equal(column, grouped[name])
    pairs = [("ab"[k % 2], int(k)) for k in segments]
    by_pair = triage(pj.fit_segments(scores, labels, pairs), scores, labels, pairs)
    assert (
        list(by_pair)[:2] == ["segment_0", "segment_1"]
        and len(list(by_pair)) == len(list(made)) + 1
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"calibrator": pj.fit([1.0, 2.0], [0, 1])}, "calibrator: expected a SegmentCal.*got Fit"),
        ({"against": "curve"}, r"against: expected one of \('fit', 'predictions'\), got 'curve'"),
        ({"non_finite": "drop"}, r"non_finite: expected one of \('flag', .* got 'drop'"),
        ({"fdr": 0}, r"fdr: expected a number in \(0, 1\), got 0"),
        ({"labels": [1, 2]}, "labels: "),
        ({"segments": [0]}, "segments: expected one id per score"),
        (
            {"scores": pj.SegmentRows([1.0], [1], [0], [2.0]), "labels": None, "segments": None},
            "scores: expected SegmentRows without weights",
        ),
    ],
)
def test_bad_input(changed, message):
    calibrator = known_curves(np.array([-1.0]), np.array([0.0]))
    given = {"calibrator": calibrator, "scores": [1.0, 2.0], "labels": [0, 1], "segments": [0, 0]}
    with pytest.raises(ValueError, match=message):
        triage(**(given | changed))


@pytest.mark.slow
def test_what_is_off_within_the_margin_is_not_flagged():
    rng = np.random.default_rng(3)
    K, rows, margin = 400, 300, 0.4
    segments = np.repeat(np.arange(K), rows)
    scores = rng.normal(size=K * rows)
    calibrator = known_curves(np.full(K, -1.5), np.full(K, 1.0))
    by = {"within": rng.uniform(-margin, margin, K), "edge": np.full(K, margin)}
    for off in by.values():
        labels = labels_of(rng, 1.5 * scores - 1 + off[segments])
        found = triage(calibrator, scores, labels, segments, margin=margin)
        assert (found["p_value"] < 0.05).mean() < 0.08
        assert found["flagged"].sum() == 0
        # What is reported is of the predictions as they are.
        assert found["intercept"].mean() == pytest.approx(off.mean(), abs=0.05)
        assert triage(calibrator, scores, labels, segments)["flagged"].sum() > 10
    labels = labels_of(rng, 1.5 * scores - 1 - 3 * margin)
    assert triage(calibrator, scores, labels, segments, margin=margin)["flagged"].mean() > 0.95


@pytest.mark.slow
def test_a_margin_holds_against_the_fit_too():
    rng = np.random.default_rng(4)
    K, rows = 200, 400
    segments = np.repeat(np.arange(K), rows)
    scores = rng.normal(size=K * rows)
    calibrator = pj.fit_segments(scores, labels_of(rng, 1.5 * scores - 1), segments)
    off = np.where(np.arange(K) % 2, 0.3, 2.0)[segments]
    labels = labels_of(rng, 1.5 * scores - 1 + off)
    found = pj.triage(calibrator, scores, labels, segments, margin=0.5)
    within = found["segment"] % 2 == 1
    assert found["flagged"][~within].all()
    assert found["flagged"][within].sum() <= 5  # the expected share of false discoveries is 0.05
    without = pj.triage(calibrator, scores, labels, segments)
    assert without["flagged"][without["segment"] % 2 == 1].sum() > 15


def test_margins_are_checked():
    known = known_curves([-1.0], [0.0])
    wide, huge = (triage(known, [1.0, 2.0], [1, 0], [0, 0], margin=m) for m in (64, 1e300))
    assert huge["p_value"] == wide["p_value"]
    for bad in (-0.1, np.nan, np.inf, "a"):
        with pytest.raises(ValueError, match="margin: expected a number >= 0"):
            triage(known, [1.0], [1], [0], margin=bad)


@pytest.mark.parametrize("log_odds", [-40.0, -75.0, -20.0, 50.0])
def test_sure_predictions_that_come_true_are_no_change(log_odds):
    """The statistic of p = 1 - 6e-16 was once lost in rounding, and p became 6e-16."""
    scores, segments = np.full(60, log_odds), np.repeat(np.arange(10), 6)
    fit = pj.fit(np.tile([1.0, -1.0], (10, 1)), [1, 0])
    known = replace(fit, A=np.full(10, -1.0), B=np.zeros(10))
    calibrator = pj.SegmentCalibrator(np.arange(10), known, pj.Sigmoid(-1.0, 0.0))
    table = pj.triage(calibrator, scores, scores > 0, segments, against="predictions")
    assert (table["p_value"] > 0.99).all()


def test_mixed_ids_in_a_list():
    """NumPy has no shape of them."""
    segments = [1, "x", ("q", 3)] * 200
    rng = np.random.default_rng(0)
    scores = rng.normal(size=600)
    labels = labels_of(rng, scores)
    fitted = pj.fit_segments(scores, labels, segments)
    assert pj.triage(fitted, scores, labels, segments)["rows"].tolist() == [200] * 3
