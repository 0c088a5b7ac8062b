"""Metrics of arrays on a GPU: those of the host's arrays, without a copy of rows to it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accelerated import accelerated, assert_rows_stay, outcome

from platt_jax import metrics

pytestmark = pytest.mark.slow  # compiles many programs

OF_PROBA = {
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "spiegelhalter": metrics.spiegelhalter,
    "reliability_curve": partial(metrics.reliability_curve, n_bins=7),
    "quantile": partial(metrics.reliability_curve, n_bins=4, strategy="quantile"),
    "positives": partial(metrics.expected_calibration_error, strategy="positives"),
    "ece": metrics.expected_calibration_error,
    "mce": metrics.maximum_calibration_error,
    "ece_interval": metrics.ece_interval,
}
N = 400


@pytest.fixture(autouse=True)
def on_accelerator(monkeypatch):
    """JAX arrays are taken for arrays on an accelerator; JAX's 64-bit types are off."""
    with accelerated(monkeypatch, np.float32):
        yield


def there(*arrays):
    with jax.enable_x64(True):
        return [None if x is None else jnp.asarray(x) for x in arrays]


def assert_same(found, expected, rtol=1e-12):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(x, np.ndarray | np.generic) and x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol if y.dtype == np.float64 else 1e-6, atol=1e-13)


def made(rng, dtype, logits=False):
    """Labels and predictions (2, 3, N), some of them equal, and some 0, 1 or far."""
    values = rng.normal(size=(2, 3, N)).round(1) * 3
    values[0, 0, :4] = -800, 800, -50, 40
    values = (values if logits else 1 / (1 + np.exp(-np.clip(values, -50, 40)))).astype(dtype)
    return rng.random(values.shape) < 0.3, values


@pytest.mark.parametrize("name", OF_PROBA)
@pytest.mark.parametrize("logits", [False, True])
def test_as_on_the_host(monkeypatch, rng, name, logits):
    labels, proba = made(rng, np.float64, logits)
    metric = partial(OF_PROBA[name], from_logits=logits)
    assert_same(metric(*there(labels, proba)), metric(labels, proba))
    some = there(labels[0, 0], proba[0, 0].astype(np.float32))
    assert_same(metric(*some), metric(labels[0, 0], proba[0, 0].astype(np.float32)))
    assert_rows_stay(monkeypatch, metric, some, 60)


def test_roc_auc(monkeypatch, rng):
    labels, scores = made(rng, np.float64, logits=True)
    for kind in (np.float64, np.float32, np.int32):
        rows = labels, scores.astype(kind)
        assert_same(metrics.roc_auc(*there(*rows)), metrics.roc_auc(*rows))
    assert_rows_stay(monkeypatch, metrics.roc_auc, there(labels[0, 0], scores[0, 0]), 8)
    assert np.isnan(metrics.roc_auc(*there(np.ones(5, bool), np.arange(5.0))))


@pytest.mark.parametrize("metric", [*OF_PROBA.values(), metrics.roc_auc])
@pytest.mark.parametrize("kind", [np.float32, np.uint8, "huge", "tiny"])
def test_weights(rng, metric, kind):
    labels, proba = made(rng, np.float64)
    weights = rng.integers(0, 4, proba.shape)
    if isinstance(kind, str):
        scale = 1e306 if kind == "huge" else 1e-290
        weights = weights * scale
    else:
        weights = weights.astype(kind)
    proba[0, 1][weights[0, 1] == 0] = np.nan
    proba[0, 2, np.flatnonzero(weights[0, 2])[0]] = np.nan
    weights[1, 1] = 0
    expected = metric(labels, proba, weights=weights)
    y, p, w = there(labels, proba, weights)
    assert_same(metric(y, p, weights=w), expected)
    assert_same(metric(labels, p, weights=weights), expected)
    values = jax.tree.leaves(expected)[0]
    assert np.isnan(values[0, 2]).all() and np.isnan(values[1, 1]).all()
    assert not np.isnan(values[0, 1]).all()


@pytest.mark.parametrize("metric", [metrics.log_loss, metrics.roc_auc])
def test_labels_and_weights_of_any_kind(rng, metric):
    labels, proba = made(rng, np.float64)
    expected = metric(labels, proba)
    for coded in (labels * 2 - 1, labels.astype(np.uint8), labels.astype(np.float32)):
        assert_same(metric(*there(coded, proba)), expected)
        assert_same(metric(coded, *there(proba)), expected)
    assert_same(metric(*there(labels[0, 0], proba)), metric(labels[0, 0], proba))
    spoilt = labels.astype(np.float32)
    spoilt[1, 2, 3] = np.nan
    assert_same(metric(*there(spoilt, proba)), metric(spoilt, proba))
    one = np.float32(2)
    assert_same(metric(*there(labels, proba), weights=one), expected)
    infinite = np.where(np.arange(N) == 3, np.inf, 1)
    found = metric(*there(labels, proba), weights=there(infinite)[0])
    assert_same(found, metric(labels, proba, weights=infinite))


@pytest.mark.parametrize("kind", [np.float16, jnp.bfloat16, np.int8, bool])
def test_predictions_of_any_kind(rng, kind):
    labels, proba = made(rng, np.float32)
    proba = proba.astype(kind)
    assert_same(metrics.brier_score(*there(labels, proba)), metrics.brier_score(labels, proba))


def test_bad_arguments_as_on_the_host(rng):
    labels, proba = made(rng, np.float64)
    ece, weights = metrics.expected_calibration_error, np.ones(N)
    for metric, y, p, more in (
        (metrics.log_loss, labels, proba + 1, {}),
        (metrics.log_loss, labels * 2, proba, {}),
        (metrics.log_loss, labels * 1 - (labels == 0) * (np.arange(N) > 1), proba, {}),
        (metrics.log_loss, labels[0, 0, 1:], proba, {}),
        (metrics.log_loss, labels, proba[..., :0], {}),
        (metrics.log_loss, labels, proba[0, 0, 0], {}),
        (metrics.log_loss, labels, proba * 1j, {}),
        (metrics.roc_auc, labels, proba * 1j, {}),
        (metrics.roc_auc, labels * 1j, proba, {}),
        (metrics.brier_score, labels, proba, {"weights": -weights}),
        (metrics.brier_score, labels, proba, {"weights": weights[1:]}),
        (ece, labels, proba, {"n_bins": 0}),
        (ece, labels, proba, {"strategy": "some"}),
    ):
        expected = outcome(metric, y, p, **more)
        assert isinstance(expected[1], str)
        sent = {name: x if np.ndim(x) == 0 else there(x)[0] for name, x in more.items()}
        assert outcome(metric, *there(y, p), **sent) == expected
        assert outcome(metric, y, *there(p), **more) == expected


@pytest.mark.parametrize("name", ["hosmer_lemeshow", "smooth_ece", "brier_decomposition"])
def test_others_copy_rows(rng, name):
    metric, (labels, proba) = getattr(metrics, name), made(rng, np.float32)
    with jax.transfer_guard_device_to_host("allow"):
        assert_same(metric(*there(labels, proba)), metric(labels, proba))


def test_by_segment(monkeypatch, rng):
    shops = (np.arange(90) % 4 * 3 - 5).astype(np.int32)
    labels, proba = rng.random(90) < 0.3, rng.random(90).astype(np.float32)
    weights = rng.integers(0, 3, 90).astype(np.float32)
    bad = np.where(np.arange(90) == 3, np.nan, labels).astype(np.float32)
    brier = partial(metrics.by_segment, metrics.brier_score)
    for y, ids, more in (
        (labels, shops, {}),
        (labels * 2 - 1, shops.astype(str), {"weights": weights}),
        (bad, shops, {}),
    ):
        expected = brier(y, proba, ids, **more)
        ids = ids if ids.dtype.kind == "U" else jnp.asarray(ids)
        found = brier(jnp.asarray(y), jnp.asarray(proba), ids, **jax.tree.map(jnp.asarray, more))
        np.testing.assert_array_equal(found.keys, expected.keys)
        np.testing.assert_array_equal(found.rows, expected.rows)
        assert_same(found.values, expected.values)
        assert np.isnan(found.values).any() == (y is bad)

    def job(*arrays):
        return metrics.by_segment(metrics.roc_auc, *arrays).values

    many = [jnp.asarray(np.tile(x, 20)) for x in (labels, proba, shops)]
    assert_rows_stay(monkeypatch, job, many, 1_024)  # of keys; there are 1,800 rows
    with pytest.raises(ValueError, match="segments: expected one per row"):
        brier(labels, jnp.asarray(proba))
