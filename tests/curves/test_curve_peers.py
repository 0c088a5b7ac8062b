"""Curves against the packages of others that fit one problem at a time."""

import warnings

import numpy as np
import pytest

import platt_jax as pj


@pytest.fixture(scope="module", params=[None, 1], ids=["distinct scores", "ties"])
def rows(request):
    rng = np.random.default_rng(0)
    f = rng.normal(size=700)
    if request.param is not None:
        f = f.round(request.param)
    y = (rng.random(700) < 1 / (1 + np.exp(0.5 - 1.2 * f - 0.3 * f**2))).astype(int)
    return f, y


def expit(f):
    return 1 / (1 + np.exp(-f))


@pytest.mark.slow
def test_venn_abers_predictors_are_those_of_venn_abers(rows):
    theirs = pytest.importorskip("venn_abers").VennAbers()
    f, y = rows
    p = expit(f)
    theirs.fit(np.stack([1 - p, p], 1), y)
    # Of the fit's scores and of others, also beyond them.
    at = np.concatenate([f[:20], np.linspace(-5, 5, 41)])
    merged, both = theirs.predict_proba(np.stack([1 - expit(at), expit(at)], 1))
    ours = pj.fit_segments(f, y, np.zeros(len(f), int), curve="venn_abers")
    found = np.stack(ours.curves.both(at, np.zeros(len(at), int)), 1)
    np.testing.assert_allclose(found, both, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(at, 0), merged[:, 1], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_beta_calibration_is_that_of_betacal_and_nearer_to_the_optimum(rows):
    theirs = pytest.importorskip("betacal").BetaCalibration()
    f, y = rows
    # It changes Python's filters of warnings.
    with warnings.catch_warnings():
        q = theirs.fit(expit(f), y).predict(expit(f))
    options = pj.Options(targets="none")  # it takes labels as they are
    p = pj.fit_segments(f, y, np.zeros(len(f), int), curve="beta", options=options)
    p = p.predict_proba(f, 0)
    np.testing.assert_allclose(p, q, rtol=0, atol=2e-3)

    def loss(p):
        return -np.where(y, np.log(p), np.log1p(-p)).sum()

    # It stops early: its loss is a little larger, never smaller.
    assert loss(p) - 1e-9 < loss(q) < loss(p) + 1e-3
