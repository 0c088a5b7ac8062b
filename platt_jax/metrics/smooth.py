"""Smooth calibration error: no bins, and a bandwidth determined by the data."""

from typing import Any

import numpy as np

from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics.rows import documented, pieces, read_predictions

# Bandwidths, each with a grid for bandwidths down to it; and grid intervals per bandwidth.
_BANDWIDTHS = 2.0 ** -np.arange(4, 11)
_PER_BANDWIDTH = 32

# Number of cosines per 1 / bandwidth; smoothing damps all others below 1e-19.
_COSINES = 3

# Maximum number of grid points processed together, to stay in the cache.
_AT_ONCE = 2**19

# Number of halvings of a range of bandwidths, on a logarithmic scale; the error is at most 1e-4.
_HALVINGS = 16


@documented
def smooth_ece(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> Any:
    """The smooth expected calibration error smECE (Blasiok & Nakkiran 2023), without bins.

    The residuals y - P(y=1) are smoothed along P(y=1) by a Gaussian kernel of bandwidth s,
    reflected at 0 and 1. smECE_s is the integral over [0, 1] of the absolute value of the result.
    It falls as s grows; the result is the fixed point smECE_s = s, or smECE_s at s = 2^-10 if the
    fixed point is below. Its relative error is about 1e-4. Calibrated probabilities give 0 only in
    the limit: n labels drawn from probabilities spread over [0, 1] give about 0.3 n^(-1/3).

    {rows}

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> round(float(smooth_ece([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.9])), 3)
        0.166
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    p, _ = rows.probabilities()
    mass = rows.weights * rows.residuals()
    out = np.full(len(p), np.nan)
    problems = np.flatnonzero(rows.total > 0)
    highest = 1.0
    for lowest in _BANDWIDTHS:
        for chunk in pieces(problems, int(_AT_ONCE * lowest / _PER_BANDWIDTH)):
            series = _cosine_series(p[chunk], mass[chunk] / rows.total[chunk, None], lowest)
            out[chunk] = _error(series, lowest)
            above = out[chunk] > lowest
            out[chunk[above]] = _fixed_point(series[above], lowest, highest)
        problems, highest = problems[out[problems] <= lowest], lowest
    return rows.result(out)


def _fixed_point(series: Floats, lowest: float, highest: float) -> Floats:
    """The smECE at its fixed point, which lies in this range of bandwidths."""
    low, high = (np.full((len(series), 1), end) for end in (lowest, highest))
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        above = _error(series, middle)[:, None] > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return _error(series, high)


def _error(series: Floats, bandwidth: float | Floats) -> Floats:
    """(K,) smECE at this bandwidth, or at these (K, 1), by the trapezoidal rule."""
    k = np.arange(series.shape[-1])
    intervals = k[-1] * _PER_BANDWIDTH // _COSINES
    # The Gaussian kernel reflected at both ends is the heat kernel of [0, 1], which damps cosines.
    damped = series * np.exp(-((np.pi * k * bandwidth) ** 2) / 2)
    smoothed = np.abs(np.fft.irfft(damped, 2 * intervals)[:, : intervals + 1])
    return 2 * (smoothed.sum(axis=-1) - (smoothed[:, 0] + smoothed[:, -1]) / 2)


def _cosine_series(p: Floats, mass: Floats, bandwidth: float) -> Floats:
    """Sums of mass * cos(pi k p) over p (K, N), for as many k as this bandwidth needs.

    Each mass is divided between the two grid points around it.
    """
    intervals = round(_PER_BANDWIDTH / bandwidth)
    position = p * intervals
    point = np.minimum(position.astype(np.intp), intervals - 1)
    share = position - point
    point += np.arange(len(p))[:, None] * (intervals + 1)
    size = len(p) * (intervals + 1)
    lower = np.bincount(point.ravel(), (mass * (1 - share)).ravel(), size)
    upper = np.bincount(point.ravel() + 1, (mass * share).ravel(), size)
    grid = (lower + upper).reshape(len(p), intervals + 1)
    even = np.concatenate([grid, grid[:, -2:0:-1]], axis=-1)
    even[:, [0, intervals]] *= 2  # all other points occur twice
    return np.fft.rfft(even).real[:, : round(_COSINES / bandwidth) + 1] / 2
