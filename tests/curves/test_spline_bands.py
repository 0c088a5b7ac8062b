"""How often the bands of splines hold the truth: what docs/howto/curves.md says."""

import numpy as np
import pytest
from scipy.special import expit

import platt_jax as pj

TRUTHS = {
    "a line": lambda f: 1.5 * f - 0.5,
    "a wave": lambda f: 1.5 * f - 0.5 + np.sin(2 * f),
    "narrow waves": lambda f: f + np.sin(3 * f),
}


def held(truth, rows, segments=60):
    """The share of scores from -1.5 to 1.5, of all segments, at which the band holds the truth."""
    rng = np.random.default_rng(0)
    ids, f = np.repeat(np.arange(segments), rows), rng.normal(size=segments * rows)
    made = pj.fit_segments(f, rng.random(len(f)) < expit(truth(f)), ids, curve="spline")
    at = np.tile(np.linspace(-1.5, 1.5, 31), segments)
    lower, upper = made.band(at, np.repeat(np.arange(segments), 31))
    p = expit(truth(at))
    return np.mean((lower <= p) & (p <= upper))


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
def test_bands_hold_as_the_page_says(truth):
    found = [held(TRUTHS[truth], rows) for rows in (100, 300, 1_000, 5_000)]
    if truth == "narrow waves":
        assert found == sorted(found, reverse=True)
        np.testing.assert_allclose(found[::3], [0.78, 0.10], atol=0.01)
        return
    least, most = (0.95, 0.97) if truth == "a line" else (0.89, 0.93)
    assert least - 0.005 < min(found) and max(found) < most + 0.005
