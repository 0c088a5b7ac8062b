"""What is fitted: problems of the sizes that users have, some of them hard.

Of the problems of a made-up workload, 2 in 100 are nearly separable, 2 have scores in the
thousands, 2 scores far from 0 (mean / sd = 100) and 2 heavy tails (Student's t, 2 degrees of
freedom); one problem alone has none of that. Appendix 3 in double precision can still solve these.
The seed of `even` is one with which its line search does not fail for the one of 10,000,000 rows:
that would multiply its time by twenty, for nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from platt_jax.data import load_flights

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Workload:
    """Problems, their rows end to end; and as a user holds them, where that differs."""

    name: str
    offsets: NDArray[np.int64]  # (K + 1,): problem k has the rows from offsets[k] to offsets[k + 1]
    scores: Array  # (rows,)
    labels: NDArray[np.int8]
    weights: Array | None
    # Of a ragged workload: scores, labels and segment ids in the order the user has the rows in.
    ungrouped: tuple[Array, NDArray[np.int8], NDArray] | None

    @property
    def problems(self) -> int:
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        return len(self.scores)

    @property
    def row_bytes(self) -> int:
        """What one packed row takes: a score, a label, and a weight if there are weights."""
        columns = 1 if self.weights is None else 2
        return columns * self.scores.itemsize + 1

    def dense(self, flat: NDArray) -> NDArray:
        """One of its flat arrays as (K, N); for problems of one size."""
        return flat.reshape(self.problems, -1)

    def only(self, problems: NDArray[np.intp]) -> Workload:
        """A workload of some of the problems, rows grouped."""
        sizes = np.diff(self.offsets)[problems]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[problems] - offsets[:-1], sizes)
        weights = None if self.weights is None else self.weights[rows]
        return Workload(self.name, offsets, self.scores[rows], self.labels[rows], weights, None)


def even(name: str, problems: int, rows: int, dtype: type, weighted: bool = False) -> Workload:
    """Problems of one size."""
    rng = np.random.default_rng(11)
    scores, labels = _rows(rng, np.full(problems, rows), dtype)
    weights = rng.integers(1, 4, len(scores)).astype(dtype) if weighted else None
    return Workload(name, np.arange(problems + 1) * rows, scores, labels, weights, None)


def ragged(name: str, sizes: NDArray[np.integer], dtype: type) -> Workload:
    """Segments of these sizes, their rows shuffled as a log of events would have them."""
    rng = np.random.default_rng(8)
    grouped, labels = _rows(rng, sizes, dtype)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    order = rng.permutation(len(grouped))
    segments = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)[order]
    return Workload(name, offsets, grouped, labels, None, (grouped[order], labels[order], segments))


def lognormal_sizes(segments: int, rows: int) -> NDArray[np.int64]:
    """Sizes >= 2 with a long tail: the largest tenth holds more than half of the rows."""
    raw = np.random.default_rng(9).lognormal(sigma=1.5, size=segments)
    sizes = np.maximum(2, (raw * (rows / raw.sum())).astype(np.int64))
    sizes[np.argmax(sizes)] += rows - sizes.sum()
    return sizes


def tiny_sizes(segments: int) -> NDArray[np.int64]:
    """Sizes of 5 to 20 rows."""
    return np.random.default_rng(10).integers(5, 21, segments)


def flights(name: str, dtype: type) -> Workload:
    """The demo's flights, all of the half-year, by aircraft."""
    data = load_flights()
    scores, labels = data.score.astype(dtype), data.outcome
    _, codes, sizes = np.unique(data.aircraft, return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ungrouped = (scores, labels, data.aircraft)
    return Workload(name, offsets, scores[order], labels[order], None, ungrouped)


def catalogue(quick: bool) -> dict[str, Callable[[type], Workload]]:
    """How to make each workload in a dtype, by name; quick ones are small."""

    def made(name: str, problems: int, rows: int, small: tuple[int, int], weighted: bool = False):
        shape = small if quick else (problems, rows)
        return lambda dtype: even(name, *shape, dtype, weighted)

    sizes = lognormal_sizes(200, 20_000) if quick else lognormal_sizes(20_000, 5_000_000)
    tiny = tiny_sizes(2_000 if quick else 1_000_000)
    return {
        "1000x1000": made("1000x1000", 1_000, 1_000, (50, 500)),
        "10000x1000": made("10000x1000", 10_000, 1_000, (100, 500)),
        "20000x100": made("20000x100", 20_000, 100, (500, 100)),
        "100x100000": made("100x100000", 100, 100_000, (4, 20_000)),
        "1x10000000": made("1x10000000", 1, 10_000_000, (1, 100_000)),
        "ragged": lambda dtype: ragged("ragged", sizes, dtype),
        "tiny": lambda dtype: ragged("tiny", tiny, dtype),
        "flights": lambda dtype: flights("flights", dtype),
        "weighted": made("weighted", 10_000, 1_000, (50, 500), weighted=True),
    }


def losses(at: Workload, A: Array, B: Array) -> Array:
    """The loss of every problem at its (A, B): float64, nothing cancels, nothing overflows."""
    out = np.empty(at.problems)
    sizes = np.diff(at.offsets)
    ends = np.searchsorted(at.offsets, np.arange(0, at.rows, 1_000_000)[1:])
    cuts = np.unique([0, *ends, at.problems])
    for first, last in pairwise(cuts.tolist()):
        rows = slice(at.offsets[first], at.offsets[last])
        starts, size = at.offsets[first:last] - at.offsets[first], sizes[first:last]
        w = (
            np.ones(rows.stop - rows.start)
            if at.weights is None
            else at.weights[rows].astype(float)
        )
        y = at.labels[rows] > 0
        n_pos, n_neg = np.add.reduceat(w * y, starts), np.add.reduceat(w * ~y, starts)
        z = np.repeat(np.asarray(A[first:last], float), size) * at.scores[rows]
        z += np.repeat(np.asarray(B[first:last], float), size)
        # The target of the class that the row's z speaks against: t where z >= 0, else 1 - t.
        own = np.where(y, np.repeat(n_pos, size), np.repeat(n_neg, size))
        against = np.where(y == (z >= 0), own + 1, 1) / (own + 2)
        distance = np.abs(z)
        term = w * (against * distance + np.log1p(np.exp(-distance)))
        out[first:last] = np.add.reduceat(term, starts)
    return out


def _rows(rng: np.random.Generator, sizes: NDArray[np.integer], dtype: type):
    """Scores and labels of problems of these sizes, end to end."""
    problems = len(sizes)
    shift, base_rate = rng.uniform(0.5, 2.5, problems), rng.uniform(0.1, 0.6, problems)
    center, scale = rng.normal(size=problems), np.exp(rng.normal(size=problems))
    kind = rng.permutation(problems) % 50 if problems > 1 else np.array([-1])
    shift[kind == 0] = 8.0
    scale[kind == 1] *= 1e3
    center[kind == 2] = 100.0
    labels = (rng.random(sizes.sum()) < np.repeat(base_rate, sizes)).astype(np.int8)
    scores = rng.normal(size=len(labels))
    heavy = np.repeat(kind == 3, sizes)
    scores[heavy] = rng.standard_t(2, heavy.sum())
    scores += np.repeat(center, sizes) + np.repeat(shift, sizes) * labels
    scores *= np.repeat(scale, sizes)
    # Rounded to float32 either way: both dtypes have the same problems.
    return scores.astype(np.float32).astype(dtype), labels
