"""The interval of ECE: its parts against SciPy and simulation, its coverage, and odd input."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from platt_jax import metrics
from platt_jax.metrics import ece

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "results" / "inference" / "ece_interval.json"


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.2, 0.5])
@pytest.mark.parametrize("n", [1, 2, 7, 100, 5_000])
def test_mean_absolute_deviation(n, rate):
    count = stats.binom(n, rate)
    expected = count.expect(lambda k: abs(k - n * rate))
    found = ece._mean_absolute_deviation(np.array([n, 0.0]), np.array([rate, 0.0]))
    np.testing.assert_allclose(found, [expected, 0], rtol=1e-3 if count.var() > 100 else 1e-10)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5])
def test_the_noise_has_its_quantile(rng, level, rate):
    """Of calibrated predictions of three bins, whose variances are known."""
    n, p = np.array([1_000, 3_000, 6_000]), np.array([rate, rate + 0.2, rate + 0.4])
    labels, proba = np.tile([1, 0], 3), np.broadcast_to(p.repeat(2), (20_000, 6))
    positives = rng.binomial(n, p, (20_000, 3))
    counts = np.stack([positives, n - positives], 2).reshape(20_000, 6)
    noise = metrics.expected_calibration_error(labels, proba, weights=counts)
    found = metrics.ece_interval(labels, proba, weights=counts, level=level)
    reach = np.median(found.upper - found.value) - 0.5 / n.sum()
    assert np.mean(noise <= reach) == pytest.approx(level, abs=0.015)


def test_its_value_is_the_error_and_the_ends_are_around_it(rng):
    p = rng.random((3, 200)) ** 2
    labels = rng.random(p.shape) < p
    found = metrics.ece_interval(labels, p, strategy="quantile", n_bins=4)
    error = metrics.expected_calibration_error(labels, p, strategy="quantile", n_bins=4)
    np.testing.assert_array_equal(found.value, error)
    wider = metrics.ece_interval(labels, p, strategy="quantile", n_bins=4, level=0.99)
    assert np.all(wider.lower <= found.lower) and np.all(found.lower <= error)
    assert np.all(wider.upper > found.upper) and np.all(found.upper > error)


def test_a_row_in_each_bin_does_not_hide_its_noise(rng):
    """Predictions near 1/2 are off by 1/2 in each bin, calibrated or not."""
    p = np.linspace(0.46, 0.54, 10)
    found = metrics.ece_interval(
        rng.random((200, 10)) < p, np.tile(p, (200, 1)), strategy="quantile"
    )
    assert np.all(found.value > 0.4) and np.all(found.lower == 0)


def test_more_rows_narrow_it(rng):
    p = rng.random(500)
    labels = rng.random(500) < p**2
    widths = [
        np.subtract(*metrics.ece_interval(labels, p, weights=w)[:0:-1]) for w in (1, 100, 1e12)
    ]
    assert widths[0] / widths[1] == pytest.approx(10, rel=0.05)
    assert widths[0] / widths[2] == pytest.approx(1e6, rel=0.05)


def test_the_page_says_how_much_wider_than_necessary(rng):
    """Ten equal bins whose errors are far above their noise: there the ECE is normal."""
    p = (np.arange(10) + 0.5) / 10
    true = np.where(p < 0.5, p + 0.4, p - 0.4)
    positives = rng.binomial(10_000, true, (4_000, 10))
    found = metrics.ece_interval(
        np.repeat([1, 0], 10),
        np.broadcast_to(np.tile(p, 2), (4_000, 20)),
        weights=np.concatenate([positives, 10_000 - positives], 1),
    )
    needed = 1.96 * found.value.std()
    wider = np.mean(found.upper - found.lower) / 2 / needed
    assert wider == pytest.approx(2, abs=0.2)
    said = " ".join((ROOT / "docs" / "explanation" / "numbers.md").read_text().split())
    assert "in all of 10 bins, the interval is twice as wide as it could be" in said


def test_the_page_quotes_the_coverage():
    results = json.loads(FILE.read_text())["results"]
    said = " ".join((ROOT / "docs" / "explanation" / "numbers.md").read_text().split())
    for sentence, level in (
        ("`ece_interval` held the true error in {} of the draws", "0.95"),
        ("intervals of 80 % in {}, the least with 3 rows", "0.8"),
    ):
        cases = results[level]
        least, most = (round(100 * end(x["coverage"] for x in cases)) for end in (min, max))
        assert sentence.format(f"{least} to {most} %") in said
    assert min(results["0.8"], key=lambda x: x["coverage"])["rows"] == 3
    assert {x["rows"] for x in cases} >= {1, 10_000}
    assert len({x["truth"] for x in cases}) == 6
    assert {x["base rate"] for x in cases} == {0.001, 0.01, 0.05, 0.3}


@pytest.mark.filterwarnings("error")
def test_odd_input():
    one_sided = metrics.ece_interval(np.zeros(50), np.zeros(50))
    assert one_sided[:2] == (0, 0) and 0.03 < one_sided.upper < 0.1
    assert metrics.ece_interval([1], [0.2]) == (0.8, 0, 1)
    for weight in (1e-300, 1e300):
        found = metrics.ece_interval([0, 1], [0.3, 0.6], weights=weight)
        assert 0 <= found.lower <= found.value <= found.upper <= 1
    for rows, weights in ((([0, 1], [np.nan, 0.5]), None), (([0, 1], [0.1, 0.5]), 0)):
        assert np.isnan(metrics.ece_interval(*rows, weights=weights)).all()
    with pytest.raises(ValueError, match="level: "):
        metrics.ece_interval([0, 1], [0.1, 0.5], level=1)
    with pytest.raises(ValueError, match="strategy: "):
        metrics.ece_interval([0, 1], [0.1, 0.5], strategy="equal")


@pytest.mark.parametrize(
    ("truth", "rate", "rows"), [("calibrated", 0.05, 1_000), ("coin", 0.01, 5), ("half", 0.3, 30)]
)
def test_coverage(truth, rate, rows):
    from benchmarks.inference.ece_interval import measured

    found = measured(np.random.default_rng(1), 0.95, truth, "uniform", rate, rows)
    assert found["coverage"] > 0.92
