"""Reliability diagrams: observed frequencies against predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from platt_jax import metrics, validation
from platt_jax.columns import Column, takes_columns
from platt_jax.plots import names, reliability_parts, style
from platt_jax.plots.axes import probability_limits
from platt_jax.plots.points import intervals
from platt_jax.plots.rows import PlottedRows, predicted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 5.0, 5.6  # of a new figure, in inches
_RARE = 0.05  # largest share of positives that calls for logarithmic axes
_LEAST = 1e-300  # where the diagonal of logarithmic axes begins
_DIAGONAL = "perfectly calibrated"
_NAME_WIDTH = 30  # of a line of a model's name, in letters
_Curve: TypeAlias = metrics.ReliabilityCurve | metrics.IsotonicCurve | metrics.SmoothCurve
_METHODS = "binned", "smooth", "isotonic"


class ReliabilityDisplay:
    """A reliability curve and its drawing, like scikit-learn's `CalibrationDisplay`.

    Attributes:
        curve: a `metrics.ReliabilityCurve`, `metrics.SmoothCurve` or `metrics.IsotonicCurve`.
        name: name of the model, for the legend; or None.
        level: confidence level of the curve's intervals or band, for the legend.
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

    def __init__(self, curve: _Curve, *, name: str | None = None, level: float = 0.95) -> None:
        self.curve = curve
        self.name = name
        self.level = level

    @classmethod
    @takes_columns
    def from_predictions(
        cls,
        labels: Column,
        proba: Column,
        *,
        weights: Column = None,
        from_logits: bool = False,
        method: str = "binned",
        n_bins: int | str = 10,
        strategy: str = "quantile",
        level: float = 0.95,
        name: str | None = None,
        ax: Axes | None = None,
        **line: Any,
    ) -> Self:
        """Compute the curve and draw it; arguments as in `reliability_diagram`, for one model.

        Raises:
            ValueError: an argument is not as in `reliability_diagram`.
        """
        validation.require_one_of(method, _METHODS, "method")
        rows = predicted(labels, proba, weights, from_logits)
        curve: _Curve
        shared: dict[str, Any] = {"weights": rows.weights, "level": level}
        if method == "binned":
            curve = metrics.reliability_curve(
                rows.labels, rows.values, n_bins=n_bins, strategy=strategy, **shared
            )
        elif method == "smooth":
            curve = metrics.smooth_curve(rows.labels, rows.values, **shared)
        else:
            curve = metrics.isotonic_curve(rows.labels, rows.values, **shared)
        return cls(curve, name=name, level=level).plot(ax, **line)

    @classmethod
    @takes_columns
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Column,
        *,
        pos_label: Any = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Compute the curve of a fitted classifier for rows, and draw it.

        Args:
            estimator: a classifier with `predict_proba` and `classes_`, such as a
                `platt_jax.sklearn.PlattCalibratedClassifier` or any of scikit-learn's.
            X: (N, F) rows, or any input of the classifier.
            y: (N,) class labels.
            pos_label: the class whose probability is judged; None means the second of two.
            name: name of the model; None means the name of its class.
            **options: as in `from_predictions`.

        Raises:
            ValueError: pos_label is not among the classes, or None beside more than two; or an
                argument is not as in `from_predictions`.
        """
        classes = list(estimator.classes_)
        if pos_label is None and len(classes) == 2:
            pos_label = classes[1]
        if pos_label not in classes:
            raise ValueError(f"pos_label: expected one of the classes {classes}, got {pos_label!r}")
        proba = estimator.predict_proba(X)[:, classes.index(pos_label)]
        name = type(estimator).__name__ if name is None else name
        return cls.from_predictions(np.asarray(y) == pos_label, proba, name=name, **options)

    def plot(self, ax: Axes | None = None, **line: Any) -> Self:
        """Draw the curve, the diagonal if the axes have none yet, and a legend.

        Args:
            ax: matplotlib axes; None to make a new figure.
            line: properties of the line, such as color.
        """
        self.ax_ = ax = style.axes_or_new(ax)
        self.figure_ = ax.figure
        if _DIAGONAL not in ax.get_legend_handles_labels()[1]:
            ends = [_LEAST if ax.get_xscale() == "log" else 0, 1]
            ax.plot(ends, ends, color=style.GREY, linestyle="--", label=_DIAGONAL)
        line = {"label": None if self.name is None else names.in_legend(self.name)} | line
        if isinstance(self.curve, metrics.ReliabilityCurve):
            curve = self.curve
            if ax.get_xscale() == "log":  # which has no place for 0
                positive = np.nan_to_num(curve.prob_pred) > 0
                curve = curve._replace(rows=np.where(positive, curve.rows, 0))
            self.interval_ = intervals(ax, curve, **{"linestyle": "-"} | line)
            self.line_ = self.interval_[0]
        else:
            if by_chance := isinstance(self.curve, metrics.IsotonicCurve):
                self.interval_ = self._draw_band_by_chance(ax, line.get("color"))
            alone: dict[str, Any] = {"marker": "o"} if len(self.curve.prob_pred) == 1 else {}
            (self.line_,) = ax.plot(self.curve.prob_pred, self.curve.prob_true, **alone | line)
            if not by_chance:
                self.interval_ = self._fill(ax, color=self.line_.get_color(), alpha=0.2)
        limits = _limits(ax, [self.curve])
        ax.set(xlim=limits, ylim=limits)
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        style.legend(ax)
        return self

    def _draw_band_by_chance(self, ax: Axes, color: Any) -> Any:
        """The band where the curve is by chance if the predictions are right.

        It is grey, because it is not around the curve. The band of a named model has an edge in
        the colour of the curve.
        """
        text = f"{style.percent(self.level)} if calibrated"
        is_first = text not in ax.get_legend_handles_labels()[1]
        looks: dict[str, Any] = {"facecolor": style.GREY, "alpha": 0.3, "zorder": 0}
        looks |= {"label": text} if is_first else {}
        if self.name is not None and color is not None:
            looks |= {"edgecolor": color, "linewidth": 1, "alpha": 0.5}
        return self._fill(ax, **looks)

    def _fill(self, ax: Axes, **looks: Any) -> Any:
        """The band of the curve; a line if it has one point."""
        curve = self.curve
        color = looks.get("color", looks.get("facecolor"))
        alone = {"edgecolor": color, "linewidth": 2} if len(curve.prob_pred) == 1 else {}
        looks = {"linewidth": 0} | looks | alone
        return ax.fill_between(curve.prob_pred, curve.lower, curve.upper, **looks)


def _drawn(curve: _Curve) -> tuple[float, float]:
    """The smallest and the largest probability drawn.

    For a curve without bins they cover the middle 98 % of its points, without the band.
    """
    if isinstance(curve, metrics.ReliabilityCurve):
        drawn = np.concatenate([x[curve.rows > 0] for x in curve[:4]])
    else:
        low, high = np.quantile(curve.prob_pred, [0.01, 0.99])
        middle = (curve.prob_pred >= low) & (curve.prob_pred <= high)
        middle |= not middle.any()  # two points are both ends
        drawn = np.concatenate([x[middle] for x in curve[:2]])
    return float(drawn.min()), float(drawn.max())


def _limits(
    ax: Axes, curves: Sequence[_Curve], rows: Sequence[PlottedRows] = ()
) -> tuple[float, float]:
    """Limits of both axes: of probabilities, or logarithmic.

    Logarithmic axes have all positive frequencies drawn, and nearly all rows down to a tenth of the
    smallest of these.
    """
    if ax.get_xscale() != "log":
        lows, highs = zip(*map(_drawn, curves), strict=True)
        return probability_limits(min(lows), max(highs))
    drawn = np.concatenate([x for curve in curves for x in (*curve[:2], curve[3])])
    drawn = drawn[np.isfinite(drawn)]
    least = float(drawn[drawn > 0].min())
    low = min([least, *(float(np.quantile(model_rows.values, 0.01)) for model_rows in rows)])
    return max(low, least / 10) / 1.3, min(1.3 * float(drawn.max()), 1.0)


@takes_columns
def reliability_diagram(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    method: str = "binned",
    n_bins: int | str = 10,
    strategy: str | None = None,
    level: float = 0.95,
    histogram: bool = True,
    numbers: bool = True,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed frequency against predicted probability, above a histogram of the predictions.

    The axes are square. They end near the largest probability drawn if all are below 0.5, and start
    near the smallest if all are above; rows beyond are counted. With "positives" bins they are
    logarithmic, with bins without positives at the lower edge.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits; or a mapping from names of models to their
            probabilities.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        method: "binned", frequencies in bins with Wilson's intervals, by
            `metrics.reliability_curve`; "smooth", a curve with its confidence band, by
            `metrics.smooth_curve`; or "isotonic", a curve without bins, over the grey band
            where it lies by chance if the predictions are right (the CORP diagram), by
            `metrics.isotonic_curve`.
        n_bins: number of bins, or "cube_root", as in `metrics.reliability_curve`.
        strategy: "quantile", bins with equal numbers of rows; "uniform", bins of equal width; or
            "positives", bins with equal expected numbers of positives. None for "positives" where
            at most one row in 20 is positive and the method is "binned", else "quantile".
        level: confidence level of the intervals or the band, and of the ECE's interval, in
            (0, 1).
        histogram: whether to draw the histogram, on new axes that take part of the space of the
            given ones.
        numbers: whether to write the log loss, the expected calibration error (ECE) by these bins
            with the interval of `metrics.ece_interval`, and smECE; of several models the first two.
            An interval that leaves out 0 is evidence of miscalibration.
        title: title of the axes; None for none.
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
    rows = [_read(name, labels, values, weights, from_logits) for name, values in models.items()]
    if strategy is None:
        rare = is_rare(rows[0].labels, [model_rows.values for model_rows in rows], rows[0].weights)
        strategy = "positives" if rare and method == "binned" else "quantile"
    rare = method == "binned" and strategy == "positives"
    if rare and any(not model_rows.values.any() for model_rows in rows):
        raise ValueError('proba: expected some above 0 with strategy="positives", got none')
    ax = style.axes_or_new(ax, _SIZE)
    if rare:
        ax.set(xscale="log", yscale="log")
    curves = []
    for i, (name, model_rows) in enumerate(zip(models, rows, strict=True)):
        color = style.cycle(ax, i)
        looks: dict[str, Any] = {"color": color}
        if name is None:
            looks["label"] = _what(method, level)
        if method == "binned":
            looks["marker"] = style.MARKERS[i % len(style.MARKERS)]
        display = ReliabilityDisplay.from_predictions(
            model_rows.labels,
            model_rows.values,
            weights=model_rows.weights,
            method=method,
            n_bins=n_bins,
            strategy=strategy,
            level=level,
            name=None if name is None else names.wrapped(str(name), _NAME_WIDTH, 2),
            ax=ax,
            **looks,
        )
        curves.append(display.curve)
    limits = _limits(ax, curves, rows)
    ax.set(xlim=limits, ylim=limits)
    if rare:
        reliability_parts.mark_zeros(ax, curves)
    ax.set_box_aspect(1)
    reliability_parts.note_beyond(ax, rows, limits)
    if numbers:
        rows_by_model = dict(zip(models, rows, strict=True))
        reliability_parts.write_numbers(ax, rows_by_model, strategy, n_bins, level)
    if histogram:
        ax.set_anchor("S")
        reliability_parts.draw_histograms(ax, rows, limits)
    # A search of the best place among many points is slow.
    style.legend(ax, loc="upper left" if numbers and method == "isotonic" else "best")
    return style.titled(ax, title)


def is_rare(labels: Any, probas: Sequence[Any], weights: Any = None) -> bool:
    """Whether so few labels are 1 that linear axes would hide most of a reliability diagram.

    Not where a model predicts none at all: logarithmic axes have no place for that.
    """
    few = np.average(labels, weights=weights) <= _RARE
    return bool(few) and all(np.max(proba) > 0 for proba in probas)


def _read(
    name: object, labels: Column, proba: Column, weights: Column, from_logits: bool
) -> PlottedRows:
    """The rows of a model; an error says which model it is."""
    try:
        return predicted(labels, proba, weights, from_logits)
    except ValueError as error:
        if name is None:
            raise
        raise ValueError(f"{error} (model {name!r})") from None


def _what(method: str, level: float) -> str:
    """What is drawn of a single model."""
    if method == "isotonic":
        return method
    kind = "interval" if method == "binned" else "band"
    return f"observed, {style.percent(level)} {kind}"
