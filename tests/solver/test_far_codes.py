"""Flag.OUTLIER of many scores at one end, such as a code for missing scores."""

import numpy as np
import pytest

import platt_jax as pj

DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "logistic": lambda rng, shape: rng.logistic(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape),
    "bimodal": lambda rng, shape: rng.normal(size=shape) + 10 * (rng.random(shape) < 0.5),
    "uniform": lambda rng, shape: rng.random(shape),
    "rounded": lambda rng, shape: np.round(rng.normal(size=shape), 1),
    "counts": lambda rng, shape: rng.poisson(1, shape).astype(float),
    "shares": lambda rng, shape: np.round(rng.beta(0.5, 0.5, shape), 2),
}


def problems(rng, shape, code=None, share=0.0):
    """Normal scores, and their labels; in a share of the rows the score is the code."""
    scores = rng.normal(size=shape)
    labels = rng.random(shape) < 1 / (1 + np.exp(-1.5 * scores))
    if code is not None:
        scores[..., : round(share * shape[-1])] = code
    return scores, labels


def outlying(scores, labels, **kwargs):
    return (pj.fit(scores, labels, **kwargs).flags & pj.Flag.OUTLIER) != 0


@pytest.mark.parametrize("code", [-9999, -999, 99, 1e6, -1e20])
def test_a_code_in_many_rows_is_flagged(code, dtype, rng):
    for share in 0.05, 0.2, 0.6:
        scores, labels = problems(rng, (20, 400), code, share)
        scores = scores.astype(dtype)
        found = outlying(scores, labels)
        assert found.mean() > 0.9  # with 5 % of the rows the code 99 is at the limit
        np.testing.assert_array_equal(outlying(scores, labels, weights=np.ones_like(scores)), found)
        order = rng.permutation(400)
        np.testing.assert_array_equal(outlying(scores[:, order], labels[:, order]), found)
        mirrored, moved = outlying(-scores, ~labels), outlying(3 * scores + dtype(1e3), labels)
        np.testing.assert_array_equal(mirrored, found)
        np.testing.assert_array_equal(moved, found)


def test_a_code_is_flagged_however_problems_are_fitted(rng):
    scores, labels = problems(rng, (3, 300), -9999, 0.2)
    scores[1] = rng.normal(size=300)
    expected = [True, False, True]
    ids = np.repeat(np.arange(3), 300)
    flags = [
        pj.fit_segments(scores.ravel(), labels.ravel(), ids).fit.flags,
        pj.solve(scores, labels).flags,
        pj.fit(scores, labels, options=pj.Options(intercept=False)).flags,
        pj.fit(scores, labels, curve="quadratic").curves.flags,
        pj.fit(scores, labels, options=pj.Options(targets="none")).flags,
    ]
    for each in flags:
        np.testing.assert_array_equal((np.asarray(each) & pj.Flag.OUTLIER) != 0, expected)
    scores[0, 200] = np.nan
    with pytest.warns(RuntimeWarning, match="NaN, infinite"):
        assert pj.fit(scores, labels).flags[0] == 0


@pytest.mark.parametrize("name", DRAWS)
def test_scores_without_codes_are_flagged_for_one_score_only(name, rng):
    for rows, number in ((20, 500), (200, 300), (5_000, 10)):
        scores = DRAWS[name](rng, (number, rows))
        middle = np.median(scores, 1, keepdims=True)
        labels = rng.random(scores.shape) < 1 / (1 + np.exp(middle - scores))
        squares = (scores - scores.mean(1, keepdims=True)) ** 2
        one = squares.max(1) >= 0.8 * squares.sum(1)
        np.testing.assert_array_equal(outlying(scores, labels), one)


def test_scores_of_two_values_are_not_far_from_each_other(rng):
    scores = (rng.random((50, 200)) < 0.1) * 1e6
    assert not outlying(scores, rng.random((50, 200)) < 0.5).any()
