"""Segments whose rows are in arrays on an accelerator."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from platt_jax.backend import accelerators
from platt_jax.execution.caller import Caller
from platt_jax.execution.device_segments import DeviceSegmentRows
from platt_jax.execution.progress import Stage
from platt_jax.options import Options
from platt_jax.population.chunked import MIDDLE_HALF, SAMPLED_ROWS, ChunkedSegments
from platt_jax.population.segments import Coordinates
from platt_jax.results.fit import Fit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.solver.solution import ProblemInputs


class DeviceSegments(ChunkedSegments):
    """Rows grouped by segment on an accelerator; see `Segments` for the methods."""

    def __init__(self, rows: DeviceSegmentRows, caller: Caller) -> None:
        self._there = rows
        segment_rows: Any = rows  # all that the other methods use
        super().__init__(segment_rows, caller)

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        context = self._context(replace(options, non_finite="omit"), stage)
        return self._there.fit_as_one(given, context)

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`."""
        low, middle, high, deviation = self._there.quartiles(SAMPLED_ROWS)
        width = (high - low) / MIDDLE_HALF or deviation
        return Coordinates.from_center_and_width(middle, width, self.dtype)


def on_device(rows: DeviceSegmentRows, fit: Callable[[], SegmentCalibrator]) -> SegmentCalibrator:
    """The calibrator that a function returns, with fits as by `accelerators.results`."""
    with jax.default_device(rows.device):
        made = fit()
    sigmoid = made.fallback.A, made.fallback.B
    parts = made.fit, sigmoid, made.fallback_covariance
    each, sigmoid, covariance = accelerators.results(parts, rows.dtype, rows.device)
    return replace(made, fit=each, fallback=Sigmoid(*sigmoid), fallback_covariance=covariance)
