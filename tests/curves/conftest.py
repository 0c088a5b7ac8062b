"""Calibrators with curves that are no sigmoids, for the tests of this folder."""

import pytest
from data import curved

import platt_jax as pj


@pytest.fixture(scope="session")
def calibrators():
    """By the name of the curve, of segments of 1 to 140 rows with ties and weights."""
    f, y, s, w = curved()
    names = "shift", "temperature", "quadratic", "beta", "spline", "isotonic", "bins", "venn_abers"
    return {name: pj.fit_segments(f, y, s, weights=w, curve=name) for name in names}
