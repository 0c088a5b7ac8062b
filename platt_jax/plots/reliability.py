"""Reliability diagrams: observed frequencies against predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from platt_jax import metrics, validation
from platt_jax.columns import Column
from platt_jax.plots import style
from platt_jax.plots.rows import predicted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HISTOGRAM_BINS = 50


class ReliabilityDisplay:
    """A reliability curve and its drawing, like scikit-learn's `CalibrationDisplay`.

    Attributes:
        curve: a `metrics.ReliabilityCurve` or `metrics.IsotonicCurve`.
        name: name of the model, for the legend; or None.
        ax_: the axes, once drawn.
        figure_: the figure of the axes.
        line_: the line of the curve.
        interval_: the ErrorbarContainer of the intervals, or the PolyCollection of the band.

    Example:
        >>> display = ReliabilityDisplay.from_predictions([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8])
        >>> display.ax_.get_xlabel()
        'predicted probability'
    """

    ax_: Any
    figure_: Any
    line_: Any
    interval_: Any

    def __init__(
        self, curve: metrics.ReliabilityCurve | metrics.IsotonicCurve, *, name: str | None = None
    ) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        labels: Column,
        proba: Column,
        *,
        weights: Column = None,
        from_logits: bool = False,
        method: str = "binned",
        n_bins: int = 10,
        strategy: str = "quantile",
        confidence: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **line: Any,
    ) -> Self:
        """Compute the curve and draw it; arguments as in `reliability_diagram`, for one model.

        Raises:
            ValueError: an argument is not as in `reliability_diagram`.
        """
        validation.require_one_of(method, ("binned", "isotonic"), "method")
        rows = predicted(labels, proba, weights, from_logits)
        curve: metrics.ReliabilityCurve | metrics.IsotonicCurve
        shared: dict[str, Any] = {"weights": rows.weights, "confidence": confidence}
        if method == "binned":
            curve = metrics.reliability_curve(
                rows.labels, rows.values, n_bins=n_bins, strategy=strategy, **shared
            )
        else:
            curve = metrics.isotonic_curve(rows.labels, rows.values, **shared)
        return cls(curve, name=name).plot(ax, **line)

    def plot(self, ax: Axes | None = None, **line: Any) -> Self:
        """Draw the curve.

        Args:
            ax: matplotlib axes; None to make a new figure.
            line: properties of the line, such as color.
        """
        self.ax_ = ax = style.axes_or_new(ax)
        self.figure_ = ax.figure
        line = {"label": self.name} | line
        if isinstance(self.curve, metrics.ReliabilityCurve):
            self.interval_ = style.intervals(ax, self.curve, **{"linestyle": "-"} | line)
            self.line_ = self.interval_[0]
        else:
            (self.line_,) = ax.plot(self.curve.prob_pred, self.curve.prob_true, **line)
            self.interval_ = ax.fill_between(
                self.curve.prob_pred,
                self.curve.lower,
                self.curve.upper,
                color=self.line_.get_color(),
                alpha=0.2,
                linewidth=0,
            )
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        return self


def reliability_diagram(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    method: str = "binned",
    n_bins: int = 10,
    strategy: str = "quantile",
    confidence: float = 0.95,
    histogram: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed frequency against predicted probability, above a histogram of the predictions.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits; or a mapping from names of models to their
            probabilities.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        method: "binned", frequencies in bins with Wilson's intervals, by
            `metrics.reliability_curve`; or "isotonic", a curve without bins, with the band where it
            lies by chance if the predictions are right, by `metrics.isotonic_curve` (the CORP
            diagram).
        n_bins: number of bins.
        strategy: "quantile", bins with equal numbers of rows; or "uniform", bins of equal width.
        confidence: confidence level of the intervals or the band, in (0, 1).
        histogram: whether to draw the histogram, on new axes that take part of the space of the
            given ones.
        ax: matplotlib axes; None to make a new figure.

    Returns:
        The axes of the curves.

    Raises:
        ValueError: an argument is not as above; or a prediction, label or weight is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> ax = reliability_diagram([0, 1, 0, 1], {"mine": [0.1, 0.3, 0.6, 0.8]}, n_bins=2)
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['perfectly calibrated', 'mine']
    """
    models = proba if isinstance(proba, Mapping) else {None: proba}
    if not models:
        raise ValueError("proba: expected predictions, got an empty mapping")
    rows = [predicted(labels, each, weights, from_logits) for each in models.values()]
    ax = style.axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", label="perfectly calibrated")
    panel = style.panel_below(ax, 0.2) if histogram else None
    share = np.linspace(0, 1, _HISTOGRAM_BINS + 1)
    for i, (name, each) in enumerate(zip(models, rows, strict=True)):
        color = style.CYCLE[i % len(style.CYCLE)]
        looks: dict[str, Any] = {"color": color}
        if method == "binned":
            looks["marker"] = style.MARKERS[i % len(style.MARKERS)]
        ReliabilityDisplay.from_predictions(
            each.labels,
            each.values,
            weights=each.weights,
            method=method,
            n_bins=n_bins,
            strategy=strategy,
            confidence=confidence,
            name=_label(name, method, confidence),
            ax=ax,
            **looks,
        )
        if panel is not None:
            counts, _ = np.histogram(each.values, share, weights=each.weights)
            panel.stairs(counts, share, color=color, fill=len(models) == 1)
    if panel is not None:
        from matplotlib.ticker import EngFormatter, MaxNLocator

        panel.set(xlabel=ax.get_xlabel(), ylabel="rows")
        panel.set_ylim(0, None)
        panel.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
        panel.yaxis.set_major_formatter(EngFormatter(sep=""))
        ax.set_xlabel("")
    style.legend(ax)
    return ax


def _label(name: object, method: str, confidence: float) -> str:
    if name is not None:
        return str(name)
    what, extent = ("observed", "interval") if method == "binned" else ("isotonic", "band")
    return f"{what}, {style.percent(confidence)} {extent}"
