"""Figures of a monitor's nights."""

import matplotlib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import platt_jax as pj
from platt_jax import plots

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def tables():
    """Ten nights of 40 routes, of which one changes in the fourth; another has no rows at first."""
    rng = np.random.default_rng(0)
    ids = np.array([f"route {i} with a long name" for i in range(40)])

    def rows(each, moved):
        which = np.repeat(np.arange(40), each)
        scores = rng.normal(size=len(which))
        log_odds = 1.5 * scores - 1 + np.where(which == 7, moved, 0)
        return scores, rng.random(len(which)) < 1 / (1 + np.exp(-log_odds)), ids[which]

    monitor, found = pj.Monitor.start(pj.fit_segments(*rows(500, 0)), against="predictions"), []
    for night in range(1, 11):
        scores, labels, segments = rows(30, 3.0 * (night > 3))
        here = (segments != ids[2]) | (night > 6)
        monitor = monitor.update(scores[here], labels[here], segments[here])
        found.append(monitor.table())
    return found


def test_the_image_has_the_evidence_of_each_night(tables):
    ax = plots.nights(tables)
    (image,) = ax.images
    drawn = image.get_array()
    assert drawn.shape == (40, 10)
    last = tables[-1]["log_e_value"] / np.log(10)
    assert np.sort(drawn[:, -1].filled(0)) == pytest.approx(np.sort(np.maximum(last, 0)))
    assert drawn.mask.sum() == 6  # before the first rows of a segment
    assert np.argmax(drawn[:, -1]) == 0
    (marks,) = ax.collections
    x, y = marks.get_offsets().T
    first = next(night for night, table in enumerate(tables, 1) if (table["q_value"] <= 0.05).any())
    assert (x.tolist(), y.tolist()) == ([first], [0])
    assert ax.get_ylabel() == "segments"


def test_lines_mark_alarms(tables):
    changed, other = (f"route {i} with a long name" for i in (7, 3))
    ax = plots.nights(tables, [changed, other])
    _, line, marks, _, none = ax.lines
    assert line.get_ydata()[-1] == tables[-1]["log_e_value"][0] / np.log(10)
    assert 1 <= len(marks.get_xdata()) <= 7
    assert len(none.get_xdata()) == 0
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "route 7…long name",
        "route 3…long name",
    ]


@pytest.mark.parametrize("container", [list, np.array, pd.Series, pa.array])
def test_segments_of_any_container(tables, container):
    some = [f"route {i} with a long name" for i in (7, 3)]
    for chosen, number in ((container(some), 2), (some[0], 1)):
        assert len(plots.nights(tables, chosen).get_legend().get_texts()) == number


def test_segments_of_several_columns():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"land": np.arange(400) % 2, "shop": np.arange(400) // 2 % 2})
    rows = rng.normal(size=400), rng.random(400) < 0.5, frame
    table = pj.Monitor.start(pj.fit_segments(*rows)).update(*rows).table()
    for chosen in (frame.iloc[:1], [(0, 0)]):
        (text,) = plots.nights([table], chosen).get_legend().get_texts()
        assert text.get_text() == "0, 0"


def test_one_night_is_seen(tables):
    for given in ((), (list(tables[0]["segment"][:1]),)):
        ax = plots.nights(tables[:1], *given)
        ax.figure.canvas.draw()
        low, high = ax.get_xlim()
        assert [tick for tick in ax.get_xticks() if low <= tick <= high] == [1]
    assert ax.lines[1].get_marker() == "."


def test_restarted_segments_may_be_missing(tables):
    last = {name: column[1:] for name, column in tables[-1].items()}
    ax = plots.nights([*tables, pj.results.tables.Table(last)])
    assert ax.images[0].get_array().shape == (39, 11)


@pytest.mark.parametrize(
    ("segments", "message"),
    [(["nowhere"], "segments of the last table"), ([f"{i}" for i in range(8)], "at most 7")],
)
def test_other_segments_are_refused(tables, segments, message):
    with pytest.raises(ValueError, match=message):
        plots.nights(tables, segments)


def test_other_tables_are_refused(tables):
    for bad in ([], [pj.results.tables.Table({"segment": np.arange(3)})]):
        with pytest.raises(ValueError, match="tables: expected the results"):
            plots.nights(bad)
