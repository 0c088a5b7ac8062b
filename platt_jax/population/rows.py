"""What a population needs of the rows of its segments, wherever these lie."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.execution.run import fit_on_host, fit_problems, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import Standardization, range_standardization
from platt_jax.model.statistics import Moments
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given
from platt_jax.threads import run_programs

Start: TypeAlias = tuple[Any, Any] | None  # (A, B) of each segment, (K,)

_SAMPLED_ROWS = 100_000
_MIDDLE_HALF = 1.349  # the width of that of N(0, 1)


class Coordinates(NamedTuple):
    """(score - center) * scale: the coordinates in which a population is described."""

    center: float
    scale: float

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(2, 2), which takes (A, B) to these coordinates."""
        return np.array([[1 / self.scale, 0], [self.center, 1]])


class PopulationRows(Protocol):
    """The rows of K segments."""

    @property
    def number(self) -> int:
        """K."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the scores."""

    def coordinates(self, options: Options) -> Coordinates:
        """Those in which the scores are about as wide as N(0, 1); a few outliers do not matter."""

    def fit(self, prior: GaussianPrior, start: Start, options: Options, told: Stage) -> Fit:
        """The fit of each segment; the prior's arrays and the start's lead with (K,)."""

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, told: Stage) -> NDArray[Any]:
        """(K, J): the loss of each segment at each of its nodes; NaN if a row is not finite."""


class ChunkedSegments(NamedTuple):
    """`PopulationRows` that lie by segment, and go through the compiled program in chunks."""

    rows: SegmentRows
    caller: Caller
    over: Mesh | None = None  # as of `run_problems`

    @property
    def number(self) -> int:
        """See `PopulationRows`."""
        return len(self.rows.keys)

    @property
    def dtype(self) -> np.dtype[Any]:
        """See `PopulationRows`."""
        dtype: np.dtype[Any] = self.rows.dtype
        return dtype

    def coordinates(self, options: Options) -> Coordinates:
        """See `PopulationRows`."""
        scores = self.rows.sampled_scores(_SAMPLED_ROWS)
        scores = scores[np.isfinite(scores)].astype(float)
        low: Any
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        width = (high - low) / _MIDDLE_HALF or np.std(scores)
        return Coordinates(float(middle), float(1 / width))

    def fit(self, prior: GaussianPrior, start: Start, options: Options, told: Stage) -> Fit:
        """See `PopulationRows`."""
        given = self._by_size(Given(prior, start))
        fit: Fit = fit_problems(*self._from(given, options, told), **self._how())
        return fit

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, told: Stage) -> NDArray[Any]:
        """See `PopulationRows`."""
        given = self._by_size(nodes)
        losses: NDArray[Any] = run_problems(
            grid.losses, *self._from(given, options, told), **self._how()
        )
        return losses

    def _by_size(self, given: Any) -> Any:
        return jax.tree.map(lambda x: x[self.rows.largest_first], given)

    def _from(self, given: Any, options: Options, told: Stage) -> tuple[Any, ...]:
        rows = self.rows
        return rows.sizes, rows.take, rows.dtype, given, options, told, self.caller

    def _how(self) -> dict[str, Any]:
        return {"order": self.rows.largest_first, "reread": self.rows.reread, "over": self.over}


class SummedSegments(NamedTuple):
    """`PopulationRows` of which every pass brings the sums of all segments to the host."""

    rows: Rows
    number: int
    dtype: np.dtype[Any]

    def coordinates(self, options: Options) -> Coordinates:
        """See `PopulationRows`; by the mean and the variance of each segment's scores."""
        standardization, moments = self._run(lambda: self._moments(options))
        total, first, second, _ = (x + y for x, y in zip(*moments, strict=True))
        some = total > 0
        total, first, second = total[some], first[some] / total[some], second[some] / total[some]
        center, unit = standardization.center[some], 1 / standardization.scale[some]
        mean, deviation = (
            center + first * unit,
            np.sqrt(np.maximum(second - first * first, 0)) * unit,
        )
        middle = _median(mean, total)
        width = np.hypot(deviation, mean - middle)
        return Coordinates(middle, float(1 / (_median(width, total) or width.max())))

    def _moments(self, options: Options) -> tuple[Standardization, tuple[Moments, Moments]]:
        standardization = range_standardization(self.rows.score_ranges(options))
        return standardization, self.rows.mask_nonfinite(options).moments(standardization)

    def fit(self, prior: GaussianPrior, start: Start, options: Options, told: Stage) -> Fit:
        """See `PopulationRows`."""
        options = options.with_tol(self.dtype)
        fit: Fit = self._run(lambda: fit_on_host(self.rows, Given(prior, start), options))
        return fit

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, told: Stage) -> NDArray[Any]:
        """See `PopulationRows`."""
        losses: NDArray[Any] = self._run(lambda: self._node_losses(grid, nodes, options))
        return losses

    def _node_losses(self, grid: Grid, nodes: Nodes, options: Options) -> NDArray[Any]:
        losses = grid.losses.of_blocks(self.rows, nodes, options)
        bad = self.rows.score_ranges(options).bad
        return np.where(bad[:, None], np.nan, losses)

    def _run(self, function: Callable[[], Any]) -> Any:
        made = run_programs(function, x64=self.dtype == np.float64)
        return jax.tree.map(np.asarray, made)


def _median(x: NDArray[Any], weights: NDArray[Any]) -> float:
    return float(np.quantile(x, 0.5, weights=weights, method="inverted_cdf"))
