"""The traceable fit: jit, vmap, sharding, and derivatives against finite differences of the fit."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import problem
from jax.sharding import PartitionSpec
from reference import targets

import platt_jax as pj
from platt_jax import GaussianPrior, Options, Status


def outputs(fit):
    """Everything differentiable of a fit, in one vector."""
    parts = (fit.A, fit.B, fit.nll, fit.hessian, fit.covariance, fit.n_pos)
    return jnp.concatenate([jnp.ravel(part) for part in parts])


def finite_difference(function, x, step):
    """Central differences by each entry of x; the entries are the last axis."""
    x = np.asarray(x)
    columns = []
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        columns.append((np.asarray(function(up)) - np.asarray(function(down))) / (2 * step))
    return np.stack(columns, -1).reshape((*columns[0].shape, *x.shape))


@pytest.fixture
def setting(rng, x64):
    scores, labels = problem(rng, 30)
    mean, precision = np.array([-0.5, 0.2]), np.array([[3.0, 0.5], [0.5, 2.0]])
    inputs = {
        "scores": 2 * scores + 5,
        "weights": rng.uniform(0.5, 2, 30),
        "mean": mean,
        "precision": precision,
    }

    def fit(options, **changes):
        x = {**inputs, **changes}
        prior = GaussianPrior(x["mean"], x["precision"])
        return pj.solve(x["scores"], labels, weights=x["weights"], prior=prior, options=options)

    return inputs, fit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "derivatives"),
    [
        ("scores", "analytic"),
        ("scores", "autodiff"),
        ("weights", "analytic"),
        ("mean", "analytic"),
        ("precision", "analytic"),
    ],
)
def test_jacobians_match_finite_differences_of_the_fit(name, derivatives, setting):
    inputs, fit = setting
    options = Options(derivatives=derivatives, tol=1e-13)
    function = jax.jit(lambda x: outputs(fit(options, **{name: x})))
    expected = finite_difference(function, inputs[name], 1e-5)
    for jacobian in (jax.jit(jax.jacfwd(function)), jax.jacrev(function)):
        got = np.asarray(jacobian(jnp.asarray(inputs[name])))
        # Each output has its own scale.
        scale = np.abs(expected).reshape(len(expected), -1).max(1)
        scale = scale.reshape((-1,) + (1,) * (expected.ndim - 1))
        assert np.max(np.abs(got - expected) / np.maximum(scale, 1e-3)) < 1e-6


@pytest.mark.slow
def test_gradient_under_jit_and_vmap_of_plain_and_weighted_fits(rng, x64):
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 25) for _ in range(4)], strict=True))
    weights = rng.uniform(0.5, 2, (4, 25))
    options = Options(tol=1e-13)

    def slope(f, y):
        return pj.solve(f, y, options=options).A

    def intercept(w, f, y):
        return pj.solve(f, y, weights=w, options=options).B

    got = jax.jit(jax.vmap(jax.grad(slope)))(jnp.asarray(scores), jnp.asarray(labels))
    for k in range(4):
        expected = finite_difference(jax.jit(lambda f, k=k: slope(f, labels[k])), scores[k], 1e-5)
        np.testing.assert_allclose(got[k], expected, rtol=1e-6, atol=1e-8)
    got = jax.vmap(jax.grad(intercept))(*(jnp.asarray(x) for x in (weights, scores, labels)))
    expected = finite_difference(
        jax.jit(lambda w: intercept(w, scores[2], labels[2])), weights[2], 1e-5
    )
    np.testing.assert_allclose(got[2], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A", "nll"])
def test_derivative_by_a_weight_of_zero(rng, x64, name):
    """A row left out by its weight still has a say in where the fit would go with it."""
    scores, labels = problem(rng, 30)
    scores[3] = 7.0
    options = Options(tol=1e-13)
    value = jax.jit(lambda w: getattr(pj.solve(scores, labels, weights=w, options=options), name))
    weights = np.ones(30)
    weights[3] = 0
    up, twice = weights.copy(), weights.copy()
    up[3], twice[3] = 1e-6, 2e-6
    one_sided = (4 * value(up) - value(twice) - 3 * value(weights)) / 2e-6
    assert jax.grad(value)(jnp.asarray(weights))[3] == pytest.approx(float(one_sided), rel=1e-5)


@pytest.mark.slow
def test_second_derivatives(rng, x64):
    scores, labels = problem(rng, 12)
    slope = jax.jit(lambda f: pj.solve(f, labels, options=Options(tol=1e-13)).A)
    expected = finite_difference(jax.jit(jax.grad(slope)), scores, 1e-5)
    got = np.asarray(jax.hessian(slope)(jnp.asarray(scores)))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_derivatives_are_zero_where_there_is_no_optimum(rng, x64):
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 20) for _ in range(4)], strict=True))
    scores[1, 3] = np.nan
    scores[2] = 7.0
    weights = np.ones((4, 20))
    weights[3] = 0

    def total(f, w):
        fit = pj.solve(f, labels, weights=w)
        return jnp.sum(jnp.where(fit.converged, fit.A + fit.B, 0))

    d_scores, d_weights = jax.grad(total, argnums=(0, 1))(jnp.asarray(scores), jnp.asarray(weights))
    assert np.isfinite(d_scores).all() and np.isfinite(d_weights).all()
    assert np.all(d_scores[1] == 0) and np.all(d_scores[3] == 0) and np.all(d_weights[1] == 0)
    assert np.all(np.asarray(d_scores[0]) != 0)


@pytest.mark.slow
def test_monotone_boundary_has_no_slope_derivative(rng, x64):
    """A is 0, and B is the log-odds of the mean target."""
    scores, labels = problem(rng, 30, shift=-2.0)
    options = Options(monotone=True, tol=1e-13)

    def parameters(w):
        fit = pj.solve(scores, labels, weights=w, options=options)
        return jnp.stack([fit.A, fit.B])

    def intercept(w):
        ones = np.sum(w * targets(labels, w))
        return np.log((np.sum(w) - ones) / ones)

    of_A, of_B = jax.jit(jax.jacrev(parameters))(jnp.ones(30))
    assert np.all(np.asarray(of_A) == 0)
    np.testing.assert_allclose(
        of_B, finite_difference(intercept, np.ones(30), 1e-5), rtol=1e-6, atol=1e-9
    )


@pytest.mark.slow
def test_solve_is_fit(rng, dtype):
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 300) for _ in range(6)], strict=True))
    scores = scores.astype(dtype).reshape(2, 3, 300)
    labels = labels.reshape(2, 3, 300)
    weights = rng.uniform(0, 2, 300)
    host = pj.fit(scores, labels, weights=weights)
    with jax.enable_x64(dtype == np.float64):
        traced = jax.jit(pj.solve)(scores, labels, weights=weights)
        batched = jax.vmap(jax.vmap(lambda f, y: pj.solve(f, y, weights=weights)))(scores, labels)
    rtol = 1e-9 if dtype == np.float64 else 1e-4
    for other in (traced, batched):
        assert other.A.dtype == dtype and other.hessian.shape == (2, 3, 2, 2)
        np.testing.assert_allclose(other.A, host.A, rtol=rtol)
        np.testing.assert_allclose(other.covariance, host.covariance, rtol=10 * rtol)
        np.testing.assert_array_equal(other.status, host.status)


@pytest.mark.slow
@pytest.mark.parametrize("problems, rows", [(4, 50), (300, 500)])  # the latter read in batches
def test_runs_under_shard_map(rng, problems, rows):
    made = [problem(rng, rows) for _ in range(problems)]
    scores, labels = (np.stack(x) for x in zip(*made, strict=True))
    mesh = jax.make_mesh((1,), ("problems",), axis_types=(jax.sharding.AxisType.Auto,))
    along = PartitionSpec("problems")
    sharded = jax.shard_map(
        lambda f, y: pj.solve(f, y).A, mesh=mesh, in_specs=along, out_specs=along
    )
    scores = scores.astype(np.float32)
    np.testing.assert_allclose(sharded(scores, labels), pj.solve(scores, labels).A, rtol=1e-5)


@pytest.mark.slow
def test_differentiates_under_shard_map(rng):
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 50) for _ in range(4)], strict=True))
    scores = scores.astype(np.float32)
    mesh = jax.make_mesh((1,), ("problems",), axis_types=(jax.sharding.AxisType.Auto,))
    along = PartitionSpec("problems")

    def slopes(f, y):
        return pj.solve(f, y).A

    def gradient(function):
        return jax.grad(lambda f, y: function(f, y).sum())

    sharded = partial(jax.shard_map, mesh=mesh, in_specs=along, out_specs=along)
    expected = gradient(slopes)(scores, labels)
    for sharded_gradient in (gradient(sharded(slopes)), sharded(gradient(slopes))):
        found = sharded_gradient(scores, labels)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


def test_solve_checks_what_it_can(rng):
    scores, labels = np.zeros((2, 5), np.float32), np.array([0, 1, 0, 1, 1])
    for bad, message in (
        ({"scores": np.float32(1)}, r"scores: expected .*\(\)"),
        ({"labels": np.array([0, 1, 2, 0, 1])}, "labels: expected bool"),
        ({"labels": labels[:4]}, r"labels: expected a shape .* got \(4,\)"),
        ({"weights": -np.ones(5)}, "weights: expected >= 0"),
        ({"prior": GaussianPrior(np.zeros(3), np.eye(2))}, "prior: expected mean"),
        ({"options": None}, "options: expected an Options"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.solve(**{"scores": scores, "labels": labels, **bad})


def test_statuses_come_from_traced_code_too(rng):
    scores = np.ones((2, 5), np.float32)
    scores[1, 2] = np.nan
    fit = jax.jit(pj.solve)(scores, np.array([0, 1, 0, 1, 1]))
    assert fit.status.tolist() == [Status.CONVERGED, Status.NON_FINITE]
    assert fit.flags.tolist() == [pj.Flag.CONSTANT_SCORES, 0]
