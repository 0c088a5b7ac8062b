"""Decision curves and forest plots: what is drawn."""

import numpy as np
import pytest
from artists import labelled, notes
from figures import CENTRES

import platt_jax as pj
from platt_jax import metrics, plots
from platt_jax.metrics.centres import Centres


@pytest.fixture
def curve(rng):
    p = rng.uniform(0.02, 0.98, 500)
    return metrics.decision_curve(rng.random(500) < p, p, before=p**3, threshold=[0.1, 0.4, 0.8])


def test_the_lines_are_the_net_benefits(curve):
    ax = plots.decision_curve(curve, title="Worth")
    drawn = labelled(ax)
    for text, values in (
        ("after calibration", curve.value),
        ("before", curve.before),
        ("all called positive", curve.treat_all),
        ("none called positive", curve.treat_none),
    ):
        np.testing.assert_array_equal(drawn[text].get_ydata(), values)
        np.testing.assert_array_equal(drawn[text].get_xdata(), curve.threshold)
    # Calling all positive is far below 0 at high thresholds.
    low, high = ax.get_ylim()
    assert curve.treat_all.min() < low < 0 < curve.upper.max() < high
    assert ax.get_title(loc="left") == "Worth"


def test_centres_are_in_order_above_the_mean_and_a_new_one():
    ax = plots.forest(CENTRES)
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[:2] == ["south", names[1]] and names[2:] == ["north", "mean", "a new centre"]
    assert names[1].startswith("$x$") and "…" in names[1]
    np.testing.assert_array_equal(labelled(ax)["centres"].get_offsets()[:, 0], [0.7, 1.0, 1.2])
    assert "1 not drawn" in notes(ax) and "without an estimate" in notes(ax)
    assert ax.get_xscale() == "log" and ax.get_xlim()[0] > 0.7 / np.exp(4)


@pytest.mark.slow
def test_of_many_centres_the_surest_are_drawn(rng):
    n = rng.integers(40, 200, 60)
    segments = np.repeat(np.arange(60), n)
    logits = rng.normal(size=len(segments))
    labels = rng.random(len(segments)) < 1 / (1 + np.exp(-logits))
    centres = pj.metrics.summarize_centres(logits, labels, segments, from_logits=True)
    ax = plots.forest(centres, "slope", most=10)
    shown = np.sort([int(x.get_text()) for x in ax.get_yticklabels()[:-2]])
    np.testing.assert_array_equal(shown, np.sort(np.argsort(centres["se_slope"])[:10]))
    assert "50 with larger errors" in notes(ax).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def judge():
    rng = np.random.default_rng(0)
    task, f = np.arange(1200) % 4, rng.normal(size=1200)
    rows = f, rng.random(1200) < 1 / (1 + np.exp(-3 * f)), task
    return pj.fit_segments(*rows), rows


def test_accepted_rows_are_expected_and_seen_to_be_right(judge):
    calibrator, (f, y, k) = judge
    ax = plots.risk_coverage(calibrator, f, y, k, precision=0.9)
    drawn = labelled(ax)
    assert list(drawn) == ["expected, and its bound", "90 %", "seen"]
    p = calibrator.predict_proba(f, k)
    order = np.argsort(-p)
    x, expected = drawn["expected, and its bound"].get_data()
    np.testing.assert_allclose(x[[0, -1]], [5 / 1200, 1])
    np.testing.assert_allclose(expected[[0, -1]], [p[order[:5]].mean(), p.mean()])
    points = drawn["seen"][0]
    np.testing.assert_allclose(points.get_xdata(), np.arange(1, 11) / 10)
    seen = [y[order[:n]].mean() for n in range(120, 1201, 120)]
    np.testing.assert_allclose(points.get_ydata(), seen)
    band = ax.collections[0].get_paths()[0].vertices
    gate = pj.gate(calibrator, f, k, precision=0.5)
    assert band[:, 1].min() < expected.min() and (gate["share"] > 0.8).all()


def test_chosen_segments_have_a_line_each(judge):
    calibrator, (f, y, k) = judge
    f = np.where((k == 2) & (f > 2), np.nan, f)
    ax = plots.risk_coverage(calibrator, pj.SegmentRows(f, y, k), chosen=[3, 2, 0], precision=None)
    assert list(labelled(ax)) == [
        *("3, expected, and its bound", "0, expected, and its bound", "3, seen", "0, seen")
    ]
    assert notes(ax) == "1 not drawn: 1 NON_FINITE"


def test_points_of_weighted_rows_are_worth_fewer(judge):
    calibrator, (f, y, k) = judge
    drawn = [
        labelled(plots.risk_coverage(calibrator, f, y, k, weights=w))["seen"]
        for w in (None, np.where(k == 0, 100.0, 1.0))
    ]
    (_, _, bars), (_, _, fewer) = drawn
    lengths = [np.ptp(x[0].get_segments()[-1][:, 1]) for x in (bars, fewer)]
    assert lengths[1] > 1.5 * lengths[0]  # a quarter of the rows is nearly all
    shares = drawn[1][0].get_xdata()
    assert (shares >= np.arange(1, 11) / 10 - 1e-9).all() and shares[-1] == 1


def test_what_of_accepted_rows_is_refused(judge):
    calibrator, (f, y, k) = judge
    for given, message in (
        ({"chosen": [7]}, "chosen: expected segments of the rows, the one at 0 is none"),
        ({"chosen": [0, 1, 2, 3] * 2}, "chosen: expected at most 7, got 8"),
        ({"precision": 1.0}, "precision: expected a number"),
        ({"level": 0.0}, "level: expected a number"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.risk_coverage(calibrator, f, y, k, **given)
    with pytest.raises(ValueError, match="segments: expected some whose curves accept rows"):
        plots.risk_coverage(calibrator, f, y, 99)


def test_curves_of_the_average_and_of_a_new_centre_are_those_of_the_table(rng):
    """At a probability of a half, where the log-odds are the intercept."""
    segments = np.repeat(np.arange(8), 60)
    x = np.r_[-2.0, 2.0, rng.uniform(-1.9, 1.9, 478)]
    y = rng.random(480) < 1 / (1 + np.exp(-x - 0.5 * (segments % 3)))
    ax = plots.centre_curves(1 / (1 + np.exp(-x)), y, segments)
    drawn = labelled(ax)
    assert list(drawn) == ["a new centre", "the average centre", "centres", "right"]
    overall = pj.metrics.summarize_centres(x, y, segments, from_logits=True).overall
    i = overall["parameter"].tolist().index("intercept")
    for label, ends in (("average", ("lower", "upper")), ("new", ("new_lower", "new_upper"))):
        (band,) = (z for text, z in drawn.items() if label in text)
        at, height = band.get_paths()[0].vertices.T
        half = np.unique(at[np.argsort(np.abs(at - 0.5))[:4]])[:2]
        near = np.sort(np.unique(height[np.isin(at, half)]))
        for end, some in zip(ends, (near[:2], near[-2:]), strict=True):
            expected = 1 / (1 + np.exp(-overall[end][i]))
            assert some.min() - 1e-9 <= expected <= some.max() + 1e-9
    assert len(ax.lines) == 8 + 2
    with pytest.raises(ValueError, match="segments: expected two centres or more"):
        plots.centre_curves([0.2, 0.7, 0.6], [0, 1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match="labels: expected more than one value"):
        plots.centre_curves([0.2, 0.7, 0.6], [0, 0, 0], [1, 2, 3])


def test_what_is_refused(curve):
    for call, message in (
        (lambda: plots.decision_curve(curve.value), "curve: expected"),
        (lambda: plots.decision_curve(curve._replace(value=np.full(3, np.nan))), "without NaN"),
        (lambda: plots.forest({"ratio": 1}), "centres: expected the result of summarize_centres"),
        (lambda: plots.forest(CENTRES, "AUC"), "parameter: expected one of"),
        (
            lambda: plots.forest(
                Centres({**CENTRES, "se_log_ratio": np.full(4, np.inf)}, CENTRES.overall)
            ),
            "got none",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
