"""Rows that every pass reads again: the mask and the standardization are applied at each read."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model import statistics
from platt_jax.model.objective import Array, Derivatives, Point, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.protocol import Rows, RowTerms
from platt_jax.passes.tiles import Tiles

# Parts of flat rows that a pass reads one after another. What it computes of a part waits in
# memory, and is twice as large as the part.
PARTS = 4


class Request(NamedTuple):
    """A call of a method of `Rows`, without its arrays; a static argument of programs."""

    method: str
    last: Hashable = None  # its last argument, such as options, if it takes one
    masked: Options | None = None  # for `mask_nonfinite`; None to mask nothing

    def of(
        self, rows: Any, arrays: tuple[Any, ...], standardization: Standardization | None
    ) -> Any:
        """The result of the method for some of the rows, neither masked nor standardized.

        `arrays` are the arguments of the method before its last one.
        """
        if self.masked is not None:
            rows = rows.mask_nonfinite(self.masked)
        if standardization is not None:
            rows = rows.standardized(standardization)
        last = () if self.last is None else (self.last,)
        return getattr(rows, self.method)(*arrays, *last)


@dataclass(frozen=True)
class DeferredRows(Rows):
    """A base class for rows in several places; a subclass adds up the sums of the places.

    A subclass implements `score_ranges` and `_sum`.
    """

    masked: Options | None = None  # the options for `mask_nonfinite`; None to mask nothing
    standardization: Standardization | None = None  # the standardization of the scores, or None

    def _sum(self, request: Request, *arrays: Any) -> Any:
        """The sum of the method's results over all places."""
        raise NotImplementedError

    def mask_nonfinite(self, options: Options) -> Self:
        """See `Rows`."""
        return replace(self, masked=options)

    def standardized(self, standardization: Standardization) -> Self:
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        return self._sum(self._request("moments"), standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`."""
        return self._sum(self._request("derivatives", options), point, targets)

    def row_sums(self, numbers: Any, terms: RowTerms) -> Any:
        """See `Rows`."""
        return self._sum(self._request("row_sums", terms), numbers)

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss"), point, targets)

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._sum(self._request("loss_change"), before, after, targets)

    def _request(self, method: str, last: Hashable = None) -> Request:
        return Request(method, last, self.masked)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("columns", "left", "standardization"),
    meta_fields=("masked",),
)
@dataclass(frozen=True, kw_only=True)
class FlatRows(DeferredRows):
    """The rows of one problem in flat columns on a device; traceable. See `protocol.Rows`.

    Tiles of as many rows would be copies, which a search keeps. Results have the shape [1, 1].
    """

    columns: Columns  # the columns, whose first rows are the problem's
    left: Array  # as for `packing.block_tiles`

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        return statistics.joined(self._part_results(Request("score_ranges", options)))

    def _sum(self, request: Request, *arrays: Any) -> Any:
        return jax.tree.map(lambda x: jnp.sum(x, 0), self._part_results(request, *arrays))

    def _part_results(self, request: Request, *arrays: Any) -> Any:
        """The method's results for each part of the rows, with the parts as leading axis."""
        tile_rows = len(self.left)
        parts = math.gcd(tile_rows, PARTS)
        number = tile_rows // parts

        def result(first: jax.Array) -> Any:
            def part(x: jax.Array) -> jax.Array:
                return lax.dynamic_slice_in_dim(x, first, number)

            # By tile rows: a place among the rows may be too large a number.
            by_tile_row = jax.tree.map(lambda x: x.reshape(-1, shapes.BLOCK_TILE), self.columns)
            columns, rows_left = jax.tree.map(part, (by_tile_row, self.left))
            tiles = packing.block_tiles(columns, rows_left)
            return request.of(tiles, arrays, self.standardization)

        return lax.map(result, jnp.arange(0, tile_rows, number, dtype=jnp.int32))


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("tiles", "standardization"),
    meta_fields=("masked",),
)
@dataclass(frozen=True, kw_only=True)
class FusedTiles(DeferredRows):
    """Tiles that every pass masks and standardizes within its sums. See `protocol.Rows`.

    For a GPU: neither masks nor standardized scores are written to its memory.
    """

    tiles: Tiles

    @property
    def grid(self) -> tuple[int, int]:
        """See `Tiles`."""
        return self.tiles.grid

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        return self.tiles.score_ranges(options)

    def _sum(self, request: Request, *arrays: Any) -> Any:
        tiles, arrays = _apart((self.tiles, arrays))
        return request.of(tiles, arrays, self.standardization)


def _apart(arrays: Any) -> Any:
    """The same arrays, behind a barrier.

    Otherwise XLA would keep in memory what several passes compute from the rows, such as a mask.
    """
    fixed = lax.optimization_barrier(lax.stop_gradient(arrays))

    def differentiable(x: jax.Array, same: jax.Array) -> jax.Array:
        return _with_derivative(x, same) if jnp.issubdtype(x.dtype, jnp.floating) else same

    return jax.tree.map(differentiable, arrays, fixed)


@jax.custom_jvp
def _with_derivative(x: jax.Array, same: jax.Array) -> jax.Array:
    """The second array, with the derivative of the first: JAX 0.12 cannot transpose barriers."""
    return same


@_with_derivative.defjvp
def _with_derivative_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    return _with_derivative(*primals), tangents[0]


def for_passes(tiles: Tiles) -> Tiles | FusedTiles:
    """The tiles, masked and standardized once, or in every pass where that is faster."""
    return tiles if shapes.sizes().in_lanes else FusedTiles(tiles=tiles)
