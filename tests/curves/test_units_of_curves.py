"""Curves do not depend on the unit of the scores, on where these are, or on their sign."""

import numpy as np
import pytest
from data import labels_of
from scipy.optimize import minimize

import platt_jax as pj
from platt_jax import curves

AT = np.append(np.linspace(-3, 3, 25), [-40.0, 40.0])
KINDS = {
    "quadratic": "quadratic",
    "spline": "spline",
    "spline of 3 knots": curves.Spline(knots=3),
    "isotonic": "isotonic",
    "bins": "bins",
    "Venn-Abers": "venn_abers",
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    f, s = 1.3 * rng.normal(size=900) + 0.2, rng.integers(0, 4, 900)
    return f, labels_of(rng, 0.8 * f + 0.2 * f * f - 0.3).astype(int), s


def predicted(f, y, s, kind, at, **more):
    """Of each segment, and of an unseen one."""
    made = pj.fit_segments(f, y, s, curve=kind, **more)
    return np.stack([made.predict_proba(at, np.full(len(at), k)) for k in range(5)])


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_do_not_depend_on_the_unit_of_the_scores(kind, rows):
    f, y, s = rows
    one = predicted(f, y, s, KINDS[kind], AT)
    for unit in (1.4, 1e4, 1e-4, 1e100, 1e300):
        other = predicted(f * unit, y, s, KINDS[kind], AT * unit)
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-11)
    # Sums of 1,000 and a score have lost three digits.
    np.testing.assert_allclose(
        predicted(f + 1e3, y, s, KINDS[kind], AT + 1e3), one, rtol=0, atol=1e-9
    )


# Bins of equal mass begin at the smallest score.
@pytest.mark.parametrize("kind", [*(x for x in KINDS if x != "bins"), "beta"])
def test_mirrored_scores_have_the_mirrored_curve(kind, rows):
    f, y, s = rows
    kind = KINDS.get(kind, kind)
    other = predicted(-f, 1 - y, s, kind, -AT)
    np.testing.assert_allclose(1 - other, predicted(f, y, s, kind, AT), rtol=0, atol=1e-11)


@pytest.mark.parametrize("unit", [1e100, 1e160, 1e300])
def test_beta_of_large_scores_is_a_line_on_each_side_of_0(unit, rows):
    f, y, _ = rows
    options = pj.Options(targets="none")
    made = pj.fit(f * unit, y, curve="beta", options=options)

    def loss(theta):
        z = theta[0] + theta[1] * np.minimum(f, 0) + theta[2] * np.maximum(f, 0)
        return np.logaddexp(0, np.where(y > 0, -z, z)).sum()

    best = minimize(loss, [0.0, 1.0, 1.0], bounds=[(None, None), (0, None), (0, None)], tol=1e-14)
    c, a, b = best.x
    expected = 1 / (1 + np.exp(-(c + a * np.minimum(AT, 0) + b * np.maximum(AT, 0))))
    np.testing.assert_allclose(made.predict_proba(AT * unit), expected, rtol=0, atol=1e-5)
    assert made.curves.nll == pytest.approx(best.fun, rel=1e-9)
    assert made.converged
    ends = made.predict_proba([-np.inf, np.inf])
    np.testing.assert_array_equal(ends, [float(a == 0), 1.0])


@pytest.mark.parametrize(
    "knots", [3, pytest.param(4, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.slow)]
)
def test_weights_of_a_spline_count_rows(knots, rows):
    (f, y, s), kind = rows, curves.Spline(knots)
    w = np.random.default_rng(1).integers(0, 4, len(f))
    own = np.repeat(np.arange(len(f)), w)
    one = predicted(f, y, s, kind, AT, weights=w)
    np.testing.assert_allclose(one, predicted(f[own], y[own], s[own], kind, AT), rtol=0, atol=2e-7)


def coordinates(f, weights=None):
    made = pj.fit(f, np.arange(len(f)) % 2, weights=weights, curve="spline").curves
    return made.center.item(), made.scale.item()


def test_a_spline_has_the_quartiles_of_its_rows(rows):
    f, w = rows[0], np.random.default_rng(1).integers(0, 4, len(rows[0]))
    every = np.repeat(f, w)
    low, middle, high = np.quantile(every, [0.25, 0.5, 0.75], method="averaged_inverted_cdf")
    for found in (coordinates(every), coordinates(f, w), coordinates(f, w * 1e300)):
        assert found == pytest.approx((middle, 1.349 / (high - low)), rel=1e-12)
    # Where two quartiles are equal: the standard deviation, and 1 where all scores are.
    every = np.append(np.zeros(30), [1.0, -2.0, 4.0])
    for unit in (1.0, 1e300, 1e-300):
        scale = coordinates(every * unit)[1] * unit
        assert scale == pytest.approx(1 / every.std(), rel=1e-12)
    assert coordinates(np.full(9, 5.0)) == (5, 1)


def test_a_spline_of_many_rows_has_the_quartiles_of_evenly_spaced_ones():
    f = np.random.default_rng(0).normal(size=600_001)
    low, middle, high = np.quantile(f[::3], [0.25, 0.5, 0.75], method="averaged_inverted_cdf")
    assert coordinates(f) == pytest.approx((middle, 1.349 / (high - low)), rel=1e-12)


def test_a_spline_is_that_of_the_rows_that_count(rows):
    f, y, s = rows
    w = np.ones(len(f))
    w[f > 1] = 0
    one = predicted(f, y, s, "spline", AT, weights=w)
    kept = w > 0
    other = predicted(f[kept], y[kept], s[kept], "spline", AT, weights=w[kept])
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
