"""Centres, their mean, and what a new one may be: a forest plot, and curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from platt_jax import ids
from platt_jax.api import fit_segments
from platt_jax.arrays import Floats
from platt_jax.columns import Column, takes_columns
from platt_jax.ids.vocabulary import distinct
from platt_jax.metrics.centre_population import over_centres
from platt_jax.metrics.centres import Centres
from platt_jax.plots import axes, names, style
from platt_jax.plots.points import central
from platt_jax.plots.rows import ids_in_table, predicted
from platt_jax.results.probabilities import clipped_logit, critical_value, expit
from platt_jax.results.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST = 40  # centres drawn, by default
_NAME_WIDTH = 24  # in letters
_LINE = 0.22  # height of a centre, in inches
_CURVE_POINTS = 200
_PAST = 0.15  # how far the axis goes beyond estimates, as a share of their range
_RIGHT = {"ratio": 1.0, "in_the_large": 0.0, "intercept": 0.0, "slope": 1.0}
_ERRORS = {"ratio": "se_log_ratio"} | {x: f"se_{x}" for x in _RIGHT if x != "ratio"}
_TEXTS = {
    "ratio": "observed / expected positives",
    "in_the_large": "calibration in the large, log-odds",
    "intercept": "calibration intercept, log-odds",
    "slope": "calibration slope",
}


@takes_columns
def centre_curves(
    proba: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot calibration curves of centres, of the average centre, and where a new one may be.

    The log-odds of a centre are a line in the logits of the probabilities, with an intercept and a
    slope that are normal over centres, as in `summarize_centres`. The axis covers the middle 99.8 %
    of the probabilities. The inner band is of the average
    centre, the outer one of a new centre; thin lines are the centres' own curves, drawn towards the
    average. Each point of a band has this level. Rows are taken to be independent; curves of other
    shapes are not seen (see `reliability_diagram` with method="smooth").

    Args:
        proba: (N,) probabilities of class 1, or logits.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids of the centres, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: level of both bands, in (0, 1).
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: an argument is not as above, or the centres say nothing of a new one.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random(600)
        >>> centre_curves(p, rng.random(600) < p, np.arange(600) % 8).get_xlabel()
        'predicted probability'
    """
    rows = predicted(labels, proba, weights, from_logits)
    codes, keys = distinct(ids.read_rows(segments, np.shape(proba)[0]))
    if len(keys) < 2:
        raise ValueError("segments: expected two centres or more, got one")
    if weights is not None:
        codes = codes[np.broadcast_to(weights, codes.shape) != 0]
    x = clipped_logit(rows.values)
    for name, values in (("proba", x), ("labels", rows.labels)):
        if values.min() == values.max():
            raise ValueError(f"{name}: expected more than one value, for there is no slope in one")
    pooled = fit_segments(x, rows.labels, codes, weights=rows.weights, pooling="partial")
    population = pooled.population
    if population is None or not population.estimated:
        raise ValueError("segments: expected centres that say what a new one may be")
    ax = style.axes_or_new(ax)
    grid = np.linspace(*central(x, share=0.998, pad=0), _CURVE_POINTS)
    grid_proba, average = (
        expit(grid),
        over_centres(population, -np.column_stack([grid, np.ones_like(grid)])),
    )
    blue, black = style.shade(ax, style.BLUE), style.shade(ax, style.BLACK)
    reach = critical_value(level, simultaneous=False)
    shown = [grid_proba]
    for deviation, color, alpha, label in (
        (average.new, style.VERMILLION, 0.15, "a new centre"),
        (average.error, blue, 0.35, "the average centre"),
    ):
        shown += [expit(average.value + sign * reach * deviation) for sign in (-1, 1)]
        ax.fill_between(grid_proba, *shown[-2:], color=color, alpha=alpha, linewidth=0, label=label)
    order = np.argsort(pooled.fit.n_pos + pooled.fit.n_neg)[::-1][:_MOST]
    curves_label = "centres" if len(order) == len(pooled) else f"the {len(order)} largest centres"
    curves = pooled.fit.sigmoid.predict_proba(grid)[order]
    for number, curve in enumerate(curves):
        looks: dict[str, Any] = {"color": style.GREY, "linewidth": 0.6}
        ax.plot(grid_proba, curve, label=curves_label if number == 0 else None, **looks)
    ax.plot(grid_proba, expit(average.value), color=blue, linewidth=1.5)
    ax.plot(grid_proba, grid_proba, ":", color=black, linewidth=1, label="right")
    # The band of a new centre may be much wider than all curves: it is shown where most rows are.
    middle = np.abs(grid - np.median(x)).argmin()
    shown = [*(end[[middle]] for end in shown[1:3]), grid_proba, *shown[3:], *curves]
    drawn = np.concatenate(shown)
    ax.set(xlabel="predicted probability", ylabel="P(y = 1)")
    ax.set_ylim(*axes.probability_limits(float(drawn.min()), float(drawn.max())))
    style.legend(ax)
    return style.titled(ax, title)


class _Intervals(NamedTuple):
    value: Floats
    lower: Floats
    upper: Floats


def forest(
    centres: Centres,
    parameter: str = "ratio",
    *,
    level: float = 0.95,
    most: int = _MOST,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot each centre with its interval, the mean of all, and the interval of a new centre.

    Centres are in ascending order of their estimates, those without one are counted in a note. Of
    more than `most` centres those with the smallest errors are drawn. Intervals that leave the axes
    end in arrows.

    Args:
        centres: result of `summarize_centres`.
        parameter: "ratio", "in_the_large", "intercept" or "slope".
        level: confidence level of the centres' intervals, in (0, 1); the other two intervals are
            the intervals of `centres.overall`.
        most: maximum number of centres drawn.
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure, whose height grows with the centres.

    Raises:
        ValueError: an argument is not as above, or no centre has an estimate.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax.metrics import summarize_centres
        >>> rng = np.random.default_rng(0)
        >>> p = rng.random(400)
        >>> centres = summarize_centres(p, rng.random(400) < p, np.arange(400) % 8)
        >>> forest(centres).get_xlabel()
        'observed / expected positives'
    """
    if not isinstance(centres, Centres):
        raise ValueError(f"centres: expected the result of summarize_centres, got {centres!r}")
    if parameter not in _RIGHT:
        raise ValueError(f"parameter: expected one of {tuple(_RIGHT)}, got {parameter!r}")
    ends = _ends(centres, parameter, critical_value(level, simultaneous=False))
    usable = np.isfinite(ends.lower) & np.isfinite(ends.upper)
    if not usable.any():
        raise ValueError(f"centres: expected estimates of {parameter}, got none")
    error = np.where(usable, centres[_ERRORS[parameter]], np.inf)
    drawn = np.argsort(error, kind="stable")[: min(most, np.count_nonzero(usable))]
    drawn = drawn[np.argsort(ends.value[drawn], kind="stable")]
    ax = style.axes_or_new(ax, (6.4, 1.6 + _LINE * (len(drawn) + 2)))
    keys = ids_in_table(centres, _fields(centres))[drawn]
    texts = names.distinct([names.text(key) for key in keys], _NAME_WIDTH)
    line = _line(centres.overall, parameter)
    _draw(ax, _Intervals(*(x[drawn] for x in ends)), line, texts, parameter)
    left_out = {"without an estimate": ~usable}
    if len(drawn) < np.count_nonzero(usable):
        left_out["with larger errors"] = usable & ~np.isin(np.arange(len(usable)), drawn)
    style.note_undrawn(ax, np.zeros(1, bool), left_out)
    return style.titled(ax, title)


def _ends(centres: Centres, parameter: str, reach: float) -> _Intervals:
    """Estimates of the centres with their intervals."""
    value, error = centres[parameter], reach * centres[_ERRORS[parameter]]
    with np.errstate(invalid="ignore", over="ignore"):
        if parameter == "ratio":
            return _Intervals(value, value / np.exp(error), value * np.exp(error))
        return _Intervals(value, value - error, value + error)


def _fields(centres: Centres) -> list[str] | None:
    """The columns of ids, if there are several."""
    fields = list(centres)[: list(centres).index("rows")]
    return fields if len(fields) > 1 else None


def _line(overall: Table, parameter: str) -> dict[str, float]:
    i = overall["parameter"].tolist().index(parameter)
    return {name: float(x[i]) for name, x in overall.items() if name != "parameter"}


def _draw(
    ax: Axes, ends: _Intervals, overall: dict[str, float], texts: list[str], parameter: str
) -> None:
    """The centres from the top down, then the mean and a new centre."""
    blue, black = style.shade(ax, style.BLUE), style.shade(ax, style.BLACK)
    y = np.arange(len(texts)) + 2.0
    has_interval = np.isfinite(overall["new_lower"])
    log = parameter == "ratio"
    # The typical interval of a centre has room.
    value, lower, upper = map(np.log, np.maximum(ends, 1e-3)) if log else ends
    low, high = value - np.median(value - lower), value + np.median(upper - value)
    shown = [*(np.exp([*low, *high]) if log else [*low, *high]), _RIGHT[parameter]]
    if has_interval:
        shown += [overall["new_lower"], overall["new_upper"]]
    low, high = _limits(np.array(shown), log)
    ax.axvline(_RIGHT[parameter], color=style.GREY, linewidth=1, label="right")
    clipped = np.clip([ends.lower, ends.upper], low, high)
    ax.hlines(y, *clipped, color=blue, linewidth=1.2)
    ax.scatter(ends.value, y, 18, color=blue, marker="s", label="centres", zorder=2.2)
    for beyond, limit, marker in ((ends.lower < low, low, "<"), (ends.upper > high, high, ">")):
        ax.scatter(np.full(beyond.sum(), limit), y[beyond], 14, color=blue, marker=marker)
    if has_interval:
        looks: dict[str, Any] = {"color": style.VERMILLION, "zorder": 2.2}
        ax.hlines(1, overall["lower"], overall["upper"], linewidth=4, color=black)
        ax.scatter(overall["value"], 1, 40, color=black, marker="D", label="mean", zorder=2.2)
        ax.hlines(0, overall["new_lower"], overall["new_upper"], linewidth=4, **looks)
        ax.scatter(overall["value"], 0, 40, marker="D", label="a new centre", **looks)
    if log:
        ax.set_xscale("log")
    ax.set(
        xlim=(low, high), ylim=(-0.8, len(texts) + 1.8), xlabel=_TEXTS[parameter], ylabel="centre"
    )
    if log:
        axes.log_axis(ax.xaxis, (low, high))
    ticks = [*y, 1, 0] if has_interval else list(y)
    written = [*texts, "mean", "a new centre"] if has_interval else texts
    axis_ticks = ax.set_yticks(ticks, written, fontsize=style.SMALL)
    for tick in axis_ticks:
        tick.label1.set_fontfamily(names.families([tick.label1.get_text()]))
        tick.label1.set_parse_math(False)


def _limits(shown: Floats, log: bool) -> tuple[float, float]:
    """Limits of the axis, with room on either side."""
    shown = np.log(np.maximum(shown, 1e-3)) if log else shown
    room = _PAST * max(float(np.ptp(shown)), 0.1)
    low, high = float(shown.min()) - room, float(shown.max()) + room
    return (float(np.exp(low)), float(np.exp(high))) if log else (low, high)
