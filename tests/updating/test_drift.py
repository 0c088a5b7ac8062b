"""What lasts from one period to the next, and pooling judged by later rows."""

from dataclasses import replace

import numpy as np
import pytest
from data import labels_of, rows_of
from scipy.optimize import minimize
from scipy.special import expit

import platt_jax as pj
from platt_jax import Status, searches
from platt_jax.cli.demo import load_flights
from platt_jax.export import to_json
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results.averages import mean_probability
from platt_jax.updating import drift_model
from platt_jax.updating.drift_model import (
    LaterRows,
    _pooled_mean,
    deviations,
    lasting_share,
    next_population,
)


def periods(seed, sizes, lasting, mean=(-1.5, 0.5), spread=(0.7, 0.5), number=2, shift=0.0):
    """Scores, labels and segments of so many periods; a share of the deviations lasts."""
    rng = np.random.default_rng(seed)
    which = np.repeat(np.arange(len(sizes)), sizes)
    x, made = rng.normal(size=(len(sizes), 2)), []
    for period in range(number):
        if period:
            new = rng.normal(size=x.shape)
            x = lasting * x + np.sqrt(1 - lasting**2) * new
        made.append(rows_of(rng, which, *(np.array(mean) + x * spread + [0, shift * period]).T))
    return made


def drift_of(first, second, **options):
    return pj.inference.estimate_drift(
        pj.fit_segments(*first, pooling="partial"), *second, **options
    )


@pytest.fixture(scope="module")
def two():
    return periods(0, np.tile([5, 20, 30], 40), 0.5)


@pytest.fixture(scope="module")
def drift(two):
    return drift_of(*two)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mean, spread, rows, lasting",
    [
        ((-1.5, 0.5), (0.7, 0.5), 50, 0.0),
        ((-1, 4), (0.3, 1), 200, 0.5),
        ((-1.5, 0.5), (0.7, 0.5), 50, 1.0),
    ],
)
def test_the_share_that_lasts_is_found(mean, spread, rows, lasting):
    of_worlds = [
        drift_of(*periods(seed, np.full(300, rows), lasting, mean, spread)) for seed in range(4)
    ]
    found = np.array([x.lasting for x in of_worlds])
    errors = np.array([x.lasting_error for x in of_worlds])
    assert np.abs(found.mean() - lasting) < 3 * np.sqrt(np.sum(errors**2)) / len(errors)
    assert np.all((errors > 0.02) & (errors < 0.12))


def test_it_is_the_share_of_greatest_likelihood():
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(30), 40)
    scores, weights = rng.normal(size=1200), rng.integers(1, 4, 1200).astype(float)
    moved = rng.normal(size=30)[which] * (1 + 0.3 * scores)
    spread, known = 1 + scores**2 / 4, 0.6 + scores**2 / 8
    labels = labels_of(rng, 1.2 * scores - 0.7 + 0.6 * moved)
    rows = LaterRows(scores, labels, weights, which, moved, spread, known)
    share, error, _ = lasting_share(rows, np.zeros(2))
    nodes, of_nodes = np.polynomial.hermite_e.hermegauss(60)

    def log_likelihoods(at):
        deviation = np.sqrt(spread - at[2] ** 2 * known)
        logit = -(at[0] * scores + at[1]) + at[2] * moved
        p = expit(logit[:, None] + deviation[:, None] * nodes) @ of_nodes / of_nodes.sum()
        return weights * np.log(np.where(labels, p, 1 - p))

    best = minimize(lambda at: -log_likelihoods(at).mean(), [-1, 0.5, 0.5], tol=1e-9)
    assert share == pytest.approx(best.x[2], abs=1e-4)
    step = 1e-4 * np.eye(3)
    each = np.array(
        [(log_likelihoods(best.x + d) - log_likelihoods(best.x - d)) / 2e-4 for d in step]
    )
    score = np.where(labels, 1, -1) * each / weights
    p = np.exp(log_likelihoods(best.x) / weights)  # of the label that came
    information = (weights * p / (1 - p) * score) @ score.T
    sums = np.array([np.bincount(which, x) for x in each])
    influence = np.linalg.solve(information, sums)[2]
    assert error == pytest.approx(np.sqrt(30 / 29 * np.sum(influence**2)), rel=1e-3)


def test_segments_have_the_conditional_distribution_of_a_joint_normal():
    """A dense 6 by 6 normal of one segment's deviations in three periods, conditioned."""
    rng = np.random.default_rng(1)
    first, second = (pj.fit_segments(*x, pooling="partial") for x in periods(3, [20] * 40, 0.5))
    both, share, ahead = (first, second), 0.4, 1.7
    half = rng.normal(size=(2, 1, 2, 2))
    of = [Likelihoods.from_arrays(x @ np.swapaxes(x, 1, 2), rng.normal(size=(1, 2))) for x in half]
    weight = np.array([0.3, 0.7])
    made = next_population(both, of, weight, share, ahead)
    S = 0.3 * first.population.covariance + 0.7 * second.population.covariance
    kept = share**ahead
    correlation = np.array([[1, share, share * kept], [share, 1, kept], [share * kept, kept, 1]])
    precision = np.linalg.inv(np.kron(correlation, S))
    for period, at in zip(of, (slice(0, 2), slice(2, 4)), strict=True):
        precision[at, at] += period.precision.matrices[0]
    covariance = np.linalg.inv(precision)
    pull = np.concatenate([*(x.pull[0] for x in of), [0, 0]])
    np.testing.assert_allclose(
        made.posterior_covariance[0] - made.mean_covariance, covariance[4:, 4:]
    )
    np.testing.assert_allclose(
        made.posterior_mean[0] - made.mean, (covariance @ pull)[4:], atol=1e-12
    )
    errors = (0.3 * first.population.covariance_errors, 0.7 * second.population.covariance_errors)
    np.testing.assert_allclose(made.covariance_errors, np.hypot(*errors))


def test_where_nothing_lasts_it_is_one_curve_for_all():
    made = periods(1, np.full(400, 50), 0.0, spread=(0.3, 1.0))
    drift = drift_of(*made)
    assert abs(drift.lasting) < 3 * drift.lasting_error
    both = [np.concatenate(x) for x in zip(*made, strict=True)]
    one = pj.fit_segments(*both, pooling="complete")
    at = np.linspace(-2, 2, 5)
    for score in at:
        of_segments = drift.calibrator.predict_proba(np.full(400, score), np.arange(400))
        one_curve = one.predict_proba([score], [0])
        assert of_segments.mean() == pytest.approx(one_curve[0], abs=0.01)
        assert of_segments.std() < 0.02


def test_where_all_lasts_it_is_partial_pooling_of_both():
    made = periods(6, np.full(400, 50), 1.0)
    drift = drift_of(*made)
    assert abs(drift.lasting - 1) < 3 * drift.lasting_error
    both = [np.concatenate(x) for x in zip(*made, strict=True)]
    pooled = pj.fit_segments(*both, pooling="partial")
    scores, _, which = both
    off = drift.calibrator.predict_proba(scores, which) - pooled.predict_proba(scores, which)
    assert np.sqrt(np.mean(off**2)) < 0.015


@pytest.mark.slow
def test_rare_positives_are_as_many_as_predicted():
    *made, later = periods(2, np.full(2000, 20), 0.5, (-1, 5), (0.3, 1.0), number=3)
    drift = drift_of(*made)
    expected = drift.calibrator.predict_proba(later[0], later[2]).sum()
    assert abs(later[1].sum() - expected) < 4 * np.sqrt(expected)


def test_a_common_shift_is_no_loss_of_what_lasts():
    drift = drift_of(*periods(5, np.full(300, 50), 1.0, shift=1.0))
    assert abs(drift.lasting - 1) < 3 * drift.lasting_error
    assert drift.shift[1] == pytest.approx(1, abs=0.15)
    assert drift.calibrator.population.mean_covariance[1, 1] > 0.2


def test_farther_ahead_less_is_left(two):
    near, far = (drift_of(*two, ahead=x).calibrator.population for x in (1.0, 3.0))
    assert np.all(far.shrinkage > near.shrinkage)
    assert far.posterior_mean.std(0)[1] < near.posterior_mean.std(0)[1]


def test_repr(drift):
    assert repr(drift).startswith("Drift of 120 segments between two periods\n  lasting: 0.")


def test_segments_of_one_period_only_and_of_none(two):
    (f, y, g), (f2, y2, g2) = two
    early, late = g < 100, g2 >= 20
    made = drift_of((f[early], y[early], g[early]), (f2[late], y2[late], g2[late])).calibrator
    assert made.keys.tolist() == list(range(120))
    counts = np.bincount(g[early], minlength=120) + np.bincount(g2[late], minlength=120)
    np.testing.assert_array_equal(made.fit.n_pos + made.fit.n_neg, counts)
    of_first_only, of_both = made.population.shrinkage[2:20:3], made.population.shrinkage[20:98:3]
    assert of_first_only.mean() > of_both.mean()
    unseen = made.predict_proba([0.3], [999])
    population = made.population
    wide = np.append(population.mean, population.predictive_covariance.ravel()[[0, 1, 3]])
    assert unseen[0] == pytest.approx(mean_probability(np.array([0.3]), wide[None])[0])
    assert np.isfinite(made.predict_proba(f, g)).all()


@pytest.mark.parametrize("kind", ["text", "columns"])
def test_segments_of_any_kind(two, drift, kind):
    def named(g):
        return [f"shop {i:03}" for i in g] if kind == "text" else [(int(i), "x") for i in g]

    made = drift_of(*((f, y, named(g)) for f, y, g in two))
    assert made.lasting == pytest.approx(drift.lasting, abs=1e-9)
    f, _, g = two[0]
    np.testing.assert_allclose(
        made.calibrator.predict_proba(f, named(g)), drift.calibrator.predict_proba(f, g), rtol=1e-6
    )


def test_scaled_and_shifted_scores_change_no_probability(two, drift):
    made = drift_of(*((1000 + 20 * f, y, g) for f, y, g in two))
    assert made.lasting == pytest.approx(drift.lasting, abs=1e-3)
    f, _, g = two[0]
    np.testing.assert_allclose(
        made.calibrator.predict_proba(1000 + 20 * f, g),
        drift.calibrator.predict_proba(f, g),
        rtol=2e-3,
    )


def test_weights_count_rows(two):
    first, (f, y, g) = two
    doubled = drift_of(first, [np.concatenate([x, x]) for x in (f, y, g)])
    weighted = drift_of(first, (f, y, g), weights=np.full(len(f), 2.0))
    assert weighted.lasting == pytest.approx(doubled.lasting, abs=1e-6)
    assert weighted.lasting_error == pytest.approx(doubled.lasting_error, rel=1e-4)


@pytest.mark.slow
def test_float32_agrees(two, drift):
    made = drift_of(*((f.astype(np.float32), y, g) for f, y, g in two))
    assert made.calibrator.fit.A.dtype == np.float32
    assert made.lasting == pytest.approx(drift.lasting, abs=1e-3)


@pytest.mark.filterwarnings("ignore:.*NON_FINITE:RuntimeWarning")
def test_a_segment_that_failed_keeps_its_earlier_period(two):
    (f, y, g), (f2, y2, g2) = two
    f2 = np.where((g2 == 7) & (np.arange(len(g2)) % 2 == 0), np.nan, f2)
    made = drift_of((f, y, g), (f2, y2, g2)).calibrator
    assert np.isfinite(made.predict_proba([0.5], [7])).all() and made.fit.converged.all()
    assert made.population.shrinkage[7] > made.population.shrinkage[10]


def test_it_is_an_ordinary_calibrator(two, drift, tmp_path):
    made = drift.calibrator
    pj.save(tmp_path / "next.npz", made)
    assert pj.load(tmp_path / "next.npz") == made
    assert to_json(made)
    low, high = made.band(two[0][0], two[0][2])
    assert np.all(low < high)
    updated = pj.update(made, *two[1])
    assert updated.fit.converged.all() and updated.population.estimated


@pytest.mark.slow
def test_flights_of_a_quarter_judged_by_the_next():
    """Partial pooling loses to one curve, and what lasts of it does not."""
    flights = load_flights()
    scores = flights.score.astype(float)
    judged = pj.inference.judge_pooling(scores, flights.outcome, flights.route, flights.day, 273)
    loss = dict(zip(judged["pooling"], judged["log_loss"], strict=True))
    error = dict(zip(judged["pooling"], judged["standard_error"], strict=True))
    assert loss["partial"] - loss["complete"] > 3 * error["partial"] > 0.002
    assert loss["drift"] < min(loss["partial"], loss["complete"]) + 0.0003


def test_a_stationary_world_loses_little():
    made = periods(8, np.full(500, 50), 1.0, number=3)
    rows = [np.concatenate(x) for x in zip(*made, strict=True)]
    judged = pj.inference.judge_pooling(*rows, np.repeat([0, 1, 2], 500 * 50), 2)
    loss = dict(zip(judged["pooling"], judged["log_loss"], strict=True))
    assert loss["drift"] < loss["partial"] + 0.0003 < loss["complete"] - 0.02


@pytest.mark.parametrize("dates", [False, True])
def test_labels_that_come_late_are_not_fitted(dates, rng):
    months, shops = np.repeat([0, 1, 2], 1_000), np.arange(3_000) % 20
    scores = rng.normal(size=3_000)
    labels = rng.random(3_000) < 1 / (1 + np.exp(-scores))
    came = np.where(rng.random(3_000) < 0.3, 5, months)
    known = (months < 2) & (came < 2)
    late = labels ^ ~known  # labels that are not known say the opposite
    evaluated = months == 2
    late[evaluated] = labels[evaluated]
    if dates:
        months, came, cut = (np.datetime64("2026-01") + np.array(x) for x in (months, came, 2))
        came = np.where(came == np.datetime64("2026-06"), np.datetime64("NaT"), came)
    else:
        cut, came = 2, np.where(came == 5, np.nan, came)
    first, second = (
        pj.inference.judge_pooling(scores, y, shops, months, cut, available=came)
        for y in (labels, late)
    )
    np.testing.assert_array_equal(first["log_loss"], second["log_loss"])
    fitted = pj.fit_segments(scores[known], labels[known], shops[known], pooling="partial")
    proba = fitted.predict_proba(scores[evaluated], shops[evaluated])
    partial = first["log_loss"][first["pooling"] == "partial"]
    np.testing.assert_allclose(partial, pj.metrics.log_loss(labels[evaluated], proba), rtol=1e-6)
    with pytest.raises(ValueError, match="cuts: expected rows with labels before"):
        never = np.full(3_000, np.nan) if not dates else np.full(3_000, "NaT", "M8[M]")
        pj.inference.judge_pooling(scores, labels, shops, months, cut, available=never)
    with pytest.raises(ValueError, match=r"available: expected shape \(3000,\)"):
        pj.inference.judge_pooling(scores, labels, shops, months, cut, available=came[:9])
    others = np.zeros(3_000) if dates else np.full(3_000, "2100-01-01", "M8[D]")
    told = "dates" if dates else "numbers"
    with pytest.raises(ValueError, match=f"available: expected {told}, as times are, got"):
        pj.inference.judge_pooling(scores, labels, shops, months, cut, available=others)


@pytest.mark.filterwarnings("ignore:pooling. There is no population:RuntimeWarning")
def test_what_cannot_be_estimated_is_refused(two):
    first, (f, y, g) = two
    fitted = pj.fit_segments(*first, pooling="partial")
    ids = np.stack([first[2] % 3, first[2]], 1)
    nested = pj.fit_segments(*first[:2], ids, pooling="nested")
    for call, message in (
        (
            lambda: pj.inference.estimate_drift(first, f, y, g),
            "calibrator: expected a SegmentCalibrator",
        ),
        (
            lambda: pj.inference.estimate_drift(pj.fit_segments(*first), f, y, g),
            'calibrator: expected a calibrator with pooling="partial"',
        ),
        (
            lambda: pj.inference.estimate_drift(nested, f, y, np.stack([g % 3, g], 1)),
            r"calibrator: expected pooling=.partial., got pooling=.nested.",
        ),
        (
            lambda: pj.inference.estimate_drift(fitted, f, y, g, ahead=0),
            "ahead: expected a number above 0",
        ),
        (lambda: pj.inference.estimate_drift(fitted, f, y, g + 500), "segments: expected some of"),
        (lambda: pj.inference.estimate_drift(fitted, f, 0 * y, g), "scores: .* NOT_ESTIMATED"),
        (lambda: pj.inference.estimate_drift(fitted, f, y[1:], g), "labels: expected a shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.fixture(scope="module")
def later():
    made = periods(4, np.full(60, 15), 0.5, number=4)
    rows = [np.concatenate(x) for x in zip(*made, strict=True)]
    return *rows, np.repeat(np.arange(4), 60 * 15)


def test_losses_are_those_of_fits_of_earlier_rows(later):
    scores, labels, segments, times = later
    judged = pj.inference.judge_pooling(*later, [2, 3])
    assert judged["cut"].tolist() == [2] * 4 + [3] * 4
    place = 0
    for cut in (2, 3):
        early, late = times < cut, times == cut
        each = {}
        for pooling in ("complete", "partial", "none", "drift"):
            fitted = scores[early], labels[early], segments[early]
            if pooling == "drift":
                halves = (times < cut / 2), (times >= cut / 2) & early
                of = [(scores[x], labels[x], segments[x]) for x in halves]
                steps = [times[x].mean() for x in (*halves, late)]
                ahead = (steps[2] - steps[1]) / (steps[1] - steps[0])
                calibrator = drift_of(*of, ahead=ahead).calibrator
            else:
                calibrator = pj.fit_segments(*fitted, pooling=pooling)
            p = calibrator.predict_proba(scores[late], segments[late])
            each[pooling] = -np.log(np.where(labels[late] == 1, p, 1 - p))
            apart = each[pooling] - each["complete"]
            of_segment = [np.sum((apart - apart.mean())[segments[late] == k]) for k in range(60)]
            error = np.sqrt(60 / 59 * np.sum(np.square(of_segment))) / late.sum()
            expected = each[pooling].mean(), apart.mean(), error
            line = [judged[x][place] for x in ("log_loss", "difference", "standard_error")]
            np.testing.assert_allclose(line, expected, rtol=1e-9, atol=1e-12)
            assert judged["pooling"][place] == pooling and judged["rows"][place] == late.sum()
            place += 1


def test_dates_are_times(later):
    *rows, times = later
    dates = np.datetime64("2013-01-01") + times * np.timedelta64(7, "D")
    by_date = pj.inference.judge_pooling(*rows, dates, ["2013-01-15", "2013-01-22"])
    by_number = pj.inference.judge_pooling(*rows, times, [2, 3])
    np.testing.assert_allclose(by_date["log_loss"], by_number["log_loss"], rtol=1e-9)
    assert by_date["cut"].dtype.kind == "M"
    # A time of day lies after the date alone: rows of that date are earlier.
    within = pj.inference.judge_pooling(*rows, dates, ["2013-01-08T12:00", "2013-01-15T12:00"])
    np.testing.assert_allclose(within["log_loss"], by_number["log_loss"], rtol=1e-9)
    assert within["cut"][0] == np.datetime64("2013-01-08T12:00")


def test_without_a_drift_to_estimate_there_is_no_such_line(later):
    scores, labels, segments, _ = later
    alone = pj.inference.judge_pooling(scores, labels, segments, np.arange(len(scores)) % 2, 1)
    assert alone["pooling"].tolist() == ["complete", "partial", "none"]


def test_rows_that_cannot_be_judged_are_refused(later):
    scores, labels, segments, times = later
    for change, message in (
        (
            {"scores": np.where(times == 1, np.nan, scores)},
            "scores, labels, offset: expected finite",
        ),
        ({"segments": segments[1:]}, "segments: expected one id per row"),
        ({"times": times[1:]}, "times: expected shape"),
        ({"times": np.where(times == 1, np.nan, times)}, "times: expected finite"),
        ({"cuts": []}, "cuts: expected one or more"),
        ({"cuts": [3, 2]}, "cuts: expected one or more times, ascending"),
        ({"cuts": 0}, "cuts: expected rows before 0"),
        ({"cuts": 9}, "cuts: expected rows from 9"),
        ({"times": times.astype("M8[D]"), "cuts": "soon"}, "cuts: expected dates"),
        (
            {"times": np.where(times == 1, np.datetime64("NaT"), times.astype("M8[D]"))},
            "times: expected finite numbers or dates",
        ),
    ):
        given = {
            "scores": scores,
            "labels": labels,
            "segments": segments,
            "times": times,
            "cuts": 2,
        } | change
        with pytest.raises(ValueError, match=message):
            pj.inference.judge_pooling(**given)


def test_bands_hold_the_later_curves_where_half_lasts():
    seed, spread, mean = 9, (0.7, 0.5), (-1.5, 0.5)
    *made, _ = periods(seed, np.full(600, 60), 0.5, mean, spread, number=3)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 2))
    for period in range(3):
        if period:
            x = 0.5 * x + np.sqrt(0.75) * rng.normal(size=x.shape)
        rng.normal(size=36_000), rng.random(36_000)
    A, B = (np.array(mean) + x * spread).T
    segments = np.arange(600)
    for score in (-1.0, 0.0, 1.0):
        low, high = drift_of(*made).calibrator.band(np.full(600, score), segments)
        truth = expit(-(A * score + B))
        assert 0.92 < np.mean((low < truth) & (truth < high)) < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("seed", [12, 15, 16])
def test_a_few_positives_leave_a_large_error(seed):
    """16 of 2,100 rows, and no spread: before, shares were 2.8 to 3.8 errors outside [0, 1]."""
    rng = np.random.default_rng(seed)
    which, scores = np.repeat(np.arange(700), 3), rng.normal(size=(2, 2_100))
    labels = rng.random(scores.shape) < expit(scores - 5.3)
    calibrator = pj.fit_segments(scores[0], labels[0], which, pooling="partial")
    drift = pj.inference.estimate_drift(calibrator, scores[1], labels[1], which)
    assert max(-drift.lasting, drift.lasting - 1) < 2 * drift.lasting_error


def test_a_search_for_the_share_that_does_not_converge_is_heard(two, monkeypatch):
    earlier = pj.fit_segments(*two[0], pooling="partial")
    monkeypatch.setattr(searches, "_MOST_ASCENTS", 0)
    monkeypatch.setattr(drift_model, "_START", 5.0)
    with pytest.warns(RuntimeWarning, match="pooling: the search for the population did not conv"):
        drift = pj.inference.estimate_drift(earlier, *two[1])
    assert drift.calibrator.population.status == Status.MAX_ITERATIONS


@pytest.mark.parametrize("other", [Status.CONVERGED, Status.BOUNDARY])
def test_a_population_that_did_not_converge_is_heard_of_the_next_one(two, other):
    first, second = (pj.fit_segments(*x, pooling="partial") for x in two)
    both = [
        replace(x, population=replace(x.population, status=status))
        for x, status in ((first, other), (second, Status.MAX_ITERATIONS))
    ]
    periods = [deviations(x, first.keys) for x in both]
    made = next_population(both, periods, np.array([0.5, 0.5]), 0.5, 1.0)
    assert made.status == Status.MAX_ITERATIONS


@pytest.mark.parametrize(
    "variance, B", [(0.1, 0.5), (4.0, 0.5), (400.0, 0.5), (16.0, 0.4), (21.0, -1.8), (34.0, 1.8)]
)
def test_the_mean_of_sigmoids_is_the_pooled_curve(two, variance, B):
    calibrator = pj.fit_segments(*two[0], pooling="partial")
    fallback = pj.Sigmoid(calibrator.fallback.A, B)
    calibrator = replace(calibrator, fallback=fallback)
    mean = _pooled_mean(calibrator, variance * np.eye(2))
    information = np.linalg.inv(calibrator.fallback_covariance)
    center = information[0, 1] / information[1, 1]
    spread = np.sqrt(information[0, 0] / information[1, 1] - center**2)
    scores = center + spread * np.array([-1, 1])
    made = mean_probability(scores, np.tile([*mean, variance, 0, variance], (2, 1)))
    np.testing.assert_allclose(made, calibrator.fallback.predict_proba(scores), rtol=1e-9)


def test_what_lasts_has_the_nights_and_the_options_of_both():
    first, second = periods(0, np.full(40, 30), 0.5)
    options = pj.Options(non_finite="omit")
    known = pj.update(
        pj.fit_segments(*first, pooling="partial", options=options), *second, night="Monday"
    )
    lasting = pj.inference.estimate_drift(known, *first, options=options).calibrator
    assert lasting.nights == ("Monday",) and lasting.options == options
    with pytest.raises(ValueError, match="Monday"):
        pj.update(lasting, *second, night="Monday")
    offset = np.ones(len(first[0]))
    known = pj.fit_segments(*first, pooling="partial", offset=offset)
    lasting = pj.inference.estimate_drift(known, *second, offset=np.ones(len(second[0])))
    assert "offset" in lasting.calibrator.events
