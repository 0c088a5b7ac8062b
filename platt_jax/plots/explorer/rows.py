"""Rows with a calibrator's predictions, their segments as `triage` judges them, and their bins."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Integers, Ints
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.triage import triage
from platt_jax.ids.factorize import factorize
from platt_jax.ids.indexing import get_indexer, places
from platt_jax.plots.rows import ids_in_table
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table

# Magnitudes of scores for which slopes and their errors are float32 numbers.
_LEAST, _MOST = 1e-30, 1e30
# Maximum number of bins of all segments: three to four bytes each.
MOST_BINS = 1_000_000
_BINS = 10  # maximum number of bins of a segment
_ROWS_PER_BIN = 10


class ExploredRows(NamedTuple):
    """N rows and their predictions."""

    scores: Floats  # (N,) scores
    labels: NDArray[np.int8]  # (N,) 0 or 1 where a row is usable
    proba: Floats  # (N,) the calibrator's probabilities
    usable: Bools  # (N,) bool, whether score, label and probability are finite
    segments: Integers  # (N,) number of each row's segment among the judged segments


class JudgedSegments(NamedTuple):
    """The M segments of the rows, most urgent first."""

    table: Table  # result of `triage` against the predictions
    keys: NDArray[Any]  # (M,) segment ids
    # (M,) index of each segment among the calibrator's keys, -1 if it was not fitted
    place: Integers


def judged_rows(
    calibrator: SegmentCalibrator, scores: Column, labels: Column, segments: Column, fdr: float
) -> tuple[ExploredRows, JudgedSegments]:
    """The rows and their segments, as in `fit_segments`; without weights and offset."""
    if isinstance(scores, SegmentRows):
        beside = dict(labels=labels, segments=segments)
        scores, labels, segments, *_ = row_arrays(scores, "weights", "offset", **beside)
    validation.require_each(scores, labels=labels, segments=segments)
    f = validation.floating(scores, "scores").astype(float)
    largest = np.max(np.abs(f), where=np.isfinite(f), initial=0)
    if largest and not _LEAST <= largest <= _MOST:
        raise ValueError(
            f"scores: expected magnitudes between {_LEAST:g} and {_MOST:g} for a page, which has "
            f"float32, got {largest:.2g}; multiply the scores by a power of two, and fit them again"
        )
    rows = SegmentRows(scores, labels, segments)
    # Predictions are tested for every segment, including segments that were not fitted.
    table = triage(calibrator, rows, against="predictions", fdr=fdr, non_finite="omit")
    keys = ids_in_table(table, rows.keys.dtype.names)
    y, _, spoilt = validation.labelled_rows(f, labels, None, "scores")
    proba = calibrator.predict_proba(f, segments).astype(float)
    numbered = factorize(ids.read_rows(segments, len(f)))
    used, code = np.unique(numbered.of(slice(0, None)), return_inverse=True)
    number = places(keys, numbered.named(used))[code]
    judged = JudgedSegments(table, keys, get_indexer(calibrator.keys, ids.read(keys)))
    return ExploredRows(f, y, proba, ~spoilt & np.isfinite(proba), number), judged


class ScoreBins(NamedTuple):
    """ScoreBins of some segments, one segment after the other, from low scores to high ones."""

    segment: Integers  # (S,) numbers of the segments, ascending
    number: Ints  # (S,) numbers of their bins
    scores: Floats  # (n,) mean score of each bin
    rows: Ints  # (n,) number of rows of each bin
    positives: Ints  # (n,) number of its positives


def bins(rows: ExploredRows, judged: int) -> ScoreBins:
    """ScoreBins of equal numbers of rows, up to ten for a segment, each of ten rows or more.

    The most urgent and the largest segments come first, until there are `MOST_BINS` bins. Segments
    are numbered with the most urgent first; `judged` is their number.
    """
    segment = rows.segments[rows.usable]
    sizes = np.bincount(segment, minlength=judged)
    number = np.where(sizes, np.clip(sizes // _ROWS_PER_BIN, 1, _BINS), 0)
    chosen = _chosen(sizes, number)
    in_chosen = chosen[segment]
    segment = segment[in_chosen]
    f, y = (x[rows.usable][in_chosen] for x in (rows.scores, rows.labels))
    order = np.lexsort((f, segment))
    chosen_rows = Groups(np.where(chosen, sizes, 0))
    owner, position = chosen_rows.owner, chosen_rows.place
    in_cell = np.bincount(_BINS * owner + position * number[owner] // sizes[owner])
    cells = Groups(in_cell[in_cell > 0])
    chosen_segments = np.flatnonzero(chosen)
    means, positives = cells.means(f[order]), cells.sums(y[order].astype(int))
    return ScoreBins(chosen_segments, number[chosen_segments], means, cells.sizes, positives)


def _chosen(sizes: Ints, number: Ints) -> Bools:
    """(M,) bool, whether a segment's bins are kept: the first by urgency or by size."""
    by_size = np.empty(len(sizes), int)
    by_size[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    order = np.argsort(np.minimum(np.arange(len(sizes)), by_size), kind="stable")
    chosen = np.empty(len(sizes), bool)
    chosen[order] = np.cumsum(number[order]) <= MOST_BINS
    return chosen & (sizes > 0)
