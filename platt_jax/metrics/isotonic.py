"""Calibration without bins: the isotonic reliability curve."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics.rows import read_predictions

# Number of evenly ranked predictions on the curve, besides its corners.
_POINTS = 500

# Power of two from which on more rows are not drawn: they are counted by 64-bit integers.
_LARGEST = 60


class IsotonicCurve(NamedTuple):
    """Predicted and observed frequencies without bins; each (M,), in float64.

    The M predictions are the corners of the curve and up to 500 others, evenly spaced by rank;
    between them all three curves are linear.

    Attributes:
        prob_pred: distinct predictions, ascending.
        prob_true: frequency of class 1 by isotonic regression, non-decreasing.
        lower: lower end of the consistency band, which holds prob_true if the predictions are
            right.
        upper: upper end of the consistency band.
    """

    prob_pred: Floats
    prob_true: Floats
    lower: Floats
    upper: Floats


def isotonic_curve(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    replicates: int = 100,
    seed: int = 0,
) -> IsotonicCurve:
    """Observed frequency against probability by isotonic regression, with a consistency band.

    This is the CORP reliability diagram (Dimitriadis, Gneiting & Jordan 2021, "Stable reliability
    diagrams for probabilistic classifiers"). It has no bins to choose. The band is pointwise: for
    each replicate labels are drawn from the predictions, and a curve is fitted to them. A curve
    outside the band indicates predictions that are not calibrated.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}; of one problem.
        proba: (N,) probabilities of class 1, or logits.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: confidence level of the band, in (0, 1).
        replicates: number of curves that determine the band, at least 2.
        seed: seed of the drawn labels.

    Returns:
        An IsotonicCurve; a single point of NaN where the package's docstring says NaN.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> curve = isotonic_curve([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8])
        >>> curve.prob_true.tolist()
        [0.0, 0.5, 0.5, 1.0]
    """
    validation.require_fraction(level, "level")
    validation.require_integer(replicates, "replicates", 2)
    rows = read_predictions(labels, proba, weights, from_logits).as_counts(0, _LARGEST)
    if rows.batch:
        raise ValueError(f"proba: expected (N,), one problem's, got shape {np.shape(proba)}")
    if not rows.total[0]:
        return IsotonicCurve(*np.full((4, 1), np.nan))
    counted = rows.weights[0] > 0
    p, which = np.unique(rows.probabilities()[0][0, counted], return_inverse=True)
    row_weights = rows.weights[0, counted]
    # NumPy's stubs declare integers even with weights.
    weight: NDArray[Any] = np.bincount(which, row_weights)
    positive = np.bincount(which, row_weights * rows.positive[0, counted])
    fitted = _isotonic(positive / weight, weight)
    at = _corners_and_some_others(fitted)
    ends = (1 - level) / 2, (1 + level) / 2
    band = np.quantile(_by_chance(p, weight, at, replicates, seed), ends, axis=0)
    return IsotonicCurve(p[at], fitted[at], *band)


def _isotonic(values: Floats, weight: Floats) -> Floats:
    # SciPy adds warning filters when imported, so importing metrics must not import it.
    from scipy.optimize import isotonic_regression

    return isotonic_regression(values, weights=weight).x


def _by_chance(
    p: Floats, weight: Floats, at: NDArray[np.intp], replicates: int, seed: int
) -> Floats:
    """(replicates, M) curves fitted to labels drawn from the predictions."""
    rng = np.random.default_rng(seed)
    whole = np.floor(weight)
    rest, whole = weight - whole, whole.astype(np.int64)
    curves = np.empty((replicates, len(at)))
    for curve in curves:
        drawn = rng.binomial(whole, p) + rest * (rng.random(len(p)) < p)
        curve[:] = _isotonic(drawn / weight, weight)[at]
    return curves


def _corners_and_some_others(fitted: Floats) -> NDArray[np.intp]:
    step = np.diff(fitted) != 0
    corner = np.append(True, step) | np.append(step, True)
    others = np.linspace(0, len(fitted) - 1, min(len(fitted), _POINTS)).astype(np.intp)
    return np.union1d(np.flatnonzero(corner), others)
