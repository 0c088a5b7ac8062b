"""The coordinates of a problem: their scale."""

import jax.numpy as jnp
import numpy as np

from platt_jax import frame


def test_scales_are_powers_of_two(dtype, rng, x64):
    """A scale that were none would round the scores once more."""
    kind = np.finfo(dtype)
    spread = 2 ** rng.uniform(kind.minexp + 1, kind.maxexp - 2, 10_000)
    scale = np.asarray(frame._power_of_two_over(jnp.asarray(spread, dtype)))
    assert scale.dtype == dtype
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    product = scale * spread.astype(dtype)
    assert np.all((product >= 0.5) & (product < 1))
    assert frame._power_of_two_over(jnp.zeros((), dtype)) == 1
