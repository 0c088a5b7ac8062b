"""Triage of rows that depend on each other: shifts by day of which no segment has changed."""

import warnings

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj


def days(seed, K, number, rows, deviation, moved=0.0):
    """Rows of K segments in days whose log-odds are shifted, and the days."""
    curve, rng = np.random.default_rng(0), np.random.default_rng(seed)
    slope, intercept = 1.2 + 0.4 * curve.normal(size=K), -0.5 + 0.7 * curve.normal(size=K)
    segments = np.repeat(np.arange(K), number * rows)
    day = np.tile(np.repeat(np.arange(number), rows), K)
    shift = deviation * rng.normal(size=(K, number))[segments, day]
    scores = rng.normal(size=len(segments))
    log_odds = slope[segments] * scores + intercept[segments] + shift + moved * (segments < 5)
    return (scores, rng.random(len(scores)) < expit(log_odds), segments), day


@pytest.fixture(scope="module")
def calibrator():
    return pj.fit_segments(*days(1, 150, 60, 30, 0.6)[0])


@pytest.mark.slow
def test_days_that_differ_are_no_change(calibrator):
    rows, day = days(2, 150, 10, 30, 0.6)
    assert pj.triage(calibrator, *rows)["flagged"].sum() > 2  # as if rows were independent
    for against in ("fit", "predictions"):
        made = pj.triage(calibrator, *rows, clusters=day, against=against)
        assert made["flagged"].sum() <= 1
        assert (made["p_value"] < 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


@pytest.mark.slow
def test_a_change_beyond_the_days_is_found(calibrator):
    rows, day = days(3, 150, 10, 30, 0.6, moved=2.5)
    made = pj.triage(calibrator, *rows, clusters=day)
    assert set(range(5)) <= set(made["segment"][made["flagged"]].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.0, 0.3, 0.6])
def test_the_spread_of_the_days_is_estimated(calibrator, deviation):
    rows, day = days(4, 150, 10, 30, deviation)
    by_estimate = pj.triage(calibrator, *rows, clusters=day)
    by_segment = np.argsort(by_estimate["segment"])
    known = pj.triage(calibrator, *rows, clusters=day, cluster_sd=deviation)
    ratio = by_estimate["p_value"][by_segment] / known["p_value"][np.argsort(known["segment"])]
    assert 0.5 < np.median(ratio) < 2


@pytest.mark.slow
def test_of_one_day_nothing_is_known_unless_its_spread_is(calibrator):
    rows, day = days(5, 150, 1, 300, 0.6)
    assert pj.triage(calibrator, *rows)["flagged"].mean() > 0.2
    with pytest.warns(RuntimeWarning, match="none has two clusters.*cluster_sd"):
        made = pj.triage(calibrator, *rows, clusters=day)
    assert np.isnan(made["p_value"]).all() and not made["flagged"].any()
    made = pj.triage(calibrator, *rows, clusters=day, cluster_sd=0.6)
    assert made["flagged"].sum() <= 2


def test_clusters_of_no_spread_change_little(calibrator):
    rows, day = days(6, 20, 10, 30, 0)
    without = pj.triage(calibrator, *rows)
    made = pj.triage(calibrator, *rows, clusters=day, cluster_sd=0)
    np.testing.assert_array_equal(made["segment"], without["segment"])
    np.testing.assert_allclose(made["p_value"], without["p_value"], rtol=1e-6)


def test_clusters_of_any_spread_say_nothing(calibrator):
    """From 1e155 on the square was an OverflowError."""
    rows, day = days(6, 20, 10, 30, 0)
    for deviation in (1e100, 1e300):
        made = pj.triage(calibrator, *rows, clusters=day, cluster_sd=deviation)
        np.testing.assert_allclose(made["p_value"], 1)


def test_clusters_do_not_depend_on_the_order_of_rows_or_their_names(calibrator):
    rows, day = days(7, 20, 5, 30, 0.6)
    made = pj.triage(calibrator, *rows, clusters=day)
    order = np.random.default_rng(0).permutation(len(day))
    names = np.array([f"day {x}" for x in day])
    again = pj.triage(calibrator, *(x[order] for x in rows), clusters=names[order])
    np.testing.assert_allclose(again["p_value"], made["p_value"], rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bad = rows[0].copy()
        bad[:7] = np.nan
        some = pj.triage(calibrator, bad, *rows[1:], clusters=day, non_finite="omit")
    assert np.isfinite(some["p_value"]).all() and some["rows"].min() == 143


def test_bad_clusters_are_named(calibrator):
    rows, day = days(8, 2, 2, 5, 0)
    for bad, message in (
        (dict(clusters=day[1:]), "clusters: "),
        (dict(cluster_sd=0.5), "cluster_sd: expected clusters beside it"),
        (dict(clusters=day, cluster_sd=-1), "cluster_sd: expected a number >= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            pj.triage(calibrator, *rows, **bad)
    with pytest.raises(ValueError, match="clusters: expected none beside SegmentRows"):
        pj.triage(calibrator, pj.SegmentRows(*rows), clusters=day)
