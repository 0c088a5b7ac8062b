"""Each metric against an independent computation of it, and its documented answers."""

import math

import mpmath
import numpy as np
import pytest
from data import labels_of
from reference import optimum
from scipy import optimize, stats
from sklearn import calibration
from sklearn import metrics as peer

from platt_jax import metrics

LEAST = 5e-324  # the float64 next to 0


@pytest.fixture
def rows(rng):
    """Labels, tied probabilities and whole weights of one problem."""
    proba = np.round(rng.beta(0.8, 1.1, size=300), 2).clip(0.01, 0.99)
    labels = (rng.random(300) < 0.1 + 0.7 * proba).astype(int)
    return labels, proba, rng.integers(1, 5, size=300).astype(float)


def exactly(got, expected, rtol=1e-12, atol=0.0):
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


def test_proper_scores_and_auc_against_scikit_learn(rows):
    labels, proba, weights = rows
    for w in (None, weights, weights / 7):
        exactly(
            metrics.log_loss(labels, proba, weights=w),
            peer.log_loss(labels, proba, sample_weight=w),
        )
        exactly(
            metrics.brier_score(labels, proba, weights=w),
            peer.brier_score_loss(labels, proba, sample_weight=w),
        )
        exactly(
            metrics.roc_auc(labels, proba, weights=w),
            peer.roc_auc_score(labels, proba, sample_weight=w),
        )


def test_log_loss_in_the_tails():
    def of(labels, logits):
        return metrics.log_loss(labels, logits, from_logits=True)

    assert of([1, 1], [-800.0, 800.0]) == 400
    assert of([0, 0], [-800.0, 1e300]) == 5e299
    exactly(of([1], [40.0]), 4.248354255291589e-18)
    assert of([0], [-745.0]) == LEAST
    assert of([0], np.float32([200])) == 200
    assert np.isfinite(of([[0], [1]], [[1.7e308], [-1.7e308]])).all()


def test_log_loss_of_probabilities_is_that_of_clipped_log_odds(dtype):
    exactly(metrics.log_loss([1], [1e-11]), 11 * math.log(10))
    exactly(metrics.log_loss([0], [1e-300]), 1e-300)
    certain = np.array([[0.0], [1.0], [1e-30]], dtype)
    exactly(metrics.log_loss([[1], [0], [1]], certain), 12 * math.log(10), rtol=1e-7)
    exactly(metrics.log_loss([[0], [1], [0]], certain), [0, 0, 1e-30], rtol=1e-6)


def test_log_loss_is_never_below_the_brier_score(rng):
    """So the mCRE of Rueping's tables, a third of the MSE beside it, is not in nats per row."""
    proba = rng.random((1000, 5))
    labels = rng.random((1000, 5)) < 0.5
    assert np.all(metrics.log_loss(labels, proba) >= metrics.brier_score(labels, proba))


def test_float32_sums_are_not_rounded_on_the_way(rng):
    proba = rng.random(1 << 20).astype(np.float32)
    labels = rng.random(1 << 20) < 0.1
    exactly(
        metrics.log_loss(labels, proba), metrics.log_loss(labels, proba.astype(float)), rtol=1e-7
    )


def test_auc_knows_only_the_order(rng):
    scores = np.round(rng.normal(size=(20, 50)), 1)
    labels = rng.random((20, 50)) < 0.4
    weights = rng.integers(0, 3, size=(20, 50)) / 4
    auc = metrics.roc_auc(labels, scores, weights=weights)
    exactly(metrics.roc_auc(labels, np.exp(3 * scores), weights=weights), auc)
    exactly(metrics.roc_auc(labels, -scores, weights=weights), 1 - auc)
    exactly(metrics.roc_auc(~labels, scores, weights=weights), 1 - auc)


def test_auc_answers():
    assert metrics.roc_auc([0, 0, 1], [1, 2, 3]) == 1
    assert metrics.roc_auc([1, 0, 0], [1, 2, 3]) == 0
    assert metrics.roc_auc([1, 0, 1], [2, 2, 2]) == 0.5
    assert np.isnan(metrics.roc_auc([1, 1], [0.1, 0.2]))


@pytest.mark.parametrize("kind", [None, (5, "uniform"), (12, "quantile")])
def test_brier_decomposition_adds_up(rng, kind):
    proba = np.round(rng.random((30, 200)), 2)
    labels = rng.random((30, 200)) < proba**2
    weights = rng.random((30, 200))
    how = {} if kind is None else {"n_bins": kind[0], "strategy": kind[1]}
    parts = metrics.brier_decomposition(labels, proba, weights=weights, **how)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
    exactly(total, metrics.brier_score(labels, proba, weights=weights), atol=1e-15)
    assert np.all(parts.reliability > 0.001) and np.all(parts.resolution > 0.001)
    if kind is None:
        assert np.all(np.abs(parts.within_bin) < 1e-15)
    else:
        assert np.all(np.abs(parts.within_bin) > 1e-6)


def test_brier_decomposition_against_a_loop(rows):
    labels, proba, weights = rows
    total, base = weights.sum(), np.average(labels, weights=weights)
    reliability = resolution = 0
    for value in set(proba):
        here = proba == value
        mass, frequency = weights[here].sum(), np.average(labels[here], weights=weights[here])
        reliability += mass / total * (value - frequency) ** 2
        resolution += mass / total * (frequency - base) ** 2
    parts = metrics.brier_decomposition(labels, proba, weights=weights)
    exactly(parts[:3], [reliability, resolution, base * (1 - base)])


def test_bins_within_their_sums(rows):
    """Stephenson et al.'s fourth part, from its definition."""
    labels, proba, _ = rows
    parts = metrics.brier_decomposition(labels, proba, n_bins=4)
    which = np.ceil(proba * 4)
    within = sum(
        (which == b).sum()
        * (
            np.var(proba[which == b])
            - 2 * np.cov(proba[which == b], labels[which == b], bias=True)[0, 1]
        )
        for b in set(which)
    ) / len(labels)
    exactly(parts.within_bin, within)


def test_brier_decomposition_of_one_class_and_one_probability():
    parts = metrics.brier_decomposition([[1, 1, 1], [0, 1, 1]], [[0.2, 0.7, 0.7], [0.3, 0.3, 0.3]])
    assert parts.uncertainty[0] == parts.resolution[0] == 0
    exactly(parts.reliability[0], metrics.brier_score([1, 1, 1], [0.2, 0.7, 0.7]))
    assert abs(parts.resolution[1]) < 1e-30


def mass_bins(proba, weights, n_bins):
    """Equal mass by the definition: the middle of a probability's place among all the rows."""
    line = np.sort(np.repeat(proba, weights.astype(int)))
    middle = [
        (np.searchsorted(line, v, "left") + np.searchsorted(line, v, "right")) / 2 for v in proba
    ]
    return np.floor(np.array(middle) * n_bins / len(line)).astype(int)


def width_bins(proba, _, n_bins):
    edges = [b / n_bins for b in range(1, n_bins + 1)]
    return np.array([next(b for b, edge in enumerate(edges) if v <= edge) for v in proba])


@pytest.mark.parametrize("n_bins", [1, 3, 10, 64])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_binned_measures_against_a_loop(rows, strategy, n_bins):
    labels, proba, weights = rows
    which = (width_bins if strategy == "uniform" else mass_bins)(proba, weights, n_bins)
    curve = metrics.reliability_curve(
        labels, proba, weights=weights, n_bins=n_bins, strategy=strategy
    )
    gaps, masses = [], []
    for b in range(n_bins):
        here = which == b
        if not here.any():
            assert curve.rows[b] == 0
            assert np.isnan([x[b] for x in curve[:4]]).all()
            continue
        mass = weights[here].sum()
        positives = (weights * labels)[here].sum()
        predicted = np.average(proba[here], weights=weights[here])
        wilson = stats.binomtest(int(positives), int(mass)).proportion_ci(method="wilson")
        exactly([x[b] for x in curve], [predicted, positives / mass, *wilson, mass], atol=1e-15)
        gaps.append(abs(predicted - positives / mass))
        masses.append(mass)
    how = {"weights": weights, "n_bins": n_bins, "strategy": strategy}
    exactly(
        metrics.expected_calibration_error(labels, proba, **how), np.average(gaps, weights=masses)
    )
    exactly(metrics.maximum_calibration_error(labels, proba, **how), max(gaps))


def test_reliability_curve_against_scikit_learn(rows):
    labels, proba, _ = rows
    curve = metrics.reliability_curve(labels, proba, n_bins=8)
    true, predicted = calibration.calibration_curve(labels, proba, n_bins=8)
    filled = curve.rows > 0
    exactly(curve.prob_true[filled], true)
    exactly(curve.prob_pred[filled], predicted)


def test_edges_belong_to_the_bin_below_and_1_has_no_bin_of_its_own():
    proba = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
    curve = metrics.reliability_curve([0, 1, 0, 1, 0, 1, 1], proba, n_bins=10)
    assert curve.rows.tolist() == [2, 0, 1, 0, 1, 0, 1, 0, 1, 1]


def test_probabilities_on_edges_are_in_the_bins_of_their_digits(rng):
    """Tenths of float32 lie above edges of float64, which made the error half as large."""
    p = rng.integers(0, 11, 5000) / 10
    y = rng.random(5000) < np.clip(p + np.where((p * 10).round() % 2 == 1, 0.1, -0.1), 0, 1)
    expected = metrics.expected_calibration_error(y, p)
    with np.errstate(divide="ignore"):
        logits = np.clip(np.log(p / (1 - p)), -30, 30)
    narrow = p.astype(np.float32)
    ways = {
        "float32": (narrow, False),
        "float32 in float64, as figures read it": (narrow.astype(float), False),
        "logits": (logits, True),
        "logits in float32": (logits.astype(np.float32), True),
    }
    rows = metrics.reliability_curve(y, p).rows
    for way, (given, from_logits) in ways.items():
        found = metrics.reliability_curve(y, given, from_logits=from_logits).rows
        np.testing.assert_array_equal(found, rows, err_msg=way)
        error = metrics.expected_calibration_error(y, given, from_logits=from_logits)
        assert error == pytest.approx(expected, rel=1e-5), way
        for threshold in np.arange(1, 10) / 10:
            costs = [
                metrics.expected_cost(y, x, threshold=threshold, cost=(1, 3), from_logits=z).value
                for x, z in ((p, False), (given, from_logits))
            ]
            assert costs[1] == pytest.approx(costs[0], rel=1e-5), way


def test_equal_mass_is_equal_without_ties(rng):
    proba = rng.random((5, 120))
    curve = metrics.reliability_curve(proba > 0.5, proba, n_bins=8, strategy="quantile")
    assert np.all(curve.rows == 15)
    exactly(curve.prob_pred, np.sort(proba).reshape(5, 8, 15).mean(axis=-1))


def test_what_lies_in_the_middle_of_all_mass_goes_above():
    proba = np.arange(9) / 9
    for weights in (1, 0.1, 1 / 7):
        curve = metrics.reliability_curve(
            proba > 0.5, proba, weights=weights, n_bins=2, strategy="quantile"
        )
        exactly(curve.rows, [4 * weights, 5 * weights])


def test_reliability_without_weight_has_no_counts():
    curve = metrics.reliability_curve([[0, 1]] * 2, [[0.1, 0.9]] * 2, weights=[[1], [0]], n_bins=2)
    assert curve.rows[0].tolist() == [1, 1] and np.isnan(curve.rows[1]).all()


def smooth_ece_by_quadrature(proba, rate, points=5000):
    """The definition as it stands: reflected Gaussians summed, integrated, and a root found.

    Each of these probabilities has as much weight, with class 1 at its own rate.
    """
    t = (np.arange(points) + 0.5)[:, None] / points
    images = [sign * proba + 2 * k for sign in (-1, 1) for k in (-1, 0, 1)]

    def error(bandwidth):
        kernel = sum(np.exp(-(((t - image) / bandwidth) ** 2) / 2) for image in images)
        smoothed = kernel @ (rate - proba) / (bandwidth * math.sqrt(2 * math.pi))
        return np.abs(smoothed).mean() / len(proba)

    return optimize.brentq(lambda s: error(s) - s, 2**-10, 1, xtol=1e-7)


@pytest.mark.parametrize("n", [3, 12, 40, 120])
@pytest.mark.parametrize("size", [0.05, 0.4])
def test_smooth_ece_against_its_definition(n, size):
    """Residuals that alternate: the finer, the smaller the bandwidth at which they cancel."""
    proba = np.linspace(0, 1, n)
    rate = np.clip(proba + size * (-1.0) ** np.arange(n), 0, 1)
    weights = np.concatenate([rate, 1 - rate])
    got = metrics.smooth_ece(np.repeat([1, 0], n), np.tile(proba, 2), weights=weights)
    exactly(got, smooth_ece_by_quadrature(proba, rate), rtol=5e-4)


def test_smooth_ece_as_relplot_has_it():
    """Its smECE, version 1.0.3, whose bandwidths are multiples of 2^-10."""
    i = np.arange(2000)
    proba, dice = (i + 0.5) / 2000, i * 0.6180339887498949 % 1
    off = np.array([[0.05], [0.2]])
    got = metrics.smooth_ece(dice < proba + off * np.sin(6 * proba), np.tile(proba, (2, 1)))
    exactly(got, [0.0362031, 0.1157170], rtol=0.01)


def test_smooth_ece_of_perfect_probabilities_is_0():
    proba = np.array([0.1, 0.35, 0.8])
    exactly(
        metrics.smooth_ece(
            [[1] * 3 + [0] * 3], np.tile(proba, 2)[None], weights=np.concatenate([proba, 1 - proba])
        ),
        [0],
        atol=1e-15,
    )


def test_smooth_ece_below_the_least_bandwidth():
    """A single point off by d < 2^-10: all of it shows at any bandwidth."""
    got = metrics.smooth_ece([1, 0], [0.5, 0.5], weights=[0.5003, 0.4997])
    exactly(got, 3e-4, rtol=1e-9)


def test_cox_calibration_against_many_digits(rng):
    logits = rng.normal(size=40)
    labels = labels_of(rng, 0.5 * logits + 0.4).astype(int)
    weights = rng.integers(1, 4, size=40)
    A, B, (h_AA, h_AB, h_BB) = (
        x if isinstance(x, tuple) else float(x)
        for x in optimum(logits, labels, weights, kind="none")
    )
    se_slope, se_intercept = np.sqrt(
        np.diag(np.linalg.inv(np.array([[h_AA, h_AB], [h_AB, h_BB]], float)))
    )

    def loss(slope, intercept):
        signed = (2 * labels - 1) * (slope * logits + intercept)
        return (weights * np.log1p(np.exp(-signed))).sum()

    cox = metrics.cox_calibration(labels, logits, weights=weights, from_logits=True)
    exactly(cox[:4], [-A, -B, se_slope, se_intercept], rtol=1e-7)
    z = (-A - 1) / se_slope, -B / se_intercept
    exactly([cox.slope_test.statistic, cox.intercept_test.statistic], z, rtol=1e-7)
    exactly(
        [cox.slope_test.p_value, cox.intercept_test.p_value], 2 * stats.norm.sf(np.abs(z)), 1e-7
    )
    twice_gain = 2 * (loss(1, 0) - loss(-A, -B))
    exactly(
        [cox.joint_test.statistic, cox.joint_test.p_value],
        [twice_gain, stats.chi2.sf(twice_gain, 2)],
        rtol=1e-8,
    )
    assert cox.joint_test.df == 2


def test_cox_calibration_finds_the_line():
    logits = np.linspace(-3, 3, 9)
    rate = 1 / (1 + np.exp(-(0.3 + 0.5 * logits)))
    labels, weights = np.repeat([1, 0], 9), np.concatenate([rate, 1 - rate])
    cox = metrics.cox_calibration(labels, np.tile(logits, 2), weights=weights, from_logits=True)
    exactly([cox.slope, cox.intercept], [0.5, 0.3], rtol=1e-7)


def test_cox_calibration_without_a_finite_fit_is_nan():
    labels = [[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1]]
    proba = [[0.1, 0.2, 0.6, 0.8], [0.1, 0.2, 0.6, 0.8], [0.3] * 4, [0.1, 0.2, 0.6, 0.8]]
    cox = metrics.cox_calibration(labels, proba)
    numbers = np.array([*cox[:4], *cox.slope_test, *cox.intercept_test, *cox.joint_test[::2]])
    assert np.isnan(numbers[:, :3]).all() and np.isfinite(numbers[:, 3]).all()


def test_spiegelhalter_against_a_loop(rows):
    labels, proba, weights = rows
    top = sum(w * (y - p) * (1 - 2 * p) for y, p, w in zip(*rows, strict=True))
    variance = sum(w * (1 - 2 * p) ** 2 * p * (1 - p) for p, w in zip(proba, weights, strict=True))
    z = top / math.sqrt(variance)
    assert abs(z) > 1
    exactly(
        metrics.spiegelhalter(labels, proba, weights=weights), [z, 2 * stats.norm.sf(abs(z))], 1e-11
    )


def test_spiegelhalter_as_printed():
    """Rufibach 2010, Journal of Clinical Epidemiology 63:938-939, table 1."""
    labels, proba = [[1, 0], [1, 0]], [[0.2, 0.2], [0.4, 0.5]]
    assert np.round(metrics.brier_score(labels, proba), 3).tolist() == [0.34, 0.305]
    assert np.round(metrics.spiegelhalter(labels, proba).statistic, 2).tolist() == [1.06, 1.22]


def test_spiegelhalter_answers():
    test = metrics.spiegelhalter([[0, 1], [0, 1], [1, 1]], [[0.5, 0.5], [0, 1], [0, 1]])
    assert np.isnan(test.statistic[:2]).all() and np.isnan(test.p_value[:2]).all()
    assert test.statistic[2] == np.inf and test.p_value[2] == 0


@pytest.mark.parametrize("n_bins", [7, 10])
@pytest.mark.parametrize("in_sample", [False, True])
def test_hosmer_lemeshow_against_a_loop(rows, in_sample, n_bins):
    labels, proba, weights = rows
    which, chi2 = mass_bins(proba, weights, n_bins), 0
    for b in set(which):
        n = weights[which == b].sum()
        seen, expected = ((weights * x)[which == b].sum() for x in (labels, proba))
        chi2 += (seen - expected) ** 2 / expected + (seen - expected) ** 2 / (n - expected)
    df = len(set(which)) - 2 * in_sample
    how = {"weights": weights, "n_bins": n_bins, "in_sample": in_sample}
    test = metrics.hosmer_lemeshow(labels, proba, **how)
    exactly(test[:2], [chi2, df], rtol=1e-10)
    if in_sample:  # if not, of few expected labels: tests/metrics/test_metrics_few.py
        exactly(test.p_value, stats.chi2.sf(chi2, df), rtol=1e-10)


def test_hosmer_lemeshow_answers():
    test = metrics.hosmer_lemeshow([[0, 1], [1, 1], [0, 1]], [[0, 1], [0, 1], [0.5, 0.5]], n_bins=2)
    assert test.statistic.tolist() == [0, np.inf, 0]
    assert test.df.tolist() == [2, 2, 1]
    assert test.p_value.tolist() == [1, 0, 1]
    huge = metrics.hosmer_lemeshow([1], np.float32([1e-45]), n_bins=1)  # 1e45 in float64
    assert huge.statistic == np.inf and huge.p_value == np.float32(1e-45)
    few = metrics.hosmer_lemeshow([0, 1], [0.2, 0.7], n_bins=2, in_sample=True)
    assert few.df == 0 and np.isnan(few.p_value) and few.statistic > 0


def test_small_p_values_are_those_of_scipy():
    """From 1 down to 1e-300, by labels ever less likely."""
    n = np.arange(1, 1130, 7)[:, None] + 0.5  # no counts, whose distribution is another
    unlikely = np.full((len(n), 1), 0.45)
    test = metrics.hosmer_lemeshow([[1]], unlikely, weights=n, n_bins=1)
    exactly(test.p_value, stats.chi2.sf(test.statistic, 1), rtol=1e-10)
    assert test.p_value.min() < 1e-300
    both = np.hstack([unlikely, unlikely + 0.01])
    test = metrics.hosmer_lemeshow([[1, 1]], both, weights=(n + 0.2) / 2, n_bins=2)
    exactly(test.p_value, stats.chi2.sf(test.statistic, 2), rtol=1e-10)
    test = metrics.spiegelhalter([[1]], unlikely, weights=n)
    exactly(test.p_value, 2 * stats.norm.sf(test.statistic), rtol=1e-10)
    assert test.p_value.min() < 1e-300


@pytest.mark.parametrize("groups", [1, 2, 3, 10, 99, 1000, 1480, 1481, 2500, 5000])
@pytest.mark.parametrize("excess", [0.98, 1.01, 1.1, 1.5])
def test_p_values_of_any_number_of_groups(groups, excess):
    """chi2 is some excess times df: from far above 1/2 to 1e-100 and less."""
    proba = 0.5 + 1e-7 * np.arange(groups)
    test = metrics.hosmer_lemeshow(
        np.arange(groups) % 2, proba, weights=np.full(groups, excess), n_bins=groups
    )
    assert test.df == groups
    exactly(test.statistic, excess * groups, rtol=1e-2)
    with mpmath.workdps(30):
        half = mpmath.mpf(float(test.statistic)) / 2
        expected = float(mpmath.gammainc(mpmath.mpf(groups) / 2, half, regularized=True))
    exactly(test.p_value, expected, rtol=1e-11)


def test_p_value_of_a_huge_statistic_is_0():
    test = metrics.hosmer_lemeshow([[1], [1]], [[1e-300], [0.5]], weights=[[1], [1e6]], n_bins=1)
    assert np.all(test.statistic > 1e5) and test.p_value.tolist() == [1e-300, 0]


def test_bins_of_equal_expected_positives(rng):
    """By a loop over the rows in order: the middle of each row's share of what is expected."""
    p = rng.beta(0.2, 20, 3000)
    labels = (rng.random(3000) < p).astype(int)
    curve = metrics.reliability_curve(labels, p, n_bins=8, strategy="positives")
    bins, below, total = np.zeros(3000, int), 0.0, p.sum()
    for i in np.argsort(p).tolist():
        bins[i] = int(8 * (below + p[i] / 2) / total)
        below += p[i]
    for b in range(8):
        mine = bins == b
        assert curve.rows[b] == mine.sum() > 0
        np.testing.assert_allclose(curve.prob_pred[b], p[mine].mean())
        np.testing.assert_allclose(curve.prob_true[b], labels[mine].mean())
        assert abs(p[mine].sum() - total / 8) < p.max()
    assert curve.rows[0] > 1000 > curve.rows[-1]
