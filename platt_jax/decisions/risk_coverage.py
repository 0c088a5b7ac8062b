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
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.columns import Column
from platt_jax.decisions.accepted import KnownRows, known_rows, tails
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.results.probabilities import expit
from platt_jax.results.segment_calibrator import SegmentCalibrator


class RiskCoverage(NamedTuple):
    """N rows in the order in which they are accepted."""

    share: Floats  # (N,) of the rows that is accepted with this one
    precision: Floats  # (N,) expected of these
    lower: Floats  # (N,) its bound
    right: Ints  # (N,) how many of these are right


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
    calibrator: SegmentCalibrator, scores: Column, labels: Column, segments: Column
) -> KnownLabels:
    """The rows (N,) of segments.

    Raises:
        ValueError: as by `gate`; or there is not one label for each row.
    """
    if isinstance(scores, SegmentRows):
        given = row_arrays(scores, "weights", "offset", labels=labels, segments=segments)
        scores, labels, segments = given.scores, given.labels, given.segments
    keys, known = known_rows(calibrator, scores, segments, None)
    y = validation.labels(validation.array(labels, "labels"))
    if y.shape != known.scores.shape:
        raise ValueError(f"labels: expected one per row, {known.scores.shape}, got {y.shape}")
    if (y == validation.BAD_LABEL).any():
        raise ValueError("labels: expected a label of each row, got NaN")
    return KnownLabels(keys, known, (y > 0)[known.place])


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
    here = np.flatnonzero(groups.by_row(some))[::-1]
    order = here[np.argsort(-proba[here], kind="stable")]
    number = np.arange(1, len(order) + 1)
    expected, m, error = (
        np.cumsum(x[order]) / number for x in (known.proba, known.mode, np.nan_to_num(more))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = expit(np.log(m) - np.log1p(-m) - quantile * np.maximum(error, 0) / (m * (1 - m)))
    lower = np.minimum(np.where(m < 1, bound, 1.0), expected)
    return RiskCoverage(number / len(order), expected, lower, np.cumsum(rows.right[order]))
