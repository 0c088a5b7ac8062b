"""The mean that the rows ask for."""

import numpy as np
import pytest
from scipy import integrate, stats

import platt_jax as pj
from platt_jax.population.gaussians import normals
from platt_jax.population.quadrature import fine
from platt_jax.population.recentring import expected_derivatives, node_terms


def test_expected_derivatives_are_those_of_an_integral():
    """Of sum(log(1 + exp(A f + B))), whose derivatives are probabilities."""
    grid = fine(1.0)
    mean, covariance = np.array([0.4, -1.0]), np.array([[0.3, -0.1], [-0.1, 0.5]])
    scores = np.array([-2.0, 0.5, 1.5])
    at = normals(mean[None], covariance[None])
    A, B = mean[:, None] + np.tril(at.factor[0]) @ grid.z.T
    losses = np.log1p(np.exp(np.multiply.outer(A, scores) + B[:, None])).sum(1)
    loss, gradient, hessian = expected_derivatives(node_terms(grid), losses[None], at)

    def expected(f, power):
        """The expectations of p and of p (1 - p) at a score, by quadrature."""
        z, sd = f * mean[0] + mean[1], np.sqrt([f, 1] @ covariance @ [f, 1])

        def density(x):
            p = 1 / (1 + np.exp(-x))
            return p * (1 - p) ** power * stats.norm.pdf(x, z, sd)

        return integrate.quad(density, z - 12 * sd, z + 12 * sd)[0]

    def softplus(x, f):
        z, sd = f * mean[0] + mean[1], np.sqrt([f, 1] @ covariance @ [f, 1])
        return np.logaddexp(0, x) * stats.norm.pdf(x, z, sd)

    p, pq = ([expected(f, power) for f in scores] for power in (0, 1))
    by = np.stack([scores, np.ones(3)], 1)
    total = sum(integrate.quad(softplus, -30, 30, (f,), points=[0])[0] for f in scores)
    np.testing.assert_allclose(loss, total, atol=1e-6)
    np.testing.assert_allclose(np.ravel(gradient), p @ by, atol=1e-6)
    np.testing.assert_allclose(hessian.matrices[0], np.einsum("i,ia,ib->ab", pq, by, by), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["partial", "nested", "crossed"])
def test_rare_positives_add_up(pooling):
    """Three dozen positives of thousands of segments of few rows; levels predicted 1.4 times."""
    rng = np.random.default_rng(5)
    city = np.repeat(np.arange(2_000), 3)
    country = city // 40
    effect = 0.5 * rng.normal(size=50)[country] + 0.5 * rng.normal(size=2_000)[city]
    scores = rng.normal(size=len(city))
    labels = rng.random(len(city)) < 1 / (1 + np.exp(-(scores + effect - 6.0)))
    ids = city if pooling == "partial" else np.stack([country, city % 40], 1)
    calibrator = pj.fit_segments(scores, labels, ids, pooling=pooling)
    # The prior of the mean adds less than two.
    assert -0.5 < calibrator.predict_proba(scores, ids).sum() - labels.sum() < 2


def test_sure_and_rare_positives_add_up():
    """Two Newton steps of the mean predicted 31 of 8: each divides what is too much by e."""
    rng = np.random.default_rng(3)
    scores, segments = rng.random(6_000), np.repeat(np.arange(2_000), 3)
    labels = rng.random(6_000) < 1 / (1 + np.exp(-(50 * scores - 53)))
    calibrator = pj.fit_segments(scores - 0.5, labels, segments, pooling="partial")
    assert 5 < labels.sum() < 40
    predicted = calibrator.predict_proba(scores - 0.5, segments).sum()
    assert -0.5 < predicted - labels.sum() < 2.5
