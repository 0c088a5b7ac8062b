"""How many of the accepted rows are right, by the share that is accepted: expected and seen.

The rows of several segments are accepted together by their probabilities: the rows of each segment
from some score on. Their precision is a mean over segments. However the errors of the segments'
curves depend on each other, the mean's standard error is at most the mean of the standard errors.
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.decisions.accepted import KnownRows, known_rows, tails
from platt_jax.execution.fitted_rows import rows_of_classes
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import expit
from platt_jax.results.segment_calibrator import SegmentCalibrator

_ALL = 1 << 62  # more rows than there are


class RiskCoverage(NamedTuple):
    """N rows in the order in which they are accepted, all shares weighted."""

    share: Floats  # (N,) of the rows that is accepted with this one
    precision: Floats  # (N,) expected of these
    lower: Floats  # (N,) its bound
    right: Floats  # (N,) the share of these that is right
    worth: Floats  # (N,) how many rows of equal weights say as much (Kish 1965)


class KnownLabels(NamedTuple):
    """Rows with what is known of them, and their labels."""

    keys: NDArray[Any]  # (S,)
    known: KnownRows
    right: Bools  # (N,)

    @property
    def usable(self) -> Bools:
        """(S,) whether the curves of the segments say which rows to accept first."""
        return np.asarray(self.known.status == "OK")


def read_rows(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    weights: Column = None,
) -> KnownLabels:
    """The rows (N,) of segments, without rows of weight 0.

    Raises:
        ValueError: as by `gate`; or there is not one label for each row.
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        scores = rows_of_classes(calibrator, scores, labels, segments, weights)
        calibrator, labels, segments, weights = calibrator.by_class, None, None, None
    if isinstance(scores, SegmentRows):
        beside = dict(labels=labels, segments=segments, weights=weights)
        scores, labels, segments, weights, _ = row_arrays(scores, "offset", **beside)
    keys, (known,) = known_rows(calibrator, scores, segments, weights, lambda x: x, _ALL)
    y = validation.labels(validation.array(labels, "labels"))
    if y.shape != np.shape(scores):
        raise ValueError(f"labels: expected one per row, {np.shape(scores)}, got {y.shape}")
    y = y[known.place]
    if (y == validation.BAD_LABEL).any():
        raise ValueError("labels: expected a label of each row, got NaN")
    return KnownLabels(keys, known, y > 0)


def accepted_in_turn(rows: KnownLabels, some: Bools, level: float) -> RiskCoverage:
    """The curve of the rows of some segments (S,), all of them usable, with one-sided bounds."""
    known, groups, quantile = rows.known, rows.known.groups, NormalDist().inv_cdf(level)
    accepted = tails(known, quantile)
    # What a segment adds to the error when it accepts this row, too: the rows before it are next.
    error = accepted.error * accepted.weight
    last = groups.place == groups.by_row(groups.sizes) - 1
    more = error - np.where(last, 0.0, np.append(error[1:], 0.0))
    # A segment accepts rows in the order of their scores, also where a mean over curves falls.
    proba = np.concatenate(
        [np.maximum.accumulate(x) for x in np.split(known.proba, groups.starts[1:])]
    )
    indices = np.flatnonzero(groups.by_row(some))[::-1]
    order = indices[np.argsort(-proba[indices], kind="stable")]
    weight = known.weights[order]
    total = np.cumsum(weight)
    expected, m, right = (
        np.cumsum(weight * x[order]) / total for x in (known.proba, known.mode, rows.right)
    )
    error = np.cumsum(np.nan_to_num(more[order])) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = expit(np.log(m) - np.log1p(-m) - quantile * np.maximum(error, 0) / (m * (1 - m)))
    lower = np.minimum(np.where(m < 1, bound, 1.0), expected)
    relative = weight / weight.max(initial=0)  # whose squares neither overflow nor vanish
    worth = np.cumsum(relative) ** 2 / np.cumsum(relative**2)
    return RiskCoverage(total / total[-1], expected, lower, right, worth)
