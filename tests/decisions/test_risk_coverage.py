"""Rows accepted one after the other: expected precisions, bounds and labels."""

import numpy as np
import pytest
from scipy.special import expit, logit

import platt_jax as pj
from platt_jax.decisions.risk_coverage import accepted_in_turn, read_rows
from platt_jax.hypothesis_tests.posteriors import posteriors

Z = 1.6448536269514722


def judged(rng, segments=6, each=80):
    k = np.repeat(np.arange(segments), each)
    f = rng.normal(size=len(k))
    return f, rng.random(len(k)) < expit(2.5 * f + 0.3 * k), k


@pytest.fixture(scope="module")
def calibrator():
    return pj.fit_segments(*judged(np.random.default_rng(0)), pooling="partial")


def test_the_bound_of_one_segment_is_the_gate(calibrator, rng):
    fresh = judged(rng)
    rows = read_rows(calibrator, *fresh)
    curve = accepted_in_turn(rows, rows.keys == 3, 0.95)
    scores, labels = (x[fresh[2] == 3] for x in fresh[:2])
    order = np.argsort(-scores)
    np.testing.assert_array_equal(curve.right, np.cumsum(labels[order]))
    for target in (0.8, 0.9, 0.95):
        gate = pj.gate(calibrator, scores, 3, precision=target)
        place = np.argmin(np.abs(curve.share - gate["share"]))
        for name in ("share", "precision", "lower"):
            np.testing.assert_allclose(getattr(curve, name)[place], gate[name], rtol=1e-9)


def test_all_segments_have_the_sum_of_their_errors(calibrator, rng):
    f, y, k = judged(rng)
    rows = read_rows(calibrator, f, y, k)
    curve = accepted_in_turn(rows, rows.usable, 0.95)
    p = calibrator.predict_proba(f, k)
    order = np.argsort(-p)
    np.testing.assert_array_equal(curve.right, np.cumsum(y[order]))
    np.testing.assert_allclose(curve.precision, np.cumsum(p[order]) / np.arange(1, 481))
    known = posteriors(calibrator, calibrator.keys, np.arange(6))
    for number in (40, 200, 480):
        top, total, probabilities = order[:number], 0.0, []
        for i in range(6):
            mine = f[top[k[top] == i]]
            s = expit(-(known.mean[i] @ np.stack([mine, np.ones_like(mine)])))
            g = np.array([np.sum(s * (1 - s) * mine), np.sum(s * (1 - s))])
            total += np.sqrt(g @ known.covariance[i] @ g) / number
            probabilities.extend(s)
        m = np.mean(probabilities)
        lower = expit(logit(m) - Z * total / (m * (1 - m)))
        np.testing.assert_allclose(curve.lower[number - 1], lower, rtol=1e-9)


def test_refusals(calibrator, rng):
    f, y, k = judged(rng)
    for labels, message in ((y[1:], "labels: expected one per row"), (None, "labels: expected")):
        with pytest.raises(ValueError, match=message):
            read_rows(calibrator, f, labels, k)
    with pytest.raises(ValueError, match="labels: expected a label of each row, got NaN"):
        read_rows(calibrator, f, np.where(k == 2, np.nan, y), k)
    with pytest.raises(ValueError, match="scores: expected SegmentRows without weights"):
        read_rows(calibrator, pj.SegmentRows(f, y, k, np.ones(len(k))), None, None)
