"""The rows of a report, with predictions before and after."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids.factorize import Integers, factorize, get_indexer
from platt_jax.ids.places import places
from platt_jax.inference.triage import triage
from platt_jax.report.measures import Measure, measures
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import Table


class Predicted(NamedTuple):
    """N rows and their predictions.

    Attributes:
        labels: (N,) 0 or 1 where a row is usable.
        before: (N,) probabilities without the calibrator's segments.
        after: (N,) the calibrator's probabilities.
        usable: (N,) bool, whether score, label and both probabilities are finite.
        source: what `before` is, in words.
        scores: (N,) scores.
        segments: (N,) number of each row's segment among those judged.
    """

    labels: NDArray[np.int8]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    usable: NDArray[np.bool_]
    source: str
    scores: Floats
    segments: Integers

    def measured(self) -> dict[str, Measure]:
        """Each metric of the usable rows, before and after."""
        some = self.usable
        return measures(self.labels[some], self.before[some], self.after[some], self.segments[some])


class Judged(NamedTuple):
    """The M segments of the rows, most urgent first.

    Attributes:
        table: result of `triage` against the predictions.
        keys: (M,) segment ids.
        place: (M,) index of each segment among the calibrator's keys, -1 if it was not fitted.
    """

    table: Table
    keys: NDArray[Any]
    place: Integers


def read(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    before: Column,
    fdr: float,
) -> tuple[Predicted, Judged]:
    """The rows and their segments; `before` as in `to_html`."""
    rows = SegmentRows(scores, labels, segments)
    # The page tests the predictions of every segment, including those that were not fitted.
    table = triage(calibrator, rows, against="predictions", fdr=fdr, non_finite="omit")
    judged = _judged(calibrator, rows, table)
    f = validation.floating(scores, "scores").astype(float)
    y, _, spoilt = validation.labelled_rows(f, labels, None, "scores")
    after = calibrator.predict_proba(f, segments)
    earlier, source = _before(calibrator, f, before)
    usable = ~spoilt & np.isfinite(earlier) & np.isfinite(after)
    numbered = factorize(ids.read_rows(segments, len(f)))
    codes = numbered.of(slice(0, None))
    used, code = np.unique(codes, return_inverse=True)
    number = places(judged.keys, numbered.named(used))[code]
    return Predicted(y, earlier, after, usable, source, f, number), judged


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


def _judged(calibrator: SegmentCalibrator, rows: SegmentRows, table: Table) -> Judged:
    """The table, with segment ids as one array."""
    fields = rows.keys.dtype.names
    columns = list(table.values())[: len(fields or [0])]
    keys = ids.structured(fields, columns) if fields else columns[0]
    return Judged(table, keys, get_indexer(calibrator.keys, ids.read(keys)))
