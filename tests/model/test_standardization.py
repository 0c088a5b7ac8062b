"""The coordinates of a problem: their scale."""

import jax.numpy as jnp
import numpy as np
import pytest
from data import problem
from reference import targets

from platt_jax.model import standardization, start
from platt_jax.model.objective import platt_targets
from platt_jax.model.statistics import Moments


def test_scales_are_powers_of_two(dtype, rng, x64):
    """A scale that were none would round the scores once more."""
    kind = np.finfo(dtype)
    spread = 2 ** rng.uniform(kind.minexp + 1, kind.maxexp - 2, 10_000)
    scale = np.asarray(standardization.power_of_two_over(jnp.asarray(spread, dtype)))
    assert scale.dtype == dtype
    np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    product = scale * spread.astype(dtype)
    assert np.all((product >= 0.5) & (product < 1))
    assert standardization.power_of_two_over(jnp.zeros((), dtype)) == 1


def test_moments_by_target_are_those_of_rows_that_belong_to_both_classes(rng, x64):
    """Each row twice: to class 1 with the weight of its target, to class 0 with the rest."""
    scores, labels = problem(rng, 30)

    def moments(weights):
        sums = (np.sum(weights * scores**power) for power in range(3))
        return Moments(*map(jnp.asarray, (*sums, 30.0)))

    pos, neg = moments(labels == 1), moments(labels != 1)
    t = targets(labels)
    for found, weights in zip(
        start.target_moments((pos, neg), platt_targets(pos.total, neg.total)),
        (t, 1 - t),
        strict=True,
    ):
        for one, other in zip(found[:3], moments(weights)[:3], strict=True):
            assert float(one) == pytest.approx(float(other), rel=1e-12)
