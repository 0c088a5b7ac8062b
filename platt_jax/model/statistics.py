"""What a search must know of the rows before it begins: ranges and moments of the scores by class.

Tiles and strips reduce the same terms, each in their way.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Summary(NamedTuple):
    """What one look at the rows tells of each problem; arrays of one shape."""

    bad: jax.Array  # whether a score or a weight is not finite
    low_pos: jax.Array  # smallest score with label 1; inf without such a row
    high_pos: jax.Array  # largest score with label 1; -inf without such a row
    low_neg: jax.Array
    high_neg: jax.Array
    lightest: jax.Array  # smallest weight above 0; 1 where rows have none


class Moments(NamedTuple):
    """Weighted sums over the rows of one class, of g = (score - center) * scale."""

    total: jax.Array  # sum of 1
    first: jax.Array  # sum of g
    second: jax.Array  # sum of g * g
    rows: jax.Array  # how many of them have a weight


def range_ends(scores, classes) -> list:
    """For the least and the greatest score of each class, what the least is to be taken of."""
    return [jnp.where(of_class, sign * scores, jnp.inf) for of_class in classes for sign in (1, -1)]


def summary(bad, low_pos, high_pos, low_neg, high_neg, lightest=None) -> Summary:
    """What the least of the terms tell: below 0 where a row is bad, `range_ends`, weights."""
    if lightest is None:
        lightest = jnp.ones_like(bad)
    return Summary(bad < 0, low_pos, -high_pos, low_neg, -high_neg, lightest)


def moment_terms(g, weights, counts, classes) -> list:
    """What the moments of each class are the sums of; without weights the last is the first."""
    if weights is None:
        powers = [jnp.ones_like(g), g, g * g]
    else:
        powers = [weights, weights * g, weights * g * g, counts.astype(g.dtype)]
    return [jnp.where(of_class, power, 0) for of_class in classes for power in powers]
