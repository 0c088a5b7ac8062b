"""Scores of some rows that are far from all others, such as a code for missing values."""

import math

import numpy as np
import pytest
from data import problem

import platt_jax as pj
from platt_jax import Options, Status

PLAIN = Options(targets="none")


def coded(rng, code, rows=400, share=0.2, label=0):
    """Rows, some of one label with a code as their score; and which of them have their own."""
    scores, labels = problem(rng, rows)
    own = np.ones(rows, bool)
    own[np.flatnonzero(labels == label)[: int(share * rows)]] = False
    return np.where(own, scores, code), labels, own


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_cost_nothing_do_not_count(sign, intercept, dtype, rng):
    """A slope that separates the far rows costs nothing: the optimum is that of the others."""
    options = Options(targets="none", intercept=intercept)
    codes = [1e5, 1e9, 1e12] + [1e15, 1e20, 1e25] * (dtype == np.float64)
    scores, labels, own = coded(rng, 1.0)
    scores[own] -= scores[own].mean()
    expected = pj.fit(scores[own].astype(dtype), labels[own], options=options)
    batch = np.stack([np.where(own, scores, -code) for code in codes]) * sign
    found = pj.fit(batch.astype(dtype), labels, options=options)
    assert (found.status == Status.CONVERGED).all() and expected.status == Status.CONVERGED
    rtol = 1e-6 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(found.A, sign * expected.A, rtol=rtol)
    np.testing.assert_allclose(found.B, expected.B, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.nll, expected.nll, rtol=rtol)
    assert found.iterations.max() < 80


def terms(z, t):
    """p - t and the loss of log-odds -z."""
    e = np.exp(-np.abs(z))
    tail = e / (1 + e)
    side = z < 0
    target = np.where(side, 1 - t, t)
    return np.where(side, target - tail, tail - target), target * np.abs(z) + np.log1p(e)


def best_B(f, w, t, A):
    """B at the optimum for this slope, by bisection on sinh."""
    high = math.asinh(np.abs(A * f).max() + 100)
    low = -high
    for _ in range(80):
        middle = (low + high) / 2
        slope = -math.fsum(w * terms(A * f + math.sinh(middle), t)[0])
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.sinh((low + high) / 2)


def least_loss(f, w, t):
    """The loss at the optimum, by bisection on the logarithm of the slope."""

    def slope(A):
        return -math.fsum(w * terms(A * f + best_B(f, w, t, A), t)[0] * f)

    sign, low, high = -np.sign(slope(0.0)), -150.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if sign * slope(sign * 2**middle) > 0 else (middle, high)
    A = sign * 2 ** ((low + high) / 2)
    return loss(f, w, t, A, best_B(f, w, t, A))


def loss(f, w, t, A, B):
    return math.fsum(w * terms(A * f + B, t)[1])


def far_problem(rng, rows):
    """Codes of either sign for rows of one class, for any rows, or at both ends."""
    scores, labels = problem(rng, rows)
    scores *= 10.0 ** rng.integers(-2, 3)
    kind, code = rng.integers(4), 10.0 ** rng.uniform(6, 37)
    which = rng.permutation(np.flatnonzero(labels == kind) if kind < 2 else np.arange(rows))
    which = which[: rng.choice([1, 3, rows // 5])]
    signs = rng.choice([-1, 1], len(which)) if kind == 3 else rng.choice([-1, 1])
    scores[which] = signs * code
    return scores, labels, rng.integers(0, 3, rows).astype(float)


@pytest.mark.parametrize("targets", ["none", "platt"])
def test_a_converged_fit_is_the_optimum(targets, dtype, rng):
    problems = [far_problem(rng, 50) for _ in range(8)]
    scores, labels, weights = map(np.stack, zip(*problems, strict=True))
    scores = scores.astype(dtype)
    fit = pj.fit(scores, labels, weights=weights.astype(dtype), options=Options(targets=targets))
    converged = np.flatnonzero(fit.status == Status.CONVERGED)
    assert len(converged) > (3 if dtype == np.float32 else 6)
    for k in converged:
        n = [weights[k][labels[k] == y].sum() for y in (0, 1)]
        smooth = {"none": (0.0, 1.0), "platt": (1 / (n[0] + 2), (n[1] + 1) / (n[1] + 2))}[targets]
        f, t = scores[k].astype(float), np.where(labels[k] == 1, *smooth[::-1])
        least = least_loss(f, weights[k], t)
        found = loss(f, weights[k], t, float(fit.A[k]), float(fit.B[k]))
        assert found - least < (1e-9 if dtype == np.float64 else 1e-4) * (1 + least)


def test_where_rounding_hides_the_other_rows_a_fit_fails(rng):
    """Float32 does not hold the squares of both scores."""
    for code in (-1e20, np.finfo(np.float32).min):
        scores, labels, _ = coded(rng, code)
        fit = pj.fit(scores.astype(np.float32), labels, options=PLAIN)
        assert fit.status in (Status.LINE_SEARCH_FAILED, Status.MAX_ITERATIONS)
    for code in (-1e155, -1e300):
        batch = [coded(rng, code, share=x)[:2] for x in (0.003, 0.005, 0.01, 0.2)]
        scores, labels = map(np.stack, zip(*batch, strict=True))
        assert not pj.fit(scores, labels, options=PLAIN).converged.any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_far_row_does_not_hide_the_others_silently(intercept, sign, rng):
    """In float32 the curve is flat to within rounding, and its decrement is small."""
    options = Options(targets="none", intercept=intercept)
    scores, labels = problem(rng, 100)
    codes = -sign * 10.0 ** np.arange(19, 38)
    batch = np.repeat(sign * scores[None], len(codes), 0)
    batch[:, np.argmax(labels)] = codes  # a positive on the negatives' side: A > 0 or flat
    batch, reversed_labels = batch.astype(np.float32), 1 - labels
    reversed_labels[np.argmax(labels)] = 1
    for y in labels, reversed_labels:
        fit = pj.fit(batch, y, options=options)
        exact = pj.fit(batch.astype(float), y, options=options)
        known = (fit.status == Status.CONVERGED) & (exact.status == Status.CONVERGED)
        np.testing.assert_allclose(fit.nll[known], exact.nll[known], rtol=1e-3)
    assert (exact.nll[exact.converged] < 60).any() and not fit.converged.all()
    pinned = pj.fit(-sign * batch, y, options=Options(targets="none", monotone=True))
    assert (pinned.status[pinned.A == 0] == Status.CONVERGED).all()


def test_sigma_is_no_curvature(rng):
    """Separable problems with a prior, where a far score of its class leaves sigma the pivot."""
    problems = []
    while len(problems) < 200:
        scores = 2 * rng.normal(size=10)
        labels = scores > 0
        if 0 < labels.sum() < 10:
            scores[0], far = np.where(labels[0], 1, -1), 10 ** rng.uniform(14, 30)
            problems.append((scores * np.where(np.arange(10) == 0, far, 1), scores, labels))
    far, near, labels = map(np.stack, zip(*problems, strict=True))
    near[:, 0] *= 1e3  # whose log-odds are sure, too
    prior = pj.GaussianPrior(mean=[-0.5, 0], precision=[[0.1, 0], [0, 0.1]])
    fit, exact = (pj.fit(x, labels, prior=prior, options=PLAIN) for x in (far, near))
    assert exact.converged.all()
    np.testing.assert_allclose(fit.nll[fit.converged], exact.nll[fit.converged], rtol=1e-3)


def test_a_slope_that_is_held_at_0_is_right_however_far_a_score_is(rng):
    """No slope hides what A = 0 says: far scores have the log-odds of all others."""
    scores, labels = problem(rng, 100)
    held = pj.fit(
        [[*scores, code] for code in (1e170, 1e200)],
        [*labels, 0],
        options=Options(targets="none", monotone=True),
    )
    assert (held.A == 0).all() and held.converged.all()


@pytest.mark.parametrize("curve", ["quadratic", "spline", "beta"])
def test_a_converged_curve_is_not_at_a_plateau(curve, dtype, rng):
    """A curve may do better than that of the other rows, since these curves are no lines."""
    codes = -(10.0 ** np.array([6, 9, 20, 38.5 if dtype == np.float64 else 38]))
    scores, labels, own = coded(rng, 1.0)
    batch = np.stack([np.where(own, scores, code) for code in codes]).astype(dtype)
    least = pj.fit(scores[own].astype(dtype), labels[own], options=PLAIN).nll
    found = pj.fit(batch, labels, options=PLAIN, curve=curve).curves
    converged = found.status == Status.CONVERGED
    assert converged.sum() >= 2 * (dtype == np.float64)
    assert (found.status != Status.NON_FINITE).all()
    assert (found.nll[converged] < least + 1e-3).all()
