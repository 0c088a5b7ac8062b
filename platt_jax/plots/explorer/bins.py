"""Observed rates by score, of as many segments as there is room for."""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats, Integers, Ints
from platt_jax.plots.explorer.rows import PredictedRows

# Maximum number of bins of all segments: three to four bytes each.
MOST = 1_000_000
_BINS = 10  # maximum number of bins of a segment
_ROWS_PER_BIN = 10


class Bins(NamedTuple):
    """Bins of some segments, one segment after the other, from low scores to high ones.

    Attributes:
        segment: (S,) numbers of the segments, ascending.
        number: (S,) numbers of their bins.
        scores: (n,) mean score of each bin.
        rows: (n,) number of rows of each bin.
        positives: (n,) number of its positives.
    """

    segment: Integers
    number: Ints
    scores: Floats
    rows: Ints
    positives: Ints


def bins(rows: PredictedRows, judged: int) -> Bins:
    """Bins of equal numbers of rows, up to ten for a segment, each of ten rows or more.

    The most urgent and the largest segments come first, until there are `MOST` bins.

    Args:
        rows: the rows, their segments numbered with the most urgent first.
        judged: number of segments.
    """
    segment = rows.segments[rows.usable]
    sizes = np.bincount(segment, minlength=judged)
    number = np.where(sizes, np.clip(sizes // _ROWS_PER_BIN, 1, _BINS), 0)
    chosen = _chosen(sizes, number)
    mine = chosen[segment]
    segment = segment[mine]
    f, y = (x[rows.usable][mine] for x in (rows.scores, rows.labels))
    order = np.lexsort((f, segment))
    owner = segment[order]
    first = np.cumsum(np.where(chosen, sizes, 0)) - sizes
    rank = np.arange(len(order)) - first[owner]
    cell = _BINS * owner + rank * number[owner] // sizes[owner]
    in_cell = np.bincount(cell, minlength=_BINS * judged)
    filled = np.flatnonzero(in_cell)
    total, positives = (
        np.bincount(cell, x[order].astype(float), _BINS * judged)[filled] for x in (f, y)
    )
    count = in_cell[filled]
    which = np.flatnonzero(chosen)
    return Bins(which, number[which], total / count, count, positives.astype(int))


def _chosen(sizes: Ints, number: Ints) -> Bools:
    """(M,) bool, whether a segment's bins are kept: the first by urgency or by size."""
    by_size = np.empty(len(sizes), int)
    by_size[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    order = np.argsort(np.minimum(np.arange(len(sizes)), by_size), kind="stable")
    chosen = np.empty(len(sizes), bool)
    chosen[order] = np.cumsum(number[order]) <= MOST
    return chosen & (sizes > 0)
