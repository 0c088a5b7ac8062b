"""Rows of a few segments, and the changes of rows under which an answer is known."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from data import labels_of

SIZES = (60, 45, 40, 35, 30, 12, 1)
TARGET = 2  # the segment that a change spoils, renames or removes


@dataclass(frozen=True)
class Rows:
    """Rows by segment, and what has been done to them.

    Attributes:
        scores, labels, segments, weights: (N,) each.
        origin: (N,) the place of each row among the rows before the change.
        names: {id: the id before the change}.
        spoiled: ids whose answers are not compared.
        scale, shift: a score is scale times the score before, plus shift.
    """

    scores: np.ndarray
    labels: np.ndarray
    segments: np.ndarray
    weights: np.ndarray
    origin: np.ndarray
    names: dict
    spoiled: tuple = ()
    scale: float = 1.0
    shift: float = 0.0

    def where(self, chosen):
        """Some rows, in this order."""
        columns = ("scores", "labels", "segments", "weights", "origin")
        return replace(self, **{name: getattr(self, name)[chosen] for name in columns})

    def is_kept(self, ids):
        """Whether the answers of these ids are compared."""
        return ~np.isin(ids, self.spoiled)


@cache
def original(seed=0):
    """Seven segments of 1 to 60 rows, with tied scores; the sixth has labels of one class only."""
    rng = np.random.default_rng(seed)
    segments = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    scores = rng.normal(0.3, 1.2, len(segments)).round(1)
    slope, intercept = rng.normal([1.6, -0.4], 0.4, (len(SIZES), 2))[segments].T
    labels = labels_of(rng, slope * scores + intercept).astype(int)
    labels[segments == 5] = 0
    weights = rng.integers(1, 4, len(segments)).astype(float)
    names = {key: key for key in range(len(SIZES))}
    return Rows(scores, labels, segments, weights, np.arange(len(segments)), names)


def as_it_is(rows):
    return rows


def unweighted(rows):
    return replace(rows, weights=np.ones(len(rows.scores)))


def permuted(rows):
    return rows.where(np.random.default_rng(1).permutation(len(rows.scores)))


def renamed(rows):
    """Ids of text, in another order."""
    names = {f"shop {(3 * key) % len(SIZES)}": key for key in rows.names}
    ids = {key: name for name, key in names.items()}
    return replace(rows, segments=np.array([ids[x] for x in rows.segments.tolist()]), names=names)


def with_gaps(rows):
    """Integers as ids, with others between them that no row has."""
    names = {7 * key - 3: key for key in rows.names}
    return replace(rows, segments=7 * rows.segments - 3, names=names)


def dropped(rows):
    """Without the rows of one segment."""
    return replace(rows.where(rows.segments != TARGET), spoiled=(TARGET,))


def halved(rows):
    """Only the segments of even numbers, as if the rest were in another call."""
    kept = rows.where(rows.segments % 2 == 0)
    return replace(kept, spoiled=tuple(x for x in rows.names if x % 2))


def heavy(rows):
    """The weights of one segment, times 1e300."""
    weights = np.where(rows.segments == TARGET, 1e300, 1.0) * rows.weights
    return replace(rows, weights=weights, spoiled=(TARGET,))


def not_finite(rows):
    """A score of one segment is NaN, and so its answers."""
    scores = rows.scores.copy()
    scores[np.flatnonzero(rows.segments == TARGET)[::3]] = np.nan
    return replace(rows, scores=scores, spoiled=(TARGET,))


def scaled(scale, shift=0.0):
    def change(rows):
        return replace(rows, scores=scale * rows.scores + shift, scale=scale, shift=shift)

    change.__name__ = f"scaled_{scale:g}_{shift:g}"
    return change


def mirrored(rows):
    """Scores with the other sign, of the other class."""
    return replace(rows, scores=-rows.scores, labels=1 - rows.labels, scale=-1.0)


def repeated(rows):
    """Each row as often as its weight says."""
    times = rows.weights.astype(int)
    return unweighted(rows.where(np.repeat(np.arange(len(times)), times)))


def with_ballast(rows):
    """Rows of weight 0 besides: some far out, some tied, and an id that has no others."""
    rng = np.random.default_rng(2)
    taken = rng.integers(0, len(rows.scores), 60)
    extra = replace(rows.where(taken), weights=np.zeros(60), origin=np.full(60, -1))
    extra = replace(extra, scores=np.where(rng.random(60) < 0.3, 1e6, extra.scores))
    columns = ("scores", "labels", "segments", "weights", "origin")
    joined = {name: np.concatenate([getattr(rows, name), getattr(extra, name)]) for name in columns}
    return replace(rows, **joined)


def single(rows):
    """In float32, in which the scores are the same to seven digits."""
    return replace(rows, scores=rows.scores.astype(np.float32))
