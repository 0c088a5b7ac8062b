"""The few problems that take longer than the rest, packed together so that the rest need not wait.

Most problems stop after about as many passes; a few take twice as many or more. Those go on alone,
on a quarter of the tile rows. Each lies there as it lay before, so that not a bit of it changes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from platt_jax import tiles
from platt_jax.packing import as_blocks, as_tiles
from platt_jax.tiles import Tiles

_SHARE = 4  # stragglers get one in so many tile rows

# With fewer tile rows the time saved is less than it takes to compile a second loop.
_WORTH_IT = 256


class Stragglers(NamedTuple):
    """A few of the problems of some tiles, on tiles of their own."""

    rows: Tiles
    problems: jax.Array  # [S', G] int32: which place of all the tiles each had, as s * G + g
    there: jax.Array  # [S', G]: whether there is a problem in a place

    def take(self, of_all):
        """Arrays [S, G, ...] of all problems as those of the few, [S', G, ...]."""

        def take(x):
            return x.reshape((-1, *x.shape[2:])).at[self.problems].get(mode="clip")

        return jax.tree.map(take, of_all)

    def put(self, of_all, of_few):
        """Arrays [S, G] of all problems, with those of the few put in their places."""

        def put(x, few):
            return x.reshape(-1).at[self.problems].set(few, mode="drop").reshape(x.shape)

        return jax.tree.map(put, of_all, of_few)


def worth_packing(rows: Tiles) -> bool:
    """Whether there may be stragglers, and enough rows for them to matter."""
    return len(rows.owner) >= _WORTH_IT and len(rows.heights) >= _SHARE


def room(rows: Tiles):
    """How many problems `pack` can take, whichever they are."""
    tile_rows, slices = len(rows.owner) // _SHARE, len(rows.heights) // _SHARE
    return rows.grid[1] * jnp.minimum(tile_rows // jnp.max(rows.heights), slices)


def pack(rows: Tiles, wanted) -> Stragglers:
    """The wanted problems ([S, G], no more than there is room for); traceable.

    The scores are standardised.
    """
    tile_rows, slices = len(rows.owner) // _SHARE, len(rows.heights) // _SHARE
    group = rows.grid[1]
    problems = _first_true(wanted.reshape(-1), slices * group).reshape(slices, group)
    there = problems < wanted.size
    from_slice, from_place = jnp.divmod(jnp.where(there, problems, 0), group)

    height = jnp.where(there, rows.heights[from_slice], 0)
    heights = jnp.max(height, axis=1)
    ends = jnp.cumsum(heights)
    tile_row = jnp.arange(tile_rows, dtype=jnp.int32)
    owner = jnp.sum(tile_row[:, None] >= ends[None, :-1], axis=1, dtype=jnp.int32)
    part = (tile_row - (ends - heights)[owner])[:, None]
    filled = part < height[owner]
    first = jnp.cumsum(rows.heights) - rows.heights
    source = jnp.where(filled, first[from_slice[owner]] + part, 0), from_place[owner]

    def move(x, padding):
        moved = as_blocks(x).at[source].get(mode="promise_in_bounds")
        return as_tiles(jnp.where(filled[..., None], moved, padding))

    few = Tiles(
        scores=move(rows.scores, tiles.far(rows.scores.dtype)),
        positive=move(rows.positive, False),
        weights=None if rows.weights is None else move(rows.weights, 0),
        owner=owner,
        heights=heights,
    )
    return Stragglers(few, problems, there)


def _first_true(wanted, most: int):
    """The indices of what is true, padded with the length of wanted."""
    place = jnp.where(wanted, jnp.cumsum(wanted, dtype=jnp.int32) - 1, most)
    nowhere = jnp.full(most, wanted.size, jnp.int32)
    return nowhere.at[place].set(jnp.arange(wanted.size, dtype=jnp.int32), mode="drop")
