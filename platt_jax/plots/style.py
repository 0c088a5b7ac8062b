"""Common parts of figures: colours, new axes, notes and legends."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from platt_jax.arrays import Bools
from platt_jax.extras import install_hint
from platt_jax.plots import names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend

# ((left, right), (bottom, top)) limits of axes.
Window: TypeAlias = tuple[tuple[float, float], tuple[float, float]]

# Okabe & Ito (2008, "Color universal design"), without the yellow, which is pale on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
# What replaces a colour on a dark background.
_ON_DARK = {BLACK: "#FFFFFF", BLUE: SKY, SKY: BLUE}
MARKERS = "osD^vPX"
SMALL = 8  # font size in points

_NOTE_WIDTH = 60  # line width in characters
_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue


def pyplot() -> Any:
    """matplotlib.pyplot."""
    with install_hint("platt_jax.plots needs matplotlib", "platt-jax[plots]"):
        import matplotlib.pyplot as plt
    return plt


def axes_or_new(ax: Axes | None, size: tuple[float, float] | None = None) -> Axes:
    """The given axes, or axes of a new figure; size in inches, None for the user's own."""
    return pyplot().subplots(layout="constrained", figsize=size)[1] if ax is None else ax


def titled(ax: Axes, title: str | None) -> Axes:
    """The axes, with a title above them and above their notes, if it is not None."""
    if title is not None:
        # All titles of axes have the same base line.
        lines = len(ax.get_title(loc="right").splitlines())
        title = names.drawable(title)
        ax.set_title(title + "\n" * lines, loc="left", fontfamily=names.families([title]))
    return ax


def on_dark(ax: Axes) -> bool:
    """Whether the background of the axes is dark."""
    from matplotlib.colors import to_rgba

    figure: Any = ax.figure
    for behind in (ax.get_facecolor(), figure.get_facecolor()):
        *rgb, alpha = to_rgba(behind)
        if alpha > 0:
            return float(np.dot(rgb, _LUMINANCE)) < 0.4
    return False


def shade(ax: Axes, color: str) -> str:
    """The colour, or on a dark background one that is visible there."""
    return _ON_DARK.get(color, color) if on_dark(ax) else color


def muted(ax: Axes) -> str:
    """The colour of notes."""
    return "#AAAAAA" if on_dark(ax) else "#555555"


def cycle(ax: Axes, number: int) -> str:
    """The colour of a model by its number."""
    return shade(ax, CYCLE[number % len(CYCLE)])


def note_undrawn(ax: Axes, beyond: Bools, left_out: Mapping[str, Bools]) -> None:
    """Note how many points are beyond the axes, and how many problems (K,) are left out, by reason.

    A problem counts for its first reason only. Where some counted before, the others are "more" of
    the reason.
    """
    counts = {}
    counted: Any = False
    for why, problems in left_out.items():
        uncounted = problems & ~np.asarray(counted)
        prefix = "" if np.array_equal(uncounted, problems) else "more "
        if number := np.count_nonzero(uncounted):
            counts[prefix + why] = number
        counted = counted | problems
    lines = []
    if counts:
        # No line break between a number and its reason.
        reasons = ", ".join(f"{number:,}\N{NO-BREAK SPACE}{why}" for why, number in counts.items())
        lines += wrap(f"{sum(counts.values()):,} not drawn: {reasons}", _NOTE_WIDTH)
    if number := np.count_nonzero(beyond):
        lines.append(f"{number:,} beyond the axes")
    if lines:
        note(ax, lines)


def note(ax: Axes, lines: list[str]) -> None:
    """Write these lines above the axes, on the right."""
    ax.set_title("\n".join(lines), loc="right", fontsize=SMALL, color=muted(ax))


def percent(share: float) -> str:
    """A share as text: 95 %."""
    return f"{100 * share:g} %"


def legend(ax: Axes, **options: Any) -> Legend:
    """A legend with a nearly opaque background, in fonts that have its characters."""
    looks: dict[str, Any] = {
        "fontsize": SMALL + 1,
        "edgecolor": "none",
        "framealpha": 0.85,
        "handlelength": 1.5,
    }
    legend_box = ax.legend(**looks | options)
    for text in legend_box.get_texts():
        text.set_fontfamily(names.families([text.get_text()]))
    return legend_box
