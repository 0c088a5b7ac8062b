"""Rows of segments padded to arrays (k, N), for functions of batches (..., N)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.ids.factorize import Factorized

# Places of padded rows for which a function is computed at once; its arrays stay in a cache.
_AT_ONCE = 1 << 17


class PaddedRows(NamedTuple):
    """The rows of k segments of similar size."""

    place: NDArray[np.intp]  # (k, N) numbers of the rows; padding repeats a segment's last row
    inside: NDArray[np.bool_]  # (k, N) whether a place is not padding


def similar(sizes: NDArray[Any], most: int | None = None) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Numbers of segments of similar size, and the least power of two that is at least each size.

    No size is 0. These have `most` places or fewer together, None for any; one with more is alone.
    """
    exponents = np.frexp(sizes - 1)[1]  # of the least power of two that is >= the size
    for exponent in np.unique(exponents):
        group, width = np.flatnonzero(exponents == exponent), 1 << int(exponent)
        number = len(group) if most is None else max(1, most // width)
        for first in range(0, len(group), number):
            yield group[first : first + number], width


def joined(made: Iterable[tuple[NDArray[np.intp], Any]]) -> Any:
    """The results of all segments (K, ...), from the numbers of some and their results."""
    numbers, results = zip(*made, strict=True)
    order = np.argsort(np.concatenate(numbers))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[order], *results)


class SegmentsBySize:
    """Segments in groups of similar size.

    Attributes:
        keys: (K,) segment ids, in the order of their numbers.
        sizes: (K,) numbers of rows, none of them 0.
    """

    def __init__(self, rows: Factorized) -> None:
        numbers = rows.of(slice(None))
        self._order = np.argsort(numbers, kind="stable")
        sizes = np.bincount(numbers, minlength=rows.numbers)
        used = np.flatnonzero(sizes)
        self.keys, self.sizes = rows.named(used), sizes[used]

    @property
    def numbers(self) -> NDArray[np.intp]:
        """(N,) the number of each row's segment."""
        numbers = np.empty(len(self._order), np.intp)
        numbers[self._order] = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return numbers

    def map(self, function: Callable[[PaddedRows], Any]) -> Any:
        """The results of a function of each group's rows, with the segments as leading axis (K,).

        The function returns a pytree of arrays with leading axis k. N is a power of two, so that
        few groups serve segments of all sizes.
        """
        return joined((which, function(rows)) for which, rows in self.pieces(_AT_ONCE))

    def pieces(self, most: int | None = None) -> Iterator[tuple[NDArray[np.intp], PaddedRows]]:
        """Numbers and rows of segments of similar size, with `most` places or fewer; None for any.

        A segment with more places is alone.
        """
        # Two places or more: functions of batches take an array (k, 1) for a column of one problem.
        for which, width in similar(np.maximum(self.sizes, 2), most):
            yield which, self._padded(which, width)

    def _padded(self, which: NDArray[np.intp], width: int) -> PaddedRows:
        column, ends = np.arange(width), np.cumsum(self.sizes)
        first, last = (ends - self.sizes)[which, None], ends[which, None] - 1
        inside = column < self.sizes[which, None]
        return PaddedRows(self._order[np.minimum(first + column, last)], inside)
