"""Segments that no process holds all of: a population needs totals, and the fit of all rows."""

import threading

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import Options, SegmentRows
from platt_jax.caller import Caller
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.fitting import fit_by_segment


class Part(ChunkedSegments):
    """The segments of one of several workers, which add up at a barrier."""

    def __init__(self, rows, rows_of_all, sums, barrier):
        super().__init__(rows, Caller())
        self._of_all = ChunkedSegments(rows_of_all, Caller())
        self._sums, self._barrier, self.numbers = sums, barrier, 0

    def pooled(self, *arguments):
        return self._of_all.pooled(*arguments)

    def coordinates(self, options):
        return self._of_all.coordinates(options)

    def total(self, sums):
        self.numbers = max(self.numbers, sums.size)
        self._sums.append(sums)
        self._barrier.wait(60)
        total = sum(self._sums, start=np.zeros(sums.shape))
        if self._barrier.wait(60) == 0:
            self._sums.clear()
        self._barrier.wait(60)
        return total


@pytest.mark.parametrize("rows_each", [8, 200], ids=["uncertain", "certain"])
def test_workers_with_segments_of_their_own_find_one_population(rng, rows_each):
    K = 600 if rows_each == 8 else 40
    segments = np.repeat(np.arange(K), rows_each)
    scores = rng.normal(size=len(segments))
    # Segments that differ: where they do not, the information is nearly singular, and rounding of
    # its sums is seen in its inverse.
    labels = labels_of(rng, scores + rng.normal(size=K)[segments])
    expected = pj.fit_segments(scores, labels, segments, pooling="partial")

    of_all, sums, barrier = SegmentRows(scores, labels, segments), [], threading.Barrier(2)
    found = [None, None]
    parts = []
    for mine in (segments % 3 == 0, segments % 3 > 0):
        rows = SegmentRows(scores[mine], labels[mine], segments[mine])
        parts.append(Part(rows, of_all, sums, barrier))

    def work(i):
        found[i] = fit_by_segment(parts[i], None, None, "partial", Options(), False, Caller())

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for part, calibrator in zip(parts, found, strict=True):
        assert part.numbers < 13 * 600  # no array of all segments
        mine = np.isin(expected.keys, calibrator.keys)
        of_mine = expected.only(mine)
        for name in ("A", "B", "covariance"):
            pair = getattr(calibrator.fit, name), getattr(of_mine.fit, name)
            np.testing.assert_allclose(*pair, rtol=1e-8, atol=1e-10)
        for name in ("mean", "covariance", "mean_covariance", "predictive_covariance"):
            pair = getattr(calibrator.population, name), getattr(expected.population, name)
            np.testing.assert_allclose(*pair, rtol=1e-8, atol=1e-10)
        pair = calibrator.population.posterior_covariance, of_mine.population.posterior_covariance
        np.testing.assert_allclose(*pair, rtol=1e-8, atol=1e-10)
