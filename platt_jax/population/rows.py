"""What a population needs of the rows of its segments, wherever these lie."""

from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh

from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import Stage
from platt_jax.execution.run import fit_blocks, fit_problems, run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.prior import GaussianPrior
from platt_jax.model.standardization import range_standardization
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows
from platt_jax.population import quadrature
from platt_jax.population.quadrature import Nodes
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given
from platt_jax.threads import run_programs

_SAMPLED_ROWS = 100_000
_MIDDLE_HALF = 1.349  # the width of that of N(0, 1)


class Coordinates(NamedTuple):
    """(score - center) * scale: the coordinates in which a population is described."""

    center: float
    scale: float

    @property
    def matrix(self) -> np.ndarray:
        """(2, 2), which takes (A, B) to these coordinates."""
        return np.array([[1 / self.scale, 0], [self.center, 1]])


class PopulationRows(Protocol):
    """The rows of K segments."""

    @property
    def number(self) -> int:
        """K."""

    @property
    def dtype(self) -> np.dtype:
        """Of the scores."""

    def coordinates(self, options: Options) -> Coordinates:
        """Those in which the scores are about as wide as N(0, 1); a few outliers do not matter."""

    def fit(self, prior: GaussianPrior, start, options: Options, told: Stage) -> Fit:
        """The fit of each segment; the prior's arrays and the start's lead with (K,)."""

    def node_losses(self, nodes: Nodes, options: Options, told: Stage) -> np.ndarray:
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
    def dtype(self) -> np.dtype:
        """See `PopulationRows`."""
        return self.rows.dtype

    def coordinates(self, options: Options) -> Coordinates:
        """See `PopulationRows`."""
        scores = self.rows.sampled_scores(_SAMPLED_ROWS)
        scores = scores[np.isfinite(scores)].astype(float)
        low: Any
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        width = (high - low) / _MIDDLE_HALF or np.std(scores)
        return Coordinates(float(middle), float(1 / width))

    def fit(self, prior: GaussianPrior, start, options: Options, told: Stage) -> Fit:
        """See `PopulationRows`."""
        given = self._by_size(Given(prior, start))
        return fit_problems(*self._from(given, options, told), **self._how())

    def node_losses(self, nodes: Nodes, options: Options, told: Stage) -> np.ndarray:
        """See `PopulationRows`."""
        given = self._by_size(nodes)
        return run_problems(
            quadrature.NODE_LOSSES, *self._from(given, options, told), **self._how()
        )

    def _by_size(self, given):
        return jax.tree.map(lambda x: x[self.rows.largest_first], given)

    def _from(self, given, options, told):
        rows = self.rows
        return rows.sizes, rows.take, rows.dtype, given, options, told, self.caller

    def _how(self) -> dict[str, Any]:
        return {"order": self.rows.largest_first, "reread": self.rows.reread, "over": self.over}


class SummedSegments(NamedTuple):
    """`PopulationRows` of which every pass brings the sums of all segments to the host."""

    rows: Rows
    number: int
    dtype: np.dtype

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

    def _moments(self, options):
        standardization = range_standardization(self.rows.score_ranges(options))
        return standardization, self.rows.mask_nonfinite(options).moments(standardization)

    def fit(self, prior: GaussianPrior, start, options: Options, told: Stage) -> Fit:
        """See `PopulationRows`."""
        options = options.with_tol(self.dtype)
        return self._run(lambda: fit_blocks(self.rows, Given(prior, start), options))

    def node_losses(self, nodes: Nodes, options: Options, told: Stage) -> np.ndarray:
        """See `PopulationRows`."""
        return self._run(lambda: self._node_losses(nodes, options))

    def _node_losses(self, nodes, options):
        losses = quadrature.NODE_LOSSES.of_blocks(self.rows, nodes, options)
        bad = self.rows.score_ranges(options).bad
        return np.where(bad[:, None], np.nan, losses)

    def _run(self, function):
        made = run_programs(function, x64=self.dtype == np.float64)
        return jax.tree.map(np.asarray, made)


def _median(x, weights) -> float:
    return float(np.quantile(x, 0.5, weights=weights, method="inverted_cdf"))
