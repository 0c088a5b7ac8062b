"""Segments wherever their rows are: the seam between one pooled fit and memory, disk, engines."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Stage
from platt_jax.options import Options
from platt_jax.population.quadrature import Grid, Nodes
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given


class Coordinates(NamedTuple):
    """(score - center) * scale: the coordinates in which a population is described."""

    center: float
    scale: float

    @property
    def matrix(self) -> NDArray[np.float64]:
        """(2, 2), which takes (A, B) to these coordinates."""
        return np.array([[1 / self.scale, 0], [self.center, 1]])


class Segments(Protocol):
    """The rows of K segments."""

    @property
    def keys(self) -> NDArray[Any]:
        """(K,), their ids, ascending."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the scores."""

    def fit(self, given: Given, options: Options, stage: Stage) -> Fit:
        """The fit of each segment; what is given leads with (K,)."""

    def pooled(self, given: Given, options: Options, stage: Stage) -> Fit:
        """The fit of all finite rows as one problem, without a loss; what is given leads with (1,).

        One bad row must not cost the unseen segments their calibration.
        """

    def both(self, given: Given, shared: Given, options: Options, stage: Stage) -> tuple[Fit, Fit]:
        """The fit of each segment, and of all rows; together, where that saves passes."""
        return self.fit(given, options, stage), self.pooled(shared, options, stage)

    def coordinates(self, options: Options) -> Coordinates:
        """Those in which the scores are about as wide as N(0, 1); a few outliers do not matter."""

    def node_losses(self, grid: Grid, nodes: Nodes, options: Options, stage: Stage) -> NDArray[Any]:
        """(K, J): the loss of each segment at each of its nodes; NaN if a row is not finite."""
