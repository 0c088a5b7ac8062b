"""Fitted sigmoids with their rows: one, or small multiples of chosen segments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column, takes_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.plots import names, style
from platt_jax.plots.axes import panel_below, probability_limits
from platt_jax.plots.points import central, intervals
from platt_jax.plots.rows import PlottedRows, scored
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.segment_calibrator import SegmentCalibrator, pooled_proba

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 200  # of a curve
_COLUMNS = 3
_NAME_LINES = 2
_LETTER = 0.56  # width of a letter, relative to the font size
# Minimum number of rows per bin.
_ROWS_PER_BIN = 10


@takes_columns
def sigmoid(
    fit: Fit,
    scores: Column,
    labels: Column,
    *,
    weights: Column = None,
    n_bins: int | str = 10,
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
    if not isinstance(fit, Fit):
        raise ValueError(f"fit: expected a Fit of one problem, got {named_with_part(fit)}")
    if np.ndim(fit.A) != 0:
        raise ValueError(f"fit: expected a fit of one problem, got a batch {np.shape(fit.A)}")
    validation.require_one_of(strategy, ("quantile", "uniform"), "strategy")
    rows = scored(scores, labels, weights)
    ax = style.axes_or_new(ax)
    grid = _scores_to_draw(rows)
    drawn = _draw_sigmoid(ax, fit, rows, grid, n_bins, strategy, level, label)
    ax.set(ylabel="P(y = 1)", ylim=probability_limits(*drawn))
    style.legend(ax)
    if not densities:
        ax.set_xlabel("score")
        return style.titled(ax, title)
    panel = panel_below(ax, 0.3)
    edges = np.linspace(grid[0], grid[-1], 61)
    for y, color, line in ((0, style.shade(ax, style.BLUE), "-"), (1, style.VERMILLION, "--")):
        in_class = rows.labels == y
        if rows.weights[in_class].sum() > 0:
            counts, _ = np.histogram(rows.values[in_class], edges, weights=rows.weights[in_class])
            density = counts / (rows.weights[in_class].sum() * (edges[1] - edges[0]))
            panel.stairs(density, edges, fill=True, color=color, alpha=0.25)
            panel.stairs(density, edges, color=color, linestyle=line, label=f"class {y}")
    panel.set(xlabel="score", ylabel="density")
    panel.set_ylim(0, None)
    style.legend(panel)
    return style.titled(ax, title)


def _scores_to_draw(rows: PlottedRows) -> Floats:
    """Evenly spaced scores over the middle 99.8 % of the rows' scores."""
    return np.linspace(*central(rows.values, share=0.998, pad=0.02), _POINTS)


class _SegmentCurve(NamedTuple):
    """One segment's curve that is no sigmoid, drawn as a Fit is."""

    calibrator: SegmentCalibrator
    key: Any

    def predict_proba(self, scores: Floats) -> NDArray[Any]:
        return self.calibrator.predict_proba(scores, [self.key] * len(scores))

    def band(self, scores: Floats, level: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """The band; NaN where the kind of curve has none."""
        if self.calibrator.curves is None or not self.calibrator.curves.has_errors:
            return (np.full(len(scores), np.nan),) * 2
        return self.calibrator.band(scores, [self.key] * len(scores), level)


def _draw_sigmoid(
    ax: Axes,
    fit: Fit | _SegmentCurve,
    rows: PlottedRows,
    grid: Floats,
    n_bins: int | str,
    strategy: str,
    level: float,
    label: str = "sigmoid",
) -> tuple[float, float]:
    """Draw the sigmoid at the scores of the grid, its band, and the rates of the rows.

    Returns the smallest and the largest probability to show: of the band where the rates are.
    """
    color, percent = style.shade(ax, style.BLUE), style.percent(level)
    lower, upper = fit.band(grid, level)
    # The scores of a grid are no rows, of which `Fit.predict_proba` would warn.
    p = (fit.sigmoid if isinstance(fit, Fit) else fit).predict_proba(grid)
    if np.isfinite(lower).any():
        ax.fill_between(grid, lower, upper, color=color, alpha=0.2, linewidth=0)
        label = f"{label}, {percent} band"
    ax.plot(grid, p, color=color, label=label)
    rates = rows.rates(n_bins, strategy, level)
    ink = style.shade(ax, style.BLACK)
    intervals(ax, rates, color=ink, label=f"observed, {percent} interval")
    ax.set_xlim(*grid[[0, -1]])
    bin_scores = rates.prob_pred[rates.rows > 0]
    beside = (grid >= bin_scores.min()) & (grid <= bin_scores.max())
    drawn = np.concatenate([p, lower[beside], upper[beside], rates.lower, rates.upper])
    return float(np.nanmin(drawn)), float(np.nanmax(drawn))


@takes_columns
def segment_sigmoids(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    chosen: Any,
    *,
    weights: Column = None,
    most: int = 12,
    n_bins: int = 5,
    level: float = 0.95,
    axes: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Plot the curves of some segments with their bands and binned rates, as small multiples.

    Each panel also has the curve of all rows pooled, dashed. Isotonic curves, bins and Venn-Abers
    predictors have no bands.

    Args:
        calibrator: a SegmentCalibrator with any curves.
        scores: (N,) scores.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids, as in `fit_segments`.
        chosen: ids of segments in the order of drawing; or a table with a column "segment", most
            urgent first, whose columns "p_value" and "q_value" go into the titles if present.
        weights: (N,) counts of rows >= 0.
        most: maximum number of segments to draw.
        n_bins: number of bins with equal numbers of rows for the rates; fewer where a bin would
            have fewer than 10 rows.
        level: confidence level of the bands and of the intervals, in (0, 1).
        axes: an array of matplotlib axes, at least one for each segment; None to make a new
            figure.

    Returns:
        An array of axes in the shape of `axes`, or (lines, columns) with up to three columns.

    Raises:
        ValueError: an argument is not as above; a chosen segment was not fitted; or a score, label
            or weight of a chosen segment is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> from platt_jax import fit_segments
        >>> rows = [2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]
        >>> segment_sigmoids(fit_segments(*rows), *rows, chosen=["b", "a"])[0, 0].get_title()
        'b, 2 rows'
    """
    chosen_ids, notes = _chosen(chosen, most)
    positions = [int(calibrator._places([name], "chosen")[0]) for name in chosen_ids]
    if -1 in positions:
        raise ValueError(
            f"chosen: {chosen_ids[positions.index(-1)]!r} was not among the segments fitted"
        )
    rows = _rows_at_places(calibrator, scores, labels, segments, weights, positions)
    own_axes = axes is None
    axes = _grid_of_axes(axes, len(positions))
    low, high = np.array([_scores_to_draw(segment_rows)[[0, -1]] for segment_rows in rows]).T
    grid = np.linspace(low.min(), high.max(), _POINTS)
    pooled = pooled_proba(calibrator, grid)
    drawn = []
    for ax, name, note, segment_rows in zip(axes.flat, chosen_ids, notes, rows, strict=False):
        bins = int(np.clip(len(segment_rows.values) // _ROWS_PER_BIN, 1, n_bins))
        curve, label = _curve_of(calibrator, name)
        drawn.append(_draw_sigmoid(ax, curve, segment_rows, grid, bins, "quantile", level, label))
        looks: dict[str, Any] = {"color": style.GREY, "linestyle": "--", "zorder": 1}
        if np.isfinite(pooled).any():
            ax.plot(grid, pooled, label="all rows pooled", **looks)
        _set_title(ax, names.text(name), float(segment_rows.weights.sum()), note)
        ax.tick_params(labelsize=style.SMALL)
    lows, highs = zip(*drawn, strict=True)
    for ax in axes.flat[: len(drawn)]:
        ax.set_ylim(*probability_limits(min(lows), max(highs)))
    if own_axes:
        _finish(axes, len(positions))
    return axes


def _curve_of(calibrator: SegmentCalibrator, key: Any) -> tuple[Fit | _SegmentCurve, str]:
    """The curve of a segment, and what it is called."""
    curve = calibrator[key] if calibrator.curves is None else _SegmentCurve(calibrator, key)
    return curve, names.kind_of_curve(calibrator)


def _chosen(chosen: Any, most: int) -> tuple[list[Any], list[str]]:
    """The ids of the first segments chosen, and a text for each from the table's other columns."""
    columns = _column_names(chosen)
    if columns is None:
        segments = list(chosen)[:most]
    elif "segment" in columns:
        segments = list(np.asarray(chosen["segment"])[:most])
    else:
        raise ValueError(f"chosen: expected a column 'segment', got {columns}")
    if not segments:
        raise ValueError("chosen: expected at least one segment, got none")
    test = next((name for name in ("q_value", "p_value") if name in (columns or ())), None)
    if test is None:
        return segments, [""] * len(segments)
    return segments, [f"\n{test[0]} = {value:.2g}" for value in np.asarray(chosen[test])[:most]]


def _column_names(chosen: Any) -> list[Any] | None:
    """Column names of a mapping, or a table of pyarrow, pandas or polars; None for other types."""
    for attribute in ("column_names", "columns"):
        if hasattr(chosen, attribute):
            return list(getattr(chosen, attribute))
    return list(chosen) if isinstance(chosen, Mapping) else None


def _rows_at_places(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    weights: Column,
    places: Sequence[int],
) -> list[PlottedRows]:
    """The rows of each of the segments at these places among the keys."""
    scores = validation.floating(scores, "scores")
    validation.require_flat(scores, "scores")
    codes = get_indexer(calibrator.keys, ids.read_rows(segments, len(scores)))
    weights = validation.weights(1.0 if weights is None else weights, np.float64)
    weights = validation.broadcast(weights, codes.shape, "weights")
    # Rows of other segments need not be valid.
    weights = np.where(np.isin(codes, places), weights, 0)
    codes = codes[weights != 0]
    for position in places:
        if not (codes == position).any():
            raise ValueError(f"chosen: {calibrator.keys[position]!r} has none of the rows given")
    rows = scored(scores, labels, weights)
    return [PlottedRows(*(x[codes == position] for x in rows)) for position in places]


def _grid_of_axes(axes: NDArray[Any] | None, number: int) -> NDArray[Any]:
    if axes is not None:
        axes = np.atleast_1d(axes)
        if axes.size < number:
            raise ValueError(f"axes: expected {number} or more, got {axes.size}")
        return axes
    columns = min(_COLUMNS, math.ceil(math.sqrt(number)))
    lines = -(-number // columns)
    size = 1 + 1.8 * columns, 0.5 + 1.6 * lines
    shared = {"sharex": True, "sharey": True, "squeeze": False}
    figure, axes = style.pyplot().subplots(
        lines, columns, layout="constrained", figsize=size, **shared
    )
    figure.supxlabel("score", fontsize=style.SMALL + 2)
    figure.supylabel("P(y = 1)", fontsize=style.SMALL + 2)
    return axes


def _finish(axes: NDArray[Any], used: int) -> None:
    """Hide unused axes, and put a legend above all."""
    columns = axes.shape[1]
    for i in range(used, axes.size):
        axes.flat[i].set_visible(False)
        axes.flat[i - columns].tick_params(labelbottom=True)
    handles, texts = axes.flat[0].get_legend_handles_labels()
    looks: dict[str, Any] = {"frameon": False, "fontsize": style.SMALL, "handlelength": 1.5}
    axes.flat[0].figure.legend(handles, texts, loc="outside upper center", ncols=columns, **looks)


def _set_title(ax: Axes, name: str, rows: float, note: str) -> None:
    """The id, its number of rows and the note, on as many lines as the panel's width needs."""
    figure: Any = ax.figure
    points_wide = ax.get_window_extent().width * 72 / figure.dpi
    columns = max(int(points_wide / (_LETTER * style.SMALL)), 8)
    count = f"{rows:,.6g} row{'' if rows == 1 else 's'}"
    title = f"{names.printable(name)}, {count}"
    if names.width(title) > columns:
        note = note.replace("\n", ", ")
        title = f"{names.wrapped(name, columns, _NAME_LINES)}\n{count}"
    font = names.families([title])
    ax.set_title(title + note, fontsize=style.SMALL, fontfamily=font, parse_math=False)
