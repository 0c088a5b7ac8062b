"""Predictions in an engine by a calibrator with levels, also for segments that were not fitted."""

import numpy as np
import pytest
from levelled import NAMES, OF_THREE, assert_predicted, levelled, of_three_levels, rows_of
from rows_elsewhere import predict_relation
from test_sql import ENGINES
from test_sql import closed as closed  # a fixture

# What the core says of the segment that fails is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:NaN, infinite or overflowing:RuntimeWarning")


def check_predictions(put, kind, ids):
    """By a function from columns to the arguments that name them in an engine."""
    fitted = levelled(kind, ids)
    rows, expected, spread = rows_of(fitted, ids)
    f, land, city = zip(*rows, strict=True)
    columns = {"i": list(range(len(rows))), "f": f, "land": land, "city": city}
    found = predict_relation(**put(columns), calibrator=fitted, score="f", segment=["land", "city"])
    found = found.fetchall()
    assert [row[:4] for row in sorted(found)] == [(i, *row) for i, row in enumerate(rows)]
    assert_predicted([row[-1] for row in sorted(found)], expected, spread, 1e-7, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ids", NAMES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_an_engine_predicts_what_the_calibrator_does(engine, kind, ids):
    check_predictions(ENGINES[engine], kind, ids)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_three_levels(engine, kind):
    fitted = of_three_levels(kind)
    a, b, c = OF_THREE.T
    placed = ENGINES[engine]({"f": np.linspace(-1, 1, len(a)), "a": a, "b": b, "c": c})
    found = predict_relation(**placed, calibrator=fitted, score="f", segment=["a", "b", "c"])
    f, a, b, c, p = map(np.array, zip(*found.fetchall(), strict=True))
    assert len(p) == len(OF_THREE)
    expected = fitted.predict_proba(f, np.stack([a, b, c], 1))
    np.testing.assert_allclose(p, expected, rtol=1e-7)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["nested", "crossed"])
def test_offsets_and_a_calibrator_of_which_only_the_levels_are_left(engine, kind):
    fitted = levelled(kind, "integers")
    left = fitted.only(np.zeros(len(fitted), bool))
    segments = [(1, 0), (2, 99), (99, 99)]
    a, b = np.array(segments).T
    o = np.array([0.5, -1.0, 2.0])
    placed = ENGINES[engine]({"f": np.zeros(3), "a": a, "b": b, "o": o})
    found = predict_relation(**placed, calibrator=left, score="f", segment=["a", "b"], offset="o")
    by_segment = {tuple(row[1:3]): row[-1] for row in found.fetchall()}
    expected = left.predict_proba(np.zeros(3), segments, offset=o)
    np.testing.assert_allclose([by_segment[s] for s in segments], expected, rtol=1e-7)
