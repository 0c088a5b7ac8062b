"""Segments whose rows are in arrays on an accelerator."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from platt_jax import validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.execution.run import run_there
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.options import Options
from platt_jax.passes import shapes
from platt_jax.population.chunked import MIDDLE_HALF, SAMPLED_ROWS, ChunkedSegments
from platt_jax.population.places import is_there
from platt_jax.population.segments import Coordinates, finite
from platt_jax.results.fit import Fit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.solver.solution import ProblemInputs

if TYPE_CHECKING:
    from platt_jax.population.quadrature import Grid, Nodes


class DeviceSegments(ChunkedSegments):
    """Rows grouped by segment on an accelerator; see `Segments` for the methods."""

    _rows: Any  # `SegmentRows` with the methods of `DeviceGroupedRows`

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        context = self._context(replace(options, non_finite="omit"), stage)
        return self._rows.fit_as_one(given, context)

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`."""
        low, middle, high, deviation = self._rows.quartiles(SAMPLED_ROWS)
        width = (high - low) / MIDDLE_HALF or deviation
        return Coordinates.from_center_and_width(middle, width, self.dtype)

    def node_losses_there(
        self, grid: "Grid", nodes: "Nodes", options: Options, stage: Stage
    ) -> jax.Array:
        """See `Segments`."""
        problems, length = self._rows.problems, len(nodes.posterior.mean_A)
        if problems.sizes.max() > shapes.sizes().problem_rows:
            return super().node_losses_there(grid, nodes, options, stage)
        blocks = run_there(grid.losses, problems, nodes, self._context(options, stage))
        all_losses = _added(length, len(grid.z), self.dtype)
        for places, losses in blocks:
            all_losses = _with(all_losses, places, losses)
        return all_losses


def _added(length: int, nodes: int, dtype: np.dtype[Any]) -> jax.Array:
    """The losses (length, nodes) of segments added."""
    losses: jax.Array = run_programs(lambda: jnp.full((length, nodes), np.nan, dtype), x64=True)
    return losses


@xla.jit
def _with(whole: jax.Array, places: jax.Array, losses: jax.Array) -> jax.Array:
    """The losses with some segments' put in their places; those behind all are left out."""
    block = finite(losses.reshape(len(places), -1))
    return whole.at[places].set(block, mode="drop")


def segments_of(rows: SegmentRows, caller: Caller, mesh: Mesh | None = None) -> ChunkedSegments:
    """The segments of rows on the host or on a device; a mesh from `devices.checked`.

    Raises:
        ValueError: there is a mesh beside rows on a device.
    """
    if rows.device is None:
        return ChunkedSegments(rows, caller, mesh)
    validation.no_mesh(mesh)
    return DeviceSegments(rows, caller)


def where_rows_are(rows: SegmentRows, fit: Callable[[], SegmentCalibrator]) -> SegmentCalibrator:
    """The calibrator that a function returns.

    If rows are on a device, programs run there, and fits are as by `accelerators.results`.
    """
    if rows.device is None:
        return fit()
    with jax.default_device(rows.device):
        calibrator = fit()
    dtype = np.result_type(rows.dtype, calibrator.fit.A.dtype)
    return _with_fits(calibrator, lambda fits: accelerators.results(fits, dtype, rows.device))


def fetched(calibrator: SegmentCalibrator) -> SegmentCalibrator:
    """The calibrator with its fits on the host; the same one if they are there, as curves are."""
    if calibrator.curves is not None:
        return calibrator
    parts = calibrator.fit, calibrator.fallback, calibrator.fallback_covariance
    return _with_fits(calibrator, jax.device_get) if is_there(parts) else calibrator


def _with_fits(calibrator: SegmentCalibrator, function: Callable[[Any], Any]) -> SegmentCalibrator:
    """The calibrator whose arrays of fits a function has made from the old ones."""
    sigmoid = calibrator.fallback.A, calibrator.fallback.B
    parts = calibrator.fit, sigmoid, calibrator.fallback_covariance
    fit, sigmoid, covariance = function(parts)
    fallback = Sigmoid(*sigmoid)
    return replace(calibrator, fit=fit, fallback=fallback, fallback_covariance=covariance)
