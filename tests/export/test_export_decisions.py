"""Thresholds in JSON and decisions in ONNX, against the calibrator's own."""

import json
import re
from importlib.resources import files

import numpy as np
import pytest

import platt_jax as pj
from platt_jax.export import from_json, to_json, to_onnx

UNSEEN = "elsewhere"


@pytest.fixture(scope="module")
def pooled():
    """Segments that rise and one that falls."""
    rng = np.random.default_rng(0)
    shops = np.array(["a", "b", "c", "d"])[np.arange(400) % 4]
    scores = rng.normal(size=400)
    slope = np.where(shops == "d", -3.0, 2.0)
    labels = rng.random(400) < 1 / (1 + np.exp(-slope * scores))
    return pj.fit_segments(scores, labels, shops, pooling="partial")


def accepted(model, scores, segments):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(["accepted"], {"score": scores, "segment": segments})
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_onnx_decides_at_the_threshold(pooled, dtype):
    """To the last number before it. Of unseen segments no score is accepted."""
    segments = [*pooled.keys.tolist(), UNSEEN]
    at = pooled.threshold(0.7, segments)
    falls = pooled.threshold_table(0.7, segments)["direction"] == "below"
    assert falls.tolist() == [False, False, False, True, False]
    assert np.isinf(at).tolist() == [False, False, False, False, True]
    near = np.where(np.isinf(at), 0, at).astype(dtype)
    each = [near, np.nextafter(near, dtype(9)), np.nextafter(near, dtype(-9))]
    each += [np.full(len(at), x, dtype) for x in (-np.inf, -3, 0, 3, np.inf, np.nan)]
    scores = np.concatenate(each)
    owner = np.tile(segments, len(each)).astype(object)
    made = to_onnx(pooled, dtype=np.dtype(dtype).name, threshold=0.7)
    found = accepted(made, scores, owner)
    wide = scores.astype(float).reshape(len(each), -1)
    expected = np.where(falls, wide <= at, wide >= at) & np.isfinite(at)
    assert found.dtype == bool and found.tolist() == expected.ravel().tolist()
    assert expected.any()


def test_everything_is_accepted_where_every_score_has_the_probability():
    """And nothing where there is no curve."""
    with pytest.warns(RuntimeWarning, match="NaN"):
        fitted = pj.fit_segments([1.0, 1, 1, np.nan, 2], [1, 1, 1, 0, 1], [1, 1, 1, 2, 3])
    table = fitted.threshold_table(0.5)
    assert table["status"].tolist() == ["EXCEEDED", "NON_FINITE", "EXCEEDED"]
    scores, segments = np.array([-9.0, 9.0] * 3), np.repeat([1, 2, 3], 2)
    found = accepted(to_onnx(fitted, threshold=0.5), scores, segments)
    assert found.tolist() == [True, True, False, False, True, True]


def test_json_has_the_thresholds(pooled):
    import jsonschema

    text = to_json(pooled, threshold=0.7)
    said = json.loads(text)["thresholds"]
    table = pooled.threshold_table(0.7, [*pooled.keys, UNSEEN])
    for name, column in (("score", "threshold"), ("direction", "direction"), ("status", "status")):
        values = [*said[name], said["unseen"][name]]
        if name == "score":
            assert "Infinity" in values
            values = [float(x) for x in values]
        assert values == table[column].tolist()
    assert said["probability"] == 0.7
    schema = json.loads((files("platt_jax.export") / "calibrator.schema.json").read_text())
    jsonschema.validate(json.loads(text), schema)
    assert to_json(from_json(text)) == to_json(pooled)


def test_json_of_classes_is_in_their_order(rng):
    names = np.array(["owl", "ant", "cat"])
    which = rng.integers(0, 3, 300)
    scores = rng.normal(size=(300, 3)) + 2 * (which[:, None] == np.arange(3))
    animals = pj.fit_one_vs_rest(scores, names[which], classes=names)
    said = json.loads(to_json(animals, threshold=0.8))["thresholds"]
    assert said["score"] == animals.threshold(0.8).tolist()
    assert "unseen" not in said


def test_json_of_other_curves(rng):
    shops, scores = np.arange(600) % 3, rng.normal(size=600)
    labels = rng.random(600) < 1 / (1 + np.exp(-2 * scores))
    bins = pj.fit_segments(scores, labels, shops, curve="bins")
    said = json.loads(to_json(bins, threshold=0.7))["thresholds"]
    assert [float(x) for x in said["score"]] == pytest.approx(
        bins.threshold(0.7).tolist(), rel=0, abs=0, nan_ok=True
    )


def test_what_has_no_decision_is_refused(pooled):
    for calibrator, threshold, message in (
        (pj.Sigmoid(-1.0, 0.0), 0.5, "threshold: expected a SegmentCalibrator with segments"),
        (pooled.only(np.zeros(4, bool)), 0.5, "threshold: expected a SegmentCalibrator with seg"),
        (pooled, 1, re.escape("threshold: expected a number in (0, 1), got 1")),
    ):
        for export in (to_json, to_onnx):
            with pytest.raises(ValueError, match=message):
                export(calibrator, threshold=threshold)
