"""Rows as tiles, and the pass over them: the only code that touches rows.

A tile row holds 8 x lanes rows of data, as [8, G, w]: G problems side by side (a slice), w lanes
each. Consecutive tile rows continue the same slice; `owner` says which. So problems of any sizes
lie in arrays of one shape: tiny ones with w = 1 and G neighbours, large ones with G = 1.
Whatever is not a row of data is padding and contributes exactly nothing (`objective.PAD`).

Why 8: XLA unrolls a reduction over up to 8 elements and vectorises over the lanes behind it.
Why five sums at once and the loss apart: five are one fused loop with one exponential per row; a
weighted loss as the sixth breaks the fusion and costs several times the rest.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax import objective
from platt_jax.objective import PAD, Derivatives, Targets

DEPTH = 8  # rows of data per lane of a tile row
LANES = 128  # lanes of a tile row, G * w

# The label of a row whose label is not finite.
BAD_LABEL = -2

_DERIVATIVES: dict[str, Callable[..., Derivatives]] = {
    "analytic": objective.analytic_derivatives,
    "autodiff": objective.autodiff_derivatives,
}


class Tiles(NamedTuple):
    """The rows of S x G problems, on R tile rows."""

    scores: jax.Array  # [R, 8, G, w]
    labels: jax.Array  # [R, 8, G, w] int8: 1, 0, PAD or BAD_LABEL
    weights: jax.Array | None  # [R, 8, G, w]
    owner: jax.Array  # [R] int32, ascending: the slice that a tile row belongs to
    slices: jax.Array  # [S]: as many as there are slices, the values do not matter


class Summary(NamedTuple):
    """What one look at the rows tells of each problem; all [S, G]."""

    bad: jax.Array  # whether a score, label or weight is not finite
    low_pos: jax.Array  # smallest score with label 1; inf without such a row
    high_pos: jax.Array  # largest score with label 1; -inf without such a row
    low_neg: jax.Array
    high_neg: jax.Array


class Moments(NamedTuple):
    """Sums over the rows of one class, of g = (score - center) * scale; all [S, G]."""

    first: jax.Array
    second: jax.Array


def evaluate(tiles: Tiles, point, targets: Targets, derivatives: str) -> Derivatives:
    """The pass: gradient and Hessian of every problem at its point (A, B), each [S, G]."""
    row, weight = (
        _row_arguments(tiles, point, targets),
        1 if tiles.weights is None else tiles.weights,
    )
    terms = _DERIVATIVES[derivatives](*row, weight)
    return Derivatives(*(_home(tiles, lanes) for lanes in _sum_depth(*terms)))


def nll(tiles: Tiles, point, targets: Targets):
    """The loss of every problem at its point (A, B), in nats, [S, G]."""
    return _home(tiles, _nll_lanes(tiles, point, targets))


def nll_change(tiles: Tiles, before, after, targets: Targets):
    """The loss at the point after minus that at the point before, lane by lane, [S, G]."""
    new, old = (_nll_lanes(tiles, point, targets) for point in (after, before))
    return _home(tiles, new - old)


def counts(tiles: Tiles):
    """The weighted counts (n_pos, n_neg) of the two classes, each [S, G]."""
    dtype = tiles.scores.dtype
    return _sums(tiles, (tiles.labels == 1).astype(dtype), (tiles.labels == 0).astype(dtype))


def moments(tiles: Tiles, center, scale) -> tuple[Moments, Moments]:
    """The moments of the scores with label 1, and of those with label 0."""
    g = (tiles.scores - on_rows(tiles, center)) * on_rows(tiles, scale)
    g_pos, g_neg = (jnp.where(_of_class(tiles, label), g, 0) for label in (1, 0))
    sums = _sums(tiles, g_pos, g_pos * g_pos, g_neg, g_neg * g_neg)
    return Moments(*sums[:2]), Moments(*sums[2:])


def summarise(tiles: Tiles) -> Summary:
    """The ranges of the scores by class, and which problems hold a row that is not finite."""
    f, inf = tiles.scores, jnp.asarray(jnp.inf, tiles.scores.dtype)
    lows_highs = [
        jnp.where(_of_class(tiles, label), sign * f, inf) for label in (1, 0) for sign in (1, -1)
    ]
    operands = [jnp.where(bad_rows(tiles), -inf, 0), *lows_highs]
    lanes = lax.reduce(
        operands, [inf] * 5, lambda a, b: tuple(map(jnp.minimum, a, b)), dimensions=(1,)
    )
    tile_rows = jnp.stack([lane.min(-1) for lane in lanes], -1)
    least = jax.ops.segment_min(
        tile_rows, tiles.owner, tiles.slices.shape[0], indices_are_sorted=True
    )
    bad, low_pos, high_pos, low_neg, high_neg = jnp.moveaxis(least, -1, 0)
    return Summary(bad < 0, low_pos, -high_pos, low_neg, -high_neg)


def _of_class(tiles, label):
    """Which rows count for this class."""
    rows = tiles.labels == label
    return rows if tiles.weights is None else rows & (tiles.weights > 0)


def bad_rows(tiles: Tiles):
    """Which rows are not finite, [R, 8, G, w]."""
    bad = ~jnp.isfinite(tiles.scores) | (tiles.labels == BAD_LABEL)
    if tiles.weights is not None:
        bad = bad | ~jnp.isfinite(tiles.weights)
    return bad & (tiles.labels != PAD)


def drop(tiles: Tiles, rows) -> Tiles:
    """The tiles with these rows ([R, 8, G, w], or broadcastable to it) turned into padding."""
    weights = tiles.weights
    return tiles._replace(
        scores=jnp.where(rows, 0, tiles.scores),
        labels=jnp.where(rows, jnp.int8(PAD), tiles.labels),
        weights=None if weights is None else jnp.where(rows, 0, weights),
    )


def standardise(tiles: Tiles, center, scale) -> Tiles:
    """The tiles with scores (f - center) * scale, padding left at 0."""
    g = (tiles.scores - on_rows(tiles, center)) * on_rows(tiles, scale)
    return tiles._replace(scores=jnp.where(tiles.labels == PAD, 0, g))


def on_rows(tiles: Tiles, per_problem):
    """[S, G] as [R, 1, G, 1], to meet the rows of the problems."""
    return per_problem[tiles.owner][:, None, :, None]


def _row_arguments(tiles, point, targets):
    """What the functions of `objective` take, for every row."""
    A, B = (on_rows(tiles, parameter) for parameter in point)
    return A, B, tiles.scores, tiles.labels, Targets(*(on_rows(tiles, t) for t in targets))


def _nll_lanes(tiles, point, targets):
    row = _row_arguments(tiles, point, targets)
    if tiles.weights is None:
        return _sum_minus_log_product(*objective.nll_factors(*row))
    linear, rest = objective.nll(*row)
    # Two sums, added afterwards: XLA is slow at a reduction of one operand over the depth alone.
    # Weight 0 times an overflowing loss is to be 0.
    weighted = [jnp.where(tiles.weights == 0, 0, tiles.weights * term) for term in (linear, rest)]
    return sum(_sum_depth(*weighted))


def _sums(tiles, *terms):
    """The weighted sums of the terms over the rows of each problem, each [S, G]."""
    if tiles.weights is not None:
        terms = tuple(tiles.weights * term for term in terms)
    return [_home(tiles, lanes) for lanes in _sum_depth(*terms)]


def _home(tiles, lanes):
    """Sums per lane, [R, G, w], brought home to their problems, [S, G]."""
    return jax.ops.segment_sum(
        lanes.sum(-1), tiles.owner, tiles.slices.shape[0], indices_are_sorted=True
    )


# The two reductions below have derivative rules of their own because JAX has none for a reduction
# of several operands at once. Tangents take the plain sums, which JAX can transpose.


@jax.custom_jvp
def _sum_depth(*terms):
    """Sums over axis 1, all of them in one fused loop."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(lax.reduce(terms, zeros, _add_all, dimensions=(1,)))


@_sum_depth.defjvp
def _sum_depth_jvp(primals, tangents):
    return _sum_depth(*primals), tuple(jnp.sum(tangent, axis=1) for tangent in tangents)


@jax.custom_jvp
def _sum_minus_log_product(linear, q):
    """sum(linear) - sum(log(q)) over axis 1, with one logarithm for all the q in [1/2, 2]."""
    start = (jnp.zeros((), linear.dtype), jnp.ones((), q.dtype))
    total, product = lax.reduce((linear, q), start, _add_multiply, dimensions=(1,))
    return total - jnp.log(product)


@_sum_minus_log_product.defjvp
def _sum_minus_log_product_jvp(primals, tangents):
    (linear_dot, q_dot), (_, q) = tangents, primals
    return _sum_minus_log_product(*primals), jnp.sum(linear_dot - q_dot / q, axis=1)


def _add_all(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _add_multiply(a, b):
    return a[0] + b[0], a[1] * b[1]
