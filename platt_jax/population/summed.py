"""Segments whose sums every pass brings to the host: rows in an engine or in several processes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.backend.threads import run_programs
from platt_jax.execution.oversized import fit_on_host
from platt_jax.execution.progress import Stage, reporting_passes
from platt_jax.model.standardization import Standardization, range_standardization
from platt_jax.model.statistics import Moments
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.population.segments import Coordinates, Segments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs


class SummedSegments(Segments):
    """Implements `Segments`, except `pooled`, for rows of the segments as K problems."""

    def __init__(
        self,
        keys: NDArray[Any],
        dtype: np.dtype[Any],
        rows: Rows,
        sizes: Integers,
        has_offset: bool,
    ) -> None:
        self._keys, self._dtype, self._rows, self._sizes = keys, dtype, rows, sizes
        self.has_offset = has_offset

    @property
    def keys(self) -> NDArray[Any]:
        """See `Segments`."""
        return self._keys

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `Segments`."""
        return self._dtype

    def fit(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        return self.fit_rows(self._rows, self._sizes, given, options, stage)

    def fit_rows(
        self,
        rows: Rows,
        sizes: Integers,
        given: ProblemInputs,
        options: Options,
        stage: Stage,
        loss: bool = True,
    ) -> Fit:
        """The fits of problems with these rows and sizes."""
        options = options.with_tol(self._dtype)
        with reporting_passes(sizes, stage) as report:
            fit: Fit = self._run(lambda: fit_on_host(rows, given, options, loss, report))
        return fit

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`. Uses the mean and the variance of each segment's scores."""
        standardization, moments = self._run(lambda: self._moments(options))
        sums: Any = jax.tree.map(np.add, *moments)
        total, first, second = sums[:3]
        mask = total > 0
        total, first, second = total[mask], first[mask] / total[mask], second[mask] / total[mask]
        center, unit = standardization.center[mask], 1 / standardization.scale[mask]
        mean, deviation = (
            center + first * unit,
            np.sqrt(np.maximum(second - first * first, 0)) * unit,
        )
        middle = _median(mean, total)
        width = np.hypot(deviation, mean - middle)
        return Coordinates.from_center_and_width(
            middle, _median(width, total) or float(width.max()), self._dtype
        )

    def _moments(self, options: Options) -> tuple[Standardization, tuple[Moments, Moments]]:
        standardization = range_standardization(self._rows.score_ranges(options))
        return standardization, self._rows.mask_nonfinite(options).moments(standardization)

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """See `Segments`. Takes a pass for each node."""
        with reporting_passes(self._sizes, stage):
            losses: NDArray[Any] = self._run(lambda: self._node_losses(grid, nodes, options))
        return losses

    def _node_losses(self, grid: Grid, nodes: Nodes, options: Options) -> NDArray[Any]:
        losses = grid.losses.on_host(self._rows, nodes, options)
        bad = self._rows.score_ranges(options).bad
        return np.where(bad[:, None], np.nan, losses)

    def _run(self, function: Callable[[], Any]) -> Any:
        result = run_programs(function, x64=self._dtype == np.float64)
        return jax.tree.map(np.asarray, result)


def _median(x: NDArray[Any], weights: NDArray[Any]) -> float:
    return float(np.quantile(x, 0.5, weights=weights, method="inverted_cdf"))
