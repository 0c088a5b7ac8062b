"""The rows of a report, with predictions before and after."""

from typing import NamedTuple

import numpy as np

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.plots.explorer import Judged, JudgedRows, judged_rows
from platt_jax.report.measures import Measure, measures
from platt_jax.results.probabilities import expit
from platt_jax.results.segment_calibrator import SegmentCalibrator


class Predicted(NamedTuple):
    """N rows and their predictions.

    Attributes:
        rows: the rows with the calibrator's predictions; not usable either where `before` is not
            finite.
        before: (N,) probabilities without the calibrator's segments.
        source: what `before` is, in words.
    """

    rows: JudgedRows
    before: Floats
    source: str

    def measured(self) -> dict[str, Measure]:
        """Each metric of the usable rows, before and after."""
        rows, some = self.rows, self.rows.usable
        after = rows.proba[some]
        return measures(rows.labels[some], self.before[some], after, rows.segments[some])


def read(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    before: Column,
    fdr: float,
) -> tuple[Predicted, Judged]:
    """The rows and their segments; `before` as in `to_html`."""
    rows, judged = judged_rows(calibrator, scores, labels, segments, fdr)
    earlier, source = _before(calibrator, rows.scores, before)
    rows = rows._replace(usable=rows.usable & np.isfinite(earlier))
    return Predicted(rows, earlier, source), judged


def _before(calibrator: SegmentCalibrator, f: Floats, before: Column) -> tuple[Floats, str]:
    """The probabilities before, and what they are."""
    if isinstance(before, str):
        validation.require_one_of(before, ("logits",), "before")
        return expit(f), "the scores, taken as log-odds"
    if before is not None:
        p = validation.floating(before, "before").astype(float)
        if p.shape != f.shape:
            raise ValueError(f"before: expected the shape of scores, {f.shape}, got {p.shape}")
        validation.require_probabilities(p[np.isfinite(p)], "before")
        return p, "the probabilities given"
    finite = f[np.isfinite(f)]
    if len(finite) > 0 and 0 <= finite.min() and finite.max() <= 1:
        return f, "the scores, taken as probabilities, as all lie in [0, 1]"
    pooled = "the sigmoid of all fitted rows pooled, as the scores do not all lie in [0, 1]"
    return calibrator.fallback.predict_proba(f), pooled
