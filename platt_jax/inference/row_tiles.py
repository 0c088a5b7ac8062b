"""The rows of many problems in tiles of one problem each; a call has a fixed number of tiles.

So a few compiled programs serve problems with any number of rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Ints
from platt_jax.groups import Groups
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns

# Lengths of tiles, in rows: for small problems, and for large ones.
_LENGTHS = 16, 512
# Cost of a tile besides its rows, in rows, because its problem's expansion is gathered.
_COST = 8
# Rows per call, so that intermediate results stay in the caches.
_AT_ONCE = 1 << 15


class RowTiles(NamedTuple):
    """The tiles of one call; unused tiles have size 0."""

    problem: Ints  # [S] problem of each tile
    first: Ints  # [S] position of its first row among all rows
    size: NDArray[np.int32]  # [S] number of its rows
    length: int  # maximum number of rows of a tile, L

    @property
    def where(self) -> Ints:
        """[S, L] positions of the rows."""
        return self.first[:, None] + np.arange(self.length)

    @property
    def there(self) -> Bools:
        """[S, L] whether there is a row at each position."""
        return np.arange(self.length) < self.size[:, None]


class ProblemRows:
    """The rows of all problems, concatenated."""

    def __init__(self, columns: Columns, sizes: Ints) -> None:
        self.scores, self.labels, self.weights, self.offset = columns
        self.scores = packing.bad_labels_as_nan(self.scores, self.labels)
        self.dtype, self.groups = self.scores.dtype, Groups(sizes)
        self._length = min(_LENGTHS, key=self._cost)
        self._tiles = _AT_ONCE // self._length  # number of tiles per call

    def _cost(self, length: int) -> int:
        """Cost of tiles of this length, in rows."""
        return (length + _COST) * int(np.sum(-(-self.groups.sizes // length)))

    def at(self, where: Ints) -> Columns:
        """The columns at these positions."""
        columns = self.scores, self.labels, self.weights, self.offset
        return Columns(*(None if x is None else x[where] for x in columns))

    def taken(self, where: Ints, space: packing.Space) -> Columns:
        """The columns at these positions, with the space's length."""
        return packing.flat(self.at(where), space)

    def calls(self) -> Iterator[slice]:
        """Problems whose tiles share a call; a large problem has several calls of its own."""
        return Groups(-(-self.groups.sizes // self._length)).slices(self._tiles)

    def tiles(self, problems: slice) -> Iterator[RowTiles]:
        """The tiles of these problems, for one call after the other."""
        sizes, length = self.groups.sizes[problems], self._length
        needed = Groups(-(-sizes // length))
        before = length * needed.place
        starts = needed.by_row(self.groups.starts[problems]) + before
        lengths = np.minimum(needed.by_row(sizes) - before, length).astype(np.int32)
        whole = problems.start + needed.owner, starts, lengths
        for begin in range(0, needed.rows, self._tiles):
            problem, first, size = (x[begin : begin + self._tiles] for x in whole)
            left_over = 0, self._tiles - len(size)
            yield RowTiles(
                np.pad(problem, left_over, mode="edge"),
                np.pad(first, left_over),
                np.pad(size, left_over).astype(np.int32),
                length,
            )
