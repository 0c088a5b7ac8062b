"""The rows of many problems in tiles of one problem each; a call has a fixed number of tiles.

So a few compiled programs serve for problems of any number of rows.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.passes import packing

# Rows of a tile: the first for small problems, the last for large ones.
_LENGTHS = 16, 512
# Cost of a tile besides its rows, in rows: its problem's expansion is gathered.
_COST = 8
# Rows of a call: intermediate results stay in the caches.
_AT_ONCE = 1 << 15


class Tiles(NamedTuple):
    """Where the rows of the tiles of a call lie; tiles that are left over have none."""

    problem: NDArray[np.int64]  # [S]
    first: NDArray[np.int64]  # [S], a row among all
    size: NDArray[np.int32]  # [S]
    length: int  # rows of a tile, L

    @property
    def where(self) -> NDArray[np.int64]:
        """[S, L], the rows."""
        return self.first[:, None] + np.arange(self.length)

    @property
    def there(self) -> NDArray[np.bool_]:
        """[S, L], which of them are there."""
        return np.arange(self.length) < self.size[:, None]


class ProblemRows:
    """The rows of all problems end to end."""

    def __init__(self, columns: list[Any], sizes: NDArray[np.int64]) -> None:
        self.scores, self.labels, self.weights = columns
        self.scores = packing.bad_labels_as_nan(self.scores, self.labels)
        self.sizes = sizes
        self.starts = np.cumsum(sizes) - sizes
        self._length = min(_LENGTHS, key=self._cost)
        self._tiles = _AT_ONCE // self._length  # of a call

    def _cost(self, length: int) -> int:
        """Cost of tiles of this length, in rows."""
        return (length + _COST) * int(np.sum(-(-self.sizes // length)))

    def at(self, where: NDArray[np.int64], *sizes: NDArray[Any]) -> tuple[Any, ...]:
        """Scores, labels and weights (or None) of some, and what else goes with them."""
        columns = self.scores, self.labels, self.weights
        return *(None if x is None else x[where] for x in columns), *sizes

    def calls(self) -> Iterator[slice]:
        """Problems whose tiles share a call; one by itself that needs more of these."""
        ends, first = np.cumsum(-(-self.sizes // self._length)), 0
        while first < len(ends):
            used = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, used + self._tiles, side="right")))
            yield slice(first, last)
            first = last

    def tiles(self, problems: slice) -> Iterator[Tiles]:
        """The tiles of some problems, call by call."""
        sizes, length = self.sizes[problems], self._length
        needed = -(-sizes // length)
        which = np.repeat(np.arange(len(sizes)), needed)
        before = length * (np.arange(len(which)) - (np.cumsum(needed) - needed)[which])
        size = np.minimum(sizes[which] - before, length).astype(np.int32)
        whole = problems.start + which, self.starts[problems][which] + before, size
        for begin in range(0, len(which), self._tiles):
            problem, first, size = (x[begin : begin + self._tiles] for x in whole)
            left_over = 0, self._tiles - len(size)
            yield Tiles(
                np.pad(problem, left_over, mode="edge"),
                np.pad(first, left_over),
                np.pad(size, left_over).astype(np.int32),
                length,
            )
