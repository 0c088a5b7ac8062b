"""Rows that were fitted, given again, as columns that were checked."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column, require_class_order
from platt_jax.execution.class_rows import ClassRows, class_rows
from platt_jax.execution.given import given_columns
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit, named_with_part
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_sigmoids


def fitted_columns(
    calibrator: Any,
    scores: NDArray[Any],
    labels: Column,
    segments: Column,
    weights: Column,
    offset: Column,
) -> Columns:
    """The columns of rows that were fitted: (..., N) for a Fit, (N,) for segments.

    Scores come from `validation.scores`, all else from the user. Segments are only looked at.
    """
    require_fitted(calibrator, scores, segments)
    return given_columns(scores, labels, weights, offset)


def require_fitted(calibrator: Any, scores: Any, segments: Column) -> None:
    """Refuses all but a Fit or a SegmentCalibrator, with segments for the latter alone."""
    if not isinstance(calibrator, Fit | SegmentCalibrator):
        raise ValueError(f"calibrator: expected a fit, got {named_with_part(calibrator)}")
    require_sigmoids(calibrator, "calibrator")
    if isinstance(calibrator, SegmentCalibrator):
        validation.require_each(scores, segments=segments)
        validation.require_flat(scores, "scores")
    elif segments is not None:
        raise ValueError(f"segments: expected None for a {type(calibrator).__name__}")


def require_unshifted(calibrator: SegmentCalibrator) -> None:
    """Refuses a calibrator after `shift_prior`, which is not the fit of its rows."""
    if calibrator.shift is not None:
        raise ValueError("calibrator: expected one as fitted, got one after shift_prior")


def flat_fit(fit: Fit) -> Fit:
    """The fits (K,) of a batch (...), as NumPy arrays."""
    axes = np.ndim(fit.A)
    flat: Fit = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *np.shape(x)[axes:]), fit)
    return flat


def fit_of_all(fit: Fit) -> Fit:
    """The fit that all segments share, as one problem."""
    shared: Fit = jax.tree.map(lambda x: np.asarray(x)[:1], fit)
    return replace(shared, n_pos=np.nansum(fit.n_pos)[None], n_neg=np.nansum(fit.n_neg)[None])


def require_fitted_counts(fit: Fit, row_counts: Iterable[Any]) -> None:
    """Refuses rows with other numbers (K,) of positive and negative ones than the fitted rows."""
    for name, counts in zip(("n_pos", "n_neg"), row_counts, strict=True):
        fitted = np.asarray(getattr(fit, name))
        tolerance = float(np.sqrt(np.finfo(fitted.dtype).eps))
        equal = np.isclose(counts, fitted, rtol=tolerance, atol=0, equal_nan=True)
        if not equal.all():
            i = np.argmin(equal)
            raise ValueError(
                f"scores, labels, weights: expected the rows that were fitted, with {name} = "
                f"{fitted[i]:g}, got {name} = {counts[i]:g}"
            )


def rows_of_classes(
    calibrator: OneVsRestCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    weights: Column = None,
    offset: Column = None,
) -> ClassRows:
    """The rows beside a calibrator of classes; refuses rows of other classes, and segments."""
    if segments is not None:
        raise ValueError(f"segments: expected None for a {type(calibrator).__name__}")
    if isinstance(scores, ClassRows):
        rows = class_rows(scores, labels, None, weights, offset=offset)
        if rows.classes.tolist() != calibrator.classes.tolist():
            raise ValueError("scores: expected ClassRows of the calibrator's classes, got others")
        return rows
    validation.require_each(scores, labels=labels)
    number = len(calibrator.classes)
    require_class_order(scores, calibrator.classes, "scores")
    on_device = accelerators.holds(scores)
    scores = accelerators.taken(scores) if on_device else validation.scores_to_fit(scores)
    if scores.ndim != 2 or scores.shape[1] != number:
        raise ValueError(
            f"scores: expected shape (N, {number}), a column per class, got {scores.shape}"
        )
    return class_rows(scores, labels, calibrator.classes, weights, offset=offset)


def have_no_rows(scores: Column, labels: Column) -> bool:
    """Whether there are no rows for a calibrator of classes: an engine's partition may be empty."""
    return np.shape(scores)[:1] == np.shape(labels)[:1] == (0,)
