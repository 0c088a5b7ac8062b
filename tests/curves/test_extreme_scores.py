"""Finite scores and costs as far as floats go: right results, and no warning of NumPy's."""

import warnings

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import metrics

CURVES = "sigmoid", "temperature", "quadratic", "beta", "spline", "isotonic", "bins", "venn_abers"


@pytest.fixture(autouse=True)
def loud():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*encountered.*")
        yield


def rows():
    rng = np.random.default_rng(0)
    f = rng.normal(size=120)
    return rng, f, labels_of(rng, f).astype(int)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("far", [1e300, -1e308])
def test_one_far_score_among_others(curve, far):
    _, f, y = rows()
    y[7] = far > 0
    f[7] = far
    segments = np.arange(120) % 2
    made = pj.fit_segments(f, y, segments, curve=curve)
    p = made.predict_proba(np.append(f, [-1.7e308, 1.7e308]), np.append(segments, [0, 1]))
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()


def test_a_spline_of_a_far_score_is_that_of_a_score_beyond_the_knots():
    _, f, y = rows()
    y[7], f[7] = 1, 1e300
    far = pj.fit(f, y, curve="spline").predict_proba(f)
    f[7] = 1e80
    near = pj.fit(f, y, curve="spline").predict_proba(f)
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-12)


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_costs_in_any_unit(unit):
    rng, _, y = rows()
    p = rng.random(len(y))
    one = metrics.expected_cost(y, p, cost=(1, 4))
    other = metrics.expected_cost(y, p, cost=(unit, 4 * unit))
    for name in ("value", "standard_error", "lower", "upper"):
        assert getattr(other, name) / unit == pytest.approx(getattr(one, name), rel=1e-12)
