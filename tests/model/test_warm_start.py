"""A start that the user gives: it saves passes where it is near, and does little harm if far."""

import numpy as np
import pytest
from data import batch, labels_of

import platt_jax as pj
from platt_jax import Flag, Options, Status

TOL = {"float32": 1e-4, "float64": 1e-8}


def far(fit, other):
    """The largest distance of two fits, in standard errors."""
    off = np.stack([fit.A - other.A, fit.B - other.B], -1) / other.standard_errors
    return np.nanmax(np.abs(off))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [60, *(n for n in (300, 5000))])
def test_the_optimum_as_a_start_is_found_in_one_pass(rng, dtype, rows):
    scores, labels = batch(rng, 20, rows)
    cold = pj.fit(scores.astype(dtype), labels)
    warm = pj.fit(scores.astype(dtype), labels, start=(cold.A, cold.B))
    assert (warm.passes == 1).all() and (warm.status == Status.CONVERGED).all()
    assert far(warm, cold) <= TOL[np.dtype(dtype).name]


@pytest.mark.slow
def test_a_start_near_the_optimum_of_skewed_scores_saves_passes(rng):
    """Where the usual start, of two normal densities, is far off."""
    scores = rng.lognormal(size=(20, 700)) ** 3
    labels = labels_of(rng, np.minimum(scores, 30) - 2)
    cold = pj.fit(scores, labels)
    warm = pj.fit(scores, labels, start=(cold.A * 1.001, cold.B * 1.001))
    assert warm.passes.mean() < cold.passes.mean() - 2
    assert far(warm, cold) < 1e-7


@pytest.mark.parametrize("A", [-1e30, -1e6, -10.0, -1.0, 0.0, 1.0, 1e6, np.nan, np.inf])
@pytest.mark.parametrize("B", [0.0, 1e9])
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_no_start_keeps_a_fit_from_its_optimum(rng, dtype, A, B):
    scores, labels = batch(rng, 20, 60)
    scores = (7 + 3 * scores).astype(dtype)
    cold, warm = (pj.fit(scores, labels, **start) for start in ({}, {"start": (A, B)}))
    assert (warm.status == Status.CONVERGED).all() and warm.passes.max() <= cold.passes.max() + 3
    assert far(warm, cold) <= 3 * TOL[np.dtype(dtype).name]


def test_the_slope_of_constant_scores_and_of_one_class_is_zero_from_any_start():
    scores = np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
    labels = np.array([[1, 0, 0], [1, 1, 1]])
    cold, warm = pj.fit(scores, labels), pj.fit(scores, labels, start=(-1.0, 0.5))
    assert warm == cold and warm.A.tolist() == [0, 0]
    assert warm.flags.tolist() == [Flag.CONSTANT_SCORES, Flag.ONE_CLASS]


@pytest.mark.as_users
def test_a_start_that_is_not_finite_is_the_usual_one(rng):
    scores, labels = batch(rng, 3, 60)
    cold = pj.fit(scores, labels)
    warm = pj.fit(scores, labels, start=([np.nan, -1.0, np.inf], [0.0, np.nan, 0.0]))
    assert warm == cold


@pytest.mark.slow
def test_the_usual_start_is_not_left_for_itself(rng):
    """Where a strict prior makes it a bad one."""
    scores, labels = batch(rng, 20, 10)
    prior = pj.GaussianPrior(np.array([3.0, 5.0]), 100 * np.eye(2))
    usual = pj.fit(scores, labels, prior=prior)
    told = pj.fit(scores, labels, prior=prior, start=(np.nan, np.nan))
    np.testing.assert_array_equal(told.passes, usual.passes)


@pytest.mark.slow
@pytest.mark.parametrize("options", [Options.libsvm(), Options(monotone=True)])
def test_a_warm_start_under_other_options(rng, options):
    scores, labels = batch(rng, 10, 300)
    cold = pj.fit(scores, labels, options=options)
    warm = pj.fit(scores, labels, start=(cold.A, cold.B), options=options)
    assert (warm.passes <= 2).all() and far(warm, cold) < 3e-3


def test_of_segments_a_start_is_in_the_order_of_the_keys(rng):
    scores, labels = (x.ravel() for x in batch(rng, 5, 60))
    segments = np.repeat([4, 0, 3, 1, 2], [54, 64, 56, 63, 63])
    cold = pj.fit_segments(scores, labels, segments)
    warm = pj.fit_segments(scores, labels, segments, start=(cold.fit.A, cold.fit.B))
    assert (warm.fit.passes == 1).all() and warm.keys.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_of_an_oversized_problem(rng, sizes):
    scores, labels = (x.ravel() for x in batch(rng, 1, 40_000))
    sizes(problem_rows=32_768, block_rows=32_768)
    cold = pj.fit(scores, labels)
    warm = pj.fit(scores, labels, start=(cold.A, cold.B))
    assert warm.passes == 1 and far(warm, cold) < 1e-8


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (-1.0, r"start: expected a pair \(A, B\), got float"),
        ((1.0, 2.0, 3.0), r"start: expected a pair \(A, B\), got tuple of 3"),
        ((np.zeros(3), np.zeros(2)), r"start: expected A and B of shape \(2,\), got \(3,\) and"),
        (("a", 0), "start: expected numbers"),
    ],
)
def test_what_is_no_start_is_refused(start, message):
    with pytest.raises(ValueError, match=message):
        pj.fit([[1.0, 2.0], [3.0, 4.0]], [1, 0], start=start)
