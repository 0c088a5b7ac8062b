"""The rows of many problems in tiles: a few rows of one problem each, and a fixed number per call.

One compiled program serves problems of any number of rows.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.passes import packing

_TILE_ROWS = 16

# Tiles per call, few enough for intermediate results to stay in the caches.
_TILES = (1 << 15) // _TILE_ROWS


class Tiles(NamedTuple):
    """The places of the rows of a call's tiles. Tiles left over at the end have size 0."""

    problem: NDArray[np.int64]  # [S]
    first: NDArray[np.int64]  # [S], the place of the first row
    size: NDArray[np.int32]  # [S]

    @property
    def where(self) -> NDArray[np.int64]:
        """[S, L], the places of the rows."""
        return self.first[:, None] + np.arange(_TILE_ROWS)

    @property
    def there(self) -> NDArray[np.bool_]:
        """[S, L], whether a place holds a row of the tile."""
        return np.arange(_TILE_ROWS) < self.size[:, None]


class ProblemRows:
    """The rows of all problems end to end."""

    def __init__(self, columns: list[Any], sizes: NDArray[np.int64]) -> None:
        self.scores, self.labels, self.weights = columns
        self.scores = packing.bad_labels_as_nan(self.scores, self.labels)
        self.sizes = sizes
        self.starts = np.cumsum(sizes) - sizes

    def at(self, where: NDArray[np.int64], *sizes: NDArray[Any]) -> tuple[Any, ...]:
        """Scores, labels and weights (or None) at these places, followed by the sizes."""
        columns = self.scores, self.labels, self.weights
        return *(None if x is None else x[where] for x in columns), *sizes

    def calls(self) -> Iterator[slice]:
        """Problems whose tiles share a call. A problem that needs several calls is alone."""
        ends, first = np.cumsum(_tiles_needed(self.sizes)), 0
        while first < len(ends):
            used = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, used + _TILES, side="right")))
            yield slice(first, last)
            first = last

    def tiles(self, problems: slice) -> Iterator[Tiles]:
        """The tiles of some problems, call by call."""
        sizes = self.sizes[problems]
        needed = _tiles_needed(sizes)
        which = np.repeat(np.arange(len(sizes)), needed)
        before = _TILE_ROWS * (np.arange(len(which)) - (np.cumsum(needed) - needed)[which])
        size = np.minimum(sizes[which] - before, _TILE_ROWS).astype(np.int32)
        whole = Tiles(problems.start + which, self.starts[problems][which] + before, size)
        for begin in range(0, len(which), _TILES):
            problem, first, size = (x[begin : begin + _TILES] for x in whole)
            left_over = 0, _TILES - len(size)
            yield Tiles(
                np.pad(problem, left_over, mode="edge"),
                np.pad(first, left_over),
                np.pad(size, left_over).astype(np.int32),
            )


def _tiles_needed(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return -(-sizes // _TILE_ROWS)
