"""Rows that were fitted, given again, as columns that were checked."""

from typing import Any

from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.execution.classes import classes_of
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import SegmentCalibrator


def fitted_columns(
    calibrator: Any,
    scores: NDArray[Any],
    labels: Column,
    segments: Column,
    weights: Column,
    offset: Column,
) -> Columns:
    """The columns of rows: (..., N) for a Fit, (N,) for segments, (C, N) for classes.

    Args:
        calibrator: a Fit, SegmentCalibrator or OneVsRestCalibrator.
        scores: from `validation.scores`.
        labels: the labels that were fitted.
        segments: only looked at: None unless the calibrator is of segments.
        weights: the weights that were fitted, or None.
        offset: the offset that was fitted, or None.

    Raises:
        ValueError: the calibrator is something else, or the rows are not such.
    """
    if not isinstance(calibrator, Fit | SegmentCalibrator | OneVsRestCalibrator):
        raise ValueError(f"calibrator: expected a fit, got {type(calibrator).__name__}")
    if isinstance(calibrator, SegmentCalibrator):
        validation.require_flat(scores, "scores")
    elif segments is not None:
        raise ValueError(f"segments: expected None for a {type(calibrator).__name__}")
    if isinstance(calibrator, OneVsRestCalibrator):
        return _class_rows(calibrator, scores, labels, weights, offset)
    labels, weights = validation.labels_and_weights(labels, weights, scores)
    return Columns(scores, labels, weights, validation.offset(offset, scores))


def _class_rows(
    calibrator: OneVsRestCalibrator,
    scores: NDArray[Any],
    labels: Column,
    weights: Column,
    offset: Column,
) -> Columns:
    number = len(calibrator.classes)
    if scores.ndim != 2 or scores.shape[1] != number:
        raise ValueError(f"scores: expected shape (N, {number}), got {scores.shape}")
    is_class = classes_of(calibrator.classes, labels, scores.shape).is_class
    row_weights = validation.weights(weights, scores.dtype)
    weights = validation.broadcast(row_weights, scores.shape[:1], "weights")
    offset = validation.offset(offset, scores)
    by_class = is_class(slice(None), slice(None))
    return Columns(scores.T, by_class, weights, None if offset is None else offset.T)
