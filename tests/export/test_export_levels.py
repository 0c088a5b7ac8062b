"""Exported calibrators with levels: segments that were not fitted have what their values tell."""

from contextlib import closing

import numpy as np
import pytest
from data import labels_of
from javascript import predicted
from levelled import (
    NAMES,
    OF_THREE,
    UNSEEN,
    assert_predicted,
    deviations,
    levelled,
    of_three_levels,
    rows_of,
)
from test_export import InDuckDB, InSQLite, run_onnx

import platt_jax as pj
from platt_jax.export import to_javascript, to_onnx, to_python, to_sql

# What the core says of the segment that fails is tested elsewhere.
pytestmark = [
    pytest.mark.slow,  # compiles many programs
    pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing:RuntimeWarning"),
]


def check_sql(run, kind, ids, table):
    fitted = levelled(kind, ids)
    rows, expected, spread = rows_of(fitted, ids)
    run.table([(i, *row) for i, row in enumerate(rows)], ["i", "f", "the land", "city"])
    made = to_sql(fitted, "f", ["the land", "city"], dialect=run.dialect, table=table)
    for statement in made.setup:
        run(statement)
    found = run(f"SELECT i, {made.expression} AS p FROM t {made.join} ORDER BY i")
    assert_predicted([p for _, p in found], expected, spread, 5e-4, 2e-6)


@pytest.mark.parametrize("ids", NAMES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_sql_predicts_what_the_calibrator_does(kind, ids):
    """Each engine has both ways, a table and none, of each kind of levels and of most ids."""
    turned = (kind == "crossed") ^ (ids == "text")
    ways = (None, "cur ves") if turned else ("cur ves", None)
    for engine, table in zip((InDuckDB, InSQLite), ways, strict=True):
        run = engine()
        with closing(run.connection):
            check_sql(run, kind, ids, table)


@pytest.mark.parametrize("ids", NAMES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_the_python_module_predicts_what_the_calibrator_does(kind, ids):
    fitted = levelled(kind, ids)
    rows, expected, spread = rows_of(fitted, ids)
    module = {}
    exec(to_python(fitted), module)
    found = [module["predict_proba"](f, tuple(segment)) for f, *segment in rows]
    assert_predicted(found, expected, spread, 1e-7, 1e-9)
    found = predicted(to_javascript(fitted), [(f, segment) for f, *segment in rows])
    assert_predicted(found, expected, spread, 1e-7, 1e-9)


@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_three_levels(kind):
    fitted = of_three_levels(kind)
    scores = np.linspace(-1, 1, len(OF_THREE))
    expected, spread = fitted.predict_proba(scores, OF_THREE), deviations(fitted, scores, OF_THREE)
    module = {}
    exec(to_python(fitted), module)
    rows = [(f, *of) for f, of in zip(scores.tolist(), OF_THREE.tolist(), strict=True)]
    found = [module["predict_proba"](f, tuple(segment)) for f, *segment in rows]
    assert_predicted(found, expected, spread, 1e-7, 1e-9)
    found = predicted(to_javascript(fitted), [(f, segment) for f, *segment in rows])
    assert_predicted(found, expected, spread, 1e-7, 1e-9)
    for table in (None, "curves"):
        run = InDuckDB()
        with closing(run.connection):
            run.table([(i, *row) for i, row in enumerate(rows)], ["i", "f", *"abc"])
            made = to_sql(fitted, "f", list("abc"), table=table)
            for statement in made.setup:
                run(statement)
            found = run(f"SELECT i, {made.expression} AS p FROM t {made.join} ORDER BY i")
        assert_predicted([p for _, p in found], expected, spread, 5e-4, 2e-6)


@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_a_calibrator_of_which_only_the_levels_are_left(kind):
    fitted = levelled(kind, "integers")
    left = fitted.only(np.zeros(len(fitted), bool))
    expected = left.predict_proba([0.5, 0.5], [(1, 0), (UNSEEN, UNSEEN)])
    assert abs(expected[0] - expected[1]) > 0.01
    module = {}
    exec(to_python(left), module)
    found = [module["predict_proba"](0.5, pair) for pair in ((1, 0), (UNSEEN, UNSEEN))]
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    found = predicted(to_javascript(left), [(0.5, [1, 0]), (0.5, [UNSEEN, UNSEEN])])
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    for table in (None, "curves"):
        run = InDuckDB()
        with closing(run.connection):
            run.table([(0, 0.5, 1, 0), (1, 0.5, UNSEEN, UNSEEN)], ["i", "f", "a", "b"])
            made = to_sql(left, "f", ["a", "b"], table=table)
            for statement in made.setup:
                run(statement)
            found = run(f"SELECT i, {made.expression} AS p FROM t {made.join} ORDER BY i")
        np.testing.assert_allclose([p for _, p in found], expected, atol=5e-4)


def test_more_combinations_than_a_case_has():
    """80 segments are few, but the pairs of 40 and 40 values are not."""
    rng = np.random.default_rng(0)
    place = np.arange(800) % 80
    pairs = np.stack([place % 40, (place + place // 40) % 40], 1)
    f = rng.normal(size=800)
    rows = f, labels_of(rng, f + rng.normal(size=40)[pairs[:, 0]]), pairs
    assert "WHEN" in to_sql(pj.fit_segments(*rows, pooling="nested"), "f", ["a", "b"]).expression
    crossed = pj.fit_segments(*rows, pooling="crossed")
    message = "table: expected the name of a table to make for 1,760 segments and values of levels"
    with pytest.raises(ValueError, match=message):
        to_sql(crossed, "f", ["a", "b"])
    assert len(to_sql(crossed, "f", ["a", "b"], table="curves").setup) == 9


def inputs_of(rows):
    """The inputs of an ONNX model for rows (score, ids of each column)."""
    scores, *columns = zip(*rows, strict=True)
    inputs = {"score": np.array(scores)}
    for i, column in enumerate(columns):
        kind = object if isinstance(column[0], str) else np.int64
        inputs[f"segment_{i}"] = np.array(column, kind)
    return inputs


@pytest.mark.parametrize("ids", NAMES)
@pytest.mark.parametrize("kind", ["nested", "crossed", "partial"])
def test_onnx_predicts_what_the_calibrator_does(kind, ids):
    fitted = levelled(kind, ids)
    rows, expected, spread = rows_of(fitted, ids)
    whole = [None not in row for row in rows]  # ONNX has no NULL
    rows = [row for row, there in zip(rows, whole, strict=True) if there]
    _, found = run_onnx(to_onnx(fitted), **inputs_of(rows))
    assert_predicted(found, expected[whole], spread[whole], 1e-7, 1e-9)


@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_onnx_of_three_levels_and_of_levels_alone(kind):
    fitted = of_three_levels(kind)
    scores = np.linspace(-1, 1, len(OF_THREE))
    rows = [(f, *of) for f, of in zip(scores.tolist(), OF_THREE.tolist(), strict=True)]
    for some in (fitted, fitted.only(np.arange(len(fitted)) % 2 == 0)):
        expected, spread = some.predict_proba(scores, OF_THREE), deviations(some, scores, OF_THREE)
        _, found = run_onnx(to_onnx(some), **inputs_of(rows))
        assert_predicted(found, expected, spread, 1e-7, 1e-9)
    left = levelled(kind, "integers").only(np.zeros(len(levelled(kind, "integers")), bool))
    rows = [(0.5, 1, 0), (0.5, UNSEEN, UNSEEN), (0.5, 0, 0)]
    expected = left.predict_proba([0.5] * 3, [row[1:] for row in rows])
    _, found = run_onnx(to_onnx(left), **inputs_of(rows))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
