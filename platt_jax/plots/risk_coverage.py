"""The precision of accepted rows by the share that is accepted: expected, and seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column, takes_columns
from platt_jax.decisions.risk_coverage import KnownLabels, RiskCoverage, accepted_in_turn, read_rows
from platt_jax.ids.indexing import get_indexer
from platt_jax.inference.means import wilson
from platt_jax.metrics import ReliabilityCurve
from platt_jax.plots import names, style
from platt_jax.plots.axes import probability_limits, room_for_legend
from platt_jax.plots.points import intervals
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import critical_value
from platt_jax.results.segment_calibrator import SegmentCalibrator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SEEN = np.arange(1, 11) / 10  # shares at which labels are counted
_LEAST = 5  # rows before which none is drawn
_NAME_LENGTH = 18
_POINTS = 400  # of a curve
_APART = 0.008  # between the points of segments
_HALF = 0.6  # of an axis that ends above it, all is shown up to 1
_ROOM = 0.03  # below and above what is drawn


@takes_columns
def risk_coverage(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    chosen: Any = None,
    precision: float | None = 0.95,
    level: float = 0.95,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot how many accepted rows are right by the share that is accepted: expected, and seen.

    This is the risk-coverage curve of selective classification (El-Yaniv & Wiener 2010, "On the
    foundations of noise-free selective classification"), whose risk is 1 minus the precision here.
    Rows of high probability are accepted first. The line is the precision that the curves expect,
    and the band below it ends at the bound by which `platt_jax.gate` decides, for all segments
    together a cautious one (docs/howto/decide.md). Points are what the labels say, with Wilson's
    intervals of 95 %. If points are below the bound, the curves are wrong there: do not trust the
    gates.

    Args:
        calibrator: result of `fit_segments` or `fit_one_vs_rest`, with curves as for `gate`.
        scores: (N,) scores of rows that were not fitted; or SegmentRows, which have labels and
            segments, too. For classes (N, C), or ClassRows: a row is accepted as a class, and right
            if it is of that class.
        labels: (N,) their labels, as in `fit_segments` or `fit_one_vs_rest`.
        segments: (N,) their segments, or one id for all; None for SegmentRows and for classes.
        weights: (N,) how many rows each row stands for, as in `gate`. Points then have Wilson's
            intervals at the number of rows of equal weights that say as much (Kish 1965, "Survey
            sampling").
        chosen: (C,) ids of segments or classes to draw, a line each, at most 7. None for one line
            of the rows of all segments. Segments whose curves accept no row, by the statuses of
            `gate`, are left out, and counted in a note.
        precision: a precision to mark, in (0, 1); None for none.
        level: level of the one-sided bound, in (0, 1).
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: an argument is not as above; SegmentRows have an offset; or no segment can be
            drawn.
        ImportError: matplotlib is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> def judged(rows):
        ...     task, score = np.arange(rows) % 10, rng.normal(size=rows)
        ...     return score, rng.random(rows) < 1 / (1 + np.exp(-3 * score)), task
        >>> judge = fit_segments(*judged(2000), pooling="partial")
        >>> risk_coverage(judge, *judged(5000)).get_ylabel()
        'share of them that is right'
    """
    if precision is not None:
        validation.require_fraction(precision, "precision")
    validation.require_fraction(level, "level")
    rows = read_rows(calibrator, scores, labels, segments, weights)
    lines = _lines(rows, chosen)
    left_out = np.zeros(len(rows.keys), bool)
    for _, mask in lines:
        left_out |= mask & ~rows.usable
    drawn = [(text, mask & rows.usable) for text, mask in lines if (mask & rows.usable).any()]
    if not drawn:
        raise ValueError("segments: expected some whose curves accept rows, see gate, got none")
    ax = style.axes_or_new(ax)
    curves = [accepted_in_turn(rows, mask, level) for _, mask in drawn]
    shown: list[tuple[float, float]] = []
    for number, ((text, _), curve) in enumerate(zip(drawn, curves, strict=True)):
        shown += _draw(ax, curve, text, number - (len(drawn) - 1) / 2, number)
    if precision is not None:
        looks: dict[str, Any] = {"color": style.GREY, "linewidth": 1, "linestyle": "--"}
        text = style.percent(precision)
        if not any((curve.lower >= precision).any() for curve in curves):
            text += ", reached by no bound"
        ax.axhline(precision, label=text, zorder=0, **looks)
    # An axis of a part of the probabilities does not reach the precision.
    least, most = np.min(shown, 0)[1], np.max(shown, 0)[1]
    low, high = probability_limits(least, most)
    if high > _HALF:
        low = max(least, 0.0)
        low, high = low - _ROOM * (1 - low), 1 + _ROOM * (1 - low)
    labels = ax.get_legend_handles_labels()[1]
    across = 0.0, 1.02
    x, y = np.array(shown).T
    corner, window = room_for_legend(ax, x, y, (across, (low, high)), labels)
    ax.set(xlim=across, ylim=window[1])
    ax.set(xlabel="share of rows accepted", ylabel="share of them that is right")
    status = rows.known.status
    reasons = {str(x): left_out & (status == x) for x in np.unique(status[left_out])}
    style.note_undrawn(ax, np.zeros(1, bool), reasons)
    style.legend(ax, loc=corner)
    return style.titled(ax, title)


def _lines(rows: KnownLabels, chosen: Any) -> list[tuple[str, NDArray[np.bool_]]]:
    """What is drawn: names, and which segments (S,)."""
    number = len(rows.keys)
    if chosen is None:
        return [("", np.ones(number, bool))]
    positions = get_indexer(rows.keys, ids.read([chosen] if isinstance(chosen, str) else chosen))
    if len(positions) > len(style.CYCLE):
        raise ValueError(f"chosen: expected at most {len(style.CYCLE)}, got {len(positions)}")
    if (positions < 0).any():
        raise ValueError(
            f"chosen: expected segments of the rows, the one at {np.argmax(positions < 0)} is none"
        )
    texts = names.distinct([names.text(key) for key in rows.keys[positions]], _NAME_LENGTH)
    return [(text, np.arange(number) == i) for text, i in zip(texts, positions, strict=True)]


def _draw(
    ax: Axes, curve: RiskCoverage, text: str, offset: float, number: int
) -> list[tuple[float, float]]:
    """Draw a curve with its bound and what labels say; some of the points drawn."""
    color, prefix = style.cycle(ax, number), f"{names.in_legend(text)}, " if text else ""
    rows = len(curve.share)
    first = min(_LEAST, rows) - 1
    indices = np.unique(np.linspace(first, rows - 1, _POINTS).astype(int))
    share, expected, lower = (x[indices] for x in (curve.share, curve.precision, curve.lower))
    ax.fill_between(share, lower, expected, color=color, alpha=0.2, linewidth=0)
    ax.plot(share, expected, color=color, linewidth=1.5, label=f"{prefix}expected, and its bound")
    ends = np.unique(np.maximum(np.searchsorted(curve.share, _SEEN), first)).clip(None, rows - 1)
    observed, worth = curve.right[ends], curve.worth[ends]
    low, high = wilson(observed, worth, critical_value(0.95, False))
    rates = ReliabilityCurve(curve.share[ends] + _APART * offset, observed, low, high, worth)
    looks: dict[str, Any] = {"marker": style.MARKERS[number], "label": f"{prefix}seen"}
    intervals(ax, rates, color=style.shade(ax, style.BLACK) if not text else color, **looks)
    ends_of_bars = (zip(rates.prob_pred, y, strict=True) for y in (low, observed, high))
    ends_of_band = (zip(share, y, strict=True) for y in (lower, expected))
    return [point for points in (*ends_of_bars, *ends_of_band) for point in points]
