"""Common parts of figures: colours, axes, intervals, and drawing of very many points."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.extras import needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection, PolyCollection
    from matplotlib.container import ErrorbarContainer
    from matplotlib.legend import Legend

    from platt_jax.metrics import ReliabilityCurve

# ((left, right), (bottom, top)) limits of axes.
Window: TypeAlias = tuple[tuple[float, float], tuple[float, float]]

# Okabe & Ito (2008, "Color universal design"), without the yellow, which is pale on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"

CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = "osD^vPX"
SMALL = 8  # font size in points

# Maximum number of points drawn as dots; more are drawn as hexagons.
MOST_POINTS = 20_000
_CELLS = 60
_NOTE_WIDTH = 60  # line width in characters


def pyplot() -> Any:
    """matplotlib.pyplot."""
    with needing("platt_jax.plots needs matplotlib", "platt-jax[plots]"):
        import matplotlib.pyplot as plt
    return plt


def axes_or_new(ax: Axes | None) -> Axes:
    """The given axes, or those of a new figure."""
    return pyplot().subplots(layout="constrained")[1] if ax is None else ax


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
        place = left + (1 - share) * width, bottom, share * width, height
        beside = ax.figure.add_axes(place, sharey=ax)
    else:
        halves: Any = spec.subgridspec(1, 2, width_ratios=(1 - share, share), wspace=0.1)
        first, second = halves
        ax.set_subplotspec(first)
        beside = ax.figure.add_subplot(second, sharey=ax)
    beside.tick_params(labelleft=False)
    return beside


def intervals(ax: Axes, curve: ReliabilityCurve, **style: Any) -> ErrorbarContainer:
    """Draw frequencies with their intervals, for the bins of a ReliabilityCurve with rows."""
    filled = curve.n_rows > 0
    x, y, lower, upper = (getattr(curve, name)[filled] for name in curve._fields[:4])
    # Rounding may put an end on the wrong side of the frequency.
    reach = np.maximum([y - lower, upper - y], 0)
    looks: dict[str, Any] = {
        "linestyle": "none",
        "marker": "o",
        "markersize": 4,
        "capsize": 2.5,
        "linewidth": 1,
    }
    return ax.errorbar(x, y, reach, **looks | style)


def points(
    ax: Axes,
    x: NDArray[Any],
    y: NDArray[Any],
    window: Window,
    label: str,
    marked: bool = False,
    **style: Any,
) -> PathCollection | PolyCollection:
    """Draw points with a legend, as dots or, if there are very many, as hexagons.

    Args:
        ax: axes, with scales and limits set.
        x: (K,) coordinates.
        y: (K,) coordinates.
        window: ((left, right), (bottom, top)) of the axes; points beyond are not drawn.
        label: label of the legend or the colour bar.
        marked: whether to draw dots in any case: if there are very many, one for each of 3,600
            cells of the window.
        style: style of the dots.
    """
    inside = _places(ax, x, y, window)
    within = ((inside >= 0) & (inside <= 1)).all(0)
    x, y, inside = x[within], y[within], inside[:, within]
    dots: dict[str, Any] = {"s": 9, "linewidth": 0, "alpha": 0.6, "label": label} | style
    if len(x) > MOST_POINTS and not marked:
        return _hexagons(ax, x, y, window, label)
    if len(x) > MOST_POINTS:
        cells = (np.minimum((inside * _CELLS).astype(int), _CELLS - 1) * [[_CELLS], [1]]).sum(0)
        _, one = np.unique(cells, return_index=True)
        x, y = x[one], y[one]
        dots |= {"s": 5, "alpha": 1}
    return ax.scatter(x, y, **dots)


def _places(ax: Axes, x: NDArray[Any], y: NDArray[Any], window: Window) -> Floats:
    """(2, K) positions of the points in the window, from 0 to 1 along each axis."""
    across, up = np.array(window)
    with np.errstate(divide="ignore", invalid="ignore"):
        if ax.get_xscale() == "log":
            x, across = np.log(x), np.log(across)
        both = (x, across), (y, up)
        return np.array([(values - low) / (high - low) for values, (low, high) in both])


def _hexagons(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], window: Window, label: str
) -> PolyCollection:
    log = ax.get_xscale() == "log"
    extent = (*(np.log10(window[0]) if log else window[0]), *window[1])
    made = ax.hexbin(
        x,
        y,
        gridsize=60,
        bins="log",
        mincnt=1,
        cmap="Greys",
        xscale="log" if log else "linear",
        extent=extent,
        linewidths=0.2,
        zorder=0,
    )
    made.set_clim(0.3, None)  # so that single points are visible on white
    ax.figure.colorbar(made, ax=ax, label=label)
    return made


def central(values: NDArray[Any], share: float = 0.98, pad: float = 0.15) -> tuple[float, float]:
    """Limits around this share of the finite values in the middle, with a margin."""
    values = values[np.isfinite(values)]
    if not len(values):
        return -1.0, 1.0
    low, high = np.quantile(values, [(1 - share) / 2, (1 + share) / 2]).astype(float)
    width = (high - low) or abs(high) or 1.0
    return low - pad * width, high + pad * width


def counted_once(reasons: Mapping[str, Bools]) -> dict[str, int]:
    """The number of problems for each reason (K,); a problem counts for its first reason only."""
    counts = {}
    earlier: Any = False
    for name, held in reasons.items():
        counts[name] = int(np.count_nonzero(held & ~np.asarray(earlier)))
        earlier = earlier | held
    return counts


def note_undrawn(ax: Axes, beyond: Bools, left_out: Mapping[str, int] | None = None) -> None:
    """Note the numbers of points beyond the axes, and of those left out, by reason, if any."""
    left_out = {why: number for why, number in (left_out or {}).items() if number}
    lines = []
    if left_out:
        # No line break between a number and its reason.
        reasons = ", ".join(
            f"{number:,}\N{NO-BREAK SPACE}{why}" for why, number in left_out.items()
        )
        lines += wrap(f"{sum(left_out.values()):,} not drawn: {reasons}", _NOTE_WIDTH)
    if number := np.count_nonzero(beyond):
        lines.append(f"{number:,} beyond the axes")
    if lines:
        ax.set_title("\n".join(lines), loc="right", fontsize=SMALL, color="#555555")


def plural(kind: str) -> str:
    """The plural of the name of an `Inspectable` result's problems."""
    return kind + ("es" if kind.endswith("s") else "s")


def percent(share: float) -> str:
    """A share as text: 95 %."""
    return f"{100 * share:g} %"


def legend(ax: Axes, **options: Any) -> Legend:
    """A legend with a nearly opaque background."""
    looks: dict[str, Any] = {
        "fontsize": SMALL + 1,
        "edgecolor": "none",
        "framealpha": 0.85,
        "handlelength": 1.5,
    }
    return ax.legend(**looks | options)


def legend_beside(ax: Axes, x: NDArray[Any], y: NDArray[Any], window: Window) -> Legend | None:
    """A legend in the corner where the fewest of these points lie."""
    places = _places(ax, x, y, window)
    (right, top), away = places > 0.5, np.abs(places - 0.5)
    near = (away[0] < 0.5) & (away[1] > 0.2) & (away[1] < 0.5)
    counts = {
        f"{vertical} {horizontal}": np.count_nonzero(near & (top == up) & (right == across))
        for vertical, up in (("upper", True), ("lower", False))
        for horizontal, across in (("right", True), ("left", False))
    }
    if not ax.get_legend_handles_labels()[0]:  # hexagons have a colour bar instead
        return None
    made = legend(ax, loc=min(counts, key=counts.__getitem__), markerscale=1.5)
    handles: list[Any] = made.legend_handles
    for handle in handles:
        handle.set_alpha(1)
    return made
