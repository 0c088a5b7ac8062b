"""Figures are legible: on dark backgrounds, for narrow ranges, rare events and long ids."""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from artists import labelled, notes, starting
from data import labels_of
from figures import FIGURES, every_figure
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from scipy.special import expit

import platt_jax as pj
from platt_jax import plots
from platt_jax.plots import names, style
from platt_jax.plots.axes import log_axis, probability_limits
from platt_jax.plots.points import points

LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def contrast(color, background):
    """The contrast ratio of WCAG."""
    lights = []
    for rgb in (color, background):
        rgb = np.array(to_rgb(rgb))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        lights.append(linear @ LUMINANCE + 0.05)
    return max(lights) / min(lights)


def inks(figure):
    """Colours of lines, texts and dots."""
    for ax in figure.axes:
        for line in ax.lines:
            yield line, line.get_color()
        for dots in ax.collections:
            if isinstance(dots, PathCollection):
                for face in (*dots.get_facecolor(), *dots.get_edgecolor()):
                    if face[3] > 0:
                        yield dots, face[:3]
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            yield text, text.get_color()


@pytest.mark.parametrize("background", ["default", "dark_background"])
@pytest.mark.parametrize("name", [*FIGURES, "segments"])
def test_everything_is_visible_on_light_and_on_dark(name, background, rows, calibrator, pooled):
    with plt.style.context(background):
        if name == "segments":
            figure = plots.segment_sigmoids(calibrator, *rows, chosen=[20, 30])[0, 0].figure
        else:
            figure = every_figure(rows, calibrator, pooled)[name]().figure
    paper = figure.get_facecolor()
    assert (contrast(paper, "black") < 2) == (background == "dark_background")
    for what, color in inks(figure):
        least = 4.5 if isinstance(what, Text) else 2.1
        assert contrast(color, paper) >= least, (what, color)


def test_hexagons_are_visible_on_dark(calibrator, monkeypatch):
    monkeypatch.setattr("platt_jax.plots.points.MOST_POINTS", 20)
    for background, first in (("default", 1.0), ("dark_background", 0.0)):
        with plt.style.context(background):
            ax = plots.parameter_map(calibrator)
        (hexagons,) = [c for c in ax.collections if not isinstance(c, PathCollection)]
        assert hexagons.get_cmap()(0.0)[0] == pytest.approx(first, abs=0.05)


def test_what_is_behind_dark_axes_is_seen_where_the_style_is_light():
    figure, (dark, clear) = plt.subplots(1, 2)
    dark.set_facecolor("#202020")
    clear.set_facecolor("none")
    assert style.on_dark(dark) and not style.on_dark(clear)
    figure.set_facecolor("black")
    assert style.on_dark(clear)
    figure.set_facecolor("none")
    assert not style.on_dark(clear)


def tick_texts(axis):
    axis.figure.canvas.draw()
    return [
        text for text in axis.get_ticklabels(which="both") if text.get_visible() and text.get_text()
    ]


@pytest.mark.parametrize(
    ("low", "high"), [(40, 40), (3400, 3700), (37, 80), (5, 90), (2, 3000), (1, 3_000_000)]
)
def test_rows_are_plain_numbers_apart(low, high):
    rng = np.random.default_rng(0)
    sizes = np.geomspace(low, high, 12).astype(int)
    ax = plt.subplots(layout="constrained")[1]
    p = np.full(12, 0.3)
    labels = (rng.random(12) < 0.5).astype(int)
    for weights in (sizes.astype(float), sizes * 0.9):
        ax.clear()
        plots.rate_funnel(labels, p, np.arange(12), weights=weights, ax=ax)
        texts = tick_texts(ax.xaxis)
        left, right = ax.get_xlim()
        values = [float(text.get_text().replace(",", "")) for text in texts]
        inside = [x for x in values if left <= x <= right]
        assert 2 <= len(inside) <= 9 and len(set(values)) == len(values)
        boxes = [text.get_window_extent() for text in texts]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_ratios_and_limits_are_in_view():
    rng = np.random.default_rng(0)
    segments = np.repeat(np.arange(500), 3)
    p = np.full(1500, 0.02)
    ax = plots.rate_funnel((rng.random(1500) < p).astype(int), p, segments)
    low, high = ax.get_ylim()
    for text in ("95 % limits", "99.8 % limits"):
        at = np.interp(3, *starting(ax, text).get_xydata().T)
        assert low < at < high
    texts = tick_texts(ax.yaxis)
    assert texts[0].get_text() == "0" and 3 <= len(texts) <= 9


# One segment is no population.
@pytest.mark.filterwarnings("ignore:pooling. There is no population:RuntimeWarning")
def test_one_problem(rng):
    scores = rng.normal(size=40)
    labels = labels_of(rng, scores).astype(int)
    calibrator = pj.fit_segments(scores, labels, np.zeros(40, int))
    for make, text in (
        (plots.parameter_map, "1 segment, no flag"),
        (plots.slope_funnel, "1 segment, none off (q ≤ 0.05)"),
        (
            lambda c: plots.shrinkage(
                pj.fit_segments(scores, labels, scores > 9, pooling="partial")
            ),
            "1 segment",
        ),
    ):
        assert text in labelled(make(calibrator))
    titles = plots.segment_sigmoids(calibrator, scores[:1], labels[:1], [0], chosen=[0])
    assert titles[0, 0].get_title() == "0, 1 row"


def test_legends_hide_no_more_than_a_few_points(rng):
    """Points over the whole of the axes leave no corner free."""
    K = 3000
    A, B = rng.uniform(-3, 3, (2, K))
    fit = pj.fit(rng.normal(size=(K, 30)), rng.random((K, 30)) < 0.5)
    flags = rng.choice([0, 0, 0, 1, 2, 4, 8, 16], K)
    ax = plots.parameter_map(replace(fit, A=A, B=B, flags=flags))
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    dots = [c for c in ax.collections if isinstance(c, PathCollection)]
    places = np.vstack([ax.transData.transform(c.get_offsets()) for c in dots])
    hidden = ((places >= box.min) & (places <= box.max)).all(1).sum()
    assert len(places) > 2500 and hidden <= 0.005 * K


def test_a_legend_hides_no_marked_point_and_ticks_of_huge_ratios_are_plain():
    segments = np.repeat(np.arange(400), 50)
    p = np.where(segments % 2, 0.1, 1e-7)
    labels = (np.arange(len(p)) % 10 == 0) & (segments % 2 == 1)
    labels[[0, 1, 2, 200]] = True  # of segments 0 and 4
    ax = plots.rate_funnel(labels, p, segments)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent()
    (marked,) = (c for c in ax.collections if c.get_label().startswith("2 off"))
    places = ax.transData.transform(marked.get_offsets())
    assert len(places) == 2 and not ((places >= box.min) & (places <= box.max)).all(1).any()
    assert {"1", "100", "10,000"} <= {x.get_text() for x in ax.get_yticklabels()}


def test_ids_that_differ_in_the_middle_stay_different():
    ids = [f"region-north-west/shop-number-{i:05d}-refurbished" for i in range(3)]
    short = names.distinct(ids, 16)
    assert short == ["…p-number-00000…", "…p-number-00001…", "…p-number-00002…"]
    assert names.distinct(["one", "other"], 16) == ["one", "other"]
    assert names.distinct(ids[:1], 16) == [names.wrapped(ids[0], 16, 1)]
    ends = [f"{'x' * 30}{i}" for i in range(2)]
    assert names.distinct(ends, 16) == [names.wrapped(each, 16, 1) for each in ends]


@pytest.mark.parametrize(
    ("low", "high"), [(90, 165), (300, 390), (20, 100), (3, 90), (1, 1e6), (0.8, 4.8)]
)
def test_axes_of_rows_have_three_ticks_or_more(low, high):
    ax = plt.subplots()[1]
    ax.set(xscale="log", xlim=(low, high))
    log_axis(ax.xaxis, (low, high))
    ticks = ax.get_xticks()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    assert len(ticks) >= 3 and np.all(ticks % 1 == 0)


def test_points_are_seen_on_dark_and_alone():
    x = np.arange(1.0, 301)
    window = (0, 301), (0, 301)
    with plt.style.context("dark_background"):
        dark = points(plt.subplots()[1], x, x, window, "dots").get_alpha()
    ax = plt.subplots()[1]
    assert dark > 0.8 > points(ax, x, x, window, "dots").get_alpha()
    assert points(ax, x[:9], x[:9], window, "dots").get_alpha() > 0.8


def test_several_panels_are_described():
    axes = np.array([plt.subplots()[1] for _ in range(2)])
    axes[0].set(xlabel="score", ylabel="rate")
    axes[1].set(xlabel="night", ylabel="evidence")
    said = plots.alt_text(axes)
    assert said.startswith("rate against score. ") and " evidence against night. " in said


def test_probability_limits():
    for drawn, limits in {
        (0.001, 0.06): (-0.0012, 0.0648),
        (0.0, 0.7): (-0.02, 1.02),
        (0.93, 0.99): (1 - 1.08 * 0.07, 1 + 0.02 * 0.07),
        (0.0, 0.0): (-0.02, 1.02),
        (1.0, 1.0): (-0.02, 1.02),
    }.items():
        np.testing.assert_allclose(probability_limits(*drawn), limits)


@pytest.mark.slow
def test_rare_events_fill_the_axes(rng):
    scores = rng.normal(size=60_000)
    labels = labels_of(rng, 1.2 * scores - 5).astype(int)
    assert 0.005 < labels.mean() < 0.03
    one = pj.fit(scores, labels)
    p = one.predict_proba(scores)
    for method in ("binned", "smooth", "isotonic"):
        ax = plots.reliability_diagram(labels, p, method=method)
        assert ax.get_xlim() == ax.get_ylim() and ax.get_xlim()[1] < 0.5
        assert "% of the rows beyond the axes" in notes(ax)
        heights, edges, _ = ax.figure.axes[1].patches[0].get_data()
        assert edges[-1] == pytest.approx(ax.get_xlim()[1])
        np.testing.assert_array_equal(heights, np.histogram(p, edges)[0])
    assert plots.sigmoid(one, scores, labels).get_ylim()[1] < 0.5
    segments = np.arange(60_000) % 3
    axes = plots.segment_sigmoids(
        pj.fit_segments(scores, labels, segments), scores, labels, segments, chosen=[0, 1, 2]
    )
    assert {ax.get_ylim() for ax in axes.flat[:3]} == {axes[0, 0].get_ylim()}
    assert axes[0, 0].get_ylim()[1] < 0.5
    often = plots.reliability_diagram(1 - labels, 1 - p, histogram=False)
    assert often.get_xlim()[0] > 0.5
    often = plots.reliability_diagram(labels, {"one": p, "other": np.sqrt(p)}, histogram=False)
    assert often.get_xlim() == (-0.02, 1.02) or often.get_xlim()[1] > 0.1


def test_long_ids_have_their_ends_on_few_lines(monkeypatch):
    monkeypatch.setattr(names, "_fonts", lambda whole: ([], set()))  # as if a font had them all
    for whole, lines in {
        "short": ["short"],
        "two words of it": ["two words", "of it"],
        "a_word_without_any_space_at_all": ["a_wor…ace", "_at_all"],
        "": [],
    }.items():
        wrapped = names.wrapped(whole, 10, 2).split("\n")
        assert all(names.width(line) <= 10 for line in wrapped)
        if len(whole) <= 20:
            assert wrapped == (lines or [""])
        else:
            assert whole.startswith(wrapped[0].split("…")[0]) and whole.endswith(wrapped[-1][-4:])
            assert sum("…" in line for line in wrapped) == 1
    assert names.width("東京 a") == 6
    assert names.wrapped("a\x00\ud800\n b", 12, 2) == "a\\x00\\ud800\nb"
    assert names.wrapped("東京都千代田区丸の内一丁目", 10, 2) == "東京都千…\n内一丁目"


def test_titles_of_panels_do_not_overlap(rng):
    long = [f"the customers of the northern branch, number {i:04d}" for i in range(6)]
    segments = np.repeat(long, 40)
    scores = rng.normal(size=240)
    labels = labels_of(rng, scores).astype(int)
    calibrator = pj.fit_segments(scores, labels, segments)
    axes = plots.segment_sigmoids(calibrator, scores, labels, segments, chosen=long)
    axes[0, 0].figure.canvas.draw()
    boxes = [ax.title.get_window_extent() for ax in axes.flat]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert [ax.get_title().split("\n")[-2][-4:] for ax in axes.flat] == [x[-4:] for x in long]
    assert axes[0, 0].get_title().endswith("\n40 rows")


@contextmanager
def installed(path):
    """With a font that matplotlib knows."""
    manager = font_manager.fontManager
    before = list(manager.ttflist)
    manager.addfont(path)
    yield
    manager.ttflist[:] = before


def test_ids_are_in_a_font_that_has_them(tmp_path, rng):
    path = str(tmp_path / "made_up.ttf")
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "one", "two"])
    font.setupCharacterMap({ord("東"): "one", ord("京"): "two"})
    pen = TTGlyphPen(None)
    for x, y in ((0, 0), (0, 700), (700, 700)):
        (pen.moveTo if (x, y) == (0, 0) else pen.lineTo)((x, y))
    pen.closePath()
    glyph = pen.glyph()
    font.setupGlyf(dict.fromkeys((".notdef", "one", "two"), glyph))
    font.setupHorizontalMetrics(dict.fromkeys((".notdef", "one", "two"), (1000, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Made Up", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(path)
    segments = np.repeat(["東京", "b"], 30)
    scores = rng.normal(size=60)
    labels = labels_of(rng, scores).astype(int)
    calibrator = pj.fit_segments(scores, labels, segments)
    with installed(path), warnings.catch_warnings():
        warnings.simplefilter("error")
        axes = plots.segment_sigmoids(calibrator, scores, labels, segments, ["東京", "b"])
        axes[0, 0].figure.canvas.draw()
        assert "Made Up" in axes.flat[0].title.get_fontfamily()
        assert "Made Up" not in axes.flat[1].title.get_fontfamily()
    assert "Made Up" not in names.families(["plain"])


UNKNOWN = ["\U000f0001\U000f0002", "\U000f0001\U000f0003", "b"]


def test_ids_that_no_font_has_stay_different(rng):
    """Private characters, and a model's and a title's."""
    segments = np.repeat(UNKNOWN, 80)
    scores = rng.normal(size=240)
    labels = labels_of(rng, scores).astype(int)
    p = expit(scores)
    calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    tables = [pj.Monitor.start(calibrator).update(scores, labels, segments).table()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [
            plots.segment_sigmoids(calibrator, scores, labels, segments, UNKNOWN)[0, 0],
            plots.rate_funnel(labels, p**3, segments),
            plots.nights(tables),
            plots.nights(tables, UNKNOWN),
            plots.forest(pj.metrics.summarize_centres(p, labels, segments)),
            plots.reliability_diagram(labels, dict.fromkeys(UNKNOWN, p), title=UNKNOWN[0]),
        ]
        for ax in made:
            ax.figure.canvas.draw()
    shown = {text.get_text() for text in made[2].get_yticklabels()}
    assert len(shown) == 3 and "b" in shown
    assert names.printable(UNKNOWN[0]) == r"\U000f0001\U000f0002"
    assert made[5].get_title(loc="left") == r"\U000f0001\U000f0002"


def test_rare_positives_are_seen(rng):
    """Axes end where curves and rates do, even if a band is wide far from the rows."""
    scores, segments = rng.standard_t(4, size=1_500), np.arange(1_500) % 5
    labels = rng.random(1_500) < expit(0.5 * scores - 4.5)
    one = pj.fit(scores, labels)
    assert one.band(scores.max(), 0.95)[1] > 0.12
    assert plots.sigmoid(one, scores, labels).get_ylim()[1] < 0.12
    scores = np.clip(scores, -3, 3)
    p = expit(0.5 * scores - 4.5)
    many = plots.centre_curves(p, labels, segments)
    assert p.max() < 0.08 and many.get_ylim()[1] < 0.2 and many.get_xlim()[1] < 0.1
    calibrator = pj.fit_segments(scores, labels, segments, pooling="partial")
    accepted = plots.risk_coverage(calibrator, scores, labels, segments)
    assert accepted.get_ylim()[1] < 0.5
    texts = [text.get_text() for text in accepted.get_legend().get_texts()]
    assert "95 %, reached by no bound" in texts


def test_limits_of_few_expected_do_not_turn_back(rng):
    """A lower limit near 0 expected positives would rise again towards 1."""
    p = np.geomspace(0.002, 0.2, 30).repeat(10)
    ax = plots.rate_funnel(rng.random(300) < p, p, np.arange(300) // 10)
    for line in ax.lines[:4]:
        y = line.get_ydata()
        y = y[np.isfinite(y)]
        if len(y):
            assert (np.diff(y) > 0).all() if y[-1] < 1 else (np.diff(y) < 0).all()


def test_a_display_has_a_diagonal_and_a_legend():
    display = plots.ReliabilityDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8])
    (diagonal,) = [x for x in display.ax_.lines if x.get_label() == "perfectly calibrated"]
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    again = plots.ReliabilityDisplay(display.curve, name="again").plot(display.ax_)
    texts = [text.get_text() for text in again.ax_.get_legend().get_texts()]
    assert texts == ["perfectly calibrated", "again"]


def test_numbers_and_legend_are_beside_the_curve(rng):
    p = rng.random(3_000)
    for proba in (p, p**0.1, p**3):
        ax = plots.reliability_diagram(rng.random(3_000) < p, proba)
        ax.figure.canvas.draw()
        (numbers,) = [text for text in ax.texts if "log loss" in text.get_text()]
        legend = ax.get_legend().get_window_extent()
        box = numbers.get_window_extent()
        points = ax.transData.transform(ax.lines[1].get_xydata())
        assert not box.overlaps(legend)
        for each in (box, legend):
            assert not each.count_contains(points)


def test_titles_and_labels(rows, calibrator, pooled):
    scores, labels, segments = rows
    p = calibrator.predict_proba(scores, segments)
    for draw in (
        lambda **more: plots.rate_funnel(labels, p, segments, **more),
        lambda **more: plots.slope_funnel(calibrator, **more),
        lambda **more: plots.slope_funnel(pooled, **more),
        lambda **more: plots.shrinkage(pooled, **more),
    ):
        ax = draw(label="class", title="Late flights")
        assert ax.get_title(loc="left").strip() == "Late flights"
        assert "class" in ax.get_xlabel() and "segment" not in plots.alt_text(ax)
        assert any(" classes" in text for text in ax.get_legend_handles_labels()[1])
        assert draw().get_title(loc="left") == "" and "segment" in draw().get_xlabel()
    one = pj.fit(scores, labels)
    ax = plots.sigmoid(one, scores, labels, label="all routes", title="One")
    assert ax.get_legend_handles_labels()[1][0] == "all routes, 95 % band"
    for draw in (
        lambda **more: plots.reliability_diagram(labels, p, **more),
        lambda **more: plots.parameter_map(calibrator, **more),
        lambda **more: plots.sigmoid(one, scores, labels, densities=False, **more),
    ):
        assert plots.alt_text(draw(title="Late flights")).startswith("Late flights.")
    axes = plots.summary(calibrator, scores, labels, segments, label="route")
    assert axes[1, 0].get_title(loc="left").strip() == "Slopes of routes"
    assert "by route" in axes[0, 0].get_legend_handles_labels()[1]
