"""Options(intercept=False): B is held at 0, and A is the only parameter."""

import jax
import mpmath
import numpy as np
import pytest
from data import batch
from scipy import optimize

import platt_jax as pj
from platt_jax import Flag, GaussianPrior, Options, Status
from platt_jax.backend import xla

HELD = Options(intercept=False)
PLAIN = Options(intercept=False, targets="none")
AS_IN_THE_PAPER = Options(
    intercept=False, start="prior", direction="newton", line_search="loss", standardize=False
)


def targets(labels, weights, options):
    if options.targets == "none":
        return labels.astype(float)
    n_pos, n_neg = np.sum(weights * labels), np.sum(weights * ~labels)
    return np.where(labels, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def loss(A, f, t, w):
    z = A * f
    return np.sum(w * (t * z + np.logaddexp(0, -z)))


def by_scipy(f, labels, w=None, options=HELD, penalty=lambda A: 0.0):
    """The optimal slope in float64."""
    f = np.asarray(f, float)
    w = np.ones_like(f) if w is None else w
    t, scale = targets(labels, w, options), np.abs(f).max()
    found = optimize.minimize_scalar(
        lambda A: loss(A / scale, f, t, w) + penalty(A / scale), (-1, 1), tol=1e-12
    )
    return found.x / scale


@pytest.fixture
def data(rng):
    scores, labels = batch(rng, 6, 60)
    return 0.3 + 2 * scores, labels.astype(bool)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weighted", "options"),
    [
        pytest.param(False, HELD, id="platt"),
        pytest.param(False, PLAIN, id="none"),
        pytest.param(True, HELD, id="platt, weighted"),
        # Targets of labels alone do not depend on weights.
        pytest.param(True, PLAIN, id="none, weighted"),
    ],
)
def test_the_slope_is_the_best_one(data, rng, weighted, options):
    scores, labels = data
    weights = rng.integers(0, 4, scores.shape).astype(float) if weighted else None
    fit = pj.fit(scores, labels, weights=weights, options=options).raise_if_failed()
    w = np.ones_like(scores) if weights is None else weights
    for k, A in enumerate(fit.A):
        f, t = scores[k], targets(labels[k], w[k], options)
        best = by_scipy(f, labels[k], w[k], options)
        np.testing.assert_allclose(A, best, rtol=1e-6)  # as far as the loss tells
        p = 1 / (1 + np.exp(A * f))
        curvature = np.sum(w[k] * f * f * p * (1 - p))
        assert abs(np.sum(w[k] * f * (t - p))) < 1e-8 * np.sqrt(curvature)
        np.testing.assert_allclose(fit.nll[k], loss(A, f, t, w[k]), rtol=1e-12)
        np.testing.assert_allclose(fit.hessian[k], [[curvature, 0], [0, 0]], rtol=1e-7)
        np.testing.assert_allclose(fit.covariance[k], [[1 / curvature, 0], [0, 0]], rtol=1e-7)
    assert (fit.B == 0).all() and (fit.gradient[:, 1] == 0).all()
    assert (fit.standard_errors[:, 1] == 0).all()
    assert fit.passes.max() <= 6


def test_the_slope_to_30_digits():
    f, y = [2.0, -1.0, 0.5, 3.0, -0.25], [1, 0, 0, 1, 1]
    mpmath.mp.dps = 30
    t = [mpmath.mpf(4) / 5 if label else mpmath.mpf(1) / 4 for label in y]
    A = mpmath.findroot(
        lambda A: sum(
            score * (goal - 1 / (1 + mpmath.exp(A * score)))
            for score, goal in zip(f, t, strict=True)
        ),
        -0.5,
    )
    np.testing.assert_allclose(pj.fit(f, y, options=HELD).A, float(A), rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [2.0**-100, 1e-8, 3.0, 1e30])
def test_scaled_scores_have_the_same_probabilities(data, dtype, factor):
    scores, labels = data[0].astype(dtype), data[1]
    scaled = (scores * dtype(factor)).astype(dtype)
    fits = [pj.fit(f, labels, options=HELD).raise_if_failed() for f in (scores, scaled)]
    tolerance = 1e-13 if dtype is np.float64 else 1e-4
    np.testing.assert_allclose(fits[1].A * factor, fits[0].A, rtol=tolerance)


@pytest.mark.parametrize("offset", [-50.0, 1e3, 1e6])
def test_far_from_zero_the_level_of_the_scores_counts(rng, offset):
    """Nothing is centred: a shift of the scores is another problem."""
    scores, labels = batch(rng, 3, 60)
    labels = labels.astype(bool)
    fit = pj.fit(scores + offset, labels, options=HELD).raise_if_failed()
    for k in range(3):
        best = by_scipy(scores[k] + offset, labels[k])
        np.testing.assert_allclose(fit.A[k] * offset, best * offset, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("level", [3.0, -0.01, 1e9])
def test_constant_scores_leave_the_slope_that_fits_the_mean_target(level):
    fit = pj.fit(np.full(5, level), [1, 0, 0, 0, 1], options=PLAIN).raise_if_failed()
    assert fit.flags == Flag.CONSTANT_SCORES | (Flag.REVERSED if level > 0 else 0)
    np.testing.assert_allclose(fit.predict_proba(np.full(5, level)), 0.4, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("options", [HELD, PLAIN, AS_IN_THE_PAPER], ids=["platt", "none", "paper"])
def test_scores_that_are_all_zero_leave_it_undetermined(options):
    fit = pj.fit(np.zeros(4), [1, 0, 0, 1], options=options)
    assert fit.status == Status.CONVERGED and fit.flags == Flag.CONSTANT_SCORES
    assert fit.A == 0 and fit.B == 0
    np.testing.assert_array_equal(fit.covariance, [[np.nan, 0], [0, 0]])


def test_one_class_has_a_slope_of_its_own(rng):
    scores = rng.normal(1, 1, 50)
    labels = np.ones(50, bool)
    fit = pj.fit(scores, labels, options=HELD).raise_if_failed()
    np.testing.assert_allclose(fit.A, by_scipy(scores, labels), rtol=1e-6)
    assert fit.flags == Flag.ONE_CLASS


@pytest.mark.slow
def test_where_zero_splits_the_classes_only_targets_or_a_prior_bound_the_slope(rng):
    scores = np.abs(rng.normal(size=(3, 40)))
    labels = rng.random((3, 40)) < 0.5
    split, above = np.where(labels, scores, -scores), scores + np.where(labels, 5, 0)
    for f, separable in ((split, True), (-split, True), (above, False)):
        platt, plain = (pj.fit(f, labels, options=o) for o in (HELD, PLAIN))
        prior = GaussianPrior([0.0, 0.0], np.eye(2))
        held = pj.fit(f, labels, prior=prior, options=PLAIN)
        assert (platt.status == Status.CONVERGED).all() and held.converged.all()
        assert ((platt.flags & Flag.SEPARABLE) > 0).tolist() == [separable] * 3
        expected = Status.MAX_ITERATIONS if separable else Status.CONVERGED
        assert (plain.status == expected).all()
    one_class = pj.fit(scores, np.ones(40), options=PLAIN)
    assert (one_class.status == Status.MAX_ITERATIONS).all()


@pytest.mark.slow
def test_statuses_come_out_of_one_call(data):
    scores, labels = data[0][:4].copy(), data[1][:4]
    scores[1, 3], weights = np.nan, np.ones(scores.shape)
    weights[2] = 0
    with pytest.warns(RuntimeWarning, match="NaN"):
        fit = pj.fit(scores, labels, weights=weights, options=HELD)
    assert fit.status.tolist() == [
        Status.CONVERGED,
        Status.NON_FINITE,
        Status.EMPTY,
        Status.CONVERGED,
    ]
    assert np.isnan(fit.B[1:3]).all() and fit.B[0] == 0


@pytest.mark.slow
def test_monotone_holds_the_slope_at_zero(data):
    scores, labels = data
    fit = pj.fit(-scores, labels, options=Options(intercept=False, monotone=True))
    assert fit.converged.all() and (fit.A == 0).all() and (fit.B == 0).all()
    assert (fit.covariance == 0).all()


@pytest.mark.slow
def test_a_prior_counts_for_B_of_zero(data):
    scores, labels = data
    mean, precision = np.array([-2.0, 1.0]), np.array([[40.0, 25.0], [25.0, 30.0]])
    fit = pj.fit(scores, labels, prior=GaussianPrior(mean, precision), options=PLAIN)

    def penalty(A):
        off = np.array([A, 0.0]) - mean
        return off @ precision @ off / 2

    for k, A in enumerate(fit.A):
        best = by_scipy(scores[k], labels[k], options=PLAIN, penalty=penalty)
        np.testing.assert_allclose(A, best, rtol=1e-6)
    assert (fit.B == 0).all()


OTHERS = Options(
    intercept=False, sigma="dynamic", derivatives="autodiff", stopping="gradient", tol=1e-10
)


@pytest.mark.slow
@pytest.mark.parametrize("options", [AS_IN_THE_PAPER, OTHERS], ids=["paper", "others"])
def test_other_options_lead_to_the_same_slope(data, options):
    scores, labels = data
    expected = pj.fit(scores, labels, options=HELD)
    found = pj.fit(scores, labels, options=options).raise_if_failed()
    np.testing.assert_allclose(found.A, expected.A, rtol=1e-9)


@pytest.mark.slow
def test_a_start_saves_passes_and_its_B_is_held_all_the_same(data):
    scores, labels = data
    cold = pj.fit(scores, labels, options=HELD)
    warm = pj.fit(scores, labels, start=(cold.A, 7.0), options=HELD)
    assert (warm.passes == 1).all() and (warm.B == 0).all()
    np.testing.assert_allclose(warm.A, cold.A, rtol=1e-9)
    bad = pj.fit(scores, labels, start=(-1e6, 0.0), options=HELD)
    np.testing.assert_allclose(bad.A, cold.A, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 3000])
def test_tiles_agree_with_vectors(rng, monkeypatch, rows):
    scores, labels = batch(rng, 5, rows)
    scores = 3 * scores + 1
    vectors = pj.fit(scores, labels, options=HELD)
    monkeypatch.setattr(xla, "fused_cpu_supported", lambda: False)
    tiles = pj.fit(scores, labels, options=HELD).raise_if_failed()
    np.testing.assert_allclose(tiles.A, vectors.A, rtol=1e-12)
    assert (tiles.B == 0).all()


@pytest.mark.slow
def test_an_oversized_problem(rng, sizes):
    scores, labels = (x.ravel() for x in batch(rng, 1, 40_000))
    whole = pj.fit(scores, labels, options=HELD)
    sizes(problem_rows=16_384, block_rows=16_384)
    blocks = pj.fit(scores, labels, options=HELD).raise_if_failed()
    np.testing.assert_allclose(blocks.A, whole.A, rtol=1e-12)
    np.testing.assert_allclose(blocks.covariance, whole.covariance, rtol=1e-9)
    assert blocks.B == 0 and whole.B == 0


def test_segments_and_their_fallback(data):
    scores, labels = data
    segments = np.repeat(list("fabdec"), 60)
    found = pj.fit_segments(scores.ravel(), labels.ravel(), segments, options=HELD)
    each = pj.fit(scores, labels, options=HELD)
    np.testing.assert_array_equal(found.fit.A, each.A[[1, 2, 5, 3, 4, 0]])
    assert (found.fit.B == 0).all() and found.fallback.B == 0
    np.testing.assert_allclose(found.fallback.A, by_scipy(scores.ravel(), labels.ravel()), 1e-6)


def test_one_vs_rest(rng):
    scores, labels = rng.normal(size=(60, 3)), rng.integers(0, 3, 60)
    found = pj.fit_one_vs_rest(scores, labels, options=HELD)
    each = pj.fit(scores.T, labels == np.arange(3)[:, None], options=HELD)
    assert found.fit == each and (each.B == 0).all()


@pytest.mark.slow
def test_solve_and_its_derivatives(rng, x64):
    scores, labels = batch(rng, 2, 30)
    weights = rng.uniform(0.5, 2, scores.shape)
    prior = GaussianPrior(np.array([-1.0, 0.5]), np.array([[2.0, 0.5], [0.5, 1.0]]))
    fit = pj.fit(scores, labels, weights=weights, prior=prior, options=HELD)
    solved = pj.solve(scores, labels, weights=weights, prior=prior, options=HELD)
    np.testing.assert_allclose(solved.A, fit.A, rtol=1e-10)

    @jax.jit
    def slope(scores, weights, mean):
        options = Options(intercept=False, tol=1e-13)
        given = GaussianPrior(mean, prior.precision)
        fit = pj.solve(scores, labels, weights=weights, prior=given, options=options)
        return (fit.A[1], fit.B[1], fit.covariance[1, 0, 0])

    inputs = scores, weights, prior.mean
    found = jax.jacrev(slope, argnums=(0, 1, 2))(*inputs)
    directions = [rng.normal(size=x.shape) for x in inputs]
    h = 1e-5
    ahead, behind = (
        slope(*(x + s * d for x, d in zip(inputs, directions, strict=True))) for s in (h, -h)
    )
    for by, a, b in zip(found, ahead, behind, strict=True):
        along = sum(np.sum(g * d) for g, d in zip(by, directions, strict=True))
        np.testing.assert_allclose(along, (a - b) / (2 * h), rtol=1e-5, atol=1e-12)


@pytest.mark.slow
def test_derivatives_of_constant_scores(x64):
    """Of scores that are not 0 they are as of any; of zeros, 0."""
    labels = np.array([1, 0, 0])
    slope = jax.grad(lambda f: pj.solve(f, labels, options=HELD).A)
    one, h = np.full(3, 2.0), 1e-6
    changes = (pj.fit(one + s * h * np.eye(3), labels, options=HELD).A for s in (1, -1))
    ahead, behind = changes
    np.testing.assert_allclose(slope(one), (ahead - behind) / (2 * h), rtol=1e-6)
    np.testing.assert_array_equal(slope(np.zeros(3)), 0)


def test_known_temperatures():
    fit = pj.fit([2.0, -2.0, 2.0, -2.0], [1, 0, 1, 1], curve="temperature")
    assert -fit.A == pytest.approx(np.log(3) / 2)
    f = np.tile([2.0, -1.0, 1.0, -3.0], 12)
    right, wrong = (pj.fit(f, y, curve="temperature") for y in (f > 0, f < 0))
    # Where every sign is right there is no best temperature.
    assert not right.converged
    np.testing.assert_allclose(right.predict_proba(f), f > 0, atol=1e-6)
    assert Flag.REVERSED & wrong.flags and not Flag.REVERSED & right.flags
