"""Pooling methods compared on later rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.plots import style
from platt_jax.results.probabilities import critical_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def pooling_losses(
    judged: Mapping[str, NDArray[Any]],
    *,
    level: float = 0.95,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the log loss of pooling methods on later rows, minus that of one curve for all.

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
        >>> from platt_jax import judge_pooling
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=600), rng.random(600) < 0.5, np.arange(600) % 20
        >>> ax = pooling_losses(judge_pooling(*rows, np.arange(600), [300, 450]))
        >>> ax.get_ylabel()
        'log loss above one curve for all'
    """
    if missing := [name for name in _COLUMNS if name not in judged]:
        raise ValueError(f"judged: expected the table of judge_pooling, without {missing}")
    critical = critical_value(level, False)
    cuts, place = np.unique(judged["cut"], return_inverse=True)
    pooling = np.asarray(judged["pooling"])
    difference = np.asarray(judged["difference"], float)
    reach = critical * np.nan_to_num(np.asarray(judged["standard_error"], float))
    ax = style.axes_or_new(ax)
    ax.axhline(0, color=style.ORANGE, linewidth=1.5, label="one curve for all")
    shown = {name: looks for name, looks in _LOOKS.items() if (pooling == name).any()}
    for column, (name, (color, marker, label)) in enumerate(shown.items()):
        of = pooling == name
        x = place[of] + _BETWEEN * (column - (len(shown) - 1) / 2)
        looks: dict[str, Any] = {"linestyle": "none", "capsize": 2.5, "linewidth": 1}
        looks |= {
            "color": style.shade(ax, color),
            "marker": marker,
            "markersize": 4,
            "label": label,
        }
        ax.errorbar(x, difference[of], reach[of], **looks)
    deciding = np.isin(pooling, _DECIDED_BY)
    ends = np.concatenate([[0.0], (difference - reach)[deciding], (difference + reach)[deciding]])
    low, high = ends.min(), ends.max()
    room = (high - low) or 1.0
    window = low - room / 4, high + room
    ax.set(xlim=(-0.6, len(cuts) - 0.4), ylim=window)
    ax.set(xlabel="rows judged from", ylabel="log loss above one curve for all")
    ax.set_xticks(np.arange(len(cuts)), [str(cut) for cut in cuts])
    style.note_undrawn(ax, (difference < window[0]) | (difference > window[1]))
    style.legend(ax, loc="upper right")
    return style.titled(ax, title)
