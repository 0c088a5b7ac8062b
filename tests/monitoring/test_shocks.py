"""Nights whose rows share a shock of the log-odds."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

import platt_jax as pj
from platt_jax import sql
from platt_jax.monitoring.evidence import (
    SHIFTS,
    JudgedRows,
    log_ratios,
    night_sums,
    shocks_of,
)

SHOCKS = np.linspace(-9, 9, 2001)
DENSITY = np.exp(-(SHOCKS**2) / 2)
DENSITY /= DENSITY.sum()
ROWS = 6


def centre(log_odds, sd):
    """The log-odds without a shock if the mean probability has these."""

    def off(x):
        return DENSITY @ expit(x + sd * SHOCKS) - expit(log_odds)

    return brentq(off, -60, 60, xtol=1e-13)


def likelihood(labels, log_odds, sd, share):
    """Of each line of labels, given the log-odds without a shock."""
    p = share * expit(log_odds[:, None] + sd * SHOCKS)
    of_rows = np.where(labels[:, :, None], p, 1 - p)
    return of_rows.prod(1) @ DENSITY


def every_night(log_odds, margin, sd, share):
    """All labels of ROWS rows, and their likelihood ratios (2^ROWS, 2 SHIFTS)."""
    labels = np.array(list(itertools.product([False, True], repeat=ROWS)))
    nights = len(labels)
    rows = JudgedRows(
        np.tile(log_odds, nights),
        np.full(labels.size, margin),
        labels.ravel(),
        np.repeat(np.arange(nights), ROWS),
        np.zeros(nights),
        None if share == 1 else np.full(labels.size, share),
    )
    shared = shocks_of(sd)
    _, night = night_sums(rows, shared)
    ratios = log_ratios(night, shared)
    assert (ratios[:, 2 * len(SHIFTS) :] == 0).all()  # the slopes'
    return labels, np.exp(ratios[:, : 2 * len(SHIFTS)])


@pytest.mark.parametrize(("sd", "share"), [(0.05, 1), (0.6, 1), (0.6, 0.4), (3.0, 1)])
def test_ratios_are_those_of_likelihoods_integrated_over_the_shock(rng, sd, share):
    margin, z = 0.3, 2 * rng.normal(size=ROWS) - 1
    labels, ratios = every_night(z, margin, sd, share)
    for side, sign in enumerate((1, -1)):
        null = np.array([centre(x + sign * margin, sd) for x in z])
        below = likelihood(labels, null, sd, share)
        for i, size in enumerate(SHIFTS):
            above = likelihood(labels, null + sign * size, sd, share)
            found = ratios[:, side * len(SHIFTS) + i]
            # Shocks end at 7 standard deviations.
            assert found == pytest.approx(above / below, rel=1e-5)


@pytest.mark.parametrize("sd", [0.3, 1.0])
def test_expectation_is_at_most_1_wherever_the_truth_is_within_the_margin(rng, sd):
    margin, z = 0.3, 2 * rng.normal(size=ROWS) - 1
    labels, ratios = every_night(z, margin, sd, 1)
    for off in (-margin, 0, margin, margin * (-1) ** np.arange(ROWS)):
        truth = np.array([centre(x, sd) for x in z + off])
        assert (likelihood(labels, truth, sd, 1) @ ratios <= 1 + 1e-6).all()
    outside = np.array([centre(x, sd) for x in z + 3 * margin])
    assert (likelihood(labels, outside, sd, 1) @ ratios > 1.01).any()


@pytest.fixture
def calibrator(rng):
    ids = np.repeat(np.arange(8), 200)
    scores = rng.normal(size=len(ids))
    return pj.fit_segments(scores, rng.random(len(ids)) < expit(1.5 * scores - 1), ids)


def night(rng, sd=0.6, rows=60, shift=0.0, segments=8):
    ids = np.repeat(np.arange(segments), rows)
    scores = rng.normal(size=len(ids))
    log_odds = 1.5 * scores - 1 + (sd * rng.normal(size=segments) + shift)[ids]
    return scores, rng.random(len(ids)) < expit(log_odds), ids


def same(one, other):
    assert repr(one) == repr(other)
    a, b = one.table(), other.table()
    assert all(np.array_equal(a[x], b[x], equal_nan=a[x].dtype.kind == "f") for x in a)


def test_parts_merge_exactly_and_files_keep_the_shocks(rng, tmp_path, calibrator):
    monitor = pj.Monitor.start(calibrator, night_sd=0.6).update(*night(rng))
    rows = night(rng)
    whole = monitor.update(*rows, night="b")
    part = rng.random(len(rows[0])) < 0.3
    halves = [monitor.update(*(x[some] for x in rows), night="b") for some in (part, ~part)]
    same(whole, halves[0].merge(halves[1]))
    same(whole, monitor.add(monitor.sums(*rows), night="b"))
    shuffled = rng.permutation(len(part))
    same(whole, monitor.update(*(x[shuffled] for x in rows)))
    whole.save(tmp_path / "m.npz")
    loaded = pj.Monitor.load(tmp_path / "m.npz", calibrator)
    assert (loaded.night_sd, loaded.nights) == (0.6, ("b",))
    assert "night_sd 0.6" in repr(loaded)
    same(whole, loaded)


def test_segments_do_not_depend_on_the_company(rng, calibrator):
    together = alone = pj.Monitor.start(calibrator, night_sd=0.6)
    for _ in range(3):
        scores, labels, ids = night(rng)
        together = together.update(scores, labels, ids)
        alone = alone.update(*(x[ids == 5] for x in (scores, labels, ids)))
    mine = together.table()["log_e_value"][together.table()["segment"] == 5]
    assert mine == alone.table()["log_e_value"]


def test_shocks_give_no_alarm_and_a_shift_does(rng, calibrator):
    plain, aware = (
        pj.Monitor.start(calibrator, against="predictions", margin=0.3, night_sd=sd)
        for sd in (0, 1)
    )
    for _ in range(40):
        rows = night(rng, sd=1, rows=150)
        plain, aware = plain.update(*rows), aware.update(*rows)
    assert len(plain.alarms()["segment"]) > 0
    assert len(aware.alarms()["segment"]) == 0
    for _ in range(25):
        aware = aware.update(*night(rng, sd=1, rows=150, shift=np.where(np.arange(8) == 3, 2.5, 0)))
    alarms = aware.alarms()
    assert alarms["segment"].tolist() == [3]
    assert abs(alarms["since"][0] - 41) <= 3
    assert abs(alarms["intercept"][0] - 2.5) < 3 * alarms["se_intercept"][0]
    # The mean of 25 shocks has an error of 1 / 5.
    assert 0.15 < alarms["se_intercept"][0] < 0.5


def test_a_large_night_tells_its_shock(rng, calibrator):
    sd, margin, n = 0.5, 0.1, 40_000
    monitor = pj.Monitor.start(calibrator, against="predictions", margin=margin, night_sd=sd)
    scores = np.full(n, 0.4)
    p = calibrator.predict_proba(scores[:1], [3])[0]
    null = centre(np.log(p / (1 - p)) + margin, sd)
    shock = 0.8
    after = monitor.update(scores, np.arange(n) < n * expit(null + shock), np.full(n, 3))
    found = log_ratios(after.state.tonight, shocks_of(sd))[0, : len(SHIFTS)]
    # A ratio of two normal densities at the shock.
    expected = SHIFTS * shock / sd**2 - SHIFTS**2 / (2 * sd**2)
    assert found == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("label", [0, 1])
def test_nights_of_one_class(rng, calibrator, label):
    monitor = pj.Monitor.start(calibrator, night_sd=0.5)
    for _ in range(4):
        scores, labels, ids = night(rng)
        monitor = monitor.update(scores, np.full(len(labels), label), ids)
    table = monitor.table()
    assert (table["log_e_value"] > 0).all()
    assert np.isfinite([table["intercept"], table["se_intercept"]]).all()


def test_what_is_refused(rng, calibrator):
    for sd in (-1, 3.5, np.nan, "x"):
        with pytest.raises(ValueError, match="night_sd: expected a number"):
            pj.Monitor.start(calibrator, night_sd=sd)
    one, other = (pj.Monitor.start(calibrator, night_sd=x).update(*night(rng)) for x in (0.3, 0.6))
    with pytest.raises(ValueError, match=r"night_sd 0\.3, got 0\.6"):
        one.merge(other)
    with pytest.raises(ValueError, match="night_sd of 0"):
        sql.monitor_sums(None, one)
    with pytest.raises(ValueError, match="sums: expected the columns of Monitor"):
        other.add(pj.Monitor.start(calibrator).sums(*night(rng)))
