"""The interface of segments, whose rows may be in memory, on disk, in an engine or elsewhere."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.execution.progress import Listener, Stage
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options, Pooling
from platt_jax.population.places import fetched, namespace, sent
from platt_jax.results.covariates import GivenCovariates
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs

if TYPE_CHECKING:
    from platt_jax.population.quadrature import Grid, Nodes

# Widths of scores for which a population can be represented. Errors of covariances of A in float64,
# and covariances of A in float32, are fourth and second powers of 1 / width.
_WIDTHS = {"float64": (1e-75, 1e75), "float32": (1e-18, 1e18)}
# How far from 0 their center may be, in widths: the variance of the log-odds loses the digits of
# its square. At these, ends of bands are off by .003 in float32 and by .07 in float64.
_CENTERS = {"float64": 2e7, "float32": 3e3}


class Coordinates(NamedTuple):
    """Coordinates of a population, whose curves take (score - center) * scale."""

    center: float
    scale: float

    @classmethod
    def from_center_and_width(
        cls, center: float, width: float, dtype: np.dtype[Any]
    ) -> "Coordinates":
        """The coordinates of scores with this center and width.

        The width is the standard deviation that the scores would have if they were normal. Where
        covariances of (A, B) would overflow or underflow, it is refused. So is a center so far out
        that these say nothing of the log-odds.
        """
        narrowest, widest = _WIDTHS[dtype.name]
        if not narrowest <= width <= widest:
            raise ValueError(
                f"scores: expected a spread between {narrowest:g} and {widest:g} to pool segments "
                f"in {dtype.name}, got {width:.3g}; multiply the scores by a power of two"
            )
        farthest = _CENTERS[dtype.name]
        if abs(center) > farthest * width:
            raise ValueError(
                f"scores: expected a center within {farthest:,.0f} times their spread of 0 to pool "
                f"segments in {dtype.name}, got a center of {center:g} and a spread of "
                f"{width:.3g}; subtract the center from all scores"
            )
        return cls(float(center), float(1 / width))

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(2, 2), the matrix that maps (A, B) to these coordinates."""
        return np.array([[1 / self.scale, 0], [self.center, 1]])


class FitArguments(NamedTuple):
    """The arguments of `platt_jax.fit_segments` besides the rows."""

    prior: GaussianPrior | None
    start: tuple[Column, Column] | None
    pooling: Pooling
    mesh: Mesh | None
    options: Options
    progress: bool | Listener
    covariates: GivenCovariates | None = None

    def check(self) -> None:
        """Refuses arguments that do not belong together, before any row is read."""
        options = validation.options(self.options)
        validation.pooling(self.pooling, self.prior, self.start, options)

    def check_without_mesh(self, source: object) -> None:
        """Also refuses a mesh, beside rows that are not on the devices of this process."""
        self.check()
        if self.mesh is not None:
            raise ValueError(f"mesh: expected none beside {type(source).__name__}")


@runtime_checkable
class SegmentSource(Protocol):
    """Rows elsewhere than in memory, for a fit of their segments."""

    def open_segments(
        self, arguments: FitArguments, caller: Caller
    ) -> AbstractContextManager["Segments"]:
        """The segments, as long as the context lasts. It ends without an error after a fit."""


class Segments(Protocol):
    """The rows of K segments, which are all segments or the segments of this process.

    Results of single segments stay in this process. A population only needs totals, and the fit of
    all rows.
    """

    has_offset: bool  # whether rows have an offset

    @property
    def keys(self) -> NDArray[Any]:
        """(K,) ids of the segments, ascending."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the scores."""

    def fit(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """The fit of each segment; given arrays have leading axis (K,)."""

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """The fit of all finite rows as one problem, without a loss.

        Given arrays have leading axis (1,). Non-finite rows are left out: a single one must not
        cost unseen segments their calibration.
        """

    def pooled_first(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """`pooled`, before fits of the segments with a population as prior."""
        return self.pooled(given, options, stage)

    def both(
        self, given: ProblemInputs, shared: ProblemInputs, options: Options, stage: Stage
    ) -> tuple[Fit, Fit]:
        """The fit of each segment, and of all rows; fitted together where that saves passes."""
        return self.fit(given, options, stage), self.pooled(shared, options, stage)

    def total(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums over all segments, from sums over the segments of this process.

        If several processes have segments, all must ask for the same totals in the same order.
        """
        return sums

    def coordinates(self, options: Options) -> Coordinates:
        """Coordinates in which most scores are about as wide as N(0, 1), outliers aside."""

    def node_losses(
        self, grid: "Grid", nodes: "Nodes", options: Options, stage: Stage
    ) -> NDArray[Any]:
        """The loss (K, J) of each segment at each of its nodes; NaN if a row is not finite."""

    def node_losses_there(
        self, grid: "Grid", nodes: "Nodes", options: Options, stage: Stage
    ) -> jax.Array:
        """`finite` losses at nodes on a device, there too; NaN for segments added.

        See `places` for both. Coordinates are on the host.
        """
        host_nodes = jax.tree.map(lambda x: x[: len(self.keys)].astype(self.dtype), fetched(nodes))
        losses: jax.Array = sent(finite(self.node_losses(grid, host_nodes, options, stage)), np.nan)
        return losses


def finite(losses: Any) -> Any:
    """Losses (K, J) of segments, flat for those with non-finite rows."""
    xp = namespace(losses)
    return xp.where(xp.isfinite(losses).all(1)[:, None], losses, 0)
