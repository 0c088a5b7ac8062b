"""The start of the search from moments of the scores: their standardization, and (A, B)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from platt_jax.model.objective import Point, Targets
from platt_jax.model.standardization import (
    Standardization,
    over_power_of_two,
    overlap_standardization,
    power_of_two_over,
)
from platt_jax.model.statistics import Moments, ScoreRanges


class ClassShape(NamedTuple):
    """Means and variance of the standardized scores of the two classes."""

    mean_pos: jax.Array
    mean_neg: jax.Array
    variance: jax.Array  # within the classes


def target_moments(moments: tuple[Moments, Moments], targets: Targets) -> tuple[Moments, Moments]:
    """Moments with a row of target t in class 1 with weight t, and in class 0 with weight 1 - t.

    A start from these is near the optimum for small problems too, whose targets are far from 0
    and 1. With 5 to 20 rows it is a tenth of a standard error off; by labels, six tenths.
    """

    def mix(share_pos: jax.Array, share_neg: jax.Array) -> Moments:
        return jax.tree.map(lambda p, n: share_pos * p + share_neg * n, *moments)

    return (
        mix(targets.positive, targets.negative),
        mix(targets.positive_complement, targets.negative_complement),
    )


def mirrored(pos: Moments, neg: Moments) -> tuple[Moments, Moments]:
    """The moments of the rows and of their mirror images, which have score -f and target 1 - t.

    Without an intercept, a row and its mirror image, which has the offset -o, have the same loss.
    The mean of all is then 0.
    """

    def join(one: Moments, other: Moments) -> Moments:
        offset = None if other.offset is None else -other.offset
        image = other._replace(first=-other.first, offset=offset)
        return jax.tree.map(jnp.add, one, image)

    return join(pos, neg), join(neg, pos)


def largest_share(
    ranges: ScoreRanges, rough: Standardization, pos: Moments, neg: Moments
) -> jax.Array:
    """The share of the scores' variance due to one score, the one farthest from the mean.

    This is a lower bound: the score is assumed to have the weight of the lightest row.
    """
    total = jnp.maximum(pos.total + neg.total, jnp.finfo(pos.total.dtype).tiny)
    mean, second = (pos.first + neg.first) / total, (pos.second + neg.second) / total
    low, high = ((end - rough.center) * rough.scale - mean for end in ranges.overall())
    farthest = jnp.maximum(jnp.abs(low), jnp.abs(high))
    sum_of_squares = total * (second - mean * mean)
    share = ranges.lightest * farthest * farthest
    return share / jnp.where(sum_of_squares > 0, sum_of_squares, jnp.inf)


def gaussian_start(
    shape: ClassShape, n_pos: jax.Array, n_neg: jax.Array, targets: Targets
) -> Point:
    """(A', B') for two normal densities with equal variance (Hastie & Tibshirani 1998).

    If the classes hardly overlap, that slope is unbounded. The targets bound it: the log-odds at
    the class means need not differ by more than the log-odds of Platt's targets. If there is no
    slope, B is the log-odds of the mean target, which is then the optimum.
    """
    apart = shape.mean_pos - shape.mean_neg
    # As few logarithms as possible: they take longer than everything else here.
    steepest = jnp.log((n_pos + 1) * (n_neg + 1)) / jnp.where(apart == 0, 1, jnp.abs(apart))
    defined = (n_pos > 0) & (n_neg > 0) & (shape.variance > 0)
    slope = jnp.where(defined, apart / jnp.where(defined, shape.variance, 1), 0)
    A = -jnp.clip(slope, -steepest, steepest)
    ones = n_pos * targets.positive + n_neg * targets.negative
    zeros = n_pos * targets.positive_complement + n_neg * targets.negative_complement
    mixed = (ones > 0) & (zeros > 0)
    B = jnp.log(jnp.where(mixed, zeros, n_neg + 1) / jnp.where(mixed, ones, n_pos + 1))
    return A, B - A * (shape.mean_pos + shape.mean_neg) / 2


def prior_start(n_pos: jax.Array, n_neg: jax.Array) -> Point:
    """(0, B) with the log-odds of the smoothed base rate: the start of Lin et al. (2007)."""
    return jnp.zeros_like(n_pos), jnp.log((n_neg + 1) / (n_pos + 1))


def with_far_scores(
    usual: Standardization,
    point: Point,
    line: Point | None,
    ranges: ScoreRanges,
    weight: jax.Array,
    intercept: bool,
) -> tuple[Standardization, Point, Point | None]:
    """The usual coordinates, start and line of offsets, or others: see `overlap_standardization`.

    A far score's log-odds approach the optimum from 0, as in exp(-z) + z, without rejected steps.
    The start is where its pull on the slope is still that of all other rows.
    """
    frame, sign = overlap_standardization(ranges, usual, intercept)
    widest = jnp.maximum(*(jnp.abs((end - frame.center) * frame.scale) for end in ranges.overall()))
    is_far = sign != 0
    z = jnp.log(jnp.maximum(ranges.lightest * widest / jnp.where(weight > 0, weight, 1), 2))
    A = jnp.where(is_far, sign * z / jnp.where(is_far, widest, 1), point[0])
    B = jnp.where(is_far, 0, point[1])
    if line is not None:
        line = jnp.where(is_far, 0, line[0]), jnp.where(is_far, 0, line[1])
    return frame, (A, B), line


def offset_line(pos: Moments, neg: Moments, rough: Standardization, own: Standardization) -> Point:
    """The line a g + b in the own coordinates that is nearest to the offsets.

    The curve of rows with offsets is about the curve of the same rows without, less this line of
    the log-odds. The start moves by it: A by a and B by b. If sums of offsets overflow, it is 0.
    The own coordinates have the mean of the scores at 0; the moments are in the rough ones.
    """
    total = jnp.maximum(pos.total + neg.total, jnp.finfo(pos.total.dtype).tiny)
    moments: Moments = jax.tree.map(lambda x, y: (x + y) / total, pos, neg)
    mean = moments.first
    offset: Any = moments.offset
    offset_first: Any = moments.offset_first
    variance = moments.second - mean * mean
    varies = variance > 4 * jnp.finfo(mean.dtype).eps * moments.second
    slope = jnp.where(varies, offset_first - offset * mean, 0) / jnp.where(varies, variance, 1)
    slope = slope * rough.scale * over_power_of_two(own.scale)
    finite = jnp.isfinite(slope) & jnp.isfinite(offset)
    return jnp.where(finite, slope, 0), jnp.where(finite, offset, 0)


def _mean(one_class: Moments) -> jax.Array:
    return one_class.first / jnp.where(one_class.total > 0, one_class.total, 1)


def _variance(one_class: Moments) -> jax.Array:
    mean = _mean(one_class)
    return one_class.second / jnp.where(one_class.total > 0, one_class.total, 1) - mean * mean


def moment_standardization(
    rough: Standardization, pos: Moments, neg: Moments
) -> tuple[Standardization, ClassShape]:
    """Coordinates in which the scores have mean 0 and a standard deviation of about 1.

    The moments of the two classes are in the coordinates `rough`.
    """
    n_pos, n_neg = pos.total, neg.total
    total = jnp.maximum(n_pos + n_neg, jnp.finfo(n_pos.dtype).tiny)
    mean = (pos.first + neg.first) / total
    second = (pos.second + neg.second) / total
    rounding = 4 * jnp.finfo(mean.dtype).eps * second
    variance = jnp.maximum(second - mean * mean, rounding)
    fine = power_of_two_over(jnp.sqrt(variance))

    mean_pos, mean_neg = _mean(pos) - mean, _mean(neg) - mean
    between = (n_pos * mean_pos * mean_pos + n_neg * mean_neg * mean_neg) / total
    # The pooled variance, or the mean of the classes' variances if that is larger: a rare class
    # hardly counts when pooled, and too steep a start costs more than one too gentle.
    within = jnp.maximum(variance - between, (_variance(pos) + _variance(neg)) / 2)
    within = jnp.maximum(within, rounding)
    # Not mean / scale: XLA combines two divisions into one, and the product may underflow.
    standardization = Standardization(
        rough.center + mean * over_power_of_two(rough.scale), rough.scale * fine
    )
    return standardization, ClassShape(mean_pos * fine, mean_neg * fine, within * fine * fine)
