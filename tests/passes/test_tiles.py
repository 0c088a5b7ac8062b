"""The pass over the rows, dense and ragged, against row-by-row sums; and how rows are packed."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import batch, ragged
from reference import six_sums

import platt_jax as pj
from platt_jax.execution import planning
from platt_jax.model import objective
from platt_jax.model.standardization import Standardization
from platt_jax.options import Options
from platt_jax.passes import packing, shapes, tiles
from platt_jax.passes.columns import Columns

SIZES = np.array([9000, 2500, 1025, 700, 90, 57, 56, 17, 16, 9, 8, 7, 1])


def tiles_of(chunk, scores, labels, weights):
    """The tiles of a chunk of problems of these SIZES."""
    first_row = SIZES[: chunk.problems.start].sum()

    def flat(x):
        out = np.zeros(chunk.capacity, x.dtype)
        rows = x[first_row : first_row + SIZES[chunk.problems].sum()]
        out[: len(rows)] = rows
        return jnp.asarray(out)

    weights = None if weights is None else flat(weights)
    gather = jax.jit(packing.gather_tiles, static_argnames="block")
    columns = Columns(flat(scores), flat(labels), weights)
    return gather(columns, chunk.row_map(), block=chunk.tile_shape.block)


dense_tiles = jax.jit(packing.dense_tiles)


@partial(jax.jit, static_argnames="options")
def one_pass(rows, A, B, options):
    """The loss and its derivatives at (A, B), and its change from (B, A) with the loss there."""
    identity = Standardization(jnp.zeros_like(A), jnp.ones_like(A))
    n_pos, n_neg = (one_class.total for one_class in rows.moments(identity))
    targets = objective.platt_targets(n_pos, n_neg)
    rows = rows.standardized(identity)
    loss, before = (rows.loss(point, targets) for point in ((A, B), (B, A)))
    change = rows.loss_change((B, A), (A, B), targets)
    return loss, rows.derivatives((A, B), targets, options), change, before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "weighted", "derivatives"),
    [
        (np.float64, True, "analytic"),
        (np.float64, False, "autodiff"),
        (np.float32, True, "autodiff"),
    ],
)
def test_ragged_pass_is_the_six_sums(dtype, weighted, derivatives, rng, x64):
    scores, labels, _ = ragged(rng, SIZES, dtype)
    weights = rng.uniform(0, 3, len(scores)).astype(dtype) if weighted else None
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    seen = 0
    for chunk in planning.chunks(SIZES, tile_shapes=shapes.TILE_SHAPES):
        rows = tiles_of(chunk, scores, labels, weights)
        A, B = (jnp.asarray(rng.normal(size=rows.grid), dtype) for _ in range(2))
        options = Options(derivatives=derivatives)
        loss, at, change, before = one_pass(rows, A, B, options)
        np.testing.assert_allclose(change, loss - before, rtol=rtol, atol=rtol * np.max(loss))
        got = np.stack([np.ravel(x) for x in (loss, *at)])
        for i, k in enumerate(range(chunk.problems.start, chunk.problems.stop)):
            mine = slice(starts[k], starts[k + 1])
            w = None if weights is None else weights[mine].astype(float)
            point = float(np.ravel(A)[i]), float(np.ravel(B)[i])
            expected = six_sums(scores[mine], labels[mine], *point, w)
            scale = np.abs(expected).max()
            np.testing.assert_allclose(got[:, i], expected, rtol=rtol, atol=rtol * scale)
            seen += 1
    assert seen == len(SIZES)


@pytest.mark.on_cpu
@pytest.mark.parametrize(
    "shape",
    [(30, 1_000), *(pytest.param(s, marks=pytest.mark.slow) for s in [(11, 3_000), (300, 90)])],
)
def test_unwanted_problems_are_neither_read_nor_in_the_way(shape, rng, sizes, x64):
    scores, labels = batch(rng, *shape)
    rows = dense_tiles(Columns(scores, labels))
    rows = rows.standardized(Standardization(np.zeros(rows.grid), np.ones(rows.grid)))
    sizes(tiles_at_once=7_000)  # so that batches begin within problems
    A, B = (rng.normal(size=rows.grid) for _ in range(2))
    targets = objective.platt_targets(A * A, B * B)

    @jax.jit
    def sums(active, scores):
        some = replace(rows, scores=scores)
        return jnp.stack(some.derivatives((A, B), targets, Options(), active))

    everything = np.asarray(sums(np.ones(rows.grid, bool), rows.scores))
    expected = np.stack(jax.jit(lambda rows: rows.derivatives((A, B), targets, Options()))(rows))
    np.testing.assert_allclose(everything, expected, rtol=1e-12, atol=1e-12 * expected.max())
    for share in (0, 0.2, 0.7):
        wanted = rng.random(rows.grid) < share
        idle = ~wanted.any(1)[np.asarray(rows.segment_ids)]
        poisoned = np.where(idle[:, None, None], np.nan, rows.scores)
        got = np.asarray(sums(wanted, poisoned))
        np.testing.assert_array_equal(got[:, wanted], everything[:, wanted])
        assert not got[:, ~wanted.any(1)].any()


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 100, 1000, 1024, 1025, 3000])
def test_dense_reshape_keeps_every_row_once(rows):
    scores = np.arange(3 * rows, dtype=np.float32).reshape(3, rows)
    labels = np.ones((3, rows), np.int8)
    packed = dense_tiles(Columns(scores, labels))
    there = ~np.isnan(packed.scores)
    assert there.sum() == scores.size
    problem_ids = jnp.arange(packed.grid[0] * packed.grid[1]).reshape(packed.grid)
    problem_ids = np.broadcast_to(tiles.broadcast_to_rows(packed, problem_ids), there.shape)
    for k in range(3):
        mine = there & (problem_ids == k)
        assert sorted(np.asarray(packed.scores)[mine]) == list(scores[k])


def test_gather_keeps_every_row_once(rng):
    scores = np.arange(SIZES.sum(), dtype=np.float64).astype(np.float32)
    labels = np.ones(len(scores), np.int8)
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    for chunk in planning.chunks(SIZES, tile_shapes=shapes.TILE_SHAPES):
        rows = tiles_of(chunk, scores, labels, None)
        there = ~np.isnan(rows.scores)
        got = np.sort(np.asarray(rows.scores)[there])
        mine = slice(starts[chunk.problems.start], starts[chunk.problems.stop])
        np.testing.assert_array_equal(got, scores[mine])


def test_any_mix_of_sizes_uses_few_shapes(rng):
    found = set()
    for mix in (
        np.full(1000, 1000),
        np.full(3, 100_000),
        rng.integers(1, 30, 200_000),
        np.maximum(1, rng.lognormal(4, 1.5, 20_000)).astype(int),
        np.ones(1, int),
        np.repeat([250, 12], [50_000, 150_000]),
    ):
        sizes = mix[planning.largest_first(mix)]
        plan = list(planning.chunks(sizes, tile_shapes=shapes.TILE_SHAPES))
        assert [c.problems.start for c in plan] == [0, *(c.problems.stop for c in plan[:-1])]
        assert plan[-1].problems.stop == len(sizes)
        found |= {(c.capacity, c.grid) for c in plan}
        for chunk in plan:
            places, group = chunk.row_map(), chunk.tile_shape.group
            room = np.zeros((chunk.groups, group), int)
            np.add.at(room, places.segment_ids, np.minimum(places.left, chunk.tile_shape.block))
            np.testing.assert_array_equal(room.ravel()[: len(chunk.sizes)], chunk.sizes)
        for tile_shape in {c.tile_shape for c in plan}:
            of_kind = {(c.rows, c.groups) for c in plan if c.tile_shape == tile_shape}
            assert len(of_kind) <= (1 if tile_shape.group == 1 else 2)
        slots = sum(c.capacity for c in plan)
        assert slots <= 1.25 * sizes.sum() + 3 * 1024 * 1024
    assert len(found) <= 8


def test_summary_and_moments(rng, x64):
    scores = np.array([[3.0, -1.0, 2.0, 7.0, 5.0], [1.0, np.nan, 2.0, 3.0, 4.0]])
    labels = np.array([[1, 0, 1, 0, 1], [1, 0, 1, 0, 0]], np.int8)
    rows = dense_tiles(Columns(scores, labels))
    seen = jax.tree.map(np.ravel, jax.jit(lambda rows: rows.score_ranges(Options()))(rows))
    assert seen.bad.tolist() == [False, True]
    ends = (seen.low_pos[0], seen.high_pos[0], seen.low_neg[0], seen.high_neg[0])
    assert ends == (2, 5, -1, 7)
    shape = rows.grid
    coordinates = Standardization(jnp.full(shape, 1.0), jnp.full(shape, 0.5))
    pos, neg = jax.jit(lambda rows: rows.moments(coordinates))(rows)
    assert np.ravel(pos.first)[0] == pytest.approx((2 + 1 + 4) / 2)
    assert np.ravel(neg.second)[0] == pytest.approx((4 + 36) / 4)


@pytest.mark.parametrize("of_all", [True, False])
def test_the_pass_is_one_fused_loop_with_one_exponential(of_all):
    """The layout is worth its trouble only as long as XLA keeps the five sums in one fusion."""
    rows = dense_tiles(Columns(jnp.zeros((256, 4096)), jnp.zeros((256, 4096), jnp.int8)))
    shape = (256, 1)
    ones = jnp.ones(shape)

    def sweep(rows, A, B):
        active = None if of_all else A > 0
        return rows.derivatives((A, B), objective.platt_targets(A, B), Options(), active)

    text = jax.jit(sweep).lower(rows, ones, ones).compile().as_text()
    assert text.count(" exponential(") == 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [30, 400])
def test_a_row_of_weight_0_is_gone_however_far_out(rng, rows, x64):
    scores, labels = batch(rng, 1, rows + 1)
    scores, weights = scores * 1e-8, np.ones(scores.shape)
    without = pj.solve(scores[:, :-1], labels[:, :-1], weights=weights[:, :-1])
    scores[:, -1], weights[:, -1] = 1e305, 0
    found = pj.solve(scores, labels, weights=weights)
    assert np.all(abs(found.A - without.A) < 1e-9 * without.standard_errors[..., 0])


def test_a_heavy_row_that_is_fitted_well_keeps_its_loss():
    """Float32 rounds 1 + e to 1 where the loss, log(1 + e), is 3e-9; a weight makes it 3e3."""
    scores, labels = np.float32([[20, -1, 1]]), np.array([[1, 0, 1]])
    rows = dense_tiles(Columns(scores, labels, np.float32([[1e12, 1, 1]])))
    zero, one = jnp.zeros((1, 1), np.float32), jnp.ones((1, 1), np.float32)

    @jax.jit
    def loss_of(rows):
        rows = rows.standardized(Standardization(zero, one))
        return rows.loss((-one, zero), objective.plain_targets(one, one))

    loss = loss_of(rows)
    expected = 1e12 * np.log1p(np.exp(-20.0)) + 2 * np.log1p(np.exp(-1.0))
    assert loss.item() == pytest.approx(expected, rel=1e-6)
