"""Rows brought together by segment: each goes straight to its place, by a counting sort.

A piece of the rows at a time, on all cores.
"""

from functools import partial
from itertools import accumulate

import numpy as np

from platt_jax import counting, layout, packing
from platt_jax.segments import Numbered
from platt_jax.threads import in_order, pieces

# The bits of a place by which it is found among so many that they lie in a core's caches.
_NEAR_BITS = 16


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
        # A piece has more rows than there are counts to keep.
        parts = pieces(len(segments.ids), least=2 * segments.numbers)
        counts = _counts(segments.of, parts, segments.numbers)
        first = self._lay_out(segments, sum(counts, start=np.zeros(segments.numbers, np.int64)))

        columns = [x for x in columns if x is not None]
        # Whatever is asked for is there: no chunk and no slab is longer than a slab.
        room = (self.length + layout.SLAB,)
        self._columns = [packing.aligned(room, x.dtype) for x in columns]

        def rows_of(part):
            scores, labels, *weights = (x[part] for x in columns)
            return [packing.bad_labels_as_nan(scores, labels), labels, *weights]

        if segments.numbers <= 1 << _NEAR_BITS:

            def cut(part):
                return segments.of(part), rows_of(part)

            _deal(cut, parts, counts, first, self._columns)
        else:
            del counts
            self._deal_twice(segments, first, rows_of)
        self._fill_gaps()

    def _lay_out(self, segments, counts):
        """Say where the segments lie, given their numbers of rows; returns where each begins."""
        used = np.flatnonzero(counts)
        self.keys = segments.named(used)
        self.tallest_first = layout.tallest_first(counts[used])
        self.sizes = counts[used][self.tallest_first]
        self._starts, self.length = layout.laid_out(self.sizes)
        kind = np.promote_types(np.int32, np.min_scalar_type(-self.length))
        first = np.zeros(segments.numbers, kind)
        first[used[self.tallest_first]] = self._starts
        return first

    def _deal_twice(self, segments, first, rows_of):
        """Each row to the neighbourhood where its segment begins, then to its place in there.

        Straight to one of a million places, each score and each label would miss the caches.
        """
        begins = np.arange(0, self._starts[-1] + 1, 1 << _NEAR_BITS)
        begins = self._starts[np.searchsorted(self._starts, begins)]
        near = np.empty(self.length, np.uint16)

        def where(part):
            """Where the segment of each row begins."""
            return first.take(segments.of(part), mode="clip")

        def cut(part):
            at = where(part)
            return at >> _NEAR_BITS, [*rows_of(part), at & (1 << _NEAR_BITS) - 1]

        parts = pieces(len(segments.ids))
        counts = _counts(lambda part: where(part) >> _NEAR_BITS, parts, len(begins))
        _deal(cut, parts, counts, begins, [*self._columns, near])

        rows = sum(counts, start=np.zeros(len(begins), np.int64))
        mixed = np.flatnonzero(np.bincount(self._starts >> _NEAR_BITS) > 1)
        longest = int(np.max(rows[mixed], initial=0))
        all_near = np.arange(1 << _NEAR_BITS)

        def sort(hood):
            part = slice(begins[hood], begins[hood] + rows[hood])
            first = all_near + (hood << _NEAR_BITS)
            places = counting.places(near[part], first, longest)
            for x in self._columns:
                x[places] = x[part].copy()

        list(in_order(sort, mixed))

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


def _counts(numbers_of, parts, length):
    """How many rows of each part have each number."""
    return list(in_order(lambda part: counting.count(numbers_of(part), length), parts))


def _deal(cut, parts, counts, first, into):
    """Rows to their places, part by part.

    Args:
        cut: given a part, the numbers of its rows, and their columns.
        parts: of the rows.
        counts: how many rows of each part have each number.
        first: where the first row of each number goes.
        into: the columns to put them in.
    """
    longest = max(part.stop - part.start for part in parts)

    def deal(part_and_first):
        part, first = part_and_first
        numbers, columns = cut(part)
        places = counting.places(numbers, first, longest)
        for x, column in zip(into, columns, strict=True):
            x[places] = column

    before = accumulate(counts, initial=first.astype(np.int64))
    list(in_order(deal, zip(parts, before, strict=False)))
