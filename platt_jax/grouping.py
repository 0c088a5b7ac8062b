"""Rows brought together by segment.

A sort of all rows would miss the caches at every step, on one core. Instead the rows are dealt out
to buckets of segments, a piece of the rows at a time; and a bucket is sorted when its turn comes.
"""

import numpy as np

from platt_jax import packing
from platt_jax.threads import in_order, pieces


class GroupedRows:
    """Which rows are whose; the segments in the order of `packing.tallest_first`.

    Attributes:
        sizes: (K,) numbers of rows.
        tallest_first: (K,) which segment each of those is.
        rank: (K,) the reverse: where each segment is among them.
    """

    def __init__(self, codes: np.ndarray, segments: int):
        """Codes (N,) say which of so many segments each row has."""
        self._codes = codes
        # A piece has more rows than there are counts to add up.
        large = pieces(len(codes), least=8 * segments)
        counts = in_order(lambda piece: np.bincount(codes[piece], minlength=segments), large)
        sizes = sum(counts, start=np.zeros(segments, np.int64))
        self.tallest_first = packing.tallest_first(sizes)
        self.sizes = sizes[self.tallest_first]
        self.rank = np.empty(segments, np.int32)
        self.rank[self.tallest_first] = np.arange(segments, dtype=np.int32)
        self._ends = np.concatenate([[0], np.cumsum(self.sizes)])

    def deal(self, firsts: np.ndarray):
        """Deal the rows out to buckets of segments, given the first segment of each, by rank."""
        self._firsts = np.append(firsts, len(self.sizes))
        buckets = np.arange(len(firsts), dtype=np.min_scalar_type(len(firsts)))
        bucket = np.repeat(buckets, np.diff(self._firsts))[self.rank]

        def deal_piece(piece):
            mine = bucket.take(self._codes[piece], mode="clip")
            order = np.argsort(mine, kind="stable").astype(np.int32)
            return (
                piece.start,
                order,
                np.append(0, np.cumsum(np.bincount(mine, minlength=len(firsts)))),
            )

        self._dealt = list(in_order(deal_piece, pieces(len(self._codes))))

    def take(self, problems: slice, part: slice, columns) -> tuple:
        """The rows of a slice of the segments, by rank, from each column (or None).

        Of one segment alone it may be part of the rows.
        """
        first = np.searchsorted(self._firsts, problems.start, side="right") - 1
        last = np.searchsorted(self._firsts, problems.stop, side="left")
        low, high = self._firsts[[first, last]]
        start, stop = self._ends[[problems.start, problems.stop]] - self._ends[low]
        if high - low == 1:
            rows = self._dealt_to(first, last, *part.indices(stop)[:2])
            return tuple(None if x is None else x.take(rows, mode="clip") for x in columns)
        rows = self._dealt_to(first, last, 0, self._ends[high] - self._ends[low])
        rank = self.rank.take(self._codes.take(rows, mode="clip"), mode="clip") - low
        # NumPy's radix sort is for up to 16 bits, which is what the segments of a chunk need.
        order = np.argsort(rank.astype(np.min_scalar_type(high - low - 1)), kind="stable")
        order = order[start:stop][part]
        # First in the order of the rows, then within what the cache holds. Clipping is fast.
        return tuple(
            None if x is None else x.take(rows, mode="clip").take(order, mode="clip")
            for x in columns
        )

    def _dealt_to(self, first, last, start, stop):
        """The rows from start to stop of those in some buckets, ascending within each piece."""
        parts, before = [], 0
        for begin, order, ends in self._dealt:
            mine = order[ends[first] : ends[last]]
            wanted = mine[max(start - before, 0) : max(stop - before, 0)]
            parts.append(begin + wanted.astype(np.intp))
            before += len(mine)
        return np.concatenate(parts)
