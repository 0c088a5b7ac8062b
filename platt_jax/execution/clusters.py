"""Cluster ids as numbers that determine random weights."""

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.columns import Column
from platt_jax.execution.grouping import GroupedRows
from platt_jax.execution.replicates import TakeClusters
from platt_jax.ids.factorize import factorize
from platt_jax.ids.hashing import hashes
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns


def clusters_of_dense_rows(clusters: Column, length: int) -> TakeClusters:
    """The clusters of rows that all problems share."""
    words = _words(clusters, length)

    def take(problems: slice, part: slice) -> NDArray[np.uint32]:
        return np.tile(words[part], problems.stop - problems.start)

    return take


def clusters_of_segment_rows(clusters: Column, length: int, segments: Column) -> TakeClusters:
    """The clusters of rows, in the order of their SegmentRows."""
    words = _words(clusters, length)
    nothing = np.zeros(length, np.float32), np.zeros(length, np.int8)
    rows = GroupedRows(factorize(ids.read(segments)), Columns(*nothing, words))

    def take(problems: slice, part: slice) -> NDArray[np.uint32]:
        size = int(np.sum(rows.sizes[problems]))
        number = len(range(size)[part])
        taken = rows.take(problems, part, packing.Space(number)).weights
        assert taken is not None
        return taken[:number]

    return take


def _words(clusters: Column, length: int) -> NDArray[np.uint32]:
    """(N,) hash of each row's cluster; among 100,000 clusters about one pair shares a hash."""
    codes = factorize(ids.read_rows(clusters, length, "clusters"))
    words = hashes(codes.named(np.arange(codes.numbers))).astype(np.uint32)
    return words[codes.of(slice(None))]
