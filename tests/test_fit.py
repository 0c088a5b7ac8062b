"""`fit` end to end: known answers, invariances, degenerate problems, bad input."""

import dataclasses

import jax
import numpy as np
import pytest
from data import batch, problem
from reference import six_sums

import platt_jax as pj
from platt_jax import Fit, Flag, GaussianPrior, Options, Status
from platt_jax.execution import planning, run

FIELDS = [field.name for field in dataclasses.fields(Fit)]


def assert_same(one: Fit, other: Fit):
    """Equal in every field, up to the rounding of sums added in another order."""
    eps = np.finfo(one.A.dtype).eps
    # Gradients are what is left where everything cancels; their rounding is that of the terms.
    terms = np.max(np.abs(one.hessian), initial=1)
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert a.shape == b.shape and a.dtype == b.dtype, name
        exact = name in ("status", "flags", "iterations", "passes", "n_pos", "n_neg")
        rtol, atol = (0, 0) if exact else (200 * eps, 10 * eps * terms * (name == "gradient"))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


# --- known answers -------------------------------------------------------------------------------


def test_scikit_learns_known_case():
    one = pj.fit([5.0, -4.0, 1.0], [1, -1, -1])
    assert one.A == pytest.approx(-0.20261448961847559, abs=1e-12)
    assert one.B == pytest.approx(0.652366638998449, abs=1e-12)


# Mean iterations and backtracks per iteration as FIELD measured LIBSVM's algorithm.
@pytest.mark.parametrize(
    ("name", "iterations", "backtracks", "rtol"),
    [
        ("lin2007_sonar", 4.53, 0.0, 1e-10),
        pytest.param("lin2007_shuttle", 6.29, 0.26, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_libsvms_own_answers(real_data, name, iterations, backtracks, rtol):
    data = real_data(name)
    theirs = pj.fit(data["scores_cv"], data["y"], options=Options.libsvm())
    np.testing.assert_allclose(theirs.A, data["libsvm_A"], rtol=rtol)
    np.testing.assert_allclose(theirs.B, data["libsvm_B"], rtol=rtol)
    halvings = theirs.passes - theirs.iterations - 1
    assert theirs.iterations.mean() == pytest.approx(iterations, abs=0.005)
    assert halvings.sum() / theirs.iterations.sum() == pytest.approx(backtracks, abs=0.005)

    ours = pj.fit(data["scores_cv"], data["y"])
    assert ours.converged.all()
    assert np.max((ours.nll - theirs.nll) / theirs.nll) <= 1e-10
    same = pj.fit(data["scores_cv"], data["y"], options=Options(derivatives="autodiff"))
    np.testing.assert_allclose(same.A, ours.A, rtol=1e-9)
    np.testing.assert_allclose(same.B, ours.B, rtol=1e-9)


@pytest.mark.parametrize("targets", ["platt", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_report_is_that_of_the_six_sums(targets, weighted, rng):
    scores, labels = problem(rng, 60)
    scores = 3 * scores + 10
    weights = rng.uniform(0.1, 2, 60) if weighted else None
    one = pj.fit(scores, labels, weights=weights, options=Options(targets=targets))
    loss, g_A, g_B, h_AA, h_AB, h_BB = six_sums(
        scores, labels, float(one.A), float(one.B), weights, targets
    )
    hessian = np.array([[h_AA, h_AB], [h_AB, h_BB]])
    assert one.nll == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(one.gradient, [g_A, g_B], atol=1e-9)
    np.testing.assert_allclose(one.hessian, hessian, rtol=1e-9)
    np.testing.assert_allclose(one.covariance, np.linalg.inv(hessian), rtol=1e-8)
    np.testing.assert_allclose(one.standard_errors, np.sqrt(np.diag(one.covariance)))


@pytest.mark.parametrize(
    ("standardize", "sigma", "start"),
    [
        (True, 1e-12, "prior"),
        pytest.param(True, "dynamic", "gaussian", marks=pytest.mark.slow),
        pytest.param(False, 1e-12, "gaussian", marks=pytest.mark.slow),
        pytest.param(False, "dynamic", "prior", marks=pytest.mark.slow),
    ],
)
def test_every_way_leads_to_the_same_optimum(start, sigma, standardize, rng):
    scores, labels = batch(rng, 20, 60)
    options = Options(start=start, sigma=sigma, standardize=standardize)
    one, other = pj.fit(scores, labels), pj.fit(scores, labels, options=options)
    assert other.converged.all()
    np.testing.assert_allclose(other.A, one.A, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(other.B, one.B, rtol=1e-8, atol=1e-8)


def test_the_gaussian_start_saves_passes(rng):
    scores, labels = batch(rng, 50, 60)
    gaussian = pj.fit(scores, labels)
    prior = pj.fit(scores, labels, options=Options(start="prior"))
    assert gaussian.passes.mean() < prior.passes.mean() - 1
    assert gaussian.passes.mean() < 4.2


def test_the_gaussian_start_is_near_the_optimum_of_few_rows_too(rng):
    """Platt's targets make the slope of few rows gentler than their labels would."""
    scores, labels = batch(rng, 200, 12)
    assert pj.fit(scores, labels).passes.mean() < 4.2


@pytest.mark.slow
def test_the_last_step_needs_no_pass(rng):
    """A loose tolerance finds nearly what a tight one does: the last error is squared."""
    scores, labels = batch(rng, 100, 60)
    exact, loose = pj.fit(scores, labels), pj.fit(scores, labels, options=Options(tol=0.05))
    moved = loose.iterations > 0  # a start within the tolerance stays what it is
    errors = (np.abs(loose.A - exact.A) / exact.standard_errors[:, 0])[moved]
    assert np.sum(moved) > 80
    assert loose.passes.mean() < exact.passes.mean() - 1
    assert np.median(errors) < 1e-4 and np.max(errors) < 0.05**2
    # The gradient there is reckoned from the last pass.
    for k in range(5):
        _, *gradient = six_sums(scores[k], labels[k], loose.A[k], loose.B[k])[:3]
        np.testing.assert_allclose(loose.gradient[k], gradient, atol=0.05**2)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_any_tolerance_will_do(dtype, rng):
    """Its square is beyond float32. The decrement still has to show that the optimum is near."""
    scores, labels = batch(rng, 3, 30)
    one = pj.fit(scores.astype(dtype), labels, options=Options(tol=1e30))
    assert one.converged.all() and (one.passes <= 2).all()


@pytest.mark.slow
def test_the_tensor_direction_saves_passes(rng):
    scores, labels = batch(rng, 100, 60)
    newton = pj.fit(scores, labels, options=Options(direction="newton"))
    tensor = pj.fit(scores, labels)
    np.testing.assert_allclose(tensor.A, newton.A, rtol=1e-8)
    assert tensor.passes.mean() < newton.passes.mean() - 0.1


def test_prior_is_a_quadratic_on_the_parameters(rng):
    scores, labels = batch(rng, 2, 60)
    scores = 5 * scores - 3
    prior = GaussianPrior(np.array([-1.0, 0.5]), np.array([[40.0, 3.0], [3.0, 10.0]]))
    fit = pj.fit(scores, labels, prior=prior)
    for k in range(2):
        off = np.array([fit.A[k], fit.B[k]]) - prior.mean
        loss, *g = six_sums(scores[k], labels[k], fit.A[k], fit.B[k])[:3]
        np.testing.assert_allclose(g + prior.precision @ off, 0, atol=1e-7)
        assert fit.nll[k] == pytest.approx(loss + off @ prior.precision @ off / 2, rel=1e-12)
    each = GaussianPrior(np.stack([prior.mean, 2 * prior.mean]), prior.precision)
    apart = pj.fit(scores, labels, prior=each)
    assert apart.A[0] == pytest.approx(fit.A[0], rel=1e-12)
    assert apart.A[1] != pytest.approx(fit.A[1], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1e-12, "dynamic"])
@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1.0, 1e6])
def test_constant_scores_have_the_slope_of_their_prior_in_any_unit(unit, sigma):
    """Before, scores of 1e-6 did not converge: their prior knew less than sigma."""
    precision = np.array([[40.0, 3.0], [3.0, 10.0]]) * np.outer([unit, 1], [unit, 1])
    prior = GaussianPrior(np.array([-1.0 / unit, 0.5]), precision)
    options = Options(sigma=sigma)
    fit = pj.fit([2 * unit] * 3, [1, 0, 1], prior=prior, options=options).raise_if_failed()
    of_one = GaussianPrior(np.array([-1.0, 0.5]), np.array([[40.0, 3.0], [3.0, 10.0]]))
    one = pj.fit([2.0] * 3, [1, 0, 1], prior=of_one, options=options)
    np.testing.assert_allclose([fit.A * unit, fit.B], [one.A, one.B], rtol=1e-7)


@pytest.mark.parametrize(("mean", "precision"), [(1e6, 1e4), (1e6, 1e6), (1e3, 1.0)])
def test_a_prior_is_as_accurate_far_from_zero(mean, precision, rng):
    scores, labels = problem(rng, 60)
    scores = scores + mean
    prior = GaussianPrior(np.array([-1.0, 0.0]), precision * np.eye(2))
    one = pj.fit(scores, labels, prior=prior)
    assert one.converged
    A, B = float(one.A), float(one.B)
    off = np.array([A + 1, B])
    assert one.nll == pytest.approx(
        six_sums(scores, labels, A, B)[0] + off @ prior.precision @ off / 2, rel=1e-6
    )
    # No neighbour along the flat direction, or across it, is better.
    for d_A, d_B in ((1e-6, -1e-6 * mean), (-1e-6, 1e-6 * mean), (0, 1e-3), (0, -1e-3)):
        off = np.array([A + d_A + 1, B + d_B])
        worse = six_sums(scores, labels, A + d_A, B + d_B)[0] + off @ prior.precision @ off / 2
        assert worse >= float(one.nll) - 1e-6 * abs(float(one.nll))


# --- invariances ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "shift"), [(1e-8, 0), (1e8, 0), (1, 1e6), (-1, 0), (1e-300, 0)])
def test_affine_invariance(scale, shift, rng):
    scores, labels = batch(rng, 10, 60)
    moved = scores * scale + shift
    one, other = pj.fit(scores, labels), pj.fit(moved, labels)
    assert other.converged.all()
    before, after = one.sigmoid.predict_proba(scores), other.sigmoid.predict_proba(moved)
    np.testing.assert_allclose(after, before, atol=1e-8)
    assert np.all((other.flags & Flag.REVERSED != 0) == ((one.A > 0) ^ (scale < 0)))


def test_row_order_changes_nothing_beyond_rounding(rng, dtype):
    scores, labels = batch(rng, 10, 333, dtype)
    order = rng.permutation(333)
    one, other = pj.fit(scores, labels), pj.fit(scores[:, order], labels[:, order])
    rtol = 1e-9 if dtype == np.float64 else 2e-4
    np.testing.assert_allclose(other.A, one.A, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(other.nll, one.nll, rtol=rtol)


@pytest.mark.parametrize("rows", [5, 60, 1500])
def test_a_batch_equals_a_loop_in_every_field(rows, dtype, rng):
    scores, labels = batch(rng, 9, rows, dtype)
    together = pj.fit(scores, labels)
    for k in range(9):
        alone = pj.fit(scores[k], labels[k])
        assert_same(alone, jax.tree.map(lambda x, k=k: x[k], together))


def test_company_changes_no_bit(rng):
    """A problem's rows are summed in the same order whoever else is in its chunk."""
    sizes = [3, 40, 40, 300]
    parts = [problem(rng, n) for n in sizes]

    def run(which):
        scores, labels = (np.concatenate([parts[k][i] for k in which]) for i in (0, 1))
        ids = np.repeat(which, [sizes[k] for k in which])
        return pj.fit_segments(scores, labels, ids).fit

    all_of_them, some = run([0, 1, 2, 3]), run([1, 3])
    for name in FIELDS:
        np.testing.assert_array_equal(
            getattr(some, name), getattr(all_of_them, name)[[1, 3]], err_msg=name
        )


@pytest.mark.on_cpu
def test_chunk_size_changes_nothing_beyond_rounding(rng, sizes):
    scores, labels = batch(rng, 300, 70)
    one = pj.fit(scores, labels)
    sizes(chunk_rows=(16_384,))
    other = pj.fit(scores, labels)
    assert len(list(planning.chunks(np.full(300, 70)))) > 1
    assert_same(other, one)


@pytest.mark.slow
def test_other_sizes_compile_nothing_new(rng):
    """Any K, N and mix of segments runs by a few programs."""
    run.solve_chunk.clear_cache()
    for problems, rows in ((3, 500), (90, 300), (17, 900), (64, 290)):
        pj.fit(*batch(rng, problems, rows))
    compiled = run.solve_chunk._cache_size()
    assert compiled <= 3
    for problems, rows in ((5, 400), (80, 350), (40, 600), (2, 777)):
        pj.fit(*batch(rng, problems, rows))
    assert run.solve_chunk._cache_size() == compiled


def test_same_input_same_bits(rng, dtype):
    scores, labels = batch(rng, 20, 500, dtype)
    one, other = pj.fit(scores, labels), pj.fit(scores, labels)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_weights_count_rows(rng):
    scores, labels = problem(rng, 80)
    weights = rng.integers(0, 4, 80)
    repeated = np.repeat(np.arange(80), weights)
    one = pj.fit(scores, labels, weights=weights)
    other = pj.fit(scores[repeated], labels[repeated])
    assert one.A == pytest.approx(other.A, rel=1e-10) and one.B == pytest.approx(other.B, rel=1e-9)
    assert one.n_pos == other.n_pos and one.nll == pytest.approx(other.nll, rel=1e-12)
    # A row of weight 0 is gone: it can be anything.
    scores[weights == 0] = np.nan
    np.testing.assert_array_equal(pj.fit(scores, labels, weights=weights).A, one.A)


# --- types and shapes ----------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [False, True])
def test_dtype_follows_the_scores_whatever_the_x64_flag(flag, rng):
    scores, labels = problem(rng, 50)
    with jax.enable_x64(flag):
        double, single = pj.fit(scores, labels), pj.fit(scores.astype(np.float32), labels)
        assert jax.config.jax_enable_x64 == flag
    assert double.A.dtype == np.float64 and single.A.dtype == np.float32
    assert single.hessian.dtype == single.n_pos.dtype == np.float32
    assert abs(double.A - single.A) < 1e-5
    assert float(double.A) != float(np.float32(double.A))
    swapped = scores.astype(">f4")
    assert pj.fit(swapped, labels).A.dtype == np.dtype(np.float32)
    for kind, expected in ((np.int32, np.float64), (np.float16, np.float32)):
        assert pj.fit((10 * scores).astype(kind), labels).A.dtype == expected


def test_labels_come_in_three_codings_and_broadcast(rng):
    scores, labels = batch(rng, 6, 40)
    labels = labels[0]
    expected = pj.fit(scores, np.broadcast_to(labels, scores.shape))
    for coding in (labels == 1, 2 * labels - 1, labels.astype(float), labels.tolist()):
        np.testing.assert_array_equal(pj.fit(scores, coding).A, expected.A)
    shaped = pj.fit(scores.reshape(2, 3, 40), labels, weights=np.ones(40))
    assert shaped.A.shape == (2, 3) and shaped.hessian.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(shaped.A.ravel(), expected.A, rtol=1e-10)
    assert np.shape(pj.fit(scores[0], labels).A) == ()


@pytest.mark.slow
def test_a_constant_offset_moves_the_intercept_alone(rng):
    scores, labels = problem(rng, 60)
    without, moved = pj.fit(scores, labels), pj.fit(scores, labels, offset=np.full(60, 0.75))
    np.testing.assert_allclose(moved.A, without.A, rtol=1e-9)
    np.testing.assert_allclose(moved.B, without.B + 0.75, rtol=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_no_optimum_with_a_slope_held_at_zero(rng, label):
    """The intercept still falls forever, whichever side of 0 rounding puts the slope on."""
    options = Options(targets="none", monotone=True)
    fit = pj.fit(rng.normal(size=(50, 400)), np.full(400, label), options=options)
    assert (fit.status == Status.MAX_ITERATIONS).all()
