"""Metrics by segment: what each segment's rows give by themselves."""

import jax
import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import metrics

NOT_OF_BATCHES = (
    "by_segment",
    "expected",
    "isotonic_curve",
    "multicalibration_error",
    "smooth_curve",
    "summarize_centres",
    # Of several classes; test_metrics_multiclass.py.
    "classwise_ece",
    "multiclass_brier_score",
    "multiclass_log_loss",
    "top_label",
    "top_label_ece",
)
METRICS = {
    name: getattr(metrics, name)
    for name in metrics.__all__
    if name[0].islower() and name not in NOT_OF_BATCHES and not name.startswith("field_")
}
# Those without a default; `before` has a number per row.
OPTIONS = {"decision_curve": {"threshold": [0.2, 0.5]}, "expected_cost": {"cost": (1, 4)}}


@pytest.fixture
def rows(rng):
    """Labels, probabilities, weights and segments of very different sizes, in any order."""
    segments = rng.permutation(np.repeat(np.arange(9) * 7 - 20, [200, 64, 65, 63, 33, 2, 1, 40, 8]))
    proba = rng.uniform(0.02, 0.98, len(segments))
    labels = (rng.random(len(segments)) < proba).astype(int)
    return labels, proba, rng.integers(0, 4, len(segments)), segments


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_every_metric_of_every_segment(rows, metric, weighted):
    labels, proba, weights, segments = rows
    weights = weights if weighted else None
    options, before = OPTIONS.get(metric.__name__, {}), {}
    if metric is metrics.decision_curve:
        before = {"before": proba**2}
    made = metrics.by_segment(metric, labels, proba, segments, weights=weights, **before, **options)
    keys = np.unique(segments)
    np.testing.assert_array_equal(made.keys, keys)
    np.testing.assert_array_equal(made.rows, [(segments == key).sum() for key in keys])
    rtol = 1e-6 if metric is metrics.cox_calibration else 1e-9  # its fit stops short of rounding
    for i, key in enumerate(keys):
        mine = segments == key
        own = {name: x[mine] for name, x in before.items()}
        own_weights = weights[mine] if weighted else None
        alone = metric(labels[mine], proba[mine], weights=own_weights, **own, **options)
        assert jax.tree.structure(alone) == jax.tree.structure(made.values)
        for of_all, one in zip(*map(jax.tree.leaves, (made.values, alone)), strict=True):
            assert of_all.dtype == np.asarray(one).dtype
            np.testing.assert_allclose(of_all[i], one, rtol=rtol, atol=1e-12)


def test_a_table_of_them(rows):
    labels, proba, _, segments = rows
    cox = metrics.by_segment(metrics.cox_calibration, labels, proba, segments)
    table = cox.table()
    assert list(table)[:3] == ["segment", "rows", "slope"]
    assert table["joint_test_p_value"] is cox.values.joint_test.p_value
    assert list(metrics.by_segment(metrics.log_loss, labels, proba, segments).table()) == [
        *("segment", "rows", "value")
    ]
    curve = metrics.by_segment(metrics.reliability_curve, labels, proba, segments)
    assert curve.values.prob_true.shape == (9, 10) and list(curve.table()) == ["segment", "rows"]


def test_options_containers_and_bad_rows(rows):
    pd = pytest.importorskip("pandas")
    labels, proba, _, segments = rows
    labels, logits = np.where(labels, 1.0, -1.0), np.log(proba / (1 - proba))
    labels[segments == 1] = np.nan  # those of one segment alone
    text = np.array([f"shop {x}" for x in segments])
    frame = pd.DataFrame({"shop": text, "rows": segments % 2})
    several = metrics.by_segment(
        metrics.log_loss, pd.Series(labels), pd.Series(logits), frame, from_logits=True
    )
    assert list(several.table()) == ["shop", "segment_rows", "rows", "value"]
    one = metrics.by_segment(metrics.log_loss, labels, logits, text, from_logits=True)
    np.testing.assert_array_equal(one.values, several.values)
    assert (np.isnan(one.values) == (one.keys == "shop 1")).all()
    assert len(one.table().to_pandas()) == 9
    exact = metrics.by_segment(metrics.log_loss, labels, np.float32(proba), text)
    assert exact.values.dtype == np.float32


def test_what_is_refused(rows):
    labels, proba, _, segments = rows
    log_loss = metrics.log_loss
    for call, message in (
        (lambda: metrics.by_segment(log_loss, labels, proba, segments[1:]), "segments: expected"),
        (lambda: metrics.by_segment(log_loss, labels, proba[None, None], segments), "proba: expe"),
        (lambda: metrics.by_segment(log_loss, [], [], []), "proba: expected a flat array"),
        (lambda: metrics.by_segment(log_loss, labels[1:], proba, segments), "labels: expected a"),
        (lambda: metrics.by_segment(log_loss, labels, proba + 1, segments), r"in \[0, 1\]"),
        (lambda: metrics.by_segment(log_loss, labels + 2, proba, segments), "labels: expected bo"),
        (lambda: metrics.by_segment(log_loss, labels, proba, [None] * 476), "segments: expected i"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_how_well_each_segment_is_calibrated(rng):
    segments = rng.integers(0, 5, 1000)
    scores = rng.normal(size=1000)
    labels = labels_of(rng, 2 * scores + segments)
    calibrator = pj.fit_segments(scores, labels, segments)
    own, pooled = (
        metrics.by_segment(metrics.log_loss, labels, proba, segments).values
        for proba in (
            calibrator.predict_proba(scores, segments),
            calibrator.fallback.predict_proba(scores),
        )
    )
    assert (own < pooled).all()
