"""Whoever reads a calibrator with other curves than sigmoids predicts by these, or refuses it."""

import copy
import pickle
import sqlite3
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from data import curved

import platt_jax as pj
from platt_jax import inference, plots, sql
from platt_jax.curves import Isotonic
from platt_jax.results.mixed_curves import MixedCurves

KINDS = ["quadratic", "beta", "spline", "isotonic", "centered", "bins", "venn_abers", "mixed"]
UNSEEN = 9


@pytest.fixture(scope="module")
def found(calibrators):
    f, y, s, w = curved()
    centered = pj.fit_segments(f, y, s, weights=w, curve=Isotonic(centered=True))
    parts = tuple(calibrators[x].curves for x in ("quadratic", "isotonic", "beta"))
    mixed = MixedCurves.chosen(parts, np.arange(len(parts[0])) % 3)
    mixed = calibrators["beta"]._replaced(curves=mixed)
    return calibrators | {"centered": centered, "mixed": mixed}


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_no_sigmoids_beside_curves(kind, found):
    """Before, `fit` and `fallback` were of sigmoids that predict nothing."""
    calibrator = found[kind]
    label = calibrator.curves.label
    for name in ("fit", "fallback", "fallback_covariance"):
        with pytest.raises(
            AttributeError, match=f"^{name}: expected sigmoids, .* {label} curves.*"
        ):
            getattr(calibrator, name)
        assert not hasattr(calibrator, name)
    for same in (copy.deepcopy(calibrator), pickle.loads(pickle.dumps(calibrator))):
        assert same == calibrator
    assert repr(calibrator).startswith(f"SegmentCalibrator: 7 {label} curves from 521 rows")
    assert "sigmoid" not in repr(calibrator) + calibrator._repr_html_()
    table = calibrator.table()
    _, y, s, w = curved()
    assert (table["n_pos"] == np.bincount(s, w * y)).all()
    assert (table["n_neg"] == np.bincount(s, w * (1 - y))).all()
    one_class = [name for name in table["segment"] if len(set(y[s == name])) == 1]
    assert one_class == table["segment"][["ONE_CLASS" in x for x in table["flags"]]].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_what_reads_sigmoids_refuses_other_curves(kind, found):
    calibrator, (f, y, s, _) = found[kind], curved()
    label = calibrator.curves.label
    partial = pj.fit_segments(f, y, s, pooling="partial")
    for call in (
        lambda: inference.prior_from(calibrator),
        lambda: pj.update(calibrator, f, y, s),
        lambda: pj.inference.leave_one_out(calibrator, f, y, s),
        lambda: inference.robust_covariance(calibrator, f, y, segments=s),
        lambda: pj.inference.estimate_rates(calibrator, f, s),
        lambda: pj.inference.estimate_drift(calibrator, f, y, s),
        lambda: pj.triage(calibrator, f, y, s),
        lambda: pj.Monitor.start(calibrator),
        lambda: plots.summary(calibrator, f, y, s),
        lambda: plots.slope_funnel(calibrator),
        lambda: plots.shrinkage(partial, calibrator),
        lambda: calibrator[3],
    ):
        with pytest.raises(ValueError, match=f"expected sigmoids, got a calibrator with {label}"):
            call()


# --- in an engine ---------------------------------------------------------------------------------

# Scores of the fit, others, and far ones.
_FAR = [-1e3, 1e3, 0.0, 1e299, 1.1e300, -1.5e308, np.inf, -np.inf, np.nan]


def table_of_rows():
    f, *_ = curved()
    rng = np.random.default_rng(2)
    scores = np.concatenate([f[:60], 2 * rng.normal(size=30), _FAR * 3])
    segments = np.resize([0, 1, 2, 3, 4, 5, 6, UNSEEN], len(scores))
    offset = rng.normal(size=len(scores))
    # Columns that have names as those of the pieces.
    return {"i": np.arange(len(scores)), "f": scores, "platt_start": segments, "platt_c0": offset}


def predicted(engine, columns, calibrator, **offset):
    names = dict(score="f", segment="platt_start", **offset)
    if engine == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        with closing(duckdb.connect()) as connection:
            relation = connection.from_arrow(pa.table(columns))
            made = sql.predict(sql.rows(relation, label=None, **names), calibrator, "p")
            rows = made.fetchall()
    else:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE t ({', '.join(columns)})")
            rows = zip(*(x.tolist() for x in columns.values()), strict=True)
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", list(rows))
            named = sql.rows("t", label=None, connection=connection, **names)
            rows = sql.predict(named, calibrator, "p").fetchall()
    return np.array([row[-1] for row in sorted(rows, key=lambda row: row[0])], float)


@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_predicts_by_the_curves(kind, engine, found):
    """Before, it predicted by the sigmoids that were fitted beside them."""
    columns = table_of_rows()
    f, segments, offset = columns["f"], columns["platt_start"], columns["platt_c0"]
    for calibrator in (found[kind], found[kind].shift_prior(0.3, 0.05)):
        for given in ({}, {"offset": "platt_c0"}):
            known = {"offset": offset} if given else {}
            with np.errstate(invalid="ignore", over="ignore"):
                expected = calibrator.predict_proba(f, segments, **known)
            p = predicted(engine, columns, calibrator, **given)
            # A difference of infinities is NaN, but engines have a limit.
            compared = np.isfinite(expected) | np.isnan(f)
            assert np.isfinite(p[~np.isnan(f)]).all()
            np.testing.assert_allclose(p[compared], expected[compared], rtol=1e-10, atol=1e-300)


def test_curves_without_rows_have_no_probability_in_an_engine():
    f, y, s, w = curved()
    calibrator = pj.fit_segments(f, y, s, weights=np.where(s == 6, 0, w), curve="isotonic")
    columns = table_of_rows()
    p = predicted("duckdb", columns, calibrator)
    assert np.isnan(p[columns["platt_start"] == 6]).all()
    assert np.isfinite(p[(columns["platt_start"] != 6) & ~np.isnan(columns["f"])]).all()


def test_engines_refuse_calibrators_of_classes():
    f, y, *_ = curved()
    classes = pj.fit_one_vs_rest(np.stack([f, -f], 1), y, curve="isotonic")
    message = "calibrator: expected a SegmentCalibrator, got OneVsRestCalibrator: pass its"
    with pytest.raises(ValueError, match=message):
        predicted("sqlite", table_of_rows(), classes)


# --- rows, classes, batches -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_monitor_expects_what_the_curves_predict(kind, found):
    """Before, it judged the sigmoids: curves that were right were reported as too low."""
    calibrator, rng = found[kind], np.random.default_rng(3)
    f = rng.uniform(0.5, 2.5, 2000)
    s = rng.integers(3, 7, 2000)
    p = calibrator.predict_proba(f, s)
    night = pj.Monitor.start(calibrator, against="predictions").update(f, rng.random(2000) < p, s)
    table = night.table()
    expected = dict(zip(table["segment"], table["expected"], strict=True))
    for name in range(3, 7):
        assert expected[name] == pytest.approx(p[s == name].sum(), rel=1e-6)
    assert (table["q_value"] > 1e-3).all()


@pytest.mark.parametrize("kind", ["quadratic", "spline", "isotonic", "bins", "venn_abers"])
def test_no_class_is_unseen(kind):
    """Before, a class that was not fitted had the curve of the first one."""
    f, y, _, _ = curved()
    scores = np.stack([f, -f, f / 2], 1)
    calibrator = pj.fit_one_vs_rest(scores, np.where(f > 0.3, 2, y), curve=kind)
    by_class = calibrator.by_class
    assert np.isfinite(by_class.predict_proba(f, 1)).all()
    assert np.isnan(by_class.predict_proba(f, 7)).all()
    assert by_class.curves.status[-1] == pj.Status.EMPTY
    whole, fewer = calibrator.predict_proba(scores, False), calibrator.only([True, False, True])
    assert (fewer.predict_proba(scores[:, ::2], False) == whole[:, ::2]).all()
    with pytest.raises(AttributeError, match="fit: expected sigmoids"):
        _ = calibrator.fit
    assert repr(calibrator).startswith(f"OneVsRestCalibrator: 3 {by_class.curves.label} curves")


def test_calibrators_of_classes_are_not_made_of_batches_of_curves():
    f, y, _, _ = curved()
    batch = pj.fit(np.stack([f, -f]), np.stack([y, 1 - y]), curve="isotonic")
    with pytest.raises(ValueError, match="fit: expected a Fit, got a CurveBatch; for other curves"):
        pj.OneVsRestCalibrator.from_fit(["a", "b"], batch)


def test_a_batch_of_curves_has_a_table_and_a_band():
    f, y, _, _ = curved()
    scores = np.stack([f, 2 * f, np.where(f > 1, np.nan, f)])[:, None]
    with pytest.warns(RuntimeWarning, match="not finite in 1 problem: their curves are NaN"):
        batch = pj.fit(scores, y, curve="quadratic")
    table, at = batch.table(), np.linspace(-2, 2, 9)
    assert table["problem"].tolist() == [(0, 0), (1, 0), (2, 0)]
    assert table["status"].tolist() == ["CONVERGED", "CONVERGED", "NON_FINITE"]
    each = pj.fit_segments(f, y, np.zeros(len(f), int), curve="quadratic")
    lower, upper = batch.band(at)
    assert lower.shape == (3, 1, 9) and np.isnan(lower[2]).all()
    for ends, expected in zip((lower, upper), each.band(at, 0), strict=True):
        np.testing.assert_allclose(ends[0, 0], expected, rtol=1e-6)
    with pytest.raises(RuntimeError, match=r"\(2, 0\).*NON_FINITE"):
        batch.raise_if_failed()
    good = pj.fit(scores[:2], y, curve="isotonic")
    assert good.raise_if_failed() is good
    with pytest.raises(ValueError, match="expected curves with standard errors for a band"):
        good.band(at)
    with pytest.raises(ValueError, match="got CurveBatch: pass the calibrator of `fit_segments`"):
        pj.save("unused.npz", good)
