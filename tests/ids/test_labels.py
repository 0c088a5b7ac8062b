"""Labels of any two values, and class ids: told apart as Python does, none of them missing."""

import jax.numpy as jnp
import numpy as np
import pytest

import platt_jax as pj

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

TWO_LABELS = {
    "a number and text": ([1, "1"], 1),
    "text that ends in NUL": (["a\0", "a"], "a"),
    "large integers": ([2**53 + 1, float(2**53)], 2**53 + 1),
    "tuples": ([("a", 1), ("b", 2)], ("b", 2)),
    "tuples of two lengths": ([("a",), ("b", 2)], ("a",)),
    "JAX's numbers": ([jnp.array(2), jnp.array(3)], jnp.array(3)),
    "polars' Int128": (pl.Series([2**100, 2**100 + 1], dtype=pl.Int128), 2**100),
    "times": (np.array(["2020-01-01", "2021-01-01"], "M8[ns]"), np.datetime64("2021-01-01", "ns")),
    "times and days": (np.array(["2020-01-01", "2021"], "M8[ns]"), np.datetime64("2021-01-01")),
    "times and pandas": (np.array(["2020-01-01", "2021"], "M8[ns]"), pd.Timestamp("2021-01-01")),
    "times of pandas": (pd.Series(pd.to_datetime(["2020", "2021"])), pd.Timestamp("2020")),
}


@pytest.mark.parametrize("values, positive", TWO_LABELS.values(), ids=TWO_LABELS)
def test_labels_by_name_are_told_apart_as_python_does(values, positive):
    """At every door: what fits one row of each label has one positive and one negative."""
    scores, segments = [0.0, 1.0], ["a", "a"]
    expected = pj.fit(scores, [x == positive for x in list(values)])
    assert expected.n_pos == expected.n_neg == 1
    assert pj.fit(scores, values, pos_label=positive) == expected
    by_segment = pj.fit_segments(scores, values, segments, pos_label=positive)
    assert by_segment == pj.fit_segments(
        pj.SegmentRows(scores, values, segments, pos_label=positive)
    )
    np.testing.assert_array_equal(by_segment.fit.n_pos, 1)


def test_labels_by_name_of_nested_lists_and_of_one_for_all():
    scores = np.arange(6.0).reshape(2, 3)
    expected = pj.fit(scores, [[1, 0, 1], [0, 0, 1]])
    for nested in (
        [["y", "n", "y"], ["n", "n", "y"]],
        (("y", "n", "y"), ("n", "n", "y")),
        [np.array(["y", "n", "y"]), ["n", "n", "y"]],
        np.array([["y", "n", "y"], ["n", "n", "y"]], object),
    ):
        assert pj.fit(scores, nested, pos_label="y") == expected
    mixed = [[1, "1", 1], ["1", "1", 1]]
    assert pj.fit(scores, mixed, pos_label=1) == expected
    of_tuples = [[(1, 2), (0, 2), (1, 2)], [(0, 2), (0, 2), (1, 2)]]
    assert pj.fit(scores, of_tuples, pos_label=(1, 2)) == expected
    one_row = pj.fit(scores, ["y", "n", "y"], pos_label="y")
    assert one_row == pj.fit(scores, [1, 0, 1])
    for one in ("y", np.array("y")):
        assert pj.fit(scores, one, pos_label="y") == pj.fit(scores, 1)
    with pytest.raises(ValueError, match=r"labels: expected rows of one length, got .*\[2, 3\]"):
        pj.fit(scores, [["y", "n", "y"], ["n", "n"]], pos_label="y")


@pytest.mark.parametrize(
    "labels",
    [
        ["yes", float("nan")],
        [["yes", float("nan")]],
        np.array(["yes", np.nan], object),
        np.array([["yes", None]], object),
        np.ma.masked_array(["yes", "no"], [False, True]),
        np.ma.masked_array([["yes", "no"]], [[False, True]]),
        pl.Series(["yes", None]),
    ],
)
def test_a_missing_label_is_of_no_class(labels):
    message = "labels: expected ids, got (NaN|None|a masked entry) at row 1"
    scores = np.arange(2.0).reshape(np.shape(labels))
    with pytest.raises(ValueError, match=message):
        pj.fit(scores, labels, pos_label="yes")


def test_a_pos_label_that_is_no_label():
    for labels, wrong, message in (
        (["no", "no"], float("nan"), "pos_label: expected a label, got NaN"),
        (["no", "no"], pd.NA, "pos_label: expected a label, got NA"),
        (["no", "no"], 1, "pos_label: expected a label such as 'no', got 1"),
        ([3, 3], 1.5, "pos_label: expected a label such as 3, got 1.5"),
        ([("a", 1)] * 2, "a", r"pos_label: expected a label such as \('a', 1\), got 'a'"),
        (
            np.array(["2020", "2021"], "M8[ns]"),
            np.datetime64("2022"),
            r"labels: expected pos_label=np.datetime64\('2022'\) .*, got '2020-01-01T00:00:00.0*',",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            pj.fit([0.0, 1.0], labels, pos_label=wrong)


def test_labels_that_are_tuples_are_named():
    message = r"labels: expected bool, .*: tuples; if .*: pos_label=\('b', 2\)"
    with pytest.raises(ValueError, match=message):
        pj.fit([0.0, 1.0], [("a", 1), ("b", 2)])


def test_class_ids_that_are_not_there_or_not_among_the_classes():
    scores = np.arange(4.0).reshape(2, 2)
    masked = np.ma.masked_array(["a", "b"], [False, True])
    with pytest.raises(ValueError, match="labels: expected ids, got a masked entry at row 1"):
        pj.fit_one_vs_rest(scores, masked)
    times = np.array(["2020", "2021"], "M8[ns]")
    with pytest.raises(ValueError, match=r"labels: 2021-01-01T00:00:00.0* is not among classes"):
        pj.fit_one_vs_rest(scores, times, classes=np.array(["2020", "2022"], "M8[ns]"))
