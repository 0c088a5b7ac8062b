"""Rows brought together by segment: each goes straight to its place, by a counting sort.

A piece of the rows at a time, on all cores. A piece is counted; then it is known where its rows of
each segment go, and they are put there.
"""

from functools import partial
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax import layout, loops, packing, tiles
from platt_jax.segments import Numbered
from platt_jax.threads import in_order, pieces

# Fewer rows are sorted by NumPy, before the loop could be compiled.
_MANY = 1 << 16
_LEAST = 1 << 12


class GroupedRows:
    """The rows of every segment end to end; the segments in the order of `layout.tallest_first`.

    Between some of them there is a gap, of rows with NaN for a score.

    Attributes:
        keys: (K,) the segments, ascending or in order of their appearance.
        tallest_first: (K,) which of those lie one after the other.
        sizes: (K,) their numbers of rows, in that order.
        length: from the first row to the last.
    """

    def __init__(self, segments: Numbered, columns):
        """Columns are scores (N,), labels, and weights or None."""
        # A piece has as many rows as there are counts to keep.
        parts = pieces(len(segments.ids), least=segments.numbers)
        counts = list(in_order(partial(_count, segments), parts))
        first = self._lay_out(segments, sum(counts, start=np.zeros(segments.numbers, np.int64)))

        columns = [x for x in columns if x is not None]
        # Whatever is asked for is there: no chunk and no slab is longer than a slab.
        room = (self.length + layout.SLAB,)
        self._columns = [packing.aligned(room, x.dtype) for x in columns]
        self._fill_gaps()
        find = partial(_places, segments, max(part.stop - part.start for part in parts))

        def place(part_and_first):
            part, first = part_and_first
            places = find(part, first).astype(np.intp)  # as NumPy would for each column
            scores, labels, *weights = (x[part] for x in columns)
            rows = packing.bad_labels_as_nan(scores, labels), labels, *weights
            for into, x in zip(self._columns, rows, strict=True):
                into[places] = x

        before = accumulate(counts, initial=first)
        list(in_order(place, zip(parts, before, strict=False)))

    def _lay_out(self, segments, counts):
        """Say where the segments lie, given their numbers of rows; returns where each begins."""
        used = np.flatnonzero(counts)
        self.keys = segments.named(used)
        self.tallest_first = layout.tallest_first(counts[used])
        self.sizes = counts[used][self.tallest_first]
        self._starts, self.length = layout.laid_out(self.sizes)
        # Places in half the bytes wherever they have room.
        kind = np.promote_types(np.int32, np.min_scalar_type(-self.length))
        first = np.zeros(segments.numbers, kind)
        first[used[self.tallest_first]] = self._starts
        return first

    def _fill_gaps(self):
        ends = self._starts + self.sizes
        gaps = np.flatnonzero(self._starts[1:] > ends[:-1])
        for first, last in zip(ends[gaps], self._starts[gaps + 1], strict=True):
            for column, nothing in zip(self._columns, (np.nan, 0, 0), strict=False):
                column[first:last] = nothing

    def all(self, part: slice, length: int) -> tuple:
        """The columns from a part's first row on, at this length: gaps, too."""
        first = part.start or 0
        return self._three([x[first : first + length] for x in self._columns])

    def take(self, problems: slice, part: slice, length: int) -> tuple:
        """The rows of some segments, or part of those of one, at this length.

        As they lie, if there is no gap between them. What follows them is anything.
        """
        starts, sizes = self._starts[problems], self.sizes[problems]
        if starts[-1] + sizes[-1] - starts[0] == np.sum(sizes):
            return self.all(slice(starts[0] + (part.start or 0), None), length)
        rows = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(np.sum(sizes))
        return packing.flat(self._three([x[rows] for x in self._columns]), length)

    @staticmethod
    def _three(columns):
        """None where there are no weights."""
        return (*columns, None)[:3]


def _count(segments, part):
    counts = np.bincount(segments.of(part), minlength=segments.numbers)
    # A byte each where segments are small: those of all pieces are kept.
    return counts.astype(np.min_scalar_type(-1 - counts.max()))


def _places(segments, longest, part, first):
    """Where each row of a part goes, given where the first row of each number goes."""
    if longest < _MANY or not loops.at_hand():
        return _places_by_sort(segments.of(part), first)
    rows = part.stop - part.start
    numbers = packing.aligned((_at_least(longest),), first.dtype)
    segments.of(part, out=numbers[:rows])
    with jax.enable_x64(True):
        first = packing.lengthen(first, _at_least(len(first)))
        return np.asarray(_places_by_loop(numbers, first, np.int32(rows)))[:rows]


def _places_by_sort(numbers, first):
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers, minlength=len(first))
    places = np.empty(len(numbers), first.dtype)
    places[order] = np.arange(len(numbers)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    return places


def _at_least(length):
    """A power of 2, so that one program serves for many lengths; XLA fails where it is 1."""
    return max(_LEAST, 1 << (length - 1).bit_length())


@partial(jax.jit, compiler_options=tiles.COMPILER_OPTIONS)
def _places_by_loop(numbers, first, rows):
    """The same of the first so many rows."""

    @loops.as_one
    def run(numbers, first, rows):
        def next_row(i, so_far):
            next_place, places = so_far
            number = _at(numbers, i)
            places = _put(places, _at(next_place, number), i)
            # Read where it was written: else XLA would copy what it reads and writes here.
            return _put(next_place, _at(places, i) + 1, number), places

        return lax.fori_loop(0, rows, next_row, (first, jnp.zeros_like(numbers)))[1]

    return run(numbers, first, rows)


_at = partial(lax.dynamic_index_in_dim, keepdims=False)
_put = partial(lax.dynamic_update_index_in_dim, axis=0)
