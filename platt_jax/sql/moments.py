"""Moments of the standardized scores, from sums of the original scores.

An engine computes those sums in the query for the ranges, when the standardization is not known
yet. So moments need no pass of their own, unless a segment's scores lie far from 0 compared with
their spread.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges

ClassMoments: TypeAlias = tuple[Moments, Moments]  # of class 1, of class 0

# Maximum ratio of the sum of n squares about 0 to that about the mean, times n. A sum of n numbers
# errs by less than n units in the last place, so at least five of 16 digits are left: enough to
# choose a start, and to see whether one score dominates the variance.
_MOST_CANCELLED = 1e11


def from_columns(column: Callable[[str], Any], has_offset: bool = False) -> ClassMoments:
    """The moments in the columns of a query's result, given a function of their names."""
    names = Moments._fields if has_offset else Moments._fields[:-2]
    pos, neg = (
        Moments(*(column(f"{name}_{suffix}") for name in names)) for suffix in ("pos", "neg")
    )
    return pos, neg


def standardized(
    plain: ClassMoments, ranges: ScoreRanges, standardization: Standardization
) -> ClassMoments:
    """The moments of the standardized scores, given the original scores' moments."""
    constant = _constant_at_center(ranges, standardization)
    pos, neg = (_moved(one_class, *standardization, constant) for one_class in plain)
    return pos, neg


def _moved(plain: Moments, center: Any, scale: Any, constant: Any) -> Moments:
    total, first, second, rows, offset, offset_first = _as_numpy(plain)
    with np.errstate(over="ignore", invalid="ignore"):  # see `lost_digits`
        g = scale * (first - center * total)
        g_g = scale * (scale * (second - center * (2 * first - center * total)))
        if offset is not None:
            offset_first = np.where(constant, 0, scale * (offset_first - center * offset))
    g, g_g = (_as_numpy(np.where(constant, 0, x)) for x in (g, g_g))
    return Moments(total, g, g_g, rows, offset, offset_first)


def _as_numpy(sums: Any) -> Any:
    """The sums; Any to mypy, because traced rows have JAX arrays where these are NumPy arrays."""
    return sums


def lost_digits(
    plain: ClassMoments,
    ranges: ScoreRanges,
    standardization: Standardization,
    good: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """The segments for which `standardized` loses too many digits, or lacks some of `good` rows."""
    _, scale = standardization
    _, _, squares, rows = _both_classes(*plain)
    total, first, second, _ = _both_classes(*standardized(plain, ranges, standardization))
    with np.errstate(all="ignore"):
        about_mean = second - first * (first / total)
        exact = rows * (scale * (scale * squares)) <= _MOST_CANCELLED * about_mean
    exact |= _constant_at_center(ranges, standardization)
    return ~(exact & (rows == good))


def _both_classes(pos: Moments, neg: Moments) -> Any:
    """The moments of both classes, without moments of offsets."""
    return (np.asarray(p) + np.asarray(n) for p, n in zip(pos[:4], neg[:4], strict=True))


def _constant_at_center(ranges: ScoreRanges, standardization: Standardization) -> Any:
    low, high = (np.asarray(end) for end in ranges.overall())
    return (low == standardization.center) & (high == standardization.center)


def with_all(segments: Moments, center: NDArray[np.float64], scale: NDArray[np.float64]) -> Moments:
    """Moments of the segments and, last, of all rows, given the coordinates of both."""
    total, first, second, rows, offset, offset_first = segments
    # A segment's score g is stretch * g + shift in the coordinates of all rows.
    stretch = scale[-1] / scale[:-1]
    shift = (np.where(rows > 0, center[:-1], center[-1]) - center[-1]) * scale[-1]
    pooled: tuple[Any, ...] = (
        total,
        stretch * first + shift * total,
        stretch * (stretch * second + 2 * shift * first) + shift * shift * total,
        rows,
    )
    if offset is not None:
        pooled += (offset, stretch * offset_first + shift * offset)
    arrays: Any = segments
    joined: Iterator[Any] = (np.append(x, np.sum(y)) for x, y in zip(arrays, pooled, strict=False))
    return Moments(*joined)
