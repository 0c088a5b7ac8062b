"""Mean labels of segments: against a plain loop, at the edges, and by simulation."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

import platt_jax as pj

Z = 1.959963984540054


def drawn(rng, sizes, base=0.4, slope=1.5):
    """Scores, labels and segments, in random order."""
    segments = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scores = rng.normal(size=len(segments))
    labels = rng.random(len(segments)) < expit(
        slope * scores + logit(base) + 0.5 * np.sin(segments)
    )
    return scores, labels, segments


def wilson(mean, n):
    center = (mean + Z**2 / (2 * n)) / (1 + Z**2 / n)
    reach = Z * np.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return center - reach, center + reach


def by_loop(labels, left_out, segments, proba, pool_segments):
    """Means, lower, upper, labels_worth, power and a label's variance, segment by segment."""
    names = np.unique(segments)
    y, q, p = (
        [x[ids == name] for name in names]
        for x, ids in ((labels * 1.0, segments), (left_out, segments), (proba, pool_segments))
    )
    above = sum(((a - a.mean()) * (b - b.mean())).sum() for a, b in zip(y, q, strict=True))
    below = sum(
        (1 + len(b) / len(c)) * ((b - b.mean()) ** 2).sum() for b, c in zip(q, p, strict=True)
    )
    power = min(max(above / below, 0), 1)
    errors = [a - power * b for a, b in zip(y, q, strict=True)]
    unit = [c.mean() * (1 - c.mean()) for c in p]
    total = sum((len(a) - 1) * u for a, u in zip(y, unit, strict=True))

    def variances(values):
        """Of one row, as if one more row had a square of 1, divided among segments."""
        squares = [
            ((x - x.mean()) ** 2).sum() + (len(x) - 1) * u / total
            for x, u in zip(values, unit, strict=True)
        ]
        common = sum(squares) / total
        return [
            (s + 20 * common * u) / (len(x) - 1 + 20)
            for x, s, u in zip(values, squares, unit, strict=True)
        ]

    found = []
    for e, mine, label, c in zip(errors, variances(errors), variances(y), p, strict=True):
        mean = power * c.mean() + e.mean()
        worth = label / (mine / len(e) + power**2 * c.var(ddof=1) / len(c))
        found.append([mean, *wilson(mean, worth), worth, power, label])
    return np.array(found).T


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="none"),
        pytest.param(dict(pooling="partial"), id="partial"),
        pytest.param(dict(options=pj.Options(intercept=False, targets="none")), id="temperature"),
    ],
)
def test_means_are_those_of_a_loop(rng, how):
    rows = drawn(rng, [20, 30, 45, 80, 25])
    scores, _, segments = drawn(rng, [300, 100, 40, 900, 25])
    calibrator = pj.fit_segments(*rows, **how)
    found = pj.inference.estimate_means(calibrator, *rows, pool=scores, pool_segments=segments)
    assert set(found["status"]) == {"OK"}
    left_out = pj.inference.leave_one_out(calibrator, *rows, options=calibrator.options)
    proba = calibrator.predict_proba(scores, segments)
    expected = by_loop(rows[1], left_out, rows[2], proba, segments)[:5]
    for name, column in zip(
        ("mean", "lower", "upper", "labels_worth", "power"), expected, strict=True
    ):
        np.testing.assert_allclose(found[name], column, rtol=1e-12)
    for i in range(5):
        mine = rows[1][rows[2] == i]
        assert (found["rows"][i], found["pool"][i]) == (len(mine), (segments == i).sum())
        assert found["labels_only"][i] == mine.mean()
        ends = found["labels_lower"][i], found["labels_upper"][i]
        np.testing.assert_allclose(ends, wilson(mine.mean(), len(mine)), rtol=1e-12)
        np.testing.assert_allclose(found["model_mean"][i], proba[segments == i].mean())
    given = pj.inference.estimate_means(
        calibrator, *rows, pool=scores, pool_segments=segments, probability=left_out
    )
    np.testing.assert_array_equal(given["lower"], found["lower"])


def test_rows_objects_are_their_arrays(rng):
    rows, pool = drawn(rng, [30, 40]), drawn(rng, [100, 200])
    calibrator = pj.fit_segments(*rows)
    held = pj.inference.estimate_means(
        calibrator, pj.SegmentRows(*rows), pool=pj.SegmentRows(*pool)
    )
    given = pj.inference.estimate_means(calibrator, *rows, pool=pool[0], pool_segments=pool[2])
    for name in given:
        if name != "status":
            np.testing.assert_allclose(held[name], given[name], rtol=1e-9)


def test_a_missing_label_of_a_rows_object_is_not_a_negative_one(rng):
    """Before, `labels_only` counted it as one."""
    (f, y, s), pool = drawn(rng, [30, 40]), drawn(rng, [100, 200])
    rows = pj.SegmentRows(f, np.where(np.arange(70) == 3, np.nan, y), s)
    with pytest.warns(RuntimeWarning, match="NaN"):
        calibrator = pj.fit_segments(rows)
    found = pj.inference.estimate_means(calibrator, rows, pool=pool[0], pool_segments=pool[2])
    assert np.isnan(found["labels_only"]).tolist() == [True, False]
    assert found["status"].tolist() == ["NON_FINITE", "OK"]


def test_more_labels_reach_the_width(rng):
    """Labels and their number as if all were drawn again, at the same variances."""
    rows, pool = drawn(rng, [20, 60, 200]), drawn(rng, [2_000, 2_000, 20])
    calibrator = pj.fit_segments(*rows)
    given = dict(pool=pool[0], pool_segments=pool[2])
    width = 0.15
    found = pj.inference.estimate_means(calibrator, *rows, **given, width=width)
    assert "more_labels" not in pj.inference.estimate_means(calibrator, *rows, **given)
    p = calibrator.predict_proba(pool[0], pool[2])
    left_out = pj.inference.leave_one_out(calibrator, *rows)
    variances = by_loop(rows[1], left_out, rows[2], p, pool[2])[5]
    for i in range(2):
        n, more = found["rows"][i], found["more_labels"][i]
        by_pool = found["power"][i] ** 2 * p[pool[2] == i].var(ddof=1) / found["pool"][i]
        unit = variances[i]
        own = (unit / found["labels_worth"][i] - by_pool) * n
        widths = [
            np.diff(wilson(found["mean"][i], unit / (own / (n + k) + by_pool)))[0]
            for k in (more - 1, more)
        ]
        assert more > 0 and widths[1] <= width < widths[0]
    narrow = pj.inference.estimate_means(calibrator, *rows, **given, width=0.005)["more_labels"]
    # The third segment's pool of 20 rows is too small for any number of labels.
    assert narrow[2] == np.inf and np.isfinite(narrow[0])
    assert (
        pj.inference.estimate_means(calibrator, *rows, **given, width=0.9)["more_labels"] == 0
    ).all()


def test_statuses(rng):
    scores, labels, segments = drawn(rng, [30, 30, 4, 30, 30])
    labels[segments == 1] = False  # nothing positive
    scores[(segments == 3).argmax()] = np.nan
    calibrator = pj.fit_segments(scores, labels, segments, options=pj.Options(non_finite="omit"))
    pool, _, pool_segments = drawn(rng, [50, 50, 50, 50, 0, 50])
    found = pj.inference.estimate_means(
        *(calibrator, scores, labels, segments),
        pool=pool,
        pool_segments=pool_segments,
        probability=np.where(np.isnan(scores), np.nan, 0.4),
    )
    assert found["segment"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["status"].tolist() == [
        *("OK", "FEW_POSITIVES", "FEW_POSITIVES", "NON_FINITE", "NO_POOL", "NO_LABELS")
    ]
    for mine, other in (
        ("mean", "labels_only"),
        ("lower", "labels_lower"),
        ("labels_worth", "rows"),
    ):
        np.testing.assert_array_equal(found[mine][1:5], found[other][1:5])
    assert np.isnan(found["mean"][5]) and np.isnan(found["lower"][5])
    assert 0 < found["model_mean"][5] < 1 and np.isnan(found["model_lower"][5])
    assert np.isnan(found["model_mean"][4])
    assert found["lower"][1] == 0 < found["upper"][1]


def test_other_curves_and_several_columns(rng):
    scores, labels, segments = drawn(rng, [60, 60])
    two = np.stack([segments, segments + 5], 1)
    calibrator = pj.fit_segments(scores, labels, two, curve="isotonic")
    pool = dict(pool=[0.0, 1.0], pool_segments=(0, 5))
    with pytest.raises(ValueError, match="expected sigmoids, got a calibrator with isotonic"):
        pj.inference.estimate_means(calibrator, scores, labels, two, **pool)
    found = pj.inference.estimate_means(
        calibrator, scores, labels, two, **pool, probability=expit(scores)
    )
    assert list(found)[:3] == ["segment_0", "segment_1", "rows"]
    assert found["status"].tolist() == ["OK", "NO_POOL"]
    assert np.isnan(found["model_lower"]).all() and np.isfinite(found["lower"]).all()


def test_no_rows_at_all(rng):
    rows = drawn(rng, [60, 60])
    calibrator = pj.fit_segments(*rows)
    some = pj.inference.estimate_means(calibrator, *rows, pool=[0.5], pool_segments=[1])
    nothing = pj.inference.estimate_means(calibrator, [], [], [], pool=[], pool_segments=[])
    assert list(nothing) == list(some)
    assert {len(x) for x in nothing.values()} == {0}
    found = pj.inference.estimate_means(calibrator, [], [], [], pool=[0.5], pool_segments=[1])
    assert found["status"].tolist() == ["NO_LABELS"]


def test_arguments(rng):
    rows = drawn(rng, [60, 60])
    calibrator = pj.fit_segments(*rows)
    pool = dict(pool=[0.5, 1.0], pool_segments=[0, 1])
    for bad, message in (
        (dict(level=1.0), "level: expected a number in"),
        (dict(width=0), "width: expected a number in"),
        (dict(probability=np.full(120, 1.5)), "probability: expected probabilities in"),
        (dict(probability=[0.5, 0.5]), "probability: expected"),
        (dict(pool_segments=None), "pool_segments: expected one per row, got None"),
        (dict(pool_segments=[0]), "pool_segments: expected one id per row, 2 of them, got 1"),
        (dict(pool_segments=["0", "1"]), "pool_segments: expected ids of the kind of int64 keys"),
        (dict(pool=[[0.5, 1.0]]), "pool: expected a flat array"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            pj.inference.estimate_means(calibrator, *rows, **(pool | bad))
    with pytest.raises(ValueError, match=r"^segments: expected ids of the kind of int64 keys"):
        pj.inference.estimate_means(calibrator, *rows[:2], rows[2].astype(str), **pool)
    with pytest.raises(ValueError, match="scores: expected SegmentRows without weights"):
        pj.inference.estimate_means(calibrator, pj.SegmentRows(*rows, np.ones(120)), **pool)


def shared_items(rng, segments=6, items=40, pool=300):
    """Rows with labels, and the pool, of segments that answered the same items in random order."""
    hard = rng.normal(size=items + pool)
    scores = hard + rng.normal(size=(segments, items + pool))
    labels = rng.random(scores.shape) < expit(1.5 * hard + 0.4 * np.arange(segments)[:, None])
    ids = np.broadcast_to(np.arange(items + pool), scores.shape)
    own = np.broadcast_to(np.arange(segments)[:, None], scores.shape)
    parts = []
    for some in (slice(items), slice(items, None)):
        order = rng.permutation(ids[:, some].size)
        parts.append([x[:, some].ravel()[order] for x in (scores, labels, own, ids)])
    return parts


def test_differences_are_those_of_a_loop(rng):
    (f, y, s, item), (pool, _, pool_s, pool_item) = shared_items(rng)
    kept = rng.random(len(f)) < 0.8  # not all items in all segments
    f, y, s, item = (x[kept] for x in (f, y, s, item))
    calibrator = pj.fit_segments(f, y, s, pooling="partial")
    given = dict(pool=pool, pool_segments=pool_s)
    first, second = np.array([1, 2, 5, 0]), np.array([0, 0, 4, 0])
    found = pj.inference.compare_means(
        *(calibrator, f, y, s),
        **given,
        **dict(first=first, second=second, items=item, pool_items=pool_item),
    )
    means = pj.inference.estimate_means(calibrator, f, y, s, **given)
    assert (means["status"] == "OK").all()
    power = means["power"][0]
    left_out = pj.inference.leave_one_out(calibrator, f, y, s)
    e = y - power * left_out
    p = calibrator.predict_proba(pool, pool_s)

    def values(x, ids, names, k):
        return dict(zip(names[ids == k].tolist(), x[ids == k] - x[ids == k].mean(), strict=True))

    sums = []
    for a, b in zip(first, second, strict=True):
        mine, other = values(e, s, item, a), values(e, s, item, b)
        both = sorted(mine.keys() & other.keys())
        u, v = (np.array([x[i] for i in both]) for x in (mine, other))
        mine, other = values(p, pool_s, pool_item, a), values(p, pool_s, pool_item, b)
        sums.append(
            [len(both), u @ v, np.sqrt(u @ u * (v @ v)), sum(mine[i] * other[i] for i in mine)]
        )
    count, product, scale, pooled = np.array(sums).T
    r = (count * product / scale + 20 * product.sum() / scale.sum()) / (count + 20)
    by_pool = np.array([power**2 * p[pool_s == k].var(ddof=1) / 300 for k in range(6)])
    variance = by_loop(y, left_out, s, p, pool_s)[5] / means["labels_worth"]
    own = (variance - by_pool) * means["rows"]
    n = means["rows"]
    covariance = count * r * np.sqrt(own[first] * own[second]) / (n[first] * n[second])
    covariance += power**2 * pooled / 300**2
    correlation = np.minimum(covariance / np.sqrt(variance[first] * variance[second]), 1)
    np.testing.assert_array_equal(found["items"], count)
    np.testing.assert_allclose(found["correlation"], correlation, rtol=1e-9)
    difference = means["mean"][first] - means["mean"][second]
    np.testing.assert_allclose(found["difference"], difference, rtol=1e-12, atol=1e-15)
    a = (means["mean"] - means["lower"])[first]
    b = (means["upper"] - means["mean"])[second]
    lower = difference - np.sqrt(a * a - 2 * correlation * a * b + b * b)
    np.testing.assert_allclose(found["lower"], lower, rtol=1e-9)
    assert (correlation[:3] > 0.05).all() and (found["upper"] > found["difference"]).all()
    alone = pj.inference.compare_means(calibrator, f, y, s, **given, first=first, second=second)
    assert (alone["correlation"] == 0).all() and (alone["items"] == 0).all()
    assert (alone["upper"] - alone["lower"] > found["upper"] - found["lower"]).all()


def test_arguments_of_differences(rng):
    (f, y, s, item), (pool, _, pool_s, _) = shared_items(rng)
    calibrator = pj.fit_segments(f, y, s)
    given = dict(pool=pool, pool_segments=pool_s, first=[1], second=0)
    for bad, message in (
        (dict(items=item // 2), "items: expected each item once in a segment, got 0 twice"),
        (dict(second=[99]), "second: expected segments that have rows, got 99"),
        (dict(second=[0, 1]), "second: expected one id per row, 1 of them, got 2"),
        (dict(items=item[:3]), "items: expected one id per row"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            pj.inference.compare_means(calibrator, f, y, s, **(given | bad))
    with pytest.raises(ValueError, match=r"^scores: expected an array, got SegmentRows"):
        pj.inference.compare_means(calibrator, pj.SegmentRows(f, y, s), None, None, **given)
    none = pj.inference.compare_means(calibrator, f, y, s, **(given | dict(first=np.zeros(0, int))))
    assert len(none["difference"]) == 0


def test_an_infinite_score_is_not_finite(rng):
    scores, labels, segments = rng.normal(size=60), np.arange(60) % 3 == 0, np.arange(60) % 2
    calibrator = pj.fit_segments(scores, labels, segments)
    far = np.where(np.arange(60) == 0, np.inf, scores)
    for given in (
        dict(scores=scores, pool=far),
        dict(scores=far, pool=scores, probability=np.full(60, 0.3)),
    ):
        found = pj.inference.estimate_means(
            calibrator, labels=labels, segments=segments, pool_segments=segments, **given
        )
        assert found["status"].tolist() == ["NON_FINITE", "OK"]
        assert found["mean"][0] == found["labels_only"][0]


def useless(rng, labels):
    """Estimates of segments (S, n) of labels, by predictions that have nothing to do with them."""
    segments, n = labels.shape
    own, pool = (np.repeat(np.arange(segments), x) for x in (n, 500))
    calibrator = pj.fit_segments([-1.0, 1.0] * segments, [0, 1] * segments, own[:: n // 2])
    rows = dict(scores=np.zeros(labels.size), labels=labels.ravel(), segments=own)
    rest = dict(pool=rng.normal(size=len(pool)), pool_segments=pool)
    rest["probability"] = rng.random(labels.size)
    return pj.inference.estimate_means(calibrator, **rows, **rest), (calibrator, rows, rest)


def test_labels_that_are_all_equal_are_worth_their_number(rng):
    found, _ = useless(rng, np.ones((1, 20), int))
    assert (found["status"][0], found["power"][0], found["labels_worth"][0]) == ("OK", 0, 20)
    np.testing.assert_array_equal(found["lower"], found["labels_lower"])
    one_wrong = np.ones((3, 20), int)
    one_wrong[0, 7] = 0
    found, (calibrator, rows, rest) = useless(rng, one_wrong)
    np.testing.assert_allclose(found["labels_worth"], 20, rtol=0.03)
    np.testing.assert_allclose(found["lower"], found["labels_lower"], atol=0.01)
    pairs = pj.inference.compare_means(calibrator, **rows, **rest, first=[0, 1], second=[1, 2])
    # Newcombe's interval of the two by labels only, as correlations are 0.
    down, up = found["mean"] - found["labels_lower"], found["labels_upper"] - found["mean"]
    assert (pairs["correlation"] == 0).all()
    reach = np.hypot(down[:2], up[1:])
    np.testing.assert_allclose(pairs["difference"] - pairs["lower"], reach, atol=0.01)


def test_few_rows_without_an_error_do_not_prove_predictions(rng):
    """3 % of predictions near 0 and 1 are wrong: of 50 rows one or two, or none."""
    scores = rng.normal(size=400)
    calibrator = pj.fit_segments(scores, rng.random(400) < expit(12 * scores), np.zeros(400, int))
    high = calibrator.predict_proba(np.array([1.0, -1.0]), 0)
    assert high[0] > 0.98 and high[1] < 0.02
    pool = np.where(np.arange(1_000) < 100, 1.0, -1.0)
    held = []
    for _ in range(150):
        sure = rng.random(50) < 0.1
        y = np.where(rng.random(50) < 0.03, ~sure, sure)
        rows = np.where(sure, 1.0, -1.0), y, 0
        given = dict(pool=pool, pool_segments=0, probability=np.where(sure, *high))
        found = pj.inference.estimate_means(calibrator, *rows, **given)
        held.append(found["lower"][0] <= 0.1 * 0.97 + 0.9 * 0.03 <= found["upper"][0])
    assert np.mean(held) > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(("base", "curve"), [(0.1, "ceiling"), (0.5, "fall")])
def test_intervals_hold_the_mean_whatever_the_curve(curve, base):
    """Where 3 positives are expected, .93 to .985; from 30 labels on narrower than Wilson's."""
    from benchmarks.inference.means import measured

    # Of 10 labels at a rate of .1 hardly a segment has 3 positives.
    for segments, labels in product((20, 200), (30, 100) if base == 0.1 else (10, 30, 100)):
        rng = np.random.default_rng(labels + segments)
        found = measured(rng, curve, "partial", segments, labels, base, 1_200)
        assert 0.93 <= found["held"] <= 0.985, (segments, labels)
        if labels >= 30 and curve != "fall":
            assert found["width over that of labels only"] <= 0.92, (segments, labels)
