"""Rows that are grouped once and fitted often."""

import time
from functools import partial

import jax
import numpy as np
import pytest
from data import batch, labels_of

import platt_jax as pj
from platt_jax.execution import planning, run
from platt_jax.model.prior import CenteredPrior
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.solver.solution import ProblemInputs


@pytest.fixture
def columns(rng):
    scores, labels = (x.ravel() for x in batch(rng, 20, 100))
    return scores, labels, rng.choice(["a", "b", "c", "d"], len(scores))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_of_grouped_rows_is_the_fit_of_the_arrays(rng, columns, weighted):
    weights = rng.integers(0, 3, len(columns[0])) if weighted else None
    rows = pj.SegmentRows(*columns, weights=weights)
    for options in (pj.Options(), pj.Options(non_finite="omit")):
        expected = pj.fit_segments(*columns, weights=weights, options=options)
        assert pj.fit_segments(rows, options=options) == expected


def test_grouped_rows_say_what_they_are(columns):
    rows = pj.SegmentRows(*columns)
    assert repr(rows) == "SegmentRows: 2,000 rows of 4 segments, float64"
    assert rows.keys.tolist() == ["a", "b", "c", "d"] and len(rows) == 2000


def test_grouped_rows_do_not_follow_their_arrays(columns):
    rows, expected = pj.SegmentRows(*columns), pj.fit_segments(*columns)
    columns[0][:] = 0
    assert pj.fit_segments(rows) == expected


def test_what_is_not_finite_is_found_in_every_fit(columns):
    columns[0][0] = np.nan
    rows = pj.SegmentRows(*columns)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="1 of 4 segments"):
            pj.fit_segments(rows)
    assert pj.fit_segments(rows, options=pj.Options(non_finite="omit")).fit.converged.all()


@pytest.mark.parametrize("name", ["labels", "segments", "weights"])
def test_arrays_beside_grouped_rows_are_refused(columns, name):
    rows = pj.SegmentRows(*columns)
    with pytest.raises(ValueError, match=f"{name}: expected none beside SegmentRows"):
        pj.fit_segments(rows, **{name: np.ones(2000)})


def test_labels_and_segments_are_asked_for(columns):
    with pytest.raises(ValueError, match="labels: "):
        pj.fit_segments(columns[0])
    with pytest.raises(ValueError, match="segments: "):
        pj.fit_segments(*columns[:2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile_shapes", "size"),
    [(shapes.TILE_SHAPES, 40), (shapes.VECTOR_SHAPES, 40), (shapes.VECTOR_SHAPES, 1000)],
)
def test_problems_over_the_same_rows(rng, tile_shapes, size):
    """Each is fitted as if it had rows of its own; here they differ by their prior."""
    scores, labels = (x.ravel() for x in batch(rng, 2, size))
    mean = rng.normal(size=(6, 2))
    prior = pj.GaussianPrior(mean, np.eye(2))
    (chunk,) = planning.chunks(np.full(6, size), tile_shapes=tile_shapes)
    starts = np.array([0, 0, 0, size, size, size])
    rows = packing.flat(Columns(scores, labels.astype(np.int8)), packing.Space(chunk.capacity))

    def on_grid(leaf):
        length = chunk.grid[0] * chunk.grid[1]
        return packing.lengthen(leaf, length).reshape(chunk.grid + leaf.shape[1:])

    of_each = pj.GaussianPrior(mean, np.tile(np.eye(2), (6, 1, 1)))
    given = jax.tree.map(on_grid, ProblemInputs(CenteredPrior.of(of_each, float)))
    with jax.enable_x64(True):
        solve = partial(run.solve_chunk, block=chunk.tile_shape.block)
        options = pj.Options().with_tol(np.float64)
        shared = solve(rows, chunk.row_map(starts), given, options=options)
    own_rows = np.repeat(scores.reshape(2, size), 3, 0), np.repeat(labels.reshape(2, size), 3, 0)
    expected = pj.fit(*own_rows, prior=prior)
    np.testing.assert_allclose(np.ravel(shared.A)[:6], expected.A, rtol=1e-10)
    np.testing.assert_allclose(np.ravel(shared.B)[:6], expected.B, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.as_users
def test_a_second_fit_costs_no_grouping(rng):
    """Grouping takes most of the time of a fit of a few rows in each of many segments."""
    scores = rng.normal(size=2_000_000)
    labels = labels_of(rng, scores)
    segments = rng.permutation(np.arange(len(scores)) % 10_000)
    rows = pj.SegmentRows(scores, labels, segments)
    ratios = []
    for _ in range(5):
        times = []
        for arguments in ((scores, labels, segments), (rows,)):
            start = time.perf_counter()
            pj.fit_segments(*arguments)
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    assert np.median(ratios) < 0.8
