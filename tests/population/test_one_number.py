"""A population of one number: against closed forms for normal likelihoods."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from platt_jax.population import one_number
from platt_jax.population.one_number import LikelihoodTable, population_of_numbers


def normal_table(estimates, errors):
    x = np.linspace(-10, 10, 97)
    at = estimates[:, None] + errors[:, None] * x
    value = np.broadcast_to(-(x**2) / 2, at.shape)
    return LikelihoodTable(at, value, -x / errors[:, None], errors)


def estimates_of(rng, number, spread, error=0.2):
    errors = error * rng.uniform(0.3, 2, number)
    return 1 + spread * rng.normal(size=number) + errors * rng.normal(size=number), errors


def restricted(y, errors):
    """Mean, its error and spread by restricted maximum likelihood."""

    def loss(variance):
        w = 1 / (errors**2 + variance)
        mean = (w @ y) / w.sum()
        return -np.log(w).sum() + np.log(w.sum()) + w @ (y - mean) ** 2

    variance = minimize_scalar(loss, bounds=(0, 9), method="bounded", options={"xatol": 1e-12}).x
    w = 1 / (errors**2 + variance)
    return (w @ y) / w.sum(), w.sum() ** -0.5, variance**0.5


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3, 2.0])
def test_marginal_likelihoods_are_those_of_normals(rng, spread):
    y, errors = estimates_of(rng, 30, 0.3)
    found = one_number._moments(normal_table(y, errors), 0.9, spread)
    wide = np.hypot(errors, spread)
    exact = (norm.logpdf(y, 0.9, wide) + np.log(errors * np.sqrt(2 * np.pi))).sum()
    np.testing.assert_allclose(found.log_likelihood, exact, atol=1e-4)
    np.testing.assert_allclose(found.gradient, ((y - 0.9) / wide**2).sum(), rtol=1e-4)
    np.testing.assert_allclose(found.curvature, (wide**-2).sum(), rtol=1e-3)


@pytest.mark.parametrize(("number", "spread"), [(10, 0.5), (30, 0.3), (200, 0.3)])
def test_it_is_a_meta_analysis_by_restricted_maximum_likelihood(rng, number, spread):
    y, errors = estimates_of(rng, number, spread)
    mean, error, likeliest = restricted(y, errors)
    found = population_of_numbers(normal_table(y, errors), 1.0)
    np.testing.assert_allclose(found.likeliest_spread, likeliest, rtol=0.02)
    assert abs(found.expectation - mean) < 0.1 * error
    for probability in (0.025, 0.975):
        x = found.mean_quantile(probability)
        np.testing.assert_allclose(
            found.weight @ norm.cdf(x, found.mean, found.mean_error), probability
        )
    low, high = (found.new_quantile(x) for x in (0.025, 0.975))
    new_error = np.hypot(found.spread, found.mean_error)
    np.testing.assert_allclose(found.weight @ norm.cdf(low, found.mean, new_error), 0.025)
    assert high - low > 2 * 1.96 * likeliest
    np.testing.assert_allclose(found.share_between(low, high), 0.95)


def test_without_a_spread_the_likeliest_is_0(rng):
    errors = np.full(20, 0.2)
    found = population_of_numbers(normal_table(np.linspace(0.9, 1.1, 20), errors), 1.0)
    assert found.likeliest_spread == 0
    assert 0 < found.weight @ found.spread < 0.1


def test_a_table_is_cubic_inside_and_linear_beyond():
    at = np.array([[0.0, 1.0, 3.0], [10.0, 11.0, 13.0]])
    place = at - at[:, :1]
    table = LikelihoodTable(at, place**3, 3 * place**2, np.ones(2))
    np.testing.assert_allclose(table.values(at[:, :1] + [[0.5, 2.0]]), [[0.125, 8]] * 2)
    # Never more likely beyond the points than at their ends.
    np.testing.assert_allclose(table.values(at[:, :1] + [[-1.0, 5.0]]), [[0, 27]] * 2)
    falling = LikelihoodTable(at, -place, -np.ones_like(at), np.ones(2))
    np.testing.assert_allclose(falling.values(at[:, -1:] + [[2.0]]), [[-5]] * 2)
