"""Limits and ticks of axes, room for legends, and panels beside axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from platt_jax.arrays import Bools
from platt_jax.plots import style
from platt_jax.plots.points import places
from platt_jax.plots.style import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_LINE = 1.6 * (style.SMALL + 1)  # height of a legend's line, in points
_LETTER = 0.58 * (style.SMALL + 1)  # width of a letter
_HANDLE = 3.5 * (style.SMALL + 1)  # width of a legend without its text
# Maximum share of the points behind a legend.
_HIDDEN = 0.002
_CORNERS = ("upper right", "upper left", "lower right", "lower left")


def log_axis(axis: Axis, limits: tuple[float, float]) -> None:
    """Plain numbers on a logarithmic axis: 1, 3, 10, 30; few round ones if it is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    ratio, integer = limits[1] / limits[0], limits[1] - limits[0] >= 3
    subs = (1,) if ratio > 1e4 else (1, 3) if ratio > 20 else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=subs) if ratio > 6 else MaxNLocator(5, integer=integer))
    axis.set_minor_locator(no_ticks())
    axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))


def no_ticks() -> Any:
    """A locator without ticks."""
    from matplotlib.ticker import NullLocator

    return NullLocator()


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between two positive ones: powers of 10 or of 2, or closer ones if few fit."""
    from matplotlib.ticker import MaxNLocator

    if high / low > 4:
        base = 10.0 if high / low > 1e4 else 2.0
        step = max(1, round(np.log(high / low) / np.log(base) / 6))
        ticks = [base**power for power in range(-step * 20, step * 20 + 1, step)]
    else:
        ticks = list(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    return [tick for tick in ticks if low <= tick <= high]


def probability_limits(low: float, high: float) -> tuple[float, float]:
    """Limits of an axis of probabilities: all, or a part from 0 or to 1 if all drawn lie there."""
    if 0 < high <= 0.5:
        return -0.02 * high, 1.08 * high
    if 0.5 <= low < 1:
        return 1 - 1.08 * (1 - low), 1 + 0.02 * (1 - low)
    return -0.02, 1.02


@contextmanager
def framed(
    ax: Axes,
    x: Any,
    y: Any,
    window: Window,
    labels: list[str],
    left_out: Mapping[str, Bools],
    marked: Bools | bool = False,
    lines: Any = ((), ()),
) -> Iterator[Window]:
    """Axes, with scales set, to draw points in. They get a legend, and a note on what is not drawn.

    The window, ((left, right), (bottom, top)), reaches further up or down where a marked point or
    more than a few others would be behind the legend, or of `lines`, given by points (x, y).
    `left_out` is as in `style.note_undrawn`.
    """
    from matplotlib.collections import PathCollection

    corner, window = room_for_legend(ax, x, y, window, labels, marked, lines)
    (left, right), (bottom, top) = window
    ax.set(xlim=(left, right), ylim=(bottom, top))
    yield window
    if ax.get_xscale() == "log":  # hexagons come with ticks of their own
        log_axis(ax.xaxis, (left, right))
    style.note_undrawn(ax, (x < left) | (x > right) | (y < bottom) | (y > top), left_out)
    if not ax.get_legend_handles_labels()[0]:  # hexagons have a colour bar instead
        return
    handles: list[Any] = style.legend(ax, loc=corner, markerscale=1.5).legend_handles
    for handle in handles:
        if isinstance(handle, PathCollection):
            handle.set_alpha(1)


def room_for_legend(
    ax: Axes,
    x: Any,
    y: Any,
    window: Window,
    labels: list[str],
    marked: Bools | bool = False,
    lines: Any = ((), ()),
) -> tuple[str, Window]:
    """The corner for a legend, and the window with room for it; arguments as of `framed`."""
    figure: Any = ax.figure
    size = np.array([ax.get_window_extent().width, ax.get_window_extent().height])
    width, height = size * 72 / figure.dpi
    across = min((_LETTER * max(map(len, labels), default=0) + _HANDLE) / width, 1)
    up = min(_LINE * (len(labels) + 1) / height, 0.5)
    most = max(_HIDDEN * np.size(x), 1)
    marked = np.append(np.broadcast_to(marked, np.shape(x)), np.zeros(np.shape(lines[0]), bool))
    x, y = np.append(x, lines[0]), np.append(y, lines[1])
    for room in (0, up / 3, 2 * up / 3, up):
        layouts = {}
        for corner in _CORNERS:
            longer = window[0], _longer(window[1], room, corner, ax.get_yscale() == "log")
            from_left, from_bottom = places(ax, x, y, longer)
            beside = from_left if corner.endswith("left") else 1 - from_left
            below = from_bottom if corner.startswith("lower") else 1 - from_bottom
            behind = (beside >= 0) & (beside < across) & (below >= 0) & (below < up)
            hidden = np.count_nonzero(behind) + most * np.count_nonzero(behind & marked)
            layouts[corner] = hidden, longer
        corner = min(layouts, key=lambda corner: layouts[corner][0])
        if layouts[corner][0] <= most:
            break
    return corner, layouts[corner][1]


def _longer(ends: tuple[float, float], share: float, place: str, log: bool) -> tuple[float, float]:
    """The ends of an axis of which this share is new, at the top or at the bottom."""
    low, high = np.log(ends) if log else ends
    added = (high - low) * share / (1 - share)
    low, high = (low, high + added) if place.startswith("upper") else (low - added, high)
    return (float(np.exp(low)), float(np.exp(high))) if log else (float(low), float(high))


def panel_below(ax: Axes, share: float) -> Axes:
    """New axes below `ax`, which take this share of its height and share its x axis."""
    spec = ax.get_subplotspec()
    if spec is None:
        left, bottom, width, height = ax.get_position(original=True).bounds
        ax.set_position((left, bottom + 1.1 * share * height, width, (1 - 1.1 * share) * height))
        below = ax.figure.add_axes((left, bottom, width, share * height), sharex=ax)
    else:
        halves: Any = spec.subgridspec(2, 1, height_ratios=(1 - share, share), hspace=0.1)
        upper, lower = halves
        ax.set_subplotspec(upper)
        below = ax.figure.add_subplot(lower, sharex=ax)
    ax.tick_params(labelbottom=False)
    return below


def panel_beside(ax: Axes, share: float) -> Axes:
    """New axes to the right of `ax`, which take this share of its width and share its y axis."""
    spec = ax.get_subplotspec()
    if spec is None:
        left, bottom, width, height = ax.get_position(original=True).bounds
        ax.set_position((left, bottom, (1 - 1.1 * share) * width, height))
        bounds = left + (1 - share) * width, bottom, share * width, height
        beside = ax.figure.add_axes(bounds, sharey=ax)
    else:
        halves: Any = spec.subgridspec(1, 2, width_ratios=(1 - share, share), wspace=0.1)
        first, second = halves
        ax.set_subplotspec(first)
        beside = ax.figure.add_subplot(second, sharey=ax)
    beside.tick_params(labelleft=False)
    return beside
