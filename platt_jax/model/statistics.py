"""Statistics that a search needs of the rows: ranges and moments of the scores by class.

Every kind of rows reduces the same terms, each in its own way.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class ScoreRanges(NamedTuple):
    """The score range of each class, and whether all rows are finite; arrays of one shape."""

    bad: jax.Array  # whether a score, a weight or an offset is not finite
    low_pos: jax.Array  # smallest score with label 1; inf without such a row
    high_pos: jax.Array  # largest score with label 1; -inf without such a row
    low_neg: jax.Array
    high_neg: jax.Array
    lightest: jax.Array  # smallest weight above 0; 1 if rows have no weights
    widest_offset: jax.Array | None = None  # largest absolute offset; None if rows have none

    def overall(self) -> tuple[jax.Array, jax.Array]:
        """The smallest and the largest score, or 0 if there is no score."""
        low = jnp.minimum(self.low_pos, self.low_neg)
        high = jnp.maximum(self.high_pos, self.high_neg)
        return jnp.where(jnp.isfinite(low), low, 0), jnp.where(jnp.isfinite(high), high, 0)


def range_terms(
    bad: jax.Array,
    scores: jax.Array,
    classes: Sequence[jax.Array],
    weights: jax.Array | None = None,
    offset: jax.Array | None = None,
) -> list[jax.Array]:
    """Terms whose minima give the ranges, in the order of the fields of `ScoreRanges`.

    Weights of rows that do not count are infinite, and their offsets 0.
    """
    ends = [jnp.where(is_class, sign * scores, jnp.inf) for is_class in classes for sign in (1, -1)]
    bad = jnp.where(bad, -1, 0).astype(scores.dtype)
    weight_terms = [] if weights is None else [weights]
    return [bad, *ends, *weight_terms, *([] if offset is None else [-jnp.abs(offset)])]


def ranges_of_minima(minima: Sequence[jax.Array], has_offset: bool = False) -> ScoreRanges:
    """The ranges, from the minima of `range_terms`."""
    widest_offset = None
    if has_offset:
        *minima, least = minima
        widest_offset = -least
    bad, low_pos, high_pos, low_neg, high_neg, *weights = minima
    lightest = weights[0] if weights else jnp.ones_like(bad)
    return ScoreRanges(bad < 0, low_pos, -high_pos, low_neg, -high_neg, lightest, widest_offset)


def union(parts: Sequence[ScoreRanges]) -> ScoreRanges:
    """The ranges of all rows, from the ranges of parts of them; on the host."""
    return joined(jax.tree.map(lambda *field: np.stack(field), *parts))


def joined(each: ScoreRanges) -> ScoreRanges:
    """The ranges of all rows, from the ranges of parts, which are the leading axis."""
    return ScoreRanges(
        bad=each.bad.any(0),
        low_pos=each.low_pos.min(0),
        high_pos=each.high_pos.max(0),
        low_neg=each.low_neg.min(0),
        high_neg=each.high_neg.max(0),
        lightest=each.lightest.min(0),
        widest_offset=None if each.widest_offset is None else each.widest_offset.max(0),
    )


class Moments(NamedTuple):
    """Weighted sums over the rows of one class, of g = (score - center) * scale."""

    total: jax.Array  # sum of 1
    first: jax.Array  # sum of g
    second: jax.Array  # sum of g * g
    rows: jax.Array  # number of rows with a weight above 0
    offset: jax.Array | None = None  # sum of the offsets o; None if rows have none
    offset_first: jax.Array | None = None  # sum of o * g


def moment_terms(
    g: jax.Array,
    weights: jax.Array | None,
    counts: jax.Array,
    classes: Sequence[jax.Array],
    offset: jax.Array | None = None,
) -> list[jax.Array]:
    """Terms whose sums give the moments of each class. Without weights, `rows` is left out."""
    if weights is None:
        powers = [jnp.ones_like(g), g, g * g]
    else:
        powers = [weights, weights * g, weights * g * g, counts.astype(g.dtype)]
    if offset is not None:
        weighted = offset if weights is None else weights * offset
        powers += [weighted, weighted * g]
    return [jnp.where(is_class, power, 0) for is_class in classes for power in powers]


def number_of_moments(weighted: bool, has_offset: bool) -> int:
    """The number of `moment_terms` of both classes."""
    return 2 * (3 + weighted + 2 * has_offset)


def moments_of_sums(sums: Sequence[jax.Array], has_offset: bool = False) -> tuple[Moments, Moments]:
    """The moments of both classes, from the sums of `moment_terms`."""
    number = len(sums) // 2

    def moments_of_class(sums: Sequence[jax.Array]) -> Moments:
        split = len(sums) - 2 * has_offset
        score_sums, offset_sums = sums[:split], sums[split:]
        return Moments(*(*score_sums, score_sums[0])[:4], *offset_sums)

    return moments_of_class(sums[:number]), moments_of_class(sums[number:])


def quartiles(scores: Any, weights: Any, xp: Any) -> Any:
    """(4,), the quartiles and the standard deviation of scores, by `xp` numpy or jax.numpy.

    Weight 2 is the row twice. In ascending order a row covers the places of its copies, or the
    middle of its share if its weight is below 1; between rows the score is interpolated. For
    weights of 1 these are the quantiles of Hyndman & Fan (1996), type 7. Rows of weight 0 and rows
    that are not finite are left out.
    """
    counts = xp.isfinite(scores) & xp.isfinite(weights) & (weights > 0)
    order = xp.argsort(xp.where(counts, scores, xp.inf))
    f, w = (xp.where(counts, x, 0)[order] for x in (scores, weights))
    ends, half = xp.cumsum(w), xp.minimum(w, 1) / 2
    first, last = ends - w + half, ends - half
    low, high = first[0], xp.max(xp.where(w > 0, last, -xp.inf))
    positions = low + (high - low) * xp.array([0.25, 0.5, 0.75])
    values = xp.interp(positions, xp.stack([first, last], -1).ravel(), xp.repeat(f, 2))
    mean = xp.sum(w * f) / ends[-1]
    deviation = xp.sqrt(xp.sum(w * (f - mean) ** 2) / ends[-1])
    return xp.append(values, deviation)
