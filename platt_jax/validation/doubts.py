"""Warnings for rows that are valid, but probably not as meant."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Minimum number of scores for a warning about probabilities; also how many are checked first.
FEW = 100


def doubtful_shape(shape: tuple[int, ...], are_one_hot: Callable[[], bool]) -> str | None:
    """A warning if a shape (..., N) suggests that rows were taken for problems, else None.

    `are_one_hot` says whether each problem has one positive row, and other rows.
    """
    *batch, rows = shape
    problems = math.prod(batch)
    if problems > 1 and rows == 1:
        return (
            f"scores: shape {shape} is {problems:,} problems of one row each; "
            "for one problem of all rows pass scores.ravel() and labels.ravel(), or table columns"
        )
    if problems > rows > 2 and are_one_hot():
        return (
            f"scores: shape {shape} is {problems:,} problems of {rows} rows, and one row of "
            "each is positive; for a classifier of that many classes see fit_one_vs_rest"
        )
    return None


class UnitInterval(NamedTuple):
    """Counts that show whether scores look like probabilities. Non-finite scores are ignored."""

    # whether a score lies outside [0, 1]. The other counts are then not taken.
    outside: bool = False
    inside: int = 0  # the number of scores in [0, 1]
    between: bool = False  # whether a score is neither 0 nor 1. Votes are all 0 or 1.

    def with_more(self, other: "UnitInterval") -> "UnitInterval":
        """The counts of both sets of scores."""
        outside, between = self.outside or other.outside, self.between or other.between
        return UnitInterval(outside, self.inside + other.inside, between)

    @property
    def doubt(self) -> str | None:
        """A warning if there are many scores and they look like probabilities, else None."""
        if self.outside or not self.between or self.inside < FEW:
            return None
        return (
            "scores: all lie in [0, 1]. If they are probabilities p, fit and predict by their "
            "log-odds, platt_jax.logit(p): a sigmoid of p itself cannot even represent p"
        )


def in_unit_interval(scores: NDArray[Any]) -> UnitInterval:
    """Counts that show whether checked scores (..., N) look like probabilities."""
    # The first few scores usually show that they are none; the rest is then not read.
    first = scores[(0,) * (scores.ndim - 1)][:FEW]
    if _leaves_unit_interval(first) or _leaves_unit_interval(scores):
        return UnitInterval(outside=True)
    between = bool(((scores > 0) & (scores < 1)).any())
    return UnitInterval(False, int(np.count_nonzero(np.isfinite(scores))), between)


def probabilities_for_scores(scores: NDArray[Any]) -> str | None:
    """A warning if many checked scores (..., N) all lie in [0, 1], else None."""
    return in_unit_interval(scores).doubt if scores.shape[-1] >= FEW else None


def _leaves_unit_interval(x: NDArray[Any]) -> bool:
    """Whether a finite number lies outside [0, 1]."""
    # fmin and fmax ignore NaN, without an array as long as x.
    low, high = (end.reduce(x, axis=None) for end in (np.fmin, np.fmax))
    if np.isinf(low) or np.isinf(high):
        x = x[np.isfinite(x)]
        return bool(((x < 0) | (x > 1)).any())
    return bool(low < 0 or high > 1)


def one_hot(labels: NDArray[np.int8]) -> bool:
    """Whether each problem (..., N) has one positive row, and no row a bad label."""
    return _one_hot(labels[:FEW]) and _one_hot(labels)


def _one_hot(labels: NDArray[np.int8]) -> bool:
    return bool((labels.sum(axis=-1, dtype=np.int64) == 1).all() and labels.min() == 0)
