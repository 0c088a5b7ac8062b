"""Calibration errors by the smooth curve: ICI, E50, E90 and Emax."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.metrics.curves import MOST_FITTED, fitted_spline, quantiles
from platt_jax.metrics.rows import documented, read_predictions
from platt_jax.results.probabilities import expit

_RANKS = 500  # number of predictions at which curves are compared


class CurveError(NamedTuple):
    """A distance of the smooth curve from the predictions; each (...).

    Attributes:
        value: the distance.
        lower: lower end of its interval.
        upper: upper end of its interval.
    """

    value: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]


class CalibrationIndices(NamedTuple):
    """Distances abs(smooth curve - probability) over the rows.

    Attributes:
        ici: their mean, the integrated calibration index.
        e50: their median.
        e90: their 90 % quantile.
        emax: their maximum.
    """

    ici: CurveError
    e50: CurveError
    e90: CurveError
    emax: CurveError


@documented
def integrated_calibration_index(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> CalibrationIndices:
    """ICI, E50, E90 and Emax: how far a smooth calibration curve is from the predictions.

    The distances of the rows are abs(c(p) - p) with the curve c of `smooth_curve`, a logistic
    regression on a spline of the logit; their mean, median, 90 % quantile and maximum are the
    indices of Austin & Steyerberg (2019, "The Integrated Calibration Index (ICI) and related
    metrics"), who use loess, and a spline as here in simulations. They have no bins.

    Each is biased upwards: chance alone moves the curve. The interval is the value -+ what chance
    adds at `level`, by curves drawn from the normal distribution of the coefficients, within
    [0, 1]. It is cautious for ICI and Emax, as `ece_interval` is; `docs/explanation/numbers.md` has
    the method, and how often intervals held. Where predictions are few Emax is mostly
    extrapolation; look at `smooth_curve`.

    {rows}
        level: confidence level of the intervals, in (0, 1).
        replicates: number of curves that are drawn, at least 2.
        seed: seed of these curves.

    Returns:
        CalibrationIndices of arrays (...) in the dtype of proba, in [0, 1]. NaN where
        `smooth_curve` has no curve with a band: a class has fewer than 5 rows, or a threshold
        splits the classes; and as in the package's docstring.

    Example:
        >>> import numpy as np
        >>> p = np.linspace(0.05, 0.95, 500)
        >>> labels = np.random.default_rng(0).random(500) < p**2
        >>> [round(float(x), 3) for x in integrated_calibration_index(labels, p).ici]
        [0.186, 0.142, 0.23]
    """
    validation.require_fraction(level, "level")
    validation.require_integer(replicates, "replicates", 2)
    rows = read_predictions(labels, proba, weights, from_logits).as_counts(0, MOST_FITTED)
    logits, scale = rows.logits(), np.ldexp(1.0, -rows.exponent)
    values = np.full((len(logits), 4, 3), np.nan)
    for k, counted in enumerate(rows.weights > 0):
        if counted.any():
            w, y, x = (z[k, counted] for z in (rows.weights, rows.positive, logits))
            rng = np.random.default_rng(seed)
            values[k] = _indices(x, y, w, np.sqrt(scale[k]), level, rng.normal, replicates)
    parts = np.moveaxis(values, 0, -1)
    return CalibrationIndices(*(CurveError(*map(rows.result, part)) for part in parts))


def _indices(
    x: Floats, y: Bools, w: Floats, scale: Any, level: float, normal: Any, replicates: int
) -> Floats:
    """(4, 3), the indices with the ends of their intervals; NaN without a curve."""
    spline = fitted_spline(x, y, w)
    if spline is None:
        return np.full((4, 3), np.nan)
    value = _four(np.abs(expit(spline.columns(x) @ spline.coefficients) - expit(x)), w)
    points = quantiles(x, w, (np.arange(_RANKS) + 0.5) / _RANKS)
    columns = spline.columns(points)
    # The covariance is the inverse of F F'.
    z = scale * normal(size=(len(spline.coefficients), replicates))
    drawn = spline.coefficients[:, None] + np.linalg.solve(spline.factor.T, z)
    proba, equal = expit(points), np.ones(_RANKS)
    fitted = expit(columns @ spline.coefficients)
    estimate, moved = _four(np.abs(fitted - proba), equal), []
    for curve in expit(columns @ drawn).T:
        change = np.abs(_four(np.abs(curve - proba), equal) - estimate)
        moved.append(np.maximum(_four(np.abs(curve - fitted), equal), change))
    reach = np.quantile(moved, level, axis=0)
    return np.clip(np.stack([value, value - reach, value + reach], -1), 0, 1)


def _four(distance: Floats, w: Floats) -> Floats:
    """(4,), mean, median, 90 % quantile and maximum."""
    middle, ninth = quantiles(distance, w, np.array([0.5, 0.9]))
    return np.array([np.average(distance, weights=w), middle, ninth, distance.max()])
