"""What a figure shows, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def alt_text(ax: Axes | NDArray[Any]) -> str:
    """What a figure shows, for those who cannot see it: axes, what the legend names, notes.

    Args:
        ax: axes of a figure of this module, or an array of them.

    Example:
        >>> from platt_jax.plots import rate_funnel
        >>> ax = rate_funnel([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8], ["a", "a", "b", "b"])
        >>> print(alt_text(ax)[:76])
        observed / expected against expected positives of the segment. From 0.333 to
    """
    panels = [panel for panel in np.ravel(np.asarray(ax, object)).tolist() if panel.get_visible()]
    return " ".join(map(_panel_description, panels))


def _panel_description(ax: Axes) -> str:
    # Where a panel below shares the axis, it has the label.
    shared: list[Axes] = ax.get_shared_x_axes().get_siblings(ax)
    labels = [ax.get_xlabel(), *(panel.get_xlabel() for panel in shared)]
    across, up = _words(next(filter(None, labels), "")), _words(ax.get_ylabel())
    parts = [f"{up} against {across}" if across and up else across or up]
    (left, right), (bottom, top) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
    parts.append(f"From {left:.3g} to {right:.3g} across and from {bottom:.3g} to {top:.3g} up")
    if title := ax.get_title(loc="left") or ax.get_title():
        parts.insert(0, title)
    if drawn := ax.get_legend_handles_labels()[1]:
        parts.append(f"Drawn: {'; '.join(dict.fromkeys(drawn))}")
    if named := [text.get_text() for text in ax.texts if text.get_text()]:
        parts.append(f"Written: {'; '.join(named)}")
    if note := ax.get_title(loc="right"):
        parts.append(note)
    return " ".join(f"{' '.join(part.split())}." for part in parts if part)


def _words(label: str) -> str:
    """A label without its formulas."""
    return label.split(", $")[0]
