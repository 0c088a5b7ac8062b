"""Statistics that a search needs of the rows: ranges and moments of the scores by class.

Every kind of rows reduces the same terms, each in its own way.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class ScoreRanges(NamedTuple):
    """The score range of each class, and whether all rows are finite; arrays of one shape."""

    bad: jax.Array  # whether a score or a weight is not finite
    low_pos: jax.Array  # smallest score with label 1; inf without such a row
    high_pos: jax.Array  # largest score with label 1; -inf without such a row
    low_neg: jax.Array
    high_neg: jax.Array
    lightest: jax.Array  # smallest weight above 0; 1 if rows have no weights

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
) -> list[jax.Array]:
    """Terms whose minima give the ranges, in the order of the fields of `ScoreRanges`.

    Args:
        bad: which rows are not finite.
        scores: scores of the rows.
        classes: which rows are of class 1, and which are of class 0.
        weights: weights of the rows, infinite for rows that do not count.
    """
    ends = [jnp.where(of_class, sign * scores, jnp.inf) for of_class in classes for sign in (1, -1)]
    bad = jnp.where(bad, -1, 0).astype(scores.dtype)
    return [bad, *ends] if weights is None else [bad, *ends, weights]


def ranges_of_minima(
    bad: jax.Array,
    low_pos: jax.Array,
    high_pos: jax.Array,
    low_neg: jax.Array,
    high_neg: jax.Array,
    lightest: jax.Array | None = None,
) -> ScoreRanges:
    """The ranges, from the minima of `range_terms`."""
    lightest = jnp.ones_like(bad) if lightest is None else lightest
    return ScoreRanges(bad < 0, low_pos, -high_pos, low_neg, -high_neg, lightest)


def union(parts: Sequence[ScoreRanges]) -> ScoreRanges:
    """The ranges of all rows, from the ranges of parts of them; on the host."""
    each = jax.tree.map(lambda *field: np.stack(field), *parts)
    return ScoreRanges(
        bad=each.bad.any(0),
        low_pos=each.low_pos.min(0),
        high_pos=each.high_pos.max(0),
        low_neg=each.low_neg.min(0),
        high_neg=each.high_neg.max(0),
        lightest=each.lightest.min(0),
    )


class Moments(NamedTuple):
    """Weighted sums over the rows of one class, of g = (score - center) * scale."""

    total: jax.Array  # sum of 1
    first: jax.Array  # sum of g
    second: jax.Array  # sum of g * g
    rows: jax.Array  # number of rows with a weight above 0


def moment_terms(
    g: jax.Array, weights: jax.Array | None, counts: jax.Array, classes: Sequence[jax.Array]
) -> list[jax.Array]:
    """Terms whose sums give the moments of each class. Without weights, `rows` is left out."""
    if weights is None:
        powers = [jnp.ones_like(g), g, g * g]
    else:
        powers = [weights, weights * g, weights * g * g, counts.astype(g.dtype)]
    return [jnp.where(of_class, power, 0) for of_class in classes for power in powers]


def moments_of_sums(sums: Sequence[jax.Array]) -> tuple[Moments, Moments]:
    """The moments of both classes, from the sums of `moment_terms`."""
    number = len(sums) // 2
    of_pos, of_neg = ((*of_class, of_class[0])[:4] for of_class in (sums[:number], sums[number:]))
    return Moments(*of_pos), Moments(*of_neg)
