"""Metrics of several classes: log loss, Brier score, and errors of the top label and of classes."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats, Ints
from platt_jax.caller import Caller
from platt_jax.columns import Column, require_class_order
from platt_jax.execution.class_labels import one_class_each
from platt_jax.metrics.ece import ECEInterval, ece_interval, expected_calibration_error
from platt_jax.metrics.rows import documented, ratio
from platt_jax.results.probabilities import FARTHEST, critical_value


class MeanScore(NamedTuple):
    """The mean of a score over rows, and its confidence interval; each (...).

    Attributes:
        value: the mean.
        lower: lower end of the interval around the mean of all rows there could be.
        upper: upper end of that interval.
    """

    value: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]


class TopLabel(NamedTuple):
    """The most probable class of each row, for metrics and figures of two classes; each (..., N).

    Attributes:
        correct: bool, whether the label is that class.
        proba: its probability.
    """

    correct: NDArray[np.bool_]
    proba: NDArray[Any]


class _LabelledClasses(NamedTuple):
    codes: Ints  # (..., N)
    proba: NDArray[Any]  # (..., N, C)
    weights: Floats  # (..., N)


@documented
def multiclass_log_loss(
    labels: Column,
    proba: Column,
    *,
    classes: Column | None = None,
    weights: Column = None,
    level: float = 0.95,
) -> MeanScore:
    """The mean cross-entropy, -log P(label), in nats per row, with an interval.

    A row costs at most -log(1e-12), as in `log_loss`. The interval is for a mean of independent
    rows by normal theory; weights count rows.

    {class_rows}
        level: confidence level of the interval, in (0, 1).

    Returns:
        A MeanScore of arrays (...) in the dtype of proba; NaN as in the package's docstring, and
        ends of NaN for one row.

    Example:
        >>> found = multiclass_log_loss([0, 2], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
        >>> round(float(found.value), 6)
        0.289909
    """
    rows = _read(labels, proba, classes, weights)
    with np.errstate(divide="ignore"):
        losses = np.minimum(-np.log(_label_probability(rows)), FARTHEST)
    return _mean_score(losses, rows, level)


@documented
def multiclass_brier_score(
    labels: Column,
    proba: Column,
    *,
    classes: Column | None = None,
    weights: Column = None,
    level: float = 0.95,
) -> MeanScore:
    """The mean of sum over classes of (y - P)^2 (Brier 1950), with an interval.

    With two classes it is twice `brier_score`. The interval is as in `multiclass_log_loss`.

    {class_rows}
        level: confidence level of the interval, in (0, 1).

    Returns:
        A MeanScore of arrays (...) in the dtype of proba, value in [0, 2]; NaN as in
        `multiclass_log_loss`.

    Example:
        >>> found = multiclass_brier_score([0, 2], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
        >>> round(float(found.value), 6)
        0.1
    """
    rows = _read(labels, proba, classes, weights)
    p = rows.proba.astype(np.float64)
    # sum of p^2, with (1 - p)^2 in place of p^2 for the label.
    losses = (p * p).sum(axis=-1) + 1 - 2 * _label_probability(rows)
    return _mean_score(np.maximum(losses, 0), rows, level)


@documented
def top_label(labels: Column, proba: Column, *, classes: Column | None = None) -> TopLabel:
    """Whether the most probable class is right, and its probability.

    Any metric of two classes measures how right these probabilities are, and
    `plots.reliability_diagram(*top_label(labels, proba))` draws them.

    Args:
        labels: (..., N) class ids, or (..., N, C) with a 1 for each row's class.
        proba: (..., N, C) probabilities, a column per class.
        classes: (C,) as in `multiclass_log_loss`.

    Returns:
        A TopLabel. Of several classes with the largest probability it is the first.

    Example:
        >>> top_label([0, 1], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]).correct.tolist()
        [True, False]
    """
    rows = _read(labels, proba, classes, None)
    return TopLabel(rows.proba.argmax(axis=-1) == rows.codes, rows.proba.max(axis=-1))


@documented
def top_label_ece(
    labels: Column,
    proba: Column,
    *,
    classes: Column | None = None,
    weights: Column = None,
    n_bins: int | str = 10,
    strategy: str = "uniform",
    level: float = 0.95,
) -> ECEInterval:
    """The expected calibration error of the most probable class, with an interval.

    It is the ECE of Guo, Pleiss, Sun & Weinberger (2017, section 3): the ECE of `top_label`, with
    the interval of `ece_interval`.

    {class_rows}
        n_bins: number of bins, or "cube_root", as in `reliability_curve`.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.
        level: confidence level of the interval, in (0, 1).

    Returns:
        An ECEInterval of arrays (...) in the dtype of proba; NaN as in the package's docstring.

    Example:
        >>> found = top_label_ece([0, 1], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
        >>> round(float(found.value), 6)
        0.55
    """
    correct, largest = top_label(labels, proba, classes=classes)
    return ece_interval(
        correct, largest, weights=weights, n_bins=n_bins, strategy=strategy, level=level
    )


@documented
def classwise_ece(
    labels: Column,
    proba: Column,
    *,
    classes: Column | None = None,
    weights: Column = None,
    n_bins: int | str = 10,
    strategy: str = "uniform",
) -> Any:
    """The mean over classes of the expected calibration error of each class against the others.

    Kull, Perello-Nieto, Kaengsepp, Silva Filho, Song & Flach (2019, "Beyond temperature scaling",
    equation 3). It has no interval: errors of classes depend on each other. `ece_interval` of
    labels == c and proba[:, c] has one for a class.

    {class_rows}
        n_bins: number of bins, or "cube_root", as in `reliability_curve`.
        strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> round(float(classwise_ece([0, 1], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])), 6)
        0.4
    """
    rows = _read(labels, proba, classes, weights)
    errors = [
        expected_calibration_error(
            rows.codes == c,
            rows.proba[..., c],
            weights=rows.weights,
            n_bins=n_bins,
            strategy=strategy,
        )
        for c in range(rows.proba.shape[-1])
    ]
    return np.mean(errors, axis=0)


def _read(
    labels: Column, proba: Column, classes: Column | None, weights: Column
) -> _LabelledClasses:
    p = validation.floating(proba, "proba")
    if p.ndim < 2 or not p.size:
        raise ValueError(f"proba: expected (..., N, C) with rows, got shape {p.shape}")
    validation.require_probabilities(p, "proba")
    if (doubt := validation.no_shares(p)) is not None:
        Caller().warn_once(doubt)
    shape, y = p.shape[:-1], labels
    flat = int(np.prod(shape)), p.shape[-1]
    if p.ndim > 2:
        y = validation.array(labels, "labels")
        if y.shape == p.shape:
            y = y.reshape(flat)
        else:
            y = validation.broadcast(y, shape, "labels", "proba's rows").reshape(-1)
    names, columns = one_class_each(y, flat, classes)
    require_class_order(proba, names, "proba")
    codes = columns.reshape(shape)
    w = validation.weights(1.0 if weights is None else weights, np.float64)
    return _LabelledClasses(codes, p, validation.broadcast(w, shape, "weights", "labels"))


def _label_probability(rows: _LabelledClasses) -> Floats:
    """(..., N) the probabilities of the labels; NaN where any is."""
    proba = np.take_along_axis(rows.proba, rows.codes[..., None], axis=-1)[..., 0]
    return np.where(np.isnan(rows.proba).any(axis=-1), np.nan, proba.astype(np.float64))


def _mean_score(losses: Floats, rows: _LabelledClasses, level: float) -> MeanScore:
    critical = critical_value(level, simultaneous=False)
    counted, scale = rows.weights != 0, rows.weights.max(axis=-1, keepdims=True)
    x = np.where(counted, losses, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        share = ratio(rows.weights, scale)  # whose sum cannot overflow
        total = share.sum(axis=-1)
        mean = ratio((share * x).sum(axis=-1), total)
        squares = (share * np.where(counted, x - mean[..., None], 0) ** 2).sum(axis=-1)
        fewer = total - ratio(np.ones_like(total), scale[..., 0])
        variance = ratio(squares, np.where(fewer > 0, fewer, np.nan))
        half = critical * np.sqrt(ratio(variance, total * scale[..., 0]))
    ends = mean, np.maximum(mean - half, 0), mean + half
    return MeanScore(*(x.astype(rows.proba.dtype)[()] for x in ends))
