"""Rows as tiles, and the pass over them: the only code that touches rows.

A tile row holds rows of data of a slice of G problems, as [8w, G]: each has w lanes, 8 deep. Small
problems lie side by side with a lane each, others have slices of their own. Consecutive tile rows
continue the same slice; `owner` says which. So problems of any sizes lie in arrays of one shape.
Whatever is not a row of data is padding and contributes exactly nothing. Its score says so: NaN at
first, and `far` once the scores are standardised, for what is finite times 0 is 0 without a mask.

Sums are taken of the lanes, [8, G, w], along the 8: XLA unrolls a reduction over up to 8
elements and vectorises over the lanes behind it. Five sums at once and the loss apart: five are one
fused loop with one exponential per row; a weighted loss as the sixth breaks the fusion and costs
several times the rest. Elementwise, the fewer axes the faster.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model import objective
from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.statistics import Moments, ScoreRanges, moment_terms, range_ends, summary
from platt_jax.options import Options
from platt_jax.passes.reductions import least, sum_together, sum_with_logs

DEPTH = 8  # rows of data per lane of a tile row

# Where there are more rows, the loop evaluates so many at a time: what its operations hand on to
# each other then stays in the second-level cache.
_AT_ONCE = 131_072

# For programs with passes: XLA takes to vectors of half the width on its own, and a float64 pass
# takes half the time by the full one.
COMPILER_OPTIONS = {"xla_cpu_prefer_vector_width": 512}

_DERIVATIVES: dict[str, Callable[..., Derivatives]] = {
    "analytic": objective.analytic_derivatives,
    "autodiff": objective.autodiff_derivatives,
}


class Tiles(NamedTuple):
    """The rows of S x G problems, on R tile rows."""

    scores: jax.Array  # [R, 8w, G]; infinite where a row is not finite
    positive: jax.Array  # [R, 8w, G] bool: whether the label is 1; anything in padding
    weights: jax.Array | None  # [R, 8w, G]
    owner: jax.Array  # [R] int32, ascending: the slice that a tile row belongs to
    heights: jax.Array  # [S] int32: the tile rows of each slice

    @property
    def grid(self) -> tuple[int, int]:
        """(S, G): the slices, and the problems of each."""
        return len(self.heights), self.scores.shape[2]


def far(dtype):
    """The score of padding among standardised scores, which cannot be so large.

    Its square is finite: XLA multiplies constants first, and infinity times 0 is not 0.
    """
    return jnp.asarray(2.0 ** (jnp.finfo(dtype).maxexp // 2 - 1), dtype)


def evaluate(tiles: Tiles, point, targets: Targets, derivatives: str) -> Derivatives:
    """The pass: gradient and Hessian of every problem at its point (A, B), each [S, G].

    Here and in the losses below the scores are standardised.
    """
    lanes = _evaluate_lanes(tiles, _of_tile_rows(tiles, point, targets), derivatives)
    return Derivatives(*_home(tiles, lanes))


def evaluate_wanted(tiles: Tiles, wanted, point, targets: Targets, derivatives: str) -> Derivatives:
    """`evaluate` for the problems that are wanted ([S, G] bool). Others' sums mean nothing.

    Of many tile rows only those are read that hold rows of such a problem, some at a time. A
    problem's sums are added up in the same order whatever its company.
    """
    of_problems = jnp.stack([*point, *targets], 1)

    def lanes(tiles):
        gathered = of_problems[tiles.owner]  # one gather for all six
        of_tile_rows = [gathered[:, i] for i in range(gathered.shape[1])]
        return _evaluate_lanes(tiles, of_tile_rows, derivatives)

    if tiles.scores.size <= _AT_ONCE:
        return Derivatives(*_home(tiles, lanes(tiles)))
    at_once = max(1, _AT_ONCE // tiles.scores[0].size)
    order, batches = _in_batches(tiles, jnp.any(wanted, 1), at_once)

    def add(i, sums):
        some = _take(tiles, lax.dynamic_slice_in_dim(order, i * at_once, at_once))
        terms = jnp.stack(sum_together(2, *lanes(some)), 1)
        return sums.at[some.owner].add(terms, indices_are_sorted=True, mode="drop")

    sums = lax.fori_loop(0, batches, add, jnp.zeros_like(of_problems[:, :5]))
    return Derivatives(*(sums[:, i] for i in range(5)))


def _in_batches(tiles, wanted, at_once):
    """The tile rows of the wanted slices, then one past the end; and how many batches they are."""
    tile_rows = len(tiles.owner)
    length = -(-tile_rows // at_once) * at_once
    numbers = jnp.arange(tile_rows, dtype=jnp.int32)
    idle = jnp.where(wanted, 0, tiles.heights)
    # A slice that is wanted moves up by what is idle before it, and what is idle out of the array.
    up = jnp.where(wanted, jnp.cumsum(idle, dtype=jnp.int32), -length)
    places = numbers - up.at[tiles.owner].get(mode="promise_in_bounds")
    order = jnp.full(length, tile_rows, jnp.int32).at[places].set(numbers, mode="drop")
    return order, -((jnp.sum(idle, dtype=jnp.int32) - tile_rows) // at_once)


def _take(tiles, numbers):
    """The tile rows of these numbers; one past the end is of no slice."""

    def take(x):
        return None if x is None else x.at[numbers].get(mode="clip")

    return tiles._replace(
        scores=take(tiles.scores),
        positive=take(tiles.positive),
        weights=take(tiles.weights),
        owner=tiles.owner.at[numbers].get(mode="fill", fill_value=tiles.grid[0]),
    )


def _evaluate_lanes(tiles, of_tile_rows, derivatives):
    """The sums per lane; see `_of_tile_rows`."""
    tiles = _in_lanes(tiles)
    weight = 1 if tiles.weights is None else tiles.weights
    terms = _DERIVATIVES[derivatives](*_row_arguments(tiles, of_tile_rows), weight)
    return _sum_depth(*terms)


def nll(tiles: Tiles, point, targets: Targets):
    """The loss of every problem at its point (A, B), in nats, [S, G]."""
    return sum(_home(tiles, _nll_lanes(tiles, point, targets)))


def nll_change(tiles: Tiles, before, after, targets: Targets):
    """The loss at the point after minus that at the point before, lane by lane, [S, G]."""
    new, old = (_nll_lanes(tiles, point, targets) for point in (after, before))
    return sum(_home(tiles, [n - o for n, o in zip(new, old, strict=True)]))


def moments(tiles: Tiles, center, scale) -> tuple[Moments, Moments]:
    """The moments of the scores with label 1, and of those with label 0."""
    tiles = _in_lanes(tiles)
    g = (tiles.scores - on_rows(tiles, center)) * on_rows(tiles, scale)
    counts = present(tiles)
    if tiles.weights is not None:
        # The total has a derivative by a weight of 0; a score of weight 0 may be out of range.
        counts = tiles.weights > 0
        g = jnp.where(counts, g, 0)
    classes = [_of_class(tiles, label) for label in (True, False)]
    terms = moment_terms(g, tiles.weights, counts, classes)
    sums = _home(tiles, _sum_depth(*terms))
    of_pos, of_neg = sums[: len(terms) // 2], sums[len(terms) // 2 :]
    if tiles.weights is None:
        # A count has no derivative, but JAX would carry zeros back to every row.
        of_pos, of_neg = (
            [lax.stop_gradient(n), *rest, lax.stop_gradient(n)] for n, *rest in (of_pos, of_neg)
        )
    return Moments(*of_pos), Moments(*of_neg)


def look(tiles: Tiles, options: Options) -> ScoreRanges:
    """What there is to know before the scores can be summed up."""
    return summarise(lax.stop_gradient(_drop_absent(tiles, options)))


def summable(tiles: Tiles, options: Options) -> Tiles:
    """The tiles after the look: all rows that are not finite are gone."""
    tiles = _drop_absent(tiles, options)
    return drop(tiles, bad_rows(tiles))


def _drop_absent(tiles, options):
    """Rows that are not finite are gone if their weight is 0, or with non_finite="omit".

    Other rows of weight 0 stay: they add nothing, but the fit has a derivative by their weight.
    """
    bad = bad_rows(tiles)
    if options.non_finite == "omit":
        return drop(tiles, bad)
    return tiles if tiles.weights is None else drop(tiles, bad & (tiles.weights == 0))


def summarise(tiles: Tiles) -> ScoreRanges:
    """The ranges of the scores by class, and which problems hold a row that is not finite."""
    tiles = _in_lanes(tiles)
    inf = jnp.asarray(jnp.inf, tiles.scores.dtype)
    bad = jnp.where(bad_rows(tiles), -inf, 0)
    if tiles.weights is None:
        lanes = least(1, bad, *_range_ends(tiles))
    else:
        # In two, for XLA would not make one loop of it that takes several rows at once.
        counts = tiles.weights > 0
        bad, lightest = least(1, bad, jnp.where(counts, tiles.weights, inf))
        heavy = tiles._replace(scores=jnp.where(counts, tiles.scores, jnp.nan))
        lanes = [bad, *least(1, *_range_ends(heavy)), lightest]
    ends = _by_slice(jax.ops.segment_min, tiles, least(2, *lanes))
    return summary(*ends)


def _range_ends(tiles):
    return range_ends(tiles.scores, [_of_class(tiles, label) for label in (True, False)])


def _of_class(tiles, label):
    """Which rows are of this class."""
    return present(tiles) & (tiles.positive == label)


def present(tiles: Tiles):
    """Which places hold a row of data, as long as scores are not standardised."""
    return ~jnp.isnan(tiles.scores)


def bad_rows(tiles: Tiles):
    """Which rows are not finite."""
    bad = jnp.isinf(tiles.scores)
    return bad if tiles.weights is None else bad | ~jnp.isfinite(tiles.weights)


def drop(tiles: Tiles, rows) -> Tiles:
    """The tiles with these rows turned into padding."""
    weights = tiles.weights
    return tiles._replace(
        scores=jnp.where(rows, jnp.nan, tiles.scores),
        weights=None if weights is None else jnp.where(rows, 0, weights),
    )


def standardise(tiles: Tiles, center, scale) -> Tiles:
    """The tiles with scores (f - center) * scale, fit to be evaluated."""
    g = (tiles.scores - on_rows(tiles, center)) * on_rows(tiles, scale)
    return tiles._replace(scores=jnp.where(present(tiles), g, far(g.dtype)))


def on_rows(tiles: Tiles, per_problem):
    """[S, G] as [R, 1, G], to meet the rows of the problems; in lanes [R, 1, G, 1]."""
    return _along_rows(tiles, per_problem[tiles.owner])


def _along_rows(tiles, per_tile_row):
    """[R, G] likewise."""
    in_rows = per_tile_row[:, None]
    return in_rows if tiles.scores.ndim == 3 else in_rows[..., None]


def _in_lanes(tiles):
    """The tiles with arrays [R, 8, G, w], to be reduced along the depth."""
    tile_rows, rows, group = tiles.scores.shape  # rows is 8, or group 1

    def view(x):
        return None if x is None else x.reshape(tile_rows, DEPTH, group, rows // DEPTH)

    return tiles._replace(
        scores=view(tiles.scores), positive=view(tiles.positive), weights=view(tiles.weights)
    )


def _of_tile_rows(tiles, point, targets):
    """A, B and the targets of every tile row and problem, each [R, G]."""
    return [x[tiles.owner] for x in (*point, *targets)]


def _row_arguments(tiles, of_tile_rows):
    """What the functions of `objective` take, for every row."""
    A, B, *of_classes = (_along_rows(tiles, x) for x in of_tile_rows)
    f = tiles.scores
    return A, B, f, tiles.positive, Targets(*of_classes), f < far(f.dtype)


def _nll_lanes(tiles, point, targets):
    tiles = _in_lanes(tiles)
    row = _row_arguments(tiles, _of_tile_rows(tiles, point, targets))
    if tiles.weights is None:
        return sum_with_logs(*objective.nll_factors(*row))
    # Weight 0 times an overflowing loss is to be 0. And not by factors: a heavy row that is fitted
    # well would lose its loss to rounding.
    terms = (jnp.where(tiles.weights == 0, 0, tiles.weights * x) for x in objective.nll(*row))
    return _sum_depth(*terms)


def _home(tiles, lanes):
    """Several sums per lane, each [R, G, w], brought home to their problems, each [S, G]."""
    return _by_slice(jax.ops.segment_sum, tiles, sum_together(2, *lanes))


def _by_slice(segment_reduction, tiles, tile_rows):
    """Several numbers per tile row and problem, each [R, G], reduced to [S, G] in one go."""
    together, slices = jnp.stack(tile_rows, 1), tiles.grid[0]
    reduced = segment_reduction(together, tiles.owner, slices, indices_are_sorted=True)
    return [reduced[:, i] for i in range(len(tile_rows))]


def _sum_depth(*terms):
    """The sums per lane, each [R, G, w], of terms [R, 8, G, w]."""
    return sum_together(1, *terms)
