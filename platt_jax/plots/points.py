"""Points, very many of them too, and intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.plots import style
from platt_jax.plots.style import Window

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection, PolyCollection
    from matplotlib.container import ErrorbarContainer

    from platt_jax.metrics import ReliabilityCurve

# Maximum number of points drawn as dots; more are drawn as hexagons.
MOST_POINTS = 20_000
_CELLS = 60
_FEW = 200  # points that hardly overlap


def intervals(ax: Axes, curve: ReliabilityCurve, **line: Any) -> ErrorbarContainer:
    """Draw frequencies with their intervals, for the bins of a ReliabilityCurve with rows."""
    filled = curve.rows > 0
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
    return ax.errorbar(x, y, reach, **looks | line)


def points(
    ax: Axes,
    x: NDArray[Any],
    y: NDArray[Any],
    window: Window,
    label: str,
    marked: bool = False,
    **dot: Any,
) -> PathCollection | PolyCollection:
    """Draw points with a legend, as dots or, if there are very many, as hexagons.

    Points beyond the window, ((left, right), (bottom, top)), are not drawn. If they are `marked`,
    they are dots in any case: very many are one for each of 3,600 cells of the window.
    """
    inside = places(ax, x, y, window)
    within = ((inside >= 0) & (inside <= 1)).all(0)
    x, y, inside = x[within], y[within], inside[:, within]
    few = len(x) <= _FEW
    looks = {"s": 16 if few else 9, "alpha": 0.9 if few or style.on_dark(ax) else 0.4}
    dots: dict[str, Any] = {"linewidth": 0, "label": label} | looks | dot
    if len(x) > MOST_POINTS and not marked:
        return _hexagons(ax, x, y, window, label)
    if len(x) > MOST_POINTS:
        cells = (np.minimum((inside * _CELLS).astype(int), _CELLS - 1) * [[_CELLS], [1]]).sum(0)
        _, firsts = np.unique(cells, return_index=True)
        x, y = x[firsts], y[firsts]
        dots |= {"s": 5, "alpha": 1}
    return ax.scatter(x, y, **dots)


def places(ax: Axes, x: NDArray[Any], y: NDArray[Any], window: Window) -> Floats:
    """(2, K) positions of the points in the window, from 0 to 1 along each axis."""
    across, up = np.array(window)
    with np.errstate(divide="ignore", invalid="ignore"):
        if ax.get_xscale() == "log":
            x, across = np.log(x), np.log(across)
        if ax.get_yscale() == "log":
            y, up = np.log(y), np.log(up)
        coordinates = (x, across), (y, up)
        return np.array([(values - low) / (high - low) for values, (low, high) in coordinates])


def _hexagons(
    ax: Axes, x: NDArray[Any], y: NDArray[Any], window: Window, label: str
) -> PolyCollection:
    scales: Any = ax.get_xscale(), ax.get_yscale()
    scaled_ends = zip(window, scales, strict=True)
    left, right, bottom, top = (
        end for ends, scale in scaled_ends for end in (np.log10(ends) if scale == "log" else ends)
    )
    hexagons = ax.hexbin(
        x,
        y,
        gridsize=60,
        bins="log",
        mincnt=1,
        cmap="Greys_r" if style.on_dark(ax) else "Greys",
        xscale=scales[0],
        yscale=scales[1],
        extent=(left, right, bottom, top),
        linewidths=0.2,
        zorder=0,
    )
    hexagons.set_clim(0.3, None)  # so that single points are visible
    ax.figure.colorbar(hexagons, ax=ax, label=label)
    return hexagons


def central(values: NDArray[Any], share: float = 0.98, pad: float = 0.15) -> tuple[float, float]:
    """Limits around this share of the finite values in the middle, with a margin."""
    values = values[np.isfinite(values)]
    if not len(values):
        return -1.0, 1.0
    low, high = np.quantile(values, [(1 - share) / 2, (1 + share) / 2]).astype(float)
    width = (high - low) or abs(high) or 1.0
    return low - pad * width, high + pad * width
