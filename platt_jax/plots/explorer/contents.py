"""All that the page shows, as bytes and a description of them."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.metrics.counts import Counts, GroupedPredictions, counts
from platt_jax.plots import funnels, names, rates
from platt_jax.plots.explorer import columns
from platt_jax.plots.explorer.columns import Column, Ids, packed
from platt_jax.plots.explorer.rows import ExploredRows, JudgedSegments, bins
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.status import Flag

MEANINGS = {
    "segment": "The id; … where it is longer than 120 characters.",
    "curve": (
        "The segment's sigmoid, with its observed rates. All have the same axes, with the middle "
        "98 % of the scores."
    ),
    "rows": "The number of rows.",
    "positives": "How many of them are of class 1.",
    "expected": "The sum of the probabilities predicted for them.",
    "O/E": "Observed over expected: positives divided by expected.",
    "excess": "Positives minus expected.",
    "q-value": (
        "The smallest false discovery rate at which triage rejects the predictions for these rows: "
        "for their number of positives, or for how these follow the score."
    ),
    "A": "The parameter A of P(y=1) = 1 / (1 + exp(A f + B)), where f is the score.",
    "B": "The parameter B of the same formula.",
    "fitted rows": "The (weighted) number of rows of the fit.",
    "status": "How the fit ended; UNSEEN where the segment was not fitted.",
    "flags": "What is noteworthy about the rows of the fit.",
    "shrinkage": "From 0, the segment's own rows alone, to 1, the population alone.",
}


class Contents(NamedTuple):
    """What a page is made of."""

    about: str  # JSON that describes the blocks and has what is the same for all segments
    # the numbers of the rows, which are drawn first, the numbers of the fits, the ids, and the
    # bins; all deflated
    blocks: tuple[bytes, ...]
    ids: Ids  # the ids of the segments in the order of the columns
    expected: Floats  # (K,) expected positives, as the page has them
    ratio: Floats  # (K,) observed over expected positives, as the page has them; NaN without rows

    def within(self, region: Sequence[float | None]) -> NDArray[Any]:
        """(n,) ids of the segments between these ends, the most urgent first.

        The region is the least and the greatest number of expected positives, and the least and the
        greatest ratio; None where there is no limit.
        """
        fewest, most, lowest, highest = region
        inside = np.ones(len(self.ratio), bool)
        for values, low, high in ((self.expected, fewest, most), (self.ratio, lowest, highest)):
            inside &= values >= (0 if low is None else low)
            inside &= values <= (math.inf if high is None else high)
        # Segments without rows have no ratio: NaN is not within anything.
        return self.ids.judged[self.ids.order.judged[inside]]


def contents(
    calibrator: SegmentCalibrator, rows: ExploredRows, judged: JudgedSegments, fdr: float
) -> Contents:
    """All segments, fitted or in the rows.

    A segment takes about 19 bytes, and a bin of observed rates about 3.
    """
    order = columns.ordered(calibrator, judged)
    ids = Ids(judged.keys, calibrator.keys, order)
    window = _window(rows)
    row_columns = columns.row_columns(judged, order)
    fit_columns = columns.fit_columns(calibrator, order, window)
    binned = bins(rows, len(judged.keys))
    position = np.empty(len(judged.keys), int)
    position[order.judged[order.judged >= 0]] = np.flatnonzero(order.judged >= 0)
    bin_columns = {
        "scores": Column(binned.scores, "f4", 11),
        "rows": Column(binned.rows, "u4"),
        "positives": Column(binned.positives, "u4"),
    }
    binned_columns = {
        "segment": Column(position[binned.segment], "u4"),
        "number": Column(binned.number, "u1"),
    }
    blocks = (
        packed(row_columns),
        packed(fit_columns),
        columns.packed_texts(ids.texts()),
        packed(binned_columns | bin_columns),
    )
    meanings = dict(MEANINGS)
    if calibrator.population is None:
        del meanings["shrinkage"]
    curve, samples = names.kind_of_curve(calibrator), 0
    if calibrator.curves is not None:
        samples = columns.SAMPLES
        meanings["curve"] = meanings["curve"].replace("sigmoid", f"curve ({curve})")
        del meanings["A"], meanings["B"]
    about: dict[str, Any] = {
        "number": len(order.place),
        "size": sum(map(len, blocks)),
        "layouts": [
            columns.layout(x) for x in (row_columns, fit_columns, binned_columns, bin_columns)
        ],
        "binned": [len(binned.segment), len(binned.rows)],
        "funnel": _funnel(rows, judged),
        "window": window,
        "curve": curve,
        "samples": samples,
        "pooled": columns.pooled(calibrator, window),
        "statuses": columns.STATUSES,
        "flags": {flag.name: int(flag) for flag in Flag},
        "fdr": fdr,
        "meanings": meanings,
    }
    positives, expected = (row_columns[x].stored() for x in ("positives", "expected"))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (positives.astype(float) / expected).astype(np.float32).astype(float)
    return Contents(_json(about), blocks, ids, expected.astype(float), ratio)


def _window(rows: ExploredRows) -> list[float]:
    """The axes of small curves: the ends of the scores, and the highest probability."""
    usable = rows.usable
    if not usable.any():
        return [-1.0, 1.0, 1.0]
    low, high = np.quantile(rows.scores[usable], [0.01, 0.99])
    high = high if high > low else low + 1
    rare = np.quantile(rows.proba[usable], 0.99)
    return [float(f"{x:.4g}") for x in (low, high, min(1, 2 * rare))]


def _funnel(rows: ExploredRows, judged: JudgedSegments) -> dict[str, Any] | None:
    """Axes and limits of the funnel, as in `rate_funnel`; None if nothing is expected."""
    usable = rows.usable
    p = rows.proba[usable]
    predictions = GroupedPredictions(p, np.ones_like(p), rows.segments[usable].astype(np.int64))
    by_segment = counts(predictions, rows.labels[usable], len(judged.keys))
    used = by_segment.expected > 0
    if not used.any():
        return None
    by_segment = Counts(*(x[used] for x in by_segment))
    ratio = by_segment.observed / by_segment.expected
    limits = rates.limits_of(by_segment, predictions)
    scale = rates.scale_of(by_segment.expected, ratio, judged.table["flagged"][used], limits)
    return {
        "across": funnels.across(by_segment.expected),
        "up": [scale.low, scale.high],
        "zero": scale.zero is not None,
        "levels": [100 * level for level in funnels.LEVELS],
        "limits": [_listed(x) for x in (limits.sizes, *(x for pair in limits.ends for x in pair))],
    }


def _listed(values: Floats) -> list[float | None]:
    """The numbers with five digits; None for NaN."""
    return [float(f"{x:.5g}") if np.isfinite(x) else None for x in values.tolist()]


def _json(values: Any) -> str:
    """JSON for a script element, with < escaped because it could end the element."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
