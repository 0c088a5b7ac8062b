"""Partial pooling of temperatures: a known population, exact integrals, posteriors and bands."""

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import logsumexp

import platt_jax as pj
from platt_jax import Status


def drawn(rng, segments, rows, sd, classes=4, mean=-0.5):
    t = mean + sd * rng.normal(size=segments)
    ids = np.repeat(np.arange(segments), rows)
    f = 3 * rng.normal(size=(segments * rows, classes))
    y = (np.exp(t[ids, None]) * f + rng.gumbel(size=f.shape)).argmax(axis=1)
    return t, f, y, ids


def log_likelihood(t, f, y):
    z = np.exp(t) * f
    return (z[np.arange(len(y)), y] - logsumexp(z, axis=1)).sum()


@pytest.mark.slow
def test_the_population_is_that_of_numerical_integration():
    """Mean, spread and their errors, posteriors and probabilities, by SciPy's quadrature."""
    rng = np.random.default_rng(5)
    _, f, y, ids = drawn(rng, 12, 15, 0.8)
    y[ids == 3] = f[ids == 3].argmax(axis=1)  # has no best temperature of its own
    found = pj.fit_multiclass(f, y, ids, pooling="partial")
    population = found.population
    assert population.status == Status.CONVERGED and (found.status == Status.CONVERGED).all()
    grid = np.linspace(-6, 5, 4001)
    each = np.array(
        [[log_likelihood(t, f[ids == k], y[ids == k]) for t in grid] for k in range(12)]
    )

    def posteriors(mean, log_sd):
        density = each - (grid - mean) ** 2 / (2 * np.exp(2 * log_sd)) - log_sd
        return density - each.max(axis=1, keepdims=True)

    def loss(theta):
        mass = integrate.simpson(np.exp(posteriors(*theta)), grid, axis=1)
        return -np.log(mass).sum() - each.max(axis=1).sum()

    best = optimize.minimize(loss, [-0.5, -0.3], method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(population.mean, best.x[0], atol=1e-3)
    np.testing.assert_allclose(population.sd, np.exp(best.x[1]), rtol=2e-3)
    h = 1e-3
    at = [float(population.mean), float(np.log(population.sd))]
    steps = h * np.eye(2)
    hessian = [
        [
            sum(a * b * loss(at + a * i + b * j) for a in (1, -1) for b in (1, -1)) / (4 * h * h)
            for j in steps
        ]
        for i in steps
    ]
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
    np.testing.assert_allclose([population.mean_error, population.log_sd_error], errors, rtol=0.02)
    # The average over populations: means in steps, and spreads in steps of their logarithm.
    likelihood = np.exp(each - each.max(axis=1, keepdims=True))
    means, log_sds = np.meshgrid(np.linspace(-2.5, 1.5, 121), np.log(np.geomspace(0.005, 4, 81)))
    means, sds = means.ravel(), np.exp(log_sds.ravel())
    normal = np.exp(-(((grid[:, None] - means) / sds) ** 2) / 2) / sds
    narrow = sds < 4 * (grid[1] - grid[0])  # than what the grid resolves
    normal /= np.where(narrow, normal.sum(axis=0) * (grid[1] - grid[0]) / np.sqrt(2 * np.pi), 1)
    evidence = likelihood @ normal
    weight = np.log(evidence).sum(axis=0) - sds**2 / 2 + np.log(sds)
    weight = np.exp(weight - weight.max())
    density = likelihood * ((weight / evidence) @ normal.T)
    density /= density.sum(axis=1, keepdims=True)
    mean = density @ grid
    sd = np.sqrt((density * (grid - mean[:, None]) ** 2).sum(axis=1))
    assert (np.abs(np.log(found.slopes) - mean) < 0.02 * sd).all()
    np.testing.assert_allclose(found.standard_errors[:, 0], found.slopes * sd, rtol=0.03)
    proba = np.exp(
        np.exp(grid)[:, None] * f[0] - logsumexp(np.exp(grid)[:, None] * f[0], axis=1)[:, None]
    )
    np.testing.assert_allclose(found.predict_proba(f[:1], [0])[0], density[0] @ proba, atol=1e-3)
    unseen = normal @ weight
    unseen = unseen @ proba / unseen.sum()
    np.testing.assert_allclose(found.predict_proba(f[:1], [99])[0], unseen, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("segments", "rows", "sd"), [(2, 30, 0.5), (5, 20, 0.5), (20, 10, 0.5)])
def test_errors_of_few_segments_cover(segments, rows, sd):
    """By the likeliest population alone they cover .80 to .88."""
    covered = []
    for seed in range(150):
        t, f, y, ids = drawn(np.random.default_rng(seed), segments, rows, sd)
        found = pj.fit_multiclass(f, y, ids, pooling="partial")
        error = found.standard_errors[:, 0] / found.slopes
        covered.append((np.abs(np.log(found.slopes) - t) < 1.96 * error).mean())
    assert 0.92 < np.mean(covered) < 0.99


def test_a_known_spread_is_recovered_and_the_bands_cover():
    """20 populations of 100 segments with 20 rows each."""
    z, covered = [], []
    for seed in range(20):
        t, f, y, ids = drawn(np.random.default_rng(seed), 100, 20, 0.4)
        found = pj.fit_multiclass(f, y, ids, pooling="partial")
        population = found.population
        z.append(
            [
                (population.mean + 0.5) / population.mean_error,
                np.log(population.sd / 0.4) / population.log_sd_error,
            ]
        )
        sd = found.standard_errors[:, 0] / found.slopes
        covered.append(np.abs(np.log(found.slopes) - t) < 1.96 * sd)
    # Means of 20 standard normals, and 2000 trials of probability 0.95.
    assert (np.abs(np.mean(z, axis=0)) < 4 / np.sqrt(20)).all()
    assert (np.abs(np.std(z, axis=0) - 1) < 0.6).all()
    assert abs(np.mean(covered) - 0.95) < 0.02


def test_pooling_predicts_better_than_either_extreme(rng):
    _, f, y, ids = drawn(rng, 200, 30, 0.5)
    fitted = np.arange(len(y)) % 30 < 10
    losses = {}
    for pooling in ("none", "partial", "complete"):
        found = pj.fit_multiclass(f[fitted], y[fitted], ids[fitted], pooling=pooling)
        proba = found.predict_proba(f[~fitted], ids[~fitted])
        losses[pooling] = -np.log(
            np.maximum(proba[np.arange(len(proba)), y[~fitted]], 1e-12)
        ).mean()
    assert losses["partial"] < losses["complete"] < losses["none"]


def test_segments_alike_have_no_spread(rng):
    _, f, y, ids = drawn(rng, 30, 50, 0.0)
    # The same rows for each segment: they differ by less than chance.
    found = pj.fit_multiclass(np.tile(f[:50], (30, 1)), np.tile(y[:50], 30), ids, pooling="partial")
    assert found.population.status == Status.BOUNDARY and found.population.sd == 0
    complete = pj.fit_multiclass(
        np.tile(f[:50], (30, 1)), np.tile(y[:50], 30), ids, pooling="complete"
    )
    np.testing.assert_allclose(
        found.predict_proba(f[:5], [0, 1, 2, 3, 99]),
        complete.predict_proba(f[:5], [0, 1, 2, 3, 99]),
        atol=0.01,
    )
    # All of the same rows have one temperature, of which the spread that is not excluded adds.
    assert np.ptp(found.slopes) < 1e-9
    np.testing.assert_allclose(found.slopes, complete.slopes, rtol=0.02)
    ratio = found.standard_errors / complete.standard_errors
    assert (ratio > 1).all() and (ratio < 3).all()


def test_one_segment_has_no_population_and_bad_segments_spoil_none(rng):
    _, f, y, ids = drawn(rng, 20, 20, 0.5)
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        one = pj.fit_multiclass(f, y, np.zeros(len(y), int), pooling="partial")
    assert one.population.status == Status.NOT_ESTIMATED
    np.testing.assert_allclose(one.slopes, one.fits.coefficients[-1], rtol=1e-12)
    assert np.isfinite(one.predict_proba(f[:2], [0, 5])).all()
    good = pj.fit_multiclass(f, y, ids, pooling="partial")
    bad, more = np.full((3, 4), np.nan), np.append(ids, [50, 50, 51])
    weights = np.append(np.ones(len(y)), [1, 1, 0])
    with pytest.warns(RuntimeWarning, match="in 1 of 22 segments, first in 50"):
        found = pj.fit_multiclass(
            np.vstack([f, bad]), np.append(y, [0] * 3), more, weights=weights, pooling="partial"
        )
    assert [Status(x).name for x in found.status[-2:]] == ["NON_FINITE", "EMPTY"]
    assert np.isnan(found.predict_proba(f[:2], [50, 51])).all()
    np.testing.assert_allclose(found.slopes[:20], good.slopes, rtol=1e-6)
    np.testing.assert_allclose(found.population.sd, good.population.sd, rtol=1e-6)
