"""Beta scaling's size parameter: the best one, for any scores, and no NaN on the way."""

import numpy as np
import pytest
from scipy.special import betainc

from platt_jax.scalers import BetaScaling
from platt_jax.scalers.historical.beta_scaling import _quantile

TRIED = np.geomspace(0.1, 1e4, 200)


def test_rows_of_the_other_predicted_class_do_not_spoil_a_curve():
    scores, labels = [2.0, -2, -4, -10, 5, 3], [0, 1, 1, 1, 1, 1]
    fitted = BetaScaling("predicted").fit(scores, labels)
    alone = BetaScaling("predicted").fit([2.0, 5, 3], [0, 1, 1])
    for one, other in zip(fitted.curves, alone.curves, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


def random_problem(rng):
    n = int(rng.choice([3, 5, 8, 20, 48, 200, 500]))
    spread = 10 ** rng.uniform(-1, 1)
    f = spread * (rng.normal(size=n) + rng.normal())
    f = np.round(f) if rng.random() < 0.3 else f
    labels = rng.random(n) < 1 / (1 + np.exp(-2 * rng.normal() * f / spread - rng.normal()))
    return f, labels, rng.integers(0, 4, n) if rng.random() < 0.5 else np.ones(n)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["binary", "predicted"])
def test_no_size_is_better_than_the_one_found(form, rng):
    curved = 0
    for _ in range(100):
        f, labels, weights = random_problem(rng)
        if not weights.any():
            continue
        curves = BetaScaling(form).fit(f, labels, weights=weights).curves
        regions = [f == f] if form == "binary" else [f > 0, f <= 0]
        for region, rows in enumerate(regions):
            member_mean, member_size, performance, size = (leaf[region] for leaf in curves)
            rows = rows & (weights > 0)
            if not member_size:
                continue
            sign = 1 - 2 * region
            member = 1 / (1 + np.exp(-2 * sign * f[rows]))
            ranks = betainc(member_mean * member_size, (1 - member_mean) * member_size, member)
            sizes = np.append(size, TRIED)[:, None]
            p = _quantile(performance * sizes, (1 - performance) * sizes, ranks)
            right = labels[rows] == (region == 0)
            error = np.average((p - right) ** 2, weights=weights[rows], axis=1)
            assert error[0] <= error.min() + 1e-12, (f, labels, weights)
            curved += 1
    assert curved > 50


def test_quantiles_in_the_far_lower_tail():
    """Where SciPy's quantile function is NaN, as the distribution function's inverse."""
    rng = np.random.default_rng(0)
    size = 10 ** rng.uniform(-1, 4, (2000, 1))
    mean = 10 ** rng.uniform(-4, 0, (2000, 1))
    ranks = 10 ** rng.uniform(-300, 0, (2000, 20))
    p = _quantile(mean * size, (1 - mean) * size, ranks)
    assert np.all((p >= 0) & (p <= 1))
    seen = (p > 1e-300) & (p < 1e-3)
    back = betainc(mean * size, (1 - mean) * size, p)
    np.testing.assert_allclose(back[seen], ranks[seen], rtol=1e-6)
    assert np.all(np.diff(_quantile(3.0, 0.2, np.sort(ranks, axis=None))) >= 0)
