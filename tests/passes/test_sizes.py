"""The sizes of calls for a GPU, on a CPU: other chunks and reductions, the same fits."""

import jax
import numpy as np
import pytest
from data import batch, ragged

import platt_jax as pj
from platt_jax import Flag, Status
from platt_jax.backend import threads, xla
from platt_jax.execution import planning
from platt_jax.passes import reductions, shapes


@pytest.fixture
def accelerator(monkeypatch):
    """A function that chooses the sizes for a GPU, and discards programs that have others."""

    def install():
        monkeypatch.setattr(shapes, "sizes", lambda: shapes.ACCELERATOR)
        jax.clear_caches()

    yield install
    jax.clear_caches()


def assert_same_fits(got, expected):
    tol = 1e-9 if expected.A.dtype == np.float64 else 2e-3
    for name in ("status", "flags"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), err_msg=name)
    errors = expected.standard_errors
    for i, name in enumerate("AB"):
        off = (getattr(got, name) - getattr(expected, name)) / errors[..., i]
        assert np.nanmax(np.abs(off)) < tol, name
    np.testing.assert_allclose(got.nll, expected.nll, rtol=1e-3 * tol)


@pytest.mark.slow
def test_fits_of_ragged_problems(accelerator, rng):
    sizes = np.r_[3_000, 9_000, rng.integers(1, 400, 60)]
    scores, labels, segments = ragged(rng, sizes)
    labels[segments == 3], scores[segments == 4] = 1, 2.5
    scores[np.flatnonzero(segments == 5)[:1]] = np.nan
    weights = rng.integers(1, 4, len(scores))
    with pytest.warns(RuntimeWarning, match="in 1 of 62 segments"):
        expected = pj.fit_segments(scores, labels, segments, weights=weights).fit
    accelerator()
    with pytest.warns(RuntimeWarning, match="in 1 of 62 segments"):
        got = pj.fit_segments(scores, labels, segments, weights=weights).fit
    assert_same_fits(got, expected)
    assert (got.status == Status.NON_FINITE).sum() == 1
    assert (got.flags & Flag.ONE_CLASS).any() and (got.flags & Flag.CONSTANT_SCORES).any()


@pytest.mark.slow  # not least as all other programs have to be traced again
@pytest.mark.parametrize("shape", [(30, 90), (3, 3_000)])
def test_solve_of_dense_problems(accelerator, rng, x64, shape):
    scores, labels = batch(rng, *shape)
    expected = pj.fit(scores, labels)
    accelerator()
    assert_same_fits(pj.solve(scores, labels), expected)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [90, 1_031])  # equal parts, and parts with padding
def test_rows_that_are_not_finite_and_rows_of_weight_0(accelerator, rng, x64, rows):
    scores, labels = batch(rng, 6, rows)
    weights, offset = rng.exponential(size=scores.shape), rng.normal(size=scores.shape)
    scores[0, 3], scores[1], scores[2, 4], weights[3, 5] = np.nan, np.nan, np.inf, np.nan
    weights[4, :5] = 0
    far = scores.copy()
    far[4, :5] = 1e200
    more, omit = {"weights": weights, "offset": offset}, pj.Options(non_finite="omit")
    ways = (scores, {}), (far, more), (scores, {"options": omit}), (far, {"options": omit, **more})
    expected = [pj.solve(f, labels, **given) for f, given in ways]
    accelerator()
    for (f, given), fit in zip(ways, expected, strict=True):
        assert_same_fits(pj.solve(f, labels, **given), fit)
    assert [fit.status[1] for fit in expected] == 2 * [Status.NON_FINITE] + 2 * [Status.EMPTY]


@pytest.mark.slow
def test_derivatives_pass_through_masks_and_coordinates(accelerator, rng, x64):
    scores, labels = batch(rng, 3, 40)
    weights = rng.exponential(size=scores.shape)

    def slopes(scores, weights):
        return pj.solve(scores, labels, weights=weights).A.sum()

    expected = jax.grad(slopes, (0, 1))(scores, weights)
    accelerator()
    got = jax.grad(slopes, (0, 1))(scores, weights)
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("number", [1, 5, 6])
def test_reductions_in_pairs(monkeypatch, rng, number):
    terms = rng.normal(size=(number, 3, 40)).astype(np.float32)
    terms[-1, 0], terms[0, 1, 2] = np.inf, -np.inf
    monkeypatch.setattr(shapes, "sizes", lambda: shapes.ACCELERATOR)
    np.testing.assert_array_equal(reductions.minima(1, *terms), terms.min(2))
    np.testing.assert_allclose(reductions.sums(1, *terms), terms.sum(2), rtol=1e-5)


def test_chunks_take_no_more_than_half_of_the_memory():
    for memory in (8 << 30, 16 << 30, 140 << 30):
        found = shapes._within(shapes.ACCELERATOR, memory)
        assert set(found.chunk_rows) <= set(shapes.ACCELERATOR.chunk_rows)
        assert found.chunk_rows[-1] * 64 * threads.AT_ONCE <= memory / 2
        assert found.problem_rows == found.chunk_rows[-1]
    assert shapes._within(shapes.ACCELERATOR, 1).chunk_rows == shapes.ACCELERATOR.chunk_rows[:1]


@pytest.mark.on_cpu
def test_the_device_decides(monkeypatch):
    assert shapes.sizes() == shapes.CPU
    monkeypatch.setattr(xla, "platform", lambda: "gpu")
    assert shapes.sizes() == shapes.ACCELERATOR  # a CPU tells JAX nothing of its memory
    monkeypatch.setattr(shapes, "memory", lambda: 4 << 30)
    assert shapes.sizes().chunk_rows[-1] < shapes.ACCELERATOR.chunk_rows[-1]


@pytest.mark.parametrize("sizes", [shapes.CPU, shapes.ACCELERATOR])
def test_no_chunk_is_longer_than_a_block(monkeypatch, sizes):
    """Rows are kept with a block's length behind them, so that any requested range exists."""
    monkeypatch.setattr(shapes, "sizes", lambda: sizes)
    of_problems = np.r_[np.full(3, sizes.problem_rows), np.full(70_000, 1_000), np.full(20, 3)]
    capacities = {chunk.capacity for chunk in planning.chunks(of_problems)}
    assert max(capacities) > sizes.problem_rows
    assert max(capacities) <= sizes.block_rows
    assert sizes.block_rows % (shapes.DEPTH * shapes.BLOCK_LANES) == 0


def test_a_chunk_holds_tens_of_millions_of_rows(monkeypatch):
    monkeypatch.setattr(shapes, "sizes", lambda: shapes.ACCELERATOR)
    (chunk,) = planning.chunks(np.full(30_000, 1_000))
    assert chunk.capacity > 30_000_000
