"""Observed rates of each segment at a few scores, for the curves in the table."""

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.ids.factorize import Integers
from platt_jax.metrics import groups

_MOST = 3  # bins of a segment
_ROWS_PER_BIN = 10


def dots(
    scores: Floats, labels: NDArray[np.int8], segment: Integers, number: int
) -> list[list[float]]:
    """For each segment its mean score and its rate in up to three bins of equal size: f, r, f, r...

    Args:
        scores: (N,) finite scores.
        labels: (N,) 0 or 1.
        segment: (N,) numbers of the rows' segments, below `number`.
        number: how many segments there are.
    """
    rows = np.bincount(segment, minlength=number)
    bins = np.clip(rows // _ROWS_PER_BIN, 1, _MOST)
    order = np.lexsort((scores, segment))
    owner = segment[order]
    rank = np.arange(len(order)) - (np.cumsum(rows) - rows)[owner]
    cell = _MOST * owner + rank * bins[owner] // rows[owner]
    in_cell = np.bincount(cell, minlength=_MOST * number)
    filled = np.flatnonzero(in_cell)
    means = (
        groups.sums(cell, x[order].astype(float), _MOST * number)[filled] / in_cell[filled]
        for x in (scores, labels)
    )
    pairs = np.stack([np.array([float(f"{x:.3g}") for x in mean]) for mean in means], 1)
    made: list[list[float]] = [[] for _ in range(number)]
    for of, pair in zip((filled // _MOST).tolist(), pairs.tolist(), strict=True):
        made[of] += pair
    return made
