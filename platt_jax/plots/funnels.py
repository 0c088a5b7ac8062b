"""What funnel plots have in common: points within control limits, and the names of outliers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.hypothesis_tests.triage import q_values
from platt_jax.plots import axes, names, style
from platt_jax.plots.points import points
from platt_jax.plots.style import Window
from platt_jax.results import tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Control limits of about two and three standard errors, usual in funnel plots (Spiegelhalter 2005).
LEVELS = (0.95, 0.998)
# False discovery rate of the marks.
FDR = 0.05
_MOST_NAMES = 8
_NAME_WIDTH = 16  # in letters
_NAME_SIZE = 8  # in points
_ABOVE_LEGENDS = 6
# Positions of a name beside its mark, in points, with its horizontal and vertical alignment.
_ASIDE = {
    (5, 0): ("left", "center"),
    (-5, 0): ("right", "center"),
    (0, 5): ("center", "bottom"),
    (0, -5): ("center", "top"),
    (-4, 4): ("right", "bottom"),
    (-4, -4): ("right", "top"),
}


class Funnel(NamedTuple):
    """K problems."""

    sizes: Floats  # (K,) amounts of information, positive
    about: str  # what these are, for the axis
    values: Floats  # (K,) what is compared
    off: Bools  # (K,) whether a problem is marked
    marks: str  # what the marks mean, such as "off (q ≤ 0.05)"
    # (K,) of the hypothesis that a problem is as expected. The marked problems with the smallest
    # are named.
    p_value: Floats
    keys: NDArray[Any]  # (K,) ids
    kind: str  # name of a problem, such as "segment"


class ControlLimits(NamedTuple):
    """Control limits around a centre."""

    sizes: Floats  # (G,) amounts of information, as in `Funnel`
    ends: tuple[tuple[Floats, Floats], ...]  # a pair of arrays (G,) for each of `LEVELS`
    center: float  # value expected
    label: str  # label of the centre


def across(sizes: Floats) -> tuple[float, float]:
    """Limits of the axis of sizes."""
    return float(sizes.min()) / 1.2, float(sizes.max()) * 1.2


def reliably_off(p_value: Floats) -> tuple[Bools, str]:
    """Which problems are marked, and what that means."""
    return q_values(p_value) <= FDR, f"off (q ≤ {FDR:g})"


def draw(
    ax: Axes, funnel: Funnel, limits: ControlLimits, window: Window, left_out: Mapping[str, Bools]
) -> None:
    """Draw the funnel on axes whose scales are set; window and left_out as in `axes.framed`."""
    sizes, values, off = funnel.sizes, funnel.values, funnel.off
    marked = f"{np.count_nonzero(off):,} {funnel.marks}"
    unmarked = tables.counted(np.count_nonzero(~off), f"other {funnel.kind}")
    if not off.any():
        unmarked = f"{tables.counted(len(off), funnel.kind)}, none {funnel.marks}"
    beyond = [_beyond(funnel.p_value, level) for level in LEVELS]
    texts = [*beyond, limits.label, unmarked, *([marked] if off.any() else [])]
    ax.set_xlabel(funnel.about)
    ends = np.concatenate([end for pair in limits.ends for end in pair])
    lines = np.tile(limits.sizes, len(ends) // len(limits.sizes)), ends
    with axes.framed(ax, sizes, values, window, texts, left_out, off, lines) as window:
        _draw_limits(ax, limits, beyond)
        points(ax, sizes[~off], values[~off], window, unmarked, color=style.shade(ax, style.BLUE))
        if off.any():
            looks: dict[str, Any] = {"color": style.VERMILLION, "marker": "D", "s": 14, "alpha": 1}
            points(ax, sizes[off], values[off], window, marked, marked=True, **looks)
            _name(ax, funnel, window)


def _beyond(p_value: Floats, level: float) -> str:
    """How many problems are beyond limits of this level, and how many are by chance."""
    number = np.count_nonzero(p_value < 1 - level)
    chance = (1 - level) * len(p_value)
    expected = f"{chance:,.0f}" if chance >= 10 else f"{chance:.2g}"
    return f"{style.percent(level)} limits: {number:,} beyond, chance up to {expected}"


def _draw_limits(ax: Axes, limits: ControlLimits, beyond: list[str]) -> None:
    looks: dict[str, Any] = {"color": style.ORANGE, "linewidth": 1}
    for (low, high), text, line in zip(limits.ends, beyond, ("-", "--"), strict=True):
        ax.plot(limits.sizes, low, linestyle=line, **looks)
        ax.plot(limits.sizes, high, linestyle=line, label=text, **looks)
    ax.axhline(limits.center, color=style.ORANGE, linewidth=1.5, label=limits.label)


def _name(ax: Axes, funnel: Funnel, window: Window) -> None:
    """Write the names of the most urgent marked problems, where they do not overlap."""
    from matplotlib.transforms import Bbox

    sizes, values = funnel.sizes, funnel.values
    low, high = window[1]
    drawn = np.flatnonzero(funnel.off & (values >= low) & (values <= high))
    urgent = drawn[np.argsort(funnel.p_value[drawn], kind="stable")][:_MOST_NAMES]
    texts = names.distinct([names.text(key) for key in funnel.keys[urgent]], _NAME_WIDTH)
    looks: dict[str, Any] = {"fontsize": _NAME_SIZE, "textcoords": "offset points"}
    looks |= {"fontfamily": names.families(texts), "parse_math": False}
    looks["zorder"] = _ABOVE_LEGENDS
    figure: Any = ax.figure
    frame = Bbox(np.reshape(ax.get_window_extent().extents, (2, 2)) * 72 / figure.dpi)
    boxes: list[Bbox] = []
    for i, text in zip(urgent.tolist(), texts, strict=True):
        x, y = ax.transData.transform((sizes[i], values[i])) * 72 / figure.dpi
        wide = names.width(text) * 0.6 * _NAME_SIZE
        for (right, up), (ha, va) in _ASIDE.items():
            left = x + right - wide * {"left": 0, "center": 0.5, "right": 1}[ha]
            bottom = y + up - _NAME_SIZE * {"bottom": 0, "center": 0.5, "top": 1}[va]
            box = Bbox.from_bounds(left, bottom, wide, _NAME_SIZE)
            if frame.count_contains(box.corners()) == 4 and not box.count_overlaps(boxes):
                boxes.append(box)
                ax.annotate(text, (sizes[i], values[i]), (right, up), ha=ha, va=va, **looks)
                break
