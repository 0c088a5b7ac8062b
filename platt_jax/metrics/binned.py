"""Calibration by bins: the reliability curve and calibration errors."""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics import groups
from platt_jax.metrics.rows import Predictions, ratio, read_predictions


class ReliabilityCurve(NamedTuple):
    """Predicted and observed frequencies by bin; each (..., n_bins), NaN in empty bins.

    Attributes:
        prob_pred: mean probability of the bin's rows.
        prob_true: frequency of class 1 among the bin's rows.
        lower: lower end of the interval around prob_true.
        upper: upper end of the interval around prob_true.
        rows: (weighted) number of rows; 0 in empty bins.
    """

    prob_pred: NDArray[Any]
    prob_true: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    rows: NDArray[Any]


class Binned(NamedTuple):
    """The bin of each row, (K, N), and sums over each bin's rows, (K, n_bins)."""

    bin: NDArray[np.intp]
    rows: Floats
    p: Floats
    q: Floats
    positive: Floats
    residual: Floats


def binned(rows: Predictions, n_bins: int, strategy: str) -> Binned:
    """The bins, and the weighted sums of 1, P(y=1), P(y=0), y and y - P(y=1) over their rows."""
    p, q = rows.probabilities()
    codes = groups.bins(rows, p, n_bins, strategy)
    columns = (1, p, q, rows.positive, rows.residuals())
    return Binned(
        codes - n_bins * np.arange(len(p))[:, None],
        *(
            groups.sums(codes, rows.weights * x, len(p) * n_bins).reshape(len(p), n_bins)
            for x in columns
        ),
    )


def reliability_curve(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int = 10,
    strategy: str = "uniform",
    level: float = 0.95,
) -> ReliabilityCurve:
    """Observed frequency against mean probability in bins, with Wilson's intervals.

    "uniform" bins have equal width: (b/n, (b+1)/n], with 0 in the first and 1 in the last (Guo et
    al. 2017). "quantile" bins have equal mass. A row's bin is determined by the midpoint of its
    probability's share of the total weight, in the order of probabilities. "positives" bins have
    equal expected numbers of positives, for which each row's weight is multiplied by its
    probability: where positives are rare, most rows are in the first bin. Equal probabilities are
    never split, so the order of rows does not matter, and weight 2 equals the row twice. With many
    equal probabilities bins are uneven and may be empty.

    The intervals (Wilson 1927) cover each bin's frequency at the given level on average.
    They treat weights as counts.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.
        n_bins: number of bins.
        strategy: "uniform", "quantile" or "positives".
        level: confidence level of the intervals, in (0, 1).

    Returns:
        A ReliabilityCurve of arrays (..., n_bins) in the dtype of proba.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8], n_bins=2)
        >>> curve.prob_pred.round(2).tolist(), curve.prob_true.tolist()
        ([0.2, 0.7], [0.0, 1.0])
        >>> curve.lower.round(4).tolist(), curve.upper.round(4).tolist()
        ([0.0, 0.3424], [0.6576, 1.0])
    """
    validation.require_fraction(level, "level")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    each = binned(rows, n_bins, strategy)
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    frequency = ratio(each.positive, each.rows)
    center = (each.positive + z2 / 2) / (each.rows + z2)
    variance = frequency * (each.rows - each.positive) + z2 / 4
    half = np.sqrt(z2 * variance) / (each.rows + z2)
    curve = (
        ratio(each.p, each.rows),
        frequency,
        np.maximum(center - half, 0),
        np.minimum(center + half, 1),
        np.where(rows.total > 0, rows.unscaled(each.rows).T, np.nan).T,
    )
    return ReliabilityCurve(*(rows.result(column) for column in curve))


def expected_calibration_error(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int = 10,
    strategy: str = "uniform",
) -> Any:
    """The expected calibration error (ECE), by bins.

    This is the mean over rows of the bin's abs(frequency of class 1 - mean probability of class 1),
    the binary ECE of the positive class (Naeini, Cooper & Hauskrecht 2015). Bins cover all of
    [0, 1]. The ECE of the predicted class's confidence, max(p, 1 - p), is a different measure. With
    strategy="quantile" it is the adaptive calibration error (Nguyen & O'Connor 2015; Nixon et al.
    2019).

    It is biased upwards, more with fewer rows per bin: `ece_by_chance` gives its mean for
    calibrated probabilities, `ece_interval` an interval of the true error. It also depends on the
    bins; `smooth_ece` does not.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.
        n_bins: number of bins.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> round(float(expected_calibration_error([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8])), 6)
        0.25
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    each = binned(rows, n_bins, strategy)
    return rows.result(ratio(np.abs(each.residual).sum(axis=-1), rows.total))


def maximum_calibration_error(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int = 10,
    strategy: str = "uniform",
) -> Any:
    """The maximum calibration error (MCE): the largest of any bin with rows.

    A bin's error is abs(frequency of class 1 - mean probability of class 1), for the positive class
    (Naeini, Cooper & Hauskrecht 2015). A bin with a single row can determine it;
    strategy="quantile" avoids that.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.
        n_bins: number of bins.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> round(float(maximum_calibration_error([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8])), 6)
        0.4
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    each = binned(rows, n_bins, strategy)
    gaps = np.abs(ratio(each.residual, each.rows))
    largest = np.where(each.rows > 0, gaps, 0).max(axis=-1)
    return rows.result(np.where(rows.total > 0, largest, np.nan))
