"""What a reliability diagram has beside its curves: histograms, numbers and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax import metrics
from platt_jax.plots import axes, names, style
from platt_jax.plots.rows import PlottedRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HISTOGRAM_BINS = 50
_SHARE = 0.2  # of the histograms in the height of the axes
_NAME_WIDTH = 24  # of a model's, in letters
_BESIDE, _BELOW = 0.45, 0.16  # where numbers begin and end, as shares of the axes
_LEGEND_LINE = 0.055  # height of a line of the legend
_ABOVE_DATA = 4  # zorder


def draw_histograms(ax: Axes, rows: list[PlottedRows], limits: tuple[float, float]) -> None:
    """Histograms of the models' predictions on new axes below."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel = axes.panel_below(ax, _SHARE)
    panel.set_box_aspect(_SHARE / (1 - _SHARE))  # as wide as the square above
    panel.set_anchor("N")
    spaced = np.geomspace if ax.get_xscale() == "log" else np.linspace
    edges = spaced(max(limits[0], 0), min(limits[1], 1), _HISTOGRAM_BINS + 1)
    for i, model_rows in enumerate(rows):
        heights, _ = np.histogram(model_rows.values, edges, weights=model_rows.weights)
        panel.stairs(heights, edges, color=style.cycle(ax, i), fill=len(rows) == 1)
    panel.set(xlabel=ax.get_xlabel(), ylabel="rows")
    panel.set_ylim(0, None)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    panel.yaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("")


def mark_zeros(ax: Axes, curves: Sequence[Any]) -> None:
    """Mark bins without positives at the lower edge of logarithmic axes."""
    bottom = ax.get_ylim()[0]
    for i, curve in enumerate(curves):
        zero_bins = curve.prob_pred[(curve.prob_true == 0) & (curve.prob_pred > 0)]
        looks: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": _ABOVE_DATA}
        looks |= {"marker": style.MARKERS[i % len(style.MARKERS)], "markersize": 4}
        if len(zero_bins):
            looks |= {"color": style.cycle(ax, i), "label": "_without positives"}
            ax.plot(zero_bins, np.full(len(zero_bins), bottom), **looks)


def note_beyond(ax: Axes, rows: list[PlottedRows], limits: tuple[float, float]) -> None:
    """Note the rows whose predictions are beyond the axes, if any; of several models the most."""
    beyond = [
        x.weights[(x.values < limits[0]) | (x.values > limits[1])].sum() / x.weights.sum()
        for x in rows
    ]
    if max(beyond) > 0:
        style.note(ax, [f"{100 * max(beyond):.2g} % of the rows beyond the axes"])


def write_numbers(
    ax: Axes, rows: dict[Any, PlottedRows], strategy: str, n_bins: int | str, level: float
) -> None:
    """Write log loss and calibration errors; of several models a line each.

    They are below the diagonal, or above it where a curve would be behind them.
    """
    percent = style.percent(level)
    lines = [f"log loss, ECE ({percent} interval)"] if len(rows) > 1 else []
    for name, model_rows in rows.items():
        shared: dict[str, Any] = {"weights": model_rows.weights}
        bins = shared | {"strategy": strategy, "n_bins": n_bins, "level": level}
        loss = f"{metrics.log_loss(model_rows.labels, model_rows.values, **shared):.4g}"
        interval = metrics.ece_interval(model_rows.labels, model_rows.values, **bins)
        error, low, high = (_short(float(x)) for x in interval)
        if len(rows) > 1:
            model = names.wrapped(str(name), _NAME_WIDTH, 1)
            lines.append(f"{model}: {loss}, {error} ({low} to {high})")
            continue
        smooth = metrics.smooth_ece(model_rows.labels, model_rows.values, **shared)
        lines += [f"log loss {loss}", f"ECE {error} ({percent}: {low} to {high})"]
        lines.append(f"smECE {_short(smooth)}")
    points = np.concatenate([line.get_xydata() for line in ax.lines[1:]])  # without the diagonal
    x, y = ax.transAxes.inverted().transform(ax.transData.transform(points)).T
    above = ((x > _BESIDE) & (y < _BELOW)).any()
    position, ha, va = (0.98, 0.02), "right", "bottom"
    if above:
        position, ha, va = (0.02, 0.96 - _LEGEND_LINE * (len(rows) + 1)), "left", "top"
    looks: dict[str, Any] = {"ha": ha, "va": va, "fontsize": style.SMALL}
    looks |= {"color": style.muted(ax), "parse_math": False, "transform": ax.transAxes}
    looks |= {"fontfamily": names.families(lines), "zorder": _ABOVE_DATA}
    background = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "alpha": 0.7, "pad": 1}
    ax.text(*position, "\n".join(lines), bbox=background, **looks)


def _short(number: float) -> str:
    """Two digits; 0 if it is exactly that."""
    return f"{number:#.2g}" if number else "0"
