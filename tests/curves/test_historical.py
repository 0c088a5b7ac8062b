"""The curves of old papers: shapes, weights, degenerate rows, and slow versions of each."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from data import batch
from reference import six_sums, targets
from scipy.special import betainc

import platt_jax as pj
from platt_jax import Status
from platt_jax.curves import Bins, Curve, Isotonic, historical
from platt_jax.curves.historical import (
    BetaScaling,
    Clip,
    CosineExpansion,
    Gaussian,
    LevenbergMarquardt,
    PPClip,
    Softmax,
)
from platt_jax.results.historical_curves import beta_quantile

FIXED = [Softmax(), Clip()]
# What they answer where the scores tell nothing: the mean of Platt's targets, or the plain share.
FLAT = [Gaussian(), Gaussian(bias="zero"), Gaussian(variance="separate"), BetaScaling()]
COUNTING = [CosineExpansion(), Isotonic(), Bins(10), Bins(10, strategy="uniform")]
OTHERS = [LevenbergMarquardt(), LevenbergMarquardt("platt"), PPClip(), BetaScaling("predicted")]
LEARNING = FLAT + COUNTING + OTHERS
ALL = LEARNING + FIXED
MONOTONE = [
    *FIXED,
    LevenbergMarquardt(),
    Gaussian(),
    Gaussian(bias="zero"),
    PPClip(),
    BetaScaling(),
    Isotonic(),
]
PROBLEMS, ROWS = 20, 48
GRID = np.linspace(-5, 7, 61)


def each(some):
    return pytest.mark.parametrize("curve", some, ids=repr)


def predict(curve, scores, labels, weights=None):
    """Probabilities on a grid, after a fit."""
    fitted = pj.fit(scores, labels, weights=weights, curve=curve)
    return fitted.predict_proba(GRID.astype(fitted.curves.low.dtype))


def near(dtype):
    # The least sum of squares of beta scaling is found to the root of the rounding unit.
    return {"atol": 1e-7 if dtype == np.float64 else 2e-3}


@each(ALL)
def test_shapes_dtypes_ranges_and_files(curve, rng, dtype, tmp_path):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    p = pj.fit(scores, labels, curve=curve).predict_proba(scores)
    assert type(p) is np.ndarray and p.dtype == dtype and p.shape == scores.shape
    assert np.all((p >= 0) & (p <= 1)) and np.ptp(p) > 0.1
    segments = np.repeat(np.arange(PROBLEMS), ROWS)
    made = pj.fit_segments(scores.ravel(), labels.ravel(), segments, curve=curve)
    np.testing.assert_array_equal(made.predict_proba(scores.ravel(), segments), p.ravel())
    pj.save(tmp_path / "curves", made)
    assert pj.load(tmp_path / "curves") == made


@each(ALL)
def test_a_batch_is_a_loop(curve, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    together = predict(curve, scores, labels)
    for k in (0, 7, 19):
        np.testing.assert_allclose(together[k], predict(curve, scores[k], labels[k]), atol=1e-9)


@each(LEARNING)
def test_weights_are_repeated_rows(curve, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    half = ROWS // 2
    weights = np.repeat([2, 0], half)
    # What weighs nothing may be anything at all.
    scores[:, half], scores[:, half + 1] = np.nan, 1e9
    twice = (np.repeat(x[:, :half], 2, axis=1) for x in (scores, labels))
    np.testing.assert_allclose(
        predict(curve, scores, labels, weights), predict(curve, *twice), **near(dtype)
    )
    plain = predict(curve, np.where(weights, scores, dtype(1.5)), labels)
    assert not np.allclose(predict(curve, scores, labels, weights), plain, atol=1e-3)


@each(ALL)
@pytest.mark.parametrize("spoilt", ["score", "label", "weight"])
def test_bad_and_empty_problems_spoil_no_other(curve, spoilt, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    clean = predict(curve, scores, labels)
    labels, weights = labels.astype(float), np.ones(scores.shape)
    {"score": scores, "label": labels, "weight": weights}[spoilt][3, 5] = np.nan
    weights[2] = 0
    with pytest.warns(RuntimeWarning, match="not finite in 1 problems") as caught:
        spoiled = predict(curve, scores, labels, weights)
    assert len(caught) == 1
    assert np.isnan(spoiled[2:4]).all()
    others = np.delete(np.arange(PROBLEMS), [2, 3])
    np.testing.assert_array_equal(spoiled[others], clean[others])


def test_an_overflow_in_platts_search_is_told_of(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    scores[3] = np.where(scores[3] > 0, 1.7e308, -1.7e308)
    with pytest.warns(RuntimeWarning, match="not finite in 1 problems"):
        p = predict(LevenbergMarquardt(), scores, labels)
    assert np.isnan(p[3]).all() and np.isfinite(np.delete(p, 3, axis=0)).all()


def share_and_target(labels):
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    targets = np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    return np.mean(labels == 1), np.mean(targets)


@each(FLAT + COUNTING)
@pytest.mark.parametrize("positive", [0, 1])
def test_one_class(curve, positive, rng, dtype):
    labels = np.full(ROWS, positive)
    share, target = share_and_target(labels)
    expected = share if curve in COUNTING else target
    p = predict(curve, batch(rng, PROBLEMS, ROWS, dtype)[0], labels)
    np.testing.assert_allclose(p, expected, **near(dtype))


@each(FLAT + COUNTING)
@pytest.mark.parametrize("score", [0.0, -1.7, 1e6])
def test_constant_scores(curve, score, rng, dtype):
    labels = np.arange(ROWS) < 13
    share, target = share_and_target(labels)
    expected = share if curve in COUNTING else target
    p = predict(curve, np.full((PROBLEMS, ROWS), score, dtype), labels)
    np.testing.assert_allclose(p, expected, atol=1e-9 if dtype == np.float64 else 1e-6)


@each(ALL)
def test_one_class_constant_scores_and_one_row_are_answered(curve):
    scores = np.zeros((3, ROWS))
    scores[0], scores[1] = np.linspace(-2, 3, ROWS), 0.3
    for f, y in ((scores, 0), (scores, 1), ([0.3], 1), ([0.3], 0), ([0.0], 1)):
        p = predict(curve, np.array(f), np.full(np.shape(f), y))
        assert np.all((p >= 0) & (p <= 1))


def test_constant_scores_have_the_right_probability_there(dtype):
    labels = np.arange(ROWS) < 10
    scores = np.full((PROBLEMS, ROWS), 0.7, dtype)
    fitted = pj.fit(scores, labels, curve=LevenbergMarquardt())
    _, target = share_and_target(labels)
    np.testing.assert_allclose(fitted.predict_proba(np.array([0.7], dtype)), target, rtol=1e-4)


@each(ALL)
def test_wild_scores_and_weights_stay_finite(curve, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    for scale in (1e-20, 1e15):
        f = scores * dtype(scale)
        p = pj.fit(f, labels, curve=curve).predict_proba(f)
        assert np.all((p >= 0) & (p <= 1))
    once = predict(curve, scores.astype(float), labels)
    largest = predict(curve, scores.astype(float), labels, np.full(ROWS, 2.0**1020))
    assert np.isfinite(largest).all()
    if curve in COUNTING:
        np.testing.assert_allclose(largest, once, atol=1e-9)


@each([Gaussian(), Gaussian(variance="separate"), *COUNTING])
def test_affine_maps_of_the_scores_change_nothing(curve, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    p = pj.fit(scores, labels, curve=curve).predict_proba(scores)
    # A shift would round the scores; a scale that is a power of two does not.
    far = scores * 2.0**-900
    q = pj.fit(far, labels, curve=curve).predict_proba(far)
    np.testing.assert_allclose(q, p, atol=1e-12)
    far = scores + 1000
    q = pj.fit(far, labels, curve=curve).predict_proba(far)
    np.testing.assert_allclose(q, p, atol=1e-9)


@each(MONOTONE)
def test_monotone_where_promised(curve, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    at = np.linspace(-50, 50, 1001).astype(dtype)
    p = pj.fit(scores, labels, curve=curve).predict_proba(at)
    useful = [f[y == 1].mean() > f[y == 0].mean() for f, y in zip(scores, labels, strict=True)]
    assert sum(useful) >= 15
    assert np.all(np.diff(p if curve in FIXED else p[useful]) >= 0)


def test_two_variances_are_not_monotone():
    scores = np.tile([-3.0, -1.0, 1.0, 3.0, -0.2, 0.0, 0.2, 0.4], 6)
    fitted = pj.fit(scores, np.tile(np.repeat([0, 1], 4), 6), curve=Gaussian("separate"))
    low, middle, high = fitted.predict_proba([-3.0, 0.1, 3.0])
    assert middle > 0.8 and low < 0.01 and high < 0.01


@each(ALL)
def test_predictions_of_odd_scores(curve, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    fitted = pj.fit(scores / 100, labels, curve=curve)
    p = fitted.predict_proba(np.array([np.nan, -np.inf, -1e30, 1e30, np.inf], dtype))
    assert p.dtype == dtype
    assert np.isnan(p[..., 0]).all() and np.all((p[..., 1:] >= 0) & (p[..., 1:] <= 1))
    assert np.isfinite(fitted.predict_proba([1, 2])).all()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (LevenbergMarquardt, {"loss": "wrong"}),
        (LevenbergMarquardt, {"tol": 0.0}),
        (LevenbergMarquardt, {"max_iter": 0}),
        (Gaussian, {"variance": "both"}),
        (Gaussian, {"bias": "half"}),
        (Gaussian, {"bias": "zero", "variance": "separate"}),
        (CosineExpansion, {"terms": 0}),
        (CosineExpansion, {"penalty": -1.0}),
        (BetaScaling, {"form": "unary"}),
    ],
)
def test_bad_options_are_named(make, options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"^{make.__name__}.{name}={value!r}"):
        make(**options)


def test_every_method_is_listed_tested_and_a_curve():
    assert {
        type(x).__name__ for x in ALL if type(x).__module__.startswith(historical.__name__)
    } == {*historical.__all__}
    assert all(name in historical.__doc__ for name in historical.__all__)
    assert all(issubclass(getattr(historical, name), Curve) for name in historical.__all__)


# --- the slow implementations: from scores, labels and weights to a function of the score ---------


def sigmoid(z):
    return 1 / (1 + np.exp(-np.asarray(z, float)))


def gaussian(curve, f, y, w):
    n = np.array([w[y == k].sum() for k in (0, 1)])
    mean = np.array([np.average(f[y == k], weights=w[y == k]) for k in (0, 1)])
    variance = np.array([np.average((f[y == k] - mean[k]) ** 2, weights=w[y == k]) for k in (0, 1)])
    if curve.variance == "tied":
        variance[:] = np.average(variance, weights=n)
    if curve.bias == "zero":
        return lambda x: sigmoid((mean[1] - mean[0]) / variance[0] * x)

    def posterior(x):
        neg, pos = (n[k] * scipy.stats.norm.pdf(x, mean[k], variance[k] ** 0.5) for k in (0, 1))
        return pos / (pos + neg)

    return posterior


def cosine(curve, f, y, w):
    """Least squares on rows of which the last ones are the penalty."""
    orders = np.arange(curve.terms + 1)

    def basis(x):
        t = np.pi * (np.clip(x, f.min(), f.max()) - f.min()) / (f.max() - f.min())
        return np.cos(np.multiply.outer(t, orders))

    root = np.sqrt(w / w.sum())
    system = np.vstack([root[:, None] * basis(f), np.diag(math.sqrt(curve.penalty) * orders)])
    a, *_ = np.linalg.lstsq(system, np.concatenate([root * y, 0.0 * orders]))
    return lambda x: np.clip(basis(x) @ a, 0, 1)


def softmax(curve, f, y, w):
    return lambda x: [1 / (1 + math.exp(-2 * one)) for one in x]


def clip(curve, f, y, w):
    return lambda x: [0 if one < -1 else 1 if one > 1 else (1 + one) / 2 for one in x]


def pp_clip(curve, f, y, w):
    low, high = (np.average(y[rows], weights=w[rows]) for rows in (f < -1, f > 1))
    return lambda x: [min(max(p, low), high) for p in (1 + x) / 2]


def beta_curve(member, right, w):
    """The curve of one region, its free parameter by a search from the best of many points."""
    mean = np.average(member, weights=w)
    size = mean * (1 - mean) / np.average((member - mean) ** 2, weights=w) - 1
    ranks = scipy.stats.beta(mean * size, (1 - mean) * size).cdf
    p = np.average(right, weights=w)
    if p in (0, 1):
        return lambda m: abs(p - 1 / (w.sum() + 2))

    def curve(m, log_size):
        n = math.exp(log_size)
        return scipy.stats.beta(p * n, (1 - p) * n).ppf(ranks(m))

    def error(log_size):
        return np.sum(w * (curve(member, log_size) - right) ** 2)

    tried = np.linspace(math.log(0.1), math.log(1e4), 30)
    best = np.argmin([error(x) for x in tried])
    bounds = tried[max(best - 1, 0)], tried[min(best + 1, 29)]
    found = scipy.optimize.minimize_scalar(
        error, bounds=bounds, method="bounded", options={"xatol": 1e-10}
    )
    return lambda m: curve(m, found.x)


def beta_scaling(curve, f, y, w):
    if curve.form == "binary":
        one = beta_curve(sigmoid(2 * f), y, w)
        return lambda x: one(sigmoid(2 * x))
    up = f > 0
    above = beta_curve(sigmoid(2 * f[up]), y[up], w[up])
    below = beta_curve(sigmoid(-2 * f[~up]), 1 - y[~up], w[~up])
    return lambda x: np.where(x > 0, above(sigmoid(2 * x)), 1 - below(sigmoid(-2 * x)))


# With the tolerance in float32, which the linear system amplifies.
CASES = [
    (Gaussian(), gaussian, 1e-5),
    (Gaussian(bias="zero"), gaussian, 1e-5),
    (Gaussian(variance="separate"), gaussian, 1e-5),
    (CosineExpansion(), cosine, 1e-4),
    (CosineExpansion(terms=3, penalty=0.2), cosine, 1e-4),
    (Softmax(), softmax, 1e-6),
    (Clip(), clip, 1e-6),
    (PPClip(), pp_clip, 1e-6),
    (BetaScaling(), beta_scaling, 1e-5),
    (BetaScaling("predicted"), beta_scaling, 1e-5),
]


@pytest.mark.parametrize(("curve", "slow", "coarse"), CASES, ids=[repr(x) for x, _, _ in CASES])
def test_problems_against_an_independent_implementation(curve, slow, coarse, rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    # Centred near the threshold, so that both margins and both predicted classes have rows.
    scores -= dtype(0.7)
    weights = rng.integers(1, 4, scores.shape)
    p = predict(curve, scores, labels, weights)
    for k in range(3 if slow is beta_scaling else PROBLEMS):
        f, y, w = (x[k].astype(float) for x in (scores, labels, weights))
        expected = slow(curve, f, y, w)(GRID.astype(dtype).astype(float))
        np.testing.assert_allclose(p[k], expected, atol=1e-6 if dtype == np.float64 else coarse)


# --- Platt's search ------------------------------------------------------------------------------


def platts_code(scores, labels, loss, tol=1e-9):
    """The appendix of Platt (1999), row by row: A, B, iterations, overflows, log(0)s, stopped."""
    overflows = log_zeros = 0
    t = targets(labels)
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    A, B = 0.0, math.log((n_neg + 1) / (n_pos + 1))
    stabilizer, old, calm = 1e-3, 1e300, 0
    pp = np.full(len(scores), (n_pos + 1) / (n_pos + n_neg + 2))
    for iteration in range(100):
        a = b = c = d = e = 0.0
        for f, target, p in zip(scores, t, pp, strict=True):
            d1, d2 = p - target, p * (1 - p)
            a, b, c = a + f * f * d2, b + d2, c + f * d2
            d, e = d + f * d1, e + d1
        if abs(d) < tol and abs(e) < tol:
            return A, B, iteration, overflows, log_zeros, True
        A_before, B_before = A, B
        while True:
            det = (a + stabilizer) * (b + stabilizer) - c * c
            if det == 0:
                stabilizer *= 10
                continue
            A = A_before + ((b + stabilizer) * d - c * e) / det
            B = B_before + ((a + stabilizer) * e - c * d) / det
            error = 0.0
            for i, f in enumerate(scores):
                try:
                    odds = math.exp(f * A + B)
                except OverflowError:
                    odds = math.inf
                    overflows += 1
                pp[i] = p = 1 / (1 + odds)
                log_zeros += p in (0, 1)
                target = t[-1] if loss == "platt" else t[i]
                log_p, log_q = (math.log(x) if x > 0 else -200 for x in (p, 1 - p))
                error -= target * log_p + (1 - target) * log_q
            if error < old * (1 + 1e-7):
                stabilizer *= 0.1
                break
            stabilizer *= 10
            if stabilizer >= 1e6:
                break
        change, scale = error - old, 0.5 * (error + old + 1)
        calm = calm + 1 if -1e-3 * scale < change < 1e-7 * scale else 0
        old = error
        if calm == 3:
            return A, B, iteration + 1, overflows, log_zeros, True
    return A, B, 100, overflows, log_zeros, False


def assert_step_by_step(scores, labels, loss):
    """That the package's search and the plain one agree; returns the package's."""
    found = pj.fit(scores, labels, curve=LevenbergMarquardt(loss)).curves
    for k in range(len(scores)):
        A, B, *counts, stopped = platts_code(scores[k], labels[k], loss)
        assert [x[k] for x in (found.iterations, found.overflows, found.log_zeros)] == counts
        assert found.status[k] == (Status.CONVERGED if stopped else Status.MAX_ITERATIONS)
        np.testing.assert_allclose([found.A[k], found.B[k]], [A, B], rtol=1e-6)
        nll = six_sums(scores[k], labels[k], found.A[k], found.B[k])[0]
        np.testing.assert_allclose(found.nll[k], nll, rtol=1e-9)
    return found


@pytest.mark.parametrize("loss", ["corrected", "platt"])
def test_platts_search_step_by_step(loss, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    plain = assert_step_by_step(scores, labels, loss)
    # Tails that the search overshoots, where p rounds to 0 or 1.
    tails = assert_step_by_step(np.sinh(2 * scores), labels, loss)
    assert not plain.log_zeros.any()
    assert tails.log_zeros.any() == (loss == "corrected")
    assert (plain.status == Status.CONVERGED).all() == (loss == "corrected")


@pytest.mark.slow
def test_platts_search_overflows_on_shuttle_as_lin_and_others_found(real_data):
    data = real_data("lin2007_shuttle")
    scores, labels = data["scores_cv"][66], (data["y"] == 1).astype(int)
    found = assert_step_by_step(scores[None], labels[None], "corrected")
    assert found.overflows[0] > 0


def test_platts_search_finds_the_optimum_of_easy_problems(rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    found = pj.fit(scores, labels, curve=LevenbergMarquardt()).curves
    fit = pj.fit(scores.astype(float), labels)
    assert (found.status == Status.CONVERGED).all()
    rtol, atol = (1e-6, 1e-6) if dtype == np.float64 else (1e-5, 1e-5)
    np.testing.assert_allclose(found.nll, fit.nll, rtol=rtol)
    np.testing.assert_allclose(found.A, fit.A, atol=atol)
    np.testing.assert_allclose(found.B, fit.B, atol=atol)


def test_platts_search_stops_where_told_to(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    found = pj.fit(scores, labels, curve=LevenbergMarquardt(tol=0.1, max_iter=3)).curves
    converged = found.status == Status.CONVERGED
    for k in range(PROBLEMS):
        gradient = six_sums(scores[k], labels[k], found.A[k], found.B[k])[1:3]
        assert converged[k] == (np.max(np.abs(gradient)) < 0.1)
        assert converged[k] or found.iterations[k] == 3
    assert 0 < converged.sum() < PROBLEMS


# --- what else is known of single methods --------------------------------------------------------


def test_classes_that_are_apart_get_a_steep_finite_curve(dtype):
    scores = np.array([-3, -2, -1, 1, 2, 3], dtype)
    p = pj.fit(scores, scores > 0, curve=Gaussian()).predict_proba(scores)
    assert np.all(np.isfinite(p)) and np.all(abs(p - (scores > 0)) < 0.01)
    # Not even a variance is left here.
    p = pj.fit(np.sign(scores), scores > 0, curve=Gaussian()).predict_proba(scores)
    np.testing.assert_array_equal(p, scores > 0)


def test_a_class_without_a_variance_takes_the_pooled_one():
    scores = np.tile([-2.0, -1.0, 0.0, 1.0, 1.5, 1.5], ROWS // 6)
    p = predict(Gaussian("separate"), scores, scores == 1.5)
    own = 1.25
    pooled = own * 4 / 6
    pos, neg = (scipy.stats.norm.pdf(GRID, *at) for at in ((1.5, pooled**0.5), (-0.5, own**0.5)))
    np.testing.assert_allclose(p, 2 * pos / (2 * pos + 4 * neg))


def test_the_ends_of_the_clipped_line():
    fitted = pj.fit(np.linspace(-1, 1, ROWS), np.arange(ROWS) % 2, curve=PPClip())
    np.testing.assert_array_equal(fitted.predict_proba([-5.0, 0.5, 5.0]), [0, 0.75, 1])
    # In the wrong order: the upper end for every score.
    wrong = pj.fit([-2.0, -2.0, 2.0, 2.0, 2.0], [1, 1, 1, 0, 0], curve=PPClip())
    np.testing.assert_allclose(wrong.predict_proba([-5.0, 0.5, 5.0]), 1 / 3)


def test_the_average_of_beta_scaling_is_the_performance_where_memberships_are_beta(rng):
    """The first of the two conditions, on memberships that have the distribution it supposes."""
    member = rng.beta(2.0, 1.5, 4000)
    labels = rng.random(4000) < member**2
    scores = np.log(member / (1 - member)) / 2
    p = pj.fit(scores, labels, curve=BetaScaling()).predict_proba(scores)
    assert p.mean() == pytest.approx(labels.mean(), abs=1e-2)


def test_rows_of_the_other_predicted_class_do_not_spoil_a_curve():
    scores, labels = [2.0, -2, -4, -10, 5, 3], [0, 1, 1, 1, 1, 1]
    fitted = pj.fit(scores, labels, curve=BetaScaling("predicted"))
    alone = pj.fit([2.0, 5, 3], [0, 1, 1], curve=BetaScaling("predicted"))
    at = [0.1, 2.0, 4.0]
    np.testing.assert_array_equal(fitted.predict_proba(at), alone.predict_proba(at))


def random_problem(rng):
    n = int(rng.choice([3, 5, 8, 20, 48, 200, 500]))
    spread = 10 ** rng.uniform(-1, 1)
    f = spread * (rng.normal(size=n) + rng.normal())
    f = np.round(f) if rng.random() < 0.3 else f
    labels = rng.random(n) < 1 / (1 + np.exp(-2 * rng.normal() * f / spread - rng.normal()))
    return f, labels, rng.integers(0, 4, n) if rng.random() < 0.5 else np.ones(n)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["binary", "predicted"])
def test_no_size_of_beta_scaling_is_better_than_the_one_found(form, rng):
    tried, curved = np.geomspace(0.1, 1e4, 200), 0
    for _ in range(100):
        f, labels, weights = random_problem(rng)
        if not weights.any():
            continue
        found = pj.fit(f, labels, weights=weights, curve=BetaScaling(form)).curves
        regions = [f == f] if form == "binary" else [f > 0, f <= 0]
        for region, rows in enumerate(regions):
            member_mean, member_size, performance, size = (
                getattr(found, x)[0, region]
                for x in ("member_mean", "member_size", "performance", "size")
            )
            rows = rows & (weights > 0)
            if not member_size:
                continue
            sign = 1 - 2 * region
            member = 1 / (1 + np.exp(-2 * sign * f[rows]))
            ranks = betainc(member_mean * member_size, (1 - member_mean) * member_size, member)
            sizes = np.append(size, tried)[:, None]
            p = beta_quantile(performance * sizes, (1 - performance) * sizes, ranks)
            right = labels[rows] == (region == 0)
            error = np.average((p - right) ** 2, weights=weights[rows], axis=1)
            assert error[0] <= error.min() + 1e-12, (f, labels, weights)
            curved += 1
    assert curved > 50


def test_quantiles_in_the_far_lower_tail():
    """Where SciPy's quantile function is NaN, as the distribution function's inverse."""
    rng = np.random.default_rng(0)
    size = 10 ** rng.uniform(-1, 4, (2000, 1))
    mean = 10 ** rng.uniform(-4, 0, (2000, 1))
    ranks = 10 ** rng.uniform(-300, 0, (2000, 20))
    p = beta_quantile(mean * size, (1 - mean) * size, ranks)
    assert np.all((p >= 0) & (p <= 1))
    seen = (p > 1e-300) & (p < 1e-3)
    back = betainc(mean * size, (1 - mean) * size, p)
    np.testing.assert_allclose(back[seen], ranks[seen], rtol=1e-6)
    assert np.all(np.diff(beta_quantile(3.0, 0.2, np.sort(ranks, axis=None))) >= 0)
