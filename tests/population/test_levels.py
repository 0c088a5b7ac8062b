"""Posteriors of nested and crossed effects, against the inverse of the whole precision."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from platt_jax.population import couplings, crossed
from platt_jax.population.crossed import Crossed
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.level_uncertainty import (
    over_spreads,
    spreads_at_edge,
    with_joint_errors,
)
from platt_jax.population.levels import (
    NO_SPREAD,
    Scoring,
    changed,
    scored,
)
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.nested import Nested
from platt_jax.population.population_prior import MEAN_PRECISION, SCALE, spread_log_prior

# The mean of the prior of the mean curve.
CENTER = np.array([-1.0, 2.0])


class Whole:
    """All effects as one normal distribution: the mean curve, and then level after level."""

    def __init__(self, codes, sizes, precision, pull, covariances):
        self.first = np.cumsum([1, *sizes])
        n = self.first[-1]
        total, at = np.zeros((2 * n, 2 * n)), np.zeros(2 * n)
        total[:2, :2], at[:2] = MEAN_PRECISION * np.eye(2), MEAN_PRECISION * CENTER
        for level, size in enumerate(sizes):
            for value in range(size):
                some = self.place(level, value)
                total[some, some] += np.linalg.inv(covariances[level])
        self.of_segments = np.zeros((len(codes), 2, 2 * n))
        self.of_segments[:, :, :2] = np.eye(2)
        for k, values in enumerate(codes):
            for level, value in enumerate(values):
                self.of_segments[k, :, self.place(level, value)] = np.eye(2)
            total += self.of_segments[k].T @ precision[k] @ self.of_segments[k]
            at += self.of_segments[k].T @ pull[k]
        self.covariance = np.linalg.inv(total)
        self.mean = self.covariance @ at

    def place(self, level, value):
        start = 2 * (self.first[level] + value)
        return slice(start, start + 2)

    def of(self, functional):
        """Mean and covariance of linear functions (..., 2, 2n)."""
        spread = functional @ self.covariance @ np.swapaxes(functional, -1, -2)
        return NormalMoments(functional @ self.mean, spread)

    def effects(self, level, size):
        each = np.zeros((size, 2, len(self.mean)))
        for value in range(size):
            each[value, :, self.place(level, value)] = np.eye(2)
        return each


def likelihoods(rng, number):
    root = rng.normal(size=(number, 2, 2))
    weak = np.where(rng.random(number) < 0.3, 0.01, 1)[:, None, None]
    precision = weak * root @ root.swapaxes(1, 2)
    precision[0] = 0  # a segment without information
    pull = rng.normal(size=(number, 2))
    pull[0] = 0
    return precision, pull


def random_covariances(rng, levels):
    roots = rng.normal(size=(levels, 2, 2))
    return [0.3 * root @ root.T + 0.1 * np.eye(2) for root in roots]


def assert_same(moments, expected):
    np.testing.assert_allclose(moments.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(moments.covariance, expected.covariance, atol=1e-10)


@pytest.fixture
def design(rng):
    sizes, number = [4, 7, 11], 60
    codes = [np.r_[np.arange(s), rng.integers(0, s, number - s)] for s in sizes]
    return np.stack(codes, 1), sizes


@pytest.mark.parametrize("sparse", [True, False])
def test_crossed_effects(rng, design, sparse, monkeypatch):
    # Pairs alone, or whole matrices, whichever takes less time.
    monkeypatch.setattr(couplings, "_FASTER", 1e-3 if sparse else 1e6)
    monkeypatch.setattr(couplings, "_AT_ONCE", 4 * 14 * 3)  # three values at once
    codes, sizes = design
    given, covariances = likelihoods(rng, len(codes)), random_covariances(rng, 3)
    whole = Whole(codes, sizes, *given, covariances)
    found = Crossed(codes, sizes).posteriors(Likelihoods.from_arrays(*given), covariances, CENTER)
    assert_same(found.segments, whole.of(whole.of_segments))
    made, own = Crossed(codes, sizes), Likelihoods.from_arrays(*given)
    made.effects(own, [np.eye(2)] * 3, CENTER)  # what it keeps does not depend on the spreads
    alone = made.effects(own, covariances, CENTER)
    for level, size in enumerate(sizes):
        assert_same(alone[level], found.effects[level])
        each = whole.effects(level, size)
        assert_same(found.effects[level], whole.of(each))
        assert_same(found.for_prediction[level], whole.of(each - each.mean(0)))
    root = np.zeros((1, 2, len(whole.mean)))
    root[:, :, :2] = np.eye(2)
    assert_same(found.root, whole.of(root))
    averages = sum(whole.effects(level, size).mean(0) for level, size in enumerate(sizes))
    assert_same(found.root_for_prediction, whole.of(root + averages))


def test_levels_that_are_too_large_for_the_dense_part(rng, design, monkeypatch):
    """Means are exact; covariances are if only two levels are large and nothing else varies."""
    codes, sizes = design
    given, covariances = likelihoods(rng, len(codes)), random_covariances(rng, 3)
    monkeypatch.setattr(crossed, "_MOST_DENSE", 5)
    monkeypatch.setattr(crossed, "_SETTLED", 1e-12)
    monkeypatch.setattr(crossed, "_MOST_SWEEPS", 10_000)
    found = Crossed(codes, sizes).posteriors(Likelihoods.from_arrays(*given), covariances, CENTER)
    whole = Whole(codes, sizes, *given, covariances)
    for level, size in enumerate(sizes):
        of_level = whole.of(whole.effects(level, size))
        np.testing.assert_allclose(found.effects[level].mean, of_level.mean, atol=1e-8)
    # Two levels whose values pair off: each pair is on its own, but for the mean curve.
    pairs = np.repeat(np.arange(30), 2)[:, None] * [1, 1]
    given = given[0] + 0.5 * np.eye(2), np.zeros((60, 2))
    covariances = [np.diag([0.2, 0.3]), np.diag([0.5, 0.1])]
    found = Crossed(pairs, [30, 30]).posteriors(
        Likelihoods.from_arrays(*given), covariances, CENTER
    )
    whole = Whole(pairs, [30, 30], *given, covariances)
    exact = whole.of(whole.of_segments).covariance
    np.testing.assert_allclose(found.segments.covariance, exact, rtol=0.02, atol=2e-3)


def test_nested_effects(rng):
    parents = [
        np.zeros(4, int),
        np.r_[np.arange(4), rng.integers(0, 4, 8)],
        np.r_[np.arange(12), rng.integers(0, 12, 28)],
    ]
    sizes = [4, 12, 40]
    codes = np.stack([parents[1][parents[2]], parents[2], np.arange(40)], 1)
    given, covariances = likelihoods(rng, 40), random_covariances(rng, 3)
    whole = Whole(codes, sizes, *given, covariances)
    found = Nested(parents).posteriors(Likelihoods.from_arrays(*given), covariances, CENTER)
    assert_same(found.segments, whole.of(whole.of_segments))
    curve = np.zeros((1, 2, len(whole.mean)))
    curve[:, :, :2] = np.eye(2)
    assert_same(found.root, whole.of(curve))
    for level, size in enumerate(sizes):
        each = whole.effects(level, size)
        assert_same(found.effects[level], whole.of(each))
        curve = (curve[parents[level]] if level else curve) + each
        assert_same(found.for_prediction[level], whole.of(curve))


def test_a_step_of_scoring_has_the_gradient_of_the_marginal_posterior(rng):
    """Of normal observations of independent effects, whose likelihood is known."""
    noise, spread = np.array([[[0.3, 0.1], [0.1, 0.2]], [[0.5, -0.1], [-0.1, 0.4]]])
    seen = rng.multivariate_normal([0, 0], noise + spread, 200)
    covariance = np.array([[0.3, 0.1], [0.1, 0.6]])

    def log_density(covariance, step):
        root = np.linalg.cholesky(covariance)
        root = root @ np.array([[np.exp(step[0]), 0], [step[1], np.exp(step[2])]])
        total = root @ root.T + noise
        squares = np.einsum("ka,ab,kb->k", seen, np.linalg.inv(total), seen)
        spread = root @ root.T
        # Half-normal standard deviations, and 1 - r^2 of the correlation r.
        prior = -np.trace(spread) / (2 * SCALE**2)
        prior += np.log(np.linalg.det(spread) / np.prod(np.diag(spread)))
        return prior - (squares.sum() + 200 * np.log(np.linalg.det(total))) / 2

    def gradient(covariance):
        steps = 1e-5 * np.eye(3)
        ends = [[log_density(covariance, sign * x) for sign in (1, -1)] for x in steps]
        return np.array([(up - down) / 2e-5 for up, down in ends])

    left = np.linalg.inv(np.linalg.inv(covariance) + np.linalg.inv(noise))
    mean = seen @ np.linalg.inv(noise) @ left
    step = scored(NormalMoments(mean, np.broadcast_to(left, (200, 2, 2))), Scoring(covariance))
    slope = gradient(covariance)
    np.testing.assert_allclose(step.decrement, np.sqrt(slope @ step.spread @ slope), rtol=1e-6)
    for _ in range(30):
        step = scored(NormalMoments(mean, np.broadcast_to(left, (200, 2, 2))), step)
        left = np.linalg.inv(np.linalg.inv(step.covariance) + np.linalg.inv(noise))
        mean = seen @ np.linalg.inv(noise) @ left
    np.testing.assert_allclose(gradient(step.covariance), 0, atol=1e-4)


@pytest.mark.parametrize("correlation", [0, 0.95])
def test_slopes_without_spread_leave_the_spread_of_intercepts_free(correlation, rng):
    noise = np.diag([0.1, 0.01])
    half = rng.multivariate_normal([0, 0], np.diag([0.02, 0.02]), 100)
    seen = np.concatenate([half, half * [-1, 1]])
    root = np.array([[0.1, 0], [0.5 * correlation, 0.5 * np.sqrt(1 - correlation**2)]])
    step = Scoring(root @ root.T)
    for _ in range(40):
        left = np.linalg.inv(np.linalg.inv(step.covariance) + np.linalg.inv(noise))
        mean = seen @ np.linalg.inv(noise) @ left
        step = scored(NormalMoments(mean, np.broadcast_to(left, (200, 2, 2))), step)
    assert step.at_edge
    np.testing.assert_allclose(np.sqrt(step.covariance[0, 0]), NO_SPREAD, rtol=1e-6)
    squares = np.mean(seen[:, 1] ** 2)

    def slope(variance):
        """The derivative of the log density by the intercepts' variance."""
        total = variance + 0.01
        return 100 * (squares / total**2 - 1 / total) - 1 / (2 * SCALE**2)

    np.testing.assert_allclose(step.covariance[1, 1], brentq(slope, 1e-3, 1), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [True, False])
def test_errors_of_spreads_are_those_of_all_levels_at_once(alike, rng):
    """Against the curvature of the log density, by the covariance of all rows' pulls."""
    number = 60
    second = np.r_[0, np.arange(number - 1)] if alike else np.arange(number) % 6
    codes = np.stack([np.arange(number), second], 1)
    sizes = [number, second.max() + 1]
    covariances = [np.diag([0.3, 0.4]), np.diag([0.2, 0.3])]
    effects = [
        rng.multivariate_normal([0, 0], S, size) for S, size in zip(covariances, sizes, strict=True)
    ]
    noise = 0.05
    seen = sum(effect[x] for effect, x in zip(effects, codes.T, strict=True))
    seen = seen + np.sqrt(noise) * rng.normal(size=(number, 2))
    given = Likelihoods.from_arrays(np.tile(np.eye(2) / noise, (number, 1, 1)), seen / noise)
    design, center = Crossed(codes, sizes), np.zeros(2)

    steps = [Scoring(S) for S in covariances]
    for _ in range(400):
        found = design.posteriors(given, [step.covariance for step in steps], center)
        steps = [scored(*each) for each in zip(found.effects, steps, strict=True)]
    assert max(step.decrement for step in steps) < 1e-3 and not any(x.at_edge for x in steps)
    roots = [np.linalg.cholesky(step.covariance) for step in steps]
    same = [x[:, None] == x for x in codes.T]

    def log_density(change):
        moved = [changed(*each) for each in zip(roots, np.split(change, 2), strict=True)]
        total = np.kron(np.ones((number, number)), np.eye(2) / MEAN_PRECISION)
        total += noise * np.eye(2 * number)
        for shared, root in zip(same, moved, strict=True):
            total += np.kron(shared, root @ root.T)
        flat = seen.ravel()
        prior = sum(spread_log_prior(root).value for root in moved)
        return prior - (flat @ np.linalg.solve(total, flat) + np.linalg.slogdet(total)[1]) / 2

    h = 1e-3 * np.eye(6)
    hessian = [
        [
            (log_density(x + y) - log_density(x - y) - log_density(y - x) + log_density(-x - y))
            / 4e-6
            for x in h
        ]
        for y in h
    ]
    exact = np.sqrt(np.diag(np.linalg.inv(-np.array(hessian))))[[0, 2, 3, 5]]
    joint = with_joint_errors(design, given, center, steps)
    errors = np.sqrt(np.concatenate([np.diag(step.spread)[[0, 2]] for step in joint]))
    alone = np.sqrt(np.concatenate([np.diag(step.spread)[[0, 2]] for step in steps]))
    assert (errors > 0.9 * exact).all() and (errors < 1.5 * exact).all()
    if alike:
        assert errors[0] > 3 * alone[0] and (errors > 0.99 * alone).all()


def test_segments_over_spreads_have_the_variance_between_them_too(rng):
    """Of spreads half a log unit around the first level's, by all four combinations."""
    number, center = 40, np.zeros(2)
    codes = np.stack([np.arange(number) % 5, np.arange(number) % 8], 1)
    root = rng.normal(size=(number, 2, 2))
    given = Likelihoods.from_arrays(root @ root.swapaxes(1, 2), rng.normal(size=(number, 2)))
    design, covariances = Crossed(codes, [5, 8]), [np.diag([0.3, 0.4]), np.diag([0.2, 0.3])]
    steps = [Scoring(covariances[0], spread=0.25 * np.eye(3)), Scoring(covariances[1])]
    up = np.array([[0.5, 0.5], [0, 0]])
    found, _ = over_spreads(design, given, center, steps, (-up, up))
    each = []
    for halves in product((0.5, -0.5), repeat=2):
        stretch = np.diag(np.exp(halves))
        moved = [stretch @ covariances[0] @ stretch, covariances[1]]
        each.append(design.posteriors(given, moved, center).segments)
    mean = np.mean([x.mean for x in each], 0)
    off = [x.mean - mean for x in each]
    expected = [x.covariance + d[:, :, None] * d[:, None] for x, d in zip(each, off, strict=True)]
    np.testing.assert_allclose(found.segments.mean, mean, atol=1e-10)
    np.testing.assert_allclose(found.segments.covariance, np.mean(expected, 0), atol=1e-10)


@pytest.mark.parametrize("number, precision", [(30, 20.0), (10, 5.0), (400, 2.0)])
def test_a_spread_at_its_minimum_may_be_as_wide_as_its_density_says(rng, number, precision):
    """Against the density of values' means with these errors, and a half-normal prior."""
    y = 0.6 * rng.normal(size=(number, 2)) / np.sqrt(precision)
    left = 1 / (precision + NO_SPREAD**-2)
    effects = NormalMoments(left * precision * y, np.tile(left * np.eye(2), (number, 1, 1)))
    found = spreads_at_edge(effects, NO_SPREAD**2 * np.eye(2))
    sd = np.linspace(0, 6, 4_001)[:, None, None]
    log_density = norm.logpdf(y, 0, np.sqrt(sd**2 + 1 / precision)).sum(1) - sd[:, 0] ** 2 / 4.5
    density = np.exp(log_density - log_density.max(0))
    expected = np.sqrt((density * sd[:, 0] ** 2).sum(0) / density.sum(0))
    np.testing.assert_allclose(found, expected, rtol=0.01)
