"""A problem's own coordinates: scores are centred and scaled for the fit, results mapped back.

This makes the fit affine invariant: scores times 1e-8, or shifted by 1e6, give the same
probabilities. The optimum does not depend on the coordinates, so no derivative flows through them.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model.objective import Derivatives, Point
from platt_jax.model.statistics import ScoreRanges


class Standardization(NamedTuple):
    """g = (f - center) * scale, so that A = scale A' and B = B' - center A.

    The scale is a power of two: then only the subtraction rounds.
    """

    center: jax.Array
    scale: jax.Array


def range_standardization(ranges: ScoreRanges, centered: bool = True) -> Standardization:
    """Coordinates in which the scores lie in [-1, 1]; if not centered, scores are only scaled."""
    low, high = ranges.overall()
    if not centered:
        return Standardization(jnp.zeros_like(low), power_of_two_over(jnp.maximum(-low, high)))
    # Halved before combining: the range of finite scores may overflow.
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    return Standardization(middle, power_of_two_over(half))


def overlap_standardization(
    ranges: ScoreRanges, usual: Standardization, centered: bool = True
) -> tuple[Standardization, jax.Array]:
    """Coordinates of the scores that both classes share, if all others are far from these.

    Far scores of one class, such as a code for missing values, cost nothing with a slope that
    separates them: the other rows decide it. In the usual coordinates, in which far scores are
    near, rounding puts the other rows at one place. Also returns the sign of A that separates the
    far scores; 0 if the coordinates are the usual ones.
    """
    half, falling, rising = _overlaps(ranges, centered)
    close = float(jnp.finfo(half.dtype).eps) ** 0.4 * half
    chosen = usual, jnp.zeros_like(half)
    for sign, (start, end) in (1.0, falling), (-1.0, rising):
        width = end / 2 - start / 2
        mask = (width < close) & (width > _least_width(half))
        frame = Standardization(start / 2 + end / 2, power_of_two_over(width))
        chosen = jax.tree.map(partial(jnp.where, mask), (frame, jnp.full_like(half, sign)), chosen)
    return chosen


def far_scores_hide_others(ranges: ScoreRanges, centered: bool = True) -> jax.Array:
    """Whether scores of one class are too far from all others for `overlap_standardization`."""
    half, *overlaps = _overlaps(ranges, centered)
    falling, rising = (end / 2 - start / 2 for start, end in overlaps)
    least = _least_width(half)
    return ((rising > 0) & (rising <= least)) | ((falling > 0) & (falling <= least))


def _least_width(half: jax.Array) -> jax.Array:
    """Least half-width of an overlap: squares are finite, also times the least curvature."""
    return 2.0 ** (8 - jnp.finfo(half.dtype).maxexp // 2) * half


def _overlaps(ranges: ScoreRanges, centered: bool) -> tuple[jax.Array, Point, Point]:
    """Half the range of the scores; where the classes overlap if A > 0, and if A < 0."""
    low, high = ranges.overall()
    if centered:
        falling, rising = (ranges.low_neg, ranges.high_pos), (ranges.low_pos, ranges.high_neg)
        return high / 2 - low / 2, falling, rising
    wrong = jnp.maximum(-ranges.low_pos, ranges.high_neg)
    right = jnp.maximum(ranges.high_pos, -ranges.low_neg)
    return jnp.maximum(-low, high), (-right, right), (-wrong, wrong)


def to_original(standardization: Standardization, A: jax.Array, B: jax.Array) -> Point:
    """(A, B) for the original scores."""
    A = A * standardization.scale
    return A, B - A * standardization.center


def to_standardized(standardization: Standardization, A: jax.Array, B: jax.Array) -> Point:
    """(A', B') for the standardized scores."""
    return A * over_power_of_two(standardization.scale), B + A * standardization.center


def derivatives_to_standardized(standardization: Standardization, at: Derivatives) -> Derivatives:
    """Maps derivatives by (A, B) to derivatives by (A', B')."""
    center, scale = standardization.center, standardization.scale
    h_AB = at.h_AB - center * at.h_BB
    return Derivatives(
        g_A=scale * (at.g_A - center * at.g_B),
        g_B=at.g_B,
        h_AA=scale * (scale * (at.h_AA - center * (at.h_AB + h_AB))),
        h_AB=scale * h_AB,
        h_BB=at.h_BB,
    )


def derivatives_to_original(
    standardization: Standardization, at: Derivatives
) -> tuple[jax.Array, jax.Array]:
    """Gradient (..., 2) and Hessian (..., 2, 2) by (A, B), from f = g / scale + center."""
    center, unit = standardization.center, 1 / standardization.scale
    gradient = jnp.stack([at.g_A * unit + center * at.g_B, at.g_B], -1)
    h_AB = at.h_AB * unit + center * at.h_BB
    h_AA = (at.h_AA * unit + 2 * center * at.h_AB) * unit + center * center * at.h_BB
    return gradient, _matrix(h_AA, h_AB, h_AB, at.h_BB)


def covariance_to_original(
    standardization: Standardization, at: Derivatives, pinned: jax.Array
) -> jax.Array:
    """The inverse Hessian (..., 2, 2) of (A, B).

    The Hessian is inverted in standardized coordinates, where this is accurate. The result is NaN
    for constant scores, which leave A undetermined. A slope pinned to 0 has variance 0.
    """
    has_curvature = at.h_BB > 0
    h_BB = jnp.where(has_curvature, at.h_BB, 1)
    ratio = jnp.where(pinned, 0, at.h_AB / h_BB)
    pivot = at.h_AA - ratio * at.h_AB
    # NaN is filled in last: derivatives may pass neither through a division by 0 nor through NaN.
    var_A = jnp.where(pinned, 0, 1 / jnp.where(pivot > 0, pivot, 1))
    ratio = ratio + standardization.center * standardization.scale
    cross = -standardization.scale * (ratio * var_A)
    var_B = 1 / h_BB + ratio * ratio * var_A
    covariance = _matrix(standardization.scale * var_A * standardization.scale, cross, cross, var_B)
    defined = has_curvature & (pinned | (pivot > 0))
    return jnp.where(defined[..., None, None], covariance, jnp.nan)


def power_of_two_over(spread: jax.Array) -> jax.Array:
    """A power of two near 1 / spread, or 1 if spread is 0.

    Computed from the bits of the exponent: JAX's functions use a general power, slow to compile.
    """
    kind = jnp.finfo(spread.dtype)
    exponent = lax.bitcast_convert_type(spread, f"int{kind.bits}") >> kind.nmant
    bias = kind.maxexp - 1  # the stored exponent of 1
    over = jnp.clip(2 * bias - 1 - exponent, 1, 2 * bias)
    power = lax.bitcast_convert_type(over << kind.nmant, spread.dtype)
    return jnp.where(spread > 0, power, 1)


def over_power_of_two(scale: jax.Array) -> jax.Array:
    """1 / scale, exactly."""
    return 2 * power_of_two_over(scale)


def _matrix(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    return jnp.stack([jnp.stack([a, b], -1), jnp.stack([c, d], -1)], -2)
