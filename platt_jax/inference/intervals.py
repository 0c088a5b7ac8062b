"""Bootstrap intervals from the replicates of a statistic."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats

KINDS = ("bca", "percentile", "basic")


def tails(level: float) -> tuple[float, float]:
    """The shares of a distribution below the lower and the upper end."""
    validation.require_fraction(level, "level")
    tail = (1 - float(level)) / 2
    return tail, 1 - tail


def interval(
    x: NDArray[Any],
    estimate: NDArray[Any],
    acceleration: NDArray[Any],
    shares: tuple[float, float],
    kind: str,
) -> NDArray[Any]:
    """(2, ...) the ends of intervals; NaN where fewer than two replicates (R, ...) are not NaN.

    The acceleration is a sixth of the estimate's skewness. The shares of the distribution are below
    the lower and the upper end.
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
) -> list[Floats]:
    """The quantile levels at the ends of BCa intervals (Efron 1987, equations 2.3 and 4.4)."""
    from scipy.special import ndtr, ndtri  # JAX has SciPy; the import adds a warnings filter

    half = 0.5 / np.maximum(count, 1)
    bias = ndtri(np.clip(below * 2 * half, half, 1 - half))
    a = np.where(np.isfinite(acceleration), acceleration, 0)
    moved = [bias + ndtri(share) for share in shares]
    # Acceleration is at most 1/6, so for any level in use the divisor is far from 0.
    return [ndtr(bias + z / np.maximum(1 - a * z, np.finfo(float).tiny)) for z in moved]


def _quantile(x: NDArray[Any], count: NDArray[Any], part: Any) -> NDArray[Any]:
    """Quantiles along the first axis, of sorted values with NaN last, by linear interpolation.

    `numpy.nanquantile` does the same, but one problem at a time and with one level for all.
    """
    place = part * np.maximum(count - 1, 0)
    below = place.astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (np.take_along_axis(x, at[None], 0)[0] for at in (below, above))
    between: NDArray[Any] = low + (place - below).astype(x.dtype) * (high - low)
    return np.where(count > 1, between, np.nan)
