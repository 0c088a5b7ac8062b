"""Reports and figures of curves that are no sigmoids."""

import json

import numpy as np
import pytest
from data import curved
from explored import decoded, of_page

from platt_jax import plots
from platt_jax.plots import explorer
from platt_jax.report import to_html

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def rows():
    """Rows of the segments, and of one that was not fitted."""
    f, y, s, _ = curved(seed=1)
    return f, y, np.where(s == 3, 9, s)


@pytest.mark.parametrize("name", ["isotonic", "quadratic"])
def test_a_report_has_what_needs_no_sigmoids(name, calibrators, rows, tmp_path):
    to_html(tmp_path / "page.html", calibrators[name], *rows)
    page = (tmp_path / "page.html").read_text()
    assert f"Calibration by segment, {name} curves" in page
    assert "changed since the fit" not in page and "two null hypotheses" not in page
    assert ("curve with its 95&nbsp;% band" in page) == (name == "quadratic")
    assert page.count("The segment's curve over") == 6
    table = of_page(tmp_path / "page.html")
    assert sorted(table["segment"]) == [str(x) for x in (0, 1, 2, 3, 4, 5, 6, 9)]
    assert table["status"][table["segment"] == "9"] == ["UNSEEN"]


def test_the_explorer_has_curves_at_some_scores(calibrators, rows):
    calibrator = calibrators["bins"]
    shown = explorer.contents(calibrator, *explorer.judged_rows(calibrator, *rows, 0.05), 0.05)
    about, table = json.loads(shown.about), decoded(shown.about, shown.blocks)
    assert about["curve"] == "bins" and not {"A", "B"} & set(about["meanings"])
    scores = np.linspace(*about["window"][:2], about["samples"])
    for segment, samples in zip(table["segment"], table["samples"], strict=True):
        if segment == "9":
            assert np.isnan(samples).all()
        else:
            expected = calibrator.predict_proba(scores, int(segment))
            np.testing.assert_allclose(samples, expected, rtol=1e-3)


@pytest.mark.parametrize("name", ["venn_abers", "quadratic"])
def test_curves_are_drawn_with_a_band_if_they_have_one(name, calibrators, rows):
    from matplotlib.collections import PolyCollection

    calibrator = calibrators[name]
    (ax,) = plots.segment_sigmoids(calibrator, *rows, [6]).flat
    curve, pooled = (line for line in ax.lines if len(line.get_xdata()) == 200)
    at = curve.get_xdata()
    np.testing.assert_allclose(curve.get_ydata(), calibrator.predict_proba(at, 6))
    np.testing.assert_allclose(pooled.get_ydata(), calibrator.predict_proba(at, 99))
    bands = [x for x in ax.collections if isinstance(x, PolyCollection)]
    assert len(bands) == (name == "quadratic")
    title = {"venn_abers": "Venn-Abers"}.get(name, name)
    assert curve.get_label() == title + ", 95 % band" * len(bands)
    plots.style.pyplot().close(ax.figure)
