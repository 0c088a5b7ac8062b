"""The rows of one problem in flat columns: their sums are those of tiles of the same rows."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import platt_jax as pj
from platt_jax.model import objective
from platt_jax.model.standardization import Standardization
from platt_jax.passes import deferred, packing, shapes
from platt_jax.passes.columns import Columns

TILE = shapes.BLOCK_TILE
OPTIONS = pj.Options(non_finite="omit")


def made(rng, count, weighted, more):
    """Columns of rows, some of which are not finite, followed by what no pass may read."""
    scores, labels = rng.normal(size=count), (rng.random(count) < 0.3).astype(np.int8)
    scores[1::1000] = np.nan
    weights = offset = None
    if weighted:
        weights, offset = rng.integers(0, 3, count).astype(float), rng.normal(size=count)
        weights[2::1000] = np.inf
        scores[weights == 0] = 1e9
        offset[3::1000] = np.nan
    after = Columns(99.0, 1, 0.01, 99.0)
    columns = Columns(scores, labels, weights, offset)
    return columns, Columns(
        *(
            None if x is None else np.append(x, np.full(more, junk, x.dtype))
            for x, junk in zip(columns, after, strict=True)
        )
    )


@partial(jax.jit, static_argnames="options")
def everything(rows, options):
    """The ranges, the moments, and the sums at two points."""
    ranges, rows = rows.score_ranges(options), rows.mask_nonfinite(options)
    A, B = jnp.full((1, 1), -1.5), jnp.full((1, 1), 0.25)
    standardization = Standardization(A, jnp.abs(A))
    moments, rows = rows.moments(standardization), rows.standardized(standardization)
    targets = objective.platt_targets(*(one_class.total for one_class in moments))
    losses = rows.loss((A, B), targets), rows.loss_change((B, A), (A, B), targets)
    return ranges, moments, losses, rows.derivatives((A, B), targets, options)


OTHERS = [
    (False, (3 * TILE + 17, 8)),
    *(
        (weighted, size)
        for weighted in (False, True)
        for size in ((1, 1), (2 * TILE - 5, 2), (6 * TILE, 6))
    ),
]


@pytest.mark.parametrize(
    ("weighted", "count", "tile_rows"),
    [
        (True, 3 * TILE + 17, 8),
        *(pytest.param(weighted, *size, marks=pytest.mark.slow) for weighted, size in OTHERS),
    ],
)
def test_sums_are_those_of_tiles(rng, x64, weighted, count, tile_rows):
    columns, longer = made(rng, count, weighted, more=(tile_rows + 1) * TILE - count)
    left = packing.rows_left(np.int64(count), tile_rows * TILE, np)
    flat = deferred.FlatRows(columns=longer, left=left)
    found = everything(flat, OPTIONS)
    dense = jax.tree.map(lambda x: x[None], columns)
    expected = everything(packing.dense_tiles(dense), OPTIONS)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-11), found, expected)
    assert not found[0].bad
    assert bool(flat.score_ranges(pj.Options()).bad) == (count > 1)


def test_no_number_of_rows_is_too_large():
    count = 3 * 2**31 + 5
    left = packing.rows_left(np.int64(count), (3 * 2**16 + 2) * TILE, np)
    assert left.sum(dtype=np.int64) == count and left[-2:].tolist() == [5, 0]
