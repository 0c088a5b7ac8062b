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
        costs = [(length + _COST) * -(-self.groups.sizes // length) for length in _LENGTHS]
        # Each problem's own, so that the order of its sums does not depend on the others.
        self._lengths = np.array(_LENGTHS)[np.argmin(costs, axis=0)]

    def at(self, where: Ints) -> Columns:
        """The columns at these positions."""
        columns = self.scores, self.labels, self.weights, self.offset
        return Columns(*(None if x is None else x[where] for x in columns))

    def taken(self, where: Ints, space: packing.Space) -> Columns:
        """The columns at these positions, with the space's length."""
        return packing.flat(self.at(where), space)

    def calls(self) -> Iterator[Ints]:
        """Problems whose tiles share a call; a large problem has several calls of its own."""
        for length in _LENGTHS:
            alike = np.flatnonzero(self._lengths == length)
            needed = Groups(-(-self.groups.sizes[alike] // length))
            yield from (alike[block] for block in needed.slices(_AT_ONCE // length))

    def tiles(self, problems: Ints) -> Iterator[RowTiles]:
        """The tiles of these problems of a call, for one call after the other."""
        sizes, length = self.groups.sizes[problems], int(self._lengths[problems[0]])
        at_once = _AT_ONCE // length
        needed = Groups(-(-sizes // length))
        rows_before = length * needed.place
        starts = needed.by_row(self.groups.starts[problems]) + rows_before
        lengths = np.minimum(needed.by_row(sizes) - rows_before, length).astype(np.int32)
        tile_arrays = needed.by_row(problems), starts, lengths
        for begin in range(0, needed.rows, at_once):
            problem, first, size = (x[begin : begin + at_once] for x in tile_arrays)
            left_over = 0, at_once - len(size)
            yield RowTiles(
                np.pad(problem, left_over, mode="edge"),
                np.pad(first, left_over),
                np.pad(size, left_over).astype(np.int32),
                length,
            )
