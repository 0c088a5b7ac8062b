"""The sandwich covariance, against plain loops and simulation; and fits as priors."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import labels_of, problem
from reference import targets
from scipy.special import expit

import platt_jax as pj
from platt_jax import GaussianPrior, Options
from platt_jax.inference import prior_from, robust_covariance

PRIOR = GaussianPrior(np.array([-1.0, 0.5]), np.array([[3.0, 0.4], [0.4, 0.7]]))


def oracle(one, scores, labels, weights=None, clusters=None, precision=0.0, kind="platt"):
    """H^-1 M H^-1 row by row, and cluster by cluster."""
    w = np.ones(len(scores)) if weights is None else weights
    bread, meat, sums = np.zeros((2, 2)) + precision, np.zeros((2, 2)), {}
    for i, (f, t) in enumerate(zip(scores, targets(labels, weights, kind), strict=True)):
        p, x = expit(-(one.A * f + one.B)), np.array([f, 1.0])
        bread += w[i] * p * (1 - p) * np.outer(x, x)
        if clusters is None:
            meat += w[i] * (t - p) ** 2 * np.outer(x, x)
        else:
            sums[clusters[i]] = sums.get(clusters[i], 0) + w[i] * (t - p) * x
    if clusters is not None:
        meat = sum(np.outer(s, s) for s in sums.values()) * len(sums) / (len(sums) - 1)
    return np.linalg.inv(bread) @ meat @ np.linalg.inv(bread)


@pytest.mark.parametrize(
    "weighted, clustered, targets, prior",
    [
        (False, False, "platt", None),
        (False, True, "platt", None),
        (True, False, "none", None),
        pytest.param(True, True, "platt", PRIOR, marks=pytest.mark.slow),
    ],
)
def test_row_by_row(rng, weighted, clustered, targets, prior):
    scores, labels = problem(rng, (2, 60))
    given = {
        "weights": rng.uniform(0, 3, (2, 60)) if weighted else None,
        "prior": prior,
        "options": Options(targets=targets),
    }
    clusters = [f"user {i}" for i in rng.integers(0, 15, 60)] if clustered else None
    fits = pj.fit(scores, labels, **given)
    robust = robust_covariance(fits, scores, labels, clusters=clusters, **given)
    assert replace(robust, covariance=fits.covariance) == fits
    for k in range(2):
        expected = oracle(
            jax.tree.map(lambda x: x[k], fits),  # noqa: B023
            scores[k],
            labels[k],
            given["weights"][k] if weighted else None,
            clusters,
            0 if prior is None else prior.precision,
            targets,
        )
        np.testing.assert_allclose(robust.covariance[k], expected, rtol=1e-10)


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_of_segments_however_they_are_pooled(rng, pooling):
    scores, labels = problem(rng, 300)
    which = rng.integers(0, 3, 300)
    calibrator = pj.fit_segments(scores, labels, which, pooling=pooling)
    assert calibrator.pooling == pooling
    robust = robust_covariance(calibrator, scores, labels, segments=which)
    of_all = oracle(calibrator.fallback, scores, labels)
    np.testing.assert_allclose(robust.fallback_covariance, of_all, rtol=1e-9)
    for k in range(3):
        one, rows = jax.tree.map(lambda x: x[k], calibrator.fit), which == k  # noqa: B023
        expected = of_all
        if pooling == "none":
            expected = oracle(one, scores[rows], labels[rows])
        np.testing.assert_allclose(robust.fit.covariance[k], expected, rtol=1e-9)


def test_after_only_the_curve_of_all_rows_has_no_sandwich(rng):
    """Its rows are not given: the sandwich of the others was five times too wide."""
    scores, labels = problem(rng, 300)
    which = rng.integers(0, 3, 300)
    calibrator = pj.fit_segments(scores, labels, which)
    some = which < 2
    robust = robust_covariance(
        calibrator.only(np.arange(3) < 2), scores[some], labels[some], segments=which[some]
    )
    whole = robust_covariance(calibrator, scores, labels, segments=which)
    np.testing.assert_array_equal(robust.fit.covariance, whole.fit.covariance[:2])
    assert np.isnan(robust.fallback_covariance).all()
    assert np.isnan(robust.band([0.0], 9)[0]).all()


@pytest.mark.parametrize("pooling", ["partial", "nested"])
def test_a_population_is_refused(rng, pooling):
    """Before, a calibrator came back whose bands were those of independent rows."""
    scores, labels = problem(rng, 300)
    which, day = rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    if pooling == "nested":
        which = np.stack([which, day], 1)
    calibrator = pj.fit_segments(scores, labels, which, pooling=pooling)
    with pytest.raises(ValueError, match=f'pooling=.{pooling}.; .*segment, day.*"nested"'):
        robust_covariance(calibrator, scores, labels, segments=which, clusters=day)


def test_a_shift_is_refused(rng):
    """Before, residuals were of curves at another rate than that of the rows."""
    scores, labels = problem(rng, (300, 3))
    which = rng.integers(0, 3, 300)
    of_segments = scores[:, 0], labels[:, 0], which
    for made, rows in (
        (pj.fit_segments(*of_segments), of_segments),
        (pj.fit_one_vs_rest(scores, which), (scores, which)),
    ):
        with pytest.raises(ValueError, match=r"^calibrator: .* got one after shift_prior"):
            robust_covariance(made.shift_prior(0.4, 0.1), *rows)


@pytest.mark.parametrize("clustered", [False, True])
def test_weight_2_is_the_row_twice_and_weight_0_the_row_gone(rng, clustered):
    scores, labels = problem(rng, 50)
    weights = rng.integers(0, 4, 50)
    clusters = rng.integers(0, 10, 50) if clustered else None
    scores[weights == 0] = np.nan
    weighted = robust_covariance(
        pj.fit(scores, labels, weights=weights), scores, labels, weights=weights, clusters=clusters
    )
    rows = np.repeat(np.arange(50), weights)
    repeated = robust_covariance(
        pj.fit(scores[rows], labels[rows]),
        scores[rows],
        labels[rows],
        clusters=clusters[rows] if clustered else None,
    )
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-9)


@pytest.mark.slow
def test_segments_and_classes_are_fits_of_their_own(rng):
    scores, labels = problem(rng, 63)
    segments, clusters = np.array(["b", "a", "c"])[np.arange(63) % 3], rng.integers(0, 20, 63)
    weights = rng.uniform(0.5, 2, 63)
    shared = {"weights": weights, "prior": PRIOR}
    calibrator = pj.fit_segments(scores, labels, segments, **shared)
    robust = robust_covariance(
        calibrator, scores, labels, segments=segments, clusters=clusters, **shared
    )
    assert (
        replace(
            robust,
            fit=calibrator.fit,
            fallback_covariance=calibrator.fallback_covariance,
            events=calibrator.events,
        )
        == calibrator
    )
    for name in "abc":
        rows = segments == name
        own = pj.fit(scores[rows], labels[rows], weights=weights[rows], prior=PRIOR)
        expected = oracle(
            own, scores[rows], labels[rows], weights[rows], clusters[rows], PRIOR.precision
        )
        np.testing.assert_allclose(robust[name].covariance, expected, rtol=1e-7)
    pooled = oracle(calibrator.fallback, scores, labels, weights, clusters, PRIOR.precision)
    np.testing.assert_allclose(robust.fallback_covariance, pooled, rtol=1e-7)

    columns, names = rng.normal(size=(90, 3)), np.array(["x", "z", "y"])
    by_class = names[np.arange(90) % 3]
    one_vs_rest = pj.fit_one_vs_rest(columns, by_class, classes=names)
    robust = robust_covariance(one_vs_rest, columns, by_class)
    for c, name in enumerate(names):
        expected = oracle(one_vs_rest[name], columns[:, c], by_class == name)
        np.testing.assert_allclose(robust[name].covariance, expected, rtol=1e-9)
    multilabel = by_class[:, None] == names
    np.testing.assert_array_equal(
        robust_covariance(one_vs_rest, columns, multilabel).fit.covariance, robust.fit.covariance
    )


def test_a_batch_in_parts_is_the_batch(rng, monkeypatch):
    scores, labels = problem(rng, (2, 5, 30))
    fits = pj.fit(scores, labels)
    whole = robust_covariance(fits, scores, labels, clusters=np.arange(30) // 3)
    assert whole.covariance.shape == (2, 5, 2, 2)
    monkeypatch.setattr("platt_jax.inference.robust._ROWS_AT_ONCE", 70)
    in_parts = robust_covariance(fits, scores, labels, clusters=np.arange(30) // 3)
    np.testing.assert_allclose(in_parts.covariance, whole.covariance, rtol=1e-12)


@pytest.mark.parametrize("shift, scale", [(1e6, 1.0), (0.0, 1e-150), (0.0, 1e120)])
def test_shifted_and_scaled_scores(rng, shift, scale):
    scores, labels = problem(rng, 100)
    moved = scores * scale + shift
    plain = robust_covariance(pj.fit(moved - shift, labels), moved - shift, labels)
    robust = robust_covariance(pj.fit(moved, labels), moved, labels)
    errors = robust.standard_errors
    assert errors[0] == pytest.approx(plain.standard_errors[0], rel=1e-6)
    at = np.quantile(moved, [0.1, 0.5, 0.9])
    for found, expected in zip(robust.band(at), plain.band(at - shift), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.slow
def test_float32_and_jax(rng):
    scores, labels = problem(rng, (2, 80))
    narrow = scores.astype(np.float32)
    expected = robust_covariance(pj.fit(narrow.astype(float), labels), narrow, labels).covariance
    robust = robust_covariance(pj.fit(narrow, labels), narrow, labels)
    assert robust.covariance.dtype == np.float32
    np.testing.assert_allclose(robust.covariance, expected, rtol=1e-4)
    of_jax = robust_covariance(pj.solve(jnp.asarray(narrow), labels), narrow, labels)
    assert isinstance(of_jax.covariance, jax.Array)
    np.testing.assert_allclose(of_jax.covariance, expected, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_problems_without_a_covariance(rng):
    scores, labels = problem(rng, (4, 40))
    scores[0] = 1.0
    scores[1, 5] = np.nan
    weights = np.ones((4, 40))
    weights[2] = 0
    robust = robust_covariance(
        pj.fit(scores, labels, weights=weights), scores, labels, weights=weights
    )
    assert np.isnan(robust.covariance[:3]).all() and np.isfinite(robust.covariance[3]).all()
    assert np.isnan(
        robust_covariance(
            pj.fit(scores[3], labels[3]), scores[3], labels[3], clusters=["one"] * 40
        ).covariance
    ).all()
    omit = Options(non_finite="omit")
    fits = pj.fit(scores[1], labels[1], options=omit)
    rest = np.isfinite(scores[1])
    expected = oracle(fits, scores[1][rest], labels[1][rest])
    found = robust_covariance(fits, scores[1], labels[1], options=omit).covariance
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_rows_that_are_fitted_exactly_leave_no_negative_variance(rng):
    """Two rows, two parameters: before, bands warned of an invalid value in sqrt."""
    scores = 1e5 * rng.normal(size=(2_000, 2))
    labels, offset = rng.random((2_000, 2)) < 0.7, rng.normal(size=(2_000, 2))
    fits = pj.fit(scores, labels, offset=offset)
    robust = robust_covariance(fits, scores, labels, offset=offset)
    lower, upper = robust.band(scores, offset=offset)
    assert (lower <= upper).all()


@pytest.mark.slow
def test_a_slope_held_at_0_has_no_variance(rng):
    scores, labels = problem(rng, 80)
    held = Options(monotone=True)
    fitted = pj.fit(-scores, labels, options=held)
    assert fitted.A == 0
    found = robust_covariance(fitted, -scores, labels, options=held).covariance
    p, t = expit(-fitted.B), targets(labels)
    expected = ((t - p) ** 2).sum() / (80 * p * (1 - p)) ** 2
    np.testing.assert_allclose(found, [[0, 0], [0, expected]], rtol=1e-9)


def test_under_a_wrong_curve_it_is_what_simulation_gives():
    """The truth is flat beyond +-1, of which the inverse Hessian does not know: it is a third off.

    Each of the observed variances is known to 3 %, by the number of fits.
    """
    rng = np.random.default_rng(3)
    scores = rng.normal(scale=2, size=(2000, 400))
    labels = labels_of(rng, 2 * np.clip(scores, -1, 1))
    fits = pj.fit(scores, labels)
    observed = np.stack([fits.A.var(), fits.B.var()])
    robust = robust_covariance(fits, scores, labels).standard_errors ** 2
    np.testing.assert_allclose(robust.mean(axis=0), observed, rtol=0.1)
    assert fits.covariance.mean(axis=0)[0, 0] < 0.7 * observed[0]


def test_rows_that_come_in_clusters():
    """Each row four times: the inverse Hessian has a fourth of the variance, clusters have it."""
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(3000, 100))
    labels = labels_of(rng, 1.5 * scores)
    scores, labels = scores.repeat(4, axis=1), labels.repeat(4, axis=1)
    fits = pj.fit(scores, labels)
    observed = np.cov(np.stack([fits.A, fits.B]))
    robust = robust_covariance(fits, scores, labels, clusters=np.arange(400) // 4)
    robust = np.median(np.linalg.det(robust.covariance)), np.median(np.linalg.det(fits.covariance))
    # Determinants: 4 to the power of 2.
    assert 0.6 < robust[0] / np.linalg.det(observed) < 1.3
    assert robust[1] / np.linalg.det(observed) < 0.1


def test_other_arguments_than_those_of_the_fit(rng):
    scores, labels = problem(rng, 60)
    fitted = pj.fit(scores, labels)
    by_segment = pj.fit_segments(scores, labels, np.arange(60) % 2)
    by_class = pj.fit_one_vs_rest(np.stack([-scores, scores], -1), labels)
    other = labels.copy()
    other[0] = 1 - other[0]
    for arguments, more, message in (
        (
            (fitted, scores, other),
            {},
            "scores, labels, weights: expected the rows that were fitted",
        ),
        ((fitted, scores[1:], labels[1:]), {}, "expected the rows that were fitted"),
        ((fitted, scores[None], labels), {}, "scores: expected shape"),
        ((fitted, scores, labels), {"clusters": [1, 2]}, "clusters: expected one id per row, 60"),
        ((fitted, scores, labels), {"clusters": [None] * 60}, "clusters: expected ids, got None"),
        ((fitted, scores, labels), {"segments": labels}, "segments: expected None for a Fit"),
        ((fitted, scores, labels), {"options": {}}, "options: expected an Options"),
        ((fitted, scores, labels), {"prior": {}}, "prior: expected a GaussianPrior"),
        ((fitted.sigmoid, scores, labels), {}, "calibrator: expected a fit, got Sigmoid"),
        ((by_segment, scores, labels), {"segments": np.arange(60)}, "segments: expected those"),
        ((by_segment, scores, labels), {}, "segments: expected"),
        ((by_segment, scores, labels), {"segments": [1]}, "segments: expected one id per row"),
        ((by_segment, scores, labels), {"prior": {}, "segments": np.arange(60) % 2}, "prior: expe"),
        ((by_class, scores, labels), {}, r"scores: expected shape \(N, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            robust_covariance(*arguments, **more)


# --- fits as priors -------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_nights_are_nearly_one_fit_of_both(rng):
    scores, labels = problem(rng, (2, 4000))
    first = pj.fit(scores[:, :2000], labels[:, :2000])
    second = pj.fit(scores[:, 2000:], labels[:, 2000:], prior=prior_from(first))
    both = pj.fit(scores, labels)
    np.testing.assert_allclose(second.standard_errors, both.standard_errors, rtol=0.05)
    off = np.stack([second.A - both.A, second.B - both.B], -1)
    assert (np.abs(off) < 0.2 * both.standard_errors).all()
    half = prior_from(first, forgetting=0.5)
    np.testing.assert_array_equal(half.precision, first.hessian / 2)
    np.testing.assert_array_equal(half.mean, np.stack([first.A, first.B], -1))


@pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing")
def test_priors_by_key(rng):
    scores, labels = problem(rng, 90)
    segments = np.array(["b", "a", "c"])[np.arange(90) % 3]
    scores[segments == "c"] = np.nan
    last = pj.fit_segments(scores, labels, segments)
    prior = prior_from(last, ["a", "new", "b", "c"])
    for i, name in ((0, "a"), (2, "b")):
        np.testing.assert_array_equal(prior.mean[i], [last[name].A, last[name].B])
        np.testing.assert_array_equal(prior.precision[i], last[name].hessian)
    for i in (1, 3):
        assert not prior.mean[i].any() and not prior.precision[i].any()
    np.testing.assert_array_equal(prior_from(last).mean[:2], prior.mean[[0, 2]])
    finite = np.where(np.isnan(scores), 0.5, scores)
    tonight = pj.fit_segments(
        finite,
        labels,
        np.array(["b", "new", "c"])[np.arange(90) % 3],
        prior=prior_from(last, ["b", "c", "new"]),
    )
    plain = pj.fit_segments(finite, labels, np.array(["b", "new", "c"])[np.arange(90) % 3])
    assert tonight["new"].A == pytest.approx(plain["new"].A, rel=1e-9)
    assert tonight["b"].standard_errors[0] < 0.9 * plain["b"].standard_errors[0]

    names = np.array(["x", "z", "y"])
    classes = pj.fit_one_vs_rest(rng.normal(size=(60, 3)), names[np.arange(60) % 3], classes=names)
    prior = prior_from(classes, ["y", "w", "x", "z"])
    np.testing.assert_array_equal(prior.mean[[2, 3, 0], 0], classes.fit.A)
    assert not prior.precision[1].any()


@pytest.mark.slow
def test_priors_of_float32_and_constant_scores_are_taken(rng):
    scores, labels = problem(rng, (3, 60))
    scores[1] = 2.0
    scores[2] += 100
    last = pj.fit(scores.astype(np.float32), labels)
    tonight = pj.fit(scores.astype(np.float32), labels, prior=prior_from(last))
    assert tonight.converged.all()
    np.testing.assert_allclose(tonight.A, last.A, rtol=1e-2)


def test_priors_that_cannot_be(rng):
    last = pj.fit(*problem(rng, 30))
    for forgetting in (0, 1.5, -1, float("nan")):
        with pytest.raises(ValueError, match="forgetting: expected a number in"):
            prior_from(last, forgetting=forgetting)
    with pytest.raises(ValueError, match="keys: expected None for a Fit"):
        prior_from(last, [1, 2])
    with pytest.raises(ValueError, match="keys: expected ids of the kind"):
        prior_from(pj.fit_segments(*problem(rng, 30), np.arange(30) % 2), ["a"])
    with pytest.raises(ValueError, match="calibrator: expected a fit, got Sigmoid"):
        prior_from(last.sigmoid)
