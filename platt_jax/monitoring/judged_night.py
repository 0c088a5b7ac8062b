"""From the rows of a night, wherever they lie, to the sums of their segments."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.execution.fitted_rows import have_no_rows, rows_of_classes
from platt_jax.execution.segment_rows import row_arrays
from platt_jax.monitoring.evidence import Night, terms_of
from platt_jax.monitoring.judging import Settings, has_no_rows, judge_night, read_night
from platt_jax.monitoring.judging_there import judge_night_there, rows_there
from platt_jax.population.device_segments import fetched
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
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
        given = rows_of_classes(calibrator, scores, labels, segments, offset=offset)
        if given.device is not None and reported is None:
            scores, labels, segments, offset = given, None, None, None
        else:
            pairs = row_arrays(given, "weights")
            (scores, labels, segments), offset = pairs[:3], pairs.offset
            reported = given.repeat_rows(reported)
    on_host = fetched(watched)
    there = rows_there(on_host, scores, labels, segments, offset, reported)
    if there is not None:
        return judge_night_there(on_host, there, settings, non_finite, caller)
    parts = read_night(scores, labels, segments, offset, reported)
    judged = [judge_night(watched, part, settings, non_finite, caller) for part in parts]
    keys, sums = zip(*judged, strict=True)
    return np.concatenate(keys), Night(*map(np.concatenate, zip(*sums, strict=True)))


def by_segment(calibrator: Any) -> SegmentCalibrator:
    """The calibrator of segments, which for a OneVsRestCalibrator are the classes."""
    if isinstance(calibrator, OneVsRestCalibrator):
        return calibrator.by_class
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    made: SegmentCalibrator = calibrator
    return made
