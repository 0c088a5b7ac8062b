"""n_bins="cube_root", the number of bins that scikit-learn has since 1.10."""

import numpy as np
import pytest

from platt_jax import metrics

FUNCTIONS = [
    metrics.reliability_curve,
    metrics.expected_calibration_error,
    metrics.maximum_calibration_error,
    metrics.ece_interval,
    metrics.ece_by_chance,
    metrics.hosmer_lemeshow,
    metrics.brier_decomposition,
]


def equal(one, other):
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (one, other)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rows", [2, 8, 9, 125, 1000, 1001])
def test_it_is_the_cube_root_of_the_rows_rounded_up(function, rows):
    rng = np.random.default_rng(rows)
    p = rng.random((3, rows))
    y = rng.random((3, rows)) < p
    expected = {2: 2, 8: 2, 9: 3, 125: 5, 1000: 10, 1001: 11}[rows]
    equal(function(y, p, n_bins="cube_root"), function(y, p, n_bins=expected))
    # Weight 2 is the row twice, and weight 0 no row.
    twice = function(np.tile(y[0], 4), np.tile(p[0], 4), n_bins="cube_root")
    w = np.append(np.full(rows, 4), 0)
    weighted = function(np.append(y[0], True), np.append(p[0], 0.5), weights=w, n_bins="cube_root")
    equal(weighted, twice)


def test_problems_of_unequal_numbers_of_rows_are_refused():
    rng = np.random.default_rng(0)
    p = rng.random(1000)
    y = rng.random(1000) < p
    segments = np.repeat([1, 2, 3], [100, 400, 500])
    with pytest.raises(ValueError, match='n_bins: "cube_root" is 5 to 10 bins for prob'):
        metrics.expected_calibration_error(
            np.stack([y, y]),
            np.stack([p, p]),
            weights=np.stack([p >= 0, segments == 1]),
            n_bins="cube_root",
        )
    with pytest.raises(ValueError, match=r"expected an integer >= 1, or .cube_root., got"):
        metrics.expected_calibration_error(y, p, n_bins="sqrt")
    empty = metrics.expected_calibration_error(y, p, weights=np.zeros(1000), n_bins="cube_root")
    assert np.isnan(empty)
    heavy = metrics.reliability_curve(y, p, weights=np.full(1000, 1e300), n_bins="cube_root")
    assert np.isfinite(np.nansum(heavy.prob_pred))


def test_metrics_of_several_classes_take_it():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=343)
    y = (rng.random((343, 1)) > p.cumsum(axis=1)).sum(axis=1)
    for function in (metrics.top_label_ece, metrics.classwise_ece):
        equal(function(y, p, n_bins="cube_root"), function(y, p, n_bins=7))
