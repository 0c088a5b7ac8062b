"""Panels beside or below given axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
