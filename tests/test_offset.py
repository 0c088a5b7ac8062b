"""Offsets: known log-odds of each row, against known answers, SciPy and other ways to fit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import batch, labels_of, population_rows
from scipy.optimize import minimize
from scipy.special import expit

import platt_jax as pj
from platt_jax import Flag, GaussianPrior, Options, Status
from platt_jax.inference import robust_covariance

pytestmark = pytest.mark.slow  # compiles many programs

TARGETS = ("platt", "none")


def targets_of(labels, weights, kind):
    if kind == "none":
        return labels.astype(float)
    n_pos, n_neg = weights @ labels, weights @ (1 - labels)
    return np.where(labels > 0, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def by_scipy(f, y, o, w=None, targets="none", prior=None, intercept=True):
    """(A, B) by Newton's method from SciPy, on the objective written down anew."""
    w = np.ones(len(f)) if w is None else w
    t = targets_of(y, w, targets)
    X = np.stack([f, np.ones_like(f)], -1)[:, : 1 + intercept]
    mean, precision = np.zeros(X.shape[1]), np.zeros((X.shape[1],) * 2)
    if prior is not None:
        mean, precision = prior.mean, prior.precision

    def loss(x):
        z = X @ x - o
        off = x - mean
        return np.sum(w * (t * z + np.logaddexp(0, -z))) + off @ precision @ off / 2

    def gradient(x):
        return X.T @ (w * (t - expit(-(X @ x - o)))) + precision @ (x - mean)

    def hessian(x):
        p = expit(-(X @ x - o))
        return (X.T * (w * p * (1 - p))) @ X + precision

    x = minimize(
        loss, np.zeros(X.shape[1]), jac=gradient, hess=hessian, method="trust-exact", tol=1e-9
    ).x
    for _ in range(5):
        x = x - np.linalg.solve(hessian(x), gradient(x))
    return np.append(x, 0.0)[:2]


def rows_with_offset(rng, rows=300, dtype=np.float64):
    f = rng.normal(size=rows)
    o = rng.normal(0.5, 1.5, rows) + 0.4 * f
    y = labels_of(rng, 1.2 * f - 0.3 + o).astype(int)
    return f.astype(dtype), y, o


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        (Options(), np.float64),
        (Options(), np.float32),
        (Options(targets="none"), np.float64),
        (Options(start="prior"), np.float32),
        (Options(standardize=False), np.float64),
        (Options(derivatives="autodiff"), np.float32),
        (Options(line_search="loss"), np.float64),
    ],
    ids=str,
)
def test_a_line_as_offset_moves_the_curve_by_it(rng, dtype, options):
    """Platt's targets are of the counts, so this holds for them, too."""
    scores, labels = batch(rng, 5, 200, dtype)
    weights = rng.integers(1, 4, scores.shape)
    without = pj.fit(scores, labels, weights=weights, options=options)
    for c, o in ((0, 3), (2, 0), (-0.5, -7)):
        moved = pj.fit(scores, labels, weights=weights, offset=c * scores + o, options=options)
        near, loss = (1e-8, 1e-9) if dtype is np.float64 else (1e-3, 1e-4)
        np.testing.assert_allclose(moved.A, without.A + c, rtol=0, atol=near)
        np.testing.assert_allclose(moved.B, without.B + o, rtol=0, atol=near)
        np.testing.assert_allclose(moved.nll, without.nll, rtol=loss)
        np.testing.assert_array_equal(moved.status, Status.CONVERGED)
    assert moved.A.dtype == dtype


def test_the_start_moves_with_the_offset(rng):
    scores, labels = batch(rng, 20, 500)
    without = pj.fit(scores, labels)
    moved = pj.fit(scores, labels, offset=3 * scores - 5)
    np.testing.assert_array_equal(moved.passes, without.passes)


@pytest.mark.parametrize(
    ("targets", "weighted", "rows"),
    [("platt", True, 30), ("none", False, 30), ("platt", False, 5_000), ("none", True, 300)],
)
def test_against_scipy(rng, targets, weighted, rows):
    f, y, o = rows_with_offset(rng, rows)
    w = rng.integers(0, 4, rows).astype(float) if weighted else None
    prior = GaussianPrior(np.array([-1.0, 0.2]), np.array([[2.0, 0.3], [0.3, 1.0]]))
    options = Options(targets=targets)
    for given in (None, prior):
        found = pj.fit(f, y, weights=w, offset=o, prior=given, options=options)
        expected = by_scipy(f, y, o, w, targets, given)
        np.testing.assert_allclose([found.A, found.B], expected, rtol=1e-8, atol=1e-9)
    found = pj.fit(f, y, weights=w, offset=o, options=replace(options, intercept=False))
    expected = by_scipy(f, y, o, w, targets, intercept=False)
    np.testing.assert_allclose([found.A, found.B], expected, rtol=1e-8, atol=1e-9)


def test_libsvm_stops_by_its_own_rule(rng):
    f, y, o = rows_with_offset(rng)
    found = pj.fit(f, y, offset=o, options=Options.libsvm())
    np.testing.assert_allclose([found.A, found.B], by_scipy(f, y, o, targets="platt"), rtol=1e-5)


def test_one_class_has_a_slope_if_its_offsets_do(rng):
    f = rng.normal(size=40)
    o = rng.normal(size=40) - f
    found = pj.fit(f, np.ones(40, int), offset=o)
    np.testing.assert_allclose(
        [found.A, found.B], by_scipy(f, np.ones(40, int), o, targets="platt"), rtol=1e-8
    )
    assert found.status == Status.CONVERGED and found.flags & Flag.ONE_CLASS and found.A != 0
    warm = pj.fit(f, np.ones(40, int), offset=o, start=(found.A, found.B))
    assert warm.passes < found.passes and abs(warm.A - found.A) < 1e-9
    unbounded = pj.fit(f, np.ones(40, int), offset=o, options=Options(targets="none"))
    assert unbounded.status == Status.MAX_ITERATIONS


def test_constant_scores_have_slope_0_and_an_intercept_of_their_own(rng):
    o, y = rng.normal(1, 2, 50), rng.integers(0, 2, 50)
    for score in (0.0, 3.7):
        found = pj.fit(np.full(50, score), y, offset=o, options=Options(targets="none"))
        assert found.A == 0 and found.flags & Flag.CONSTANT_SCORES
        assert found.status == Status.CONVERGED and np.isnan(found.covariance).all()
        assert abs(np.sum(expit(o - found.B) - y)) < 1e-8


def test_separable_labels_stay_separable(rng):
    f = np.concatenate([rng.uniform(-2, -1, 20), rng.uniform(1, 2, 20)])
    y, o = (f > 0).astype(int), rng.normal(0, 5, 40)
    assert pj.fit(f, y, offset=o).flags & Flag.SEPARABLE
    none = pj.fit(f, y, offset=o, options=Options(targets="none"))
    assert none.status == Status.MAX_ITERATIONS
    smooth = pj.fit(f, y, offset=o)
    np.testing.assert_allclose([smooth.A, smooth.B], by_scipy(f, y, o, targets="platt"), rtol=1e-7)


def test_monotone_holds_the_slope_of_what_the_offset_leaves(rng):
    f, y, o = rows_with_offset(rng)
    held = pj.fit(f, y, offset=o + 5 * f, options=Options(monotone=True, targets="none"))
    assert held.A == 0 and held.converged
    assert abs(np.sum(expit(o + 5 * f - held.B) - y)) < 1e-7
    free = pj.fit(f, y, offset=o, options=Options(monotone=True))
    np.testing.assert_allclose([free.A, free.B], by_scipy(f, y, o, targets="platt"), rtol=1e-8)


@pytest.mark.parametrize("scale", [30.0, 1e3])
def test_large_offsets_converge(rng, scale):
    f = rng.normal(size=(20, 400))
    o = rng.normal(0, scale, f.shape)
    y = labels_of(rng, f - 0.5 + o).astype(int)
    found = pj.fit(f, y, offset=o)
    assert found.converged.all() and found.passes.max() < 100
    for k in (0, 7):
        expected = by_scipy(f[k], y[k], o[k], targets="platt")
        np.testing.assert_allclose([found.A[k], found.B[k]], expected, rtol=1e-6, atol=1e-6)


def test_a_far_score_and_its_offset(rng):
    """Its offset undoes most of what the slope does to it."""
    f = np.append(rng.normal(size=200), 1e6)
    o = np.append(rng.normal(size=200), 1.2e6)
    y = np.append(labels_of(rng, 1.2 * f[:-1] + o[:-1]), 1).astype(int)
    found = pj.fit(f, y, offset=o)
    assert found.converged
    gradient = found.gradient @ found.covariance @ found.gradient
    assert gradient < 1e-10


# --- bad rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_bad_offset_is_a_bad_row(rng, bad, weighted):
    scores, labels = batch(rng, 3, 60)
    offset = rng.normal(size=scores.shape)
    weights = np.ones_like(scores) if weighted else None
    good = pj.fit(scores, labels, offset=offset, weights=weights)
    offset[1, 5] = bad
    with pytest.warns(RuntimeWarning, match="1 of 3 problems"):
        found = pj.fit(scores, labels, offset=offset, weights=weights)
    assert found.status.tolist() == [Status.CONVERGED, Status.NON_FINITE, Status.CONVERGED]
    np.testing.assert_array_equal(found.A[[0, 2]], good.A[[0, 2]])
    assert np.isnan(found.A[1])
    with pytest.raises(ValueError, match=r"offset: expected finite"):
        pj.fit(scores, labels, offset=offset, weights=weights, options=Options(non_finite="raise"))
    omitted = pj.fit(
        scores, labels, offset=offset, weights=weights, options=Options(non_finite="omit")
    )
    rest = pj.fit(np.delete(scores[1], 5), np.delete(labels[1], 5), offset=np.delete(offset[1], 5))
    np.testing.assert_allclose(omitted.A[1], rest.A, rtol=1e-10)
    if weighted:
        weights[1, 5] = 0
        gone = pj.fit(scores, labels, offset=offset, weights=weights)
        np.testing.assert_allclose(gone.A[1], rest.A, rtol=1e-10)


def test_errors_name_the_offset(rng):
    scores, labels = batch(rng, 3, 20)
    for offset, message in (
        (np.zeros(19), r"offset: .*\(3, 20\), got \(19,\)"),
        (["text"] * 20, "offset: expected numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.fit(scores, labels, offset=offset)
        with pytest.raises(ValueError, match=message):
            pj.solve(scores, labels, offset=offset)
        with pytest.raises(ValueError, match="offset: "):
            pj.fit_segments(scores[0], labels[0], np.zeros(20, int), offset=offset)
        with pytest.raises(ValueError, match="offset: "):
            pj.Sigmoid(-1.0, 0.0).predict_proba(np.zeros((3, 20)), offset=offset)
    rows = pj.SegmentRows(scores[0], labels[0], np.zeros(20, int))
    with pytest.raises(ValueError, match="offset: expected none beside SegmentRows"):
        pj.fit_segments(rows, offset=np.zeros(20))


# --- segments and populations ---------------------------------------------------------------------


def segment_rows(rng, number=40, rows=60):
    f, y, s = population_rows(rng, number, rows)
    o = rng.normal(0, 1, len(f)) + 0.3 * f
    y = labels_of(rng, 1.5 * f - 0.5 + o + rng.normal(0, 0.7, number)[s]).astype(int)
    return f, y, s, o


def test_segments_are_fits_of_their_rows(rng):
    f, y, s, o = segment_rows(rng)
    found = pj.fit_segments(f, y, s, offset=o)
    for k in (0, 17):
        mine = s == k
        expected = by_scipy(f[mine], y[mine], o[mine], targets="platt")
        np.testing.assert_allclose([found.fit.A[k], found.fit.B[k]], expected, rtol=1e-7)
    np.testing.assert_allclose(
        [found.fallback.A, found.fallback.B], by_scipy(f, y, o, targets="platt"), rtol=1e-7
    )
    complete = pj.fit_segments(f, y, s, offset=o, pooling="complete")
    np.testing.assert_allclose(complete.fit.A, found.fallback.A)


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_segments_with_a_line_as_offset(rng, pooling):
    f, y, s = population_rows(rng, 60, 40)
    without = pj.fit_segments(f, y, s, pooling=pooling)
    moved = pj.fit_segments(f, y, s, offset=0.7 * f - 2, pooling=pooling)
    near = dict(rtol=0, atol=2e-6)
    np.testing.assert_allclose(moved.fit.A, without.fit.A + 0.7, **near)
    np.testing.assert_allclose(moved.fit.B, without.fit.B - 2, **near)
    np.testing.assert_allclose(moved.fallback.B, without.fallback.B - 2, **near)
    if pooling == "partial":
        a, b = moved.population, without.population
        np.testing.assert_allclose(a.mean, b.mean + np.array([0.7, -2]), **near)
        np.testing.assert_allclose(a.covariance, b.covariance, **near)
        np.testing.assert_allclose(a.covariance_errors, b.covariance_errors, rtol=1e-4)
    new, ids = rng.normal(size=30), np.arange(45, 75)
    line = 0.7 * new - 2
    np.testing.assert_allclose(
        moved.predict_proba(new, ids, offset=line), without.predict_proba(new, ids), rtol=1e-5
    )
    for ours, theirs in zip(moved.band(new, ids, offset=line), without.band(new, ids), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_population_is_found_through_offsets(rng):
    """Spreads of the curves, not of the curves and the offsets."""
    number = 400
    s = np.repeat(np.arange(number), 60)
    f, levels = rng.normal(size=len(s)), rng.normal(0, 0.5, number)
    shift = rng.normal(0, 2, number)[s]  # known
    y = labels_of(rng, 1.5 * f + levels[s] + shift)
    found = pj.fit_segments(f, y, s, offset=shift, pooling="partial").population
    deviation, error = found.covariance[1, 1], found.covariance_errors[1, 1]
    assert abs(deviation - 0.25) < 4 * error < 0.25
    assert pj.fit_segments(f, y, s, pooling="partial").population.covariance[1, 1] > 2


def test_predictive_probabilities_average_with_the_offset_inside(rng):
    f, y, s, o = segment_rows(rng, 30, 8)
    made = pj.fit_segments(f, y, s, offset=o, pooling="partial")
    mean, covariance = made.population.posterior_mean[3], made.population.posterior_covariance[3]
    draws = rng.multivariate_normal(mean, covariance, 200_000)
    expected = expit(2.5 - draws @ [0.4, 1.0]).mean()
    found = made.predict_proba([0.4], [3], offset=2.5)
    assert abs(found[0] - expected) < 2e-3
    assert abs(expit(2.5 - mean @ [0.4, 1.0]) - expected) > 4e-3


def test_an_oversized_problem(rng):
    f, y, o = rows_with_offset(rng, 600_000)
    found = pj.fit(f, y, offset=o)
    np.testing.assert_allclose([found.A, found.B], by_scipy(f, y, o, targets="platt"), rtol=1e-7)


# --- solve ----------------------------------------------------------------------------------------


def test_solve_and_its_derivatives(rng, x64):
    scores, labels = batch(rng, 3, 40)
    offset = rng.normal(size=scores.shape)
    host = pj.fit(scores, labels, offset=offset)
    there = pj.solve(scores, labels, offset=offset)
    np.testing.assert_allclose(there.A, host.A, rtol=1e-9)
    np.testing.assert_allclose(there.covariance, host.covariance, rtol=1e-7)

    def summary(offset):
        made = pj.solve(scores, labels, offset=offset)
        return jnp.stack([made.A, made.B, made.nll, made.covariance[..., 0, 1]])

    by_offset = jax.jacrev(summary)(jnp.asarray(offset))
    forward = jax.jacfwd(summary)(jnp.asarray(offset))
    np.testing.assert_allclose(by_offset, forward, rtol=1e-7, atol=1e-10)
    for k, n in ((0, 3), (2, 30)):
        step = np.zeros_like(offset)
        step[k, n] = 1e-4
        difference = (summary(offset + step) - summary(offset - step)) / 2e-4
        np.testing.assert_allclose(by_offset[:, :, k, n], difference, rtol=1e-5, atol=1e-8)
    # One offset for all rows moves B alone.
    by_shift = jax.jacfwd(lambda o: summary(offset + o)[:2])(0.0)
    np.testing.assert_allclose(by_shift, [[0] * 3, [1] * 3], atol=1e-9)


def test_solve_of_a_bad_offset(rng):
    scores, labels = batch(rng, 2, 30, np.float32)
    offset = np.zeros_like(scores)
    offset[0, 3] = np.nan
    made = pj.solve(scores, labels, offset=offset)
    assert made.status.tolist() == [Status.NON_FINITE, Status.CONVERGED]
    slope = jax.grad(lambda o: jnp.nansum(pj.solve(scores, labels, offset=o).A))(offset)
    assert jnp.isfinite(slope).all() and jnp.any(slope[1] != 0)


# --- other doors ----------------------------------------------------------------------------------


def test_leave_one_out_is_the_fit_of_the_others(rng):
    f, y, o = rows_with_offset(rng, 40)
    w = rng.integers(1, 3, 40).astype(float)
    found = pj.inference.leave_one_out(pj.fit(f, y, weights=w, offset=o), f, y, weights=w, offset=o)
    for i in (0, 11, 39):
        rest = np.arange(40) != i
        A, B = by_scipy(f[rest], y[rest], o[rest], w[rest], "platt")
        assert abs(np.log(found[i] / (1 - found[i])) - (o[i] - A * f[i] - B)) < 2e-6


def test_leave_one_out_where_the_rest_is_fitted(rng):
    f, y = np.array([0.0, 0.1, -0.1, 0.2, 9.0]), np.array([1, 0, 1, 0, 1])
    o = np.array([0.5, -1.0, 0.0, 2.0, -8.0])
    found = pj.inference.leave_one_out(pj.fit(f, y, offset=o), f, y, offset=o)
    A, B = by_scipy(f[:4], y[:4], o[:4], targets="platt")
    assert abs(np.log(found[4] / (1 - found[4])) - (o[4] - A * f[4] - B)) < 1e-4


def test_doors_that_move_with_a_line(rng):
    """Bootstrap, robust covariances, updates and triage: as without the line, but for A and B."""
    f, y, s = population_rows(rng, 6, 200)
    line = 0.7 * f - 2
    one, other = pj.fit_segments(f, y, s), pj.fit_segments(f, y, s, offset=line)
    a = pj.inference.bootstrap(f, y, segments=s, replicates=20)
    b = pj.inference.bootstrap(f, y, segments=s, offset=line, replicates=20)
    np.testing.assert_allclose(b.A, a.A + 0.7, atol=1e-6)
    np.testing.assert_allclose(b.B, a.B - 2, atol=1e-6)
    np.testing.assert_allclose(b.interval()[0], a.interval()[0] + [0.7, -2], atol=1e-5)
    new = rng.normal(size=(6, 3))
    for ours, theirs in zip(b.band(new, offset=0.7 * new - 2), a.band(new), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    clustered = (
        pj.inference.bootstrap(
            f, y, segments=s, clusters=np.arange(len(f)) // 3, replicates=5, **given
        )
        for given in ({}, {"offset": line})
    )
    first, second = clustered
    np.testing.assert_allclose(second.A, first.A + 0.7, atol=1e-6)
    np.testing.assert_allclose(
        robust_covariance(other, f, y, segments=s, offset=line).fit.covariance,
        robust_covariance(one, f, y, segments=s).fit.covariance,
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        pj.update(other, f[::3], y[::3], s[::3], offset=line[::3]).fit.A,
        pj.update(one, f[::3], y[::3], s[::3]).fit.A + 0.7,
        atol=1e-6,
    )
    fresh = (
        pj.triage(made, f, y, s, against="predictions", **given)
        for made, given in ((one, {}), (other, {"offset": line}))
    )
    p_values = [np.sort(x["cox_p_value"]) for x in fresh]
    np.testing.assert_allclose(*p_values, rtol=1e-4)
    fresh = (pj.triage(one, f, y, s), pj.triage(other, f, y, s, offset=line))
    p_values = [np.sort(x["p_value"]) for x in fresh]
    # Not the same draws: rows with an offset are in the order of their probabilities.
    np.testing.assert_allclose(*p_values, rtol=0.5, atol=0.05)


def test_one_vs_rest(rng):
    scores = rng.normal(size=(200, 3))
    offset = rng.normal(size=(200, 3))
    labels = rng.integers(0, 3, 200)
    made = pj.fit_one_vs_rest(scores, labels, offset=offset)
    for c in range(3):
        expected = by_scipy(scores[:, c], (labels == c) * 1, offset[:, c], targets="platt")
        np.testing.assert_allclose([made.fit.A[c], made.fit.B[c]], expected, rtol=1e-7)
    own = made.predict_proba(scores, normalize=False, offset=offset)
    np.testing.assert_allclose(own, expit(offset - made.fit.A * scores - made.fit.B))
    total = made.predict_proba(scores, offset=offset)
    np.testing.assert_allclose(total, own / own.sum(1, keepdims=True))
    lower, upper = made.band(scores, offset=offset)
    assert ((lower < own) & (own < upper)).all()


def test_sampled_negatives(rng):
    """Of the negatives a tenth is kept: log 10 is what sampling adds to the log-odds."""
    f = rng.normal(size=400_000)
    y = labels_of(rng, 1.3 * f - 4)
    kept = y | (rng.random(len(f)) < 0.1)
    found = pj.fit(f[kept], y[kept], offset=-np.log(0.1))
    assert abs(found.A + 1.3) < 0.05 and abs(found.B - 4) < 0.06
    shifted = pj.fit(f[kept], y[kept])
    np.testing.assert_allclose(found.B, shifted.B - np.log(0.1), atol=1e-8)


def test_predictions_add_the_offset(rng):
    f, o = rng.normal(size=(2, 5)).astype(np.float32), rng.normal(size=5)
    sigmoid = pj.Sigmoid(np.float32([-1.0, 2.0]), np.float32([0.0, 1.0]))
    logit = -(sigmoid.A[:, None] * f + sigmoid.B[:, None]) + o
    found = sigmoid.predict_proba(f, offset=o)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expit(logit), rtol=1e-5)
    np.testing.assert_allclose(sigmoid.log_proba(f, offset=o), np.log(expit(logit)), rtol=1e-4)
    np.testing.assert_allclose(sigmoid.logit(f, offset=o), logit, rtol=1e-5)
    traced = jax.jit(lambda f, o: sigmoid.predict_proba(f, offset=o))(f, o)
    np.testing.assert_allclose(traced, found, rtol=1e-6)


@pytest.mark.parametrize("far", [100.0, 1e6, np.inf])
def test_a_few_far_offsets(rng, dtype, far):
    """They draw the line away from all others; their own rows are fitted with certainty."""
    f, y, o = rows_with_offset(rng, 100, dtype)
    o[:4] = min(far, np.finfo(dtype).max) / 2 * np.array([1, 1, -1, 1])
    y[:4] = o[:4] > 0
    rest = pj.fit(f[4:], y[4:], offset=o[4:], options=Options(targets="none"))
    for start in (None, (np.nan, np.nan), (rest.A, rest.B)):
        found = pj.fit(f, y, offset=o, start=start, options=Options(targets="none"))
        assert found.converged and found.passes < 20
        np.testing.assert_allclose(found.A, rest.A, rtol=1e-3 if dtype is np.float32 else 1e-8)


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_with_a_line_as_offset(rng, pooling):
    ids = np.stack([rng.integers(0, 6, 4_000), rng.integers(0, 5, 4_000)], -1)
    effects = rng.normal(0, 0.7, 6)[ids[:, 0]] + rng.normal(0, 0.5, 5)[ids[:, 1]]
    f = rng.normal(size=4_000)
    y = labels_of(rng, 1.3 * f + effects)
    without = pj.fit_segments(f, y, ids, pooling=pooling)
    moved = pj.fit_segments(f, y, ids, offset=0.7 * f - 2, pooling=pooling)
    for name in ("slope_sd", "intercept_sd"):
        np.testing.assert_allclose(moved.levels[name], without.levels[name], rtol=1e-3, atol=1e-4)
    new, some = rng.normal(size=4), np.array([[0, 0], [3, 4], [9, 2], [9, 9]])
    expected, line = without.predict_proba(new, some), 0.7 * new - 2
    np.testing.assert_allclose(moved.predict_proba(new, some, offset=line), expected, rtol=1e-3)
    lower, upper = moved.band(new, some, offset=line)
    np.testing.assert_allclose(lower, without.band(new, some)[0], rtol=1e-2)
    assert ((lower < expected) & (expected < upper)).all()
