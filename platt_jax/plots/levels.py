"""How much each level of segments matters."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats
from platt_jax.plots import panels, style
from platt_jax.results.levels import Level, Levels
from platt_jax.results.segment_calibrator import SegmentCalibrator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_VALUES = 300  # maximum number of dots for a level
_HALF = 0.32  # half the height of a level's bar; levels are 1 apart
_DOTS, _BARS = "values, posterior means", "standard deviation ± error"
_NAME_WIDTH, _NAME_LINES = 20, 2  # of the levels' names: characters in a line, and lines


def levels(
    calibrator: SegmentCalibrator, *, title: str | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the effects of each level's values on intercept and slope, and their spread.

    A line per level, from the first column at the top. The bar reaches from minus to plus one
    standard deviation of the effects, and a whisker at each end is the standard error of that. A
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
        got = getattr(calibrator, "pooling", None)
        raise ValueError(
            'calibrator: expected one with pooling="nested" or "crossed", got '
            + (type(calibrator).__name__ if got is None else f"one with pooling={got!r}")
        )
    shown = _shown(by_level)
    if ax is None:
        size = 6.4, 1.6 + 0.6 * len(shown)
        ax = style.pyplot().subplots(layout="constrained", figsize=size)[1]
    right = panels.panel_beside(ax, 0.5)
    drawn = (ax, "intercept, $-B$", 1, _DOTS), (right, "slope, $-A$", 0, _BARS)
    for axes, name, parameter, in_legend in drawn:
        axes.axvline(0, color=style.GREY, linewidth=0.8, zorder=0)
        for line, level in enumerate(shown):
            _draw(axes, line, level, parameter)
        axes.set_xlabel(f"effect on the {name}")
        axes.locator_params(axis="x", nbins=5)
        handles, labels = axes.get_legend_handles_labels()
        above: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
        above |= {"borderaxespad": 0.2, "markerscale": 1.5}
        style.legend(axes, handles=[handles[labels.index(in_legend)]], **above)
    bottom, top = len(shown) - 0.5, -0.5
    ax.set_ylim(bottom, top)
    ax.set_yticks(range(len(shown)), [level.text for level in shown], parse_math=False)
    ax.tick_params(axis="y", labelsize=style.SMALL, length=0)
    right.tick_params(axis="y", length=0)
    return style.titled(ax, title)


class _DrawnLevel(NamedTuple):
    """A level as it is drawn."""

    text: str
    effects: Floats  # (V, 2), posterior means of the values' effects on (A, B)
    deviations: Floats  # (2,), standard deviations of the effects
    errors: Floats  # (2,), their standard errors


def _shown(by_level: Levels) -> list[_DrawnLevel]:
    table = by_level.table()
    deviations, errors = (
        np.stack([table[f"{what}slope_sd"], table[f"{what}intercept_sd"]], 1)
        for what in ("", "se_")
    )
    return [
        _DrawnLevel(_text(level, number), _effects(by_level, number), *spreads)
        for number, (level, *spreads) in enumerate(
            zip(by_level.each, deviations, errors, strict=True)
        )
    ]


def _text(level: Level, number: int) -> str:
    names = level.keys.dtype.names
    name = level.name if names is None else "> " + names[-1]
    lines = wrap(name, _NAME_WIDTH)
    if len(lines) > _NAME_LINES:
        lines[_NAME_LINES - 1] = lines[_NAME_LINES - 1][: _NAME_WIDTH - 1] + "…"
    lines = lines[:_NAME_LINES]
    return "\n".join([*lines, f"{len(level.keys):,} values, {100 * level.share:.0f} %"])


def _effects(by_level: Levels, number: int) -> NDArray[Any]:
    """(V, 2), posterior means of the effects of a level's values."""
    level = by_level.each[number]
    if by_level.kind == "crossed":
        return level.mean
    if number == 0:
        return level.mean - by_level.mean
    above = by_level.each[number - 1]
    return level.mean - above.mean[above.places(ids.fields(level.keys)[:-1])]


def _draw(ax: Axes, line: int, level: _DrawnLevel, parameter: int) -> None:
    deviation, error = level.deviations[parameter], level.errors[parameter]
    bar: dict[str, Any] = {"color": style.ORANGE, "alpha": 0.35, "linewidth": 0, "zorder": 1}
    ax.barh(line, 2 * deviation, 2 * _HALF, -deviation, label=_BARS, **bar)
    inwards = min(error, deviation)
    reach = [[error, inwards], [inwards, error]]
    ends: dict[str, Any] = {"color": style.VERMILLION, "linewidth": 1.2, "capsize": 3, "zorder": 3}
    ax.errorbar([-deviation, deviation], [line] * 2, xerr=reach, linestyle="none", **ends)
    effects = np.sort(-level.effects[:, parameter])
    ranks = np.linspace(0, len(effects) - 1, min(len(effects), _MOST_VALUES)).astype(np.intp)
    # Multiples of the golden ratio: neighbours by rank are far apart in height.
    heights = line + 1.6 * _HALF * (np.arange(len(ranks)) * 0.618034 % 1 - 0.5)
    dots: dict[str, Any] = {"color": style.shade(ax, style.BLUE), "alpha": 0.8, "linewidth": 0}
    ax.scatter(effects[ranks], heights, 8, label=_DOTS, zorder=2, **dots)
