"""Fits against mpmath optima of 50 digits, on random problems with extremes among them."""

import numpy as np
import pytest
from reference import error_in_standard_errors, optimum, problem

import platt_jax as pj
from platt_jax import Options, Status

PROBLEMS = 200


def make(k):
    """Problem k: (scores, labels, weights or None, kind of targets)."""
    rng = np.random.default_rng([2007, k])
    rows = int(rng.integers(2, 90))
    base_rate = [0.5, 0.1, 0.03][k % 3]
    scores, labels = problem(rng, rows, shift=rng.uniform(-1, 4), base_rate=base_rate)
    labels[:2] = 0, 1
    twist = k % 10
    if twist == 1:
        scores = scores * 1e8
    elif twist == 2:
        scores = scores * 1e-8 + 1
    elif twist == 3:
        scores = np.round(scores)  # ties
    elif twist == 4:
        scores[0] = -1e4  # an outlier
    elif twist == 5:
        scores = 5.0 * labels + 1e-3 * scores  # separable, two tight clusters
    elif twist == 6:
        scores = -scores + 1e5  # reversed and far from 0
    elif twist == 7:
        scores = np.exp(3 * scores)  # skewed
    elif twist == 8:
        scores = 1 / (1 + np.exp(-scores))  # already probabilities
    weights = 10.0 ** rng.uniform(-3, 3, rows) if k % 4 == 3 else None
    kind = (
        "none" if k % 5 == 4 and twist not in (5,) and not _separable(scores, labels) else "platt"
    )
    return scores, labels, weights, kind


PRIOR = (-1.0, 0.25), ((4.0, 1.0), (1.0, 2.0))


@pytest.mark.parametrize("shift", [0.0, 5.0, 1e6])
def test_optima_under_a_prior(shift):
    prior = pj.GaussianPrior(*(np.array(part) for part in PRIOR))
    for k in range(0, PROBLEMS, 7):
        scores, labels, weights, _ = make(k)
        f = scores / max(1, np.abs(scores).max()) + shift
        one = pj.fit(f, labels, weights=weights, prior=prior)
        assert one.status == Status.CONVERGED, k
        exact = optimum(f, labels, weights, prior=PRIOR, start=(float(one.A), float(one.B)))
        rounding = abs(float(np.spacing(one.B))) * float(exact[2][2]) ** 0.5
        error = error_in_standard_errors(one.A, one.B, exact)
        assert error <= max(1e-6, rounding), (k, error)


def _separable(scores, labels):
    pos, neg = scores[labels == 1], scores[labels == 0]
    return pos.min() >= neg.max() or neg.min() >= pos.max()


@pytest.mark.parametrize("derivatives", ["analytic", "autodiff"])
def test_optima_to_fifty_digits(derivatives):
    worst = {np.float64: 0.0, np.float32: 0.0}
    for k in range(PROBLEMS) if derivatives == "analytic" else range(0, PROBLEMS, 10):
        scores, labels, weights, kind = make(k)
        options = Options(targets=kind, derivatives=derivatives)
        for dtype, bound in ((np.float64, 1e-6), (np.float32, 1e-2)):
            f = scores.astype(dtype)
            if np.ptp(f) == 0 or (kind == "none" and _separable(f, labels)):
                continue  # float32 took the overlap away
            w = None if weights is None else weights.astype(dtype)
            one = pj.fit(f, labels, weights=w, options=options)
            assert one.status == Status.CONVERGED, k
            exact = optimum(f, labels, w, kind, start=(float(one.A), float(one.B)))
            error = error_in_standard_errors(one.A, one.B, exact)
            # Far from 0 the rounding of B alone may cost more: one unit in its last place.
            rounding = abs(float(np.spacing(one.B))) * float(exact[2][2]) ** 0.5
            assert error <= max(bound, rounding), (k, dtype, error)
            worst[dtype] = max(worst[dtype], error)
    print(f"\nworst error in standard errors: {worst}")
