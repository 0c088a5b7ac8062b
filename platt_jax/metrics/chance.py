"""Expected calibration error of calibrated probabilities."""

from typing import Any

import numpy as np

from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics import counts
from platt_jax.metrics.binned import Binned, binned
from platt_jax.metrics.rows import Predictions, ratio, read_predictions


def ece_by_chance(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int = 10,
    strategy: str = "uniform",
) -> Any:
    """The mean of `expected_calibration_error` if the probabilities are calibrated.

    Calibrated probabilities do not have error 0, because in each bin the labels vary by chance.
    This function gives the mean of the error in that case; compare the error with it. The result
    does not depend on the labels' values.

        ECE by chance = sum over bins of E abs(positives - sum(p)) / rows

    In a bin where fewer than 10 labels of a class are expected, the number of positives has its
    exact distribution (Poisson's binomial), so the mean is exact. In other bins, and with weights
    that are not whole numbers, it is taken as normal with variance sum(p (1 - p)), whose mean is
    within 1 % of the exact one where 10 labels are expected. Weights that sum up to less than a row
    leave the mean at most 2 sum(p) sum(1 - p) / rows of the bin, which no number between 0 and the
    bin's rows exceeds.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba. A NaN makes the result NaN, as it
            does for the error.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba. Unlike the error, this depends on
            their scale.
        from_logits: whether proba holds logits.
        n_bins: number of bins.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> from platt_jax.metrics import expected_calibration_error
        >>> rows = [0, 1, 0, 1], [0.1, 0.3, 0.6, 0.9]
        >>> round(float(expected_calibration_error(*rows)), 3)
        0.375
        >>> round(float(ece_by_chance(*rows)), 3)
        0.315
    """
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    each = binned(rows, n_bins, strategy)
    p, q = rows.probabilities()
    variance = np.zeros(each.p.shape)
    np.add.at(variance, (np.arange(len(p))[:, None], each.bin), rows.weights * p * q)
    most = np.where(each.rows > 0, 2 * each.p * ratio(each.q, each.rows), 0)
    distance = np.minimum(np.sqrt(2 / np.pi * variance), most)
    of = counts.rarer(rows, each)
    for some, parts in counts.pieces(rows, each, of, np.flatnonzero(of.few.any(axis=-1))):
        few = np.zeros_like(of.few)
        few[some] = of.few[some]
        distance[few] = _distances(*parts)
    return rows.result(ratio(distance.sum(axis=-1), rows.total))


def _distances(rows: Predictions, each: Binned, of: counts.Rarer) -> Floats:
    """(M,) mean absolute deviations of the counts from their expectations, where `of.few` is true.

    It is twice the mean shortfall.
    """
    below = counts.distributions(rows, each, of, counts.FEW)[:, : counts.FEW]
    short = np.maximum(of.expected[of.few][:, None] - np.arange(counts.FEW), 0)
    return 2 * (short * below).sum(axis=-1)
