"""The uncertainty of the population in what is said of its segments."""

import numpy as np
import pytest
from data import population_rows, rows_of
from scipy.special import expit, logsumexp
from scipy.stats import t as student_t

import platt_jax as pj
from platt_jax.population import integral, quadrature
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION

# The mean of the prior of the population's mean.
CENTER = np.array([-1.0, 2.0])
POINTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])


def log_likelihoods(data, number, grid):
    """(number, G) of the segments at (A, B)."""
    scores, labels, which = data
    z = grid[:, :1] * scores + grid[:, 1:]
    each = -np.where(labels, np.logaddexp(0, z), np.logaddexp(0, -z))
    return np.stack([each[:, which == k].sum(1) for k in range(number)])


def by_drawing_populations(data, number, draws):
    """Means and covariances of the segments' (A, B) and of a new segment's, by brute force.

    Populations are drawn from their prior and weighted by their marginal likelihoods, by sums over
    a grid of (A, B). The mean's prior is flat; it is drawn around the curve of all rows.
    """
    rng = np.random.default_rng(0)
    side = np.linspace(-6, 6, 61)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    likelihood = log_likelihoods(data, number, grid)
    pooled = grid[likelihood.sum(0).argmax()]
    likelihood = np.exp(likelihood - likelihood.max(1, keepdims=True))
    spreads = np.abs(rng.normal(size=(draws, 2))) * 1.5
    # The density of correlations is 1 - r^2.
    spreads, rho = np.maximum(spreads, 0.15), 2 * rng.beta(2, 2, draws) - 1
    reach, away = np.hypot(spreads / np.sqrt(number), 0.3), rng.standard_t(4, (draws, 2))
    means = pooled + reach * away
    drawn = (student_t.logpdf(away, 4) - np.log(reach)).sum(1)
    drawn[(np.abs(means) > 4).any(1)] = np.inf  # whose populations the grid does not hold
    logs, moments = np.empty(draws), np.empty((draws, number, 5))
    for i, (m, s, r) in enumerate(zip(means, spreads, rho, strict=True)):
        u = (grid - m) / s
        square = u[:, 0] ** 2 - 2 * r * u[:, 0] * u[:, 1] + u[:, 1] ** 2
        density = np.exp(-square / 2 / (1 - r * r))
        joint = likelihood * (density / density.sum())
        total = joint.sum(1)
        logs[i] = np.log(total).sum() - drawn[i]
        A, B = grid.T
        moments[i] = (joint @ np.stack([A, B, A * A, A * B, B * B], 1)) / total[:, None]
    weight = np.exp(logs - logsumexp(logs))
    assert 1 / np.sum(weight**2) > 300
    found = np.tensordot(weight, moments, 1)
    C = spreads[:, :, None] * spreads[:, None, :] * np.where(np.eye(2), 1, rho[:, None, None])
    new = weight @ means
    square = np.tensordot(weight, C + means[:, :, None] * means[:, None, :], 1)
    return found[:, :2], found[:, 2:], new, square - np.outer(new, new)


@pytest.mark.slow
@pytest.mark.parametrize("rows, spread, draws", [(60, (0.5, 1.0), 20_000), (40, (0.1, 0.2), 6_000)])
def test_what_is_known_of_few_segments_is_what_all_populations_say(rows, spread, draws):
    """To the error of normal likelihoods; with 25 rows one, which is skew, is off by 17 %."""
    scores, *rest = population_rows(3, 4, rows, spread=spread)
    first = pj.fit_segments(scores, *rest, pooling="partial").population
    # The prior is in units of the scores as rows tell by them: here in these of the test, too.
    likelihoods = Likelihoods.from_arrays(first.likelihood_precision, first.likelihood_pull)
    told = likelihoods.coordinates(likelihoods.total)
    data = ((scores - told.center) * told.scale, *rest)
    population = pj.fit_segments(*data, pooling="partial").population
    mean, square, new_mean, new_covariance = by_drawing_populations(data, 4, draws)
    expected = np.sqrt(square[:, [0, 2]] - mean**2)
    found = np.sqrt(population.posterior_covariance[:, (0, 1), (0, 1)])
    np.testing.assert_allclose(found, expected, rtol=0.1)
    assert np.abs((population.posterior_mean - mean) / expected).max() < 0.15
    sd = np.sqrt(np.diag(new_covariance))
    assert np.abs((population.predictive_mean - new_mean) / sd).max() < 0.1
    np.testing.assert_allclose(np.sqrt(np.diag(population.predictive_covariance)), sd, rtol=0.15)


def covered(number, worlds):
    """The part of the segments' probabilities in their bands, and of those of new segments."""
    seen, new = [], []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        A, B = rng.normal(-1, 0.4, number + 20), rng.normal(1, 0.7, number + 20)
        which = np.repeat(np.arange(number), 50)
        calibrator = pj.fit_segments(*rows_of(rng, which, A, B), pooling="partial")
        ids, points = (x.ravel() for x in np.meshgrid(np.arange(number + 20), POINTS))
        lower, upper = calibrator.band(points, ids)
        probability = expit(-(A[ids] * points + B[ids]))
        within = (lower <= probability) & (probability <= upper)
        seen.append(within[ids < number].mean())
        new.append(within[ids >= number].mean())
    return np.mean(seen), np.mean(new)


@pytest.mark.slow
def test_bands_of_few_segments_cover():
    """By a population taken for known .63 of the segments' probabilities were covered."""
    seen, new = covered(3, 60)
    assert 0.92 < seen < 0.98
    assert new > 0.92


def test_a_population_without_spread_does_not_make_segments_known():
    """The population's mean is not: all rows together do not tell the curve better than that."""
    data = population_rows(0, 30, 20, spread=(0.0, 0.0))
    calibrator = pj.fit_segments(*data, pooling="partial")
    pooled = np.sqrt(np.diag(calibrator.fallback_covariance))
    own = np.sqrt(calibrator.population.posterior_covariance[:, (0, 1), (0, 1)])
    assert (own >= 0.98 * pooled).all()


def test_points_are_even_and_quantiles_are_students():
    from scipy.stats import t

    points = integral._even_points(256)
    np.testing.assert_allclose(points.mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(integral._students_t(points), t.ppf(points, 4), rtol=1e-9)


@pytest.fixture
def likelihoods(rng):
    """Of a few segments, one of them without rows."""
    factors = rng.normal(size=(7, 2, 2))
    precision = factors @ np.swapaxes(factors, 1, 2)
    precision[3] = 0
    pull = (precision @ rng.normal(size=(7, 2, 1)))[..., 0]
    return precision, pull, Likelihoods.from_arrays(precision, pull)


@pytest.fixture
def covariances(rng):
    factors = rng.normal(size=(5, 2, 2))
    return factors @ np.swapaxes(factors, 1, 2)


def designs(rng, covariates):
    """The covariates (7, P), their design matrices (2, 2 Q), and the center of the prior (Q, 2)."""
    z = rng.normal(size=(7, covariates))
    x = np.column_stack([np.ones(7), z])
    center = np.vstack([CENTER, rng.normal(size=(covariates, 2))])
    return z, [np.kron(row, np.eye(2)) for row in x], center


@pytest.mark.parametrize("covariates", [0, 1, 3])
def test_a_populations_likelihood_is_that_of_its_matrices(
    likelihoods, covariances, covariates, rng
):
    """Segment by segment: h is normal about P mean, with the variance P + P S P."""
    precision, pull, given = likelihoods
    z, each, center = designs(rng, covariates)
    found = integral._under(integral._Evidence(given, z), covariances, center, given.total)
    prior = MEAN_PRECISION * np.eye(center.size)
    for i, S in enumerate(covariances):
        V = [P @ np.linalg.inv(np.eye(2) + S @ P) for P in precision]
        r = [np.linalg.solve(np.eye(2) + P @ S, h) for P, h in zip(precision, pull, strict=True)]
        of_mean = np.linalg.inv(sum(D.T @ v @ D for D, v in zip(each, V, strict=True)) + prior)
        pull_of_mean = sum(D.T @ h for D, h in zip(each, r, strict=True)) + prior @ center.ravel()
        mean = of_mean @ pull_of_mean
        logs = sum(
            h @ S @ s - np.linalg.slogdet(np.eye(2) + P @ S)[1]
            for P, h, s in zip(precision, pull, r, strict=True)
        )
        logs += pull_of_mean @ mean + np.linalg.slogdet(of_mean)[1]
        np.testing.assert_allclose(found.mean_covariance[i], of_mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.mean[i].ravel(), mean, rtol=1e-9)
        np.testing.assert_allclose(found.log_likelihood[i], logs / 2, rtol=1e-10)


@pytest.mark.parametrize("covariates", [0, 1, 3])
def test_a_mixtures_moments_are_those_of_its_parts(likelihoods, covariances, covariates, rng):
    precision, pull, given = likelihoods
    z, each, center = designs(rng, covariates)
    under = integral._under(integral._Evidence(given, z), covariances, center, given.total)
    weights = rng.dirichlet(np.ones(5))
    first, second = np.zeros((7, 2)), np.zeros((7, 2, 2))
    parts = zip(weights, covariances, under.mean, under.mean_covariance, strict=True)
    for weight, S, mean, of_mean in parts:
        for k, (P, h, D) in enumerate(zip(precision, pull, each, strict=True)):
            J = np.linalg.inv(np.eye(2) + S @ P)
            m = J @ (D @ mean.ravel() + S @ h)
            first[k] += weight * m
            second[k] += weight * (np.outer(m, m) + J @ S + J @ D @ of_mean @ D.T @ J.T)
    known = integral.PlausiblePopulations(given, covariances, under, weights, np.eye(2), z)
    found = known.segments()
    np.testing.assert_allclose(found.mean, first, rtol=1e-9)
    square = found.covariance + first[:, :, None] * first[:, None]
    np.testing.assert_allclose(square, second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("number", [60, 61])
def test_what_is_known_does_not_depend_on_which_segments_share_a_block(monkeypatch, number):
    scores, labels, ids = population_rows(5, number, 30)
    made = []
    for at_once in (quadrature._AT_ONCE, 500):
        monkeypatch.setattr(quadrature, "_AT_ONCE", at_once)
        made.append(pj.fit_segments(scores, labels, ids, pooling="partial").population)
    for name in ("mean", "covariance", "posterior_mean", "posterior_covariance", "shrinkage"):
        one, other = (getattr(population, name) for population in made)
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
