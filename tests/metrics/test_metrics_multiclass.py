"""Metrics of several classes."""

import numpy as np
import pytest

from platt_jax import metrics, plots
from platt_jax.caller import Caller

FUNCTIONS = [
    metrics.multiclass_log_loss,
    metrics.multiclass_brier_score,
    metrics.top_label_ece,
    metrics.classwise_ece,
]


@pytest.fixture
def drawn(rng):
    e = np.exp(rng.normal(size=(500, 4)))
    p = e / e.sum(axis=1, keepdims=True)
    labels = (np.log(p) * 0.7 + rng.gumbel(size=p.shape)).argmax(axis=1)
    return labels, p, rng.integers(0, 3, 500).astype(float)


def values(found):
    return np.array(found if np.ndim(found) == 0 else found.value)


def test_the_values_are_scikit_learns(drawn):
    skl = pytest.importorskip("sklearn.metrics")
    labels, p, w = drawn
    ours = values(metrics.multiclass_log_loss(labels, p, weights=w))
    np.testing.assert_allclose(ours, skl.log_loss(labels, p, sample_weight=w), rtol=1e-12)
    ours = values(metrics.multiclass_brier_score(labels, p, weights=w))
    theirs = skl.brier_score_loss(
        labels, p, sample_weight=w, labels=np.arange(4), scale_by_half=False
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_two_classes_are_as_the_metrics_of_two(drawn):
    _, p, w = drawn
    q = p[:, 0]
    y = np.random.default_rng(0).random(500) < q
    both = np.stack([1 - q, q], axis=1)
    args = {"weights": w}
    np.testing.assert_allclose(
        values(metrics.multiclass_log_loss(y.astype(int), both, **args)),
        metrics.log_loss(y, q, **args),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        values(metrics.multiclass_brier_score(y.astype(int), both, **args)),
        2 * metrics.brier_score(y, q, **args),
        rtol=1e-12,
    )
    ece = metrics.expected_calibration_error(y, q, **args, n_bins=7)
    np.testing.assert_allclose(metrics.classwise_ece(y.astype(int), both, n_bins=7, **args), ece)


def test_the_ece_of_the_top_label_by_hand():
    p = np.array([[0.55, 0.45, 0], [0.1, 0.58, 0.32], [0.02, 0, 0.98], [0.01, 0.96, 0.03]])
    found = metrics.top_label_ece([0, 2, 2, 0], p)
    # Bin (0.5, 0.6]: one of two right, mean 0.565. Bin (0.9, 1]: one of two right, mean 0.97.
    np.testing.assert_allclose(found.value, (abs(0.5 - 0.565) + abs(0.5 - 0.97)) / 2, rtol=1e-12)
    assert found.lower <= found.value <= found.upper


@pytest.mark.parametrize("function", FUNCTIONS)
def test_weights_count_rows_and_batches_are_loops(drawn, function):
    labels, p, w = drawn
    rows = np.repeat(np.arange(500), w.astype(int))
    one, other = function(labels, p, weights=w), function(labels[rows], p[rows])
    np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-9)
    batch = function(labels.reshape(5, 100), p.reshape(5, 100, 4), weights=w.reshape(5, 100))
    loop = [
        values(function(a, b, weights=c))
        for a, b, c in zip(
            labels.reshape(5, 100), p.reshape(5, 100, 4), w.reshape(5, 100), strict=True
        )
    ]
    got = batch if isinstance(batch, np.ndarray) else batch.value
    np.testing.assert_allclose(got, loop, rtol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_names_of_classes(drawn, function):
    labels, p, _ = drawn
    names = np.array(["d", "b", "c", "a"])
    one = function(names[labels], p, classes=names)
    np.testing.assert_array_equal(np.array(one), np.array(function(labels, p)))
    order = np.argsort(names)
    np.testing.assert_allclose(np.array(function(names[labels], p[:, order])), np.array(one))
    with pytest.raises(ValueError, match="labels: 'a' is not among classes"):
        function(names[labels], p, classes=["x", "b", "c", "d"])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_by_segment_is_a_loop(drawn, function):
    labels, p, w = drawn
    names, ids = np.array(["d", "b", "c", "a"]), np.arange(500) % 7
    found = metrics.by_segment(function, names[labels], p, ids, weights=w, classes=names)
    each = [function(labels[ids == k], p[ids == k], weights=w[ids == k]) for k in range(7)]
    got = found.values if isinstance(found.values, np.ndarray) else found.values.value
    np.testing.assert_allclose(got, [values(x) for x in each], rtol=1e-9)
    assert len(found.table()["value"]) == 7


@pytest.mark.parametrize("function", [metrics.multiclass_log_loss, metrics.multiclass_brier_score])
def test_intervals_cover_the_mean(function):
    """800 samples of 60 rows: the interval of normal theory covers about as often as it says."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), size=(800, 60))
    labels = (rng.random((800, 60, 1)) > p.cumsum(axis=2)).sum(axis=2)
    found = function(labels, p, level=0.9)
    many = rng.dirichlet(np.ones(3), size=200_000)
    of_many = (rng.random((200_000, 1)) > many.cumsum(axis=1)).sum(axis=1)
    true = function(of_many, many).value
    assert abs(np.mean((found.lower <= true) & (true <= found.upper)) - 0.9) < 0.04


def test_rows_that_are_nan_or_do_not_count():
    labels, p = [0, 1, 1], np.array([[0.7, 0.3], [np.nan, 0.4], [0.2, 0.8]])
    for function in FUNCTIONS:
        assert np.isnan(np.array(function(labels, p))).all()
        kept = function(labels, p, weights=[1, 0, 1])
        np.testing.assert_allclose(
            np.array(kept), np.array(function([0, 1], p[[0, 2]])), rtol=1e-12
        )
        assert np.isnan(values(function(labels, p, weights=[0, 0, 0])))
    one = metrics.multiclass_log_loss([0], [[0.2, 0.8]])
    assert np.isfinite(one.value) and np.isnan(one.lower)
    zero = metrics.multiclass_log_loss([0], [[0.0, 1.0]])
    np.testing.assert_allclose(zero.value, -np.log(1e-12), rtol=1e-9)
    wide = metrics.multiclass_log_loss([0, 1, 1], np.float32([[0.7, 0.3]] * 3), weights=[1e300] * 3)
    assert wide.value.dtype == np.float32 and np.isfinite(wide.value)


def test_arguments_are_refused():
    p = np.full((3, 2), 0.5)
    for message, args in {
        "proba: expected .* with rows": ([0, 1, 1], p[:, 0]),
        "proba: expected probabilities": ([0, 1, 1], 3 * p),
        r"labels: expected \(3,\) class ids": ([0, 1], p),
    }.items():
        for function in FUNCTIONS:
            with pytest.raises(ValueError, match=message):
                function(*args)
    with pytest.raises(ValueError, match="labels: expected a shape"):
        metrics.classwise_ece([[0, 1]], p[None])
    with pytest.raises(ValueError, match="weights: expected"):
        metrics.classwise_ece([0, 1, 1], p, weights=[1, 2])


def test_the_figure_of_the_top_label(drawn):
    pytest.importorskip("matplotlib").use("Agg")
    labels, p, _ = drawn
    axes = plots.reliability_diagram(*metrics.top_label(labels, p), method="binned")
    assert axes.get_ylabel() == "observed frequency"
    correct, confidence = metrics.top_label(labels, p)
    assert (correct == (p.argmax(axis=1) == labels)).all() and (confidence == p.max(axis=1)).all()


@pytest.mark.parametrize("function", [*FUNCTIONS, metrics.top_label])
def test_probabilities_that_do_not_add_up_are_noticed(drawn, function):
    labels, p, _ = drawn
    Caller._warned_once.clear()
    for bad in (0.9 * p, np.minimum(1.5 * p, 1), 0.5 * p.astype(np.float32)):
        with pytest.warns(
            RuntimeWarning, match="proba: rows add up to .* differ from 1 by"
        ) as seen:
            function(labels, bad)
        assert seen[0].filename == __file__
    for good in (p, p.round(2), p.astype(np.float16), np.where(labels[:, None] == 1, np.nan, p)):
        function(labels, good)  # the suite makes warnings errors
