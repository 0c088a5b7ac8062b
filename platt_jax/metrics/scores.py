"""Scores of predictions: log loss, Brier score with its decomposition, and area under ROC."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.columns import Column, takes_columns
from platt_jax.metrics.binned import binned, distinct, mass_below
from platt_jax.metrics.device_rows import read_predictions_there, read_scores_there
from platt_jax.metrics.rows import (
    MetricRows,
    PredictedRows,
    documented,
    ratio,
    read_predictions,
)


class BrierDecomposition(NamedTuple):
    """The parts of a Brier score; each (...).

    brier_score = reliability - resolution + uncertainty + within_bin, up to rounding.

    Attributes:
        reliability: mean squared difference between a group's mean probability and its frequency of
            class 1; 0 is best.
        resolution: variance of the groups' frequencies; more is better.
        uncertainty: variance of the labels, which does not depend on the forecast.
        within_bin: variance of the probabilities within bins minus twice their covariance with the
            labels; 0 where groups are distinct probabilities.
    """

    reliability: NDArray[Any]
    resolution: NDArray[Any]
    uncertainty: NDArray[Any]
    within_bin: NDArray[Any]


@documented
def log_loss(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> Any:
    """The mean cross-entropy, -log P(y), in nats per row.

    From logits it is exact to rounding, and finite for all finite logits. The log-odds of
    probabilities are clipped as by `platt_jax.logit`, so that a row costs at most -log(1e-12), 27.6
    nats, whichever class is called 1. A mean is then as much that limit's as the forecast's if some
    probabilities are 0 or 1 and wrong.

    Rüping (2004) calls it mCRE, and prints its sum without the minus. His tables cannot be in nats
    per row: this mean is never below the Brier score of the same rows, his is a third of it.

    {rows}

    Returns:
        (...) in the dtype of proba, >= 0; NaN as in the package's docstring.

    Example:
        >>> round(float(log_loss([1, 0], [0.9, 0.2])), 6)
        0.164252
        >>> float(log_loss([1, 0], [800.0, 800.0], from_logits=True))
        400.0
    """
    rows = read_predictions_there(labels, proba, weights, from_logits)
    return rows.result(rows.mean_of(PredictedRows.log_losses))


@documented
def brier_score(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> Any:
    """The mean of (y - P(y=1))^2 with y in {0, 1} (Brier 1950), which Rüping (2004) calls MSE.

    It is half of Brier's own sum over both classes, as is usual for two classes.

    {rows}

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> round(float(brier_score([1, 0], [0.9, 0.2])), 6)
        0.025
    """
    rows = read_predictions_there(labels, proba, weights, from_logits)
    return rows.result(rows.mean_of(_squared_residuals))


def _squared_residuals(rows: PredictedRows) -> Any:
    return rows.residuals() ** 2


@documented
def brier_decomposition(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str | None = None,
    strategy: str = "uniform",
) -> BrierDecomposition:
    """Split the Brier score into reliability, resolution and uncertainty.

    By default the groups are the distinct probabilities (Murphy 1973). Where nearly all of them
    differ, that is uninformative: reliability is nearly the whole score. Use bins then. They use
    the mean probability of a bin for its rows, which adds a fourth part (Stephenson, Coelho &
    Jolliffe 2008).

    {rows}
        n_bins: number of bins or "cube_root", as in `reliability_curve`; None for distinct
            probabilities.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        A BrierDecomposition of arrays (...) in the dtype of proba; NaN as in the package's
        docstring.

    Example:
        >>> parts = brier_decomposition([0, 1, 1, 1], [0.2, 0.2, 0.8, 0.8])
        >>> [round(float(part), 4) for part in parts]
        [0.065, 0.0625, 0.1875, 0.0]
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    bins = distinct(rows) if n_bins is None else binned(rows, n_bins, strategy)

    mass = np.where(bins.rows > 0, bins.rows, 1)
    mean_p, frequency = ((x / mass).take(bins.codes) for x in (bins.p, bins.positive))
    off_p, off_y = rows.probabilities()[0] - mean_p, rows.positive - frequency
    base_rate = rows.mean(rows.positive)
    parts = (
        rows.mean((mean_p - frequency) ** 2),
        rows.mean((frequency - base_rate[:, None]) ** 2),
        base_rate * (1 - base_rate),
        rows.mean(off_p * (off_p - 2 * off_y)),
    )
    return BrierDecomposition(*(rows.result(part) for part in parts))


@takes_columns
def roc_auc(labels: Column, scores: Column, *, weights: Column = None) -> Any:
    """The area under the ROC curve: P(a positive outranks a negative), with ties counting 1/2.

    It is the Mann-Whitney statistic divided by its maximum (Bamber 1975). A pair's weight is the
    product of its rows' weights.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to scores.
        scores: (..., N) probabilities, logits or any finite scores that are higher for class 1.
        weights: counts of rows >= 0, broadcastable to scores.

    Returns:
        (...) in the dtype of scores, in [0, 1]; NaN with one class only, and as in the package's
        docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> float(roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]))
        0.75
    """
    rows = read_scores_there(labels, scores, weights)
    if isinstance(rows, MetricRows):
        positive, negative = rows.weights * rows.positive, np.where(rows.positive, 0, rows.weights)
        pairs = positive * mass_below(rows.values, negative)
        outranked, n_pos, n_neg = (x.sum(axis=-1) for x in (pairs, positive, negative))
    else:
        outranked, n_pos, n_neg = rows.outranked()
    return rows.result(ratio(ratio(outranked, n_pos), n_neg))
