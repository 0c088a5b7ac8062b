"""Gates by labels alone: against the sequence of tests word for word, and by simulation."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

import platt_jax as pj


def judge(rng, segments=3):
    ids = np.repeat(np.arange(segments), 200)
    scores = rng.normal(size=len(ids))
    labels = rng.random(len(ids)) < 1 / (1 + np.exp(-3 * scores))
    return pj.fit_segments(scores, labels, ids, pooling="partial")


def by_the_words(scores, right, precision, level):
    """The lowest threshold, or None: tests from the highest score on until the first that fails."""
    least = int(np.ceil(np.log(1 - level) / np.log(precision)))
    best, stage = None, -1
    for t in np.unique(scores)[::-1]:
        n, k = (scores >= t).sum(), right[scores >= t].sum()
        if n < least or np.floor(np.log(n / least) / np.log(1.1)) <= stage:
            continue
        stage = np.floor(np.log(n / least) / np.log(1.1))
        if binom.sf(k - 1, n, precision) > 1 - level:
            break
        best = t, n, k
    return best


@pytest.mark.parametrize("side", ["positive", "negative"])
@pytest.mark.parametrize("digits", [1, 6])  # scores that tie, and none that do
def test_the_threshold_is_that_of_the_sequence(side, digits, rng):
    fitted = judge(rng, 8)
    sizes = np.array([30, 100, 300, 1_000, 3_000, 500, 500, 0])
    ids = rng.permutation(np.repeat(np.arange(8), sizes))
    scores = rng.normal(size=len(ids)).round(digits)
    labels = rng.random(len(ids)) < 1 / (1 + np.exp(-4 * scores - (ids == 5) * 3 + (ids == 6) * 3))
    found = pj.gate(fitted, scores, ids, precision=0.9, level=0.9, side=side, labels=labels)
    sign, right = (1, labels) if side == "positive" else (-1, ~labels)
    reached = 0
    assert found["segment"].tolist() == list(range(7)) and set(found["basis"]) == {"exact"}
    for line in range(7):
        own = ids == line
        expected = by_the_words(sign * scores[own], right[own], 0.9, 0.9)
        if expected is None:
            assert found["status"][line] == ("UNREACHED" if own.sum() >= 22 else "TOO_FEW")
            assert found["threshold"][line] == sign * np.inf and found["share"][line] == 0
            continue
        t, n, k = expected
        reached += 1
        assert found["status"][line] == "OK"
        assert found["threshold"][line] == sign * t
        np.testing.assert_allclose(found["share"][line], n / own.sum())
        np.testing.assert_allclose(found["precision"][line], k / n)
        tail = binom.sf(k - 1, n, found["lower"][line])
        np.testing.assert_allclose(tail, 0.1, rtol=1e-6)
        assert found["lower"][line] >= 0.9
    assert reached >= 3


@pytest.mark.parametrize(("precision", "least"), [(0.95, 59), (0.995, 598), (0.998, 1_497)])
def test_known_numbers_of_clean_rows(precision, least, rng):
    """The least numbers of rows without a mistake, at 95 %: n of precision^n <= .05."""
    fitted = judge(rng)
    for number, status in ((least - 1, "TOO_FEW"), (least, "OK")):
        rows = rng.normal(size=number), np.zeros(number, int)
        found = pj.gate(fitted, *rows, precision=precision, labels=np.ones(number))
        assert found["status"].tolist() == [status]
    assert found["share"][0] == 1 and found["threshold"][0] == rows[0].min()


def test_both_sides_and_what_certify_says_of_them(rng):
    fitted = judge(rng)
    ids = np.arange(6_000) % 3
    scores = rng.normal(size=6_000)
    labels = rng.random(6_000) < 1 / (1 + np.exp(-5 * scores))
    both = pj.gate(fitted, scores, ids, side="both", labels=labels)
    one = [pj.gate(fitted, scores, ids, side=x, labels=labels) for x in ("positive", "negative")]
    for name in both:
        np.testing.assert_array_equal(both[name][::2], one[0][name])
        np.testing.assert_array_equal(both[name][1::2], one[1][name])
    assert set(both["status"]) == {"OK"}
    fresh = rng.normal(size=60_000)
    truth = rng.random(60_000) < 1 / (1 + np.exp(-5 * fresh))
    proof = pj.certify(both, fresh, truth, np.arange(60_000) % 3)
    assert proof["flagged"].mean() > 0.5


@pytest.mark.parametrize("slope", [12.0, -12.0])
@pytest.mark.parametrize("curve", ["sigmoid", "spline"])
def test_no_row_is_taken_as_both_classes(slope, curve, rng):
    """Of steep curves either side alone reaches far beyond the middle."""
    ids, scores = np.repeat(np.arange(3), 4_000), rng.normal(size=12_000)
    labels = rng.random(12_000) < expit(slope * scores)
    made = pj.fit_segments(scores[::2], labels[::2], ids[::2], curve=curve)
    rows = scores[1::2], ids[1::2]
    given = {"precision": 0.8, "labels": labels[1::2]}
    alone = [pj.gate(made, *rows, side=x, **given)["share"] for x in ("positive", "negative")]
    found = pj.gate(made, *rows, side="both", **given)
    both = [found["share"][found["side"] == x] for x in ("positive", "negative")]
    assert (both[0] + both[1] <= 1).all()
    if slope < 0:
        assert (found["status"] == "UNREACHED").all()
        return
    assert (alone[0] + alone[1] > 1.05).all()
    p = made.predict_proba(*rows)
    for of_side, right in ((0, p >= 0.5), (1, p < 0.5)):
        shares = np.bincount(rows[1], right) / 2_000
        np.testing.assert_allclose(both[of_side], np.minimum(shares, alone[of_side]), atol=0.06)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"weights": np.ones(9)}, "weights: expected None beside labels"),
        ({"labels": np.full(9, 0.5)}, "labels: .* got 0.5"),
        ({"labels": np.ones(8)}, r"labels: expected one per row, \(9,\)"),
        ({"labels": np.full(9, np.nan)}, "labels: expected a label of each row"),
    ],
)
def test_what_is_refused_by_name(changed, told, rng):
    given = {"labels": np.ones(9)} | changed
    with pytest.raises(ValueError, match=told):
        pj.gate(judge(rng), np.zeros(9), np.zeros(9, int), **given)


def test_rows_objects_and_classes_are_refused(rng):
    rows = pj.SegmentRows(np.zeros(9), np.ones(9), np.zeros(9, int))
    with pytest.raises(ValueError, match="scores: expected an array on the host beside labels"):
        pj.gate(judge(rng), rows, labels=np.ones(9))
    classes = pj.fit_one_vs_rest(rng.normal(size=(90, 3)), np.arange(90) % 3)
    with pytest.raises(ValueError, match="labels: expected None for a calibrator of classes"):
        pj.gate(classes, np.zeros((9, 3)), labels=np.ones(9))


def sigmoid(f):
    return 1 / (1 + np.exp(-3 * f - 1.5))


def ceiling(f):
    """A twentieth of the surest rows is wrong: no threshold reaches .95 by more than chance."""
    return 0.95 / (1 + np.exp(-5 * f - 3))


def bend(f):
    """The highest scores are worse than those below."""
    return np.where(f > 1.5, 0.9, 0.97 / (1 + np.exp(-5 * f - 3)))


@pytest.mark.slow
@pytest.mark.parametrize("curve", [sigmoid, ceiling, bend])
@pytest.mark.parametrize("rows", [100, 400, 2_000])
def test_few_gates_violate_whatever_the_curve(curve, rows, rng):
    """Precisions are those of all rows from the threshold on, by the true curve."""
    fitted = judge(rng, 40)
    violating, number = 0, 0
    grid = np.linspace(-5, 5, 20_001)
    density = np.exp(-(grid**2) / 2)
    for _ in range(25):
        ids = np.repeat(np.arange(40), rows)
        scores = rng.normal(size=len(ids))
        labels = rng.random(len(ids)) < curve(scores)
        found = pj.gate(fitted, scores, ids, labels=labels)
        for t in found["threshold"][found["status"] == "OK"]:
            tail = density * (grid >= t)
            violating += (tail * curve(grid)).sum() / tail.sum() < 0.95
        number += 40
    assert violating <= 0.05 * number + 3 * np.sqrt(0.05 * 0.95 * number)
