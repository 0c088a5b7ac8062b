"""Exports of curves that are no sigmoids, and of decisions, executed elsewhere."""

import math
import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from data import curved
from javascript import predicted
from sql_engines import InDuckDB, InSQLite

import platt_jax as pj
from platt_jax.export import to_javascript, to_onnx, to_python, to_sql
from platt_jax.results.mixed_curves import MixedCurves

KINDS = ["quadratic", "beta", "spline", "isotonic", "bins", "venn_abers", "mixed"]
ENGINES = [InDuckDB, InSQLite]
UNSEEN = 9


@pytest.fixture(scope="module")
def exported(calibrators):
    """A calibrator of each kind, and one whose segments have curves of several kinds."""
    parts = tuple(calibrators[x].curves for x in ("quadratic", "isotonic", "beta"))
    mixed = MixedCurves.chosen(parts, np.arange(len(parts[0])) % 3)
    return calibrators | {"mixed": calibrators["beta"]._replaced(curves=mixed)}


def scores_and_segments():
    """Scores of the fit, which are corners and jumps, others, and far ones; by segment."""
    f, *_ = curved()
    others = np.random.default_rng(1).normal(size=40)
    far = [-1e3, 1e3, 0.0, np.inf, -np.inf, 1.1e300, -2e303]
    scores = np.concatenate([f[:80], 2 * others, far * 4])
    segments = np.resize([0, 1, 2, 3, 4, 5, 6, UNSEEN, 6], len(scores))
    return scores, segments


def assert_predicted(found, calibrator):
    with np.errstate(invalid="ignore"):
        expected = calibrator.predict_proba(*scores_and_segments())
    found = np.array(found, float)
    assert np.isfinite(found).all()
    # A difference of infinities is NaN, but exports have a limit.
    known = np.isfinite(expected)
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_modules_have_any_curve(name, shifted, exported):
    calibrator = exported[name]
    if shifted:
        calibrator = calibrator.shift_prior(0.3, 0.05)
    module = {}
    exec(to_python(calibrator), module)
    rows = list(zip(*(x.tolist() for x in scores_and_segments()), strict=True))
    assert_predicted([module["predict_proba"](f, s) for f, s in rows], calibrator)
    assert math.isnan(module["predict_proba"](math.nan, 6))
    *found, nan = predicted(to_javascript(calibrator), [*rows, (math.nan, 6)])
    assert_predicted(found, calibrator)
    assert math.isnan(nan)


@pytest.mark.parametrize("name", [*KINDS, "shifted", "failed", "none"])
def test_an_onnx_model_has_any_curve(name, exported):
    failed = exported["isotonic"].curves
    status = np.where(np.arange(8) == 4, 99, failed.status)
    probabilities = np.where(np.repeat(status, failed.sizes) == 99, np.nan, failed.probabilities)
    calibrator = (
        exported
        | {
            "shifted": exported["mixed"].shift_prior(0.3, 0.05),
            "failed": exported["isotonic"]._replaced(
                curves=replace(failed, probabilities=probabilities)
            ),
            "none": exported["venn_abers"].only(np.zeros(7, bool)),
        }
    )[name]
    scores, segments = scores_and_segments()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(to_onnx(calibrator).SerializeToString())
    rows = {"score": np.append(scores, np.nan), "segment": np.append(segments, 6).astype(np.int64)}
    logit, p = session.run(["logit", "probability"], rows)
    assert np.isnan(logit[-1]) and np.isnan(p[-1])
    with np.errstate(invalid="ignore"):
        expected = calibrator.predict_proba(scores, segments)
    known = np.isfinite(expected)
    np.testing.assert_allclose(p[:-1][known], expected[known], rtol=1e-11, atol=1e-300)
    moderate = known & (abs(expected - 0.5) < 0.5 - 1e-9)
    np.testing.assert_allclose(logit[:-1][moderate], pj.logit(expected[moderate]), atol=1e-7)
    sure = known & np.isin(expected, [0, 1]) & (name != "shifted")
    assert (abs(logit[:-1][sure]) > 27.6).all()
    if name == "failed":
        assert np.isnan(p[:-1][segments == 4]).all() and not known.all()


def run_rows(run, rows, made):
    """The expression at rows of an engine, after the statements."""
    run.table(rows, ["i", "f", "s"])
    for statement in made.setup:
        run(statement)
    return [x for _, x in run(f"SELECT i, {made.expression} FROM t {made.join} ORDER BY i")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*KINDS, "shifted"])
def test_sql_has_any_curve_as_a_table_of_pieces(name, engine, exported):
    shifted = exported["mixed"].shift_prior(0.3, 0.05)
    calibrator = (exported | {"shifted": shifted})[name]
    run = engine()
    with closing(run.connection):
        made = to_sql(calibrator, "f", "s", dialect=run.dialect, table="cur ves")
        scores, segments = (x.tolist() for x in scores_and_segments())
        rows = [*zip(range(len(scores)), scores, segments, strict=True), (999, None, 6)]
        *found, null = run_rows(run, rows, made)
    assert null is None
    assert_predicted(found, calibrator)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["isotonic", "mixed"])
def test_sql_has_few_curves_as_an_expression(name, engine, exported):
    calibrator = exported[name].only(np.isin(np.arange(7), [2, 4]))
    run = engine()
    with closing(run.connection):
        made = to_sql(calibrator, "f", "s", dialect=run.dialect)
        scores, segments = (x[::3].tolist() for x in scores_and_segments())
        rows = list(zip(range(len(scores)), scores, segments, strict=True))
        found = run_rows(run, rows, made)
    with np.errstate(invalid="ignore"):
        expected = calibrator.predict_proba(scores, segments)
    known = np.isfinite(expected)
    np.testing.assert_allclose(np.array(found, float)[known], expected[known], rtol=1e-11)


def test_many_pieces_need_a_table(exported, monkeypatch):
    from platt_jax.export import sql_text

    many = exported["venn_abers"]
    monkeypatch.setattr(sql_text, "_MOST_PIECES", 100)
    with pytest.raises(
        ValueError, match=r"to make for 1\d\d pieces of curves; at most 100 go into"
    ):
        to_sql(many, "f", "s")
    assert to_sql(many, "f", "s", table="t").join.startswith('LEFT JOIN "t" ON')
    with pytest.raises(ValueError, match="view, rows, table: expected different names"):
        to_sql(many, "f", "s", table="t", view="v", rows="t_pieces")


# --- decisions ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decided(calibrators):
    """Calibrators whose curves rise, or fall, or do neither."""
    f, y, s, w = curved()
    mirrored = np.where(s == 5, -f, f)
    return {
        "sigmoid": pj.fit_segments(mirrored, y, s, weights=w),
        "isotonic": calibrators["isotonic"],
        "bins": calibrators["bins"],
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table", [None, "cuts"])
@pytest.mark.parametrize("name", ["sigmoid", "isotonic", "bins"])
def test_decisions_are_those_of_the_probabilities(name, table, engine, decided):
    calibrator = decided[name]
    scores, segments = scores_and_segments()
    run = engine()
    with closing(run.connection):
        made = to_sql(calibrator, "f", "s", dialect=run.dialect, table=table, threshold=0.7)
        rows = zip(range(len(scores)), scores.tolist(), segments.tolist(), strict=True)
        found = run_rows(run, list(rows), made)
    accepted = calibrator.predict_proba(scores, segments) >= 0.7
    known = np.array([x is not None for x in found])
    assert accepted[known].any() and not accepted[known].all()
    assert [bool(x) for x in np.array(found, object)[known]] == accepted[known].tolist()
    # Nothing is decided where a curve falls somewhere, or is missing.
    status = dict(zip(calibrator.keys, calibrator.threshold_table(0.7)["status"], strict=True))
    bad = [x for x, said in status.items() if said in ("NOT_MONOTONE", "NON_FINITE")]
    assert set(segments[~known]) - {UNSEEN} == set(bad)
    if name == "sigmoid":
        fell = calibrator.threshold_table(0.7)["direction"] == "below"
        assert 5 in calibrator.keys[fell]


def test_a_view_has_decisions(decided):
    run = InDuckDB()
    with closing(run.connection):
        run.table([(0, 3.0, 6), (1, -3.0, 6)], ["i", "f", "s"])
        named = dict(table="cuts", view="night", rows="t")
        for _ in range(2):
            made = to_sql(decided["isotonic"], "f", "s", threshold=0.7, **named)
            for statement in made.setup:
                run(statement)
        assert run("SELECT i, accepted FROM night ORDER BY i") == [(0, True), (1, False)]
        with pytest.raises(ValueError, match="expected other names than 'accepted', which is the"):
            to_sql(decided["isotonic"], "accepted", "s", threshold=0.7, **named)


def test_what_has_no_decision_is_refused(decided):
    none = decided["sigmoid"].only(np.zeros(7, bool))
    with_levels = replace(decided["sigmoid"], by_level="known")
    for calibrator, threshold, message in (
        (pj.Sigmoid(-1.0, 0.0), 0.5, "threshold: expected a SegmentCalibrator with segments"),
        (none, 0.5, "threshold: expected a SegmentCalibrator with segments"),
        (with_levels, 0.5, "threshold: expected None for a calibrator with levels"),
        (decided["sigmoid"], 1, re.escape("threshold: expected a number in (0, 1), got 1")),
    ):
        with pytest.raises(ValueError, match=message):
            to_sql(calibrator, "f", "s", threshold=threshold)
