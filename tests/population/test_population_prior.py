"""The prior of a population, against densities that are written out and their differences."""

import numpy as np
import pytest
from scipy.stats import halfnorm, norm

from platt_jax.population.integral import _Spreads
from platt_jax.population.population_prior import SCALE, population_log_prior


@pytest.fixture(params=range(4))
def population(request):
    """A mean relative to the curve of all rows, and a factor."""
    rng = np.random.default_rng(request.param)
    factor = np.tril(rng.normal(size=(2, 2)))
    factor[(0, 1), (0, 1)] = np.abs(np.diag(factor)) + 0.05
    return rng.normal(size=2), factor


def changed(off, factor, x):
    change = np.array([[np.exp(x[2]), 0], [x[3], np.exp(x[4])]])
    return off + factor @ x[:2], factor @ change


def value(population, x):
    return population_log_prior(*changed(*population, x)).value


def test_the_density_is_that_of_the_page(population):
    def written_out(off, factor):
        covariance = factor @ factor.T
        spreads = np.sqrt(np.diag(covariance))
        r = covariance[0, 1] / spreads.prod()
        logs = halfnorm.logpdf(spreads, scale=SCALE).sum() + norm.logpdf(off, scale=SCALE).sum()
        return logs + np.log(1 - r * r)

    nearby = changed(*population, np.array([0.3, -0.2, 0.1, 0.4, -0.5]))
    found = population_log_prior(*nearby).value - population_log_prior(*population).value
    np.testing.assert_allclose(found, written_out(*nearby) - written_out(*population), rtol=1e-12)


def test_its_derivatives_are_differences(population):
    found, h = population_log_prior(*population), 1e-4 * np.eye(5)
    gradient = [(value(population, x) - value(population, -x)) / 2e-4 for x in h]
    np.testing.assert_allclose(found.gradient, gradient, atol=1e-6)
    ends = [
        [[value(population, i * x + j * y) for i in (1, -1)] for j in (1, -1)] for x in h for y in h
    ]
    bends = [-(a - b - c + d) / 4e-8 for (a, b), (c, d) in ends]
    information = np.reshape(bends, (5, 5))
    # The mean is moved by F u, whose F these parameters do not change.
    information[:2, 2:] = information[2:, :2] = 0
    np.testing.assert_allclose(found.information, information, atol=1e-5)


def test_the_prior_by_angle_is_that_of_spreads_and_a_correlation(rng):
    """Half-normal spreads, a density 1 - r^2 of r, and r = tanh(angle) by differences."""
    sds, angle = rng.uniform(0.1, 3, (2, 50)), rng.normal(size=50)
    r, h = np.tanh(angle), 1e-5
    by_angle = (np.tanh(angle + h) - np.tanh(angle - h)) / (2 * h)
    expected = halfnorm.logpdf(sds, scale=SCALE).sum(0) + np.log((1 - r * r) * by_angle)
    found = _Spreads(*sds, angle).log_prior
    np.testing.assert_allclose(found - found[0], expected - expected[0], atol=1e-8)
