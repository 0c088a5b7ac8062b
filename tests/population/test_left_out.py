"""Segments that a population leaves out, for scores far out, keep their own fit in later calls."""

import numpy as np
import pytest
from data import labels_of
from scipy.special import expit

import platt_jax as pj
from platt_jax.inference import prior_from

FAR = 7  # its scores are in another unit
SCORES = np.array([-1000.0, 0, 1000])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    segments, scores = np.arange(4000) % 20, rng.normal(size=4000)
    labels = labels_of(rng, 1.5 * scores)
    scores[segments == FAR] *= 1000
    return scores, labels, segments


@pytest.fixture(scope="module")
def pooled(rows):
    with pytest.warns(RuntimeWarning, match="first in 7: these are fitted alone"):
        return pj.fit_segments(*rows, pooling="partial")


@pytest.fixture(scope="module")
def alone(rows):
    there = rows[2] == FAR
    return pj.fit_segments(*(x[there] for x in rows))


def test_the_fit_is_its_own(pooled, alone):
    assert pooled.fit.A[FAR] == pytest.approx(alone.fit.A[0], rel=1e-6)
    assert pooled.shrinkage[FAR] == 0 and (np.delete(pooled.shrinkage, FAR) > 0).all()
    found, expected = prior_from(pooled, [FAR]), prior_from(alone, [FAR])
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(found.precision, expected.precision, rtol=1e-4)


def test_an_update_without_its_rows_keeps_it(rows, pooled):
    some = np.flatnonzero(rows[2] != FAR)[:60]
    updated = pj.update(pooled, *(x[some] for x in rows))
    for name in ("A", "B", "covariance", "n_pos", "n_neg"):
        np.testing.assert_array_equal(
            getattr(updated.fit, name)[FAR], getattr(pooled.fit, name)[FAR]
        )
    updated = pj.update(updated, *(x[some] for x in rows))
    np.testing.assert_array_equal(
        updated.predict_proba(SCORES, FAR), pooled.predict_proba(SCORES, FAR)
    )


def test_an_update_with_its_rows_learns_it_anew(rows, pooled):
    """As a new segment: counts and errors are those of the new rows."""
    some = np.flatnonzero(rows[2] == FAR)[:60]
    scores, labels, segments = (x[some] for x in rows)
    scores = scores / 1000
    with pytest.warns(RuntimeWarning, match="earlier rows of 1 of 1 segment, first in 7, are for"):
        updated = pj.update(pooled, scores, labels, segments)
    new = pj.update(pooled, scores, labels, segments + 100)
    assert updated.fit.n_pos[FAR] + updated.fit.n_neg[FAR] == 60
    for name in ("A", "B"):
        found, expected = (getattr(x.fit, name)[i] for x, i in ((updated, FAR), (new, -1)))
        assert found == pytest.approx(expected, rel=1e-3)


def test_its_tests_are_those_of_its_own_curve(rows, pooled, alone):
    scores, _, segments = (x[rows[2] == FAR] for x in rows)
    reversed_labels = np.random.default_rng(1).random(len(scores)) < expit(-scores / 300)
    found, expected = (
        pj.triage(x, scores, reversed_labels, segments)["p_value"][0] for x in (pooled, alone)
    )
    assert 0 < found < 1e-10
    assert np.log(found) == pytest.approx(np.log(expected), rel=0.1)


def test_its_rows_are_left_out_of_its_own_fit(rows, pooled):
    """As averages over its posterior without the row, as its predictions are."""
    there = np.flatnonzero(rows[2] == FAR)
    found = pj.inference.leave_one_out(pooled, *rows)
    assert np.isfinite(found).all()
    for row in there[:3]:
        rest = np.setdiff1d(there, row)
        one = pj.fit(rows[0][rest], rows[1][rest])
        z = -(one.A * rows[0][row] + one.B)
        f = np.array([rows[0][row], 1.0])
        deviation = np.sqrt(f @ one.covariance @ f)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        expected = weights @ expit(z + nodes * deviation) / weights.sum()
        assert found[row] == pytest.approx(expected, abs=2e-3)


def test_a_drift_needs_a_population_of_all(rows, pooled):
    there = rows[2] == FAR
    with pytest.raises(ValueError, match="calibrator: expected segments of the population"):
        pj.inference.estimate_drift(pooled, *(x[~there] for x in rows))
    pj.inference.estimate_drift(pooled.only(pooled.shrinkage > 0), *(x[~there] for x in rows))
