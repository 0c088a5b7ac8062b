"""Observed over expected positives of segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column, takes_columns
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import places
from platt_jax.metrics.counts import Counts, GroupedPredictions, count_p_values, counts
from platt_jax.plots import axes, funnels, style
from platt_jax.plots.funnels import ControlLimits, Funnel
from platt_jax.plots.points import central
from platt_jax.plots.rows import ids_in_table, predicted
from platt_jax.results.probabilities import critical_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NO_POSITIVES = 0.08  # how far below the smallest ratio the zeros are, as a share of the axis


@takes_columns
def rate_funnel(
    labels: Column,
    proba: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    judged: Mapping[str, NDArray[Any]] | None = None,
    label: str = "segment",
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot observed over expected positives of segments, with control limits.

    Where the probabilities are right the ratio is 1 except for chance. At any base rate, chance
    depends on the number of expected positives, which is the other axis. The 95 % and 99.8 % limits
    are for a segment with typical probabilities. The legend has the number of segments beyond
    their own limits, by the exact distribution of their positives, and the number that chance
    alone puts there at most. Segments that are reliably off, with a q-value of at most 0.05 (false
    discovery rate, Benjamini & Hochberg 1995), are marked, and up to eight are named. The ratios
    are on a logarithmic axis, with segments without positives on a line of their own below.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits.
        segments: (N,) ids, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        judged: result of `triage` for these rows, whose flagged segments are marked instead; or
            None.
        label: what a segment is, in the singular, such as "route".
        title: title of the axes; None for none.
        ax: matplotlib axes; None to make a new figure.

    Raises:
        ValueError: an argument is not as above; or a prediction, label or weight is not finite.
        ImportError: matplotlib is missing.

    Example:
        >>> ax = rate_funnel([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8], ["a", "a", "b", "b"])
        >>> ax.get_ylabel()
        'observed / expected'
    """
    p, y, w = predicted(labels, proba, weights, from_logits)
    numbered = factorize(ids.read_rows(segments, np.shape(proba)[0]))
    codes = numbered.of(slice(0, None))
    if weights is not None:
        codes = codes[np.broadcast_to(weights, codes.shape) != 0]
    predictions = GroupedPredictions(p, w, codes)
    by_segment = counts(predictions, y, numbered.numbers)
    used = by_segment.expected > 0
    if not used.any():
        raise ValueError("proba: expected some above 0, got none")
    left_out = {"with 0 expected": ~used & (by_segment.rows > 0)}
    p_value = count_p_values(predictions, by_segment)[used]
    by_segment = Counts(*(x[used] for x in by_segment))
    keys = numbered.named(np.flatnonzero(used))
    marked = funnels.reliably_off(p_value) if judged is None else _flagged(judged, keys)
    limits = limits_of(by_segment, predictions)
    ax = style.axes_or_new(ax)
    ax.set(xscale="log", yscale="log", ylabel="observed / expected")
    ratio = by_segment.observed / by_segment.expected
    expected = by_segment.expected
    scale = scale_of(expected, ratio, marked[0], limits)
    about = f"expected positives of the {label}"
    drawn = Funnel(expected, about, scale.heights(ratio), *marked, p_value, keys, label)
    funnels.draw(ax, drawn, limits, (funnels.across(expected), scale.ends), left_out)
    scale.set_ticks(ax)
    return style.titled(ax, title)


def _flagged(judged: Mapping[str, NDArray[Any]], keys: NDArray[Any]) -> tuple[Bools, str]:
    """Which of these segments triage flagged, and what the marks mean."""
    if "flagged" not in judged:
        raise ValueError(f"judged: expected the table of triage, got columns {list(judged)}")
    named = ids_in_table(judged, keys.dtype.names)
    flagged = np.append(judged["flagged"], False)  # the last for segments that triage does not have
    return flagged[places(named, keys)], "flagged by triage"


def limits_of(by_segment: Counts, rows: GroupedPredictions) -> ControlLimits:
    """Limits of a segment with typical probabilities: normal quantiles, corrected for skewness.

    The correction is the first of Cornish & Fisher (1938). Variance and third moment of the number
    of positives are in proportion to the expected number, with factors between 0 and 1 that hardly
    depend on the base rate while positives are rare.
    """
    grid = np.geomspace(*funnels.across(by_segment.expected), 200)
    total = by_segment.expected.sum()
    variance = by_segment.variance.sum() / total
    p = rows.proba
    third_moment = float(np.sum(rows.weights * (p * (1 - p) * (1 - 2 * p))))  # of all labels
    ends = []
    for level in funnels.LEVELS:
        z = critical_value(level, False)
        skew = (z**2 - 1) / 6 * third_moment / total / variance if variance else 0.0
        reach = z * np.sqrt(variance * grid)
        pair = []
        for side in (-1, 1):
            limit = (grid + skew + side * reach) / grid
            # With fewer positives the correction is the larger part, and the limit turns back.
            valid = (limit > 0) & (reach + 2 * side * skew > 0)
            pair.append(np.where(valid, limit, np.nan))
        ends.append((pair[0], pair[1]))
    return ControlLimits(grid, tuple(ends), 1.0, "as expected")


class Scale(NamedTuple):
    """The axis of ratios: logarithmic from low to high, with 0 apart at `zero`, if not None."""

    low: float
    high: float
    zero: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Limits of the axis."""
        if self.zero is None:
            return self.low, self.high
        return self.zero * (self.zero / self.low) ** 0.5, self.high

    def heights(self, ratio: Floats) -> Floats:
        """(K,) where the ratios are drawn; 0, beyond the axis, where they are below it."""
        heights = np.where(ratio >= self.low, ratio, 0)
        heights[ratio == 0] = self.zero
        return heights

    def set_ticks(self, ax: Axes) -> None:
        """Ticks at round ratios, and at 0."""
        low, high = max(self.low, ax.get_ylim()[0]), ax.get_ylim()[1]
        ticks = axes.ratio_ticks(low, high)
        texts = [f"{tick:,.15g}" for tick in ticks]
        if self.zero is not None:
            ticks, texts = [self.zero, *ticks], ["0", *texts]
            ax.axhline((self.zero * self.low) ** 0.5, color=style.GREY, linewidth=0.5)
        ax.set_yticks(ticks, texts)
        ax.yaxis.set_minor_locator(axes.no_ticks())


def scale_of(expected: Floats, ratio: Floats, marked: Bools, limits: ControlLimits) -> Scale:
    """An axis with most ratios, all marked ones, and the limits of a segment of median size."""
    positive = np.log(ratio[ratio > 0]) if (ratio > 0).any() else np.zeros(1)
    marked_log = np.log(ratio[marked & (ratio > 0)])
    typical = int(np.searchsorted(limits.sizes, np.median(expected)))
    typical_ends = [ends[typical] for pair in limits.ends for ends in pair]
    limits_log = np.log([x for x in typical_ends if x > 0])
    shown = np.concatenate([limits_log, marked_log, central(positive, pad=0.1)])
    low, high = float(np.exp(shown.min() - 0.02)), float(np.exp(shown.max() + 0.02))
    zero = low * (low / high) ** _NO_POSITIVES if (ratio == 0).any() else None
    return Scale(low, high, zero)
