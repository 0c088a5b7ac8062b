"""Bins of equal width and of equal mass: where their edges lie, to the last bit."""

import numpy as np
import pytest

from platt_jax.scalers import Binning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bins", "dtype"),
    [
        (2, np.float64),
        (7, np.float32),
        (10, np.float64),
        (10, np.float32),
        (49, np.float64),
        (49, np.float32),
    ],
)
@pytest.mark.parametrize(("first", "unit"), [(0, 1), (-17, 1), (100, 2.0**-12)])
def test_a_score_on_an_edge_belongs_to_the_bin_below(bins, first, unit, dtype):
    counts = np.array([bins, 3 * bins, 10 * bins, 48, 97, 343, 490])[:, None]
    number = np.arange(counts.max() + 1)
    # Problem k has scores 0 ... counts[k]; the rest of its line repeats the last of them.
    whole = np.minimum(number, counts)
    # Bin b is (b, b + 1] * counts[k] / bins, and the first has the smallest score as well.
    expected = np.maximum(-(-whole * bins // counts) - 1, 0)
    assert np.sum((whole * bins % counts == 0) & (whole > 0) & (whole < counts)) > 2

    scores = ((first + whole) * unit).astype(dtype)
    fitted = Binning(bins).fit(scores, number % 2)
    found = [np.searchsorted(*problem) for problem in zip(fitted.edges, scores, strict=True)]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        fitted.predict_proba(scores), np.take_along_axis(fitted.probabilities, expected, 1)
    )


def test_edges_of_a_range_that_overflows():
    largest = np.finfo(float).max
    fitted = Binning(4).fit([-largest, 0.0, largest], [0, 1, 1])
    np.testing.assert_allclose(fitted.edges, [-largest / 2, 0, largest / 2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bins", "dtype"), [(3, np.float32), (7, np.float64), (49, np.float64), (49, np.float32)]
)
def test_bins_of_equal_mass_are_equal(bins, dtype):
    each = 7
    scores = np.arange(bins * each, dtype=dtype)
    fitted = Binning(bins, by="mass").fit(scores, np.arange(bins * each) % 2)
    np.testing.assert_array_equal(fitted.edges, scores[each - 1 : -1 : each])
