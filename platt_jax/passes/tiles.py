"""Rows as tiles: arrays of one shape for problems of any size, for a GPU and for derivatives.

A tile row holds rows of data of a group of G problems as [8w, G]: each problem has w lanes, 8 deep.
Small problems lie side by side with one lane each; each other problem is a group of its own.
Consecutive tile rows continue the same group; `segment_ids` gives the group. All other places are
padding and contribute exactly 0. Their score is NaN at first, and `pad_score` once the scores are
standardized: a finite number times 0 is 0 without a mask. Rows that are masked become padding.

On a CPU sums are taken of the lanes, [8, G, w], along the 8: XLA unrolls a reduction over up to 8
elements and vectorises over the lanes behind it. On a GPU a tile row is reduced at once, and every
pass masks and standardizes its rows anew (`deferred.FusedTiles`). Five sums are taken at once, and
the loss apart: the five are one fused loop with one exponential per row. A weighted loss as a sixth
sum would break the fusion and cost several times as much as the rest. Elementwise code is faster
with fewer axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax.model import objective, statistics
from platt_jax.model.objective import Array, Derivatives, Point, Row, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes import shapes
from platt_jax.passes.columns import Columns
from platt_jax.passes.protocol import RowTerms
from platt_jax.passes.reductions import (
    Arrays,
    TileGroups,
    minima,
    minima_by_group,
    sum_with_logs,
    sums,
    sums_by_group,
)
from platt_jax.passes.shapes import DEPTH


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """The rows of S x G problems, on R tile rows. See `protocol.Rows` for the methods."""

    scores: jax.Array  # [R, 8w, G]; infinite where a row is not finite
    positive: jax.Array  # [R, 8w, G] above 0, or True, if the label is 1; undefined in padding
    weights: jax.Array | None  # [R, 8w, G]
    segment_ids: jax.Array  # [R] int32, ascending: the group of each tile row
    tiles_per_group: jax.Array  # [S] int32: the number of tile rows of each group
    # Whether all groups have the same number of tile rows.
    even: bool = field(default=False, metadata={"static": True})
    offset: jax.Array | None = None  # [R, 8w, G]; 0 in padding
    # Whether there is padding. Otherwise rows whose score is NaN are not finite.
    padded: bool = field(default=True, metadata={"static": True})

    @property
    def grid(self) -> tuple[int, int]:
        """(S, G): the number of groups, and of problems in each."""
        return len(self.tiles_per_group), self.scores.shape[2]

    @property
    def _groups(self) -> TileGroups:
        return TileGroups(self.segment_ids, self.tiles_per_group, self.even)

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        tiles = _lanes(lax.stop_gradient(_without_missing(self, options)))
        bad, classes, offset = _bad_rows(tiles), _classes(tiles), tiles.offset
        if offset is not None:
            counts = _present(tiles) & ~bad
            counts &= True if tiles.weights is None else tiles.weights > 0
            offset = jnp.where(counts, offset, 0)
        if tiles.weights is None:
            terms = statistics.range_terms(bad, tiles.scores, classes, None, offset)
            tile_minima: Sequence[jax.Array] = _over_rows(minima, *terms)
        else:
            # Two reductions: XLA would not vectorise a single one over rows.
            counts = tiles.weights > 0
            heavy = [one_class & counts for one_class in classes]
            weights = jnp.where(counts, tiles.weights, jnp.inf)
            terms = statistics.range_terms(bad, tiles.scores, heavy, weights, offset)
            (bad, *ends), weight_terms = terms[:5], terms[5:]
            bad, *least = _over_rows(minima, bad, *weight_terms)
            tile_minima = [bad, *_over_rows(minima, *ends), *least]
        least_of_all = minima_by_group(tile_minima, self._groups)
        return statistics.ranges_of_minima(least_of_all, offset is not None)

    def mask_nonfinite(self, options: Options) -> "Tiles":
        """See `Rows`."""
        # Later sums take a score that is not finite for padding in any case.
        if self.weights is None and self.offset is None:
            return self
        return _drop(self, _bad_rows(self))

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        tiles = _lanes(self)
        g = _standardize(tiles, standardization)
        counts = _present(tiles)
        if tiles.weights is not None:
            # A weight of 0 has a derivative in the total, but its score may be out of range.
            counts = tiles.weights > 0
            g = jnp.where(counts, g, 0)
        row_columns = tiles.weights, counts, _classes(tiles), tiles.offset
        terms = self._per_problem(_over_rows(sums, *statistics.moment_terms(g, *row_columns)))
        class_moments = statistics.moments_of_sums(terms, tiles.offset is not None)
        if tiles.weights is not None:
            return class_moments
        # A count has no derivative. Without this, JAX would carry zeros back to every row.
        pos, neg = (
            x._replace(total=lax.stop_gradient(x.total), rows=lax.stop_gradient(x.rows))
            for x in class_moments
        )
        return pos, neg

    def standardized(self, standardization: Standardization) -> "Tiles":
        """See `Rows`."""
        g = _standardize(self, standardization)
        if self.weights is not None:
            # A row of weight 0 may be so far out that its product with 0 is not 0.
            limit = pad_score(g.dtype) / 2
            g = jnp.clip(g, -limit, limit)
        return replace(self, scores=jnp.where(_present(self), g, pad_score(g.dtype)))

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`.

        If there are many tile rows, only tile rows of active problems are read, some at a time. The
        order in which a problem's sums are added does not depend on the other problems.
        """
        parameters = jnp.stack([*point, *targets], 1)
        limit = shapes.sizes().tiles_at_once
        if active is None or limit is None or self.scores.size <= limit:
            tile_row_sums = _derivatives(self, parameters, options)
            return Derivatives(*sums_by_group(tile_row_sums, self._groups))
        at_once = max(1, limit // self.scores[0].size)
        order, batches = _in_batches(self, jnp.any(active, 1), at_once)

        def add(i: jax.Array, tile_row_sums: jax.Array) -> jax.Array:
            numbers = lax.dynamic_slice_in_dim(order, i * at_once, at_once)
            new_sums = jnp.stack(_derivatives(_take(self, numbers), parameters, options))
            return tile_row_sums.at[:, numbers].set(new_sums, mode="drop", unique_indices=True)

        # Made from the scores: under shard_map the loop's state must vary over the mesh as they do.
        none = jnp.zeros_like(self.scores, shape=(5, len(self.segment_ids), self.grid[1]))
        return Derivatives(*sums_by_group(lax.fori_loop(0, batches, add, none), self._groups))

    def row_sums(self, numbers: Any, terms: RowTerms) -> Sequence[jax.Array]:
        """See `Rows`."""
        tiles = _lanes(self)
        numbers = jax.tree.map(partial(broadcast_to_rows, tiles), numbers)
        return self._per_problem(
            _over_rows(sums, *terms.terms(_row(tiles), objective.XLA, numbers))
        )

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return cast(jax.Array, sum(self._per_problem(_losses(self, point, targets))))

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        new, old = (_losses(self, point, targets) for point in (after, before))
        changes = [n - o for n, o in zip(new, old, strict=True)]
        return cast(jax.Array, sum(self._per_problem(changes)))

    def _per_problem(self, tile_row_sums: Sequence[jax.Array]) -> list[jax.Array]:
        """The sums of each problem, [S, G], from the sums of each tile row, [R, G]."""
        return sums_by_group(tile_row_sums, self._groups)


def pad_score(dtype: np.dtype[Any]) -> jax.Array:
    """The score of padding among standardized scores, larger than any of these.

    Its square is finite, because XLA multiplies constants first and infinity times 0 is not 0.
    """
    return jnp.asarray(2.0 ** (jnp.finfo(dtype).maxexp // 2 - 1), dtype)


def bad_as_infinite(scores: jax.Array) -> jax.Array:
    """The scores with infinity in place of NaN, which means padding from here on."""
    return jnp.where(jnp.isnan(scores), jnp.inf, scores)


def broadcast_to_rows(tiles: Tiles, per_problem: Array) -> jax.Array:
    """Broadcasts [S, G] to [R, 1, G], or to [R, 1, G, 1] for tiles in lanes."""
    return _along_rows(tiles, per_problem[tiles.segment_ids])


def _along_rows(tiles: Tiles, per_tile_row: jax.Array) -> jax.Array:
    """Broadcasts [R, G] to [R, 1, G], or to [R, 1, G, 1] for tiles in lanes."""
    in_rows = per_tile_row[:, None]
    return in_rows if tiles.scores.ndim == 3 else in_rows[..., None]


def _lanes(tiles: Tiles) -> Tiles:
    """The tiles ready to be reduced: with arrays [R, 8, G, w], or as they are on a GPU.

    There XLA would read a score and the same score in lanes as two numbers.
    """
    if not shapes.sizes().in_lanes:
        return tiles
    tile_rows, rows, group = tiles.scores.shape  # rows is 8 or group is 1
    return _with_columns(tiles, lambda x: x.reshape(tile_rows, DEPTH, group, rows // DEPTH))


def _with_columns(tiles: Tiles, function: Callable[[jax.Array], jax.Array]) -> Tiles:
    """The tiles with a function of each column in its place."""
    columns = Columns(tiles.scores, tiles.positive, tiles.weights, tiles.offset)
    scores, positive, weights, offset = jax.tree.map(function, columns)
    return replace(tiles, scores=scores, positive=positive, weights=weights, offset=offset)


def _in_batches(tiles: Tiles, active: jax.Array, at_once: int) -> tuple[jax.Array, jax.Array]:
    """The tile rows of active groups, followed by numbers past the end; and the batch count."""
    tile_rows = len(tiles.segment_ids)
    length = -(-tile_rows // at_once) * at_once
    numbers = jnp.arange(tile_rows, dtype=jnp.int32)
    idle = jnp.where(active, 0, tiles.tiles_per_group)
    # Active groups move up by the idle tile rows before them. Idle groups move out of the array.
    up = jnp.where(active, jnp.cumsum(idle, dtype=jnp.int32), -length)
    places = numbers - up.at[tiles.segment_ids].get(mode="promise_in_bounds")
    past_the_end = tile_rows + jnp.arange(length, dtype=jnp.int32)
    order = past_the_end.at[places].set(numbers, mode="drop")
    return order, -((jnp.sum(idle, dtype=jnp.int32) - tile_rows) // at_once)


def _take(tiles: Tiles, numbers: jax.Array) -> Tiles:
    """The tile rows with these numbers. Numbers past the end give arbitrary tile rows."""

    def take(x: jax.Array) -> jax.Array:
        return x.at[numbers].get(mode="clip")

    return replace(_with_columns(tiles, take), segment_ids=take(tiles.segment_ids))


def _over_rows(reduce: Callable[..., Arrays], *terms: jax.Array) -> Arrays:
    """Terms of tiles from `_lanes`, reduced to [R, G]."""
    if shapes.sizes().in_lanes:
        return reduce(2, *reduce(1, *terms))
    return reduce(1, *terms)


def _derivatives(tiles: Tiles, parameters: jax.Array, options: Options) -> Arrays:
    """The sums of each tile row, [R, G], given A, B and the four targets per problem, [S, 6, G]."""
    tiles, gathered = _lanes(tiles), parameters[tiles.segment_ids]  # one gather for all six
    A, B, *class_targets = (_along_rows(tiles, gathered[:, i]) for i in range(gathered.shape[1]))
    derivatives = objective.DERIVATIVES[options.derivatives]
    return _over_rows(sums, *derivatives((A, B), _row(tiles), Targets(*class_targets)))


def _losses(tiles: Tiles, point: Point, targets: Targets) -> Arrays:
    """The loss of each tile row at its problem's point, as one or two terms [R, G]."""
    tiles = _lanes(tiles)
    point, targets = jax.tree.map(partial(broadcast_to_rows, tiles), (point, targets))
    linear, odds = objective.loss(point, _row(tiles), targets)
    if tiles.weights is None:
        if shapes.sizes().in_lanes:
            return sums(2, *sum_with_logs(linear, 1 + odds))
        return _over_rows(sums, linear + jnp.log1p(odds))
    # Weight 0 times an overflowing loss must be 0; the loss is the derivative by a weight of 0. One
    # logarithm per row, not one of a product: a heavy row that is fitted well would lose its loss
    # to rounding.
    terms = (
        tiles.weights * jnp.where((tiles.weights == 0) & ~jnp.isfinite(x), 0, x)
        for x in (linear, jnp.log1p(odds))
    )
    return _over_rows(sums, *terms)


def _row(tiles: Tiles) -> Row:
    """The rows of standardized tiles in the form that the formulas take."""
    f = tiles.scores
    weight = 1 if tiles.weights is None else tiles.weights
    return Row(f, _positive(tiles), f < pad_score(f.dtype), weight, tiles.offset)


def _without_missing(tiles: Tiles, options: Options) -> Tiles:
    """Drops non-finite rows whose weight is 0, or all non-finite rows with non_finite="omit".

    Finite rows of weight 0 stay. They add nothing, but the fit has a derivative by their weight.
    """
    bad = _bad_rows(tiles)
    if options.non_finite == "omit":
        return _drop(tiles, bad)
    return tiles if tiles.weights is None else _drop(tiles, bad & (tiles.weights == 0))


def _drop(tiles: Tiles, rows: jax.Array) -> Tiles:
    """The tiles with these rows turned into padding."""
    scores, weights, offset = tiles.scores, tiles.weights, tiles.offset
    scores = scores if tiles.padded else bad_as_infinite(scores)
    return replace(
        tiles,
        scores=jnp.where(rows, jnp.nan, scores),
        weights=None if weights is None else jnp.where(rows, 0, weights),
        offset=None if offset is None else jnp.where(rows, 0, offset),
        padded=True,
    )


def _bad_rows(tiles: Tiles) -> jax.Array:
    """Which rows are not finite."""
    bad = jnp.isinf(tiles.scores) if tiles.padded else ~jnp.isfinite(tiles.scores)
    for column in (tiles.weights, tiles.offset):
        bad = bad if column is None else bad | ~jnp.isfinite(column)
    return bad


def _present(tiles: Tiles) -> jax.Array:
    """Which places hold a finite row. Only valid before the scores are standardized."""
    return jnp.isfinite(tiles.scores)


def _classes(tiles: Tiles) -> tuple[jax.Array, jax.Array]:
    """Which rows have label 1, and which label 0."""
    present, positive = _present(tiles), _positive(tiles)
    return present & positive, present & ~positive


def _positive(tiles: Tiles) -> jax.Array:
    """Which rows have label 1; of padding any."""
    return tiles.positive if tiles.positive.dtype == bool else tiles.positive > 0


def _standardize(tiles: Tiles, standardization: Standardization) -> jax.Array:
    center, scale = (broadcast_to_rows(tiles, x) for x in standardization)
    return (tiles.scores - center) * scale
