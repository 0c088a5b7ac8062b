"""Proper scores: the log loss, and the Brier score with its decomposition."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics import groups
from platt_jax.metrics.rows import read_predictions


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

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.

    Returns:
        (...) in the dtype of proba, >= 0; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> round(float(log_loss([1, 0], [0.9, 0.2])), 6)
        0.164252
        >>> float(log_loss([1, 0], [800.0, 800.0], from_logits=True))
        400.0
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    return rows.result(rows.mean(rows.log_losses()))


def brier_score(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> Any:
    """The mean of (y - P(y=1))^2 with y in {0, 1} (Brier 1950), which Rüping (2004) calls MSE.

    It is half of Brier's own sum over both classes, as is usual for two classes.

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> round(float(brier_score([1, 0], [0.9, 0.2])), 6)
        0.025
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    return rows.result(rows.mean(rows.residuals() ** 2))


def brier_decomposition(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | None = None,
    strategy: str = "uniform",
) -> BrierDecomposition:
    """Split the Brier score into reliability, resolution and uncertainty.

    By default the groups are the distinct probabilities (Murphy 1973). Where nearly all of them
    differ, that is uninformative: reliability is nearly the whole score. Use bins then. They use
    the mean probability of a bin for its rows, which adds a fourth part (Stephenson, Coelho &
    Jolliffe 2008).

    Args:
        labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
        proba: (..., N) probabilities of class 1, or logits.
        weights: counts of rows >= 0, broadcastable to proba.
        from_logits: whether proba holds logits.
        n_bins: number of bins, or None for distinct probabilities.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        A BrierDecomposition of arrays (...) in the dtype of proba; NaN as in the package's
        docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> parts = brier_decomposition([0, 1, 1, 1], [0.2, 0.2, 0.8, 0.8])
        >>> [round(float(part), 4) for part in parts]
        [0.065, 0.0625, 0.1875, 0.0]
    """
    rows = read_predictions(labels, proba, weights, from_logits)
    p, _ = rows.probabilities()
    codes = groups.distinct(p) if n_bins is None else groups.bins(rows, p, n_bins, strategy)
    mass = groups.sums(codes, rows.weights)
    mass[mass == 0] = 1  # groups without rows of positive weight

    def group_mean(x: NDArray[Any]) -> Floats:
        return (groups.sums(codes, rows.weights * x) / mass)[codes]

    mean_p, frequency = group_mean(p), group_mean(rows.positive)
    off_p, off_y = p - mean_p, rows.positive - frequency
    base_rate = rows.mean(rows.positive)
    parts = (
        rows.mean((mean_p - frequency) ** 2),
        rows.mean((frequency - base_rate[:, None]) ** 2),
        base_rate * (1 - base_rate),
        rows.mean(off_p * (off_p - 2 * off_y)),
    )
    return BrierDecomposition(*(rows.result(part) for part in parts))
