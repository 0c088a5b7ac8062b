"""Likelihood ratios of rows, and their sums."""

import numpy as np
import pytest
from scipy.special import expit, zeta

from platt_jax.monitoring import state
from platt_jax.monitoring.evidence import (
    ALTERNATIVES,
    SHIFTS,
    SLOPES,
    UNIT,
    JudgedRows,
    night_sums,
)

MARGINS = 0.0, 0.3


def one_row(log_odds, label, margin, reported=None):
    columns = np.array([log_odds]), np.array([margin]), np.array([label]), np.zeros(1, int)
    share = None if reported is None else np.array([reported])
    return JudgedRows(*columns, pivot=np.array([-0.5]), reported=share)


def ratios(log_odds, label, margin, reported=None):
    """(ALTERNATIVES,) likelihood ratios of one row."""
    _, night = night_sums(one_row(log_odds, label, margin, reported))
    return np.exp(night.log_ratios[0] * UNIT)


def moved(log_odds):
    """The log-odds of each alternative, minus those predicted, without the margin."""
    slopes = (np.array(SLOPES) - 1) * (log_odds + 0.5)
    return np.concatenate([SHIFTS, -SHIFTS, slopes])


@pytest.mark.parametrize("reported", [None, 1.0, 0.3])
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("log_odds", [-6.0, -0.7, 0.0, 2.0])
def test_ratios_are_those_of_the_probabilities(log_odds, margin, reported):
    away = moved(log_odds)
    null = log_odds + np.sign(away) * margin
    share = 1 if reported is None else reported
    p, q = share * expit(null), share * expit(null + away)
    assert ratios(log_odds, True, margin, reported) == pytest.approx(q / p, rel=1e-6)
    got = ratios(log_odds, False, margin, reported)
    assert got == pytest.approx((1 - q) / (1 - p), rel=1e-6)


@pytest.mark.parametrize("reported", [None, 0.3])
@pytest.mark.parametrize("log_odds", [-6.0, -0.7, 0.0, 2.0])
def test_expectation_is_at_most_1_wherever_the_truth_is_within_the_margin(log_odds, reported):
    margin = 0.3
    if_0, if_1 = (ratios(log_odds, label, margin, reported) for label in (False, True))
    share = 1 if reported is None else reported
    for off in np.linspace(-margin, margin, 7):
        p = share * expit(log_odds + off)
        assert ((1 - p) * if_0 + p * if_1 <= 1 + 1e-6).all()
    for outside in (-2 * margin, 2 * margin):
        p = share * expit(log_odds + outside)
        assert ((1 - p) * if_0 + p * if_1 > 1).any()


def test_extreme_predictions_give_finite_evidence():
    for log_odds in (-36.7, 36.7):
        for label in (False, True):
            for reported in (None, 1.0, 0.01):
                assert np.isfinite(np.log(ratios(log_odds, label, 0.1, reported))).all()


def test_sums_do_not_depend_on_the_order_or_the_parts_of_the_rows(rng):
    number = 40_000
    owner = np.sort(rng.integers(0, 50, number))
    columns = rng.normal(size=number), np.full(number, 0.1), rng.random(number) < 0.3
    rows = JudgedRows(*columns, owner, rng.normal(size=50))
    first, whole = night_sums(rows)
    assert first == 0
    shuffled = np.lexsort((rng.random(number), owner))
    _, other = night_sums(rows.part(shuffled))
    _, begun = night_sums(rows.part(slice(0, 12_345)))
    at, rest = night_sums(rows.part(slice(12_345, None)))
    total = whole.without_rows(50, ALTERNATIVES)
    total.add(0, begun)
    total.add(at, rest)
    for x, y, z in zip(whole, other, total, strict=True):
        assert (x == y).all()
        assert (x == z).all()
    assert whole.rows.tolist() == np.bincount(owner).tolist()
    assert whole.positives.tolist() == np.bincount(owner, rows.labels).tolist()
    assert whole.expected * UNIT == pytest.approx(np.bincount(owner, expit(rows.log_odds)))
    assert whole.log_ratios.shape == (50, ALTERNATIVES)


def test_weights_of_starting_nights_add_up_to_1():
    weight, rest = state.start_weights(1000)
    assert rest[-1] == pytest.approx(zeta(state._DECAY, 1001) / zeta(state._DECAY), abs=1e-12)
    assert weight.sum() + rest[-1] == pytest.approx(1)
    assert weight[7] == pytest.approx(7**-state._DECAY / zeta(state._DECAY))
