"""The effect of partial pooling on segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools
from platt_jax.plots import axes, style
from platt_jax.plots.points import central, points
from platt_jax.results.segment_calibrator import SegmentCalibrator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOVES = 300


def shrinkage(
    calibrator: SegmentCalibrator,
    unpooled: SegmentCalibrator | None = None,
    *,
    label: str = "segment",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the shrinkage of segments towards the population, against their numbers of rows.

    Without `unpooled` the shrinkage itself is drawn, from 0 (a segment's own rows alone) to 1 (the
    population alone). With it, a line connects each unpooled slope with the partially pooled one;
    of more than 300 segments 300 are drawn, evenly by rank of rows.

    Args:
        calibrator: a SegmentCalibrator with pooling="partial".
        unpooled: a SegmentCalibrator of the same rows with pooling="none", or None.
        label: what a segment is, in the singular, such as "route".
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: the calibrator has no population, or the two have different segments.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=500), rng.random(500) < 0.5, np.arange(500) % 20
        >>> ax = shrinkage(fit_segments(*rows, pooling="partial"))
        >>> ax.get_ylabel()
        'shrinkage'
    """
    if calibrator.population is None:
        raise ValueError('calibrator: expected one with pooling="partial", got one without')
    if unpooled is not None and not np.array_equal(unpooled.keys, calibrator.keys):
        raise ValueError("unpooled: expected a calibrator of the same segments, got other keys")
    rows = np.asarray(calibrator.fit.n_pos, float) + calibrator.fit.n_neg
    if not (rows > 0).any():
        raise ValueError("calibrator: expected segments with rows, got none")
    left_out = {"without rows": ~(rows > 0)}
    ax = style.axes_or_new(ax)
    ax.set(xscale="log", xlabel=f"rows of the {label}")
    across = rows[rows > 0].min() / 1.2, rows.max() * 1.2
    if unpooled is None:
        all_shares: Any = calibrator.shrinkage  # not None with a population
        rows, share = rows[rows > 0], all_shares[rows > 0]
        some = style.counted(len(rows), label)
        window: style.Window = across, (-0.02, 1.02)
        place, window = axes.room_for_legend(ax, rows, share, window, [some])
        ax.set(xlim=window[0], ylim=window[1], ylabel="shrinkage")
        looks: dict[str, Any] = {"color": style.shade(ax, style.BLUE), "alpha": 0.4}
        points(ax, rows, share, window, some, **looks)
        style.note_undrawn(ax, np.zeros(0, bool), style.counted_once(left_out))
        axes.legend_at(ax, place)
    else:
        mean = -float(calibrator.population.mean[0])
        ax.axhline(mean, color=style.ORANGE, linewidth=1.5, label="mean of the population")
        before, after = -unpooled.fit.A, -calibrator.fit.A
        left_out["without a slope"] = ~(np.isfinite(before) & np.isfinite(after))
        _moves(ax, rows, before, after, across, left_out, label)
    axes.log_axis(ax.xaxis, across)  # hexagons come with ticks of their own
    return style.titled(ax, title)


def _moves(
    ax: Axes,
    rows: NDArray[Any],
    before: Any,
    after: Any,
    across: tuple[float, float],
    left_out: Mapping[str, Bools],
    label: str,
) -> None:
    usable = np.flatnonzero(~np.any(list(left_out.values()), axis=0))
    by_rows = usable[np.argsort(rows[usable], kind="stable")]
    few = np.linspace(0, len(by_rows) - 1, min(len(by_rows), _MOVES)).astype(np.intp)
    some = by_rows[few]
    x, start, end = rows[some], before[some].astype(float), after[some].astype(float)
    total = style.counted(len(by_rows), label)
    which = "" if len(few) == len(by_rows) else f", {len(few)} of {total}"
    texts = ["mean of the population", "unpooled", f"partially pooled{which}"]
    window: style.Window = across, central(np.append(start, end), share=0.96, pad=0.1)
    place, window = axes.room_for_legend(ax, x, start, window, texts)
    ax.set(xlim=window[0], ylim=window[1], ylabel="slope, $-A$")
    ax.vlines(x, start, end, color=style.GREY, linewidth=0.6)
    hollow: dict[str, Any] = {"color": "none", "edgecolor": style.VERMILLION, "linewidth": 0.8}
    ax.scatter(x, start, 12, label="unpooled", zorder=2.1, **hollow)
    ax.scatter(x, end, 10, label=texts[-1], color=style.shade(ax, style.BLUE), zorder=2.2)
    beyond = (start < window[1][0]) | (start > window[1][1])
    style.note_undrawn(ax, beyond, style.counted_once(left_out))
    axes.legend_at(ax, place)
