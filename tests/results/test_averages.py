"""Mean probabilities by compiled programs of a few lengths."""

import numpy as np
import pytest

from platt_jax.results import averages


@pytest.mark.slow
def test_a_row_has_the_same_bits_in_any_company(rng, monkeypatch):
    """Wide normals among them, which another program takes."""
    scores = rng.normal(size=70)
    normal = np.column_stack([rng.normal(size=(70, 2)), np.full((70, 3), [0.3, 0.0, 0.2])])
    normal[::7, 4] = 30.0
    together = averages.mean_probability(scores, normal)
    monkeypatch.setattr(averages, "_ROWS", (32, 16))
    np.testing.assert_array_equal(averages.mean_probability(scores, normal), together)
    assert len(averages.mean_probability(scores[:0], normal[:0])) == 0
