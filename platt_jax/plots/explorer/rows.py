"""Rows with a calibrator's predictions, and their segments as `triage` judges them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer, places
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table

# Magnitudes of scores for which slopes and their errors are float32 numbers.
_LEAST, _MOST = 1e-30, 1e30


class PredictedRows(NamedTuple):
    """N rows and their predictions.

    Attributes:
        scores: (N,) scores.
        labels: (N,) 0 or 1 where a row is usable.
        proba: (N,) the calibrator's probabilities.
        usable: (N,) bool, whether score, label and probability are finite.
        segments: (N,) number of each row's segment among those judged.
    """

    scores: Floats
    labels: NDArray[np.int8]
    proba: Floats
    usable: Bools
    segments: Integers


class JudgedSegments(NamedTuple):
    """The M segments of the rows, most urgent first.

    Attributes:
        table: result of `triage` against the predictions.
        keys: (M,) segment ids.
        place: (M,) index of each segment among the calibrator's keys, -1 if it was not fitted.
    """

    table: Table
    keys: NDArray[Any]
    place: Integers


def judged_rows(
    calibrator: SegmentCalibrator, scores: Column, labels: Column, segments: Column, fdr: float
) -> tuple[PredictedRows, JudgedSegments]:
    """The rows and their segments, as in `fit_segments`."""
    f = validation.floating(scores, "scores").astype(float)
    largest = np.max(np.abs(f), where=np.isfinite(f), initial=0)
    if largest and not _LEAST <= largest <= _MOST:
        raise ValueError(
            f"scores: expected magnitudes between {_LEAST:g} and {_MOST:g} for a page, which has "
            f"float32, got {largest:.2g}; multiply the scores by a power of two, and fit them again"
        )
    rows = SegmentRows(scores, labels, segments)
    # Predictions are tested for every segment, including those that were not fitted.
    table = triage(calibrator, rows, against="predictions", fdr=fdr, non_finite="omit")
    judged = _judged(calibrator, rows, table)
    y, _, spoilt = validation.labelled_rows(f, labels, None, "scores")
    proba = calibrator.predict_proba(f, segments).astype(float)
    numbered = factorize(ids.read_rows(segments, len(f)))
    used, code = np.unique(numbered.of(slice(0, None)), return_inverse=True)
    number = places(judged.keys, numbered.named(used))[code]
    return PredictedRows(f, y, proba, ~spoilt & np.isfinite(proba), number), judged


def _judged(calibrator: SegmentCalibrator, rows: SegmentRows, table: Table) -> JudgedSegments:
    """The table, with segment ids as one array."""
    fields = rows.keys.dtype.names
    columns = list(table.values())[: len(fields or [0])]
    keys = ids.structured(fields, columns) if fields else columns[0]
    return JudgedSegments(table, keys, get_indexer(calibrator.keys, ids.read(keys)))
