"""Labels that are shares: positives among trials, and soft labels."""

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj

PLAIN = pj.Options(targets="none")


def votes(rng, rows, correlation=0.5, raters=5, slope=1.2, intercept=-0.5):
    """Scores (..., N), and how many of the raters said yes."""
    scores = rng.normal(size=rows)
    p = expit(slope * scores + intercept)
    if correlation == 0:
        return scores, rng.binomial(raters, p)
    if correlation == 1:
        return scores, raters * (rng.random(rows) < p)
    precision = (1 - correlation) / correlation
    return scores, rng.binomial(raters, rng.beta(p * precision, (1 - p) * precision))


def optimum(scores, positives, trials):
    """A and B of least binomial loss, and Pearson's dispersion times the inverse Hessian.

    By Newton's method, which for these is the scoring of generalized linear models.
    """
    X, x = np.stack([scores, np.ones_like(scores)], 1), np.zeros(2)
    for _ in range(20):
        p = expit(X @ x)
        weight = trials * p * (1 - p)
        inverse = np.linalg.inv(X.T @ (X * weight[:, None]))
        x = x + inverse @ X.T @ (positives - trials * p)
    phi = ((positives - trials * p) ** 2 / weight).sum() / (len(scores) - 2)
    return x, phi * inverse, phi


@pytest.mark.parametrize("soft", [False, True])
def test_a_fit_is_the_optimum_with_errors_by_pearson(rng, soft):
    scores, k = votes(rng, 400)
    trials = np.ones(400) if soft else rng.integers(5, 9, 400)
    labels = k / 5 if soft else k
    given = dict(soft=True) if soft else dict(trials=trials)
    found = pj.fit(scores, labels, options=PLAIN, **given)
    x, covariance, phi = optimum(scores, labels, trials)
    np.testing.assert_allclose([-found.A, -found.B], x, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7)
    np.testing.assert_allclose(found.n_pos + found.n_neg, trials.sum() / phi, rtol=1e-7)


@pytest.mark.parametrize("correlation", [0, 0.5])
def test_a_fit_is_that_of_statsmodels(rng, correlation):
    sm = pytest.importorskip("statsmodels.api")
    scores, k = votes(rng, 300, correlation)
    X = np.stack([scores, np.ones_like(scores)], 1)
    model = sm.GLM(np.stack([k, 5 - k], 1), X, family=sm.families.Binomial())
    theirs = model.fit(tol=1e-13, tol_criterion="params", maxiter=200)
    mine = pj.fit(scores, k, trials=5, options=PLAIN)
    np.testing.assert_allclose([-mine.A, -mine.B], theirs.params, rtol=1e-8)
    # Their scale="X2" leaves the number of trials out of the variance.
    p = theirs.fittedvalues
    phi = ((k - 5 * p) ** 2 / (5 * p * (1 - p))).sum() / 298
    np.testing.assert_allclose(mine.covariance, phi * theirs.cov_params(), rtol=1e-7)


def test_a_batch_and_segments_are_their_single_fits(rng):
    scores, k = votes(rng, (3, 200))
    batch = pj.fit(scores, k, trials=5)
    for i in range(3):
        one = pj.fit(scores[i], k[i], trials=5)
        np.testing.assert_allclose([batch.A[i], batch.B[i]], [one.A, one.B], rtol=1e-9)
        np.testing.assert_allclose(batch.covariance[i], one.covariance, rtol=1e-9)
    segments = np.repeat(["a", "b", "c"], 200)
    found = pj.fit_segments(scores.ravel(), k.ravel(), segments, trials=5, options=PLAIN)
    alone = pj.fit(scores, k, trials=5, options=PLAIN)
    np.testing.assert_allclose(found.fit.A, alone.A, rtol=1e-8)
    # One dispersion for all segments: Pearson's statistics and degrees of freedom add up.
    own = [optimum(f, y, 5)[2] for f, y in zip(scores, k, strict=True)]
    ratio = np.mean(own) / np.array(own)
    expected = alone.covariance * ratio[:, None, None]
    np.testing.assert_allclose(found.fit.covariance, expected, rtol=1e-5)


def test_trials_are_rows_and_weights_count_them(rng):
    scores, k = votes(rng, 100)
    weights = rng.integers(0, 3, 100)
    found = pj.fit(scores, k, trials=5, weights=weights)
    repeated = pj.fit(*(np.repeat(x, weights) for x in (scores, k)), trials=5)
    np.testing.assert_allclose(found.A, repeated.A, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, repeated.covariance, rtol=1e-9)
    # Two rows, two parameters: nothing tells the dispersion.
    two = pj.fit([-1.0, 1.0], [30, 60], trials=100, options=PLAIN)
    np.testing.assert_allclose(two.sigmoid.predict_proba([-1.0, 1.0]), [0.3, 0.6], rtol=1e-9)
    assert two.n_pos + two.n_neg == 200


@pytest.mark.parametrize("kind", ["one class", "separable", "both"])
def test_soft_labels_of_0_and_1_are_labels(kind, rng):
    """A fit that is nearly certain of them does not make them count more often."""
    scores = np.linspace(-1, 1, 40)
    labels = {
        "one class": np.ones(40),
        "separable": 1.0 * (scores > 0),
        "both": rng.random(40) < 0.5,
    }
    expected = pj.fit(scores, labels[kind])
    found = pj.fit(scores, labels[kind].astype(float), soft=True)
    for name in ("A", "B", "n_pos", "n_neg", "covariance"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-12
        )
    segments = np.arange(40) % 2
    by_segment = pj.fit_segments(scores, labels[kind].astype(float), segments, soft=True)
    assert (by_segment.fit.n_pos + by_segment.fit.n_neg == 20).all()


@pytest.mark.parametrize("targets", ["none", "platt"])
@pytest.mark.parametrize("slope", [2.0, 0.0])
def test_soft_labels_that_the_curve_fits_exactly_count_a_thousand_times(targets, slope, rng):
    scores = rng.normal(size=300)
    labels = 1 / (1 + np.exp(0.3 - slope * scores))
    fit = pj.fit(scores, labels, soft=True, options=pj.Options(targets=targets))
    assert fit.status == pj.Status.CONVERGED
    np.testing.assert_allclose([-fit.A, -fit.B], [slope, -0.3], atol=1e-3)
    np.testing.assert_allclose(fit.n_pos + fit.n_neg, 300_000)


@pytest.mark.parametrize("k", [np.zeros(40), np.full(40, 3)])
def test_trials_of_one_class_count_once(k):
    found = pj.fit(np.linspace(-1, 1, 40), k, trials=3)
    assert found.n_pos + found.n_neg == 120


def test_trials_that_agree_are_one_label(rng):
    """Separable ones, too, of which the residuals depend on where the search stops."""
    scores = rng.normal(size=60)
    for labels in (scores > 0, rng.random(60) < expit(scores)):
        expected = pj.fit(scores, labels)
        found = pj.fit(scores, 3 * labels, trials=3)
        for name in ("A", "B", "n_pos", "n_neg", "covariance"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8)


def test_a_constant_offset_changes_no_error(rng):
    scores, k = votes(rng, 300)
    plain, moved = (pj.fit(scores, k, trials=5, offset=x) for x in (None, np.full(300, 2.0)))
    np.testing.assert_allclose(moved.covariance, plain.covariance, rtol=1e-6)


@pytest.mark.slow
def test_a_population_and_an_offset(rng):
    scores, k = votes(rng, 3_000)
    segments = np.arange(3_000) % 30
    offset = rng.normal(size=3_000)
    found = pj.fit_segments(scores, k / 5, segments, soft=True, offset=offset, pooling="partial")
    assert found.pooling == "partial" and np.isfinite(found.fit.covariance).all()
    many = pj.fit_segments(scores, k, segments, trials=5, offset=offset, pooling="partial")
    # Five votes with a dispersion of 5 phi say what one share with phi does.
    np.testing.assert_allclose(found.population.mean, many.population.mean, rtol=0.05)
    np.testing.assert_allclose(found.fit.covariance, many.fit.covariance, rtol=0.1)


def test_what_is_refused(rng):
    f, s = [0.0, 1.0, 2.0], ["a", "a", "b"]
    for labels, given, message in (
        ([0.5, 1.2, 0], dict(soft=True), "labels: expected numbers from 0 to 1, got 1.2"),
        ([0.5, -0.1, 0], dict(soft=True), "labels: expected numbers from 0 to 1, got -0.1"),
        (
            [1, 6, 0],
            dict(trials=[5, 5, 5]),
            "labels: expected numbers from 0 to the row's trials, 5",
        ),
        ([1, 0, 0], dict(trials=[5, 0, 5]), "trials: expected numbers above 0, got 0"),
        ([1, 0, 0], dict(trials=5, soft=True), "soft: expected False beside trials"),
        ([1, 0, 0], dict(trials=5, pos_label="yes"), "pos_label: expected none beside trials"),
        ([1, 0, 0], dict(soft=True, curve="isotonic"), "curve: expected 'sigmoid' beside soft"),
        ([1, 0, 0], dict(soft=True, weights=[1, -1, 1]), "weights: expected"),
        ([0.5, 0.2, 0], dict(soft="yes"), "soft: expected True or False, got str"),
        ([0.5, 0.2, 0], dict(soft=np.ones(3)), "soft: expected True or False, got ndarray"),
        ([0.5, 0.2, 0], {}, "labels: expected"),
    ):
        for call in (
            lambda labels=labels, given=given: pj.fit(f, labels, **given),
            lambda labels=labels, given=given: pj.fit_segments(f, labels, s, **given),
        ):
            with pytest.raises(ValueError, match=message):
                call()
    rows = pj.SegmentRows(f, [1, 0, 1], s)
    for given, option in ((dict(soft=True), "soft"), (dict(trials=5), "trials")):
        message = f"scores: expected an array on the host beside {option}, got SegmentRows"
        with pytest.raises(ValueError, match=message):
            pj.fit_segments(rows, **given)


def test_a_row_that_is_not_finite_marks_its_segment(rng):
    scores, k = votes(rng, 100)
    share = k / 5
    share[3] = np.nan
    with pytest.warns(RuntimeWarning, match="in 1 of 2 segments"):
        found = pj.fit_segments(scores, share, np.arange(100) % 2, soft=True)
    assert np.isfinite(found.fit.A).tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
@pytest.mark.parametrize("soft", [False, True])
def test_bands_hold_the_curve_however_raters_agree(pooling, soft):
    at = np.array([-1.5, 0.0, 1.5])
    for correlation in (0, 0.3, 0.7, 1):
        rng, held = np.random.default_rng(0), []
        for _ in range(4):
            slope, intercept = (
                np.repeat(m + sd * rng.normal(size=100), 100) for m, sd in ((1.2, 0.3), (-0.5, 0.5))
            )
            scores, k = votes(rng, 10_000, correlation, slope=slope, intercept=intercept)
            segments = np.repeat(np.arange(100), 100)
            given = dict(soft=True) if soft else dict(trials=5)
            made = pj.fit_segments(scores, k / 5 if soft else k, segments, pooling=pooling, **given)
            lower, upper = made.band(np.tile(at, 100), np.repeat(np.arange(100), 3))
            truth = expit(slope[::100, None] * at + intercept[::100, None]).ravel()
            held.append((lower <= truth) & (truth <= upper))
        assert 0.93 <= np.mean(held) <= 0.98, correlation
