"""Reliability of the probabilities of several classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax import metrics, validation
from platt_jax.columns import Column, require_class_order, takes_columns
from platt_jax.execution.class_labels import one_class_each
from platt_jax.plots import style
from platt_jax.plots.axes import probability_limits
from platt_jax.plots.reliability import ReliabilityDisplay
from platt_jax.results.tables import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 5.0, 5.0  # of a new figure, in inches
_MOST = 5  # classes drawn


@takes_columns
def class_reliability(
    labels: Column,
    proba: Column,
    *,
    classes: Column | None = None,
    weights: Column = None,
    n_bins: int | str = 10,
    strategy: str = "quantile",
    level: float = 0.95,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed frequency against probability for the most probable class, and for each class.

    A class is judged against all others. Of more than five classes the five with the largest
    calibration errors are drawn. Intervals are Wilson's, by `metrics.reliability_curve`.

    Args:
        labels: (N,) class ids, or (N, C) with a 1 for each row's class.
        proba: (N, C) probabilities, a column per class.
        classes: (C,) the classes of the columns, as in `metrics.multiclass_log_loss`.
        weights: (N,) counts of rows >= 0.
        n_bins: number of bins of each curve, or "cube_root", as in `metrics.reliability_curve`.
        strategy: "quantile", "uniform" or "positives", as in `metrics.reliability_curve`.
        level: confidence level of the intervals, in (0, 1).
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Returns:
        The axes.

    Raises:
        ValueError: an argument is not as above.
        ImportError: matplotlib is missing.

    Example:
        >>> ax = class_reliability(["a", "c"], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], classes="abc")
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['perfectly calibrated', 'most probable class', 'a', 'b', 'c']
    """
    p = validation.floating(proba, "proba")
    if p.ndim != 2:
        raise ValueError(f"proba: expected (N, C), got shape {p.shape}")
    named = None if classes is None else list(classes)
    correct, largest = metrics.top_label(labels, p, classes=named)
    ids, codes = one_class_each(labels, p.shape, named)
    require_class_order(proba, ids, "proba")
    bins: dict[str, Any] = {"n_bins": n_bins, "strategy": strategy, "weights": weights}
    errors = [
        metrics.expected_calibration_error(codes == c, p[:, c], **bins) for c in range(len(ids))
    ]
    drawn = np.sort(np.argsort(errors)[::-1][:_MOST])
    ax = style.axes_or_new(ax, _SIZE)
    ax.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", label="perfectly calibrated")
    curves = [("most probable class", correct, largest, style.shade(ax, style.BLACK))]
    curves += [(str(ids[c]), codes == c, p[:, c], style.cycle(ax, i)) for i, c in enumerate(drawn)]
    for i, (name, y, x, color) in enumerate(curves):
        looks: dict[str, Any] = {"color": color, "marker": style.MARKERS[i]}
        ReliabilityDisplay.from_predictions(y, x, name=name, level=level, ax=ax, **bins, **looks)
    limits = probability_limits(0, 1)
    ax.set(xlim=limits, ylim=limits)
    ax.set_box_aspect(1)
    if len(ids) > _MOST:
        style.note(ax, [f"{counted(len(ids) - _MOST, 'class')} with smaller errors not drawn"])
    style.legend(ax)
    return style.titled(ax, title)
