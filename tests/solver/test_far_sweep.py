"""Random problems with codes among the scores: a converged fit is the optimum, by nested bisection.

The bisections are over floating-point numbers in their order, so they reach every magnitude.
"""

import warnings

import numpy as np
import pytest
from data import problem
from scipy.special import expit

import platt_jax as pj
from platt_jax import Options, Status

MOST = np.float64(1e100).view(np.int64)


def number(order):
    """The floating-point number at a place in the order of all; 0 is at 0."""
    return np.sign(order) * np.abs(order).view(np.float64)


def bisected(rises, count):
    """The two neighbours, as places, between which a function of places becomes positive."""
    low, high = np.full(count, -MOST), np.full(count, MOST)
    while (low + 1 < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)  # their sum may overflow
        up = rises(middle)
        low, high = np.where(up, low, middle), np.where(up, middle, high)
    return low, high


class Objective:
    """The penalized losses of K problems, by their formulas; all arrays begin with axis K."""

    def __init__(self, scores, targets, weights, mean, precision):
        self.f, self.t, self.w = scores, targets, weights
        self.mean, self.precision = mean, precision

    def loss(self, A, B):
        z = A[:, None] * self.f + B[:, None]
        rows = self.t * np.logaddexp(0, z) + (1 - self.t) * np.logaddexp(0, -z)
        off = np.stack([A, B], 1) - self.mean
        return (self.w * rows).sum(1) + np.einsum("ki,kij,kj->k", off, self.precision, off) / 2

    def gradient(self, A, B):
        z = A[:, None] * self.f + B[:, None]
        slopes = self.w * (self.t * expit(z) - (1 - self.t) * expit(-z))
        off = np.stack([A, B], 1) - self.mean
        pull = np.einsum("kij,kj->ik", self.precision, off)
        return (slopes * self.f).sum(1) + pull[0], slopes.sum(1) + pull[1]

    def best_B(self, A):
        return bisected(lambda B: self.gradient(A, number(B))[1] > 0, len(A))

    def least(self):
        def rises(place):
            A = number(place)
            at = [self.gradient(A, number(B)) for B in self.best_B(A)]
            # Where no number B makes a far row's log-odds moderate, it is between two.
            (low_A, low_B), (high_A, high_B) = at
            share = np.clip(-low_B / np.where(high_B > low_B, high_B - low_B, np.inf), 0, 1)
            return low_A + share * (high_A - low_A) > 0

        ends = [number(place) for place in bisected(rises, len(self.f))]
        return np.min([self.loss(A, number(B)) for A in ends for B in self.best_B(A)], 0)


def coded(rng, rows):
    """Rows, of which some have codes or numbers of their size as scores."""
    scores, labels = problem(rng, rows)
    scores = (scores + rng.normal()) * 10.0 ** rng.uniform(-1, 1)
    codes = rng.choice([-1, 1], 2) * 10.0 ** rng.uniform(4, 38.5, 2)
    missing = rng.random(rows) < rng.choice([0.01, 0.05, 0.2, 0.5])
    missing &= (labels == rng.integers(2)) | (rng.random() < 0.3)
    one_code, is_spread = rng.random() < 0.7, rng.random() < 0.2
    far = np.where(one_code, codes[0], rng.choice(codes, rows)) * rng.random(rows) ** is_spread
    weights = rng.choice([0, 0.3, 1, 2], rows) if rng.random() < 0.5 else np.ones(rows)
    weights[:2] = 1
    return np.where(missing, far, scores), labels, weights


def excess(rng, number, dtype, targets, prior):
    """Losses above the least ones per row, in nats, and the statuses."""
    columns = zip(*(coded(rng, 100) for _ in range(number)), strict=True)
    scores, labels, weights = map(np.stack, columns)
    scores, weights = scores.astype(dtype), weights.astype(dtype)
    mean, root = rng.normal(size=(number, 2)), rng.normal(size=(number, 2, 2))
    precision = root @ root.transpose(0, 2, 1) * prior * 10.0 ** rng.uniform(-3, 2, (number, 1, 1))
    mean, precision = mean.astype(dtype), precision.astype(dtype)
    given = pj.GaussianPrior(mean, precision) if prior else None
    options = Options(targets=targets)
    with warnings.catch_warnings(action="ignore"):  # float32 overflows with some priors
        fit = pj.fit(scores, labels, weights=weights, prior=given, options=options)
    f, w, mean, precision = (x.astype(float) for x in (scores, weights, mean, precision))
    n = [(w * (labels == y)).sum(1, keepdims=True) for y in (0, 1)]
    t = labels.astype(float)
    if targets == "platt":
        t = np.where(labels == 1, (n[1] + 1) / (n[1] + 2), 1 / (n[0] + 2))
    objective = Objective(f, t, w, mean, precision)
    with np.errstate(invalid="ignore"):  # NaN where a fit failed
        found = objective.loss(fit.A.astype(float), fit.B.astype(float))
    return (found - objective.least()) / w.sum(1), fit.status


@pytest.mark.slow
@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("targets", ["none", "platt"])
def test_a_converged_fit_is_the_optimum_for_any_codes(targets, prior, dtype, rng):
    above, status = excess(rng, 25, dtype, targets, prior)
    converged = status == Status.CONVERGED
    assert converged.mean() > (0.4 if dtype == np.float32 else 0.8)
    assert np.abs(above[converged]).max() < 1e-6
