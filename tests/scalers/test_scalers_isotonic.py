"""Isotonic regression: the corners that are kept answer as the points of all scores do."""

import jax
import numpy as np
import pytest
from data import labels_of

from platt_jax.scalers import Isotonic


def drawn(rng, rows, dtype):
    scores = rng.normal(size=rows).round(2).astype(dtype)
    return scores, labels_of(rng, scores)


def all_points(scores, labels):
    from sklearn.isotonic import IsotonicRegression

    distinct = np.unique(scores)
    plain = IsotonicRegression(out_of_bounds="clip").fit(scores.astype(float), labels)
    return distinct, plain.predict(distinct.astype(float)).astype(scores.dtype)


def test_corners_answer_as_all_points_to_the_bit(rng, dtype):
    pytest.importorskip("sklearn.base")  # "sklearn" is a folder here, too
    scores, labels = drawn(rng, 2_000, dtype)
    fitted = Isotonic().fit(scores, labels)
    distinct, probabilities = all_points(scores, labels)
    np.testing.assert_allclose(fitted.predict_proba(distinct), probabilities, rtol=1e-6)

    # The same curve through every score.
    points = distinct, fitted.predict_proba(distinct)
    grid = np.concatenate([distinct, rng.normal(size=5_000) * 3]).astype(dtype)
    expected = np.interp(grid, *points).astype(dtype)
    np.testing.assert_array_equal(fitted.predict_proba(grid), expected)


def test_only_corners_are_kept(rng):
    scores = np.arange(10.0)
    fitted = Isotonic().fit(scores, [0, 0, 0, 1, 0, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(fitted.thresholds, [0, 2, 3, 6, 7, 9])
    np.testing.assert_array_equal(fitted.probabilities, [0, 0, 0.5, 0.5, 1, 1])
    # Scores twice, and one score for all.
    np.testing.assert_array_equal(
        Isotonic().fit(np.repeat(scores, 2), np.repeat(scores > 4, 2)).thresholds, [0, 4, 5, 9]
    )
    assert Isotonic().fit([3.0, 3.0], [0, 1]).probabilities.tolist() == [0.5]


def test_problems_with_few_corners_beside_one_with_many(rng, dtype):
    scores, labels = drawn(rng, 500, dtype)
    problems = [(scores, labels), (np.sign(scores), labels), (scores, labels | True)]
    together = Isotonic().fit(*zip(*problems, strict=True))
    grid = np.linspace(-5, 5, 101).astype(dtype)
    for k, (f, y) in enumerate(problems):
        alone = Isotonic().fit(f, y)
        np.testing.assert_array_equal(together.predict_proba(grid)[k], alone.predict_proba(grid))
        corners = alone.thresholds.shape[-1]
        np.testing.assert_array_equal(together.thresholds[k, :corners], alone.thresholds)
        assert np.all(together.thresholds[k, corners:] == alone.thresholds[-1])
    assert all(x.shape[0] == 3 and x.shape[1] < 100 for x in jax.tree.leaves(together))


def test_between_scores_whose_difference_overflows():
    fitted = Isotonic().fit([-1.5e308, 1.5e308], [0, 1])
    np.testing.assert_allclose(fitted.predict_proba([-1e308, 0, 1e308]), [1 / 6, 1 / 2, 5 / 6])


def test_scores_that_are_nearly_equal_have_probabilities():
    """The slope between them is infinite: NumPy's interpolation was."""
    for least in (5e-324, 2e-310, 2e-308):
        fitted = Isotonic().fit([0.0, least, 1.0], [0, 1, 1])
        np.testing.assert_array_equal(fitted.predict_proba([0.0, least, 0.5, -1.0]), [0, 1, 1, 0])
        between = fitted.predict_proba([least / 2])[0]
        assert between == pytest.approx(0.5) or least == 5e-324  # its half is 0
    unequal = Isotonic().fit([0.0, 4e-310, 4e-310], [0, 1, 0])
    np.testing.assert_allclose(unequal.predict_proba([1e-310, 3e-310]), [0.125, 0.375])
