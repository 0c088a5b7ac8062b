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
    np.testing.assert_allclose(curve.right, np.cumsum(labels[order]) / np.arange(1, 81))
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
    np.testing.assert_allclose(curve.right, np.cumsum(y[order]) / np.arange(1, 481))
    np.testing.assert_allclose(curve.precision, np.cumsum(p[order]) / np.arange(1, 481))
    known = posteriors(calibrator, calibrator.keys, np.arange(6)).curves
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


def test_scores_whose_size_is_a_method(calibrator, rng):
    """Tensors of PyTorch are such."""

    class Tensor:
        def __init__(self, values):
            self.values, self.shape, self.dtype = values, values.shape, values.dtype

        def __len__(self):
            return len(self.values)

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype)

        def size(self):
            return self.shape

    scores, labels, segments = judged(rng)
    of_tensor, expected = (
        read_rows(calibrator, x, labels, segments) for x in (Tensor(scores), scores)
    )
    np.testing.assert_array_equal(of_tensor.known.proba, expected.known.proba)


def test_weights_are_rows(calibrator, rng):
    f, y, k = judged(rng)
    weights = rng.integers(0, 4, len(k))
    y = np.where(weights == 0, np.nan, y)  # what is not there needs no label
    rows = read_rows(calibrator, f, y, k, weights)
    curve = accepted_in_turn(rows, rows.usable, 0.95)
    repeated = read_rows(calibrator, *(np.repeat(x, weights) for x in (f, y, k)))
    whole = accepted_in_turn(repeated, rows.usable, 0.95)
    order = np.argsort(-calibrator.predict_proba(f, k))
    given = weights[order][weights[order] > 0]
    last = np.cumsum(given) - 1  # of the rows that are one
    for name in ("share", "precision", "lower", "right"):
        found, expected = getattr(curve, name), getattr(whole, name)[last]
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(curve.worth, np.cumsum(given) ** 2 / np.cumsum(given**2))
    held = read_rows(calibrator, pj.SegmentRows(f, np.nan_to_num(y), k, weights), None, None)
    np.testing.assert_array_equal(accepted_in_turn(held, rows.usable, 0.95).right, curve.right)


@pytest.mark.parametrize("unit", [1e-170, 1e160])
def test_weights_of_any_unit(calibrator, rng, unit):
    f, y, k = judged(rng)
    weights = rng.integers(1, 4, len(k))
    found, expected = (
        accepted_in_turn(rows, rows.usable, 0.95)
        for rows in (read_rows(calibrator, f, y, k, w) for w in (unit * weights, weights))
    )
    for name in ("share", "lower", "worth"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


def test_classes_are_segments_of_all_rows(rng):
    names = np.array(["owl", "ant", "cat"])
    which = rng.integers(0, 3, 300)
    table = 2 * rng.normal(size=(300, 3)) + 4 * (which[:, None] == np.arange(3))
    weights = rng.integers(1, 3, 300)
    animals = pj.fit_one_vs_rest(table, names[which], classes=names)
    pairs = table.T.ravel(), (which == np.arange(3)[:, None]).ravel(), np.repeat(names, 300)
    expected = read_rows(animals.by_class, *pairs, np.tile(weights, 3))
    for given in (
        (table, names[which], None, weights),
        (pj.ClassRows(table, names[which], names, weights), None, None),
    ):
        found = read_rows(animals, *given)
        assert found.keys.tolist() == ["ant", "cat", "owl"]
        for one, other in zip(
            *(accepted_in_turn(x, x.usable, 0.95) for x in (found, expected)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    with pytest.raises(ValueError, match="segments: expected None for a OneVsRestCalibrator"):
        read_rows(animals, table, names[which], names[which])


def test_refusals(calibrator, rng):
    f, y, k = judged(rng)
    for labels, message in ((y[1:], "labels: expected one per row"), (None, "labels: expected")):
        with pytest.raises(ValueError, match=message):
            read_rows(calibrator, f, labels, k)
    with pytest.raises(ValueError, match="labels: expected a label of each row, got NaN"):
        read_rows(calibrator, f, np.where(k == 2, np.nan, y), k)
    with pytest.raises(ValueError, match="scores: expected SegmentRows without offset"):
        read_rows(calibrator, pj.SegmentRows(f, y, k, offset=np.ones(len(k))), None, None)
    with pytest.raises(ValueError, match="weights: expected"):
        read_rows(calibrator, f, y, k, np.ones(3))
