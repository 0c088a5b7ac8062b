"""A fitted sigmoid with its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.plots import panels, style
from platt_jax.plots.axes import probability_limits
from platt_jax.plots.points import central, intervals
from platt_jax.plots.rows import PlottedRows, scored
from platt_jax.results.fit import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 200


def sigmoid(
    fit: Fit,
    scores: Column,
    labels: Column,
    *,
    weights: Column = None,
    n_bins: int = 10,
    strategy: str = "quantile",
    level: float = 0.95,
    densities: bool = True,
    label: str = "sigmoid",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a fitted sigmoid and its band with binned rates, above the densities of the two classes.

    These are the figures of Platt (1999, "Probabilistic outputs for support vector machines and
    comparisons to regularized likelihood methods"). The axis covers the middle 99.8 % of the
    scores. The axis of probabilities ends near the largest one drawn if all are below 0.5, and
    starts near the smallest if all are above.

    Args:
        fit: a Fit of one problem, such as `calibrator[segment]`.
        scores: (N,) scores.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        weights: (N,) counts of rows >= 0.
        n_bins: number of bins for the rates, which have Wilson's intervals.
        strategy: "quantile", bins with equal numbers of rows; or "uniform", bins of equal width.
        level: confidence level of the band and of the intervals, in (0, 1).
        densities: whether to draw the densities, on new axes that take part of the space of the
            given ones.
        label: name of the sigmoid in the legend.
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Returns:
        The axes of the sigmoid.

    Raises:
        ValueError: an argument is not as above; or a score, label or weight is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [5.0, -4.0, 1.0, 2.0], [1, 0, 0, 1]
        >>> sigmoid(fit(scores, labels), scores, labels, n_bins=2).get_ylabel()
        'P(y = 1)'
    """
    if np.ndim(fit.A) != 0:
        raise ValueError(f"fit: expected that of one problem, got a batch {np.shape(fit.A)}")
    validation.require_one_of(strategy, ("quantile", "uniform"), "strategy")
    rows = scored(scores, labels, weights)
    ax = style.axes_or_new(ax)
    grid = scores_to_draw(rows)
    drawn = draw_sigmoid(ax, fit, rows, grid, n_bins, strategy, level, label)
    ax.set(ylabel="P(y = 1)", ylim=probability_limits(*drawn))
    style.legend(ax)
    if not densities:
        ax.set_xlabel("score")
        return style.titled(ax, title)
    panel = panels.panel_below(ax, 0.3)
    edges = np.linspace(grid[0], grid[-1], 61)
    for y, color, line in ((0, style.shade(ax, style.BLUE), "-"), (1, style.VERMILLION, "--")):
        mine = rows.labels == y
        if rows.weights[mine].sum() > 0:
            counts, _ = np.histogram(rows.values[mine], edges, weights=rows.weights[mine])
            density = counts / (rows.weights[mine].sum() * (edges[1] - edges[0]))
            panel.stairs(density, edges, fill=True, color=color, alpha=0.25)
            panel.stairs(density, edges, color=color, linestyle=line, label=f"class {y}")
    panel.set(xlabel="score", ylabel="density")
    panel.set_ylim(0, None)
    style.legend(panel)
    return style.titled(ax, title)


def scores_to_draw(rows: PlottedRows) -> Floats:
    """Evenly spaced scores over the middle 99.8 % of those of the rows."""
    return np.linspace(*central(rows.values, share=0.998, pad=0.02), POINTS)


def draw_sigmoid(
    ax: Axes,
    fit: Fit,
    rows: PlottedRows,
    grid: Floats,
    n_bins: int,
    strategy: str,
    level: float,
    label: str = "sigmoid",
) -> tuple[float, float]:
    """Draw the sigmoid at the scores of the grid, its band, and the rates of the rows.

    Returns:
        The smallest and the largest probability drawn.
    """
    color, percent = style.shade(ax, style.BLUE), style.percent(level)
    lower, upper = fit.band(grid, level)
    ax.fill_between(grid, lower, upper, color=color, alpha=0.2, linewidth=0)
    ax.plot(grid, fit.predict_proba(grid), color=color, label=f"{label}, {percent} band")
    rates = rows.rates(n_bins, strategy, level)
    ink = style.shade(ax, style.BLACK)
    intervals(ax, rates, color=ink, label=f"observed, {percent} interval")
    ax.set_xlim(*grid[[0, -1]])
    drawn = np.concatenate([lower, upper, rates.lower, rates.upper])
    return float(np.nanmin(drawn)), float(np.nanmax(drawn))
