"""Groups rows by segment: a counting sort copies each row directly to its place.

Each core gets a stretch of the rows. The rows of each segment are counted in every stretch. The
counts give the places of each stretch's rows, which are then copied piece by piece.
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.backend import xla
from platt_jax.backend.threads import cores, ordered_map, row_slices, run_programs
from platt_jax.execution import planning
from platt_jax.groups import Groups
from platt_jax.ids.factorize import Factorized
from platt_jax.passes import packing, shapes
from platt_jax.passes.columns import Columns

_TwoArrays: TypeAlias = tuple[jax.Array, jax.Array]

# Minimum rows for the compiled loop. NumPy sorts fewer rows before the loop could be compiled.
_MANY = 1 << 16
_LEAST = 1 << 12


class GroupedRows:
    """The rows of every segment end to end, with segments in the order of `planning.largest_first`.

    Between some segments there is a gap: rows with a NaN score.

    Attributes:
        keys: (K,) the segments, ascending or in order of appearance.
        largest_first: (K,) the segment at each place of the layout, an index into `keys`.
        sizes: (K,) numbers of rows, in the order of the layout.
        length: number of places from the first row to the last.
        reread: whether each pass over an oversized problem reads its rows again, rather than
            keeping them on the device.
    """

    reread: bool = False

    def __init__(self, segments: Factorized, columns: Columns) -> None:
        """Columns are arrays (N,)."""
        run_programs(lambda: self._group(segments, columns), x64=True)

    def _group(self, segments: Factorized, columns: Columns) -> None:
        # A stretch per core, or fewer if stretches would be short compared with their tables of
        # next positions. Otherwise two cores with neighbouring pieces would write to the same cache
        # lines, and wait.
        total = len(segments.ids)
        stretches = row_slices(total, least=max(segments.numbers, -(-total // cores())))
        counts = list(ordered_map(partial(_count, segments), stretches))
        first = self._lay_out(segments, sum(counts, start=np.zeros(segments.numbers, np.int64)))

        # Any requested range exists: no chunk and no block is longer than a block.
        room = (self.length + shapes.sizes().block_rows,)
        self._columns: Columns = jax.tree.map(lambda x: packing.aligned(room, x.dtype), columns)

        def place(stretch_and_next_positions: tuple[slice, NDArray[Any]]) -> None:
            for positions, piece in row_positions(segments, *stretch_and_next_positions):
                rows = jax.tree.map(itemgetter(piece), columns)
                scores = packing.bad_labels_as_nan(rows.scores, rows.labels)
                rows = rows._replace(scores=scores)
                for target, x in zip(*map(jax.tree.leaves, (self._columns, rows)), strict=True):
                    target[positions] = x

        next_positions = accumulate(counts, initial=first)
        list(ordered_map(place, zip(stretches, next_positions, strict=False)))
        # Only now: otherwise this core alone would be the first to touch nearly all of the memory.
        self._fill_gaps()

    def _lay_out(self, segments: Factorized, counts: NDArray[np.int64]) -> NDArray[Any]:
        """Sets the places of the segments from their numbers of rows; returns the first of each."""
        used = np.flatnonzero(counts)
        self.keys = segments.named(used)
        largest_first = planning.largest_first(counts[used])
        sizes = counts[used][largest_first]
        starts, self.length = planning.layout_rows(sizes)
        # In four bytes, if these can hold the end of any block.
        kind = np.promote_types(
            np.int32, np.min_scalar_type(-self.length - shapes.sizes().block_rows)
        )
        self.largest_first, self.sizes, self._starts = (
            x.astype(kind) for x in (largest_first, sizes, starts)
        )
        first = np.zeros(segments.numbers, kind)
        first[used[self.largest_first]] = self._starts
        return first

    def _fill_gaps(self) -> None:
        ends = self._starts + self.sizes
        gaps = np.flatnonzero(self._starts[1:] > ends[:-1])
        scores, *columns = jax.tree.leaves(self._columns)
        for first, last in zip(ends[gaps], self._starts[gaps + 1], strict=True):
            scores[first:last] = np.nan
            for column in columns:
                column[first:last] = 0

    def all(self, part: slice, space: packing.Space) -> Columns:
        """The columns from a part's first row on, with the space's length, gaps included.

        What follows the part is undefined.
        """
        first = part.start or 0
        block: Columns = jax.tree.map(itemgetter(slice(first, first + space.length)), self._columns)
        return block

    @property
    def has_offset(self) -> bool:
        """Whether the rows have offsets."""
        return self._columns.offset is not None

    def digest(self) -> bytes:
        """A hash of all rows, which changes with their values and their order."""
        hasher = hashlib.blake2b(self.sizes.tobytes(), digest_size=16)
        for column in jax.tree.leaves(self._columns):
            hasher.update(column[: self.length].data)
        return hasher.digest()

    def sampled_scores(self, most: int) -> NDArray[Any]:
        """Scores and weights of about `most` rows, evenly from all rows, or of all: (n, 2).

        Gaps are included, with scores that are NaN.
        """
        part = slice(0, self.length, max(1, self.length // most))
        sample: NDArray[Any] = jax.tree.map(lambda x: x[part], self._columns).weighted_scores()
        return sample

    def take(self, problems: slice, part: slice, space: packing.Space) -> Columns:
        """The rows of some segments, or a part of the rows of one, with the space's length.

        If there is no gap between them, they are not copied. What follows them is undefined.
        """
        starts, sizes = self._starts[problems], self.sizes[problems]
        if starts[-1] + sizes[-1] - starts[0] == np.sum(sizes):
            return self.all(slice(starts[0] + (part.start or 0), None), space)
        groups = Groups(sizes)
        rows = groups.by_row(starts) + groups.place
        return packing.flat(jax.tree.map(itemgetter(rows), self._columns), space)


def _count(segments: Factorized, stretch: slice) -> NDArray[Any]:
    counts = np.zeros(segments.numbers, np.int64)
    for piece in _pieces(segments, stretch):
        counts += np.bincount(segments.of(piece), minlength=segments.numbers)
    # The counts of all stretches are kept at once, so they are a byte each if segments are small.
    return counts.astype(np.min_scalar_type(-1 - counts.max()))


def _pieces(segments: Factorized, stretch: slice) -> list[slice]:
    """Pieces of a stretch, not short compared with the table of next positions."""
    return row_slices(stretch.stop - stretch.start, segments.numbers, stretch.start)


def row_positions(
    segments: Factorized, stretch: slice, next_positions: NDArray[Any]
) -> Iterator[tuple[NDArray[np.intp], slice]]:
    """The places of a stretch's rows, and the rows, piece by piece.

    `next_positions` has the place of the first row of each number.
    """
    cut = _pieces(segments, stretch)
    longest = cut[0].stop - cut[0].start
    by_loop = longest >= _MANY and xla.fused_cpu_supported()
    if by_loop:
        numbers = packing.aligned((_at_least(longest),), next_positions.dtype)
        next_positions = packing.lengthen(next_positions, _at_least(len(next_positions)))
    for piece in cut:
        rows = piece.stop - piece.start
        if by_loop:
            segments.of(piece, out=numbers[:rows])
            positions, next_positions = _positions_by_loop(numbers, next_positions, np.int32(rows))
            positions = np.asarray(positions)[:rows]
        else:
            positions, next_positions = _positions_by_sort(segments.of(piece), next_positions)
        yield positions.astype(np.intp, copy=False), piece  # else NumPy would for each column


def _positions_by_sort(
    numbers: NDArray[np.int64], next_positions: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The place of each row, and the next free place of each number."""
    order = np.argsort(numbers, kind="stable")
    groups = Groups(np.bincount(numbers, minlength=len(next_positions)))
    positions = np.empty(len(numbers), next_positions.dtype)
    positions[order] = groups.by_row(next_positions - groups.starts) + np.arange(groups.rows)
    return positions, (next_positions + groups.sizes).astype(next_positions.dtype)


def _at_least(length: int) -> int:
    """A power of 2, so that one program serves many lengths. XLA fails for length 1."""
    return max(_LEAST, 1 << (length - 1).bit_length())


@partial(xla.jit, wide=True)
def _positions_by_loop(
    numbers: jax.Array, next_positions: jax.Array, rows: jax.Array
) -> _TwoArrays:
    """As `_positions_by_sort`, for the first `rows` rows. The others' places are undefined."""

    @xla.single_call
    def run(numbers: jax.Array, next_positions: jax.Array, rows: jax.Array) -> _TwoArrays:
        def next_row(i: jax.Array, so_far: _TwoArrays) -> _TwoArrays:
            next_positions, positions = so_far
            number = _at(numbers, i)
            positions = _put(positions, _at(next_positions, number), i)
            # Reads what was just written: otherwise XLA would copy the array it reads and writes.
            return _put(next_positions, _at(positions, i) + 1, number), positions

        next_positions, positions = lax.fori_loop(
            0, rows, next_row, (next_positions, jnp.zeros_like(numbers))
        )
        return positions, next_positions

    return run(numbers, next_positions, rows)


_at = partial(lax.dynamic_index_in_dim, keepdims=False)
_put = partial(lax.dynamic_update_index_in_dim, axis=0)
