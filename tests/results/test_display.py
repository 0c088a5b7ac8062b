"""Tables and fits as text: what fits in a line, and digits that can be compared."""

import pickle
import re

import numpy as np
import pytest
from data import batch

import platt_jax as pj
from platt_jax import metrics
from platt_jax.results.tables import WIDTH, Table, cells


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([441.143, 53.7549, 0.978849], ["441.14", "53.75", "0.98"]),
        ([-0.05, 1.11366, 0.849], ["-0.050", "1.114", "0.849"]),
        ([1.234567, np.nan, 0.0], ["1.23", "nan", "0.00"]),
        ([1e-12, 0.5, np.inf], ["1e-12", "0.5", "inf"]),
        ([4.0, 120.0], ["4", "120"]),
        ([2.5e-9, 3.1e-9], ["2.5e-09", "3.1e-09"]),
        ([np.nan, 0.0], ["nan", "0"]),
    ],
)
def test_a_column_has_three_digits_and_equal_decimals(values, texts):
    for dtype in (np.float64, np.float32):
        assert cells(np.array(values, dtype)) == texts


def test_other_columns_are_as_they_are():
    assert cells(np.array([1, 20])) == ["1", "20"]
    assert cells(np.array([True, False])) == ["True", "False"]
    assert cells(np.array(["a", 2.0], object)) == ["a", "2"]
    day = np.array(["2024-02-03T00:00:00.5"], "M8[ns]")
    assert cells(day) == ["2024-02-03T00:00:00.500000000"]


def test_a_table_names_the_columns_that_do_not_fit():
    table = Table({f"a column {i}": np.arange(3) for i in range(20)})
    head, *rows, last = repr(table).splitlines()
    assert len(head) <= WIDTH < len(head) + 2 + len("a column 8") and len(rows) == 3
    shown = head.count("a column")
    assert last == "also: " + ", ".join(list(table)[shown:])
    narrow = Table({"x" * 300: np.arange(2)})
    assert len(repr(narrow).splitlines()) == 3
    assert len(repr(Table({"a": np.zeros(0)})).splitlines()) == 1


def test_triage_shows_what_decides_first(rng):
    scores, segments = rng.normal(size=600), np.arange(600) % 6
    labels = rng.random(600) < 1 / (1 + np.exp(-scores))
    made = pj.triage(pj.fit_segments(scores, labels, segments), scores, labels, segments)
    np.testing.assert_array_equal(made["ratio"], made["positives"] / made["expected"])
    lines = repr(made).splitlines()
    assert max(map(len, lines[:-1])) <= WIDTH
    first = ["segment", "rows", "positives", "expected", "ratio", "q_value", "flagged"]
    assert lines[0].split()[:7] == first and lines[-1].startswith("also: ")
    assert "p_value" in lines[-1]


def test_one_fit_tells_its_parameters(rng):
    scores = rng.normal(size=400)
    one = pj.fit(scores, rng.random(400) < 1 / (1 + np.exp(1 - scores)))
    said = repr(one).splitlines()[1]
    errors = one.standard_errors
    assert said == (f"  A = {one.A:.4g} ± {errors[0]:.2g}, B = {one.B:.4g} ± {errors[1]:.2g}")
    assert said.strip() in one._repr_html_()
    flat = pj.fit([1.0, 1.0, 1.0], [0, 1, 1])
    assert repr(flat).splitlines()[1] == f"  A = 0, B = {flat.B:.4g}"
    several = pj.fit(np.tile(scores, (2, 1)), np.arange(400) % 2)
    assert "A = " not in repr(several)


def test_a_notebook_shows_curves(rng):
    """Each with its fit's probabilities at the ends of the scores that are named."""
    scores, labels = batch(rng, 3, 200)
    labels[2] = 0
    scores[2, 5] = np.nan
    with pytest.warns(RuntimeWarning):
        fits = pj.fit(scores, labels)
    html = fits._repr_html_()
    (ends,) = re.findall("for scores from ([-0-9.]+) to ([-0-9.]+)", html)
    # Failed fits come first, and have no curve.
    assert re.findall("<td>(|<svg.*?)</td>", html)[0] == "" and html.count("<svg") == 2
    found = np.array(re.findall("<title>from (.*?) to (.*?)</title>", html), float)
    expected = fits.predict_proba(np.tile(np.array(ends, float), (3, 1)))
    np.testing.assert_allclose(np.sort(found, 0), np.sort(expected[:2], 0), atol=0.01)


def test_curves_need_a_slope():
    for labels in ([1, 1, 1], [0, 1, 1]):
        assert "<svg" not in pj.fit([1.0, 1.0, 1.0], labels)._repr_html_()


def test_the_length_of_a_table_is_that_of_its_columns():
    assert len(Table(a=np.zeros(3), b=np.ones(3))) == 3
    assert len(Table()) == len(Table(a=np.zeros(0))) == 0
    assert dict(Table(a=np.zeros(0))).keys() == {"a"}


def test_results_of_metrics_have_a_line_for_each_field():
    labels, proba = np.arange(40) % 2, np.linspace(0.01, 0.99, 40)
    lines = repr(metrics.ece_interval(labels, proba)).splitlines()
    assert lines[0] == "ECEInterval:"
    assert [x.split()[0] for x in lines[1:]] == ["value", "lower", "upper"]
    curve = repr(metrics.reliability_curve(labels, proba, n_bins=20))
    assert "\n  prob_pred  (20,) from 0.0" in curve and "array" not in curve
    nested = repr(metrics.cox_calibration(labels, proba))
    assert "slope_test      ZTest:\n" in nested and "np.float64" not in nested
    names = [f"{i:02}" for i in range(40)]
    by_segment = metrics.by_segment(metrics.log_loss, labels, proba, names)
    assert "keys    (40,) from 00 to 39" in repr(by_segment)
    nothing = metrics.BySegment(np.arange(20), np.zeros(20), np.full(20, np.nan))
    assert "from nan to nan" in repr(nothing)
    assert pickle.loads(pickle.dumps(nothing)).rows is not None
