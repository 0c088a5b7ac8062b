"""Warnings for rows that are valid, but probably not as meant."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Minimum number of scores for a warning about probabilities; also how many are checked first.
FEW = 100
# Most by which rounded probabilities of classes add up to another number than 1.
_ROUNDED = 0.02


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


def no_shares(proba: NDArray[Any]) -> str | None:
    """A warning if probabilities of classes (..., N, C) do not add up to 1 by row, else None."""
    gap = np.nansum(np.abs(proba.sum(axis=-1, dtype=np.float64) - 1)) / proba[..., 0].size
    if gap <= _ROUNDED:
        return None
    return (
        f"proba: rows add up to numbers that differ from 1 by {gap:.2g} on average; divide them by "
        "their sums, as predict_proba does with normalize=True"
    )


def probabilities_for_logits(logits: NDArray[Any]) -> str | None:
    """A warning if all rows (N, C) of logits are shares that add up to 1, else None."""
    if logits.ndim != 2 or _leaves_unit_interval(logits[:FEW]) or _leaves_unit_interval(logits):
        return None
    gaps = np.abs(logits.sum(axis=1, dtype=np.float64) - 1)
    if not np.fmax.reduce(gaps) < _ROUNDED or not ((logits > 0) & (logits < 1)).any():
        return None
    return (
        "logits: each row lies in [0, 1] and adds up to 1. If these are probabilities p, fit and "
        "predict by their logarithms, numpy.log(p): a softmax of p itself cannot even represent p"
    )


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


def _may_be_in_unit_interval(scores: NDArray[Any]) -> bool:
    """Whether the first, the middle and the last are in [0, 1], which costs less than all."""
    score = scores.item
    return 0 <= score(0) <= 1 and 0 <= score(scores.size // 2) <= 1 and 0 <= score(-1) <= 1


class FittedScores(NamedTuple):
    """What the inverse of the covariance of (A, B) tells of the fitted scores f.

    It has the sums of p (1 - p) times f^2, f and 1 over the fitted rows.
    """

    square: float  # mean of (f - 1/2)^2, at most 1/4 for probabilities f; NaN if not known
    variance: float  # mean of p (1 - p), of which log-odds in their place have less than half

    @classmethod
    def of(cls, covariance: Any, rows: Any) -> "FittedScores":
        """Of one fit, given its covariance (2, 2) and its numbers of rows."""
        (AA, AB), (_, BB) = np.asarray(covariance, float).tolist()  # whose overflow is silent
        determinant, number = AA * BB - AB * AB, float(np.sum(rows))
        if not (determinant > 0 and number >= FEW):
            return cls(math.nan, math.nan)
        variance = AA / determinant / number
        if variance > 0.26:  # p (1 - p) is at most 1/4: the covariance has a prior in it
            return cls(math.nan, math.nan)
        return cls((BB + AB) / AA + 1 / 4, variance)

    def unlike(self, scores: NDArray[Any], proba: NDArray[Any]) -> str | None:
        """A warning if scores (N,) are in [0, 1] and those of the fit were not, or the reverse."""
        maybe = self.square > 1 / 2 and _may_be_in_unit_interval(scores)
        if maybe and in_unit_interval(scores).doubt:
            return (
                "scores: all lie in [0, 1], and those of the fit did not. If log-odds were fitted "
                "and these are probabilities p, pass platt_jax.logit(p)"
            )
        if (
            self.square < 1 / 4
            and np.mean((scores < 0) | (scores > 1)) > 1 / 2
            and np.mean(proba * (1 - proba)) < self.variance / 2
        ):
            return (
                "scores: most lie outside [0, 1], and those of the fit did not. If probabilities "
                "were fitted, pass probabilities; better fit and pass their log-odds, "
                "platt_jax.logit(p)"
            )
        return None
