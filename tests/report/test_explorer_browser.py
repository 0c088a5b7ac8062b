"""The explorer in a browser: what a pointer, the keyboard and a screen reader find in it."""

import re

import numpy as np
import pytest
from data import labels_of
from test_report import Page, made_up, many

import platt_jax as pj
from platt_jax.plots.explorer import rows as page_rows
from platt_jax.report import charts, to_html
from platt_jax.report import rows as report_rows

pytestmark = pytest.mark.slow

K = 400
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
DRAWN = "canvas => canvas.toDataURL()"
PAPER = "x => getComputedStyle(x).getPropertyValue('--paper')"
# Number and place of each text.
READ = """texts => texts.map((text) => [
  parseFloat(text.textContent.replace("\\u2212", "-")),
  text.x.baseVal[0].value,
  text.y.baseVal[0].value,
])"""


@pytest.fixture(scope="module")
def rows():
    """Fresh rows of shops, of which the first ten have changed."""
    rng = np.random.default_rng(1)
    segments = np.repeat(np.arange(K), rng.integers(3, 200, K))
    scores = rng.normal(size=len(segments))
    logit = np.where(segments < 10, 3, -1) + 1.5 * scores
    return scores, labels_of(rng, logit).astype(int), np.char.add("shop ", segments.astype(str))


@pytest.fixture(scope="module")
def calibrator():
    rng = np.random.default_rng(0)
    segments = np.repeat(np.arange(K + 5), 80)
    scores = rng.normal(size=len(segments))
    labels = labels_of(rng, -1 + 1.5 * scores).astype(int)
    return pj.fit_segments(scores, labels, np.char.add("shop ", segments.astype(str)))


@pytest.fixture(scope="module")
def report(calibrator, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "report.html"
    to_html(path, calibrator, *rows)
    return path


@pytest.fixture(scope="module")
def table(report):
    return Page(report).table


def part(name):
    return f"[data-part={name}]"


def funnel(page):
    page.locator(".platt-explorer").scroll_into_view_if_needed()
    return page.get_by_role("slider")


def found(page):
    """The number of segments that the table says it has."""
    return int(page.inner_text(part("count")).split(" of ")[1].split()[0].replace(",", ""))


def ids(page):
    return page.locator("tr[data-segment] th").all_inner_texts()


def chosen(page):
    return page.inner_text(".chosen h3")


def hovered(page, table):
    """Segments that a pointer finds over the funnel: places, and numbers of the segments."""
    box = funnel(page).bounding_box()
    places, numbers = [], []
    of_names = {name: i for i, name in enumerate(table["segment"].tolist())}
    for x in np.linspace(60, box["width"] - 20, 16):
        for y in np.linspace(40, box["height"] - 90, 8):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if page.is_visible(".tip"):
                places.append((x, y))
                numbers.append(of_names[page.inner_text(".tip strong")])
    return np.array(places), np.array(numbers)


def test_a_pointer_finds_the_segments_where_their_numbers_put_them(opened, table):
    page = opened()
    places, numbers = hovered(page, table)
    assert len(set(numbers.tolist())) > 20
    for axis, values in enumerate((table["expected"], table["O/E"])):
        known = np.log(values[numbers].astype(float))
        assert np.isfinite(known).all()
        slope, intercept = np.polyfit(known, places[:, axis], 1)
        assert (slope > 0) == (axis == 0)
        # A pointer finds what is up to 12 pixels away.
        assert np.abs(slope * known + intercept - places[:, axis]).max() < 16


def test_a_click_selects_what_is_hovered(opened, table):
    page = opened()
    places, numbers = hovered(page, table)
    box = funnel(page).bounding_box()
    for (x, y), i in list(zip(places, numbers.tolist(), strict=True))[::9]:
        page.mouse.click(box["x"] + x, box["y"] + y)
        assert chosen(page) == table["segment"][i]
        said = page.inner_text(".chosen .said")
        assert f"{table['positives'][i]:.0f} positive" in said
        assert said.startswith("Off" if table["off"][i] else "Not reliably off")
        assert page.locator("tr[aria-current]").count() <= 1


def test_the_first_shown_is_the_most_urgent(opened, table):
    page = opened()
    assert chosen(page) == table["segment"][0] == ids(page)[0]
    first = {int(name.split()[1]) for name in ids(page)[:8]}
    assert first < set(range(10)) and table["off"][:8].all()
    assert page.inner_text(part("held")) == f"{table['off'].sum()} of {K} segments tested are off"


def test_a_search_finds_what_the_page_of_the_table_does_not_show(opened, table):
    page = opened()
    name = table["segment"][350]
    assert name not in ids(page)
    page.fill(part("query"), name.upper())
    assert ids(page)[0] == name  # before longer ids with the same beginning
    page.click(f"tr[data-segment] button >> text='{name}'")
    assert chosen(page) == name
    assert page.evaluate("document.activeElement.textContent") == name
    page.fill(part("query"), "nothing of the kind")
    assert page.inner_text(part("count")) == "No segment is like that"
    page.click(part("clear"))
    assert found(page) == K + 5 and page.input_value(part("query")) == ""


def drag(page, start, end):
    """Draw a rectangle between two places of the funnel, from 0 to 1 across and up."""
    box = funnel(page).bounding_box()
    (x, y), (to_x, to_y) = (
        (box["x"] + u * box["width"], box["y"] + (1 - v) * box["height"]) for u, v in (start, end)
    )
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move((x + to_x) / 2, (y + to_y) / 2)
    page.mouse.move(to_x, to_y)
    page.mouse.up()


def region(page):
    values = page.eval_on_selector_all("[data-part=region] input", "x => x.map((y) => y.value)")
    return [float(value) if value else None for value in values]


def test_a_rectangle_lists_the_segments_inside(opened, table):
    page = opened()
    drag(page, (0.4, 0.4), (0.7, 0.7))
    fewest, most, lowest, highest = region(page)
    expected, ratio = table["expected"], table["O/E"]
    inside = (expected >= fewest) & (expected <= most) & (ratio >= lowest) & (ratio <= highest)
    assert 10 < found(page) == inside.sum() < K
    assert set(ids(page)) <= set(table["segment"][inside])
    # A rectangle over the edge has no end there.
    drag(page, (0.5, 0.5), (0.999, 0.999))
    fewest, most, lowest, highest = region(page)
    assert most is None and highest is None
    assert found(page) == np.sum((expected >= fewest) & (ratio >= lowest))
    funnel(page).press("Escape")
    assert found(page) == K + 5 and region(page) == [None] * 4


def test_the_same_without_a_pointer(opened, table):
    page = opened()
    before = funnel(page).evaluate(DRAWN)
    page.get_by_label("expected from").fill("20")
    page.get_by_label("O/E to").fill("0.9")
    assert found(page) == np.sum((table["expected"] >= 20) & (table["O/E"] <= 0.9)) > 0
    assert funnel(page).evaluate(DRAWN) != before
    _, numbers = hovered(page, table)
    names = set(table["segment"][numbers])
    assert 0 < len(names) <= found(page) and (table["expected"][numbers] >= 20).all()
    # Arrow keys go through those that are listed.
    funnel(page).press("Home")
    assert chosen(page) == ids(page)[0]
    for expected in ids(page)[1:4]:
        funnel(page).press("ArrowRight")
        assert chosen(page) == expected
    funnel(page).press("ArrowLeft")
    assert chosen(page) == ids(page)[2]
    funnel(page).press("End")
    assert chosen(page) == ids(page)[-1] and page.is_disabled(part("next"))


def test_a_screen_reader_hears_which_segment_it_is(opened, table):
    page = opened()
    slider = funnel(page)
    slider.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    said = slider.evaluate("x => [x.ariaLabel, x.ariaValueNow, x.ariaValueMax, x.ariaValueText]")
    name, rows = table["segment"][3], table["rows"][3]
    assert said[:3] == ["Funnel of segments, the worst first", "4", str(K + 5)]
    assert said[3].startswith(f"{name}, {rows} rows. Off by ")
    assert page.text_content(part("said")) == ""
    page.locator("tr[data-segment] button").nth(3).press("Enter")
    assert page.text_content(part("said")) == said[3]
    image = page.locator(".chosen").get_by_role("img").get_attribute("aria-label")
    assert image.startswith("The segment's sigmoid with its 95 % band. Observed rates by score: ")
    rates = re.findall(r"([\d.]+) % at", image)
    expected = table["curve"][3][:, 2] / table["curve"][3][:, 1]
    np.testing.assert_allclose(np.array(rates, float) / 100, expected, rtol=0.01)


def points(page, selector):
    """(n, 2) the coordinates of a line or an area of the selected segment."""
    text = page.locator(f".chosen svg {selector}").get_attribute("points")
    return np.array([pair.split(",") for pair in text.split()], float)


def test_the_curve_is_the_fit_s_with_its_band(opened, calibrator, table):
    page = opened()
    for i in (0, 40, 200):
        name = table["segment"][i]
        page.fill(part("query"), name)
        page.locator("tr[data-segment] button").first.click()
        up, across = (
            np.array(page.eval_on_selector_all(f".chosen svg .{x}", READ)) for x in ("up", "across")
        )
        to_rate = np.polyfit(up[:, 2], up[:, 0] / 100, 1)
        to_score = np.polyfit(across[:, 1], across[:, 0], 1)
        fit, band = points(page, ".fit"), points(page, ".band")
        scores = np.polyval(to_score, fit[:, 0])
        rates = np.polyval(to_rate, fit[:, 1])
        np.testing.assert_allclose(rates, calibrator[name].predict_proba(scores), atol=0.01)
        low, high = calibrator[name].band(scores)
        drawn = np.polyval(to_rate, band[:, 1])
        top = drawn.max() - 0.01  # where the axis ends
        ends = np.concatenate([high, low[::-1]])
        np.testing.assert_allclose(np.minimum(drawn, top), np.minimum(ends, top), atol=0.015)
        pooled = np.polyval(to_rate, points(page, "polyline.pooled")[:, 1])
        np.testing.assert_allclose(pooled, calibrator.fallback.predict_proba(scores), atol=0.01)


def test_where_rates_are_not_kept_the_page_says_so(calibrator, rows, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(page_rows, "MOST_BINS", 300)
    monkeypatch.setattr(charts, "_svg", lambda draw, what, number=1, small=False: ["-"] * number)
    to_html(tmp_path / "r.html", calibrator, *rows)
    shown = Page(tmp_path / "r.html").table
    kept = [i for i, curve in enumerate(shown["curve"]) if curve is not None]
    without = next(i for i in range(K) if i not in kept)
    page = opened(tmp_path / "r.html")
    for i, number in ((kept[-1], 0), (without, 1)):
        page.fill(part("query"), shown["segment"][i])
        page.locator("tr[data-segment] button").first.click()
        assert chosen(page) == shown["segment"][i]
        said = page.locator(".chosen p", has_text=f"are kept of {len(kept)} segments")
        assert said.count() == number


def test_a_segment_without_a_fit_and_one_without_rows(
    calibrator, rows, opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(charts, "_svg", lambda draw, what, number=1, small=False: ["-"] * number)
    scores, labels, segments = rows
    renamed = np.where(segments == "shop 30", "a new one", segments)
    to_html(tmp_path / "r.html", calibrator, scores, labels, renamed)
    page = opened(tmp_path / "r.html")
    page.fill(part("query"), "a new one")
    page.locator("tr[data-segment] button").first.click()
    assert page.locator(".chosen p", has_text="It has no fit of its own.").count() == 1
    assert page.locator(".chosen svg .fit").count() == 0
    assert page.locator(".chosen svg polyline.pooled").count() == 1
    page.fill(part("query"), "shop 30")
    page.locator("tr[data-segment] button >> text='shop 30'").click()
    assert page.inner_text(".chosen .said") == "It has no rows here."
    assert page.locator(".chosen svg .fit").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 2000])
def test_it_fits_the_screen_in_either_scheme(opened, width, scheme):
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate(OVERFLOW) <= 0
    plot, panel = (page.locator(x).bounding_box() for x in (".plot", ".chosen"))
    assert plot["width"] > min(0.9 * width - 32, 500) and plot["height"] > 300
    assert (panel["y"] > plot["y"] + plot["height"]) == (width == 420)
    assert (
        page.locator(".platt-explorer").evaluate(PAPER)
        == {"light": "#ffffff", "dark": "#16181c"}[scheme]
    )
    assert not page.is_visible(".tip")


def test_it_is_drawn_again_when_colours_or_sizes_change(opened):
    page = opened(color_scheme="light")
    below = page.locator(".plot canvas").first
    light = below.evaluate(DRAWN)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    dark = below.evaluate(DRAWN)
    assert dark != light
    page.emulate_media(media="print")
    page.wait_for_timeout(200)
    assert page.locator(".platt-explorer").evaluate(PAPER) == "#ffffff"
    page.emulate_media(media="screen", color_scheme="light")
    page.wait_for_timeout(200)
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_timeout(200)
    wide = below.evaluate("x => [x.width, x.clientWidth]")
    assert wide[0] == wide[1] < 700
    scale = page.locator(".chosen svg").evaluate("x => x.clientWidth / x.viewBox.baseVal.width")
    assert scale == pytest.approx(1, abs=0.05)  # so that its text has its size


def test_200_000_segments_are_painted_at_once(browser, tmp_path, monkeypatch):
    """Without charts, and without the test against the fit, which are not in the explorer."""
    monkeypatch.setattr(charts, "_svg", lambda draw, what, number=1, small=False: ["-"] * number)
    monkeypatch.setattr(report_rows, "changed", lambda *_: report_rows.Judgement(0, 0))
    large, rows = many(pj.fit_segments(*made_up()), 200_000)
    to_html(tmp_path / "r.html", large, *rows)
    assert (tmp_path / "r.html").stat().st_size < 8e6
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(60_000)
    page.goto((tmp_path / "r.html").as_uri())
    page.locator("tbody tr[data-segment]").first.wait_for()
    (painted,) = page.evaluate(
        "performance.getEntriesByName('platt_jax funnel').map((x) => x.startTime)"
    )
    assert painted < 1500
    page.fill(part("query"), "154321")
    assert ids(page) == ["154321"]
    page.locator("tr[data-segment] button").click()
    assert chosen(page) == "154321"
    page.close()


def test_a_curve_that_is_no_sigmoid_is_drawn(opened, rows, tmp_path):
    scores, labels, shops = rows
    some = np.isin(shops, ["shop 1", "shop 2", "shop 3"])
    mine = scores[some], labels[some], shops[some]
    to_html(tmp_path / "page.html", pj.fit_segments(*mine, curve="isotonic"), *mine)
    page = opened(tmp_path / "page.html")
    up = np.array(page.eval_on_selector_all(".chosen svg .up", READ))
    across = np.array(page.eval_on_selector_all(".chosen svg .across", READ))
    pooled = points(page, "polyline.pooled")
    at = np.polyval(np.polyfit(across[:, 1], across[:, 0], 1), pooled[:, 0])
    rates = np.polyval(np.polyfit(up[:, 2], up[:, 0] / 100, 1), pooled[:, 1])
    one = pj.fit(*mine[:2], curve="isotonic").predict_proba(at)
    assert np.quantile(abs(rates - one), 0.8) < 0.02  # kept at 49 scores
    chosen = page.locator(part("chosen"))
    corners = chosen.locator("polyline.fit").get_attribute("points").split()
    assert len(corners) > 70 and not any("NaN" in corner for corner in corners)
    heights = [float(point.split(",")[1]) for point in corners]
    assert heights == sorted(heights, reverse=True)  # it never falls
    assert "isotonic" in chosen.locator(".key").inner_text()
    assert "A ± error" not in chosen.inner_text()
    assert page.locator("tbody polyline").count() == 3
