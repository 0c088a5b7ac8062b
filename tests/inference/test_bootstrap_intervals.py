"""BCa intervals: against a plain loop, and by how often they hold the truth."""

from statistics import NormalDist

import numpy as np
import pytest
from data import batch

import platt_jax as pj

NORMAL = NormalDist()


def bca(replicates, estimate, added, level=0.95):
    """Efron 1987: the ends for one number, to which the rows (or clusters) add `added`."""
    count = len(replicates)
    below = sum(x < estimate for x in replicates) / 2 + sum(x <= estimate for x in replicates) / 2
    bias = NORMAL.inv_cdf(min(max(below / count, 0.5 / count), 1 - 0.5 / count))
    acceleration = np.sum(added**3) / (6 * np.sum(added**2) ** 1.5)
    ends = []
    for share in ((1 - level) / 2, (1 + level) / 2):
        z = bias + NORMAL.inv_cdf(share)
        part = NORMAL.cdf(bias + z / (1 - acceleration * z))
        ends.append(np.quantile(replicates, part))
    return ends


def added_by_rows(fit, scores, labels, weights, smooth=True):
    """(N, 2), what each row adds to (A, B), by the inverse of the Hessian."""
    p = 1 / (1 + np.exp(fit.A * scores + fit.B))
    high = (fit.n_pos + 1) / (fit.n_pos + 2) if smooth else 1
    low = 1 / (fit.n_neg + 2) if smooth else 0
    off = weights * (np.where(labels, high, low) - p)
    return -(off[:, None] * np.stack([scores, np.ones_like(scores)], 1)) @ fit.covariance


@pytest.mark.slow
@pytest.mark.parametrize(("smooth", "weighted"), [(False, False), (True, True)])
def test_bca_intervals_against_a_loop(rng, weighted, smooth):
    scores, labels = batch(rng, 3, 60)
    weights = rng.integers(0, 3, scores.shape).astype(float) if weighted else np.ones(scores.shape)
    options = pj.Options(targets="platt" if smooth else "none")
    given = weights if weighted else None
    made = pj.inference.bootstrap(scores, labels, weights=given, options=options)
    at = np.array([-1.0, 0.5, 30.0])
    lower, upper = made.interval()
    lower_p, upper_p = made.band(at)
    for k in range(3):
        fit = pj.fit(scores[k], labels[k], weights=weights[k], options=options)
        added = added_by_rows(fit, scores[k], labels[k], weights[k], smooth)
        A, B = (x[~made.failed[:, k], k] for x in (made.A, made.B))
        for i, x, estimate in ((0, A, fit.A), (1, B, fit.B)):
            found = lower[k, i], upper[k, i]
            np.testing.assert_allclose(found, bca(x, estimate, added[:, i]), rtol=1e-7)
        for j, f in enumerate(at):
            ends = bca(-(A * f + B), -(fit.A * f + fit.B), -(added @ [f, 1]))
            found = lower_p[k, j], upper_p[k, j]
            np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.array(ends))), rtol=1e-7)


@pytest.mark.slow
def test_the_acceleration_is_that_of_the_jackknife(rng):
    """Leaving each row out: a sixth of the skewness of what the rows change."""
    scores, labels = (x[0] for x in batch(rng, 1, 60))
    options = pj.Options(targets="none")
    left_in = 1 - np.eye(60)
    every = np.tile(scores, (60, 1))
    each = pj.fit(every, labels, weights=left_in, options=options)
    made = pj.inference.bootstrap(scores, labels, replicates=2, options=options)
    for i, x in enumerate((each.A, each.B)):
        u = x.mean() - x
        expected = np.sum(u**3) / (6 * np.sum(u**2) ** 1.5)
        found = made.influence.parameter_accelerations()[i]
        np.testing.assert_allclose(found, expected, rtol=0.1, atol=2e-4)


def test_moments_do_not_depend_on_pieces_nor_on_where_scores_lie(rng, monkeypatch):
    scores, labels = batch(rng, 6, 500)
    whole = pj.inference.bootstrap(scores, labels, replicates=2).influence
    monkeypatch.setattr("platt_jax.inference.influence._AT_ONCE", 170)
    parts = pj.inference.bootstrap(scores, labels, replicates=2).influence
    np.testing.assert_allclose(parts.squares, whole.squares, rtol=1e-9)
    np.testing.assert_allclose(parts.cubes, whole.cubes, rtol=1e-9, atol=1e-12)
    far = pj.inference.bootstrap(1e6 + 1e-3 * scores, labels, replicates=2).influence
    np.testing.assert_allclose(
        far.parameter_accelerations()[:, 0], whole.parameter_accelerations()[:, 0], rtol=1e-4
    )
    near = far.logit_accelerations(1e6 + 1e-3 * np.ones(6)), whole.logit_accelerations(np.ones(6))
    np.testing.assert_allclose(*near, rtol=1e-4)


def test_segments_and_batches_give_the_same_intervals(rng):
    scores, labels = batch(rng, 3, 60)
    made = pj.inference.bootstrap(scores, labels, replicates=50)
    segments = np.repeat(["b", "a", "c"], 60)
    by_segment = pj.inference.bootstrap(
        scores.ravel(), labels.ravel(), segments=segments, replicates=50
    )
    for name in ("squares", "cubes"):
        one, other = (getattr(x.influence, name) for x in (made, by_segment))
        np.testing.assert_allclose(other, one[[1, 0, 2]], rtol=1e-9, atol=1e-12)
    shaped = pj.inference.bootstrap(scores[None], labels[None], replicates=50)
    assert np.array_equal(shaped.interval()[0], made.interval()[0][None])
    assert np.array_equal(shaped.band(scores[None])[1], made.band(scores)[1][None])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", "bayesian"])
def test_kinds_and_types(rng, name):
    scores, labels = batch(rng, 2, 60)
    kind = "bayesian" if name == "bayesian" else "poisson"
    dtype = np.float32 if name == "float32" else np.float64
    made = pj.inference.bootstrap(scores.astype(dtype), labels, kind=kind)
    for ends in (*made.interval(), *made.band([0.0])):
        assert ends.dtype == dtype and np.isfinite(ends).all()


def test_constant_scores_have_intervals_of_the_intercept(rng):
    made = pj.inference.bootstrap(np.ones(100), rng.random(100) < 0.4)
    lower, upper = made.interval()
    assert lower[1] < made.fit.B < upper[1] and lower[0] == upper[0] == 0


def plateaus(f):
    return 0.1 + 0.6 / (1 + np.exp(-4 * f))


@pytest.mark.slow
def test_intervals_hold_the_sigmoid_nearest_to_another_curve(rng):
    """Of the percentile ones 89 to 93 % do."""
    f = np.linspace(-6, 6, 2001)
    density = np.exp(-f * f / 2)
    weights = np.concatenate([density * plateaus(f), density * (1 - plateaus(f))])
    options = pj.Options(targets="none")
    nearest = pj.fit(np.tile(f, 2), np.repeat([1, 0], 2001), weights=weights, options=options)
    scores = rng.normal(size=(1000, 100))
    made = pj.inference.bootstrap(
        scores, rng.random(scores.shape) < plateaus(scores), options=options
    )
    truth = np.stack([nearest.A, nearest.B])
    lower, upper = made.interval()
    covered = ((lower <= truth) & (truth <= upper)).mean(0)
    assert (covered > 0.93).all() and (covered < 0.97).all(), covered
    narrower = np.median(upper - lower, axis=0)
    lower, upper = made.interval(kind="percentile")
    assert ((lower <= truth) & (truth <= upper)).mean(0)[0] < covered[0] - 0.01
    assert narrower[0] < 0.96 * np.median(upper - lower, axis=0)[0]
