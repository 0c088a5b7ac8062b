"""Thresholds: predictions reach the probability there, by every kind of calibrator."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr

import platt_jax as pj
from platt_jax import curves
from platt_jax.curves.fitting import as_curves
from platt_jax.results import averages, thresholds
from platt_jax.results.mixed_curves import MixedCurves

P = np.array([0.001, 0.02, 0.3, 0.5, 0.8, 0.95, 0.99])


def rows(rng, segments=60, each=20, base=-1.0, spread=0.5):
    """Scores, labels and ids."""
    ids = np.repeat(np.arange(segments), each)
    scores = rng.normal(size=len(ids))
    slope = np.exp(rng.normal(0.4, spread, segments))[ids]
    log_odds = slope * scores + rng.normal(base, 0.7, segments)[ids]
    return scores, rng.random(len(ids)) < expit(log_odds), ids


@pytest.fixture
def pooled(rng):
    return pj.fit_segments(*rows(rng), pooling="partial")


def assert_reached(calibrator, p, ids=None, **given):
    """The prediction is p where there is a threshold; how many have none."""
    at = calibrator.threshold(p, ids, **given)
    known = np.isfinite(at)
    ids = calibrator.keys if ids is None else ids
    level = given.pop("level", None)
    if level is None:
        made = calibrator.predict_proba(at[known], ids[known], **given)
    else:
        made = calibrator.band(at[known], ids[known], level, **given)[0]
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, p, rtol=0, atol=1e-7)
    np.testing.assert_allclose(logit(made), logit(p), rtol=0, atol=1e-10)
    return np.count_nonzero(~known)


@pytest.mark.parametrize("pooling", ["none", "partial", "complete"])
@pytest.mark.parametrize("level", [None, 0.9])
@pytest.mark.parametrize("given", [{}, {"offset": 1.3}])
def test_predictions_reach_the_probability(rng, pooling, level, given):
    calibrator = pj.fit_segments(*rows(rng), pooling=pooling)
    for p in P:
        assert_reached(calibrator, p, level=level, **given)
        assert_reached(calibrator, p, np.array([1000, 3]), level=level, **given)
    assert assert_reached(calibrator, 0.5, level=level, **given) < 40


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_and_their_unseen_segments(rng, pooling):
    scores, labels, ids = rows(rng)
    pairs = (
        np.stack([ids // 6, ids], 1) if pooling == "nested" else np.stack([ids // 6, ids % 6], 1)
    )
    calibrator = pj.fit_segments(scores, labels, pairs, pooling=pooling)
    assert assert_reached(calibrator, 0.5) < 5
    unseen = [(2, 1000), (1000, 2)]
    at = calibrator.threshold(0.4, unseen)
    np.testing.assert_allclose(calibrator.predict_proba(at, unseen), 0.4, atol=1e-7)
    table = calibrator.threshold_table(0.4, unseen)
    assert [len(x) for x in table.values()] == [2] * 7


@pytest.mark.parametrize("base", [-4.0, 0.0, 3.0])
@pytest.mark.parametrize("each", [3, 20])
@pytest.mark.parametrize("level", [None, 0.9])
def test_where_there_is_no_threshold_no_score_has_the_probability(rng, base, each, level):
    """A dense grid finds no rising branch that was missed."""
    scores, labels, ids = rows(rng, each=each, base=base)
    calibrator = pj.fit_segments(scores, labels, ids, pooling="partial")
    grid = np.tan(np.linspace(-np.pi / 2, np.pi / 2, 2_001))
    predicted = calibrator.predict_proba
    if level is not None:
        predicted = lambda f, k: calibrator.band(f, k, level)[0]  # noqa: E731
    proba = np.stack([predicted(grid, k) for k in calibrator.keys])
    falls = calibrator.predictive()[:-1, 0] > 0
    proba = np.where(falls[:, None], proba[:, ::-1], proba)
    states = set()
    for p in P:
        table = calibrator.threshold_table(p, level=level)
        states |= set(table["status"])
        # The branch that rises ends at the highest point, and begins at the lowest.
        beyond = proba.max(1) < p - 1e-6
        assert (table["status"][beyond] == "UNREACHED").all()
        assert (table["status"][proba.max(1) > p + 1e-6] != "UNREACHED").all()
        assert (table["status"][proba.min(1) > p + 1e-6] == "EXCEEDED").all()
        assert (table["status"][proba.min(1) < p - 1e-6] != "EXCEEDED").all()
        side = np.where(falls, -1, 1)
        for status, end in (("UNREACHED", np.inf), ("EXCEEDED", -np.inf)):
            some = table["status"] == status
            np.testing.assert_array_equal(table["threshold"][some], (side * end)[some])
    assert "OK" in states


def test_the_limit_is_that_of_the_sign_of_a_normal_slope(pooled):
    """Phi(-A / sd A), or above it where the curve overshoots."""
    A, B, c_AA, c_AB, _ = pooled.predictive()[:-1].T
    limit = ndtr(-A / np.sqrt(c_AA))
    at_center = -(B - A * c_AB / c_AA)
    over = at_center > 0
    p = 0.98
    none = pooled.threshold_table(p)["status"] == "UNREACHED"
    np.testing.assert_array_equal(none[~over], limit[~over] < p)
    assert not (none & over & (limit > p)).any()


def test_a_search_takes_at_most_twelve_steps(rng, monkeypatch):
    roots, steps = thresholds.newton_roots, []

    def counted(function, *given):
        def count(at):
            steps[-1] += 1
            return function(at)

        return roots(count, *given)

    monkeypatch.setattr(thresholds, "newton_roots", counted)
    for base, each in ((-3.0, 50), (0.0, 20), (2.0, 4)):
        calibrator = pj.fit_segments(*rows(rng, each=each, base=base), pooling="partial")
        for p in P:
            for level in (None, 0.95):
                steps.append(0)
                calibrator.threshold(p, level=level)
    assert max(steps) <= 12
    assert min(steps) >= 0 and sum(steps) > 50


def test_the_mode_is_not_where_the_prediction_is(rng):
    """The reason for the method: base log-odds -3, 50 rows."""
    calibrator = pj.fit_segments(*rows(rng, each=50, base=-3.0), pooling="partial")
    at_mode = calibrator.fit.sigmoid.inverse(np.full((60, 1), 0.8))[:, 0]
    assert calibrator.predict_proba(at_mode, calibrator.keys).min() < 0.7
    assert assert_reached(calibrator, 0.8) < 10


def test_scores_far_from_zero_and_of_any_scale(rng):
    scores, labels, ids = rows(rng)
    near = pj.fit_segments(scores, labels, ids, pooling="partial")
    for scale, shift in ((1e-8, 0.0), (1e6, 0.0), (1.0, 1e5)):
        far = pj.fit_segments(scores * scale + shift, labels, ids, pooling="partial")
        for level in (None, 0.9):
            expected = near.threshold(0.6, level=level)
            found = (far.threshold(0.6, level=level) - shift) / scale
            np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
            some = np.isfinite(found)
            np.testing.assert_allclose(found[some], expected[some], rtol=1e-4, atol=1e-4)


def test_falling_curves_say_so(rng):
    scores, labels, ids = rows(rng)
    up, down = (pj.fit_segments(x * scores, labels, ids, pooling="partial") for x in (1, -1))
    # The populations of both are near each other.
    np.testing.assert_allclose(up.threshold(0.6), -down.threshold(0.6), rtol=0.02)
    assert assert_reached(down, 0.6) < 10
    steep = up.predictive()[:-1, 0] < 0
    assert (up.threshold_table(0.6)["direction"][steep] == "above").all()
    assert (down.threshold_table(0.6)["direction"][steep] == "below").all()


@pytest.mark.slow
def test_float32_and_nan_curves(rng):
    scores, labels, ids = rows(rng)
    scores = scores.astype(np.float32)
    scores[ids == 4] = np.nan
    with pytest.warns(RuntimeWarning):
        calibrator = pj.fit_segments(scores, labels, ids, pooling="partial")
    table = calibrator.threshold_table(0.5)
    assert table["status"][4] == "NON_FINITE" and np.isnan(table["threshold"][4])
    at = np.delete(calibrator.threshold(0.5), 4)
    np.testing.assert_allclose(
        calibrator.predict_proba(at, np.delete(calibrator.keys, 4)), 0.5, atol=1e-7
    )
    with pytest.warns(RuntimeWarning):
        alone = pj.fit_segments(scores, labels, ids)
    assert np.isnan(alone.threshold(0.5)[4])


def test_costs(pooled):
    np.testing.assert_allclose(pooled.threshold(cost=(1, 3)), pooled.threshold(0.25), rtol=1e-12)
    each = pooled.threshold(cost=(np.linspace(1, 2, 60), 3))
    assert np.isfinite(each).all() and np.ptp(each) > 0
    # The least total cost is there: of a curve that is known.
    curve = pj.Sigmoid(-2.0, 1.0)
    f = np.linspace(-3, 4, 20_001)
    p = curve.predict_proba(f)
    cost = np.cumsum(3 * p) - np.cumsum(1 - p)  # of moving the threshold up
    known = pj.SegmentCalibrator(np.array(["a"]), pj.fit([[1.0, 0.0]], [[1, 0]]), curve).threshold(
        cost=(1, 3), segments=["b"]
    )
    np.testing.assert_allclose(known, f[np.argmin(cost)], atol=1e-3)


def test_a_flat_curve_has_its_probability_everywhere():
    calibrator = pj.fit_segments([1.0, 1.0, 1.0, 1.0], [1, 0, 0, 0], ["a"] * 4)
    p = float(calibrator.predict_proba([0.0], ["a"])[0])
    table = calibrator.threshold_table([p - 0.01, p + 0.01], "a")
    assert table["threshold"].tolist() == [-np.inf, np.inf]
    assert table["status"].tolist() == ["EXCEEDED", "UNREACHED"]


def test_after_a_shift_of_the_rate(pooled):
    assert assert_reached(pooled.shift_prior(0.3, 0.1), 0.4) < 10


def test_certain_probabilities_are_at_infinity(pooled):
    assert (pooled.threshold(1.0) == np.inf).all()
    assert (pooled.threshold(0.0) == -np.inf).all()


@pytest.mark.slow
def test_intervals_hold_the_true_score(rng):
    """By the delta method, where slopes are known well."""
    ids = np.repeat(np.arange(400), 200)
    scores = rng.normal(size=len(ids))
    slope, intercept = np.exp(rng.normal(0.3, 0.2, 400)), rng.normal(-0.5, 0.5, 400)
    labels = rng.random(len(ids)) < expit(slope[ids] * scores + intercept[ids])
    table = pj.fit_segments(scores, labels, ids, pooling="partial").threshold_table(0.6)
    true = (logit(0.6) - intercept) / slope
    held = np.mean((table["lower"] <= true) & (true <= table["upper"]))
    assert 0.92 < held < 0.98
    narrow = pj.fit_segments(scores, labels, ids).threshold_table(0.6, level=0.5)
    inside = np.mean((narrow["lower"] <= true) & (true <= narrow["upper"]))
    assert 0.42 < inside < 0.58


# --- other curves ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("curve", ["shift", "temperature", "quadratic", "beta", "spline"])
@pytest.mark.parametrize("level", [None, 0.8])
def test_smooth_curves(rng, curve, level):
    scores, labels, ids = rows(rng, segments=20, each=300, spread=0.2)
    calibrator = pj.fit_segments(scores, labels, ids, curve=curve)
    for p in (0.1, 0.3, 0.6):
        at = calibrator.threshold(p, level=level)
        table = calibrator.threshold_table(p, level=level)
        known = np.isfinite(at)
        # A part of the curves may fall, or have a band that does not reach it.
        assert known.mean() > 0.5
        np.testing.assert_array_equal(known, table["status"] == "OK")
        if calibrator.curves is not None:
            falls = ~calibrator.curves.is_monotone[:-1]
            np.testing.assert_array_equal(table["status"] == "NOT_MONOTONE", falls)
        keys = calibrator.keys[known]
        if level is None:
            made = calibrator.predict_proba(at[known], keys)
            assert (np.isfinite(table["lower"]) == known).all()
        else:
            made = calibrator.band(at[known], keys, level)[0]
        np.testing.assert_allclose(logit(made), logit(p), rtol=0, atol=1e-9)


@pytest.mark.parametrize("curve", ["isotonic", "bins", "venn_abers"])
@pytest.mark.parametrize("offset", [None, 0.7])
def test_curves_of_sorted_scores(rng, curve, offset):
    """The smallest score with the probability or a higher one."""
    calibrator = pj.fit_segments(*rows(rng, segments=20, each=100), curve=curve)
    for p in (0.02, 0.3, 0.6, 0.97):
        table = calibrator.threshold_table(p, offset=offset)
        at, keys = table["threshold"], calibrator.keys
        known = np.isfinite(at)
        here = calibrator.predict_proba(at[known], keys[known], offset=offset)
        assert (here >= p - 1e-12).all()
        if curve == "isotonic":
            np.testing.assert_allclose(here, p, atol=1e-9)
        below = at[known] - 1e-9 * (1 + np.abs(at[known]))
        assert (calibrator.predict_proba(below, keys[known], offset=offset) < p).all()
        for status, far, sign in (("UNREACHED", 1e3, -1), ("EXCEEDED", -1e3, 1)):
            some = keys[table["status"] == status]
            end = calibrator.predict_proba(np.full(len(some), far), some, offset=offset)
            assert (sign * (end - p) >= -1e-12).all()


@pytest.mark.slow
def test_curves_of_several_kinds(rng):
    scores, labels, ids = rows(rng, segments=20, each=100)
    chosen = pj.inference.choose_curve(scores, labels, ids).calibrator
    at = chosen.threshold(0.4)
    known = np.isfinite(at)
    assert known.mean() > 0.8
    made = chosen.predict_proba(at[known], chosen.keys[known])
    assert (made >= 0.4 - 1e-9).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sigmoids_beside_other_curves_are_sigmoids(rng, dtype):
    """A rising and a falling one, of scores in a large unit, where other segments have bins."""
    scores = (1e9 * rng.normal(size=4_000)).astype(dtype)
    ids = np.arange(4_000) % 4
    sign = np.array([1.0, -1.0, 1.0, 1.0])[ids]
    labels = rng.random(4_000) < expit(2e-9 * sign * scores)
    sigmoids = pj.fit_segments(scores, labels, ids)
    binned = pj.fit_segments(scores, labels, ids, curve="bins")
    part = np.array([0, 0, 1, 1, 0])  # the last is of unseen segments
    both = MixedCurves.chosen((as_curves(sigmoids), as_curves(binned)), part)
    mixed = replace(sigmoids, curves=both)
    far = np.array([-6e10, 3e10, 6e10], dtype)
    for segment in (0, 1):
        np.testing.assert_allclose(
            mixed.predict_proba(far, [segment] * 3),
            sigmoids.predict_proba(far, [segment] * 3),
            rtol=1e-5,
        )
        found, expected = (x.threshold_table(0.7, [segment]) for x in (mixed, sigmoids))
        assert found["status"] == expected["status"] == "OK"
        for name in ("threshold", "lower", "upper"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)
    assert mixed.table()["monotone"][:2].tolist() == [True, False]


def test_a_probability_that_curves_have_exactly_is_reached():
    """Though log-odds and back may round it up, as of 1 / 10."""
    for positive in range(1, 12):
        for number in range(positive + 1, 13):
            labels = np.r_[np.ones(positive), np.zeros(number - positive)]
            for curve in (curves.Bins(1), "isotonic"):
                scores = np.arange(float(number))  # falling: one block
                made = pj.fit_segments(scores, labels, np.zeros(number, int), curve=curve)
                share = made.predict_proba([1.0], [0])[0]
                assert made.threshold_table(share, [0])["status"] == "EXCEEDED"
                assert made.threshold_table(share + 1e-9, [0])["status"] == "UNREACHED"


# --- classes and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["none", "partial"])
def test_classes_by_their_own_probability(rng, pooling):
    names = np.array(["owl", "ant", "cat", "bee"])
    which = rng.integers(0, 4, 400)
    scores = rng.normal(size=(400, 4)) + 2 * (which[:, None] == np.arange(4))
    calibrator = pj.fit_one_vs_rest(scores, names[which], classes=names, pooling=pooling)
    at = calibrator.threshold(0.4)
    made = calibrator.predict_proba(at[None], normalize=False)
    np.testing.assert_allclose(made, 0.4, atol=1e-7)
    np.testing.assert_array_equal(calibrator.threshold(0.4, ["cat", "owl"]), at[[2, 0]])
    table = calibrator.threshold_table([0.4, 0.5], ["bee", "bee"], level=0.5)
    assert table["class"].tolist() == ["bee", "bee"]
    with pytest.raises(ValueError, match="classes: expected classes of the calibrator"):
        calibrator.threshold(0.4, ["cow"])


def test_refusals(pooled, rng):
    for given, what in (
        ((), "probability, cost: expected one of them"),
        ((1.2,), r"probability: expected probabilities in \[0, 1\]"),
        ((np.nan,), "probability: expected probabilities"),
        ((0.5, [1, 2], "x"), None),
    ):
        if what:
            with pytest.raises(ValueError, match=what):
                pooled.threshold(*given)
    with pytest.raises(ValueError, match="probability, cost: expected one"):
        pooled.threshold(0.5, cost=(1, 2))
    for cost in ((1,), (0, 1), (1, -1), (1, np.inf), 3):
        with pytest.raises(ValueError, match="cost: expected"):
            pooled.threshold(cost=cost)
    with pytest.raises(ValueError, match="level: expected a number"):
        pooled.threshold(0.5, level=2)
    with pytest.raises(ValueError, match="probability: expected a shape that broadcasts"):
        pooled.threshold([0.1, 0.2], [1, 2, 3])
    bins = pj.fit_segments(*rows(rng), curve="bins")
    with pytest.raises(ValueError, match="level: expected None for bins curves"):
        bins.threshold(0.5, level=0.9)


def test_one_id_and_several_probabilities(pooled):
    at = pooled.threshold([0.3, 0.4], 7)
    np.testing.assert_allclose(pooled.predict_proba(at, 7), [0.3, 0.4], atol=1e-9)
    assert pooled.threshold(0.3, 7).shape == (1,)
    assert pooled.threshold(0.3, []).shape == (0,)


def test_a_slope_known_to_forty_errors(rng):
    """Far from 0 the mean is 0 or 1 to the last bit, and its log-odds are infinite."""
    scores, labels, ids = rows(rng, segments=300, each=40, spread=0.0)
    calibrator = pj.fit_segments(1e5 * scores, labels, ids, pooling="partial")
    population = calibrator.population
    sure = replace(population, posterior_covariance=1e-4 * population.posterior_covariance)
    assert assert_reached(replace(calibrator, population=sure), 0.3) == 0


def test_a_mean_that_is_nearly_flat_where_it_reaches_the_probability():
    """Its limit is 5e-6 from it, at a thousand times the width of the curve."""
    A, B, covariance = np.array([1e-5]), np.array([-0.8]), np.array([[0.7], [0.0], [0.3]])
    found = thresholds.mean_thresholds(np.zeros(1), A, B, covariance, None)
    assert found.status == thresholds.OK and found.at > 1e4
    p = averages.mean_probability(found.at, np.column_stack([A, B, *covariance]))
    np.testing.assert_allclose(p, 0.5, atol=1e-9)
