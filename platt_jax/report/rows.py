"""The rows of a report, with predictions before and after."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, metrics, validation
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids.factorize import Integers, get_indexer
from platt_jax.inference.triage import triage
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.tables import Table


class Predicted(NamedTuple):
    """N rows and their predictions.

    Attributes:
        labels: (N,) 0 or 1 where a row is usable.
        before: (N,) probabilities without the calibrator's segments.
        after: (N,) the calibrator's probabilities.
        usable: (N,) bool, whether score, label and both probabilities are finite.
        scores_are_probabilities: whether `before` is the scores rather than the pooled curve.
    """

    labels: NDArray[np.int8]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    usable: NDArray[np.bool_]
    scores_are_probabilities: bool

    def measured(self) -> dict[str, tuple[float, float]]:
        """Each metric of the usable rows, before and after."""
        labels = self.labels[self.usable]
        both = self.before[self.usable], self.after[self.usable]
        named = {
            "Log loss": metrics.log_loss,
            "Brier score": metrics.brier_score,
            "Expected calibration error": metrics.expected_calibration_error,
            "Expected calibration error by chance": metrics.ece_by_chance,
        }
        return {
            name: (float(metric(labels, both[0])), float(metric(labels, both[1])))
            for name, metric in named.items()
        }


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
    calibrator: SegmentCalibrator, scores: Column, labels: Column, segments: Column, fdr: float
) -> tuple[Predicted, Judged]:
    """The rows and their segments."""
    rows = SegmentRows(scores, labels, segments)
    # The page tests the predictions of every segment, including those that were not fitted.
    table = triage(calibrator, rows, against="predictions", fdr=fdr, non_finite="omit")
    judged = _judged(calibrator, rows, table)
    f = validation.floating(scores, "scores").astype(float)
    y, _, spoilt = validation.labelled_rows(f, labels, None, "scores")
    after = calibrator.predict_proba(f, segments)
    finite = f[np.isfinite(f)]
    are_probabilities = len(finite) > 0 and 0 <= finite.min() and finite.max() <= 1
    before = f if are_probabilities else calibrator.fallback.predict_proba(f)
    usable = ~spoilt & np.isfinite(before) & np.isfinite(after)
    return Predicted(y, before, after, usable, bool(are_probabilities)), judged


def _judged(calibrator: SegmentCalibrator, rows: SegmentRows, table: Table) -> Judged:
    """The table, with segment ids as one array."""
    fields = rows.keys.dtype.names
    columns = list(table.values())[: len(fields or [0])]
    keys = ids.structured(fields, columns) if fields else columns[0]
    return Judged(table, keys, get_indexer(calibrator.keys, ids.read(keys)))
