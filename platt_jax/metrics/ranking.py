"""Ranking of class 1 above class 0 by scores."""

from typing import Any

import numpy as np

from platt_jax.columns import Column
from platt_jax.metrics import groups
from platt_jax.metrics.rows import ratio, read_scores


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
    rows = read_scores(labels, scores, weights)
    positive, negative = rows.weights * rows.positive, np.where(rows.positive, 0, rows.weights)
    outranked = (positive * groups.mass_below(rows.values, negative)).sum(axis=-1)
    n_pos, n_neg = (x.sum(axis=-1) for x in (positive, negative))
    return rows.result(ratio(ratio(outranked, n_pos), n_neg))
