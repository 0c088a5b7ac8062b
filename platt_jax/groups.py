"""Rows of groups that lie end to end: sums, extremes, and slices of groups that fit a cache.

The bits of a group's results do not depend on the other groups.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints

# Edge tolerance, in bin widths: rounding of sums must not move a row across an edge.
ON_THE_EDGE = 1e-9
# Numbers that differ by less, relatively, are one number that may have been a float32 on its way.
SAME = 2.0**-21


def order_by(numbers: Ints) -> Ints:
    """The stable order of integers from 0 on. NumPy sorts 16 bits at a time by counting."""
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    for bits in range(16, int(numbers.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((numbers[order] >> bits).astype(np.uint16), kind="stable")]
    return order


class Groups:
    """K groups whose N rows lie end to end. A group may be empty.

    Attributes:
        sizes: (K,) numbers of rows.
        starts: (K,) the first row of each group.
        rows: N, the number of all rows.

    Example:
        >>> groups = Groups([2, 0, 3])
        >>> groups.owner.tolist(), groups.place.tolist()
        ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
        >>> groups.sums([1, 2, 3, 4, 5]).tolist()
        [3, 0, 12]
        >>> groups.cumulated([1, 2, 3, 4, 5]).tolist()
        [1, 3, 3, 7, 12]
        >>> list(groups.slices(3))
        [slice(0, 2, None), slice(2, 3, None)]
    """

    def __init__(self, sizes: Any) -> None:
        self.sizes: Ints = np.asarray(sizes, np.int64)
        ends = np.cumsum(self.sizes)
        self.starts: Ints = ends - self.sizes
        self.rows = int(ends[-1]) if len(ends) else 0

    @cached_property
    def owner(self) -> Ints:
        """(N,) the group of each row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def place(self) -> Ints:
        """(N,) the place of each row within its group, from 0."""
        return np.arange(self.rows) - np.repeat(self.starts, self.sizes)

    def by_row(self, values: Any) -> NDArray[Any]:
        """(..., N) the value of each row's group, from values (..., K)."""
        by_row: NDArray[Any] = np.repeat(values, self.sizes, axis=-1)
        return by_row

    def rows_of(self, some: Any) -> Ints:
        """The rows of some of the groups, end to end."""
        selected = Groups(self.sizes[some])
        return selected.by_row(self.starts[some]) + selected.place

    def sums(self, x: Any) -> NDArray[Any]:
        """(..., K) sums of x (..., N) over the rows of each group, 0 for an empty group."""
        return self._reduced(np.add, x, 0)

    def cumulated(self, x: Any) -> NDArray[Any]:
        """(..., N) sums of x (..., N) over the rows of each group up to each row.

        They restart in each group. Differences of sums over all rows would lose the digits of small
        groups beside large ones.
        """
        x = np.asarray(x)
        sums = np.empty_like(x)
        for _, rows, inside in self.lines():
            for column in np.ndindex(x.shape[:-1]):
                line = np.zeros(inside.shape, x.dtype)
                line[inside] = x[column][rows]
                sums[column][rows] = np.cumsum(line, axis=1, out=line)[inside]
        return sums

    def lines(self) -> Iterator[tuple[Ints, Any, Bools]]:
        """Groups of like sizes (k,), their rows, and which places (k, longest) of lines have one.

        At most about half of the places have none. A group without rows is on no line.
        """
        exponents = np.frexp(self.sizes - 1)[1]
        for exponent in np.unique(exponents[self.sizes > 0]):
            groups = np.flatnonzero((exponents == exponent) & (self.sizes > 0))
            sizes, first, last = self.sizes[groups], groups[0], groups[-1]
            rows: Any = slice(self.starts[first], self.starts[last] + self.sizes[last])
            if sizes.sum() < rows.stop - rows.start:
                rows = self.rows_of(groups)
            yield groups, rows, np.arange(sizes.max()) < sizes[:, None]

    def order(self, x: Any, label: Any = None) -> Ints:
        """(N,) the rows of each group ascending by x (N,), then by a label, then as they are.

        No x is NaN. Lines of a matrix are sorted many times faster than by group and number, but
        rows of one number in any order: only these are sorted by integers that have all three.
        """
        x, order = np.asarray(x), np.empty(self.rows, np.int64)
        for groups, rows, inside in self.lines():
            line = np.full(inside.shape, np.nan, x.dtype)
            line[inside] = x[rows]
            indices = np.argsort(line, axis=1)
            line = np.take_along_axis(line, indices, 1)
            tied = np.flatnonzero((line[:, 1:] == line[:, :-1]).any(1))
            if len(tied):
                key = np.zeros((len(tied), line.shape[1]), np.int64)
                np.cumsum(line[tied, 1:] != line[tied, :-1], axis=1, out=key[:, 1:])
                if label is not None:
                    labels = np.zeros(inside.shape, bool)
                    labels[inside] = label[rows]
                    key = 2 * key + np.take_along_axis(labels[tied], indices[tied], 1)
                key = key << 32 | indices[tied]
                indices[tied] = np.take_along_axis(indices[tied], np.argsort(key, axis=1), 1)
            order[rows] = (indices + self.starts[groups, None])[inside]
        return order

    def means(self, x: Any) -> Floats:
        """(..., K) means of x (..., N) over the rows of each group, NaN for an empty group."""
        with np.errstate(invalid="ignore"):
            return self.sums(x) / self.sizes

    def minima(self, x: Any) -> NDArray[Any]:
        """(..., K) minima of x (..., N) over the rows of each group, inf for an empty group."""
        return self._reduced(np.minimum, x, np.inf)

    def maxima(self, x: Any) -> NDArray[Any]:
        """(..., K) maxima of x (..., N) over the rows of each group, -inf for an empty group."""
        return self._reduced(np.maximum, x, -np.inf)

    def _reduced(self, ufunc: np.ufunc, x: Any, nothing: float) -> NDArray[Any]:
        # `reduceat` takes the next group's first row for an empty group.
        x, used = np.asarray(x), self.sizes > 0
        if used.all() and len(used):
            return np.asarray(ufunc.reduceat(x, self.starts, axis=-1))
        kind = x.dtype if nothing == 0 else np.result_type(x, np.float32)
        results = np.full((*x.shape[:-1], len(used)), nothing, kind)
        if used.any():
            results[..., used] = ufunc.reduceat(x, self.starts[used], axis=-1)
        return results

    def slices(self, most: int) -> Iterator[slice]:
        """Slices of adjacent groups with `most` rows or fewer each, or of one larger group."""
        ends, first = self.starts + self.sizes, 0
        while first < len(ends):
            last = int(np.searchsorted(ends, self.starts[first] + most, side="right"))
            yield slice(first, max(first + 1, last))
            first = max(first + 1, last)
