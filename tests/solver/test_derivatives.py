"""Derivatives through `solve`: of second order, where there is no optimum, and what they cost."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import problem
from test_solve import finite_difference

import platt_jax as pj
from platt_jax import GaussianPrior, Options, Status

pytestmark = pytest.mark.slow

EXACT = Options(tol=1e-13)

# All that is computed from A and B. The counts are not, and have their derivatives regardless.
FROM_THE_PARAMETERS = "A", "B", "nll", "gradient", "hessian", "covariance"


# --- second derivatives --------------------------------------------------------------------------


@pytest.fixture
def objective(rng, x64):
    """A number computed from a fit, as a function of all that the fit depends on."""
    scores, labels = problem(rng, 12)
    inputs = {
        "scores": jnp.asarray(scores),
        "weights": jnp.asarray(rng.uniform(0.5, 2, 12)),
        "mean": jnp.array([-0.5, 0.2]),
        "precision": jnp.array([[3.0, 0.5], [0.5, 2.0]]),
    }

    def function(x):
        prior = GaussianPrior(x["mean"], x["precision"])
        fit = pj.solve(x["scores"], labels, weights=x["weights"], prior=prior, options=EXACT)
        return fit.A + fit.B**2 + jnp.sum(jnp.log(fit.standard_errors))

    return inputs, function


def test_second_derivatives_match_finite_differences(objective):
    """Of each input with all of them: the mixed ones too. By scores alone: see test_solve.py."""
    inputs, function = objective
    gradient = jax.jit(jax.grad(function))
    second = jax.jit(jax.jacfwd(gradient))(inputs)
    for by in ("weights", "mean", "precision"):
        for name in inputs:

            def moved(x, by=by, name=name):
                return gradient({**inputs, by: jnp.asarray(x)})[name]

            expected = finite_difference(moved, inputs[by], 1e-5)
            np.testing.assert_allclose(second[name][by], expected, rtol=1e-5, atol=1e-6)


def test_hessian_vector_products_under_jit_and_vmap(rng, x64):
    """Forward over reverse and reverse over reverse."""
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 15) for _ in range(3)], strict=True))
    weights = rng.uniform(0.5, 2, scores.shape)
    along = rng.normal(size=scores.shape)

    def slope(w, f, y):
        return pj.solve(f, y, weights=w, options=EXACT).A

    @jax.jit
    def forward(w, f, y, v):
        return jax.jvp(lambda w: jax.grad(slope)(w, f, y), (w,), (v,))[1]

    @jax.jit
    def reverse(w, f, y, v):
        return jax.grad(lambda w: jnp.vdot(jax.grad(slope)(w, f, y), v))(w)

    arguments = tuple(jnp.asarray(x) for x in (weights, scores, labels, along))
    batched = [jax.vmap(product)(*arguments) for product in (forward, reverse)]
    np.testing.assert_allclose(batched[0], batched[1], rtol=1e-9, atol=1e-12)
    gradient = jax.jit(jax.vmap(jax.grad(slope)))
    up, down = (gradient(weights + step, scores, labels) for step in (1e-5 * along, -1e-5 * along))
    np.testing.assert_allclose(batched[0], (up - down) / 2e-5, rtol=1e-5, atol=1e-8)


# --- where a fit is flagged, or has failed -------------------------------------------------------

ROWS = 10
SCORES = np.linspace(-1.0, 1.3, ROWS) ** 3
LABELS = np.array([0, 0, 1, 0, 1, 0, 0, 1, 1, 1])
# With plain targets, so that separable labels and one class have no optimum.
FAILURES = {
    "NaN score": {"scores": np.where(np.arange(ROWS) == 3, np.nan, SCORES)},
    "infinite score": {"scores": np.where(np.arange(ROWS) == 3, np.inf, SCORES)},
    "NaN weight": {"weights": np.where(np.arange(ROWS) == 3, np.nan, 1)},
    "no weight": {"weights": np.zeros(ROWS)},
    "separable": {"labels": np.arange(ROWS) > 4},
    "one class": {"labels": np.ones(ROWS)},
    "stopped early": {"max_iter": 1},
}


def case(scores=SCORES, labels=LABELS, weights=None, **options):
    weights = np.ones(ROWS) if weights is None else weights
    return scores, labels.astype(int), weights, Options(**options)


@partial(jax.jit, static_argnames=("transform", "options", "names"))
def transformed(transform, f, y, w, options, names=FROM_THE_PARAMETERS):
    """The Jacobian or Hessian of these fields of a fit, by scores and by weights."""

    def outputs(f, w):
        fit = pj.solve(f, y, weights=w, options=options)
        return {name: getattr(fit, name) for name in names}

    return transform(outputs, argnums=(0, 1))(f, w)


@pytest.mark.parametrize("transform", [jax.jacfwd, jax.jacrev], ids=lambda f: f.__name__)
@pytest.mark.parametrize("failure", FAILURES)
def test_what_did_not_converge_has_no_derivative(failure, transform, x64):
    f, y, w, options = case(**FAILURES[failure], targets="none")
    assert pj.solve(f, y, weights=w, options=options).status != Status.CONVERGED
    assert not_zero(transformed(transform, f, y, w, options)) == []


@pytest.mark.parametrize("failure", [name for name in FAILURES if name != "stopped early"])
def test_nor_a_second_one(failure, x64):
    f, y, w, options = case(**FAILURES[failure], targets="none")
    assert not_zero(transformed(jax.hessian, f, y, w, options, ("A", "B"))) == []


def not_zero(derivatives):
    return [
        name
        for name, blocks in derivatives.items()
        if any(np.any(np.asarray(block) != 0) for block in jax.tree.leaves(blocks))
    ]


def test_a_failed_problem_leaves_the_gradient_by_what_is_shared(rng, x64):
    """Weights and prior of a whole batch: one bad problem must not make their gradient NaN."""
    scores, labels = (np.stack(x) for x in zip(*[problem(rng, 20) for _ in range(3)], strict=True))
    scores[1, 4] = np.nan

    def total(w, mean, scores, labels):
        prior = GaussianPrior(mean, jnp.eye(2))
        fit = pj.solve(scores, labels, weights=w, prior=prior, options=EXACT)
        values = fit.A + fit.nll + jnp.sum(fit.standard_errors, -1)
        return jnp.sum(jnp.where(fit.converged, values, 0))

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    shared, good = (jnp.ones(20), jnp.zeros(2)), np.array([0, 2])
    got, expected = gradient(*shared, scores, labels), gradient(*shared, scores[good], labels[good])
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@partial(jax.jit, static_argnames="options")
def parameters(f, y, w, options):
    fit = pj.solve(f, y, weights=w, options=options)
    return jnp.stack([fit.A, fit.B])


@pytest.mark.parametrize("high_is", [0, 1])
@pytest.mark.parametrize("above", [0, 5, ROWS])
def test_a_flagged_fit_has_its_derivatives(above, high_is, x64):
    """One class, separable: with Platt's targets there is an optimum, and it moves like others."""
    f, y, w, options = case(labels=(np.arange(ROWS) >= above) == high_is, tol=1e-13)
    fit = pj.solve(f, y, options=options)
    assert fit.flags != 0 and fit.converged
    derivatives = transformed(jax.jacrev, f, y, w, options, ("A", "B"))
    for i, moved in enumerate(
        (lambda x: parameters(x, y, w, options), lambda x: parameters(f, y, x, options))
    ):
        expected = finite_difference(moved, (f, w)[i], 1e-5)
        got = np.stack([derivatives[name][i] for name in "AB"])
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("targets", ["platt", "none"])
def test_constant_scores_have_a_derivative_of_the_intercept_only(targets, x64):
    f, y, w, options = case(scores=np.full(ROWS, 3.0), targets=targets, tol=1e-13)
    first = transformed(jax.jacrev, f, y, w, options)
    assert not_zero({"A": first["A"], "B by scores": first["B"][0]}) == []
    by_weights = finite_difference(lambda w: parameters(f, y, w, options)[1], w, 1e-5)
    np.testing.assert_allclose(first["B"][1], by_weights, rtol=1e-6, atol=1e-9)


def test_a_prior_of_precision_0_is_none(x64):
    """Also in a batch with constant scores, in which other problems have one."""
    rng = np.random.default_rng(3)
    f, y = jnp.stack([jnp.full(8, 1.5), jnp.asarray(rng.normal(size=8))]), np.arange(8) % 3 == 0
    precision = np.stack([np.zeros((2, 2)), np.eye(2)])
    prior = GaussianPrior(np.zeros((2, 2)), precision)
    for name in "AB":
        found = jax.jacrev(lambda f, name=name: getattr(pj.solve(f, y, prior=prior), name))(f)
        alone = jax.jacrev(lambda f, name=name: getattr(pj.solve(f, y), name))(f[0])
        np.testing.assert_allclose(found[0, 0], alone, atol=1e-12)
    proper = GaussianPrior(np.array([-1.0, 0]), np.diag([2.0, 1.0]))

    def slope(f):
        return pj.solve(f, y, prior=proper, options=Options(tol=1e-12)).A

    expected = finite_difference(slope, np.asarray(f[0]), 1e-5)
    np.testing.assert_allclose(jax.jacrev(slope)(f[0]), expected, rtol=1e-5, atol=1e-9)


# --- the cost ------------------------------------------------------------------------------------

MANY = 1_000_000


@pytest.fixture(scope="module")
def large():
    """Float32 scores, skewed so that the fit takes many passes, and labels."""
    rng = np.random.default_rng(7)
    scores, labels = problem(rng, MANY, shift=2, base_rate=0.03)
    return jnp.asarray(np.exp(scores).astype(np.float32)), jnp.asarray(labels)


def gradient(large, **options):
    """That of A by the scores, compiled."""
    scores, labels = large
    slope = jax.grad(lambda f: pj.solve(f, labels, options=Options(**options)).A)
    return jax.jit(slope).lower(scores).compile()


def test_the_gradient_takes_no_memory_per_iteration(large):
    """A few arrays like the scores, however many iterations there may be: nothing is unrolled."""
    few, many = (gradient(large, max_iter=n).memory_analysis().temp_size_in_bytes for n in (2, 200))
    assert few == many <= 16 * 4 * MANY


@pytest.mark.as_users
def test_the_gradient_costs_less_than_the_fit(large):
    """The fit is part of it; going back through its eight passes would cost as much again at least,
    and more than that to write down what they had computed."""
    scores, labels = large
    slow = {"start": "prior", "direction": "newton"}
    options = Options(**slow)
    assert pj.solve(scores, labels, options=options).passes >= 8
    fit = jax.jit(lambda f: pj.solve(f, labels, options=options).A)
    both = [fit, gradient(large, **slow)]
    taken = np.array([[seconds(function, scores) for function in both] for _ in range(15)])
    alone, with_gradient = np.min(taken[1:], axis=0)
    assert with_gradient <= 2 * alone


def seconds(function, *args):
    start = time.perf_counter()
    jax.block_until_ready(function(*args))
    return time.perf_counter() - start
