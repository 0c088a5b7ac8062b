"""p-values of numbers of positives, against Poisson's binomial distribution itself."""

import numpy as np
import pytest

from platt_jax.metrics import counts as module
from platt_jax.metrics.counts import GroupedPredictions, count_p_values, counts


def exact(p, positives):
    """Twice the smaller tail of the number of positives."""
    probability = np.ones(1)
    for each in p:
        probability = np.append(probability * (1 - each), 0) + np.append(0, probability * each)
    return min(1, 2 * min(probability[positives:].sum(), probability[: positives + 1].sum()))


def of(groups, weights=None):
    """p-values of groups, each a pair of probabilities and labels."""
    p, labels = (np.concatenate(x) for x in zip(*groups, strict=True))
    number = np.repeat(np.arange(len(groups)), [len(each) for each, _ in groups])
    rows = GroupedPredictions(p, np.ones(len(p)) if weights is None else weights, number)
    return count_p_values(rows, counts(rows, labels, len(groups)))


def test_they_are_those_of_poissons_binomial_distribution(rng):
    groups = []
    for _ in range(1500):
        a, b = rng.choice([[0.5, 5], [1, 1], [5, 0.5], [20, 60]])
        p = rng.beta(a, b, rng.integers(1, 60))
        groups.append((p, (rng.random(len(p)) < p * rng.choice([0.2, 1, 3, 6])).astype(int)))
    p_value = of(groups)
    expected = np.array([exact(p, labels.sum()) for p, labels in groups])
    few = expected < 0.05
    assert few.sum() > 300 and expected.min() < 1e-12
    np.testing.assert_allclose(p_value[few], expected[few], rtol=0.2)
    np.testing.assert_allclose(np.median(p_value[few] / expected[few]), 1, atol=0.02)
    assert (p_value[~few] > 0.04).all()


def test_calibrated_rows_are_rarely_unusual(rng):
    p = rng.beta(1, 8, 400_000)
    rows = GroupedPredictions(p, np.ones(len(p)), rng.integers(0, 10_000, len(p)))
    p_value = count_p_values(rows, counts(rows, (rng.random(len(p)) < p).astype(int), 10_000))
    for level in (0.05, 0.01):
        assert 0.3 * level < np.mean(p_value < level) < level


def test_a_weight_is_the_row_that_often(rng):
    p = rng.random(30) / 4
    labels, weights = (rng.random(30) < 0.5).astype(int), rng.integers(1, 4, 30)
    repeated = of([(np.repeat(p, weights), np.repeat(labels, weights))])
    np.testing.assert_allclose(of([(p, labels)], weights.astype(float)), repeated, rtol=1e-9)
    assert repeated[0] < 0.1


@pytest.mark.parametrize(
    ("p", "labels", "expected"),
    [
        ([1e-9, 1e-9], [1, 1], 2e-18),
        ([0.0, 0.0], [1, 0], 0),
        ([1.0, 1.0], [0, 1], 0),
        ([0.0, 1.0, 1e-6], [0, 1, 1], 2e-6),
        ([1 - 1e-9], [0], 2e-9),
        ([0.0, 1.0], [0, 1], 1),
    ],
)
def test_extremes(p, labels, expected):
    np.testing.assert_allclose(of([(np.array(p), np.array(labels))]), [expected], rtol=1e-6)


def test_a_tail_whose_tilt_is_not_found_is_nan(monkeypatch):
    monkeypatch.setattr(module, "_STEPS", 1)
    rows = GroupedPredictions(np.full(100, 0.1), np.ones(100), np.zeros(100, np.int64))
    p_value = count_p_values(rows, counts(rows, (np.arange(100) < 40).astype(np.int8), 1))
    np.testing.assert_array_equal(p_value, np.nan)
