"""The warning of few rows by segment: Platt's targets add up to more than the labels do."""

import re
import warnings

import doors
import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import Options
from platt_jax.sklearn import PlattCalibratedClassifier


def few(seed=0, segments=300, rows=5, level=-2.5):
    """Scores, labels and ids; a tenth of the labels are positive."""
    rng = np.random.default_rng(seed)
    ids, scores = np.repeat(np.arange(segments), rows), rng.normal(size=segments * rows)
    return scores, labels_of(rng, scores + level).astype(int), ids


def warned(call):
    """What a call warns of few rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    told = [str(x.message) for x in caught if issubclass(x.category, RuntimeWarning)]
    return [x for x in told if "few rows by segment" in x]


def sum_of_targets(labels, ids):
    """Row by row, as Platt (1999) has them."""
    total = 0.0
    for y in (labels[ids == i] for i in np.unique(ids)):
        total += sum((y.sum() + 1) / (y.sum() + 2) if one else 1 / ((1 - y).sum() + 2) for one in y)
    return total


def test_both_numbers_are_told():
    scores, labels, ids = few()
    with pytest.warns(RuntimeWarning, match='pooling="partial"') as caught:
        fitted = pj.fit_segments(scores, labels, ids)
    assert len(caught) == 1 and caught[0].filename == __file__
    seen, expected = re.findall(r"\d+", str(caught[0].message))
    assert int(seen) == labels.sum()
    assert int(expected) == round(sum_of_targets(labels, ids)) > 1.5 * labels.sum()
    assert fitted.predict_proba(scores, ids).sum() == pytest.approx(int(expected), abs=1)


def test_few_negatives_too():
    scores, labels, ids = few()
    (told,) = warned(lambda: pj.fit_segments(scores, labels, ids))
    mirrored = warned(lambda: pj.fit_segments(-scores, 1 - labels, ids))
    assert mirrored == [told.replace("positives", "negatives")]


def test_as_many_rows_as_in_a_shop_chain():
    """200,000 rows of 3,000 shops of very different sizes, 1.6 % positive."""
    rng = np.random.default_rng(0)
    shares = rng.pareto(1, 3000) + 0.02
    sizes = 1 + rng.multinomial(197_000, shares / shares.sum())
    ids, scores = np.repeat(np.arange(3000), sizes), rng.normal(size=200_000)
    labels = labels_of(rng, 1.2 * scores - 4.9).astype(int)
    assert 0.014 < labels.mean() < 0.018
    assert len(warned(lambda: pj.fit_segments(scores, labels, ids))) == 1


@pytest.mark.parametrize(
    ("rows", "given"),
    [
        (few(), {"pooling": "partial"}),
        (few(), {"pooling": "complete"}),
        (few(), {"options": Options(targets="none")}),
        (few(), {"curve": "temperature"}),
        (few(), {"curve": "isotonic"}),
        (few(segments=19), {}),
        (few(level=0.0), {}),
        (few(segments=30, rows=200), {}),
        (few(), {"soft": True, "pooling": "partial"}),
    ],
    ids=[
        *("partial", "complete", "labels", "temperature", "isotonic"),
        "19",
        "half",
        "many",
        "soft",
    ],
)
def test_nothing_is_told_where_the_sums_agree(rows, given):
    assert warned(lambda: pj.fit_segments(*rows, **given)) == []


@pytest.mark.parametrize("curve", ["quadratic", "venn_abers"])
def test_other_curves_that_predict_as_many_or_more(curve):
    scores, labels, ids = few()
    told = warned(lambda: pj.fit_segments(scores, labels, ids))
    fitted = []
    made = warned(lambda: fitted.append(pj.fit_segments(scores, labels, ids, curve=curve)))
    assert made == told
    expected = fitted[0].predict_proba(scores, ids).sum()
    assert expected > 0.99 * sum_of_targets(labels, ids) > 1.5 * labels.sum()


def test_labels_of_which_a_row_may_have_several():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(60, 90))
    labels = labels_of(rng, scores - 4).astype(int)
    (told,) = warned(lambda: pj.fit_one_vs_rest(scores, labels))
    seen, expected = map(int, re.findall(r"\d+", told))
    fitted = pj.fit_one_vs_rest(scores, labels, pooling="partial")
    assert seen == labels.sum() and told.startswith("classes: ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = pj.fit_one_vs_rest(scores, labels)
    assert expected == pytest.approx(fitted.predict_proba(scores).sum(), abs=1)
    assert len(warned(lambda: pj.update(fitted, scores[:5], labels[:5]))) == 1
    only = rng.integers(0, 90, 60)  # of rows with one class each, shares are told
    assert not warned(lambda: pj.fit_one_vs_rest(scores, only, classes=range(90)))


def test_an_update_tells_of_all_rows():
    scores, labels, ids = few(rows=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = pj.fit_segments(scores, labels, ids)
    after = []
    (told,) = warned(lambda: after.append(pj.update(before, scores, labels, ids)))
    seen, expected = map(int, re.findall(r"\d+", told))
    assert seen == 2 * labels.sum()
    twice = (np.tile(x, 2) for x in (labels, ids))
    assert expected == round(sum_of_targets(*twice))
    assert 2 * after[0].predict_proba(scores, ids).sum() == pytest.approx(expected, rel=0.02)
    assert not warned(lambda: pj.update(before, *(np.tile(x, 99) for x in (scores, labels, ids))))


@pytest.mark.parametrize("door", [x for x in doors.DOORS if x not in ("memory", "update")])
def test_every_door_tells_the_same(door, tmp_path):
    if door == "engine":
        pytest.importorskip("duckdb")
    if door == "cluster":
        pytest.importorskip("pyarrow")
    rows = dict(zip(("scores", "labels", "segments"), few(), strict=True))
    told = warned(lambda: pj.fit_segments(**rows))
    assert len(told) == 1
    assert warned(lambda: doors.DOORS[door](rows, tmp_path)) == told


def test_fits_within_other_functions_are_silent():
    scores, labels, ids = few(segments=40, rows=20)
    assert warned(lambda: pj.fit_segments(scores, labels, ids))
    months = np.tile(np.arange(4).repeat(5), 40)
    assert not warned(lambda: pj.inference.judge_pooling(scores, labels, ids, months, cuts=1))
    linear = pytest.importorskip("sklearn.linear_model").LogisticRegression()
    inputs = np.random.default_rng(0).normal(size=(120, 3))
    classes = np.arange(120) % 8  # 8 classes of 5 folds: 40 curves of 24 rows
    classifier = PlattCalibratedClassifier(linear, method="beta")
    assert not warned(lambda: classifier.fit(inputs, classes))
