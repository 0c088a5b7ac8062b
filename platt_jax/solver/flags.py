"""Flags: when each is raised, from the sums of a fit and not from its rows."""

from typing import cast

import jax
import jax.numpy as jnp

from platt_jax.model import start
from platt_jax.model.standardization import range_standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.status import Flag

# Flag.OUTLIER: minimum share of the variance, and minimum number of rows. One of 20 normal scores
# has such a share in 2 of a million problems, and more rarely among more scores: the share of one
# of n scores is nearly Beta(1/2, (n - 2) / 2) distributed.
_DOMINATING_SHARE = 0.8
_ROWS_TO_DOMINATE = 20


def raised_flags(
    A: jax.Array, ranges: ScoreRanges, moments: tuple[Moments, Moments], options: Options
) -> jax.Array:
    """The flags of each problem: `Flag` values combined by bitwise or; 0 for non-finite rows.

    A is in any unit of the scores; the moments of the two classes are in the coordinates of the
    ranges.
    """
    pos, neg = moments
    n_pos, n_neg = pos.total, neg.total
    some = (n_pos + n_neg) > 0
    low, high = ranges.overall()
    rough = range_standardization(ranges, centered=options.intercept)
    share = start.largest_share(ranges, rough, pos, neg)
    dominated = share >= _DOMINATING_SHARE
    flags = (
        (Flag.ONE_CLASS, some & ~both_classes(n_pos, n_neg)),
        (Flag.CONSTANT_SCORES, some & (low == high)),
        (Flag.SEPARABLE, separable(ranges, n_pos, n_neg, options)),
        (Flag.REVERSED, A > 0),
        (Flag.OUTLIER, dominated & (pos.rows + neg.rows >= _ROWS_TO_DOMINATE)),
    )
    bits = (jnp.where(~ranges.bad & raised, jnp.int32(flag), 0) for flag, raised in flags)
    return cast(jax.Array, sum(bits))


def both_classes(n_pos: jax.Array, n_neg: jax.Array) -> jax.Array:
    """Whether both labels have rows of positive weight."""
    return (n_pos > 0) & (n_neg > 0)


def separable(
    ranges: ScoreRanges, n_pos: jax.Array, n_neg: jax.Array, options: Options
) -> jax.Array:
    """Whether a threshold splits the classes, ties included; it is 0 without an intercept."""
    if not options.intercept:
        return both_classes(n_pos, n_neg) & separated_at_zero(ranges)
    low, high = ranges.overall()
    apart = (ranges.high_neg <= ranges.low_pos) | (ranges.high_pos <= ranges.low_neg)
    return both_classes(n_pos, n_neg) & apart & (low < high)


def separated_at_zero(ranges: ScoreRanges) -> jax.Array:
    """Whether 0 splits the classes or bounds the only class; False if all scores are 0."""
    low, high = ranges.overall()
    rising = (ranges.high_neg <= 0) & (ranges.low_pos >= 0)
    falling = (ranges.high_pos <= 0) & (ranges.low_neg >= 0)
    return (rising | falling) & ((low < 0) | (high > 0))
