"""Isotonic regression: the monotone curve by least squares."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.model.objective import Array
from platt_jax.scalers.base import FiniteRows, Fitted, Scaler, fitted


@fitted
class FittedIsotonic(Fitted):
    """A monotone, piecewise linear curve, given by its corners.

    Attributes:
        thresholds: (..., M) scores of the fit, ascending, at which a plateau begins or ends. In a
            batch, the last corner repeats up to the largest number of corners.
        probabilities: (..., M) probabilities at the thresholds.
    """

    thresholds: Array
    probabilities: Array

    _own_axes: ClassVar[int] = 1

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        curves = np.vectorize(_interpolated, signature="(n),(m),(m)->(n)")
        p: NDArray[Any] = curves(f, self.thresholds, self.probabilities)
        return p.astype(np.result_type(f, self.probabilities))


@dataclass(frozen=True)
class Isotonic(Scaler[FittedIsotonic]):
    """The non-decreasing function of the score with the least weighted sum of squares.

    Zadrozny & Elkan (2002, "Transforming classifier scores into accurate multiclass probability
    estimates"), by SciPy's `isotonic_regression` for each problem. Rows of equal score are pooled
    first. The curve is linear between the scores of the fit, as in scikit-learn, and constant
    beyond them.

    One class: 0 or 1. Constant scores: the share of class 1.

    Example:
        >>> fitted = Isotonic().fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1])
        >>> fitted.predict_proba([0.0, 1.5, 2.5, 3.5])
        array([0.  , 0.25, 0.5 , 0.75])
    """

    def _fit_batch(self, rows: FiniteRows) -> FittedIsotonic:
        curves = [_corners(*_curve(*problem)) for problem in zip(*rows, strict=True)]
        most = max(x.shape[-1] for x in curves)
        padded = [np.pad(x, ((0, 0), (0, most - x.shape[-1])), mode="edge") for x in curves]
        return FittedIsotonic(
            *np.array(padded, rows.scores.dtype).reshape(-1, 2, most).swapaxes(0, 1)
        )


def _interpolated(f: NDArray[Any], thresholds: NDArray[Any], probabilities: NDArray[Any]) -> Floats:
    # Halved if the difference of two scores overflows.
    with np.errstate(over="ignore"):
        if np.isinf(np.float64(thresholds[-1]) - np.float64(thresholds[0])):
            f, thresholds = f / 2, thresholds / 2
    p = np.interp(f, thresholds, probabilities)
    # NumPy's slope between scores that are closer than 1e-308 is infinite.
    lost = np.flatnonzero(np.isinf(p))
    after = np.searchsorted(thresholds, f[lost], side="right")
    low, high = (thresholds[i].astype(np.float64) for i in (after - 1, after))
    share = (f[lost] - low) / (high - low)
    p[lost] = (1 - share) * probabilities[after - 1] + share * probabilities[after]
    return p


def _curve(f: NDArray[Any], y: Bools, w: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
    """The distinct scores, ascending, and their probabilities."""
    # SciPy adds warning filters when imported, so importing scalers must not import it.
    from scipy.optimize import isotonic_regression

    distinct, which = np.unique(f, return_inverse=True)
    weight, positive = np.bincount(which, w), np.bincount(which, w * y)
    return distinct, isotonic_regression(positive / weight, weights=weight).x


def _corners(distinct: NDArray[Any], fitted: Floats) -> NDArray[Any]:
    """(2, M) the curve without points between two of the same probability."""
    same = fitted[1:] == fitted[:-1]
    within = np.zeros(len(fitted), bool)
    within[1:-1] = same[1:] & same[:-1]
    return np.stack([distinct, fitted])[:, ~within]
