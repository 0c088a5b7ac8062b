"""One rule says which class a column is, in every function that takes labels of several classes."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import platt_jax as pj
from platt_jax import metrics

N, C = 300, 4
RNG = np.random.default_rng(0)
F = 3 * RNG.normal(size=(N, C))
Y = (F + RNG.gumbel(size=F.shape)).argmax(axis=1)
P = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
SEGMENTS = np.arange(N) % 40  # most lack a class

# Functions of scores, probabilities, labels and classes: one number each.
DOORS = {
    "fit_multiclass": lambda f, p, y, c: pj.fit_multiclass(f, y, classes=c).slopes[0],
    "vector": lambda f, p, y, c: pj.fit_multiclass(f, y, model="vector", classes=c).fits.nll[0],
    "fit_one_vs_rest": lambda f, p, y, c: pj.fit_one_vs_rest(f, y, classes=c).fit.B.sum(),
    "log_loss": lambda f, p, y, c: metrics.multiclass_log_loss(y, p, classes=c).value,
    "brier": lambda f, p, y, c: metrics.multiclass_brier_score(y, p, classes=c).value,
    "top_label_ece": lambda f, p, y, c: metrics.top_label_ece(y, p, classes=c).value,
    "classwise_ece": lambda f, p, y, c: metrics.classwise_ece(y, p, classes=c),
    "by_segment": lambda f, p, y, c: metrics.by_segment(
        metrics.multiclass_log_loss, y, p, SEGMENTS[: len(p)], classes=c
    ).values.value.mean(),
}
ONE_HOT = np.eye(C)[Y]


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(
    "labels",
    [
        ONE_HOT,
        ONE_HOT.astype(bool),
        2 * ONE_HOT - 1,
        ONE_HOT.tolist(),
        pd.get_dummies(pd.Series(Y)),
        Y + 1,
        -Y,
        np.array(list("badc"))[Y],
        Y.tolist(),
    ],
    ids=["floats", "bools", "signs", "lists", "dummies", "from 1", "reversed", "text", "list"],
)
def test_all_ways_to_write_labels_are_equal(door, labels):
    expected = door(F, P, Y, None)
    distinct = np.unique(np.asarray(labels)) if np.ndim(labels) == 1 else np.arange(C)
    named = np.asarray(labels)[np.unique(Y, return_index=True)[1]] if np.ndim(labels) == 1 else None
    np.testing.assert_allclose(door(F, P, labels, named), expected, rtol=1e-12)
    if named is not None:  # the columns in the order of the ids
        order = np.argsort(named)
        got = door(F[:, order], P[:, order], labels, None)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert (named[order] == distinct).all()


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_a_class_may_be_absent_only_where_no_column_is_in_doubt(door):
    kept = Y < C - 1
    f, p, y = F[kept], P[kept], Y[kept]
    expected = door(f, p, y, range(C))
    assert door(f, p, y, None) == expected
    for labels in (y + 1, np.array(list("abcd"))[y], y.astype(float)):
        with pytest.raises(ValueError, match=r"labels: expected 4 classes.*found 3.*classes="):
            door(f, p, labels, None)
    with pytest.raises(ValueError, match=r"range\(4\), or range\(1, 4 \+ 1\) if they count from 1"):
        door(f, p, y + 1, None)
    np.testing.assert_allclose(door(f, p, y + 1, range(1, C + 1)), expected, rtol=1e-12)


@pytest.mark.parametrize("door", [DOORS[x] for x in DOORS if x != "fit_one_vs_rest"])
def test_rows_that_are_not_one_hot_are_refused(door):
    several = ONE_HOT.copy()
    several[7] = 1, 1, 0, 0
    with pytest.raises(ValueError, match=r"one 1 in each row, got \[1, 1, 0, 0\] in row 7"):
        door(F, P, several, None)
    with pytest.raises(ValueError, match="for shares of classes pass each row once per class"):
        door(F, P, P, None)
    with pytest.raises(ValueError, match=r"labels: expected \(300,\) class ids"):
        door(F, P, ONE_HOT[:, :3], None)


def test_batches_of_metrics_take_one_hot_labels():
    labels, p = np.stack([ONE_HOT, ONE_HOT[::-1]]), np.stack([P, P[::-1]])
    found = metrics.multiclass_log_loss(labels, p).value
    np.testing.assert_allclose(found, metrics.multiclass_log_loss(Y, P).value, rtol=1e-12)


def test_grades_are_in_the_order_that_was_said():
    score = RNG.normal(size=2000)
    grade = np.searchsorted([-1, 0, 1], 1.5 * score + RNG.logistic(size=2000))
    names = ["poor", "fair", "good", "excellent"]
    text = np.array(names)[grade]
    expected = pj.fit_multiclass(score, grade, model="ordinal")
    assert expected.slopes[0] > 1.3
    with pytest.raises(ValueError, match=r'classes: expected for model="ordinal".*order of the sc'):
        pj.fit_multiclass(score, text, model="ordinal")
    for labels, classes in (
        (text, names),
        (pd.Categorical(text, names, ordered=True), None),
        (pd.Series(pd.Categorical(text, names, ordered=True)), None),
        (pl.Series(text, dtype=pl.Enum(names)), None),
    ):
        found = pj.fit_multiclass(score, labels, model="ordinal", classes=classes)
        assert found.classes.tolist() == names
        np.testing.assert_array_equal(found.coefficients, expected.coefficients)
    unordered = pd.Categorical(text, names)
    with pytest.raises(ValueError, match='classes: expected for model="ordinal"'):
        pj.fit_multiclass(score, unordered, model="ordinal")
    more = pd.Categorical(text, [*names, "perfect"], ordered=True)  # of which there is no row
    assert pj.fit_multiclass(score, more, model="ordinal").thresholds.shape == (1, 4)
