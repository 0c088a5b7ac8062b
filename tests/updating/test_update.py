"""Last night's posterior as tonight's prior, against fits of all rows and by hand."""

from dataclasses import replace
from datetime import date
from importlib import import_module

import numpy as np
import pytest
from data import curves, few_rows, labels_of, rows_of
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

import platt_jax as pj
from platt_jax import update
from platt_jax.export import from_json, to_json
from platt_jax.inference import prior_from, robust_covariance
from platt_jax.model import objective
from platt_jax.population import search
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import population_log_prior
from platt_jax.results.population import Population
from platt_jax.updating.earlier_fits import Walk


def night(seed, rows=2_000, segments=60):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, segments, rows)
    A, B = -1.5 + 0.5 * np.sin(np.arange(segments)), 0.3 * np.cos(np.arange(segments))
    return rows_of(rng, which, A, B)


NIGHTS = [night(seed) for seed in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_night_after_night_is_nearly_the_fit_of_all_rows(pooling):
    nights = [night(seed, 3_000) for seed in range(4)]
    updated = pj.fit_segments(*nights[0], pooling=pooling)
    for rows in nights[1:]:
        updated = update(updated, *rows)
    of_all = (np.concatenate(column) for column in zip(*nights, strict=True))
    full = pj.fit_segments(*of_all, pooling=pooling)
    errors = full.fit.standard_errors
    off = np.stack([updated.fit.A - full.fit.A, updated.fit.B - full.fit.B], -1) / errors
    assert np.median(np.abs(off)) < 0.2 and np.abs(off).max() < 1
    np.testing.assert_allclose(updated.fit.standard_errors, errors, rtol=0.3)
    np.testing.assert_allclose(updated.fallback.A, full.fallback.A, atol=1e-3)
    covariances = updated.fallback_covariance, full.fallback_covariance
    np.testing.assert_allclose(*map(np.diag, covariances), rtol=0.01)
    for name in ("n_pos", "n_neg"):
        np.testing.assert_array_equal(getattr(updated.fit, name), getattr(full.fit, name))


def test_the_log_odds_of_a_segment_are_those_of_its_prior_and_its_rows():
    before = pj.fit_segments(*NIGHTS[0])
    after = update(before, *NIGHTS[1], forgetting=0.7)
    scores, labels, which = NIGHTS[1]
    f, y, old = scores[which == 5], labels[which == 5], before[5]
    A, B = after[5].A, after[5].B
    n_pos, n_neg = y.sum(), (~y).sum()
    before_pos, before_neg = 0.7 * old.n_pos, 0.7 * old.n_neg
    # What the targets of all rows so far lack in sum, less what those of earlier rows lacked.
    lacks = (before_pos + n_pos) / (before_pos + n_pos + 2) - before_pos / (before_pos + 2)
    exceeds = (before_neg + n_neg) / (before_neg + n_neg + 2) - before_neg / (before_neg + 2)
    t = np.where(y, 1 - lacks / n_pos, exceeds / n_neg)
    p = 1 / (1 + np.exp(A * f + B))
    own = np.array([((t - p) * f).sum(), (t - p).sum()])
    prior = 0.7 * old.hessian @ (np.array([A, B]) - [old.A, old.B])
    np.testing.assert_allclose(own + prior, 0, atol=1e-9 * len(f))


def test_targets_of_later_rows_go_on_where_platts_end(x64):
    first, both = (objective.platt_targets(n, n) for n in (np.float64(7), np.float64(19)))
    before = objective.EarlierCounts(*map(np.float64, (7, 7)))
    later = objective.later_platt_targets(np.float64(12), np.float64(12), before)
    lack = 7 * first.positive_complement + 12 * later.positive_complement
    np.testing.assert_allclose(lack, 19 * both.positive_complement, rtol=1e-14)
    nothing = objective.EarlierCounts(*map(np.float64, (0, 0)))
    alone = objective.later_platt_targets(np.float64(7), np.float64(3), nothing)
    assert alone == objective.platt_targets(np.float64(7), np.float64(3))


@few_rows
@pytest.mark.parametrize("positive", [0, 1])
def test_rows_of_one_class_are_learnt_as_one_fit_of_all(positive):
    """Before, the target of the second row was another than that of the first: a slope."""
    rng = np.random.default_rng(0)
    scores, which = rng.normal(size=(3, 200)), np.arange(200)
    labels = np.full((3, 200), positive)
    labels[2] = rng.random(200) < 0.5
    updated = pj.fit_segments(scores[0], labels[0], which)
    for night in range(1, 3):
        updated = update(updated, scores[night], labels[night], which)
        rows = np.s_[: night + 1]
        of_all = scores[rows].ravel(), labels[rows].ravel(), np.tile(which, night + 1)
        refit = pj.fit_segments(*of_all)
        at = rng.normal(size=200)
        found, expected = (x.predict_proba(at, which) for x in (updated, refit))
        np.testing.assert_allclose(found, expected, atol=1e-9 if night == 1 else 0.1)


def test_forgotten_rows_of_one_class_keep_its_target():
    """9 rows are left of 10, and 1 is new: the probability stays. Before, it fell by a third."""
    rng = np.random.default_rng(0)
    before = pj.fit_segments(rng.normal(size=10), np.zeros(10), np.zeros(10, int))
    after = update(before, [0.3], [0], [0], forgetting=0.9)
    np.testing.assert_allclose(after.predict_proba([-1.0, 1.0], [0, 0]), 1 / 12, rtol=1e-9)


@few_rows
@pytest.mark.parametrize("positive", [0, 1])
def test_rows_of_one_class_are_forgotten_in_nights_without_them(positive):
    """Before, 8 such nights of .8 left a probability of .86 where .77 is of the rows that count."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=50)
    others = scores, (rng.random(50) < expit(scores)).astype(int), np.ones(50, int)
    ten, one = (
        [np.r_[x, y] for x, y in zip(others, more, strict=True)]
        for more in (
            (rng.normal(size=10), np.full(10, positive), np.zeros(10, int)),
            ([0.3], [positive], [0]),
        )
    )
    for quiet in range(4):
        calibrator = pj.fit_segments(*ten)
        for _ in range(quiet):
            calibrator = update(calibrator, *others, forgetting=0.8)
            count = calibrator.fit.n_pos[0] + calibrator.fit.n_neg[0]
            sure = calibrator.predict_proba([-1.0, 1.0], [0, 0])
            expected = (count + 1) / (count + 2)
            np.testing.assert_allclose(sure if positive else 1 - sure, expected, rtol=1e-6)
        calibrator = update(calibrator, *one, forgetting=0.8)
        weights = np.r_[np.ones(50), np.full(10, 0.8 ** (quiet + 1)), 1]
        rows = [np.r_[x, y[-1]] for x, y in zip(ten, one, strict=True)]
        of_all = pj.fit_segments(*rows, weights=weights)
        at = [-1.0, 1.0], [0, 0]
        np.testing.assert_allclose(
            calibrator.predict_proba(*at), of_all.predict_proba(*at), atol=1e-6
        )


@pytest.mark.slow
def test_a_prior_of_other_than_rows_does_not_move_with_their_target():
    """A precision of 100 that is not of the 10 rows: a prior of the first fit."""
    scores, labels, which = np.linspace(-1, 1, 10), np.zeros(10), np.zeros(10, int)
    prior = pj.GaussianPrior(np.array([0.0, 4.0]), 100 * np.eye(2))
    before = pj.fit_segments(scores, labels, which, prior=prior)
    after = update(before, scores, labels, which)
    refit = pj.fit_segments(*(np.tile(x, 2) for x in (scores, labels, which)), prior=prior)
    np.testing.assert_allclose(after.fit.B, refit.fit.B, atol=2e-3)


def test_new_segments_are_fitted_as_by_themselves():
    before = pj.fit_segments(*NIGHTS[0])
    scores, labels, which = NIGHTS[1]
    after = update(before, scores, labels, which + 30)
    alone = pj.fit_segments(scores, labels, which + 30)
    np.testing.assert_allclose(after[75].A, alone[75].A, rtol=1e-7)
    assert after.keys.tolist() == list(range(90))


def test_new_segments_start_from_the_population():
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    after = update(before, [0.5], [1], [1_000])
    assert after.shrinkage.shape == (61,) and after.shrinkage[-1] > 0.8
    np.testing.assert_allclose(after[1_000].A, after.population.mean[0], atol=0.2)


def test_segments_without_new_rows_forget():
    before = pj.fit_segments(*NIGHTS[0])
    after = update(before, [0.5], [1], [1_000], forgetting=0.5)
    old = replace(after[7], nll=before[7].nll, gradient=before[7].gradient)
    np.testing.assert_array_equal(old.A, before[7].A)
    np.testing.assert_allclose(old.covariance, 2 * before[7].covariance)
    np.testing.assert_allclose(old.hessian, before[7].hessian / 2)
    assert after[7].iterations == 0 and after[7].n_pos == before[7].n_pos / 2


def test_a_population_is_not_forgotten():
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    prior = prior_from(before, [3, 1_000], forgetting=1e-9)
    for mean, precision in zip(*prior, strict=True):
        np.testing.assert_allclose(mean, before.population.mean, atol=1e-6)
        np.testing.assert_allclose(
            precision, np.linalg.inv(before.population.covariance), rtol=1e-5
        )


@pytest.mark.slow
def test_the_population_is_the_likeliest_by_memory_and_new_rows():
    """The new rows' likelihood is exact; before, it was that of a normal density far from it."""
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    scores, labels, which = NIGHTS[1]
    labels = labels & (scores > -0.5)
    after = update(before, scores, labels, which)
    P, h = before.population.likelihood_precision, before.population.likelihood_pull
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    z = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    log_weight = np.log(np.outer(weights, weights) / (2 * np.pi)).ravel()
    memory = Likelihoods.from_arrays(P, h)
    to = memory.coordinates(memory.total).matrix
    of_all = np.array([after.fallback.A, after.fallback.B])

    def loss(parameters):
        """Minus the marginal log density, by a grid around the population, and of its prior."""
        mean, factor = parameters[:2], np.array([[parameters[2], 0], [*parameters[3:]]])
        at = mean + z @ factor.T
        logits = -np.outer(scores, at[:, 0]) - at[:, 1]
        logs = -np.logaddexp(0, np.where(labels, -1, 1)[:, None] * logits)
        each = np.stack([np.bincount(which, column, 60) for column in logs.T], 1)
        each += h @ at.T - np.einsum("ji,kil,jl->kj", at, P, at) / 2 + log_weight
        turned = to @ factor * np.sign(np.diag(factor))
        prior = population_log_prior(to @ (mean - of_all), turned).value
        return -logsumexp(each, axis=1).sum() - prior

    start = [*before.population.mean, 0.5, 0.0, 0.5]
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-3}).x
    factor = np.array([[best[2], 0], [*best[3:]]])
    np.testing.assert_allclose(after.population.mean, best[:2], atol=1e-3)
    np.testing.assert_allclose(after.population.covariance, factor @ factor.T, atol=2e-3)
    assert np.abs(after.population.mean - before.population.mean).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("rows, weeks", [(5, 20), (10, 12)])
def test_a_population_goes_on_being_estimated(rows, weeks):
    """The covariance of the first week alone is off by 2 to 5 standard errors here."""
    rng = np.random.default_rng(3)
    A, B = curves(rng, 300, (-1, 1), (0.4, 0.7))
    which = np.tile(np.repeat(np.arange(300), rows), (weeks, 1))
    scores, labels, _ = rows_of(rng, which, A, B)
    calibrator = pj.fit_segments(scores[0], labels[0], which[0], pooling="partial")
    for week in range(1, weeks):
        calibrator = update(calibrator, scores[week], labels[week], which[week])
    refit = pj.fit_segments(scores.ravel(), labels.ravel(), which.ravel(), pooling="partial")
    found, expected = calibrator.population, refit.population
    off = np.abs(found.covariance - expected.covariance) / expected.covariance_errors
    assert np.diag(off).max() < 0.5
    assert (np.abs(found.mean - expected.mean) / expected.mean_errors).max() < 0.5
    off = np.abs(found.posterior_mean - expected.posterior_mean)
    assert (off / np.sqrt(expected.posterior_covariance[:, (0, 1), (0, 1)])).mean() < 0.1
    lower, upper = calibrator.band(np.zeros(300), np.arange(300))
    assert 0.91 < ((lower <= expit(-B)) & (expit(-B) <= upper)).mean() < 0.98


@pytest.mark.slow
def test_a_night_without_news_leaves_the_population_where_it_is():
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    after = update(before, *NIGHTS[1], weights=np.zeros(len(NIGHTS[1][0])))
    off = np.abs(after.population.covariance - before.population.covariance)
    assert (off / before.population.covariance_errors).max() < 0.2
    off = np.abs(after.population.mean - before.population.mean)
    assert (off / before.population.mean_errors).max() < 0.2


def test_failed_fits_are_begun_anew():
    scores, labels, which = (column.copy() for column in NIGHTS[0])
    scores[which == 4] = np.nan
    with pytest.warns(RuntimeWarning, match="first in 4"):
        before = pj.fit_segments(scores, labels, which)
    after = update(before, *NIGHTS[1]).raise_if_failed()
    np.testing.assert_allclose(after[4].A, pj.fit_segments(*NIGHTS[1])[4].A, rtol=1e-7)


def as_if_without(before, segment, **rows):
    """The update by the second night without the rows of a segment."""
    scores, labels, which = NIGHTS[1]
    others = which != segment
    return update(before, scores[others], labels[others], which[others], **rows)


def first_curve_of_all(monkeypatch):
    """Later updates have the curve of all rows that the first one makes.

    It learns the finite rows of a segment with a bad one, too, and the prior of the population's
    mean is around it.
    """
    module, made = import_module("platt_jax.updating.update"), []
    of_all = module._updated_fallback

    def first(*arguments):
        if not made:
            made.append(of_all(*arguments))
        return made[0]

    monkeypatch.setattr(module, "_updated_fallback", first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "pooling"),
    [
        ("NaN", "none"),
        ("NaN", "partial"),
        ("all NaN, omitted", "none"),
        ("weight 0", "partial"),
    ],
)
def test_what_was_learnt_outlasts_rows_that_cannot_be(bad, pooling, monkeypatch):
    scores, labels, which = (column.copy() for column in NIGHTS[1])
    before = pj.fit_segments(*NIGHTS[0], pooling=pooling)
    first_curve_of_all(monkeypatch)
    of_9, weights, options = which == 9, None, pj.Options()
    if bad == "NaN":
        scores[np.flatnonzero(of_9)[0]] = np.nan
        with pytest.warns(RuntimeWarning, match="1 of 60 segments, first in 9: their new rows are"):
            after = update(before, scores, labels, which, forgetting=0.9)
        strict = pj.Options(non_finite="raise")
        if pooling == "none":
            with pytest.raises(ValueError, match="first in 9"):
                update(before, scores, labels, which, options=strict)
    else:
        if bad == "weight 0":
            weights = np.where(of_9, 0.0, 1.0)
        else:
            scores[of_9], options = np.nan, pj.Options(non_finite="omit")
        after = update(
            before, scores, labels, which, weights=weights, forgetting=0.9, options=options
        )
    expected = as_if_without(before, 9, forgetting=0.9)
    # A population is a sum over all segments, by a program that takes weights or one that does not.
    rtol = 0 if pooling == "none" else 1e-12
    for name in ("A", "B", "status", "flags", "n_pos", "n_neg", "hessian", "covariance", "nll"):
        found, wanted = (getattr(one[9], name) for one in (after, expected))
        np.testing.assert_allclose(found, wanted, rtol=rtol, err_msg=name)
    after.raise_if_failed()
    if pooling == "none":
        again, once = (update(one, *NIGHTS[2]) for one in (after, expected))
        assert again[9] == once[9]


@pytest.mark.slow
def test_a_bad_row_costs_itself_if_it_is_omitted():
    scores, labels, which = (column.copy() for column in NIGHTS[1])
    before = pj.fit_segments(*NIGHTS[0])
    row = np.flatnonzero(which == 9)[0]
    scores[row] = np.nan
    after = update(before, scores, labels, which, options=pj.Options(non_finite="omit"))
    expected = update(before, *(np.delete(column, row) for column in (scores, labels, which)))
    np.testing.assert_allclose(after.fit.A, expected.fit.A, rtol=1e-12)
    np.testing.assert_array_equal(after.fit.n_pos, expected.fit.n_pos)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_rows_without_weight_teach_nothing(pooling):
    before = pj.fit_segments(*NIGHTS[0], pooling=pooling)
    after = update(before, *NIGHTS[1], weights=np.zeros(len(NIGHTS[1][0])))
    assert after.fit.converged.all() and (after.fit.n_pos == before.fit.n_pos).all()
    one = update(before, [1.0], [1], [9], weights=[0.0])
    np.testing.assert_array_equal(after.fit.A, one.fit.A)
    if pooling == "none":
        np.testing.assert_array_equal(after.fit.A, before.fit.A)


@pytest.mark.filterwarnings("ignore:pooling")
@pytest.mark.parametrize("pooling", ["none", "complete", "partial"])
def test_after_no_rows_the_curve_of_all_rows_is_that_of_the_new_ones(pooling):
    scores, labels, _ = night(0, 40)
    before = pj.fit_segments([1.0], [0], ["a"], weights=[0.0], pooling=pooling)
    after = update(before, scores, labels, np.full(40, "a"))
    of_new = pj.fit(scores, labels)
    for ids in (["a"], ["unseen"]):
        np.testing.assert_allclose(after.predict_proba([2.0], ids), of_new.predict_proba(2.0))
    for one in (after.fit.A[0], after.fallback.A):
        np.testing.assert_allclose(one, of_new.A)


@pytest.mark.slow
def test_a_population_stays_where_no_row_tells_of_it():
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    none_left = before.only(np.zeros(60, bool))
    after = update(none_left, [1.0, 2.0], [0, 1], [5, 6], weights=[0.0, 0.0])
    assert (after.population.mean == before.population.mean).all()
    assert (after.population.covariance == before.population.covariance).all()
    np.testing.assert_allclose(
        after.predict_proba([0.5], [1_000]), before.predict_proba([0.5], [1_000])
    )


@pytest.mark.slow
def test_a_fit_that_fails_leaves_the_earlier_one():
    before = pj.fit_segments(*NIGHTS[0])
    scores, labels, which = (column.copy() for column in NIGHTS[1])
    labels[which == 9] = scores[which == 9] > 0
    short = pj.Options(max_iter=1, start="prior", tol=1e-12)
    with pytest.warns(RuntimeWarning, match=r"of 60 segments failed, first in 0 \(MAX_ITERATIONS"):
        after = update(before, scores, labels, which, options=short)
    np.testing.assert_array_equal(after[9].A, before[9].A)


@pytest.mark.slow
def test_float64_fits_are_kept_whole_beside_float32_rows():
    before = pj.fit_segments(*NIGHTS[0])
    scores, labels, which = NIGHTS[1]
    weights = (which != 9).astype(float)
    after = update(before, scores.astype(np.float32), labels, which, weights=weights)
    np.testing.assert_array_equal(after[9].A, before[9].A)


F = pj.Flag
NONE = F(0)
OVERLAP = [0.0, 2.0, 1.0, 3.0], [0, 0, 1, 1]
APART = [0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1]
POSITIVE, NEGATIVE = ([2.0, 3.0], [1, 1]), ([0.0, 1.0], [0, 0])
CONSTANT = [1.0, 1.0], [0, 1]
ELSEWHERE = [5.0, 5.0], [0, 1]
FAR = [*np.linspace(-1, 1, 29), 1e4], [0, 1] * 15
NEAR = [*np.linspace(-1, 1, 30)], [1, 0, 1, 1, 0, 1] * 5
TRIPLED = [3 * x for x in NEAR]
WIDE = [*np.linspace(-3e4, 3e4, 90)], [1, 0, 1, 1, 0, 1] * 15


@pytest.mark.parametrize(
    ("first", "then", "flags"),
    [
        (OVERLAP, APART, NONE),
        (OVERLAP, POSITIVE, NONE),
        (OVERLAP, CONSTANT, NONE),
        (APART, OVERLAP, NONE),
        (APART, APART, F.SEPARABLE),
        (APART, POSITIVE, NONE),
        (NEGATIVE, APART, NONE),
        (POSITIVE, POSITIVE, F.ONE_CLASS),
        (POSITIVE, NEGATIVE, NONE),
        (CONSTANT, CONSTANT, F.CONSTANT_SCORES),
        (CONSTANT, ELSEWHERE, NONE),
        (FAR, NEAR, F.OUTLIER),
        (NEAR, FAR, F.OUTLIER),
        (TRIPLED, FAR, F.OUTLIER),
        (WIDE, FAR, NONE),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_flags_are_of_all_that_is_remembered(first, then, flags, dtype):
    calibrator = None
    for scores, labels in (first, then):
        rows = np.array(scores, dtype), labels, np.zeros(len(scores), int)
        if calibrator is None:
            calibrator = pj.fit_segments(*rows)
        elif then is FAR and first == TRIPLED:
            with pytest.warns(RuntimeWarning, match="scores: .* codes for missing values"):
                calibrator = update(calibrator, *rows)
        else:
            calibrator = update(calibrator, *rows)
    found = calibrator[0]
    assert pj.Flag(found.flags & ~F.REVERSED) == flags
    assert (found.flags & F.REVERSED != 0) == (found.A > 0)


@pytest.mark.parametrize("pooling", ["none", "partial", "complete"])
def test_codes_among_few_new_rows_that_take_the_slope_are_flagged(pooling):
    rng = np.random.default_rng(0)
    first, then = ((rng.normal(size=n), np.arange(n) % 8) for n in (8_000, 1_600))
    labels = [rng.random(len(f)) < 1 / (1 + np.exp(-1.5 * f)) for f, _ in (first, then)]
    before = pj.fit_segments(first[0], labels[0], first[1], pooling=pooling)
    coded = np.where(rng.random(1_600) < 0.1, -9_999, then[0])  # the codes have both labels
    with pytest.warns(RuntimeWarning, match="scores: .* codes for missing values"):
        after = pj.update(before, coded, labels[1], then[1])
    assert (np.abs(after.fit.A) < 0.1).all() and (before.fit.A < -1).all()
    assert (after.fit.flags & F.OUTLIER).all()
    with pytest.warns(RuntimeWarning, match="scores: .* codes for missing values"):
        later = pj.update(after, then[0], labels[1], then[1])
    assert (later.fit.flags & F.OUTLIER).all()
    assert not (pj.update(before, then[0], labels[1], then[1]).fit.flags & F.OUTLIER).any()


@pytest.mark.parametrize("pooling", ["none", "partial", "complete"])
@pytest.mark.parametrize("factor", [0.1, 10.0, 1e6])
def test_new_scores_of_another_unit_are_told(pooling, factor):
    rng = np.random.default_rng(0)
    nights = [rows_of(rng, np.arange(n) % 8, A=-2) for n in (8_000, 1_600)]
    calibrator = pj.fit_segments(*nights[0], pooling=pooling)
    scores, *others = nights[1]
    pj.update(calibrator, scores, *others)
    with pytest.warns(RuntimeWarning, match="scores: .* in the same unit"):
        pj.update(calibrator, factor * scores, *others)


def test_curves_that_move_are_of_the_same_unit():
    rng = np.random.default_rng(0)
    nights = [rows_of(rng, np.arange(8_000) % 4, A=-2) for _ in range(4)]
    calibrator = pj.fit_segments(*nights[0])
    for night in nights[1:]:
        calibrator = pj.update(calibrator, *night, drift=0.5)


@pytest.mark.parametrize("steep", [2, 10])
def test_labels_of_another_curve_are_of_the_same_unit(steep):
    rng = np.random.default_rng(0)
    calibrator = pj.fit_segments(*rows_of(rng, np.arange(8_000) % 8, A=-steep))
    pj.update(calibrator, *rows_of(rng, np.arange(8_000) % 8, A=0))
    pj.update(calibrator, *rows_of(rng, np.arange(20) % 8, A=-steep))


def test_flags_of_tiny_nights_are_those_of_a_fit_of_all():
    """Two rows of each segment a night have no second class, mostly, or are separable."""
    rng = np.random.default_rng(3)
    nights = [rows_of(rng, np.repeat(np.arange(200), 2), A=-1) for _ in range(12)]
    calibrator = pj.fit_segments(*nights[0])
    for rows in nights[1:]:
        calibrator = update(calibrator, *rows)
    full = pj.fit_segments(*(np.concatenate(column) for column in zip(*nights, strict=True)))
    for flag in (F.ONE_CLASS, F.CONSTANT_SCORES, F.OUTLIER):
        np.testing.assert_array_equal(calibrator.fit.flags & flag, full.fit.flags & flag)
    gained = calibrator.fit.flags & F.SEPARABLE > full.fit.flags & F.SEPARABLE
    assert not gained.any()
    enough = calibrator.fit.converged & (calibrator.fit.flags & F.ONE_CLASS == 0)
    assert len(calibrator.only(enough)) >= 195


def test_without_a_population_to_estimate():
    with pytest.warns(RuntimeWarning, match="no population to estimate"):
        before = pj.fit_segments([1.0, 2.0], [0, 1], ["a", "a"], pooling="partial")
    after = update(before, [1.0, 2.0, 0.0], [0, 1, 1], ["b", "b", "a"])
    assert after.keys.tolist() == ["a", "b"] and not after.population.estimated
    # The one curve of all rows stays one curve: once, each segment was fitted by its own new rows.
    assert after.pooling == "complete" and (after.fit.A == after.fallback.A).all()
    assert after.fit.n_pos.tolist() == [2, 1]
    assert after.population == Population.not_estimated(2)


@pytest.mark.slow
def test_rows_grouped_before_temperature_and_float32():
    rows = [NIGHTS[0][0].astype(np.float32), *NIGHTS[0][1:]]
    options = pj.Options(intercept=False)
    before = pj.fit_segments(*rows, options=options)
    after = update(before, pj.SegmentRows(*rows), options=options)
    assert after.fit.A.dtype == np.float32 and (after.fit.B == 0).all()
    twice = pj.fit_segments(*[np.tile(column, 2) for column in rows], options=options)
    assert (np.abs(after.fit.A - twice.fit.A) < 0.5 * twice.fit.standard_errors[:, 0]).all()
    assert (after.fit.standard_errors[:, 0] < before.fit.standard_errors[:, 0]).all()


@pytest.mark.parametrize("unknown", ["constant", "reversed", "one cluster"])
def test_temperatures_stay_temperatures_after_a_shift(rng, unknown):
    """Also where one segment's slope is 0, or its error unknown, and `shift_prior` moved its B."""
    segments = np.arange(400) % 4
    scores = rng.normal(size=400)
    labels = labels_of(rng, scores)
    scores[segments == 3] *= {"constant": 0, "reversed": -1, "one cluster": 1}[unknown]
    options = pj.Options(intercept=False, targets="none", monotone=True)
    fitted = pj.fit_segments(scores, labels, segments, options=options)
    if unknown == "one cluster":
        days = np.where(segments == 3, -1, np.arange(400))
        rows = scores, labels, segments
        fitted = robust_covariance(fitted, *rows, clusters=days, options=options)
    shifted = fitted.shift_prior(from_rate=0.5, to_rate=0.3)
    with pytest.raises(ValueError, match=r"from_rate: .* of temperatures"):
        pj.inference.estimate_rates(shifted, scores, segments)
    with pytest.raises(ValueError, match="calibrator: expected sigmoids, got temperatures"):
        update(shifted, scores, labels, segments)
    with pytest.raises(ValueError, match=r"drift: .* for temperatures, which have no B, got 0.3"):
        update(fitted, scores, labels, segments, drift=0.3, options=options)


def test_an_updated_calibrator_is_saved_as_any_other(tmp_path):
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    after = update(before, *NIGHTS[1])
    pj.save(tmp_path / "tonight.npz", after)
    assert pj.load(tmp_path / "tonight.npz") == after


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"calibrator": pj.fit([1.0, 2.0], [0, 1])}, "calibrator: expected a SegmentCal.*got Fit"),
        ({"forgetting": 0}, r"forgetting: expected a number in \(0, 1\], got 0"),
        ({"labels": [1, 2]}, "labels: "),
        ({"segments": ["a", "b"]}, "segments"),
        ({"options": None}, "options"),
        ({"drift": -0.1}, r"drift: expected a standard deviation of at least 0, .*got -0.1"),
        ({"drift": 1e300}, r"drift: expected a standard deviation of at least 0, .*got 1e\+300"),
        ({"drift": [[1, 2], [2, 1]]}, "drift: expected"),
        ({"drift": "a lot"}, "drift: expected"),
    ],
)
def test_bad_input(changed, message):
    calibrator = pj.fit_segments([1.0, 2.0], [0, 1], [0, 0])
    given = {"calibrator": calibrator, "scores": [1.0, 2.0], "labels": [0, 1], "segments": [0, 0]}
    with pytest.raises(ValueError, match=message):
        update(**(given | changed))


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_segments_of_several_columns_take_updates(pooling):
    """Before, they were refused: 'got one id per row'."""

    def with_two_columns(night):
        return *night[:2], list(
            zip((night[2] // 10).tolist(), (night[2] % 10).tolist(), strict=True)
        )

    after = [
        update(pj.fit_segments(*ids(NIGHTS[0]), pooling=pooling), *ids(NIGHTS[1]))
        for ids in (lambda night: night, with_two_columns)
    ]
    np.testing.assert_allclose(after[1].fit.A, after[0].fit.A, rtol=1e-9)


def rare_nights(seed, pooling, nights=4):
    """Twenty shops with five rows first, of which two or fewer are positive, and forty a night."""
    rng = np.random.default_rng(seed)
    for rows in [5, *[40] * (nights - 1)]:
        shop = np.repeat(np.arange(20), rows)
        f = rng.normal(size=len(shop))
        y = rng.random(len(f)) < expit(f - 5)
        yield f, y, np.stack([shop // 4, shop], 1) if pooling == "nested" else shop


@pytest.mark.filterwarnings("ignore:.*population:RuntimeWarning")  # so few positives say little
@pytest.mark.parametrize(
    "seed, pooling", [(4, "partial"), pytest.param(8, "nested", marks=pytest.mark.slow)]
)
def test_as_many_positives_are_predicted_as_were_seen(seed, pooling):
    """Before, 276 of 12 in the first update, and 36 of 8 in the second."""
    first, *later = rare_nights(seed, pooling)
    calibrator = pj.fit_segments(*first, pooling=pooling)
    for scores, labels, shops in later:
        calibrator = update(calibrator, scores, labels, shops)
        proba = calibrator.predict_proba(scores, shops)
        deviation = np.sqrt(np.sum(proba * (1 - proba)))
        assert abs(proba.sum() - labels.sum()) < 2 * deviation


@pytest.mark.slow
def test_levels_count_the_rows_of_all_nights():
    nights = [(f, y, np.stack([which // 10, which], 1)) for f, y, which in NIGHTS]
    calibrator = pj.fit_segments(*nights[0], pooling="nested")
    for rows in nights[1:]:
        calibrator = update(calibrator, *rows)
    assert calibrator.levels["rows_per_value"].tolist() == [1000, 100]
    assert (calibrator.fit.n_pos + calibrator.fit.n_neg).sum() == 6000


def test_a_search_without_an_optimum_is_heard(monkeypatch):
    before = pj.fit_segments(*NIGHTS[0], pooling="partial")
    monkeypatch.setattr(search, "_MOST_PASSES", 1)
    with pytest.warns(RuntimeWarning, match="population did not converge") as heard:
        after = update(before, *NIGHTS[1])
    assert heard[0].filename == __file__
    assert after.population.status.name == "MAX_ITERATIONS"


@pytest.mark.parametrize("pooling", ["none", "partial"])
@pytest.mark.parametrize("none", [[], np.empty(0, int), np.empty(0, object)])
def test_without_rows_the_calibrator_is_as_it_was(pooling, none):
    """Before: 'scores: expected (..., N) with rows to fit'."""
    before = pj.fit_segments(*NIGHTS[0], pooling=pooling)
    assert update(before, [], [], none, forgetting=0.5, drift=0.1) == before
    assert update(before, [], [], none, night="Monday").nights == ("Monday",)
    with pytest.raises(ValueError, match="scores: expected"):
        update(before, [], [1], none)


def test_a_night_counts_once(tmp_path):
    """Before, a night that ran twice counted twice."""
    first = update(pj.fit_segments(*NIGHTS[0]), *NIGHTS[1], night="2026-11-25")
    pj.save(tmp_path / "tonight.npz", first)
    for again in (first, pj.load(tmp_path / "tonight.npz"), from_json(to_json(first))):
        assert again == first and again.nights == ("2026-11-25",)
        with pytest.raises(ValueError, match=r"night: expected a night .* got '2026-11-25'"):
            update(again, *NIGHTS[2], night=date(2026, 11, 25))
    assert update(first, *NIGHTS[2], night=7).nights == ("2026-11-25", "7")
    assert update(first, *NIGHTS[2]).only(np.arange(60) < 5).nights == ("2026-11-25",)
    with pytest.raises(ValueError, match="night: expected a name, got ''"):
        update(first, *NIGHTS[2], night="")


def test_a_walk_widens_what_is_known_by_its_variance():
    before = pj.fit_segments(*NIGHTS[0])
    noise = np.array([[0.01, 0.002], [0.002, 0.09]])
    after = update(before, *NIGHTS[1], drift=noise)
    prior = pj.GaussianPrior(
        np.stack([before.fit.A, before.fit.B], -1),
        np.linalg.inv(np.linalg.inv(before.fit.hessian) + noise),
    )
    plain = pj.Options(targets="none")
    expected = pj.fit_segments(*NIGHTS[1], prior=prior, options=plain)
    found = update(before, *NIGHTS[1], drift=noise, options=plain)
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9)
    np.testing.assert_allclose(found.fit.covariance, expected.fit.covariance, rtol=1e-9)
    unseen = update(before, [0.5], [1], [1_000], drift=noise)
    wider = before.fit.covariance + noise
    np.testing.assert_allclose(unseen.fit.covariance[:60], wider, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.inv(unseen.fit.hessian[:60]), wider, rtol=1e-9)
    number = update(before, *NIGHTS[1], drift=0.3).fit
    of_B = update(before, *NIGHTS[1], drift=[[0, 0], [0, 0.09]]).fit
    np.testing.assert_allclose(number.B, of_B.B, rtol=1e-12)
    assert (after.fit.standard_errors > update(before, *NIGHTS[1]).fit.standard_errors).all()


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_likelihoods_after_a_walk_give_the_posterior_of_a_chain(share):
    """By conditioning the joint normal distribution of (A, B) before and after on the rows."""
    rng = np.random.default_rng(1)
    m, roots = rng.normal(size=2), rng.normal(size=(6, 2, 2))
    S, noise, *P = roots @ np.swapaxes(roots, 1, 2)
    P[-1] = np.zeros((2, 2))
    pull = rng.normal(size=(4, 2)) * [[1], [1], [1], [0]]
    of_rows = Likelihoods.from_arrays(np.array(P), pull)
    found = Walk(noise, share).moved_likelihoods(of_rows, m, S)
    now = share**2 * S + noise
    for k in range(4):
        joint = np.linalg.inv(np.block([[S, share * S], [share * S, now]]))
        joint[:2, :2] += P[k]
        mean = np.linalg.solve(joint, np.append(pull[k] - P[k] @ m, [0, 0]))[2:] + m
        covariance = np.linalg.inv(joint)[2:, 2:]
        precision = np.linalg.inv(now) + found.precision.matrices[k]
        np.testing.assert_allclose(np.linalg.inv(precision), covariance, rtol=1e-9)
        at = np.linalg.solve(precision, np.linalg.solve(now, m) + found.pull[k])
        np.testing.assert_allclose(at, mean, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "rows"), [("none", 50), ("partial", 10)])
def test_bands_hold_curves_that_move(pooling, rows):
    """Without drift, they hold .60 to .64 of them by 10 rows a week, and .33 by 50."""
    rng = np.random.default_rng(0)
    A, B = curves(rng, 200, (-1.2, 0), (0.3, 0.5))
    which, calibrator, held = np.repeat(np.arange(200), rows), None, []
    at, who = np.tile([-1.0, 0.0, 1.0], 200), np.repeat(np.arange(200), 3)
    for week in range(20):
        night = rows_of(rng, which, A, B)
        if calibrator is None:
            calibrator = pj.fit_segments(*night, pooling=pooling)
        else:
            calibrator = update(calibrator, *night, drift=0.15)
        if week >= 10:
            lower, upper = calibrator.band(at, who)
            p = expit(-(A[who] * at + B[who]))
            held.append(np.mean((lower <= p) & (p <= upper)))
        B = B + 0.15 * rng.normal(size=200)
    assert 0.92 < np.mean(held) < 0.97


@pytest.mark.slow
def test_the_drift_of_two_periods():
    first, second, third = ((f, y, which) for f, y, which in NIGHTS)
    calibrator = pj.fit_segments(*first, pooling="partial")
    drift = pj.inference.estimate_drift(calibrator, *second)
    nothing = replace(drift, lasting=0.0)
    alone = update(calibrator, *third, drift=nothing).population.likelihood_precision
    np.testing.assert_allclose(
        alone,
        update(calibrator, *third, forgetting=1e-12).population.likelihood_precision,
        rtol=0.05,
        atol=0.05,
    )
    with pytest.raises(ValueError, match=r"drift: expected a number or a covariance .*'none'"):
        update(pj.fit_segments(*first), *second, drift=drift)


@few_rows
@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_float32_rows_far_from_0_are_learnt(pooling):
    """Before, the precision of what is known was indefinite: 'overflowing numbers in 1 of 60'."""
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(60), 2)
    nights = []
    for _ in range(4):
        scores = (100 + np.clip(rng.normal(size=120), -0.7, 0.7)).astype(np.float32)
        nights.append((scores, rng.random(120) < 0.1, which))
    updated = pj.fit_segments(*nights[0], pooling=pooling)
    for rows in nights[1:]:
        updated = update(updated, *rows, drift=0.5)
    assert np.isfinite(updated.fit.A).all()


@few_rows
@pytest.mark.slow
def test_a_row_near_the_only_earlier_one_is_learnt():
    """The Hessian of one row has no information on the slope; rounding in float32 made it < 0."""
    rng = np.random.default_rng(0)
    first = (1e5 * (1 - rng.random(500) / 100)).astype(np.float32)
    second = first + (20 * rng.normal(size=500)).astype(np.float32)
    before = pj.fit_segments(first, np.zeros(500), np.arange(500))
    after = update(before, second, np.zeros(500), np.arange(500), drift=0.5)
    assert np.isfinite(after.fit.A).all()
    same = update(before, first, np.zeros(500), np.arange(500))
    assert np.abs(same.fit.A).max() < 1e-6


@pytest.mark.parametrize("pooling", ["none", "complete"])
def test_what_float32_does_not_hold_of_far_scores_is_kept(pooling):
    """Squares of scores of 1e20 overflow: the segment's earlier fit is kept, and this is said."""
    rng = np.random.default_rng(0)
    scores, segments = rng.normal(size=600).astype(np.float32), np.arange(600) % 3
    labels = labels_of(rng, scores).astype(int)
    scores[:120:3] = -1e20
    before = pj.fit_segments(scores, labels, segments, pooling=pooling)
    rows = rng.normal(size=90).astype(np.float32), labels[:90], segments[:90]
    failed = "1 of 3" if pooling == "none" else "3 of 3"
    with pytest.warns(RuntimeWarning, match=f"{failed} segments failed, first in 0"):
        after = update(before, *rows)
    if pooling == "none":
        assert after.fit.A[0] == before.fit.A[0]
        others = update(before.only(before.keys > 0), *(x[rows[2] > 0] for x in rows))
        np.testing.assert_array_equal(after.fit.A[1:], others.fit.A)
    assert np.isfinite(after.predict_proba(rows[0], rows[2])).all()


@pytest.mark.parametrize(
    ("pooling", "fitted", "given", "message"),
    [
        ("partial", {}, {"intercept": False, "targets": "none"}, "expected True with pooling"),
        ("partial", {}, {"monotone": True}, "monotone"),
        ("none", {}, {"intercept": False}, "expected intercept=True beside sigmoids"),
        ("complete", {}, {"intercept": False}, "expected intercept=True beside sigmoids"),
        ("none", {"targets": "none"}, {}, 'expected targets="none", as the calibrator was fitted'),
    ],
)
def test_options_of_other_curves_than_the_calibrators_are_refused(
    rng, pooling, fitted, given, message
):
    """The curves would be mixtures: intercepts of 0 beside a population that has them."""
    segments = np.arange(400) % 4
    scores = rng.normal(size=400)
    labels = rng.random(400) < 1 / (1 + np.exp(-2 * scores - 1))
    calibrator = pj.fit_segments(
        scores, labels, segments, pooling=pooling, options=pj.Options(**fitted)
    )
    with pytest.raises(ValueError, match=message):
        pj.update(calibrator, scores, labels, segments, options=pj.Options(**given))


@pytest.mark.parametrize("pooling", ["none", "partial", "complete"])
def test_ids_of_one_column_are_as_plain_ones(pooling):
    """As tuples, and with gaps that no row fills."""
    (f, y, which), later = NIGHTS[0], NIGHTS[1]
    new = 3 * np.where(later[2] == 5, 70, later[2])

    def of_one(ids):
        return ids.astype([("shop", ids.dtype)])

    expected = pj.update(pj.fit_segments(f, y, 3 * which, pooling=pooling), *later[:2], new)
    found = pj.fit_segments(f, y, of_one(3 * which), pooling=pooling)
    found = pj.update(found, *later[:2], of_one(new))
    assert found.keys["shop"].tolist() == expected.keys.tolist()
    np.testing.assert_array_equal(
        found.predict_proba(f, of_one(3 * which)), expected.predict_proba(f, 3 * which)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "forgetting", "share", "held"),
    [(4, 1, 1, 0.94), (4, 0.8, 0.6, 0.86), (30, 0.9, 0.96, 0.94)],
)
def test_forgetting_finds_the_spread_too_small_of_few_rows(rows, forgetting, share, held):
    """As docs/explanation/pooling.md has it: the share of the variance, and bands of the unseen."""
    shares, inside = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        effects = 0.6 * rng.normal(size=500)
        segments = np.repeat(np.arange(500), rows)

        def night(rng=rng, effects=effects, segments=segments):
            scores = rng.normal(size=len(segments))
            labels = rng.random(len(segments)) < expit(scores - 0.5 + effects[segments])
            return scores, labels, segments

        calibrator = pj.fit_segments(*night(), pooling="partial")
        for _ in range(24):
            calibrator = update(calibrator, *night(), forgetting=forgetting)
        shares.append(calibrator.population.covariance[1, 1] / effects.var())
        low, high = calibrator.band([0.0], [-1])
        unseen = expit(0.6 * rng.normal(size=4_000) - 0.5)
        inside.append(np.mean((low <= unseen) & (unseen <= high)))
    assert np.mean(shares) == pytest.approx(share, abs=0.06)
    assert np.mean(inside) == pytest.approx(held, abs=0.02)
