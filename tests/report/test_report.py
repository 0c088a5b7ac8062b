"""The report as a file: one page that parses, holds what was fitted, and that no name can break."""

import base64
import hashlib
import os
import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import jax
import matplotlib
import numpy as np
import pytest
from data import rows_of
from explored import decoded

import platt_jax as pj
from platt_jax import Status, triage
from platt_jax.report import charts, to_html

HOSTILE = [
    "<script>window.harmed = 1</script>",
    "</script><img src=x onerror='window.harmed = 1'>",
    "<!--<script>",
    '"><b onmouseover="window.harmed = 1">',
    "{{data}} {{script}} \\1 \\g<0>",
    "$\\frac{$ %s {0}",
    "x" * 10_000,
    "\u202egnipool \u0634\u0631\u0643\u0629 \u0627\u0644\u0646\u0648\u0631",
    "\ud800 half a pair",
    "\u2028 \x00 \x1b \n",
]
VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """A page, its tags matched, with the text of each element by tag and by id."""

    def __init__(self, path):
        super().__init__()
        self.open, self.tags, self.ids, self.texts, self.urls = [], [], [], {}, []
        with open(path, encoding="utf-8") as file:
            self.source = file.read()
        self.feed(self.source)
        self.close()
        assert self.open == []
        blocks = [base64.b64decode(self.texts[f"block{i}"]) for i in range(4)]
        self.table = decoded(self.texts["about"], blocks)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given and "svg" not in self.open_tags() else []
        self.urls += [v for k, v in attributes if k in ("src", "href", "xlink:href", "action")]
        assert not [k for k in given if k.startswith("on")]
        if tag not in VOID:
            self.open.append((tag, given.get("id")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for key in {name for pair in self.open for name in pair if name}:
            self.texts[key] = self.texts.get(key, "") + data

    def open_tags(self):
        return [tag for tag, _ in self.open]

    def summary(self):
        found = re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", self.source)
        return dict(found)

    def column(self, name):
        return self.table[name].tolist()


def made_up(K=40, seed=0):
    """Scores, labels and segment numbers."""
    rng = np.random.default_rng(seed)
    return rows_of(rng, np.repeat(np.arange(K), rng.integers(4, 60, K)))


@pytest.fixture(scope="module")
def calibrator():
    return pj.fit_segments(*made_up())


@pytest.fixture
def undrawn(monkeypatch):
    """Charts without content, as drawing takes most of the time."""
    monkeypatch.setattr(
        charts, "_svg", lambda draw, what, number=1, small=False: ["<svg/>"] * number
    )


@pytest.fixture(scope="module")
def page(calibrator, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert to_html(path, calibrator, *made_up(seed=1)) is None
    return Page(path)


def renamed(calibrator, rows, names):
    """Both with these names for the first segments."""
    every = np.array([*names, *(f"z{i:07d}" for i in range(len(calibrator) - len(names)))], object)
    order = sorted(range(len(every)), key=every.__getitem__)
    fit = jax.tree.map(lambda x: x[order], calibrator.fit)
    keys = np.array(every[order].tolist())
    scores, labels, segments = rows
    return replace(calibrator, keys=keys, fit=fit), (scores, labels, every[segments].tolist())


def test_the_page_loads_nothing(page):
    assert page.urls and all(re.match(r"#|data:image/png;base64,", url) for url in page.urls)
    assert not re.search(r"https?:|@import|url\((?!#)", page.source)
    assert page.tags.count("script") == 6 and "link" not in page.tags and "iframe" not in page.tags
    assert "default-src 'none'" in page.source
    assert page.source.startswith("<!DOCTYPE html>") and len(page.ids) == len(set(page.ids))


def test_it_allows_its_own_script_and_no_other(page):
    (own,) = re.findall("<script>(.*?)</script>", page.source, re.S)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.source


def test_it_says_of_each_segment_what_triage_and_the_fits_say(page, calibrator):
    judged = triage(calibrator, *made_up(seed=1), against="predictions")
    assert page.column("segment") == judged["segment"].astype(str).tolist()
    assert page.column("rows") == judged["rows"].tolist()
    observed, expected = judged["positives"], judged["expected"]
    np.testing.assert_allclose(page.column("O/E"), observed / expected, rtol=1e-3)
    np.testing.assert_allclose(page.column("excess"), observed - expected, rtol=1e-3)
    fits = calibrator.table()
    np.testing.assert_allclose(page.column("A"), fits["A"][judged["segment"]], rtol=1e-3)
    np.testing.assert_allclose(page.column("q-value"), judged["q_value"], rtol=1e-3)
    flags = [text.replace("|", ", ") for text in fits["flags"][judged["segment"]]]
    assert page.column("flags") == flags
    assert "shrinkage" not in page.table
    assert page.summary()["segments fitted"] == "40"


def test_before_is_the_scores_only_where_they_are_probabilities(calibrator, tmp_path, undrawn):
    scores, labels, segments = made_up()
    pooled = calibrator.fallback.predict_proba(scores)
    to_html(tmp_path / "a.html", calibrator, scores, labels, segments)
    first = Page(tmp_path / "a.html")
    assert "Before: the sigmoid of all fitted rows pooled" in first.source
    assert f">{pj.metrics.log_loss(labels, pooled):.4f}<" in first.source
    own = calibrator.predict_proba(scores, segments)
    assert f">{pj.metrics.log_loss(labels, own):.4f}<" in first.source
    p = np.clip(pooled, 0.01, 0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that scores look like probabilities
        of_proba = pj.fit_segments(p, labels, segments)
        to_html(tmp_path / "b.html", of_proba, p, labels, segments)
    second = Page(tmp_path / "b.html")
    assert "Before: the scores, taken as probabilities" in second.source
    assert f">{pj.metrics.log_loss(labels, p):.4f}<" in second.source


def test_one_curve_for_all_is_of_the_segments_kind(tmp_path):
    rows = made_up()
    scores, labels, _ = rows
    calibrator = pj.fit_segments(*rows, curve="venn_abers")
    one = pj.fit(scores, labels, curve="venn_abers").predict_proba(scores)
    to_html(tmp_path / "a.html", calibrator, *rows)
    page = Page(tmp_path / "a.html")
    assert "Before: the Venn-Abers curve of all fitted rows pooled, as the scores" in page.source
    assert "Dashed: the Venn-Abers curve of all fitted rows pooled." in page.source
    assert f">{pj.metrics.log_loss(labels, one):.4f}<" in page.source
    classes = scores[:80].reshape(40, 2), np.arange(40) % 2
    to_html(tmp_path / "c.html", pj.fit_one_vs_rest(*classes, curve="bins"), *classes)
    assert "Dashed" not in (tmp_path / "c.html").read_text()


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_a_line_for_each_level(pooling, tmp_path, undrawn, page):
    assert "levels" not in page.ids and "Levels" not in page.texts["h2"]
    scores, labels, segments = made_up()
    names = "<b>land", "{{data}}"
    parts = dict(zip(names, (segments // 5, segments % 5), strict=True))
    ids = np.rec.fromarrays(list(parts.values()), names=list(names))
    fitted = pj.fit_segments(scores, labels, ids, pooling=pooling)
    to_html(tmp_path / "levels.html", fitted, scores, labels, ids)
    found = Page(tmp_path / "levels.html")
    assert "b" not in found.tags and found.tags.count("section") == 7
    table = fitted.levels
    assert len(table["level"]) == 2
    for level, values, slope, error in zip(
        *(table[x] for x in ("level", "values", "slope_sd", "se_slope_sd")), strict=True
    ):
        assert level in found.texts["bdi"]
        assert f'<td class="n">{values}</td>' in found.source
        of_slope = f"{slope:.3g} ± {error:.2g}" if np.isfinite(error) else f"{slope:.3g}"
        assert f'<td class="n">{of_slope}</td>' in found.source


def test_a_line_for_each_covariate(tmp_path, undrawn):
    scores, labels, segments = made_up()
    keys = np.unique(segments)
    table = {"segment": keys, "<b>size": np.linspace(0, 1, len(keys))}
    fitted = pj.fit_segments(scores, labels, segments, pooling="partial", covariates=table)
    to_html(tmp_path / "covariates.html", fitted, scores, labels, segments)
    found = Page(tmp_path / "covariates.html")
    assert "b" not in found.tags and "<b>size" in found.texts["bdi"]
    coefficients = fitted.population.coefficients
    for name in ("slope", "intercept"):
        value, error = coefficients[name][0], coefficients[f"se_{name}"][0]
        assert f'<td class="n">{value:.3g} ± {error:.2g}</td>' in found.source


def test_hostile_names_stay_text(calibrator, tmp_path, undrawn):
    path = tmp_path / "report.html"
    renamed_to, rows = renamed(calibrator, made_up(seed=1), HOSTILE)
    to_html(path, renamed_to, *rows)
    page = Page(path)
    assert page.tags.count("script") == 6 and "img" not in page.tags and "b" not in page.tags
    assert page.tags.count("section") == 6 and page.tags.count("svg") == 13
    shown = page.column("segment")
    short = [name for name in HOSTILE if len(name) <= 120]
    assert set(short) <= set(shown) and "x" * 119 + "…" in shown
    for i in range(4):
        assert re.fullmatch(r"[A-Za-z0-9+/]+=*", page.texts[f"block{i}"])
    assert "<" not in page.texts["about"]
    assert max(map(len, shown)) == 120


@pytest.mark.slow
def test_hostile_names_in_the_small_multiples(calibrator, tmp_path):
    some = np.arange(40) < 12
    rows = [x[made_up(seed=1)[2] < 12] for x in made_up(seed=1)]
    renamed_to, rows = renamed(calibrator.only(some), rows, HOSTILE)
    to_html(tmp_path / "report.html", renamed_to, *rows)
    page = Page(tmp_path / "report.html")
    assert page.tags.count("bdi") == 13 and page.tags.count("script") == 6
    assert "<script>window.harmed" in page.texts["bdi"] and "{{data}}" in page.texts["bdi"]
    assert "img" not in page.tags and "b" not in page.tags


def test_failed_unseen_and_rowless_segments(tmp_path):
    scores, labels, segments = made_up()
    scores[segments == 3] = np.nan
    weights = np.where(segments == 5, 0.0, 1.0)
    with pytest.warns(RuntimeWarning):
        calibrator = pj.fit_segments(scores, labels, segments, weights=weights)
    assert {Status.NON_FINITE, Status.EMPTY} <= set(calibrator.fit.status.tolist())
    scores, labels, segments = made_up(seed=1)
    scores[segments == 8] = np.inf
    some = (segments != 5) & (segments != 20)
    segments = np.where(segments == 11, 99, segments)
    with pytest.warns(RuntimeWarning, match="2 of 38 segments not tested"):
        to_html(tmp_path / "r.html", calibrator, scores[some], labels[some], segments[some])
    page = Page(tmp_path / "r.html")
    names = page.column("segment")
    lines = {name: {x: page.table[x][i] for x in page.table} for i, name in enumerate(names)}
    assert len(lines) == 41 and set(names[:2]) == {"3", "5"} and set(names[-2:]) == {"11", "20"}
    assert lines["3"]["status"] == "NON_FINITE" and np.isnan(lines["3"]["A"])
    assert lines["3"]["rows"] > 0 and lines["3"]["curve"] is None
    assert lines["5"]["status"] == "EMPTY" and lines["5"]["rows"] == 0
    assert lines["99"]["status"] == "UNSEEN" and np.isnan(lines["99"]["A"])
    assert lines["99"]["expected"] > 0 and len(lines["99"]["curve"])
    assert lines["20"]["status"] == "CONVERGED" and lines["20"]["curve"] is None
    of_none = [lines["20"][x] for x in ("rows", "positives", "expected", "O/E", "q-value")]
    np.testing.assert_equal(of_none, [0, 0, 0, np.nan, np.nan])
    assert np.isnan([lines["8"][x] for x in ("positives", "expected", "O/E", "q-value")]).all()
    summary = page.summary()
    assert summary["segments without rows"] == "3" and summary["segments not fitted"] == "1"
    left_out = np.count_nonzero(np.isin(segments[some], [3, 8]))
    assert summary["rows left out"] == f"{left_out}"
    assert Status.EMPTY.message in page.texts["td"]


def test_rows_that_are_not_finite_are_left_out_of_drawn_segments(calibrator, tmp_path):
    scores, labels, segments = made_up(seed=1)
    few = segments < 3
    scores, segments, labels = scores[few], segments[few], labels[few].astype(float)
    scores[np.flatnonzero(segments == 1)[:2]] = np.nan, np.inf
    labels[np.flatnonzero(segments == 2)[0]] = np.nan
    before = np.where(segments == 0, np.nan, 0.5)
    to_html(tmp_path / "r.html", calibrator, scores, labels, segments, before=before)
    page = Page(tmp_path / "r.html")
    assert page.tags.count("svg") == 4  # reliability, and each of the segments
    assert page.summary()["rows left out"] == f"{np.sum(segments == 0) + 3}"


def test_rows_of_which_none_can_be_used(calibrator, tmp_path):
    with pytest.warns(RuntimeWarning, match="2 of 2 segments not tested"):
        to_html(tmp_path / "r.html", calibrator, [np.nan, np.nan], [1, 0], [2, 3])
    page = Page(tmp_path / "r.html")
    assert "No row has a finite score" in page.source and "No segment of these" in page.source
    assert "svg" not in page.tags and len(page.column("segment")) == 40


def test_labels_that_are_missing_or_of_another_coding(calibrator, tmp_path, undrawn):
    scores, labels, segments = made_up(seed=1)
    coded = np.where(labels == 1, 1.0, -1.0)
    coded[:3] = np.nan
    to_html(tmp_path / "r.html", calibrator, scores, coded, segments)
    page = Page(tmp_path / "r.html")
    assert page.summary()["rows left out"] == "3" and "svg" in page.tags


def test_scores_so_low_that_nothing_is_expected(calibrator, tmp_path):
    steep = pj.Sigmoid(A=np.float64(-1.0), B=np.float64(0.0))
    low = replace(calibrator.only(np.zeros(40, bool)), fallback=steep)
    to_html(tmp_path / "r.html", low, np.full(4, -1e6), [0, 0, 1, 0], [1, 1, 2, 2])
    page = Page(tmp_path / "r.html")
    assert page.tags.count("svg") == 1 and page.column("status") == ["UNSEEN"] * 2


def test_a_pooled_calibrator_tells_its_shrinkage(tmp_path, undrawn):
    calibrator = pj.fit_segments(*made_up(), pooling="partial")
    to_html(tmp_path / "r.html", calibrator, *made_up(seed=1))
    page = Page(tmp_path / "r.html")
    order = [int(name) for name in page.column("segment")]
    np.testing.assert_allclose(page.column("shrinkage"), calibrator.shrinkage[order], rtol=1e-3)
    assert page.summary()["pooling"] == "partial"


def test_segments_of_several_columns(tmp_path, undrawn):
    scores, labels, segments = made_up()
    pairs = [(f"c{i % 4}", i // 4) for i in segments.tolist()]
    calibrator = pj.fit_segments(scores, labels, pairs)
    to_html(tmp_path / "r.html", calibrator, scores, labels, pairs)
    page = Page(tmp_path / "r.html")
    assert sorted(page.column("segment")) == sorted(f"c{i % 4}, {i // 4}" for i in range(40))
    assert page.tags.count("svg") == 13


def test_a_report_is_the_same_each_time_and_changes_no_setting(calibrator, page, tmp_path):
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.labelcolor": "red", "svg.fonttype": "path"}):
        to_html(tmp_path / "r.html", calibrator, *made_up(seed=1))
    assert dict(matplotlib.rcParams) == before
    assert Page(tmp_path / "r.html").source == page.source


def test_an_old_report_stays_until_the_new_one_is_whole(calibrator, tmp_path, monkeypatch, undrawn):
    path = tmp_path / "report.html"
    path.write_text("the old one")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            to_html(path, calibrator, *made_up(seed=1))
    assert os.listdir(tmp_path) == ["report.html"] and path.read_text() == "the old one"
    to_html(path, calibrator, *made_up(seed=1))
    assert os.listdir(tmp_path) == ["report.html"] and "Calibration report" in path.read_text()


def test_errors_name_the_argument(calibrator, tmp_path, undrawn):
    scores, labels, segments = made_up()
    path = tmp_path / "r.html"
    for message, arguments in {
        "path: expected a str or a Path": (3, scores, labels, segments),
        "path: expected a file to write": (tmp_path, scores, labels, segments),
        "scores: expected": (path, scores[:0], labels[:0], segments[:0]),
        "scores: expected a flat array": (path, scores[None], labels, segments),
        "labels: expected": (path, scores, labels + 5, segments),
        "labels: ": (path, scores, labels[:-1], segments),
        "segments: expected one id per score": (path, scores, labels, segments[:-1]),
        "segments: ": (path, scores, labels, segments.astype(str)),
    }.items():
        with pytest.raises(ValueError, match=message):
            to_html(arguments[0], calibrator, *arguments[1:])
    with pytest.raises(FileNotFoundError, match="no such directory"):
        to_html(tmp_path / "none" / "r.html", calibrator, scores, labels, segments)
    with pytest.raises(ValueError, match="calibrator: expected a SegmentCalibrator, got Fit"):
        to_html(path, pj.fit(scores, labels), scores, labels, segments)
    assert os.listdir(tmp_path) == []


def test_a_missing_matplotlib_is_named_with_its_extra(calibrator, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'platt-jax\[report\]'"):
        to_html(tmp_path / "r.html", calibrator, *made_up())


def many(calibrator, K):
    """A calibrator of K segments that resemble these, and three rows of each."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, len(calibrator), K)
    fit = jax.tree.map(lambda x: x[which], calibrator.fit)
    fit = replace(fit, A=fit.A + rng.normal(size=K), B=fit.B + rng.normal(size=K))
    segments = np.repeat(np.arange(K), 3)
    scores = rng.normal(size=3 * K)
    return replace(calibrator, keys=np.arange(K), fit=fit), (
        scores,
        rng.random(3 * K) < 0.5,
        segments,
    )


@pytest.mark.slow
def test_ten_thousand_segments_take_less_than_a_megabyte(calibrator, tmp_path):
    large, (scores, labels, segments) = many(calibrator, 10_000)
    names = np.char.add("Straße der Segmente ", np.arange(10_000).astype(str))
    order = np.argsort(names)
    large = replace(large, keys=names[order], fit=jax.tree.map(lambda x: x[order], large.fit))
    to_html(tmp_path / "r.html", large, scores, labels, names[segments])
    page = Page(tmp_path / "r.html")
    assert set(page.column("segment")) == set(names.tolist())
    assert (tmp_path / "r.html").stat().st_size < 1e6


@pytest.mark.slow
def test_the_caption_says_which_bins_are_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        charts.plots, "reliability_diagram", lambda *_, ax, **more: drawn.append(more)
    )
    rng = np.random.default_rng(4)
    segments = np.arange(8000) % 20
    scores = rng.normal(size=8000)
    for base, strategy, caption in (
        (-1, "quantile", "Bins of equal numbers of rows, 95 % intervals."),
        (-7, "positives", "Bins of equal expected numbers of positives, on logarithmic axes"),
    ):
        labels = (rng.random(8000) < 1 / (1 + np.exp(-base - scores))).astype(int)
        fitted = pj.fit_segments(scores, labels, segments, pooling="complete")
        to_html(tmp_path / "r.html", fitted, scores, labels, segments)
        assert caption in Page(tmp_path / "r.html").source
        assert drawn[-1]["strategy"] == strategy
    # Few positives are divided among few bins.
    assert drawn[-1]["n_bins"] == labels.sum() // 5 < 10
