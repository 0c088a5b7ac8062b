"""What a report says first, and that its parts do not contradict each other."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_report import Page, made_up

import platt_jax as pj
from platt_jax.hypothesis_tests.verdict import verdict
from platt_jax.report import charts, to_html
from platt_jax.report.rows import measures


@pytest.fixture(scope="module")
def calibrator():
    return pj.fit_segments(*made_up())


def written(calibrator, path, *rows, **options):
    to_html(path, calibrator, *rows, **options)
    return Page(path)


def table(q_values, keys=("a", "b", "c"), **columns):
    """As of triage; level and slope are off by 5 and 0 errors, where nothing else is said."""
    q = np.array(q_values)
    number = len(q)
    made = {
        "segment": np.array(keys[:number]),
        "rows": np.full(number, 1000),
        "positives": np.full(number, 367.0),
        "expected": np.array([439.48, 0.4567, 20.0])[:number],
        "p_value": q / 9,
        "q_value": q,
        "flagged": q <= 0.05,
        "slope": np.ones(number),
        "se_slope": np.full(number, 0.06),
        "spiegelhalter_z": np.zeros(number),
    }
    return made | {name: np.array(x) for name, x in columns.items()}


def test_the_verdict_in_words():
    assert verdict(table([0.002, 0.04, 0.7]), 0.05, nouns=("route", "routes")) == (
        "2 of 3 routes are off (q at most 0.05): a by its level: 367 positives, 439 predicted "
        "(q 0.002); b by its level: 367 positives, 0.457 predicted (q 0.04)."
    )
    assert verdict(table([0.002, 0.04, 0.7]), 0.05, most=1).endswith("(q 0.002); and 1 more.")
    changed = verdict(table([0.01, 0.2]), 0.05, against="fit")
    assert changed.startswith("1 of 2 segments has changed (q at most 0.05): a by its level: 367")
    assert verdict(table([0.4]), 0.05, against="fit").startswith("No segment has reliably changed")
    none = "No segment is reliably off: of 2 tested, the smallest q-value is 0.31."
    assert verdict(table([0.31, 1.0, np.nan]), 0.05) == none
    assert verdict(table([np.nan]), 0.05) == "No segment could be tested."
    long = verdict(table([0.01], ["x" * 500]), 0.05)
    assert len(long) < 160 and "xx...xx" in long
    two = {"land": np.array(["de"]), **table([0.01])}
    assert "de, a by its level: 367 positives" in verdict(two, 0.05)


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
            to_html(tmp_path / "d.html", calibrator, *rows, before=before)


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
    # Independent rows of one segment; a single row.
    alone = measures(labels, p, other, np.zeros(6000, int))["Log loss"]
    losses = [pj.metrics.log_loss(labels[:, None], x[:, None]) for x in (p, other)]
    np.testing.assert_allclose(alone.error, stats.sem(losses[1] - losses[0]))
    assert np.isnan(measures(labels[:1], p[:1], other[:1], np.zeros(1, int))["Log loss"].error)


def test_errors_of_two_segments_are_those_of_rows_at_least(rng):
    """Two segments whose differences happen to be equal say nothing of the error."""
    labels, segments = rng.integers(0, 2, 1000), np.arange(1000) // 500
    labels[500:] = labels[:500]
    p = np.tile(rng.random(500), 2)
    error = measures(labels, p, 1 - p, segments)["Log loss"].error
    losses = [pj.metrics.log_loss(labels[:, None], x[:, None]) for x in (p, 1 - p)]
    np.testing.assert_allclose(error, stats.sem(losses[1] - losses[0]))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"positives": [47.0], "expected": [54.2], "slope": [0.7]},
            "a by its slope: 0.70 (standard error 0.06), 1 predicted (q 0.01)",
        ),
        (
            {"positives": [1.0], "expected": [30.0], "slope": [0.7]},
            "a by level and slope: 1 positive, "
            "30 predicted; slope 0.70 (standard error 0.06), 1 predicted (q 0.01)",
        ),
        (
            {"positives": [90.0], "expected": [47.0], "slope": [0.99]},
            "a by its level: 90 positives, 47 predicted (q 0.01)",
        ),
        (
            {"positives": [40.0], "expected": [39.3], "spiegelhalter_z": [3.31]},
            "a by neither level "
            "nor slope: predictions too extreme (Spiegelhalter's z 3.3) (q 0.01)",
        ),
        (
            {"positives": [40.0], "expected": [39.3], "spiegelhalter_z": [-3.31]},
            "not extreme enough",
        ),
        (
            {"positives": [1.0], "expected": [0.0]},
            "a by its level: 1 positive, 0 predicted (q 0.01)",
        ),
        ({"positives": [1.0], "slope": [np.nan]}, "a by its level: 1 positive, 439 predicted"),
    ],
)
def test_the_verdict_says_what_is_off(columns, said):
    assert said in verdict(table([0.01], **columns), 0.05)


@pytest.mark.slow
def test_levels_and_slopes_of_simulated_segments_are_told_apart(rng):
    """Of 30 segments of each kind most are described by what was changed in them."""
    K, n = 90, 400
    segments = np.repeat(np.arange(K), n)
    scores = rng.normal(size=K * n)
    fitted = pj.fit_segments(scores, rng.random(K * n) < 1 / (1 + np.exp(1 - scores)), segments)
    right = replace(fitted, fit=replace(fitted.fit, A=-np.ones(K), B=np.ones(K)))
    level = np.where(segments < 30, 0.8, 0)
    slope = np.where(segments >= 60, 0.4, 1.0)
    # A slope around the mean of the predictions leaves the number of positives nearly as it is.
    true = -1 + level + slope * scores + (1 - slope) * 0.12
    fresh = scores, rng.random(K * n) < 1 / (1 + np.exp(-true)), segments
    found = pj.triage(right, *fresh, against="predictions")
    said = {
        key: verdict({name: x[i : i + 1] for name, x in found.items()}, 1.0)
        for i, key in enumerate(found["segment"].tolist())
        if found["flagged"][i]
    }
    for kind, first in (("level", 0), ("slope", 60)):
        mine = [text for key, text in said.items() if first <= key < first + 30]
        assert len(mine) > 25
        assert np.mean([f"by its {kind}" in text for text in mine]) > 0.8


def test_a_calibrator_worse_than_one_curve_or_before_is_told_first(tmp_path, monkeypatch):
    monkeypatch.setattr(
        charts, "_svg", lambda draw, what, number=1, small=False: ["<svg/>"] * number
    )
    rng = np.random.default_rng(5)
    segments = np.repeat(np.arange(300), 8)  # of few rows, and alike

    def drawn():
        scores = rng.normal(size=2400)
        return scores, (rng.random(2400) < 1 / (1 + np.exp(1 - scores))).astype(int), segments

    overfitted = pj.fit_segments(*drawn())
    scores, labels, _ = fresh = drawn()
    after, pooled = (
        pj.metrics.log_loss(labels[:, None], p[:, None])
        for p in (
            overfitted.predict_proba(scores, segments),
            overfitted.fallback.predict_proba(scores),
        )
    )
    page = written(overfitted, tmp_path / "a.html", *fresh)
    difference = f"{np.mean(after - pooled):+.5f}"
    said = page.texts["bdi"]
    assert said.startswith(f"The calibrator is worse than one curve for all ({difference} ± 0.0")
    # The scores less 1 are the true log-odds.
    page = written(overfitted, tmp_path / "b.html", *fresh, before=1 / (1 + np.exp(1 - scores)))
    said = page.texts["bdi"]
    assert said.startswith("The calibrator is worse than before calibration (+0.")
    assert f"and than one curve for all ({difference} ± 0.0" in said
    assert '<th scope="col" class="n">one curve for all</th>' in page.source
    complete = pj.fit_segments(*drawn(), pooling="complete")
    page = written(complete, tmp_path / "c.html", *fresh, before="logits")
    assert page.texts["bdi"].startswith("No segment is reliably off")


def test_both_null_hypotheses_are_named_with_their_numbers(calibrator, tmp_path, monkeypatch):
    monkeypatch.setattr(
        charts, "_svg", lambda draw, what, number=1, small=False: ["<svg/>"] * number
    )
    fresh = made_up(seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # segments of which little is known are left out silently
        page = written(calibrator, tmp_path / "r.html", *fresh)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_fit = pj.triage(calibrator, *fresh)
    tested = np.isfinite(of_fit["p_value"]).sum()
    summary = page.summary()
    expected = f"{of_fit['flagged'].sum()} of {tested}"
    assert summary["changed since the fit, q ≤ 0.05"] == expected
    of_predictions = pj.triage(calibrator, *fresh, against="predictions")
    assert summary["segments off, q ≤ 0.05"] == f"{of_predictions['flagged'].sum()} of 40"
    assert "There are two null hypotheses" in page.source


def test_no_word_of_the_page_calls_a_pooled_sigmoid_flat(tmp_path):
    scores, labels, segments = made_up()
    labels[segments == 4] = 0
    pooled = pj.fit_segments(scores, labels, segments, pooling="partial")
    page = written(pooled, tmp_path / "r.html", *made_up(seed=1))
    assert pooled[4].A < 0 and "ONE_CLASS" in page.source
    (said,) = set(re.findall(r"<td>(All labels are the same[^<]*)</td>", page.source))
    assert "without pooling or a prior" in said and "if it is not pooled" in said
