"""The explorer in a notebook: what Python reads of it, and that it works as an anywidget."""

import base64
import sys

import numpy as np
import pytest
from explored import decoded

import platt_jax as pj
from platt_jax import plots
from platt_jax.plots import explorer

# A model as anywidget gives it, and the module's render; what it sets is kept in `window.told`.
RENDER = """async ([module, state, blocks, scheme]) => {
  const views = blocks.map((text) => {
    const bytes = Uint8Array.from("xx" + atob(text), (c) => c.charCodeAt(0));
    return new DataView(bytes.buffer, 2);
  });
  const listeners = {};
  const values = { ...state, _blocks: views };
  window.told = [];
  window.model = {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; window.told.push([name, value]); },
    save_changes: () => {},
    on: (name, react) => (listeners[name] = react),
    off: (name) => delete listeners[name],
    change: (name, value) => { values[name] = value; listeners[`change:${name}`](); },
    listening: () => Object.keys(listeners),
  };
  const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  for (const id of ["one", "two"]) {
    const el = document.getElementById(id);
    window.close = await widget.render({ model: window.model, el });
  }
}"""
DOCUMENT = """<!DOCTYPE html><html lang="en"><title>x</title><style>{}</style>
<body style="background: {}; margin: 0"><div id="one"></div><div id="two"></div></body></html>"""


@pytest.fixture
def widget(calibrator, rows):
    pytest.importorskip("anywidget")
    return plots.explore(calibrator, *rows)


def test_a_missing_anywidget_is_named_with_its_extra(calibrator, rows, monkeypatch):
    from platt_jax.plots import explore  # noqa: F401 - the module is imported without it

    sys.modules["platt_jax.plots.explore"]._widget.cache_clear()
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[explore\]'"):
        plots.explore(calibrator, *rows)


def test_errors_name_the_argument(calibrator, rows):
    pytest.importorskip("anywidget")
    scores, labels, segments = rows
    for message, arguments in {
        "calibrator: expected a SegmentCalibrator, got Fit": (pj.fit(scores, labels), *rows),
        "labels: ": (calibrator, scores, labels + 5, segments),
        "segments: expected one id per score": (calibrator, scores, labels, segments[1:]),
        "scores: expected a flat array": (calibrator, scores[None], labels, segments),
    }.items():
        with pytest.raises(ValueError, match=message):
            plots.explore(*arguments)


def test_what_is_selected_there_is_selected_here(widget):
    assert widget.selected is None and len(widget.brushed) == 0
    table = decoded(widget._about, widget._blocks)
    told = []
    widget.observe(lambda change: told.append(change.new), "selected")
    widget._selected = 3
    assert str(widget.selected) == table["segment"][3] and told == [widget.selected]
    widget.selected = 17
    assert table["segment"][widget._selected] == "17" and told[1:] == [17]
    with pytest.raises(ValueError, match="selected: expected an id of a segment, got 1000"):
        widget.selected = 1000
    with pytest.raises(ValueError, match="selected: "):
        widget.selected = "one"
    assert widget.selected == 17
    widget.selected = None
    assert widget._selected == -1


def test_what_is_brushed_there_is_listed_here(widget, calibrator, rows):
    widget.region = [10, 20, None, None]
    proba = calibrator.predict_proba(rows[0], rows[2])
    expected = np.bincount(rows[2], proba)
    assert np.abs(expected - 10).min() > 1e-3 and np.abs(expected - 20).min() > 1e-3
    inside = np.flatnonzero((expected > 10) & (expected < 20))
    assert sorted(widget.brushed.tolist()) == inside.tolist() and len(inside)
    widget.region = None
    assert widget.brushed.tolist() == []


def test_two_widgets_are_independent(calibrator, rows, widget):
    other = plots.explore(calibrator, *rows)
    other.selected = 5
    assert widget.selected is None


@pytest.fixture
def rendered(browser, calibrator, rows):
    """A function that renders the widget twice in a page, as anywidget does."""
    scores, labels, segments = rows
    judged = explorer.judged_rows(calibrator, scores, labels, segments, 0.05)
    shown = explorer.contents(calibrator, *judged, 0.05)
    complaints, pages = [], []

    def render(paper="#ffffff", selected=-1):
        page = browser.new_page(viewport={"width": 900, "height": 900})
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_content(DOCUMENT.format(explorer.style(), paper))
        blocks = [base64.b64encode(block).decode() for block in shown.blocks]
        state = {"_about": shown.about, "_selected": selected, "region": None}
        page.evaluate(RENDER, [explorer.module(), state, blocks, None])
        return page, decoded(shown.about, shown.blocks)

    yield render
    for page in pages:
        page.close()
    assert complaints == []


@pytest.mark.slow
def test_it_renders_more_than_once_and_tells_what_is_selected(rendered):
    page, table = rendered()
    assert page.locator(".platt-explorer").count() == 2
    one, two = page.locator("#one"), page.locator("#two")
    assert one.locator("h3").inner_text() == two.locator("h3").inner_text() == table["segment"][0]
    two.locator("tr[data-segment] button").nth(4).click()
    assert two.locator("h3").inner_text() == table["segment"][4]
    assert page.evaluate("told.at(-1)") == ["_selected", 4]
    page.evaluate("model.change('_selected', 9)")
    assert two.locator("h3").inner_text() == table["segment"][9]
    two.get_by_label("expected from").fill("30")
    assert page.evaluate("told.at(-1)") == ["region", [30, None, None, None]]
    assert page.evaluate("model.listening()") == ["change:_selected"]
    page.evaluate("window.close()")
    assert page.evaluate("model.listening()") == []


@pytest.mark.slow
def test_it_shows_what_python_selected_before(rendered):
    page, table = rendered(selected=7)
    assert page.locator("#one h3").inner_text() == table["segment"][7]


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "dark"), [("#ffffff", False), ("#111111", True)])
def test_its_colours_are_those_of_the_notebook(rendered, paper, dark):
    page, _ = rendered(paper)
    assert (page.locator(".platt-explorer.dark").count() == 2) == dark
    page.evaluate("document.body.style.background = '#222222'")
    page.wait_for_timeout(200)
    assert page.locator(".platt-explorer.dark").count() == 2


@pytest.mark.slow
def test_axe_finds_nothing_in_a_widget(rendered):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page, _ = rendered()
    page.evaluate("document.getElementById('two').remove()")  # a landmark of its name is enough
    found = axe.run(page, context=".platt-explorer")
    assert found.violations_count == 0, found.generate_report()
