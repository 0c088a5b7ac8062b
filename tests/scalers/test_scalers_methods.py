"""Each scaler against a slow implementation of its own: plain loops, SciPy, scikit-learn."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from data import batch
from reference import six_sums, targets
from sklearn.isotonic import IsotonicRegression

import platt_jax as pj
from platt_jax.scalers import (
    BetaCalibration,
    BetaScaling,
    Binning,
    Clip,
    CosineExpansion,
    Gaussian,
    Isotonic,
    LevenbergMarquardt,
    PPClip,
    Softmax,
    Temperature,
)

# As in test_scalers.py, which compiles the same programs.
PROBLEMS, ROWS = 20, 48
GRID = np.linspace(-5, 7, 61)


def sigmoid(z):
    return 1 / (1 + np.exp(-np.asarray(z, float)))


# --- the slow implementations: from scores, labels and weights to a function of the score ---------


def gaussian(scaler, f, y, w):
    n = np.array([w[y == k].sum() for k in (0, 1)])
    mean = np.array([np.average(f[y == k], weights=w[y == k]) for k in (0, 1)])
    variance = np.array([np.average((f[y == k] - mean[k]) ** 2, weights=w[y == k]) for k in (0, 1)])
    if scaler.variance == "tied":
        variance[:] = np.average(variance, weights=n)
    if scaler.bias == "zero":
        return lambda x: sigmoid((mean[1] - mean[0]) / variance[0] * x)

    def posterior(x):
        neg, pos = (n[k] * scipy.stats.norm.pdf(x, mean[k], variance[k] ** 0.5) for k in (0, 1))
        return pos / (pos + neg)

    return posterior


def cosine(scaler, f, y, w):
    """Least squares on rows of which the last ones are the penalty."""
    orders = np.arange(scaler.terms + 1)

    def basis(x):
        t = np.pi * (np.clip(x, f.min(), f.max()) - f.min()) / (f.max() - f.min())
        return np.cos(np.multiply.outer(t, orders))

    root = np.sqrt(w / w.sum())
    system = np.vstack([root[:, None] * basis(f), np.diag(math.sqrt(scaler.penalty) * orders)])
    a, *_ = np.linalg.lstsq(system, np.concatenate([root * y, 0.0 * orders]))
    return lambda x: np.clip(basis(x) @ a, 0, 1)


def softmax(scaler, f, y, w):
    return lambda x: [1 / (1 + math.exp(-2 * one)) for one in x]


def clip(scaler, f, y, w):
    return lambda x: [0 if one < -1 else 1 if one > 1 else (1 + one) / 2 for one in x]


def pp_clip(scaler, f, y, w):
    low, high = (np.average(y[rows], weights=w[rows]) for rows in (f < -1, f > 1))
    return lambda x: [min(max(p, low), high) for p in (1 + x) / 2]


def binning(scaler, f, y, w):
    if scaler.by == "width":
        edges = np.histogram_bin_edges(f, scaler.bins)[1:-1]
    else:
        at = np.arange(1, scaler.bins) / scaler.bins
        edges = np.quantile(f, at, method="inverted_cdf", weights=w)
    bins = [[] for _ in range(scaler.bins)]
    for i, score in enumerate(f):
        bins[sum(score > edge for edge in edges)].append(i)
    base_rate = np.average(y, weights=w)
    shares = [np.average(y[rows], weights=w[rows]) if rows else base_rate for rows in bins]
    return lambda x: [shares[sum(one > edge for edge in edges)] for one in x]


def isotonic(scaler, f, y, w):
    curve = IsotonicRegression(out_of_bounds="clip").fit(f, y, sample_weight=w)
    return curve.predict


def temperature(scaler, f, y, w):
    def loss(slope):
        return np.sum(w * np.logaddexp(0, np.where(y == 1, -f, f) * slope))

    best = scipy.optimize.minimize_scalar(
        loss, bounds=(0, 50), method="bounded", options={"xatol": 1e-12}
    )
    return lambda x: sigmoid(best.x * x)


def beta_calibration(scaler, f, y, w):
    def features(x):
        q = sigmoid(x) if scaler.inputs == "scores" else x
        return np.stack([np.log(q), -np.log(1 - q), np.ones_like(q)], axis=-1)

    rows = features(f)

    def loss(theta):
        z = rows @ theta
        slope = rows.T @ (w * (sigmoid(z) - y))
        return np.sum(w * (np.logaddexp(0, z) - y * z)), slope

    found = scipy.optimize.minimize(
        loss,
        [1.0, 1.0, 0.0],
        jac=True,
        bounds=[(0, None), (0, None), (None, None)],
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-10, "maxiter": 10000, "maxfun": 10000},
    )
    return lambda x: sigmoid(features(x) @ found.x)


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


def beta_scaling(scaler, f, y, w):
    if scaler.form == "binary":
        one = beta_curve(sigmoid(2 * f), y, w)
        return lambda x: one(sigmoid(2 * x))
    up = f > 0
    above = beta_curve(sigmoid(2 * f[up]), y[up], w[up])
    below = beta_curve(sigmoid(-2 * f[~up]), 1 - y[~up], w[~up])
    return lambda x: np.where(x > 0, above(sigmoid(2 * x)), 1 - below(sigmoid(-2 * x)))


# With the tolerance in float32, where sums err by some 1e-6, which the searches and the linear
# system amplify. Beta scaling computes in float64 all the same. None: variants, in float64 alone.
CASES = [
    (Gaussian(), gaussian, 1e-5),
    (Gaussian(bias="zero"), gaussian, None),
    (Gaussian(variance="separate"), gaussian, 1e-5),
    (CosineExpansion(), cosine, 1e-4),
    (CosineExpansion(terms=3, penalty=0.2), cosine, None),
    (Softmax(), softmax, 1e-6),
    (Clip(), clip, 1e-6),
    (PPClip(), pp_clip, 1e-6),
    (Binning(10), binning, 1e-6),
    (Binning(50), binning, None),
    (Binning(10, by="mass"), binning, 1e-6),
    (Binning(50, by="mass"), binning, None),
    (Isotonic(), isotonic, 1e-6),
    (Temperature(), temperature, 1e-4),
    (BetaCalibration(), beta_calibration, 1e-3),
    (BetaScaling(), beta_scaling, 1e-5),
    (BetaScaling("predicted"), beta_scaling, None),
]
RUNS = [(scaler, slow, np.float64, 1e-6) for scaler, slow, _ in CASES]
RUNS += [(scaler, slow, np.float32, coarse) for scaler, slow, coarse in CASES if coarse]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scaler", "slow", "dtype", "atol"),
    RUNS,
    ids=[f"{scaler!r}-{dtype.__name__}" for scaler, _, dtype, _ in RUNS],
)
def test_twenty_problems_against_an_independent_implementation(scaler, slow, dtype, atol, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    # Centred near the threshold, so that both margins and both predicted classes have rows.
    scores -= dtype(0.7)
    weights = rng.integers(1, 4, scores.shape)
    grid = GRID.astype(dtype)
    p = scaler.fit(scores, labels, weights=weights).predict_proba(grid)
    p = np.broadcast_to(p, (PROBLEMS, len(grid)))
    for k in range(PROBLEMS):
        f, y, w = (x[k].astype(float) for x in (scores, labels, weights))
        expected = slow(scaler, f, y, w)(grid.astype(float))
        np.testing.assert_allclose(p[k], expected, atol=atol)


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
    """That the library's search and the plain one agree; returns the library's."""
    fitted = LevenbergMarquardt(loss=loss).fit(scores, labels)
    for k in range(len(scores)):
        A, B, *counts = platts_code(scores[k], labels[k], loss)
        got = (fitted.iterations, fitted.overflows, fitted.log_zeros, fitted.converged)
        assert [x[k] for x in got] == counts
        np.testing.assert_allclose([fitted.A[k], fitted.B[k]], [A, B], rtol=1e-6)
        nll = six_sums(scores[k], labels[k], fitted.A[k], fitted.B[k])[0]
        np.testing.assert_allclose(fitted.nll[k], nll, rtol=1e-9)
    return fitted


@pytest.mark.parametrize("loss", ["corrected", "platt"])
def test_platts_search_step_by_step(loss, rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    plain = assert_step_by_step(scores, labels, loss)
    # Tails that the search overshoots, where p rounds to 0 or 1.
    tails = assert_step_by_step(np.sinh(2 * scores), labels, loss)
    assert not plain.log_zeros.any()
    assert tails.log_zeros.any() == (loss == "corrected")
    assert plain.converged.all() == (loss == "corrected")


@pytest.mark.slow
def test_platts_search_overflows_on_shuttle_as_lin_and_others_found(real_data):
    data = real_data("lin2007_shuttle")
    scores, labels = data["scores_cv"][66], (data["y"] == 1).astype(int)
    fitted = assert_step_by_step(scores[None], labels[None], "corrected")
    assert fitted.overflows[0] > 0


def test_platts_search_finds_the_optimum_of_easy_problems(rng, dtype):
    scores, labels = batch(rng, PROBLEMS, ROWS, dtype)
    fitted, fit = LevenbergMarquardt().fit(scores, labels), pj.fit(scores.astype(float), labels)
    assert fitted.converged.all()
    np.testing.assert_allclose(fitted.nll, fit.nll, rtol=1e-6 if dtype == np.float64 else 1e-5)
    atol = 1e-6 if dtype == np.float64 else 1e-2
    np.testing.assert_allclose(fitted.A, fit.A, atol=atol)
    np.testing.assert_allclose(fitted.B, fit.B, atol=atol)


def test_platts_search_stops_where_told_to(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    fitted = LevenbergMarquardt(tol=0.1, max_iter=3).fit(scores, labels)
    for k in range(PROBLEMS):
        gradient = six_sums(scores[k], labels[k], fitted.A[k], fitted.B[k])[1:3]
        assert fitted.converged[k] == (np.max(np.abs(gradient)) < 0.1)
        assert fitted.converged[k] or fitted.iterations[k] == 3
    assert 0 < fitted.converged.sum() < PROBLEMS


# --- what the bounds of the parameters decide ----------------------------------------------------


def test_temperature_of_reversed_and_of_perfect_logits():
    f = np.tile([2.0, -1.0, 1.0, -3.0], (PROBLEMS, ROWS // 4))
    y = f > 0
    y[0] = ~y[0]
    fitted = Temperature().fit(f, y)
    assert fitted.inverse_temperature[0] == 0 and fitted.converged[0]
    assert np.all(fitted.inverse_temperature[1:] > 10) and not fitted.converged[1:].any()
    p = fitted.predict_proba(f)
    assert np.all(p[0] == 0.5) and np.allclose(p[1:], y[1:], atol=1e-6)


def test_the_bounds_of_beta_calibration_hold_and_are_met(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    scores -= 0.7
    fitted = BetaCalibration().fit(scores, labels)
    assert np.all(fitted.a >= 0) and np.all(fitted.b >= 0)
    assert 0 < np.sum(fitted.a == 0) < PROBLEMS and 0 < np.sum(fitted.b == 0) < PROBLEMS
    reversed_ = BetaCalibration().fit(scores, 1 - labels)
    both = (reversed_.a == 0) & (reversed_.b == 0)
    assert both.any()
    share = np.log((1 - labels).mean(axis=1) / labels.mean(axis=1))
    np.testing.assert_allclose(reversed_.c[both], share[both], rtol=1e-7)


def test_probabilities_and_their_logits_are_calibrated_alike(rng):
    scores, labels = batch(rng, PROBLEMS, ROWS)
    q = sigmoid(scores)
    one = BetaCalibration("probabilities").fit(q, labels).predict_proba(q)
    other = BetaCalibration("scores").fit(scores, labels).predict_proba(scores)
    np.testing.assert_allclose(one, other, atol=1e-7)


def test_classes_that_are_apart_get_a_steep_finite_curve(dtype):
    scores = np.tile(np.array([-3, -2, -1, 1, 2, 3], dtype), (PROBLEMS, ROWS // 6))
    labels = scores > 0
    for scaler in (Gaussian(), BetaCalibration(), Temperature()):
        p = scaler.fit(scores, labels).predict_proba(scores)
        assert np.all(np.isfinite(p)) and np.all(abs(p - labels) < 0.01)
    # Not even a variance is left here.
    p = Gaussian().fit(np.sign(scores), labels).predict_proba(scores)
    np.testing.assert_array_equal(p, labels)


def test_a_class_without_a_variance_takes_the_pooled_one():
    scores = np.tile([-2.0, -1.0, 0.0, 1.0, 1.5, 1.5], (PROBLEMS, ROWS // 6))
    labels = scores == 1.5
    fitted = Gaussian(variance="separate").fit(scores, labels)
    own = 1.25
    pooled = own * 4 / 6
    pos, neg = (scipy.stats.norm.pdf(GRID, *at) for at in ((1.5, pooled**0.5), (-0.5, own**0.5)))
    np.testing.assert_allclose(fitted.predict_proba(GRID)[0], 2 * pos / (2 * pos + 4 * neg))


def test_the_ends_of_the_clipped_line_where_no_row_tells_them():
    fitted = PPClip().fit(np.linspace(-1, 1, ROWS), np.arange(ROWS) % 2)
    np.testing.assert_array_equal(fitted.predict_proba([-5.0, 0.5, 5.0]), [0, 0.75, 1])


def test_the_average_of_beta_scaling_is_the_performance_where_memberships_are_beta(rng):
    """The first of the two conditions, on memberships that have the distribution it supposes."""
    member = rng.beta(2.0, 1.5, 4000)
    labels = rng.random(4000) < member**2
    scores = np.log(member / (1 - member)) / 2
    p = BetaScaling().fit(scores, labels).predict_proba(scores)
    assert p.mean() == pytest.approx(labels.mean(), abs=1e-2)


def test_ties_in_the_scores_are_one_point_of_the_isotonic_curve():
    fitted = Isotonic().fit([1.0, 1.0, 1.0, 2.0, 2.0, 3.0], [1, 0, 0, 0, 1, 1])
    np.testing.assert_allclose(fitted.predict_proba([1.0, 2.0, 3.0]), [1 / 3, 1 / 2, 1])


def test_equal_scores_share_a_bin():
    scores, labels = [0.0, 0.0, 0.0, 0.0, 1.0, 2.0], [0, 1, 0, 0, 1, 1]
    fitted = Binning(3, by="mass").fit(scores, labels)
    np.testing.assert_allclose(fitted.predict_proba([0.0, 1.0, 2.0]), [1 / 4, 1, 1])
