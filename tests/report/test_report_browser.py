"""The report in a browser: what its script does, what hostile names cannot, how it looks."""

from pathlib import Path

import numpy as np
import pytest
from test_report import HOSTILE, made_up

import platt_jax as pj
from platt_jax import Status
from platt_jax.report import to_html

pytestmark = pytest.mark.slow

SIZES = """texts => texts.map((text) => {
  const { a, b } = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
})"""
CUT_OFF = """texts => texts.filter((text) => {
  const [inner, outer] = [text, text.ownerSVGElement].map((x) => x.getBoundingClientRect());
  const across = inner.left < outer.left - 1 || inner.right > outer.right + 1;
  return across || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
}).map((text) => text.textContent)"""
NO_NUMBER = "\u2013"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A report of 200 segments, hostile names and one of each kind of failure; its calibrator."""
    scores, labels, segments = made_up(200)
    every = np.array([*HOSTILE, *(f"shop {i}" for i in range(len(HOSTILE), 200))], object)
    scores[segments == 60] = np.nan
    labels[segments == 61] = 1
    named = every[segments].tolist()
    with pytest.warns(RuntimeWarning):
        calibrator = pj.fit_segments(scores, labels, named)
    path = tmp_path_factory.mktemp("report") / "report.html"
    scores, labels, segments = made_up(200, seed=1)
    labels[segments < 12] = scores[segments < 12] < 0
    with pytest.warns(RuntimeWarning, match="1 of 200 segments not tested, the largest 'shop 60'"):
        to_html(path, calibrator, scores, labels, every[segments].tolist())
    return path, calibrator


@pytest.fixture(scope="module")
def report(reported):
    return reported[0]


def part(name):
    """The selector of a part of the explorer."""
    return f"[data-part={name}]"


def cells(page, column):
    """The texts of a column of the page of the table that is shown."""
    names = page.locator(".platt-explorer thead th").all_inner_texts()
    number = [name.rstrip(" ↕↑↓") for name in names].index(column) + 1
    return page.eval_on_selector_all(
        f".platt-explorer tbody tr > :nth-child({number})", "them => them.map((x) => x.textContent)"
    )


def heading(page, name):
    return page.locator(".platt-explorer thead button", has_text=name).first


def test_it_sorts(opened):
    page = opened()
    first = cells(page, "segment")
    heading(page, "fitted rows").click()
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("fitted rows")
    rows = [int(text) for text in cells(page, "fitted rows")]
    assert rows == sorted(rows) and len(rows) == 20 and cells(page, "segment") != first
    heading(page, "fitted rows").click()
    rows = [int(text) for text in cells(page, "fitted rows")]
    assert rows == sorted(rows, reverse=True) and rows[0] > 50
    for _ in range(2):  # where there is no number is last in either direction
        heading(page, "q-value").click()
        assert NO_NUMBER not in cells(page, "q-value")
    heading(page, "segment").click()
    page.fill(part("query"), "shop")
    shops = [int(text.split()[1]) for text in cells(page, "segment")]
    assert shops == sorted(shops) and 99 in range(shops[0], 200)


def test_it_goes_back_to_the_worst_first(opened):
    page = opened()
    first = cells(page, "segment")
    assert page.is_disabled(part("worst"))
    heading(page, "excess").click()
    excess = [float(text.replace("\u2212", "-")) for text in cells(page, "excess")]
    assert excess == sorted(excess) and excess[0] < 0 and cells(page, "segment") != first
    page.click(part("worst"))
    assert cells(page, "segment") == first and page.is_disabled(part("worst"))
    assert page.locator("th[aria-sort=ascending], th[aria-sort=descending]").count() == 0


def test_it_filters_by_q(opened):
    page = opened()
    page.select_option(part("q"), "0.05")
    q = [float(text.lstrip("<")) for text in cells(page, "q-value")]
    number = page.inner_text(part("count")).split(" of ")[1].split()[0]
    assert len(q) == 20 < int(number) < 50 and max(q) <= 0.05
    assert page.inner_text("dl.summary dd >> nth=0").startswith(f"{number} of ")
    page.select_option(part("q"), "")
    assert page.inner_text(part("count")) == "1 to 20 of 200 segments"


def test_decimals_are_aligned_and_curves_have_dots(opened):
    page = opened()
    page.fill(part("query"), "shop")
    for column in ("expected", "O/E", "excess", "A", "B", "q-value"):
        numbers = [text for text in cells(page, column) if text != NO_NUMBER]
        assert len({len(text.split(".")[1]) for text in numbers}) == 1, column
    drawn = "them => them.map((x) => [x.querySelectorAll('polyline').length, x.children.length])"
    curves = page.eval_on_selector_all(".platt-explorer td svg", drawn)
    assert len(curves) == 20 and all(line == 1 and 2 <= parts <= 11 for line, parts in curves[1:])
    inside = page.eval_on_selector_all(
        ".platt-explorer td circle", "them => them.every((x) => x.cy.baseVal.value <= 26)"
    )
    assert inside


def test_it_pages(opened):
    page = opened()
    assert page.inner_text(part("count")) == "1 to 20 of 200 segments"
    assert page.is_disabled(part("previous")) and page.is_disabled(part("first"))
    seen = cells(page, "segment")
    for _ in range(9):
        page.click(part("next"))
        seen += cells(page, "segment")
    assert len(set(seen)) == 200 and page.is_disabled(part("next"))
    page.click(part("first"))
    page.click(part("last"))
    page.click(part("previous"))
    assert page.inner_text(part("count")) == "161 to 180 of 200 segments"


def test_it_searches_and_filters(opened, reported):
    page = opened()
    page.fill(part("query"), "SHOP 19")
    assert sorted(cells(page, "segment")) == sorted(
        ["shop 19", *(f"shop {i}" for i in range(190, 200))]
    )
    page.fill(part("query"), "none is like this")
    assert (
        page.inner_text(part("count")) == "No segment is like that" and cells(page, "segment") == []
    )
    assert page.is_disabled(part("next")) and page.is_disabled(part("last"))
    page.fill(part("query"), "")
    page.select_option(part("status"), "NON_FINITE")
    assert cells(page, "segment") == ["shop 60"]
    page.select_option(part("status"), "CONVERGED")
    status = reported[1].fit.status
    converged = np.count_nonzero(status == Status.CONVERGED)
    assert page.inner_text(part("count")) == f"1 to 20 of {converged} segments"
    page.select_option(part("flag"), "ONE_CLASS")
    flagged = np.count_nonzero((reported[1].fit.flags & 1 != 0) & (status == Status.CONVERGED))
    assert "shop 61" in cells(page, "segment") and page.inner_text(part("count")).endswith(
        f"of {flagged} segments"
    )
    assert all("ONE_CLASS" in text for text in cells(page, "flags"))


def test_hostile_names_do_no_harm(opened):
    page = opened()
    for query in ("script", "onerror", "onmouseover", "{{data}}", "frac", "xxxx", "half", "gnip"):
        page.fill(part("query"), query)
        assert len(cells(page, "segment")) >= 1, query
        page.mouse.move(100, 100)
    page.fill(part("query"), "</script><img")
    assert cells(page, "segment") == [HOSTILE[1]]
    page.fill(part("query"), "")
    assert page.evaluate("window.harmed") is None
    assert page.locator("main img, main b, main script").count() == 0
    assert page.evaluate(OVERFLOW) == 0


def test_no_other_script_would_run(opened, report, browser, tmp_path):
    harmful = tmp_path / "harmful.html"
    text = report.read_text(encoding="utf-8")
    harmful.write_text(
        text.replace("</main>", f"{HOSTILE[0]}{HOSTILE[1]}</main>"), encoding="utf-8"
    )
    page = browser.new_page()
    page.goto(harmful.as_uri())
    page.locator(".platt-explorer tbody tr").nth(19).wait_for()
    assert page.evaluate("window.harmed") is None
    page.close()


@pytest.mark.parametrize("width", [320, 400, 800, 1600])
def test_it_is_as_wide_as_the_screen(opened, width):
    page = opened(viewport={"width": width, "height": 800})
    assert page.evaluate(OVERFLOW) <= 0
    sizes = page.eval_on_selector_all("svg text", SIZES)
    assert page.eval_on_selector_all("svg text", CUT_OFF) == []
    assert min(sizes) > 6.5 and np.median(sizes) > 8.5
    narrow = page.eval_on_selector_all(".outcome th", "them => them.map((x) => x.offsetHeight)")
    assert page.locator(".scroll").bounding_box()["width"] <= width and max(narrow) < 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    found = axe.run(page, options={})
    assert found.violations_count == 0, found.generate_report()
    (contrast,) = (rule for rule in found.response["passes"] if rule["id"] == "color-contrast")
    assert len(contrast["nodes"]) > 300
    # Axe cannot tell what is behind the words of a figure.
    doubtful = [node["html"] for rule in found.response["incomplete"] for node in rule["nodes"]]
    assert [html for html in doubtful if not html.startswith(("<text ", "<tspan "))] == []


def test_the_keyboard_reaches_everything(opened):
    page = opened()
    page.click("h1")
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.dataset.part || document.activeElement.textContent"
            )
        )
        if "What the columns mean" in reached[-1]:
            break
    assert {"query", "status", "flag", "next", "last"} <= set(reached)
    columns = page.locator(".platt-explorer thead button").all_inner_texts()
    assert len(columns) == 12 and set(columns) <= set(reached)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    heading(page, "q-value").focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort=ascending]").count() == 1
    page.locator(".scroll").focus()
    assert page.evaluate("document.activeElement.className") == "scroll"


def test_what_is_read_aloud_has_names(opened):
    page = opened()
    for role, name in (
        ("searchbox", "Segment contains"),
        ("combobox", "Status"),
        ("combobox", "Flag"),
        ("region", "Table of segments"),
        ("navigation", "Pages of the table"),
    ):
        assert page.get_by_role(role, name=name).count() == 1, name
    assert page.locator(".chart svg").count() == 13
    assert page.get_by_role("img").count() == 14  # with the selected segment's curve
    levels = page.eval_on_selector_all("h1, h2", "them => them.map((x) => x.tagName)")
    assert levels == ["H1"] + ["H2"] * 5


def test_it_prints(opened, tmp_path):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert (
        not page.is_visible("form")
        and not page.is_visible("nav")
        and page.is_visible(".platt-explorer table")
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('svg')).filter") == "none"
    page.set_viewport_size({"width": 680, "height": 900})  # of A4, less its margins
    assert page.evaluate(OVERFLOW) <= 0
    assert page.locator(".platt-explorer table").bounding_box()["width"] <= 680
    page.pdf(path=tmp_path / "r.pdf", format="A4")
    assert Path(tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
