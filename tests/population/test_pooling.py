"""Partial and complete pooling: the population of the segments, and what it makes of each."""

import re
from pathlib import Path

import numpy as np
import pytest
from data import population_rows, rows_of
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, ndtr

import platt_jax as pj
from platt_jax import Flag, Options, Status, metrics
from platt_jax.caller import Caller
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.population import estimate, integral, level_search, search
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.population_prior import SCALE
from platt_jax.population.segments import Coordinates
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.averages import mean_probability


def log_marginal(parameters, data, number):
    """The log density of a population: its prior, and its likelihood over a wide and fine grid."""
    mean_A, mean_B, log_a, b, log_c = parameters
    factor = np.array([[np.exp(log_a), 0], [b, np.exp(log_c)]])
    u = np.linspace(-6, 6, 33)
    grid = np.stack(np.meshgrid(u, u), -1).reshape(-1, 2)
    log_weight = -(grid**2).sum(1) / 2
    log_weight -= logsumexp(log_weight)
    A, B = (np.array([mean_A, mean_B]) + grid @ factor.T).T
    scores, labels, which = data
    z = A[:, None] * scores + B[:, None]
    loss = np.logaddexp(0, np.where(labels, z, -z))
    of_segment = np.add.reduceat(loss, np.flatnonzero(np.diff(which, prepend=-1)), axis=1)
    log_likelihood = logsumexp(log_weight[:, None] - of_segment, axis=0).sum()
    return log_likelihood + log_prior(parameters[:2], factor, scores, labels)


def log_prior(mean, factor, scores, labels):
    """Half-normal standard deviations, 1 - r^2 of the correlation, and a mean near the pooled fit.

    In log-odds per standard deviation of the scores, as their middle half shows it.
    """
    center, scale = np.median(scores), np.subtract(*np.quantile(scores, [0.75, 0.25])) / 1.349
    to = np.array([[scale, 0], [center, 1]])
    covariance = to @ factor @ factor.T @ to.T
    pooled = pj.fit(scores, labels)
    off = to @ (mean - np.array([pooled.A, pooled.B]))
    independent = np.linalg.det(covariance) / np.prod(np.diag(covariance))
    return np.log(independent) - (np.trace(covariance) + off @ off) / (2 * SCALE**2)


@pytest.fixture(scope="module")
def few():
    """60 segments of 20 rows."""
    return population_rows(4, 60, 20)


@pytest.mark.slow
def test_the_population_is_the_most_probable_one(few):
    """The maximum of its marginal density by brute force."""
    best = minimize(lambda x: -log_marginal(x, few, 60), [-1, 0, -1, 0, -1], method="BFGS").x
    factor = np.array([[np.exp(best[2]), 0], [best[3], np.exp(best[4])]])
    population = pj.fit_segments(*few, pooling="partial").population
    assert population.status == Status.CONVERGED
    np.testing.assert_allclose(population.mean, best[:2], atol=0.01 * population.mean_errors.max())
    off = np.abs(population.covariance - factor @ factor.T) / population.covariance_errors
    assert off.max() < 0.02


def test_the_posterior_given_the_population_is_that_of_a_fine_grid(few, monkeypatch):
    def given(likelihoods, population, center, certain, total, covariates):
        """As if the population were known."""
        mean = population.mean[None, None]
        under = integral._PopulationGrid(np.zeros(1), mean, np.zeros((1, 2, 2)))
        nothing = np.empty((len(likelihoods.pull_A), 0))
        return integral.PlausiblePopulations(
            likelihoods, population.covariance[None], under, np.ones(1), np.eye(2), nothing
        )

    monkeypatch.setattr(estimate, "plausible_populations", given)
    scores, labels, which = few
    population = pj.fit_segments(scores, labels, which, pooling="partial").population
    factor = np.linalg.cholesky(population.covariance)
    u = np.linspace(-6, 6, 121)
    grid = population.mean + np.stack(np.meshgrid(u, u), -1).reshape(-1, 2) @ factor.T
    for segment in (0, 7, 59):
        mine = which == segment
        z = grid[:, :1] * scores[mine] + grid[:, 1:]
        loss = np.where(labels[mine], np.logaddexp(0, z), np.logaddexp(0, -z)).sum(1)
        off = np.linalg.solve(factor, (grid - population.mean).T)
        weight = np.exp(-loss - (off**2).sum(0) / 2)
        weight /= weight.sum()
        mean = weight @ grid
        covariance = (weight[:, None] * (grid - mean)).T @ (grid - mean)
        sd = np.sqrt(np.diag(covariance))
        assert np.abs((population.posterior_mean[segment] - mean) / sd).max() < 0.01
        np.testing.assert_allclose(
            population.posterior_covariance[segment], covariance, atol=0.01 * covariance.max()
        )


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, 20, 100])
def test_it_finds_the_population_that_segments_were_drawn_from(rows):
    found = [
        pj.fit_segments(*population_rows(seed, 4000, rows), pooling="partial").population
        for seed in range(2)
    ]
    spreads = np.mean([np.sqrt(np.diag(x.covariance)) for x in found], axis=0)
    np.testing.assert_allclose(spreads, [0.7, 0.5], rtol=0.08)
    np.testing.assert_allclose(np.mean([x.mean for x in found], axis=0), [-1.5, 0.5], rtol=0.04)


@pytest.mark.slow
def test_many_segments_take_no_more_passes():
    """What a step gains is lost in the errors of the quadrature, which grow with the segments."""
    stages = set()
    data = population_rows(0, 200_000, 3)
    pj.fit_segments(*data, pooling="partial", progress=lambda told: stages.add(told.stage))
    passes = [stage for stage in stages if stage.startswith("population, pass")]
    assert 2 <= len(passes) <= 12, passes


@pytest.mark.slow
def test_its_standard_errors_are_those_of_repetition():
    found = [
        pj.fit_segments(*population_rows(seed, 300, 30), pooling="partial").population
        for seed in range(40)
    ]
    spread = np.std([x.mean for x in found], axis=0)
    np.testing.assert_allclose(np.mean([x.mean_errors for x in found], axis=0), spread, rtol=0.3)
    spread = np.std([x.covariance for x in found], axis=0)
    mean = np.mean([x.covariance_errors for x in found], axis=0)
    np.testing.assert_allclose(mean, spread, rtol=0.35)


@pytest.mark.slow
def test_predictions_beat_those_of_no_pooling_and_of_complete_pooling():
    rng = np.random.default_rng(0)
    rows = rng.choice([5, 20, 100, 500], size=800)
    scores, labels, which = population_rows(1, 800, rows)
    even = rng.random(len(which)) < 0.5
    by = {
        pooling: pj.fit_segments(scores[even], labels[even], which[even], pooling=pooling)
        for pooling in ("none", "partial", "complete")
    }
    for size in (5, 20, 100, 500):
        test = ~even & (rows[which] == size)
        loss = {
            pooling: metrics.log_loss(
                labels[test], calibrator.predict_proba(scores[test], which[test])
            )
            for pooling, calibrator in by.items()
        }
        assert loss["partial"] < loss["none"] and loss["partial"] < loss["complete"]


def test_a_segment_never_seen_has_the_mean_probability_of_the_population(few):
    calibrator = pj.fit_segments(*few, pooling="partial")
    population = calibrator.population
    for score in (-3.0, 0.0, 2.5):
        row = np.array([score, 1])
        logit = -population.predictive_mean @ row
        variance = row @ population.predictive_covariance @ row

        def density(u, logit=logit, variance=variance):
            return expit(logit + np.sqrt(variance) * u) * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)

        expected = quad(density, -10, 10)[0]
        found = calibrator.predict_proba([score], [10_000])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("variance", [0.0, 0.01, 1.0, 3.9, 4.1, 100.0])
def test_mean_probabilities_are_integrals(variance):
    logit, sd = np.array([-25.0, -12.0, -1.0, 0.0, 4.0]), np.sqrt(variance)
    expected = [
        quad(
            lambda u, m=m: expit(m + sd * u) * np.exp(-u * u / 2) / np.sqrt(2 * np.pi),
            *(-12, 12),
            points=sorted([-m / sd, sd]) if sd and abs(m) < 12 * sd else None,
            epsabs=1e-20,
            limit=500,
        )[0]
        for m in logit
    ]
    normal = np.column_stack([-logit, *(np.zeros((3, 5))), np.full(5, variance)])
    found = mean_probability(np.ones(5), normal)
    np.testing.assert_allclose(found, expected, atol=3e-9)
    if variance <= 4:
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_a_score_without_end_says_which_slopes_are_likely():
    normal = np.array([[-1.0, 0.0, 0.25, 0.0, 0.1]] * 3)
    found = mean_probability(np.array([np.inf, -np.inf, np.nan]), normal)
    np.testing.assert_allclose(found, [ndtr(2), ndtr(-2), np.nan], rtol=1e-6)


def test_rare_positives_are_as_many_as_predicted():
    """The curve of the posterior's mode has half of them."""
    rng = np.random.default_rng(1)
    K, n = 3_000, 3
    A, B, which = 1 + 0.3 * rng.normal(size=K), -5 + rng.normal(size=K), np.arange(K * n) % K
    pooled = pj.fit_segments(*rows_of(rng, which, -A, -B), pooling="partial")
    fresh = rng.normal(size=K * n)
    true = expit(A[which] * fresh + B[which]).mean()
    predicted = pooled.predict_proba(fresh, which).mean()
    assert abs(predicted / true - 1) < 0.2
    assert pooled.at_mode().predict_proba(fresh, which).mean() < 0.6 * true


def test_the_mode_has_the_curves_of_the_fits(few):
    pooled = pj.fit_segments(*few, pooling="partial")
    assert pooled.at_mode().predict_proba([0.3], [7]) == pooled[7].predict_proba(0.3)
    assert pooled.at_mode().predict_proba([0.3], [-1]) == pooled.fallback.predict_proba(0.3)


def test_shifting_and_scaling_the_scores_changes_no_probability(few):
    scores, labels, which = few
    one = pj.fit_segments(scores, labels, which, pooling="partial")
    other = pj.fit_segments(1e4 * scores - 3e5, labels, which, pooling="partial")
    new = np.r_[which[:50], [10_000] * 50]
    expected = one.predict_proba(scores[:100], new)
    found = other.predict_proba(1e4 * scores[:100] - 3e5, new)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(one.shrinkage, other.shrinkage, rtol=1e-6)


@pytest.mark.slow
def test_weights_count_rows(few):
    """Before, each row counted once in the unit of the prior."""
    scores, labels, which = few
    weights = np.random.default_rng(0).integers(0, 4, len(scores))
    weighted = pj.fit_segments(scores, labels, which, weights=weights, pooling="partial")
    repeated = (np.repeat(x, weights) for x in (scores, labels, which))
    expected = pj.fit_segments(*repeated, pooling="partial")
    np.testing.assert_allclose(weighted.population.mean, expected.population.mean, rtol=1e-9)
    np.testing.assert_allclose(weighted.fit.A, expected.fit.A, rtol=1e-9)


@pytest.mark.slow
def test_float32_agrees(few):
    scores, labels, which = few
    double = pj.fit_segments(scores, labels, which, pooling="partial")
    single = pj.fit_segments(scores.astype(np.float32), labels, which, pooling="partial")
    assert single.fit.A.dtype == np.float32
    np.testing.assert_allclose(single.fit.A, double.fit.A, atol=1e-3)


@pytest.mark.slow
def test_a_segment_of_too_many_rows_for_a_chunk(few, sizes):
    scores, labels, which = population_rows(5, 6, [40_000, 30, 30, 30, 50, 60])
    expected = pj.fit_segments(scores, labels, which, pooling="partial")
    sizes(problem_rows=32_768, block_rows=32_768)
    found = pj.fit_segments(scores, labels, which, pooling="partial")
    np.testing.assert_allclose(found.population.covariance, expected.population.covariance, 1e-6)
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-6)


def rare(seed, number, rows, spread_B=1.5):
    """Segments of few rows and rare positives."""
    return population_rows(seed, number, rows, mean=(-1, 5.0), spread=(0.4, spread_B))


@pytest.mark.parametrize("seed", range(4))
def test_rare_positives_of_few_rows_have_a_population(seed):
    """Their posteriors are skew, and the likelihood is flat, or largest at the edge."""
    data = rare(seed, 1000, 3)
    calibrator = pj.fit_segments(*data, pooling="partial")
    population = calibrator.population
    assert population.status in (Status.CONVERGED, Status.BOUNDARY)
    assert np.isfinite(population.mean_errors).all()
    assert np.isfinite(population.covariance_errors).all()
    unseen = calibrator.predict_proba(data[0], np.full(3000, -1))
    assert 0.5 < unseen.mean() / data[1].mean() < 2


@pytest.mark.slow
def test_at_the_edge_the_likelihood_is_as_large_as_by_brute_force():
    data = rare(1, 150, 6)
    population = pj.fit_segments(*data, pooling="partial").population
    assert population.status in (Status.CONVERGED, Status.BOUNDARY)
    factor = np.linalg.cholesky(population.covariance)
    mine = np.array(
        [*population.mean, np.log(factor[0, 0]), factor[1, 0], np.log(factor[1, 1])], float
    )
    best = -minimize(lambda x: -log_marginal(x, data, 150), mine, method="BFGS").fun
    assert best - log_marginal(mine, data, 150) < 0.01


def test_the_prior_makes_a_ridge_a_maximum():
    """Single rows say next to nothing of a spread: 7 positives in 988 segments."""
    rng = np.random.default_rng(144)
    rng.uniform(size=3)  # which leaves 988 segments and a rate of 0.6 %
    slope_spread = rng.choice([0, 0.4, 1])
    deviations = [slope_spread, rng.uniform(0, 1.5)]
    A, B = (np.array([1, -5.039]) + rng.normal(size=(988, 2)) * deviations).T
    scores = rng.normal(size=988)
    labels = rng.random(988) < 1 / (1 + np.exp(-A * scores - B))
    calibrator = pj.fit_segments(scores, labels, np.arange(988), pooling="partial")
    assert calibrator.population.status in (Status.CONVERGED, Status.BOUNDARY)
    predicted = calibrator.predict_proba(scores, np.arange(988)).sum()
    np.testing.assert_allclose(predicted, labels.sum(), rtol=0.15)


@pytest.mark.parametrize("pooling", ["partial", "nested", "crossed"])
@pytest.mark.parametrize("better", [True, False])
def test_a_search_that_does_not_converge_is_heard(pooling, better, monkeypatch, tmp_path):
    monkeypatch.setattr(search, "_MOST_PASSES", 2)
    monkeypatch.setattr(search, "_MOST_STEPS", 0)
    monkeypatch.setattr(level_search, "_MOST_COARSE", 1)
    monkeypatch.setattr(level_search, "_LEAST_FINE", 1)
    monkeypatch.setattr(level_search, "_MOST_FINE", 1)
    for room in (estimate, level_search):
        monkeypatch.setattr(room, "is_better_than_one_curve", lambda *_: better)
    scores, labels, which = population_rows(0, 200, 10)
    ids = which if pooling == "partial" else np.stack([which % 10, which], 1)
    instead = "its last population is used" if better else "all segments have the curve of all rows"
    with pytest.warns(RuntimeWarning, match=f"pooling: .* did not converge: {instead}"):
        calibrator = pj.fit_segments(scores, labels, ids, pooling=pooling)
    assert calibrator.population.status == Status.MAX_ITERATIONS
    assert calibrator.pooling == (pooling if better else "complete")
    assert "population: MAX_ITERATIONS" in repr(calibrator)
    assert "population: MAX_ITERATIONS" in calibrator._repr_html_()
    with pytest.raises(RuntimeError, match="population: MAX_ITERATIONS"):
        calibrator.raise_if_failed()
    pj.save(tmp_path / "calibrator.npz", calibrator)
    assert pj.load(tmp_path / "calibrator.npz").population.status == Status.MAX_ITERATIONS
    predicted = calibrator.predict_proba(scores, ids).sum()
    np.testing.assert_allclose(predicted, labels.sum(), rtol=0.1)


def test_a_population_is_better_than_one_curve_by_the_likelihood_of_all_rows():
    scores, labels, which = population_rows(0, 20, 10)
    rows = ChunkedSegments(SegmentRows(scores, labels, which), Caller())
    segments = StandardizedSegments(rows, Coordinates(0.0, 1.0), Options(targets="none"))
    curve = np.array([-1.0, 0.3])
    p = expit(-(curve[0] * scores + curve[1]))
    log_likelihood = np.log(np.where(labels, p, 1 - p)).sum()
    assert estimate.is_better_than_one_curve(segments, curve, log_likelihood + 1e-6)
    assert not estimate.is_better_than_one_curve(segments, curve, log_likelihood - 1e-6)


def days(seed, segments, days, rows):
    """A day moves all of a segment's intercepts, and no slope."""
    rng = np.random.default_rng(seed)
    A, B = 1.2 + 0.4 * rng.normal(size=segments), -0.5 + 0.7 * rng.normal(size=segments)
    which = np.repeat(np.arange(segments), days * rows)
    day = np.tile(np.repeat(np.arange(days), rows), segments)
    effect = 0.6 * rng.normal(size=(segments, days))
    scores = rng.normal(size=len(which))
    labels = rng.random(len(which)) < expit(A[which] * scores + B[which] + effect[which, day])
    return scores, labels, np.stack([which, which * 1000 + day], 1)


def rare_levels(seed, cities, sites, rows, intercept):
    rng = np.random.default_rng(seed)
    of_city = rng.normal(size=(2, cities)) * [[0.4], [0.7]]
    of_site = rng.normal(size=(2, cities * sites)) * [[0.3], [0.5]]
    site = np.repeat(np.arange(cities * sites), rows)
    city = site // sites
    A, B = of_city[:, city] + of_site[:, site]
    scores = rng.normal(size=len(site))
    labels = rng.random(len(site)) < expit((1.2 + A) * scores + intercept + B)
    return scores, labels, np.stack([city, site], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [days(0, 50, 20, 5), rare_levels(0, 50, 20, 20, -5.3), rare_levels(1, 50, 20, 20, -6.3)],
    ids=["days", "rare", "rarer"],
)
def test_spreads_of_levels_stay_finite(data):
    """Rows that say little of a level's spread once gave standard deviations of 27 and 523."""
    scores, labels, ids = data
    calibrator = pj.fit_segments(scores, labels, ids, pooling="nested")
    table = calibrator.levels
    assert max(table["slope_sd"].max(), table["intercept_sd"].max()) < 1.2
    assert 0.85 < calibrator.predict_proba(scores, ids).sum() / labels.sum() < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_band_of_a_new_value_has_the_spread_of_the_table(seed):
    """Near a slope spread of 0 the intercepts' variance was once doubled."""
    calibrator = pj.fit_segments(*days(seed, 100, 10, 30), pooling="nested")
    unseen = np.sqrt(calibrator.by_level.each[1].unseen[1, 1])
    table = calibrator.levels
    np.testing.assert_allclose(unseen, table["intercept_sd"][1], rtol=0.03)
    np.testing.assert_allclose(table["intercept_sd"], [0.7, 0.6], atol=0.15)
    held = table["slope_sd"] < 0.0101
    np.testing.assert_array_equal(np.isnan(table["se_slope_sd"]), held)
    assert calibrator.population.status == (Status.BOUNDARY if held.any() else Status.CONVERGED)


def test_a_spread_vanishes_in_few_passes(monkeypatch):
    """At the maximum to which Newton's method alone creeps."""
    rows = population_rows(1, 200, 50, spread=(0.0, 0.0))

    def estimated():
        stages = set()
        found = pj.fit_segments(*rows, pooling="partial", progress=lambda x: stages.add(x.stage))
        return found.population, sum(x.startswith("population, pass") for x in stages)

    found, few = estimated()
    monkeypatch.setattr(search, "_is_vanishing", lambda step, end: False)
    slowly, many = estimated()
    assert few <= 6 < 10 <= many, (few, many)
    assert found.status == slowly.status == Status.BOUNDARY
    np.testing.assert_allclose(found.mean, slowly.mean, atol=1e-5)
    np.testing.assert_allclose(found.covariance, slowly.covariance, atol=1e-5)
    np.testing.assert_allclose(found.predictive_covariance, slowly.predictive_covariance, rtol=1e-4)


def test_segments_that_do_not_differ_are_at_the_boundary():
    scores, labels, which = population_rows(0, 300, 50, spread=(0.0, 0.0))
    calibrator = pj.fit_segments(scores, labels, which, pooling="partial")
    population = calibrator.population
    assert population.status == Status.BOUNDARY
    assert (calibrator.fit.status == Status.CONVERGED).all()
    assert np.linalg.eigvalsh(population.covariance)[0] < 1e-3
    pooled = calibrator.fallback.predict_proba(scores[:100])
    np.testing.assert_allclose(
        calibrator.predict_proba(scores[:100], which[:100]), pooled, atol=0.1
    )


@pytest.mark.filterwarnings("ignore:pooling. There is no population:RuntimeWarning")
@pytest.mark.parametrize("case", ["one segment", "one class", "constant scores"])
def test_where_there_is_no_population_all_segments_have_the_pooled_curve(case):
    scores, labels, which = population_rows(0, 10, 10)
    if case == "one segment":
        which = np.zeros_like(which)
    elif case == "one class":
        labels = np.ones_like(labels)
    else:
        scores = np.full_like(scores, 2.5)
    calibrator = pj.fit_segments(scores, labels, which, pooling="partial")
    assert calibrator.population.status == Status.NOT_ESTIMATED
    assert "NOT_ESTIMATED" in repr(calibrator.population)
    assert calibrator.pooling == "complete"
    assert (calibrator.fit.A == calibrator.fallback.A).all() and (calibrator.shrinkage == 1).all()
    expected = calibrator.fallback.predict_proba(scores[:3])
    np.testing.assert_array_equal(calibrator.predict_proba(scores[:3], [99, 98, 97]), expected)


def test_a_bad_segment_changes_no_bit_of_the_others_but_by_the_population():
    scores, labels, which = population_rows(0, 50, 20)
    scores[:20] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 50 segments"):
        calibrator = pj.fit_segments(scores, labels, which, pooling="partial")
    assert calibrator.fit.status[0] == Status.NON_FINITE
    assert (calibrator.fit.status[1:] == Status.CONVERGED).all()
    assert np.isfinite(calibrator.population.mean).all()
    rest = pj.fit_segments(scores[20:], labels[20:], which[20:], pooling="partial")
    np.testing.assert_allclose(calibrator.population.mean, rest.population.mean, atol=1e-3)


def test_separable_and_one_class_segments_have_finite_curves():
    scores, labels, which = population_rows(0, 400, 4)
    calibrator = pj.fit_segments(scores, labels, which, pooling="partial")
    assert (calibrator.fit.flags != 0).mean() > 0.3
    assert calibrator.fit.converged.all() and np.abs(calibrator.fit.A).max() < 10


def test_complete_pooling_is_one_curve_for_all():
    scores, labels, which = population_rows(0, 5, [3, 10, 20, 40, 60])
    calibrator = pj.fit_segments(scores, labels, which, pooling="complete")
    pooled = pj.fit(scores, labels)
    np.testing.assert_allclose(calibrator.fit.A, pooled.A, rtol=1e-9)
    assert (calibrator.fit.n_pos + calibrator.fit.n_neg).tolist() == [3, 10, 20, 40, 60]
    assert calibrator.population is None and calibrator.shrinkage is None
    assert calibrator.pooling == "complete"
    alike = [np.tile(x, 2) for x in (scores[:32], labels[:32])]  # two segments of the same rows
    of_two = pj.fit_segments(*alike, np.repeat([0, 1], 32), options=Options(targets="none"))
    np.testing.assert_allclose(of_two.fit.A, of_two.fallback.A)
    assert of_two.pooling == "none"


def test_complete_pooling_tells_of_rows_that_are_not_finite():
    scores, labels, which = population_rows(0, 5, [30, 10, 20, 40, 60])
    scores[np.flatnonzero(which == which[0])[0]] = np.nan
    with pytest.warns(RuntimeWarning, match=r"in 1 of 5 segments.*the curve of all rows is fitted"):
        calibrator = pj.fit_segments(scores, labels, which, pooling="complete")
    assert calibrator.fit.converged.all()
    with pytest.raises(ValueError, match=r"expected finite values, found .* in 1 of 5 segments"):
        options = Options(non_finite="raise")
        pj.fit_segments(scores, labels, which, pooling="complete", options=options)


@pytest.mark.parametrize("seed", [0, 1])
def test_same_rows_same_bits_in_any_run(seed):
    data = population_rows(seed, 200, 15)
    one, other = (pj.fit_segments(*data, pooling="partial") for _ in range(2))
    assert one == other


def test_it_is_saved_and_loaded(few, tmp_path):
    calibrator = pj.fit_segments(*few, pooling="partial")
    pj.save(tmp_path / "c.npz", calibrator)
    loaded = pj.load(tmp_path / "c.npz")
    assert loaded == calibrator and loaded.population.status is Status.CONVERGED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "some"}, "pooling: expected one of"),
        ({"pooling": None}, "pooling: expected one of"),
        ({"prior": pj.GaussianPrior(np.zeros(2), np.eye(2))}, "prior: expected None with pooling="),
        ({"start": (0.0, 0.0)}, 'start: expected None with pooling="partial"'),
        (
            {"options": Options(monotone=True)},
            r"Options\(monotone=True\): expected False with pooling=",
        ),
        (
            {"pooling": "complete", "prior": pj.GaussianPrior(np.zeros((60, 2)), np.eye(2))},
            "prior: expected one for all with pooling=.complete., got one for each",
        ),
    ],
)
def test_what_does_not_go_with_pooling_is_refused(few, arguments, message):
    with pytest.raises(ValueError, match=message):
        pj.fit_segments(*few, **{"pooling": "partial", **arguments})


def test_words_on_one_class_hold_for_pooled_fits_too():
    scores, labels, which = population_rows(0, 40, 30)
    labels[which == 3] = True
    alone, pooled = (
        pj.fit_segments(scores, labels, which, pooling=pooling)[3]
        for pooling in ("none", "partial")
    )
    assert alone.flags & Flag.ONE_CLASS and pooled.flags & Flag.ONE_CLASS
    assert abs(alone.A) < 1e-6 < 0.5 < abs(pooled.A)
    without = "without pooling or a prior the sigmoid is flat"
    assert re.search(without, Flag.ONE_CLASS.message)
    page = Path(__file__).parents[2] / "docs" / "explanation" / "numbers.md"
    line = re.search(r"\| `ONE_CLASS` \| .*", page.read_text(encoding="utf-8"))[0]
    assert re.search(without, line, re.I)


@pytest.mark.slow
def test_rows_of_weight_0_do_not_move_the_unit_of_the_prior():
    scores, labels, which = population_rows(0, 20, 10)
    weights = np.ones(200)
    more = np.r_[scores, np.linspace(50, 90, 200)], np.r_[labels, labels], np.r_[which, which]
    found = pj.fit_segments(*more, weights=np.r_[weights, 0 * weights], pooling="partial")
    expected = pj.fit_segments(scores, labels, which, weights=weights, pooling="partial")
    for name in ("mean", "covariance", "posterior_mean"):
        off = getattr(found.population, name), getattr(expected.population, name)
        np.testing.assert_allclose(*off, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_many_segments_without_a_spread_of_slopes():
    """Positions between passes must not be taken for better ones: the search then ended nowhere."""
    rng = np.random.default_rng(1)
    segments, scores = np.repeat(np.arange(10_000), 10), rng.normal(size=100_000)
    rng.normal(size=10_000)
    intercepts = -0.5 + 0.7 * rng.normal(size=10_000)
    labels = rng.random(100_000) < 1 / (1 + np.exp(-1.5 * scores - intercepts[segments]))
    population = pj.fit_segments(scores, labels, segments, pooling="partial").population
    assert population.status in (pj.Status.CONVERGED, pj.Status.BOUNDARY)
    slope_sd, intercept_sd = np.sqrt(np.diag(population.covariance))
    assert slope_sd < 0.1 and abs(intercept_sd - 0.7) < 0.03


def test_a_correlation_with_no_spread_of_A_does_not_hold_up_the_spread_of_B():
    """Frauds that count as a twenty-fifth, as weights for thrown-away negatives make them."""
    rng = np.random.default_rng(0)
    base = -5 + 0.6 * rng.normal(size=60)
    shop, scores = rng.integers(0, 60, 100_000), rng.normal(size=100_000)
    fraud = rng.random(100_000) < expit(1.4 * scores + base[shop])
    kept = fraud | (rng.random(100_000) < 0.02)
    weights = np.where(fraud[kept], 1, 50)
    found = pj.fit_segments(
        *(scores[kept], fraud[kept], shop[kept]),
        pooling="partial",
        weights=weights / weights.mean(),
    )
    assert np.sqrt(np.diag(found.population.covariance)).max() < 0.02
