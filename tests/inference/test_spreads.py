"""Profile intervals of spreads, and tests of no spread."""

import numpy as np
import pytest
from data import population_rows as segments
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import chi2

import platt_jax as pj
from platt_jax.inference import spreads
from platt_jax.inference.spreads import compare
from platt_jax.population import profile
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.profile import (
    ONE_SPREAD,
    likeliest,
    log_likelihood,
    p_value,
    weights_of_both,
)

CUT = chi2.ppf(0.95, 1)


class BruteForce:
    """The marginal likelihood by sums over all pairs of nodes, and its maxima by BFGS."""

    def __init__(self, scores, labels, which, per_side=35):
        side = np.linspace(-6, 6, per_side)
        self.nodes = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
        half = -(self.nodes**2).sum(1) / 2
        self.log_weights = half - logsumexp(half)
        self.scores, self.signs, self.number = scores, np.where(labels, 1, -1), which.max() + 1
        self.starts = np.flatnonzero(np.diff(which, prepend=-1))

    def log_likelihood(self, x):
        """At the mean x[:2] and the factor [[x[2], 0], [x[3], x[4]]]; and its gradient."""
        nodes = x[:2] + np.stack(
            [x[2] * self.nodes[:, 0], x[3] * self.nodes[:, 0] + x[4] * self.nodes[:, 1]], -1
        )
        z = nodes[:, :1] * self.scores + nodes[:, 1:]
        losses = np.add.reduceat(np.logaddexp(0, self.signs * z), self.starts, axis=1)
        joint = self.log_weights[:, None] - losses
        each = logsumexp(joint, axis=0)
        p = (
            np.repeat(np.exp(joint - each), np.diff([*self.starts, len(self.scores)]), axis=1)
            * -self.signs
            / (1 + np.exp(-self.signs * z))
        )
        of_A, of_B = (p * self.scores).sum(1), p.sum(1)
        by_factor = of_A @ self.nodes[:, 0], of_B @ self.nodes[:, 0], of_B @ self.nodes[:, 1]
        return each.sum(), np.array([of_A.sum(), of_B.sum(), *by_factor])

    def largest(self, free, fixed=0.0):
        """With some of the five numbers free, the others 0, but F[0, 0] fixed if it is not free."""
        free, found = np.array(free), []
        for spread in (0.3, 1.0):
            x = np.array([-1.0, 1.0, spread, 0.0, spread]) * free
            x[2] = x[2] if 2 in np.flatnonzero(free) else fixed

            def loss(some, x=x):
                x = x.copy()
                x[free] = some
                value, gradient = self.log_likelihood(x)
                return -value, -gradient[free]

            found.append(-minimize(loss, x[free], jac=True, method="BFGS").fun)
        return max(found)


ALL, NO_A, NO_B, NEITHER = (
    [bool(int(x)) for x in free] for free in ("11111", "11001", "11100", "11000")
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, number, rows, mean, spread",
    [
        (3, 40, 10, (-1.0, 3.5), (0.3, 1.2)),
        (2, 20, 50, (-1.0, 0.0), (0.0, 0.0)),
        (4, 200, 3, (-1.0, 4.5), (0.3, 1.5)),
    ],
)
def test_the_statistics_are_those_of_brute_force(seed, number, rows, mean, spread):
    """Also of rare positives, where normal likelihoods of one population are far off."""
    data = segments(seed, number, rows, mean, spread)
    brute = BruteForce(*data)
    largest = brute.largest(ALL)
    expected = [2 * (largest - brute.largest(free)) for free in (NO_A, NO_B, NEITHER)]
    found = pj.inference.profile_spreads(*data)["statistic"]
    np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, number, rows, mean",
    [(1, 10, 30, (-1.0, 1.0)), (5, 40, 10, (-1.0, 3.5))],
)
def test_at_the_ends_of_an_interval_the_deviance_is_chi_squares_quantile(seed, number, rows, mean):
    data = segments(seed, number, rows, mean, (0.6, 1.2))
    brute, table = BruteForce(*data), pj.inference.profile_spreads(*data)
    largest = brute.largest(ALL)
    held = [True, True, False, True, True]
    ends = [table["lower"][0], table["upper"][0]]
    for end in ends:
        if end:
            deviance = 2 * (largest - brute.largest(held, end))
            assert deviance == pytest.approx(CUT, abs=0.1)
        else:
            assert 2 * (largest - brute.largest(NO_A)) <= CUT
    assert ends[0] < table["standard_deviation"][0] < ends[1] < np.inf


@pytest.mark.slow
def test_maxima_at_wide_spreads_are_found():
    """At an end of 20 positives a spread is 4.5; searches from a spread of 0.5 stopped short."""
    data = segments(3, 30, 20, (-1.0, 4.0), (0.6, 1.2))
    end = pj.inference.profile_spreads(*data, level=1 - 1e-6)["upper"][0]
    brute, held = BruteForce(*data, per_side=71), [True, True, False, True, True]
    deviance = 2 * (brute.largest(ALL) - brute.largest(held, end))
    assert deviance == pytest.approx(chi2.isf(1e-6, 1), abs=1.0)


@pytest.mark.slow
def test_an_interval_begins_at_0_exactly_where_no_spread_is_within():
    for seed in range(3):
        table = pj.inference.profile_spreads(*segments(seed, 10, 20, spread=(0.3, 0.3)))
        within = table["statistic"][:2] <= CUT
        np.testing.assert_array_equal(table["lower"][:2] == 0, within)
        assert (table["lower"][:2] <= table["standard_deviation"][:2]).all()
        assert (table["standard_deviation"][:2] <= table["upper"][:2]).all()


@pytest.mark.slow
def test_a_higher_level_is_a_wider_interval():
    data = segments(1, 20, 50)
    narrow, wide = (pj.inference.profile_spreads(*data, level=x) for x in (0.5, 0.99))
    assert (wide["lower"][:2] <= narrow["lower"][:2]).all()
    assert (narrow["upper"][:2] < wide["upper"][:2]).all()


@pytest.mark.slow
def test_no_more_than_6_in_100_tests_reject_where_there_is_no_spread():
    worlds = 100
    p_values = [
        compare(pj.SegmentRows(*segments(seed, 20, 10, spread=(0, 0)))).p_values
        for seed in range(worlds)
    ]
    share = (np.array(p_values) <= 0.05).mean(0)
    assert (share <= 0.06 + 2 * np.sqrt(0.06 * 0.94 / worlds)).all()
    assert share[2] > 0.005


def test_weights_of_equal_segments_are_those_known():
    one = np.array([[3.0, 1.0], [1.0, 2.0]])
    equal = Likelihoods.from_arrays(np.tile(one, (4, 1, 1)), np.zeros((4, 2)))
    root = np.sqrt(2)
    expected = [(2 - root) / 4, root / 4, root / 4, (2 - root) / 4]
    np.testing.assert_allclose(weights_of_both(equal), expected, atol=1e-9)


def test_weights_are_how_often_a_normal_matrix_is_definite():
    """Of the cone, that the covariance is positive; of its polar, that the score is negative."""
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(6, 2, 2)) * [1, 3]
    P = factors @ factors.swapaxes(1, 2)
    weights = weights_of_both(Likelihoods.from_arrays(P, np.zeros((6, 2))))
    basis = [np.array(x) for x in ([[1, 0], [0, 0]], [[0, 1], [1, 0]], [[0, 0], [0, 1]])]
    information = [[np.trace(P @ D @ P @ E, axis1=1, axis2=2).sum() for E in basis] for D in basis]
    factor = np.linalg.cholesky(np.linalg.inv(information))
    draws = factor @ rng.normal(size=(3, 200_000))
    scores = np.array(information) @ draws
    inside = (draws[0] > 0) & (draws[0] * draws[2] > draws[1] ** 2)
    polar = (scores[0] < 0) & (scores[0] * scores[2] > scores[1] ** 2 / 4)
    assert weights[3] == pytest.approx(inside.mean(), abs=0.004)
    assert weights[0] == pytest.approx(polar.mean(), abs=0.004)
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("told", [0.0, 1e-12, 1e6])
def test_weights_are_some_where_rows_tell_little_or_of_one_direction_only(told):
    P = told * np.array([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])
    weights = weights_of_both(Likelihoods.from_arrays(P, np.zeros((2, 2))))
    assert ((weights >= 0) & (weights <= 0.5)).all()
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("weights", [ONE_SPREAD, np.array([0.15, 0.35, 0.35, 0.15])])
def test_p_values_are_those_of_scipys_chi_squares(weights):
    for statistic in (1e-6, 0.5, 3.84, 30.0, 400.0):
        expected = weights[1:] @ chi2.sf(statistic, [1, 2, 3])
        assert p_value(statistic, weights) == pytest.approx(expected, rel=1e-9)
    assert p_value(0.0, weights) == 1


def test_the_likeliest_covariance_is_that_of_a_general_search():
    rng = np.random.default_rng(0)
    for number in (3, 20):
        factors = rng.normal(size=(number, 2, 2))
        P = factors @ factors.swapaxes(1, 2)
        P[0] = 0  # a segment without rows
        at = rng.normal(size=(number, 2)) * 1.5
        likelihoods = Likelihoods.from_arrays(P, np.einsum("kab,kb->ka", P, at))

        def loss(x, likelihoods=likelihoods):
            factor = np.array([[x[2], 0], [x[3], x[4]]])
            return -log_likelihood(likelihoods, x[:2], factor @ factor.T)

        for held, free in (((None,) * 3, ALL), ((0.0, 0.0, None), NO_A)):
            free = np.flatnonzero(free)
            starts = np.array([[0, 0, s, 0, s] for s in (0.5, 1.5)])[:, free]
            best = max(-minimize(lambda x, f=free: loss(_filled(x, f)), x).fun for x in starts)
            found = likeliest(likelihoods, held)
            assert found.log_likelihood == pytest.approx(best, abs=1e-4)


def _filled(some, free):
    x = np.zeros(5)
    x[free] = some
    return x


@pytest.mark.slow
def test_another_scale_of_scores_is_another_unit_of_A():
    scores, labels, which = segments(1, 20, 30)
    found, scaled = (pj.inference.profile_spreads(x, labels, which) for x in (scores, 10 * scores))
    for name in ("standard_deviation", "lower", "upper"):
        np.testing.assert_allclose(scaled[name][:2], found[name][:2] / [10, 1], rtol=2e-3)
    np.testing.assert_allclose(scaled["p_value"], found["p_value"], rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [5.0, 1000.0])
def test_a_shift_of_the_scores_changes_only_what_is_at_score_0(shift):
    scores, labels, which = segments(1, 20, 30)
    found, moved = (
        pj.inference.profile_spreads(x, labels, which) for x in (scores, scores + shift)
    )
    for name in ("standard_deviation", "lower", "upper", "statistic"):
        np.testing.assert_allclose(moved[name][0], found[name][0], rtol=2e-3)
    np.testing.assert_allclose(moved["p_value"][2], found["p_value"][2], rtol=0.01)
    if shift > 100:  # there only the slopes tell
        np.testing.assert_allclose(
            moved["standard_deviation"][1], shift * found["standard_deviation"][0], rtol=0.01
        )


@pytest.mark.slow
def test_weights_count_rows_and_rows_may_lie_by_segment():
    scores, labels, which = segments(2, 10, 20)
    twice = [np.concatenate([x, x]) for x in (scores, labels, which)]
    expected = pj.inference.profile_spreads(*twice)
    found = pj.inference.profile_spreads(scores, labels, which, weights=np.full(len(scores), 2.0))
    again = pj.inference.profile_spreads(pj.SegmentRows(*twice))
    for name in ("standard_deviation", "lower", "upper", "statistic"):
        np.testing.assert_allclose(found[name], expected[name], rtol=5e-3, atol=5e-3)
        np.testing.assert_array_equal(again[name], expected[name])


@pytest.mark.slow
def test_float32_rows_tell_the_same():
    scores, labels, which = segments(2, 10, 20)
    found = pj.inference.profile_spreads(scores.astype(np.float32), labels, which)
    expected = pj.inference.profile_spreads(scores, labels, which)
    np.testing.assert_allclose(found["statistic"], expected["statistic"], rtol=0.01, atol=0.02)


def test_where_no_population_is_estimated_all_is_nan():
    table = pj.inference.profile_spreads([1.0, 2.0, 0.5], [1, 1, 1], ["a", "b", "b"])
    assert table["parameter"].tolist() == ["A", "B", "both"]
    assert np.isnan([x for name, x in table.items() if name != "parameter"]).all()


@pytest.mark.slow
def test_segments_of_one_class_each_have_no_widest_spread():
    scores = np.tile([-1.0, 0.0, 1.0, 0.5], 6)
    which, labels = np.repeat(np.arange(6), 4), np.repeat([0, 1, 0, 1, 0, 1], 4)
    with pytest.warns(RuntimeWarning, match="segments of one class each have no largest one"):
        table = pj.inference.profile_spreads(scores, labels, which)
    assert np.isinf(table["upper"][1])
    assert table["p_value"][1] < 0.05


@pytest.mark.parametrize("level", [0, 1, 95, "0.95"])
def test_a_level_is_between_0_and_1(level):
    with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\)"):
        pj.inference.profile_spreads([1.0], [1], ["a"], level=level)


@pytest.mark.slow
def test_an_end_that_is_not_found_is_nan(monkeypatch):
    monkeypatch.setattr(spreads, "_MOST_TRIALS", 1)
    with pytest.warns(RuntimeWarning, match="ends of intervals NaN"):
        table = pj.inference.profile_spreads(*segments(1, 20, 50))
    assert np.isnan(table["upper"][:2]).all()
    assert np.isfinite(table["statistic"]).all()


def test_a_maximum_that_is_not_found_is_heard(monkeypatch):
    data = segments(1, 20, 50)
    monkeypatch.setattr(profile, "_MOST_STEPS", 1)
    with pytest.warns(RuntimeWarning, match="segments: a search .* did not converge"):
        pj.inference.profile_spreads(*data)


def test_a_covariance_says_whether_it_is_the_likeliest(rng, monkeypatch):
    pull = 3 * rng.normal(size=(50, 2))
    own = Likelihoods.from_arrays(np.tile(np.eye(2), (50, 1, 1)), pull)
    assert likeliest(own).found
    monkeypatch.setattr(profile, "_MOST_INNER_STEPS", 1)
    assert not likeliest(own).found


@pytest.mark.parametrize("options", [pj.Options(monotone=True), pj.Options(intercept=False)])
def test_a_population_of_normal_parameters_holds_none(options):
    with pytest.raises(ValueError, match=r"Options\((monotone|intercept)=.*pooling=\"partial\""):
        pj.inference.profile_spreads([0.0, 1.0], [0, 1], [0, 0], options=options)
