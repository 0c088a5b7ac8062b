"""From the rows of a night, wherever they lie, to the sums of their segments.

Of rows on a GPU what a monitor adds up by segment is computed there.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.execution.fitted_rows import have_no_rows, rows_of_classes
from platt_jax.execution.predicted_rows import are_there, with_predictions
from platt_jax.execution.row_sums import SumTerms, row_sums
from platt_jax.execution.segment_rows import SegmentRows, row_arrays, segment_rows
from platt_jax.model.objective import Row
from platt_jax.monitoring.evidence import (
    JudgedRows,
    Night,
    night_of_sums,
    rounded_terms,
    shocks_of,
    terms_of,
)
from platt_jax.monitoring.judging import (
    FARTHEST,
    LEAST,
    STANDARD_ERRORS,
    WIDEST,
    Settings,
    before_night,
    curves_at,
    has_no_rows,
    judge_night,
    read_night,
    shares,
    tell_left_out,
)
from platt_jax.population.device_segments import fetched
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator


def judged_night(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    settings: Settings,
    scores: Any,
    labels: Any,
    segments: Any,
    offset: Any,
    reported: Any,
    non_finite: Literal["omit", "raise"],
) -> tuple[NDArray[Any], Night]:
    """The segments (S,) of rows as for `Monitor.update`, and their sums."""
    validation.require_one_of(non_finite, ("omit", "raise"), "non_finite")
    watched, caller = by_segment(calibrator), Caller()
    classes = isinstance(calibrator, OneVsRestCalibrator)
    none = have_no_rows(scores, labels) if classes else has_no_rows(scores, labels, segments)
    if none:
        return watched.keys[:0], Night.without_rows(0, terms_of(settings.shocks))
    if isinstance(calibrator, OneVsRestCalibrator):
        class_rows = rows_of_classes(calibrator, scores, labels, segments, offset=offset)
        if class_rows.device is not None and reported is None:
            scores, labels, segments, offset = class_rows, None, None, None
        else:
            pairs = row_arrays(class_rows, "weights")
            (scores, labels, segments), offset = pairs[:3], pairs.offset
            reported = class_rows.repeat_rows(reported)
    on_host = fetched(watched)
    device_rows = _rows_there(on_host, scores, labels, segments, offset, reported)
    if device_rows is not None:
        return _judge_night_there(on_host, device_rows, settings, non_finite, caller)
    parts = read_night(scores, labels, segments, offset, reported)
    judged = [judge_night(watched, part, settings, non_finite, caller) for part in parts]
    keys, sums = zip(*judged, strict=True)
    return np.concatenate(keys), Night(*map(np.concatenate, zip(*sums, strict=True)))


def by_segment(calibrator: Any) -> SegmentCalibrator:
    """The calibrator of segments, which for a OneVsRestCalibrator are the classes."""
    if isinstance(calibrator, OneVsRestCalibrator):
        return calibrator.by_class
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    result: SegmentCalibrator = calibrator
    return result


def _rows_there(
    calibrator: SegmentCalibrator,
    scores: Column | SegmentRows,
    labels: Column,
    segments: Column,
    offset: Column,
    reported: Column,
) -> SegmentRows | None:
    """The rows of a night if they are on a device, and the calibrator can predict them there.

    Shares take the place of weights, as on the host.
    """
    if not are_there(calibrator, scores):
        return None
    share = None if reported is None else shares(reported, scores)
    if not isinstance(scores, SegmentRows):
        validation.require_each(scores, labels=labels, segments=segments)
    rows: Any = segment_rows(scores, labels, segments, share, offset=offset)
    if reported is None:
        rows.require_without("weights")
    result: SegmentRows = rows
    return result


def _judge_night_there(
    calibrator: SegmentCalibrator,
    rows: SegmentRows,
    settings: Settings,
    non_finite: Literal["omit", "raise"],
    caller: Caller,
) -> tuple[NDArray[Any], Night]:
    """`judge_night` for rows on a device."""
    order = rows.largest_first
    averaged = calibrator.predictive() is not None
    curves = before_night(calibrator, rows.keys, settings.against)
    covariance = np.zeros((3, len(rows.keys))) if curves.covariance is None else curves.covariance
    numbers = (
        *curves_at(calibrator, curves.place),
        *covariance,
        curves.pivot,
        curves.usable.astype(float),
        np.full(len(rows.keys), settings.margin),
    )
    terms = _night_terms(settings.night_sd, averaged)
    with jax.default_device(rows.device):
        predicted = with_predictions(rows, calibrator) if averaged else rows
        *sums, left_out = row_sums(predicted.problems, terms, numbers, caller)
    tell_left_out(rows.keys[order], left_out[order], curves.usable[order], non_finite, caller)
    night = night_of_sums(np.stack(sums, 1)[order].astype(np.int64), settings.shocks)
    has_rows = night.rows > 0
    return rows.keys[order][has_rows], night.of(has_rows)


@cache
def _night_terms(night_sd: float, averaged: bool) -> SumTerms:
    """What is added up of each row, and last whether it is left out as not finite.

    If predictions are averages over a population, rows have them as by `with_predictions`.
    """
    shared = shocks_of(night_sd)

    def function(row: Row, finite: Any, numbers: Any) -> Sequence[Any]:
        A, B, c_AA, c_AB, c_BB, pivot, usable, margin = numbers
        if averaged:
            proba: Any = jnp.clip(row.offset, LEAST, 1 - LEAST)
            log_odds = jnp.log(proba) - jnp.log1p(-proba)
        else:
            log_odds = -(A * row.f + B)
            if row.offset is not None:
                log_odds += row.offset
        finite &= jnp.isfinite(log_odds)
        judged = finite & (usable > 0)
        variance = variance_of_logit(row.f, c_AA, c_AB, c_BB)
        margin = jnp.minimum(margin + STANDARD_ERRORS * jnp.sqrt(jnp.maximum(variance, 0)), WIDEST)
        columns: Any = (
            jnp.where(judged, jnp.clip(log_odds, -FARTHEST, FARTHEST), 0),
            jnp.where(judged, margin, 0),
            row.y,
            ...,
            pivot,
            None if isinstance(row.weight, int) else row.weight,
        )
        rows = JudgedRows(*columns)
        terms = [jnp.where(judged, x, 0) for x in rounded_terms(rows, shared)]
        return [*terms, (~finite).astype(np.float64)]

    return SumTerms(function, terms_of(shared) + len(Night._fields))
