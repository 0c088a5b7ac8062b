"""Flags: when each is raised, from the sums of a fit and not from its rows."""

from typing import Any, cast

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

# Flag.OUTLIER for many scores at one end: minimum share of the variance that scores at both ends
# have, and maximum distance of the others from the other end as a share of the range. The first
# pair is for an end that both classes share: a code for missing scores is one, an extreme score
# hardly ever. Neither flags one of 30,000 problems of normal, logistic, bimodal or uniform scores.
_FAR_CODES = ((0.5, 1 / 20), (0.9, 1 / 200))


def raised_flags(
    A: jax.Array, ranges: ScoreRanges, moments: tuple[Moments, Moments], options: Options
) -> jax.Array:
    """The flags of each problem: `Flag` values combined by bitwise or; 0 for non-finite rows.

    A is in any unit of the scores; the moments of the two classes are in the coordinates of the
    ranges.
    """
    pos, neg = moments
    n_pos, n_neg = pos.total, neg.total
    has_rows = (n_pos + n_neg) > 0
    low, high = ranges.overall()
    rough = range_standardization(ranges, centered=options.intercept)
    share = start.largest_share(ranges, rough, pos, neg)
    dominated = share >= _DOMINATING_SHARE
    flags = (
        (Flag.ONE_CLASS, has_rows & ~both_classes(n_pos, n_neg)),
        (Flag.CONSTANT_SCORES, has_rows & (low == high)),
        (Flag.SEPARABLE, separable(ranges, n_pos, n_neg, options)),
        (Flag.REVERSED, A > 0),
        (Flag.OUTLIER, dominated & (pos.rows + neg.rows >= _ROWS_TO_DOMINATE)),
    )
    bits = (jnp.where(~ranges.bad & raised, jnp.int32(flag), 0) for flag, raised in flags)
    return cast(jax.Array, sum(bits))


def far_code(ranges: ScoreRanges, moments: tuple[Moments, Moments], options: Options) -> jax.Array:
    """Flag.OUTLIER where many scores at one end of the range are far from all others, else 0.

    A mean m and ends a < b allow a variance of at most (m - a)(b - m), that of scores which are all
    at the ends (Bhatia & Davis 2000, "A better bound on the variance"). If scores at a have the
    share s of it, the others' mean is about (1 - s)(b - m) from b. Both need scores between.
    """
    pos, neg = moments
    low, high = ranges.overall()
    rough = range_standardization(ranges, centered=options.intercept)
    total = jnp.maximum(pos.total + neg.total, jnp.finfo(low.dtype).tiny)
    mean, second = (pos.first + neg.first) / total, (pos.second + neg.second) / total
    below, above = (jnp.abs((end - rough.center) * rough.scale - mean) for end in (low, high))
    most = below * above
    share = (second - mean * mean) / jnp.where(most > 0, most, jnp.inf)
    raised = jnp.zeros_like(low, bool)
    for first, last, across in (
        (ranges.low_pos, ranges.low_neg, above),
        (ranges.high_pos, ranges.high_neg, below),
    ):
        distance = (1 - share) * across / jnp.where(most > 0, below + above, 1)
        shared: Any = first == last
        for (least, bound), holds in zip(_FAR_CODES, (shared, True), strict=True):
            raised |= (share >= least) & (distance <= bound) & holds
    raised &= has_inner_scores(ranges) & (pos.rows + neg.rows >= _ROWS_TO_DOMINATE) & ~ranges.bad
    return jnp.where(raised, jnp.int32(Flag.OUTLIER), 0)


def has_inner_scores(ranges: ScoreRanges) -> jax.Array:
    """Whether a class begins or ends between the least and the greatest score."""
    low, high = ranges.overall()
    ends = ranges.low_pos, ranges.low_neg, ranges.high_pos, ranges.high_neg
    inner = [((low < end) & (end < high)).astype(jnp.int32) for end in ends]
    return sum(inner, start=jnp.zeros_like(inner[0])) > 0


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
