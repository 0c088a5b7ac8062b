"""Intervals from the replicates of a number."""

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = ("bca", "percentile", "basic")


def tails(level: float) -> tuple[float, float]:
    """What shares of a distribution lie below the two ends.

    Raises:
        ValueError: level is not in (0, 1).
    """
    if not (isinstance(level, numbers.Real) and 0 < float(level) < 1):
        raise ValueError(f"level: expected a number in (0, 1), got {level!r}")
    tail = (1 - float(level)) / 2
    return tail, 1 - tail


def checked_kind(kind: str) -> str:
    """The kind of interval.

    Raises:
        ValueError: there is none.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {KINDS}, got {kind!r}")
    return kind


def interval(
    x: NDArray[Any],
    estimate: NDArray[Any],
    acceleration: NDArray[Any],
    shares: tuple[float, float],
    kind: str,
) -> NDArray[Any]:
    """Lower and upper ends.

    Args:
        x: (R, ...) the replicates; NaN is left out.
        estimate: (...) of the rows as they are.
        acceleration: (...) a sixth of the estimate's skewness.
        shares: of the distribution below the ends.
        kind: one of `KINDS`.

    Returns:
        (2, ...); NaN where fewer than two replicates are left.
    """
    x = np.sort(x, axis=0)  # NaN last
    count = len(x) - np.isnan(x).sum(0)
    parts: Any = shares
    if kind == "bca":
        below = ((x < estimate).sum(0) + (x <= estimate).sum(0)) / 2
        parts = _accelerated(below, count, acceleration, shares)
    ends = np.stack([_quantile(x, count, part) for part in parts])
    return 2 * estimate - ends[::-1] if kind == "basic" else ends


def _accelerated(
    below: NDArray[Any], count: NDArray[Any], acceleration: NDArray[Any], shares: tuple[float, ...]
) -> list[NDArray[np.float64]]:
    """Which quantiles are the ends of BCa intervals (Efron 1987, equations 2.3 and 4.4)."""
    from scipy.special import ndtr, ndtri  # JAX has SciPy; the import adds a warnings filter

    half = 0.5 / np.maximum(count, 1)
    bias = ndtri(np.clip(below * 2 * half, half, 1 - half))
    a = np.where(np.isfinite(acceleration), acceleration, 0)
    moved = [bias + ndtri(share) for share in shares]
    # It is no larger than 1/6: for any level that is asked for, this is far from 0.
    return [ndtr(bias + z / np.maximum(1 - a * z, np.finfo(float).tiny)) for z in moved]


def _quantile(x: NDArray[Any], count: NDArray[Any], part: Any) -> NDArray[Any]:
    """A quantile along the first axis by linear interpolation, of values in order, then NaN.

    As `numpy.nanquantile`, which takes one problem at a time, and one part for all.
    """
    place = part * np.maximum(count - 1, 0)
    below = place.astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (np.take_along_axis(x, at[None], 0)[0] for at in (below, above))
    between: NDArray[Any] = low + (place - below).astype(x.dtype) * (high - low)
    return np.where(count > 1, between, np.nan)
