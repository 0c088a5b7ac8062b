"""Rows that depend on each other: rows of a cluster have a shift of the log-odds in common."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.hypothesis_tests.posteriors import most_times

_NOTHING = 1e-100
# Least variance of a cluster's labels: fewer say nothing, and their square has a long tail.
_LEAST_VARIANCE = 0.05


class Clusters(NamedTuple):
    """Clusters of the rows of segments, and the variance of their shifts, which are normal."""

    owner: Ints  # (N,) number of each row's cluster; clusters of two segments differ
    variance: float

    def shock_variance(self, segment: Ints, weight: Floats, K: int) -> Floats:
        """(K,) the variance of one shift of all rows that moves a number of labels as much.

        The weight (N,) is the number's derivative by each row's log-odds, negative where it counts
        negatives. Segments (N,) ascend.
        """
        by_cluster = np.bincount(self.owner, weight)
        first = np.unique(self.owner, return_index=True)[1]
        squares = np.bincount(segment[first], by_cluster**2, K)
        total = np.bincount(segment, np.abs(weight), K)
        share = np.divide(squares, total**2, out=np.ones(K), where=total > _NOTHING)
        return np.maximum(self.variance * share, _NOTHING)


def numbered(segment: Ints, words: NDArray[Any]) -> Ints:
    """(N,) numbers of the clusters, given each row's segment and its cluster's hash."""
    pairs = np.stack([segment.astype(np.uint64), words.astype(np.uint64)], -1)
    numbers: Ints = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return numbers


def shock_variance(segment: Ints, owner: Ints, labels: Floats, proba: Floats) -> float:
    """The variance of the clusters' shifts, from all segments together; NaN if none has two.

    It is the estimate by moments of DerSimonian & Laird (1986, "Meta-analysis in clinical trials"),
    pooled over segments: the sum over clusters of (labels - predictions)^2 / variance, less its
    expectation without shifts. It is taken as large as it may be, like the width of a population:
    divided by the chi-square variable's 5 % quantile over its degrees of freedom. Each segment's
    predictions are shifted to add up to its labels.
    """
    variance = np.bincount(owner, proba * (1 - proba))
    off = np.bincount(owner, labels - proba)
    segment_of_cluster = segment[np.unique(owner, return_index=True)[1]]
    used = variance > _LEAST_VARIANCE
    variance, off, segment_of_cluster = (x[used] for x in (variance, off, segment_of_cluster))
    number, total = np.bincount(segment_of_cluster), np.bincount(segment_of_cluster, variance)
    freedom = np.maximum(number - 1, 0).sum()
    if not freedom:
        return np.nan
    squares = np.bincount(segment_of_cluster, variance**2)
    by_shift = (total - np.divide(squares, total, out=np.zeros(len(total)), where=total > 0)).sum()
    spread = (off**2 / variance).sum() * most_times(float(freedom))
    return float(max(spread - freedom, 0) / by_shift)
