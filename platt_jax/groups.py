"""Rows of groups that lie end to end: sums, extremes, and slices of groups that fit a cache."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints


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
        own = Groups(self.sizes[some])
        return own.by_row(self.starts[some]) + own.place

    def sums(self, x: Any) -> NDArray[Any]:
        """(..., K) sums of x (..., N) over the rows of each group, 0 for an empty group."""
        return self._reduced(np.add, x, 0)

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
        made = np.full((*x.shape[:-1], len(used)), nothing, kind)
        if used.any():
            made[..., used] = ufunc.reduceat(x, self.starts[used], axis=-1)
        return made

    def slices(self, most: int) -> Iterator[slice]:
        """Slices of adjacent groups with `most` rows or fewer each, or of one larger group."""
        ends, first = self.starts + self.sizes, 0
        while first < len(ends):
            last = int(np.searchsorted(ends, self.starts[first] + most, side="right"))
            yield slice(first, max(first + 1, last))
            first = max(first + 1, last)
