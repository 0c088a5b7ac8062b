"""Kuiper's statistic of calibration in overlapping groups of rows, and its distribution."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.metrics.rows import ratio

# Exact to rounding in the far tail, as in `significance`.
_erfc = np.frompyfunc(math.erfc, 1, 1)

# Below this, the series for the distribution function is used; above, that for the tail.
_MIDDLE = 1.5
_FAR = 1e3  # from here on the tail is 0
_TERMS = np.arange(1, 25)[:, None]


class Walks(NamedTuple):
    """Groups of rows, each in ascending order of P(y=1), one after the other.

    Attributes:
        row: (M,) rows of all groups.
        first: (G,) place of each group's first row.
        ends: (E,) places of the last of equal probabilities of a group.
        first_end: (G,) place of each group's first of `ends`.
    """

    row: NDArray[np.intp]
    first: NDArray[np.intp]
    ends: NDArray[np.intp]
    first_end: NDArray[np.intp]

    def group(self, i: int) -> NDArray[np.intp]:
        """The rows of a group."""
        return np.split(self.row, self.first[1:])[i]

    def sums(self, x: Floats) -> Floats:
        """(G,) sums of x (N,) over each group."""
        summed: Floats = np.add.reduceat(x[self.row], self.first)
        return summed

    def ranges(self, x: Floats) -> Floats:
        """(G,) ranges of the cumulative sums of x (N,) in each group, which start at 0."""
        cumulative = np.concatenate([[0.0], np.cumsum(x[self.row])])
        start, at = cumulative[self.first], cumulative[1:][self.ends]
        highest = np.maximum.reduceat(at, self.first_end)
        lowest = np.minimum.reduceat(at, self.first_end)
        found: Floats = np.maximum(highest, start) - np.minimum(lowest, start)
        return found


def walks(p: Floats, groups: list[NDArray[np.intp]]) -> Walks:
    """The walks over these groups of rows with probabilities p (N,).

    Args:
        p: probabilities of class 1.
        groups: rows of each group, in ascending order of p; none is empty.
    """
    row = np.concatenate(groups)
    first = np.cumsum([0, *map(len, groups)], dtype=np.intp)[:-1]
    is_end = np.ones(len(row), bool)
    is_end[:-1] = p[row[1:]] != p[row[:-1]]
    is_end[first[1:] - 1] = True
    ends = np.flatnonzero(is_end)
    return Walks(row, first, ends, np.searchsorted(ends, first).astype(np.intp))


def scaled(kuiper: Floats, sd: Floats) -> Floats:
    """Statistics in units of their standard deviation; 0 / 0 is 0."""
    return np.where(kuiper == 0, 0.0, ratio(kuiper, sd))


def p_value(x: Floats) -> Floats:
    """P(range of a Brownian motion on [0, 1] >= x) (Feller 1951), for x >= 0."""
    low, high = np.clip(x, 0.1, _MIDDLE), np.clip(x, _MIDDLE, _FAR)
    odd = (_TERMS - 0.5) * np.pi
    below = (8 / low**2 + 2 / odd**2) * np.exp(-2 * odd**2 / low**2)
    sign = np.where(_TERMS % 2 == 1, 1, -1)
    tail: Any = _erfc(_TERMS * high / np.sqrt(2)).astype(float)
    above = 4 * (sign * _TERMS * tail).sum(axis=0)
    return np.where(x < _MIDDLE, 1 - below.sum(axis=0), above)
