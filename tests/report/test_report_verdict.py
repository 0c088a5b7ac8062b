"""What a report says first, and that its parts do not contradict each other."""

import re

import numpy as np
import pytest
from test_report import Page, made_up

import platt_jax as pj
from platt_jax.inference.verdict import verdict
from platt_jax.report import charts
from platt_jax.report.measures import measures


@pytest.fixture(scope="module")
def calibrator():
    return pj.fit_segments(*made_up())


def written(calibrator, path, *rows, **options):
    calibrator.to_html(path, *rows, **options)
    return Page(path)


def table(q_values, keys=("a", "b", "c")):
    """As of triage."""
    q = np.array(q_values)
    number = len(q)
    return {
        "segment": np.array(keys[:number]),
        "rows": np.full(number, 1000),
        "positives": np.full(number, 367.0),
        "expected": np.array([439.48, 0.4567, 20.0])[:number],
        "p_value": q / 9,
        "q_value": q,
        "flagged": q <= 0.05,
    }


def test_the_verdict_in_words():
    assert verdict(table([0.002, 0.04, 0.7]), 0.05, nouns=("route", "routes")) == (
        "2 of 3 routes are off (q at most 0.05): a: 367 positives, 439 predicted (q 0.002); "
        "b: 367 positives, 0.457 predicted (q 0.04)."
    )
    assert verdict(table([0.002, 0.04, 0.7]), 0.05, most=1).endswith("(q 0.002); and 1 more.")
    changed = verdict(table([0.01, 0.2]), 0.05, against="fit")
    assert changed.startswith("1 of 2 segments has changed (q at most 0.05): a: 367 positives")
    assert verdict(table([0.4]), 0.05, against="fit").startswith("No segment has reliably changed")
    none = "No segment is reliably off: of 2 tested, the smallest q-value is 0.31."
    assert verdict(table([0.31, 1.0, np.nan]), 0.05) == none
    assert verdict(table([np.nan]), 0.05) == "No segment could be tested."
    long = verdict(table([0.01], ["x" * 500]), 0.05)
    assert len(long) < 150 and "xx...xx" in long
    two = {"land": np.array(["de"]), **table([0.01])}
    assert "de, a: 367 positives" in verdict(two, 0.05)


@pytest.mark.slow
def test_of_calibrated_segments_none_is_called_off(tmp_path):
    rng = np.random.default_rng(3)
    segments = rng.integers(0, 400, 24_000)
    scores = rng.normal(size=24_000)
    labels = (rng.random(24_000) < 1 / (1 + np.exp(1 - scores))).astype(int)
    fitted = pj.fit_segments(scores, labels, segments, pooling="complete")
    fresh = (rng.random(24_000) < 1 / (1 + np.exp(1 - scores))).astype(int)
    page = written(fitted, tmp_path / "r.html", scores, fresh, segments)
    assert "No segment is reliably off: of 400 tested" in page.texts["bdi"]
    assert "None of these is reliably off" in page.source
    assert page.summary()["segments off, q ≤ 0.05"] == "0 of 400"
    fresh[segments == 7] = 0
    fresh[segments == 9] = 1
    page = written(fitted, tmp_path / "r.html", scores, fresh, segments)
    assert "2 of 400 segments are off (q at most 0.05): " in page.texts["bdi"]
    assert "The first 2 are off; the others by no more than chance." in page.source
    assert page.source.count(", off</span>") == 2


def test_before_may_be_log_odds_or_probabilities(calibrator, tmp_path, monkeypatch):
    monkeypatch.setattr(
        charts, "_svg", lambda draw, what, number=1, small=False: ["<svg/>"] * number
    )
    scores, labels, segments = made_up(seed=1)
    p = 1 / (1 + np.exp(-scores))
    loss = f">{pj.metrics.log_loss(labels, p):.4f}<"
    rows = scores, labels, segments
    page = written(calibrator, tmp_path / "a.html", *rows, before="logits", title="Odd <days>")
    assert "Before: the scores, taken as log-odds" in page.source and loss in page.source
    assert page.texts["h1"] == page.texts["title"] == "Odd <days>"
    page = written(calibrator, tmp_path / "b.html", *rows, before=p)
    assert "Before: the probabilities given" in page.source and loss in page.source
    page = written(
        calibrator, tmp_path / "c.html", *rows, before=np.where(segments == 3, np.nan, p)
    )
    assert page.summary()["rows left out"] == f"{np.sum(segments == 3)}"
    for before, message in (
        ("odds", "before: expected one of"),
        (p[1:], "before: expected the shape of scores"),
        (2 * p, r"before: expected probabilities in \[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrator.to_html(tmp_path / "d.html", *rows, before=before)


def test_differences_have_the_errors_of_clustered_rows(rng):
    segments = rng.integers(0, 60, 6000)
    effect = rng.normal(size=60)[segments]
    p = rng.beta(2, 5, 6000)
    other = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + effect)))
    labels = (rng.random(6000) < p).astype(int)
    made = measures(labels, p, other, segments)
    for name, metric in {
        "Log loss": pj.metrics.log_loss,
        "Brier score": pj.metrics.brier_score,
        "Expected calibration error": pj.metrics.expected_calibration_error,
    }.items():
        np.testing.assert_allclose(made[name].before, metric(labels, p))
        np.testing.assert_allclose(made[name].after, metric(labels, other))
        # As by a bootstrap of segments.
        rows_of = [np.flatnonzero(segments == k) for k in range(60)]
        differences = []
        for _ in range(200):
            some = np.concatenate([rows_of[k] for k in rng.integers(0, 60, 60)])
            differences.append(metric(labels[some], other[some]) - metric(labels[some], p[some]))
        np.testing.assert_allclose(made[name].error, np.std(differences), rtol=0.3)
    assert np.isnan(made["The same by chance alone"].error)
    alone = measures(labels, p, other, np.zeros(6000, int))
    assert np.isnan(alone["Log loss"].error)


def test_no_word_of_the_page_calls_a_pooled_sigmoid_flat(tmp_path):
    scores, labels, segments = made_up()
    labels[segments == 4] = 0
    pooled = pj.fit_segments(scores, labels, segments, pooling="partial")
    page = written(pooled, tmp_path / "r.html", *made_up(seed=1))
    assert pooled[4].A < 0 and "ONE_CLASS" in page.source
    (said,) = set(re.findall(r"<td>(All labels are the same[^<]*)</td>", page.source))
    assert "without pooling or a prior" in said and "if it is not pooled" in said
