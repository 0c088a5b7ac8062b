"""Fitted sigmoids over the rows they were fitted to: one, or those of many segments."""

from typing import Any

import numpy as np

from platt_jax import ids, validation
from platt_jax.ids.factorize import get_indexer
from platt_jax.plots import style
from platt_jax.plots.rows import Rows, scored

_POINTS = 200
_COLUMNS = 3
# A bin of fewer rows tells nothing.
_ROWS_PER_BIN = 10


def sigmoid(
    fit,
    scores,
    labels,
    *,
    weights=None,
    n_bins: int = 10,
    strategy: str = "quantile",
    level: float = 0.95,
    densities: bool = True,
    ax=None,
):
    """A fitted sigmoid and its band over binned rates, above the densities of the two classes.

    The figures of Platt (1999, "Probabilistic outputs for support vector machines and comparisons
    to regularized likelihood methods"). The axis holds the middle 99.8 % of the scores.

    Args:
        fit: a Fit of one problem, such as `calibrator[segment]`.
        scores: (N,) numbers.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        weights: (N,) counts of rows >= 0.
        n_bins: how many bins the rates are taken in, with Wilson's intervals.
        strategy: of the bins: "quantile", of equal numbers of rows, or "uniform", of equal width.
        level: of the band and of the intervals, in (0, 1).
        densities: whether to draw the densities, on axes of their own that take their place from
            those given.
        ax: matplotlib axes; None for those of a new figure.

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
    rows = scored(scores, labels, weights)
    ax = style.axes_or_new(ax)
    grid = _scores_to_draw(rows)
    _draw(ax, fit, rows, grid, n_bins, strategy, level)
    ax.set_ylabel("P(y = 1)")
    style.legend(ax)
    if not densities:
        ax.set_xlabel("score")
        return ax
    panel = style.panel_below(ax, 0.3)
    edges = np.linspace(grid[0], grid[-1], 61)
    for label, color, line in ((0, style.BLUE, "-"), (1, style.VERMILLION, "--")):
        mine = rows.labels == label
        if rows.weights[mine].sum() > 0:
            counts, _ = np.histogram(rows.values[mine], edges, weights=rows.weights[mine])
            density = counts / (rows.weights[mine].sum() * (edges[1] - edges[0]))
            panel.stairs(density, edges, fill=True, color=color, alpha=0.25)
            panel.stairs(density, edges, color=color, linestyle=line, label=f"class {label}")
    panel.set(xlabel="score", ylabel="density")
    panel.set_ylim(0, None)
    style.legend(panel)
    return ax


def segment_sigmoids(
    calibrator,
    scores,
    labels,
    segments,
    chosen,
    *,
    weights=None,
    most: int = 12,
    n_bins: int = 5,
    level: float = 0.95,
    axes=None,
):
    """The sigmoids of some segments, each with its band over its binned rates, in small multiples.

    The dashed curve is that of all rows pooled.

    Args:
        calibrator: a SegmentCalibrator.
        scores: (N,) numbers.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids, as in `fit_segments`.
        chosen: ids of segments, the first to be drawn first; or a table with a column "segment",
            most urgent first, whose columns "p_value" and "q_value" the titles tell, if it has
            them.
        weights: (N,) counts of rows >= 0.
        most: how many of them to draw.
        n_bins: how many bins of equal numbers of rows the rates are taken in; fewer where a bin
            would have fewer than 10 rows.
        level: of the bands and of the intervals, in (0, 1).
        axes: an array of matplotlib axes, one for each segment or more; None for those of a new
            figure.

    Returns:
        The axes in an array of the shape of `axes`, or of three columns.

    Raises:
        ValueError: an argument is not as above, or a chosen segment was not fitted; or a score,
            label or weight of a chosen segment is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> from platt_jax import fit_segments
        >>> rows = [2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]
        >>> segment_sigmoids(fit_segments(*rows), *rows, chosen=["b", "a"])[0, 0].get_title()
        'b, 2 rows'
    """
    names, notes = _chosen(chosen, most)
    places = [calibrator._place(name) for name in names]
    if -1 in places:
        raise ValueError(f"chosen: {names[places.index(-1)]!r} was not among the segments fitted")
    rows = _of_places(calibrator, scores, labels, segments, weights, places)
    axes = _grid_of_axes(axes, len(names))
    low, high = np.array([_scores_to_draw(each)[[0, -1]] for each in rows]).T
    grid = np.linspace(low.min(), high.max(), _POINTS)
    for ax, name, note, each in zip(axes.flat, names, notes, rows, strict=False):
        bins = int(np.clip(len(each.values) // _ROWS_PER_BIN, 1, n_bins))
        _draw(ax, calibrator[name], each, grid, bins, "quantile", level)
        pooled = calibrator.fallback.predict_proba(grid)
        ax.plot(grid, pooled, color=style.GREY, linestyle="--", zorder=1)
        count = each.weights.sum()
        ax.set_title(f"{_text(name)}, {count:,.6g} rows{note}", fontsize=style.SMALL)
        ax.tick_params(labelsize=style.SMALL)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    return axes


def _scores_to_draw(rows):
    """Evenly spaced over the middle 99.8 % of those of the rows."""
    return np.linspace(*style.central(rows.values, share=0.998, pad=0.02), _POINTS)


def _draw(ax, fit, rows, grid, n_bins, strategy, level):
    lower, upper = fit.band(grid, level)
    ax.fill_between(grid, lower, upper, color=style.BLUE, alpha=0.2, linewidth=0)
    ax.plot(
        grid,
        fit.predict_proba(grid),
        color=style.BLUE,
        label=f"sigmoid, {style.percent(level)} band",
    )
    rates = rows.rates(n_bins, strategy, level)
    style.intervals(
        ax, rates, color=style.BLACK, label=f"observed, {style.percent(level)} interval"
    )
    ax.set(xlim=grid[[0, -1]], ylim=(-0.02, 1.02))


def _chosen(chosen, most):
    """The names of the first segments chosen, and what a table says of each."""
    if not hasattr(chosen, "keys"):
        names = list(chosen)[:most]
        notes = [""] * len(names)
    elif "segment" not in chosen:
        raise ValueError(f"chosen: expected a column 'segment', got {list(chosen.keys())}")
    else:
        names = [ids.read(chosen["segment"])[i] for i in range(min(most, len(chosen["segment"])))]
        tests = [name for name in ("p_value", "q_value") if name in chosen]
        notes = [
            "".join(f"\n{test[0]} = {np.asarray(chosen[test])[i]:.2g}" for test in tests[-1:])
            for i in range(len(names))
        ]
    if not names:
        raise ValueError("chosen: expected at least one segment, got none")
    return names, notes


def _of_places(calibrator, scores, labels, segments, weights, places):
    """The rows of each of these places among the keys."""
    found = get_indexer(calibrator.keys, ids.read(segments))
    if found.shape != np.shape(scores):
        raise ValueError(
            f"scores and segments: expected two flat arrays of one length, got shapes "
            f"{np.shape(scores)} and {found.shape}"
        )
    weights = validation.weights(1.0 if weights is None else weights, np.float64)
    weights = validation.broadcast(weights, found.shape, "weights")
    # What is wrong with other segments' rows is no matter here.
    weights = np.where(np.isin(found, places), weights, 0)
    found = found[weights != 0]
    for place in places:
        if not (found == place).any():
            raise ValueError(f"chosen: {calibrator.keys[place]!r} has none of the rows given")
    rows = scored(scores, labels, weights)
    return [Rows(*(x[found == place] for x in rows)) for place in places]


def _grid_of_axes(axes, number) -> Any:
    if axes is not None:
        axes = np.atleast_1d(axes)
        if axes.size < number:
            raise ValueError(f"axes: expected {number} or more, got {axes.size}")
        return axes
    columns = min(_COLUMNS, number)
    lines = -(-number // columns)
    size = 1 + 1.8 * columns, 0.5 + 1.6 * lines
    shared = {"sharex": True, "sharey": True, "squeeze": False}
    figure, axes = style.pyplot().subplots(
        lines, columns, layout="constrained", figsize=size, **shared
    )
    figure.supxlabel("score", fontsize=style.SMALL + 2)
    figure.supylabel("P(y = 1)", fontsize=style.SMALL + 2)
    return axes


def _text(name):
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
