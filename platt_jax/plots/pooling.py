"""What partial pooling does to segments, what it saves on later rows, and what levels matter."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Bools, Floats
from platt_jax.plots import axes, style
from platt_jax.plots.points import central, points
from platt_jax.results import tables
from platt_jax.results.levels import Level, Levels
from platt_jax.results.probabilities import critical_value
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MOVES = 300  # maximum number of lines between slopes

_LOOKS = {
    "partial": (style.BLUE, "o", "partial pooling"),
    "drift": (style.GREEN, "D", "what lasts of it"),
    "none": (style.VERMILLION, "s", "each segment alone"),
}
_COLUMNS = ("cut", "pooling", "difference", "standard_error")
_BETWEEN = 0.15  # distance between the columns of a cut
# Methods that determine the limits of the axes, with as much room again. "none" may be so much
# worse that the others could not be distinguished.
_DECIDED_BY = ("partial", "drift")

_MOST_VALUES = 300  # maximum number of dots for a level
_HALF = 0.32  # half the height of a level's bar; levels are 1 apart
_DOTS, _BARS = "values, posterior means", "standard deviation ± error"
_NAME_WIDTH, _NAME_LINES = 20, 2  # of the levels' names: characters in a line, and lines


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
    require_segment_calibrator(calibrator, "calibrator")
    if calibrator.population is None:
        raise ValueError('calibrator: expected one with pooling="partial", got one without')
    if unpooled is not None:
        require_segment_calibrator(unpooled, "unpooled")
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
        total = tables.counted(len(rows), label)
        ax.set_ylabel("shrinkage")
        with axes.framed(ax, rows, share, (across, (-0.02, 1.02)), [total], left_out) as window:
            looks: dict[str, Any] = {"color": style.shade(ax, style.BLUE), "alpha": 0.4}
            points(ax, rows, share, window, total, **looks)
    else:
        mean = -float(calibrator.population.mean[0])
        ax.axhline(mean, color=style.ORANGE, linewidth=1.5, label="mean of the population")
        before, after = -unpooled.fit.A, -calibrator.fit.A
        left_out["without a slope"] = ~(np.isfinite(before) & np.isfinite(after))
        _draw_moves(ax, rows, before, after, across, left_out, label)
    return style.titled(ax, title)


def _draw_moves(
    ax: Axes,
    rows: NDArray[Any],
    before: Any,
    after: Any,
    across: tuple[float, float],
    left_out: Mapping[str, Bools],
    label: str,
) -> None:
    """Lines from the slopes before to the slopes after, evenly by rank of rows."""
    usable = np.flatnonzero(~np.any(list(left_out.values()), axis=0))
    by_rows = usable[np.argsort(rows[usable], kind="stable")]
    chosen = by_rows[_evenly(len(by_rows), _MOST_MOVES)]
    x, start, end = rows[chosen], before[chosen].astype(float), after[chosen].astype(float)
    total = tables.counted(len(by_rows), label)
    suffix = "" if len(chosen) == len(by_rows) else f", {len(chosen)} of {total}"
    texts = ["mean of the population", "unpooled", f"partially pooled{suffix}"]
    ax.set_ylabel("slope, $-A$")
    window: style.Window = across, central(np.append(start, end), share=0.96, pad=0.1)
    with axes.framed(ax, x, start, window, texts, left_out):
        ax.vlines(x, start, end, color=style.GREY, linewidth=0.6)
        hollow: dict[str, Any] = {"color": "none", "edgecolor": style.VERMILLION, "linewidth": 0.8}
        ax.scatter(x, start, 12, label="unpooled", zorder=2.1, **hollow)
        ax.scatter(x, end, 10, label=texts[-1], color=style.shade(ax, style.BLUE), zorder=2.2)


def _evenly(number: int, most: int) -> NDArray[np.intp]:
    """Evenly spaced places among this number, all if there are no more than `most`."""
    return np.linspace(0, number - 1, min(number, most)).astype(np.intp)


def pooling_losses(
    judged: Mapping[str, NDArray[Any]],
    *,
    level: float = 0.95,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the log loss of pooling methods on later rows, minus the log loss of one curve for all.

    Differences from "complete" at each cut are drawn with confidence intervals. The axes fit
    "partial" and "drift", as "none" may be far worse; points beyond the axes are counted.

    Args:
        judged: result of `judge_pooling`.
        level: confidence level of the intervals, in (0, 1).
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: judged is another table, or level is not in (0, 1).
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax.inference import judge_pooling
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=600), rng.random(600) < 0.5, np.arange(600) % 20
        >>> ax = pooling_losses(judge_pooling(*rows, np.arange(600), [300, 450]))
        >>> ax.get_ylabel()
        'log loss above one curve for all'
    """
    if missing := [name for name in _COLUMNS if name not in judged]:
        raise ValueError(f"judged: expected the table of judge_pooling, without {missing}")
    critical = critical_value(level, False)
    cuts, cut_index = np.unique(judged["cut"], return_inverse=True)
    pooling = np.asarray(judged["pooling"])
    difference = np.asarray(judged["difference"], float)
    reach = critical * np.nan_to_num(np.asarray(judged["standard_error"], float))
    ax = style.axes_or_new(ax)
    ax.axhline(0, color=style.ORANGE, linewidth=1.5, label="one curve for all")
    shown = {name: looks for name, looks in _LOOKS.items() if (pooling == name).any()}
    for column, (name, (color, marker, label)) in enumerate(shown.items()):
        selected = pooling == name
        x = cut_index[selected] + _BETWEEN * (column - (len(shown) - 1) / 2)
        looks: dict[str, Any] = {"linestyle": "none", "capsize": 2.5, "linewidth": 1}
        looks |= {
            "color": style.shade(ax, color),
            "marker": marker,
            "markersize": 4,
            "label": label,
        }
        ax.errorbar(x, difference[selected], reach[selected], **looks)
    deciding = np.isin(pooling, _DECIDED_BY)
    ends = np.concatenate([[0.0], (difference - reach)[deciding], (difference + reach)[deciding]])
    low, high = ends.min(), ends.max()
    room = (high - low) or 1.0
    window = low - room / 4, high + room
    ax.set(xlim=(-0.6, len(cuts) - 0.4), ylim=window)
    ax.set(xlabel="rows judged from", ylabel="log loss above one curve for all")
    ax.set_xticks(np.arange(len(cuts)), [str(cut) for cut in cuts])
    style.note_undrawn(ax, (difference < window[0]) | (difference > window[1]), {})
    style.legend(ax, loc="upper right")
    return style.titled(ax, title)


def levels(
    calibrator: SegmentCalibrator, *, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the effects of each level's values on intercept and slope, and their spread.

    A line per level, from the first column at the top. The bar reaches from minus to plus one
    standard deviation of the effects, and a whisker at each end is its standard error. A
    dot is a value's effect, its posterior mean; of more than 300 values 300 are drawn, evenly by
    rank. Dots of values with few rows are close to 0, also where the spread is large.

    Intercepts are in `ax`, slopes in new axes that take the right half of its place.

    Args:
        calibrator: a SegmentCalibrator with pooling="nested" or "crossed".
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: the calibrator has no levels.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> fields = np.stack([np.arange(500) % 20, np.arange(500) % 7], axis=1)
        >>> rows = rng.normal(size=500), rng.random(500) < 0.5, fields
        >>> ax = levels(fit_segments(*rows, pooling="crossed"))
        >>> len(ax.get_yticks())
        2
    """
    by_level = getattr(calibrator, "by_level", None)
    if by_level is None:
        pooling = getattr(calibrator, "pooling", None)
        raise ValueError(
            'calibrator: expected one with pooling="nested" or "crossed", got '
            + (type(calibrator).__name__ if pooling is None else f"one with pooling={pooling!r}")
        )
    lines = range(len(by_level.each))
    effects, spreads = [_level_effects(by_level, number) for number in lines], by_level.table()
    ax = style.axes_or_new(ax, (6.4, 1.6 + 0.6 * len(lines)))
    right = axes.panel_beside(ax, 0.5)
    drawn = (ax, "intercept", "$-B$", 1, _DOTS), (right, "slope", "$-A$", 0, _BARS)
    for panel, name, symbol, parameter, in_legend in drawn:
        panel.axvline(0, color=style.GREY, linewidth=0.8, zorder=0)
        deviations, errors = spreads[f"{name}_sd"], spreads[f"se_{name}_sd"]
        for line in lines:
            _draw_level(panel, line, effects[line][:, parameter], deviations[line], errors[line])
        panel.set_xlabel(f"effect on the {name}, {symbol}")
        panel.locator_params(axis="x", nbins=5)
        handles, labels = panel.get_legend_handles_labels()
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
        above |= {"borderaxespad": 0.2, "markerscale": 1.5}
        style.legend(panel, handles=[handles[labels.index(in_legend)]], **above)
    bottom, top = len(lines) - 0.5, -0.5
    ax.set_ylim(bottom, top)
    texts = [_level_text(level) for level in by_level.each]
    ax.set_yticks(lines, texts, parse_math=False)
    ax.tick_params(axis="y", labelsize=style.SMALL, length=0)
    right.tick_params(axis="y", length=0)
    return style.titled(ax, title)


def _level_text(level: Level) -> str:
    names = level.keys.dtype.names
    name = level.name if names is None else "> " + names[-1]
    lines = wrap(name, _NAME_WIDTH)
    if len(lines) > _NAME_LINES:
        lines[_NAME_LINES - 1] = lines[_NAME_LINES - 1][: _NAME_WIDTH - 1] + "…"
    lines = lines[:_NAME_LINES]
    return "\n".join(
        [*lines, f"{tables.counted(len(level.keys), 'value')}, {100 * level.share:.0f} %"]
    )


def _level_effects(by_level: Levels, number: int) -> NDArray[Any]:
    """(V, 2), posterior means of the effects of a level's values."""
    level = by_level.each[number]
    if by_level.kind == "crossed":
        return level.mean
    if number == 0:
        return level.mean - by_level.mean
    above = by_level.each[number - 1]
    return level.mean - above.mean[above.places(ids.fields(level.keys)[:-1])]


def _draw_level(ax: Axes, line: int, effects: Floats, deviation: float, error: float) -> None:
    bar: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.35, "linewidth": 0, "zorder": 1}
    ax.barh(line, 2 * deviation, 2 * _HALF, -deviation, label=_BARS, **bar)
    inwards = min(error, deviation)
    reach = [[error, inwards], [inwards, error]]
    ends: dict[str, Any] = {"color": style.VERMILLION, "linewidth": 1.2, "capsize": 3, "zorder": 3}
    ax.errorbar([-deviation, deviation], [line] * 2, xerr=reach, linestyle="none", **ends)
    effects = np.sort(-effects)
    ranks = _evenly(len(effects), _MOST_VALUES)
    # Multiples of the golden ratio: neighbours by rank are far apart in height.
    heights = line + 1.6 * _HALF * (np.arange(len(ranks)) * 0.618034 % 1 - 0.5)
    dots: dict[str, Any] = {"color": style.shade(ax, style.BLUE), "alpha": 0.8, "linewidth": 0}
    ax.scatter(effects[ranks], heights, 8, label=_DOTS, zorder=2, **dots)
