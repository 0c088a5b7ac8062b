"""Rows of segments on a device, with what a calibrator predicts for them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import DeviceSegmentRows, SegmentRows
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.passes.columns import Columns
from platt_jax.results.averages import mean_where_rows_are
from platt_jax.results.probabilities import expit, log_odds, normal_parameters
from platt_jax.results.segment_calibrator import SegmentCalibrator, parameters


def are_there(calibrator: SegmentCalibrator, scores: Column) -> bool:
    """Whether scores or `SegmentRows` are on a device, where the calibrator can predict them."""
    is_rows = isinstance(scores, SegmentRows)
    on_device = scores.device is not None if is_rows else accelerators.holds(scores)
    return on_device and calibrator.curves is None


def unlabelled_rows(
    scores: Column,
    segments: Column,
    name: str = "scores",
    segments_name: str = "segments",
    without: Sequence[str] = ("weights", "offset"),
    weights: Column = None,
) -> SegmentRows:
    """Rows on a device whose labels are not used; one id may serve all."""
    if isinstance(scores, SegmentRows):
        validation.require_none_beside(scores, **{segments_name: segments, "weights": weights})
        rows: Any = scores
        rows.require_without(*without)
        return scores
    validation.require_each(scores, name, **{segments_name: segments})
    validation.require_flat(scores, name)
    is_scalar = not accelerators.holds(segments) and np.ndim(segments) == 0
    row_segments = np.full(len(scores), segments) if is_scalar else segments
    return DeviceSegmentRows(scores, False, row_segments, weights, doubt=False)


def with_predictions(rows: SegmentRows, calibrator: SegmentCalibrator) -> Any:
    """The rows with `predict_proba` in place of their offset, in float64.

    A score is NaN where a label is bad or the offset is not finite.
    """
    device_rows: Any = rows
    return device_rows.with_columns(_predicted, *parameters_of(rows, calibrator).T)


def parameters_of(rows: SegmentRows, calibrator: SegmentCalibrator) -> NDArray[np.float64]:
    """(K, P) as by `parameters`, of the segments of the rows in the order of the layout."""
    positions = places(rows, calibrator)
    curves = parameters(calibrator)[positions]
    if calibrator.by_level is not None and (unseen := positions < 0).any():
        keys = rows.keys[rows.largest_first]
        curves[unseen] = normal_parameters(*calibrator.by_level.curves(keys[unseen]))
    return curves


def places(rows: SegmentRows, calibrator: SegmentCalibrator) -> NDArray[Any]:
    """(K,) places among the calibrator's segments, -1 for others, in the order of the layout."""
    keys = rows.keys[rows.largest_first]
    positions: NDArray[Any] = get_indexer(calibrator.keys, split_columns(keys), "segments")
    return positions


def _predicted(rows: Columns, numbers: list[jax.Array]) -> Columns:
    f, offset = rows.scores, 0.0 if rows.offset is None else rows.offset
    if len(numbers) > 2:
        normal = jnp.stack(numbers, -1).at[:, 1].add(-offset)
        proba = mean_where_rows_are(f, normal)
    else:
        A, B = numbers
        proba = expit(log_odds(A, f, B) + offset)
    return Columns(jnp.where(jnp.isfinite(offset), f, np.nan), rows.labels, rows.weights, proba)
