"""leave_one_out gives every row what a fit of all other rows gives it."""

from importlib import import_module

import numpy as np
import pytest
from data import batch, labels_of, rows_of
from reference import optimum

import platt_jax as pj
from platt_jax import GaussianPrior, Options, Status, metrics
from platt_jax.inference import row_tiles
from platt_jax.results.probabilities import expit

# In the package the name is the function's.
MODULE = import_module("platt_jax.inference.leave_one_out")
PRIOR = GaussianPrior(np.array([-1.0, 0.3]), np.array([[3.0, 0.5], [0.5, 2.0]]))


def one_by_one(scores, labels, weights=None, prior=None, options=Options()):  # noqa: B008
    """The log-odds of each row of one problem, by as many fits."""
    n = len(scores)
    others = np.arange(n - 1) + (np.arange(n - 1) >= np.arange(n)[:, None])
    weights = None if weights is None else weights[others]
    fit = pj.fit(scores[others], labels[others], weights=weights, prior=prior, options=options)
    return fit.sigmoid.logit(scores[:, None])[:, 0]


def logit(p):
    return np.log(p) - np.log1p(-p)


def assert_exact(scores, labels, weights=None, prior=None, options=Options(), atol=1e-6):  # noqa: B008
    fit = pj.fit(scores, labels, weights=weights, prior=prior, options=options)
    found = pj.inference.leave_one_out(
        fit, scores, labels, weights=weights, prior=prior, options=options
    )
    assert found.shape == scores.shape and found.dtype == scores.dtype
    for k, f in enumerate(scores):
        w = None if weights is None else weights[k]
        expected = one_by_one(f, labels[k], w, prior, options)
        shown = np.abs(expected) < 12  # where rounding of the probability leaves the log-odds
        np.testing.assert_allclose(logit(found[k, shown]), expected[shown], rtol=0, atol=atol)
        np.testing.assert_allclose(found[k], expit(expected), atol=atol)
    return found


@pytest.fixture
def refits(monkeypatch):
    """How many rows were fitted without, by each call."""
    counts = []
    refit = MODULE.refit
    monkeypatch.setattr(
        MODULE,
        "refit",
        lambda rows, which, *rest: counts.append(len(which)) or refit(rows, which, *rest),
    )
    return counts


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        pytest.param(5, 1, marks=pytest.mark.slow),
        (50, 0.6),
        pytest.param(200, 0.1, marks=pytest.mark.slow),
        pytest.param(1000, 3e-3, marks=pytest.mark.slow),
    ],
)
def test_every_row_gets_what_a_fit_of_the_others_gives_it(rng, refits, rows, share):
    scores, labels = batch(rng, 4, rows)
    assert_exact(scores, labels)
    assert refits[0] <= share * scores.size


@pytest.mark.slow
@pytest.mark.parametrize(("length", "at_once"), [(16, 64), (64, 16_000)])
def test_rows_at_the_ends_of_tiles_and_calls(rng, monkeypatch, at_once, length):
    """A call of few tiles takes several for one problem."""
    monkeypatch.setattr(row_tiles, "_AT_ONCE", at_once)
    monkeypatch.setattr(row_tiles, "_LENGTHS", (length,))
    ids = np.repeat(np.arange(6), [15, 16, 17, 3, 100, 33])
    scores = rng.normal(size=len(ids))
    labels = rng.random(len(ids)) < expit(scores)
    fitted = pj.fit_segments(scores, labels, ids)
    found = pj.inference.leave_one_out(fitted, scores, labels, ids)
    expected = [one_by_one(scores[ids == k], labels[ids == k]) for k in range(6)]
    np.testing.assert_allclose(logit(found), np.concatenate(expected), rtol=0, atol=1e-6)


def test_to_50_digits(rng):
    scores, labels = (x[0] for x in batch(rng, 1, 40))
    found = pj.inference.leave_one_out(pj.fit(scores, labels), scores, labels)
    for i in (0, 17, 39):
        A, B, *_ = optimum(np.delete(scores, i), np.delete(labels, i))
        expected = 1 / (1 + np.exp(float(A) * scores[i] + float(B)))
        np.testing.assert_allclose(found[i], expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "prior"),
    [
        (Options(targets="none"), None),
        (Options(intercept=False), PRIOR),
        (Options(intercept=False, targets="none"), None),
        (Options(monotone=True), PRIOR),
    ],
    ids=["no targets", "no intercept", "temperature", "monotone"],
)
def test_other_fits(rng, options, prior):
    scores, labels = batch(rng, 3, 120)
    assert_exact(3 + 2 * scores, labels, prior=prior, options=options)


@pytest.mark.slow
def test_weights_count_rows_and_the_whole_row_is_left_out(rng, refits):
    scores, labels = batch(rng, 3, 120)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0, 7.0], scores.shape)
    found = assert_exact(scores, labels, weights)
    fit = pj.fit(scores, labels, weights=weights)
    none = weights == 0
    np.testing.assert_allclose(found[none], fit.predict_proba(scores)[none], rtol=1e-12)
    assert refits[0] < 0.5 * scores.size


@pytest.mark.slow
@pytest.mark.parametrize("scale, offset", [(1.0, 1e6), (1e-8, 0.0), (1e30, -1e30)])
def test_scores_of_any_scale_and_level(rng, refits, scale, offset):
    scores, labels = batch(rng, 2, 120)
    assert_exact(scores * scale + offset, labels, atol=1e-5 if offset == 1e6 else 1e-6)
    assert refits[0] < 0.1 * scores.size


def test_a_row_that_decides_the_slope_alone(rng, refits):
    scores, labels = batch(rng, 3, 120)
    scores[0, 5], labels[0, 5] = 60.0, 0
    scores[1, :3] = 1e4, -1e4, 1e6
    scores[2] = rng.standard_cauchy(120)
    assert_exact(scores, labels)
    assert 0 < refits[0] < 0.5 * scores.size


@pytest.mark.slow
def test_saturated_scores_cost_no_refits(rng, refits):
    """Most of these rows are far off, and have no curvature left."""
    scores = rng.normal(size=(2, 1000)) * 30
    labels = labels_of(rng, scores)
    pj.inference.leave_one_out(pj.fit(scores, labels), scores, labels)
    assert refits[0] < 0.05 * scores.size


@pytest.mark.slow
def test_where_the_rest_is_of_one_class_constant_or_separable():
    scores = np.array([[1.0, 2.0, 3.0, 4.0], [1, 1, 1, 5], [1, 2, 3, 4], [2, 2, 2, 2]])
    labels = np.array([[0, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0]])
    assert_exact(scores, labels)
    assert_exact(scores, np.ones_like(labels))
    assert_exact(scores, labels, options=Options(monotone=True))
    assert_exact(scores, labels, options=Options(intercept=False))


@pytest.mark.slow
def test_a_slope_held_at_zero(rng, refits):
    scores, labels = batch(rng, 3, 120)
    options = Options(monotone=True)
    assert (pj.fit(-scores, labels, options=options).A == 0).all()
    assert_exact(-scores, labels, options=options)
    assert refits[0] < 0.1 * scores.size
    noise = rng.random(scores.shape) < 0.5  # where a row may hold the slope, or free it
    assert_exact(scores, noise, options=options)


def test_errors_that_one_cluster_leaves_unknown_hold_no_slope(rng):
    scores, labels, day = rng.normal(size=200), rng.random(200) < 0.5, np.arange(200) // 20
    whole, segments = pj.fit(scores, labels), pj.fit_segments(scores, labels, day)
    for fitted, ids, clusters in ((whole, {}, np.zeros(200)), (segments, {"segments": day}, day)):
        robust = pj.inference.robust_covariance(fitted, scores, labels, **ids, clusters=clusters)
        found, expected = (
            pj.inference.leave_one_out(x, scores, labels, **ids) for x in (robust, fitted)
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows(rows):
    scores, labels = np.arange(1.0, rows + 1), np.arange(rows) % 2
    found = pj.inference.leave_one_out(pj.fit(scores, labels), scores, labels)
    if rows == 1:
        assert np.isnan(found).all()
    else:
        fits = [pj.fit(np.delete(scores, i), np.delete(labels, i)) for i in range(rows)]
        expected = [fit.predict_proba(f) for fit, f in zip(fits, scores, strict=True)]
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_segments_of_all_sizes(rng):
    sizes = [1, 4, 9, 30, 31, 100, 120, 5]
    segments = np.repeat(list("hcbadefg"), sizes)
    scores, labels = (x[0] for x in batch(rng, 1, sum(sizes)))
    weights = rng.integers(0, 3, len(scores)).astype(float)
    shuffled = rng.permutation(len(scores))
    scores, labels, segments = scores[shuffled], labels[shuffled], segments[shuffled]
    prior = GaussianPrior(rng.normal(size=(8, 2)), np.eye(2) * np.arange(1, 9)[:, None, None])
    made = pj.fit_segments(scores, labels, segments, weights=weights, prior=prior)
    found = pj.inference.leave_one_out(made, scores, labels, segments, weights=weights, prior=prior)
    for k, name in enumerate("abcdefgh"):
        mine = segments == name
        if mine.sum() == 1:
            assert np.isnan(found[mine]).all()
            continue
        of_segment = GaussianPrior(prior.mean[k], prior.precision[k])
        expected = one_by_one(scores[mine], labels[mine], weights[mine], of_segment)
        np.testing.assert_allclose(logit(found[mine]), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_a_problem_of_several_calls(rng, monkeypatch, weighted):
    scores, labels = (x[0] for x in batch(rng, 1, 3000))
    weights = rng.integers(0, 3, len(scores)).astype(float) if weighted else None
    fit = pj.fit(scores, labels, weights=weights)
    whole = pj.inference.leave_one_out(fit, scores, labels, weights=weights)
    monkeypatch.setattr(row_tiles, "_AT_ONCE", 1024)
    parts = pj.inference.leave_one_out(fit, scores, labels, weights=weights)
    np.testing.assert_allclose(parts, whole, rtol=1e-9)


@pytest.mark.slow
def test_float32(rng):
    scores, labels = batch(rng, 3, 120)
    assert_exact(scores.astype(np.float32), labels, atol=1e-3)


@pytest.mark.slow
def test_bad_rows_cost_only_their_problem(rng):
    scores, labels = batch(rng, 3, 60)
    labels = labels.astype(float)
    scores[1, 7], labels[2, 9] = np.nan, np.nan
    with pytest.warns(RuntimeWarning, match="NaN"):
        flagged = pj.fit(scores, labels)
    assert flagged.status.tolist() == [0, Status.NON_FINITE, Status.NON_FINITE]
    found = pj.inference.leave_one_out(flagged, scores, labels)
    assert np.isnan(found[1:]).all()
    np.testing.assert_allclose(logit(found[0]), one_by_one(scores[0], labels[0]), atol=1e-6)

    options = Options(non_finite="omit")
    fit = pj.fit(scores, labels, options=options)
    found = pj.inference.leave_one_out(fit, scores, labels, options=options)
    assert np.isnan(found[1, 7]) and np.isnan(found[2, 9]) and np.isnan(found).sum() == 2
    good = np.arange(60) != 7
    expected = one_by_one(scores[1, good], labels[1, good])
    np.testing.assert_allclose(logit(found[1, good]), expected, atol=1e-6)


def test_batches_of_any_shape_and_broadcast_labels(rng):
    scores = rng.normal(size=(2, 3, 40))
    labels = rng.random(40) < 0.5
    fit = pj.fit(scores, labels)
    found = pj.inference.leave_one_out(fit, scores, labels)
    one = pj.inference.leave_one_out(pj.fit(scores[1, 2], labels), scores[1, 2], labels)
    np.testing.assert_allclose(found[1, 2], one, rtol=1e-12)


@pytest.mark.slow
def test_it_is_honest_where_the_fit_flatters_itself(rng):
    scores, labels = rng.normal(size=(400, 12)), rng.random((400, 12)) < 0.5
    fit = pj.fit(scores, labels)

    def log_loss(p):
        return -np.mean(np.log(np.where(labels, p, 1 - p)))

    assert log_loss(fit.predict_proba(scores)) < np.log(2)
    assert log_loss(pj.inference.leave_one_out(fit, scores, labels)) > np.log(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calibrator": None}, "calibrator: expected a fit, got NoneType"),
        ({"scores": np.zeros((2, 4))}, r"calibrator: expected problems of shape \(2,\), got \(\)"),
        (
            {"scores": np.zeros(4, np.float32)},
            "calibrator: expected one of float32 scores, got float64",
        ),
        ({"labels": [0, 1]}, "labels: expected a shape that broadcasts"),
        ({"labels": [0, 1, 2, 3]}, "labels: expected bool"),
        ({"weights": [-1, 1, 1, 1]}, "weights: expected >= 0"),
        ({"segments": [1, 2]}, "segments: expected one id per row, 4 of them, got 2"),
        ({"segments": [1, 1, 2, 2]}, r"calibrator: expected problems of shape \(2,\), got \(\)"),
        ({"prior": 3}, "prior: expected a GaussianPrior"),
        ({"options": None}, "options: expected an Options"),
    ],
    ids=str,
)
def test_what_is_refused(change, message):
    scores, labels = np.array([1.0, 2.0, 3.0, 4.0]), [0, 1, 0, 1]
    given = {"calibrator": pj.fit(scores, labels), "scores": scores, "labels": labels} | change
    with pytest.raises(ValueError, match=message):
        pj.inference.leave_one_out(**given)


def test_rows_of_other_segments_than_the_fitted_ones_are_refused():
    """Of as many others, too, which would be taken for them in their order."""
    scores, labels = np.array([1.0, 2.0, 3.0, 4.0]), [0, 1, 0, 1]
    calibrator = pj.fit_segments(scores, labels, ["a", "a", "b", "b"])
    for segments, found in (
        (["b", "b", "c", "c"], "1 of them and of others"),
        (["b"] * 4, "1 of them"),
    ):
        message = f"segments: expected the rows of the 2 fitted segments, got rows of {found}$"
        with pytest.raises(ValueError, match=message):
            pj.inference.leave_one_out(calibrator, scores, labels, segments)
        with pytest.raises(ValueError, match=message):
            pj.inference.estimate_means(
                calibrator, scores, labels, segments, pool=[0.0], pool_segments="a"
            )


def test_rows_of_other_labels_than_the_fitted_ones_are_refused(rng):
    scores, segments = rng.normal(size=40), np.arange(40) % 2
    labels, weights = rng.random(40) < 0.4, rng.integers(1, 4, 40)
    message = "expected the rows that were fitted, with n_pos"
    calibrator = pj.fit_segments(scores, labels, segments, weights=weights)
    pj.inference.leave_one_out(calibrator, scores, labels, segments, weights=weights)
    for rows, given in (
        ((scores, ~labels, segments), dict(weights=weights)),
        ((scores, labels, segments), {}),
        ((scores[:20], labels[:20], segments[:20]), dict(weights=weights[:20])),
    ):
        with pytest.raises(ValueError, match=message):
            pj.inference.leave_one_out(calibrator, *rows, **given)
    with pytest.raises(ValueError, match=message):
        pj.inference.leave_one_out(pj.fit(scores, labels), scores, ~labels)


@pytest.mark.slow
def test_of_segments_shrunk_to_their_population(rng):
    scores, labels, segments = rows_of(rng, rng.integers(0, 5, 200), rng.normal(-1.5, 1, 5))
    calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    found = pj.inference.leave_one_out(calibrator, scores, labels, segments)
    given = {"prior": calibrator.population.prior, "options": Options(targets="none")}
    for i in rng.integers(0, 200, 5):
        others = (segments == segments[i]) & (np.arange(200) != i)
        without = pj.fit(scores[others], labels[others], **given)
        k, row = segments[i], np.array([scores[i], 1])
        whole = -row @ [calibrator.fit.A[k], calibrator.fit.B[k]]
        moved = -row @ [without.A, without.B] - whole
        mean = moved - row @ calibrator.population.posterior_mean[k]
        precision = np.linalg.inv(calibrator.population.posterior_covariance[k])
        precision -= expit(whole) * expit(-whole) * np.outer(row, row)
        deviation = np.sqrt(row @ np.linalg.solve(precision, row))
        at, weight = np.polynomial.hermite_e.hermegauss(60)
        p = weight @ expit(mean + deviation * at) / weight.sum()
        np.testing.assert_allclose(found[i], p, rtol=0, atol=1e-5)


def test_of_few_rows_by_segment_as_many_positives_are_predicted(rng):
    """Many of them by curves above the likeliest one, which alone predicts a sixth less."""
    segments = rng.integers(0, 300, 6000)
    scores = rng.normal(size=6000)
    level = rng.normal(-4.3, 0.8, 300)[segments]
    labels = (rng.random(6000) < 1 / (1 + np.exp(-level - 0.8 * scores))).astype(int)
    rows = scores, labels, segments
    calibrator = pj.fit_segments(*rows, pooling="partial")
    found = pj.inference.leave_one_out(calibrator, *rows)
    assert found.sum() == pytest.approx(labels.sum(), rel=0.02)
    folds, left = rng.integers(0, 5, 6000), np.empty(6000)
    for fold in range(5):
        here = folds == fold
        fitted = pj.fit_segments(*(x[~here] for x in rows), pooling="partial")
        left[here] = fitted.predict_proba(scores[here], segments[here])
    losses = [metrics.log_loss(labels, p) for p in (found, left)]
    assert losses[0] == pytest.approx(losses[1], rel=0.03)


def test_sure_rows_of_wide_posteriors_in_float32(rng):
    """A probability of 1 in float32 says nothing of its log-odds."""
    segments = np.repeat(np.arange(100), 12)
    scores = rng.normal(size=segments.size)
    slopes = 2.5 * np.exp(0.5 * rng.normal(size=100))[segments]
    labels = rng.random(segments.size) < expit(slopes * scores)
    scores[::97], labels[::97] = rng.uniform(7, 11, scores[::97].size), True

    def left_out(dtype):
        rows = scores.astype(dtype), labels, segments
        return pj.inference.leave_one_out(pj.fit_segments(*rows, pooling="partial"), *rows)

    precise = left_out(np.float64)
    assert precise[::97].max() < 1 - 1e-7
    np.testing.assert_allclose(left_out(np.float32), precise, rtol=0, atol=2e-3)


@pytest.mark.parametrize("offset", [False, True])
def test_a_row_that_says_nothing_has_the_prediction(rng, offset):
    scores, labels, segments = rows_of(rng, rng.integers(0, 5, 200), rng.normal(-1.5, 1, 5))
    given = {"offset": rng.normal(size=200)} if offset else {}
    weights = np.where(np.arange(200) % 4 == 0, 1e-9, 1.0)
    rows = scores, labels, segments
    calibrator = pj.fit_segments(*rows, weights=weights, pooling="partial", **given)
    found = pj.inference.leave_one_out(calibrator, *rows, weights=weights, **given)
    expected = calibrator.predict_proba(scores, segments, **given)
    np.testing.assert_allclose(found[::4], expected[::4], rtol=1e-6)
    assert np.abs(found - expected).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "prior"),
    [
        (Options(), PRIOR),
        (Options(), None),
        (Options(intercept=False, targets="none"), PRIOR),
        (Options(monotone=True), PRIOR),
    ],
    ids=["prior", "", "temperature, prior", "monotone, prior"],
)
def test_of_segments_with_one_curve_for_all(rng, options, prior):
    # Of 0, 5 and 40 rows, weights and a bad row; the segments lie in any order.
    segments = rng.permutation(np.repeat([3, 1, 2], [5, 40, 15]))
    scores, labels, _ = rows_of(rng, segments, A=-1)
    weights = rng.integers(1, 4, 60) * (segments != 3).astype(float)
    scores[np.argmax(segments == 2)] = np.nan
    given = {"weights": weights, "prior": prior, "options": options}
    with pytest.warns(RuntimeWarning, match="the curve of all rows is fitted without"):
        made = pj.fit_segments(scores, labels, segments, pooling="complete", **given)
    found = pj.inference.leave_one_out(made, scores, labels, segments, **given)
    assert np.isnan(found).tolist() == np.isnan(scores).tolist()
    good = np.isfinite(scores)
    given["weights"] = weights[good]
    expected = one_by_one(scores[good], labels[good], **given)
    np.testing.assert_allclose(logit(found[good]), expected, atol=1e-6)


def test_segments_of_equal_rows_are_not_taken_for_pooled_ones(rng):
    scores, labels = (x[0] for x in batch(rng, 1, 30))
    twice, segments = np.tile([scores, labels], 2), np.repeat(["a", "b"], 30)
    fit = pj.fit_segments(*twice, segments).fit
    found = pj.inference.leave_one_out(fit, *twice, segments=segments)
    np.testing.assert_allclose(logit(found), np.tile(one_by_one(scores, labels), 2), atol=1e-6)


def test_of_classes_each_class_alone(rng):
    scores = rng.normal(size=(60, 3))
    labels = (scores + rng.logistic(size=(60, 3))).argmax(1)
    found = pj.inference.leave_one_out(pj.fit_one_vs_rest(scores, labels), scores, labels)
    for k in range(3):
        expected = one_by_one(scores[:, k], labels == k)
        np.testing.assert_allclose(logit(found[:, k]), expected, atol=1e-6)


def test_what_was_not_fitted_by_its_rows_is_refused(rng):
    scores, labels, segments = rows_of(rng, rng.integers(0, 8, 200), rng.normal(-1.5, 1, 8))
    both = np.stack([segments // 4, segments], 1)
    nested = pj.fit_segments(scores, labels, both, pooling="nested")
    with pytest.raises(ValueError, match="calibrator: expected pooling="):
        pj.inference.leave_one_out(nested, scores, labels, both)
    shifted = pj.fit_segments(scores, labels, segments).shift_prior(0.5, 0.1)
    with pytest.raises(ValueError, match="calibrator: expected one as fitted, got one after"):
        pj.inference.leave_one_out(shifted, scores, labels, segments)
    with pytest.raises(ValueError, match="segments: expected None for a OneVsRestCalibrator"):
        columns = scores[:, None] * [1.0, -1.0]
        pj.inference.leave_one_out(pj.fit_one_vs_rest(columns, labels), columns, labels, segments)


@pytest.mark.parametrize("rows", [2, 20, 100])
def test_a_row_whose_others_have_one_score_is_fitted_again(rows, dtype, rng):
    """The determinant without it was an error, and predictions off by .43 in one of a hundred."""
    scores = np.zeros((400, rows), dtype)
    scores[:, 0] = 3 * rng.normal(size=400)
    labels = rng.random(scores.shape) < 0.4
    labels[:, 1] = ~labels[:, 0]
    n_pos = labels[:, 1:].sum(1)
    n_neg = rows - 1 - n_pos
    targets = n_pos * (n_pos + 1) / (n_pos + 2) + n_neg / (n_neg + 2)
    found = pj.inference.leave_one_out(pj.fit(scores, labels), scores, labels)[:, 0]
    np.testing.assert_allclose(found, targets / (rows - 1), atol=1e-5)
