"""Segments of a relation in an engine."""

from operator import itemgetter
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.progress import Stage
from platt_jax.options import Options
from platt_jax.population.chunked import SAMPLED_ROWS, coordinates_of
from platt_jax.population.segments import Coordinates
from platt_jax.population.summed import SummedSegments
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs
from platt_jax.sql.query_rows import QueryRows

_DTYPE = np.dtype(np.float64)


class QuerySegments(SummedSegments):
    """Segments of a relation; see `Segments` for the methods.

    A query reads the relation's rows once, for the segments and for all rows.

    Args:
        keys: (K,) segment ids.
        rows: rows of these segments and, last, of all rows: K + 1 problems.
    """

    def __init__(self, keys: NDArray[Any], rows: QueryRows) -> None:
        super().__init__(keys, _DTYPE, rows.without_all(), rows.good[:-1])
        self._with_all = rows

    def coordinates(self, options: Options) -> Coordinates:
        """See `Segments`. As in memory, or by moments where the scores are too many to send."""
        if self._with_all.good[-1] > SAMPLED_ROWS:
            return super().coordinates(options)
        return coordinates_of(self._with_all.scores(), _DTYPE)

    def pooled(self, given: ProblemInputs, options: Options, stage: Stage) -> Fit:
        """See `Segments`."""
        each = ProblemInputs()
        return self.both(each, given, options, stage)[1]

    def both(
        self, given: ProblemInputs, shared: ProblemInputs, options: Options, stage: Stage
    ) -> tuple[Fit, Fit]:
        """See `Segments`."""
        together, sizes = _together(given, shared, len(self.keys)), self._with_all.good
        fit = self.fit_rows(self._with_all, sizes, together, options, stage)
        each, pooled = (jax.tree.map(itemgetter(at), fit) for at in (slice(-1), -1))
        return each, pooled


def _together(each: ProblemInputs, shared: ProblemInputs, segments: int) -> ProblemInputs:
    """Priors and starts of the segments and, last, of all rows.

    A start of NaN means the default start, and a precision of 0 no prior.
    """
    if each.prior is not None and shared.prior is None:
        nothing = jax.tree.map(lambda x: np.zeros_like(x[:1]), each.prior)
        shared = shared._replace(prior=nothing)
    if each.start is not None:
        usual: Any = (np.full(1, np.nan),) * 2
        shared = shared._replace(start=usual)
    return jax.tree.map(lambda *x: np.concatenate(x), each, shared)
