"""Rows of several processes: every process sums over its own, and all add up the same sums."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.distributed.journal import Journal
from platt_jax.execution.caller import Caller
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import Task, run_problems
from platt_jax.ids.factorize import Integers
from platt_jax.model.objective import Derivatives
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.deferred import DeferredRows, Request
from platt_jax.passes.protocol import Rows


class LocalRows(NamedTuple):
    """This process's rows of some of the K problems."""

    problems: Problems
    places: Integers  # their places among the K problems, in the order of their results


@dataclass(frozen=True, kw_only=True)
class SummedRows(DeferredRows):
    """The rows of K problems in all processes. See `passes.protocol.Rows` for the methods.

    All processes call the same methods in the same order, and get the same bits.

    Attributes:
        local: this process's, None where it has none.
        number: K.
        dtype: of the scores of all.
        journal: of the sums over all processes.
        caller: is warned of what makes the sums slower.
    """

    local: LocalRows | None
    number: int
    dtype: np.dtype[Any]
    journal: Journal
    caller: Caller

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        signs = np.array([-1, 1, -1, 1, -1, 1])[:, None]  # of the fields: smallest or largest
        nothing = np.broadcast_to(signs * np.inf, (6, self.number))
        request = Request("score_ranges", options)

        def local() -> NDArray[np.float64]:
            return signs * self._local(_task(request), ((), None), nothing, options)

        least = self.journal.minima(local, nothing.shape)
        ranges = ScoreRanges(*(signs * least).astype(self.dtype))
        return ranges._replace(bad=ranges.bad > 0)

    def _sum(self, request: Request, *arrays: Any) -> Any:
        options = request.options or request.masked or Options()
        given = arrays, self.standardization
        sums = self.sums(_task(request), given, _NUMBERS[request.method], options)
        return jax.tree.unflatten(_TREES[request.method], list(sums))

    def sums(self, task: Task, given: Any, number: int, options: Options) -> Any:
        """The sums (number, K) over all processes, in float64: counts stay exact.

        Args:
            task: makes that many numbers of each problem.
            given: to the task; arrays lead with (K,).
            number: how many they are.
            options: to the task.
        """
        nothing = np.zeros((number, self.number))

        def local() -> NDArray[np.float64]:
            return self._local(task, given, nothing, options)

        return self.journal.sums(local, nothing.shape).astype(self.dtype)

    def _local(
        self, task: Task, given: Any, nothing: NDArray[np.float64], options: Options
    ) -> NDArray[np.float64]:
        """What the task makes of each problem, from the rows of this process."""
        mine = np.array(nothing, np.float64)
        if self.local is not None:
            problems, places = self.local
            here = jax.tree.map(lambda x: np.asarray(x)[places], given)
            made = run_problems(task, problems, here, Context(options, self.caller))
            leaves = [leaf.reshape(len(places), -1).T for leaf in jax.tree.leaves(made)]
            mine[:, places] = np.concatenate(leaves)
        return mine


# What each sum returns, by its method.
_RESULTS = {
    "moments": (Moments(*range(4)), Moments(*range(4))),
    "derivatives": Derivatives(*range(5)),
    "loss": 0,
    "loss_change": 0,
}
_TREES = {method: jax.tree.structure(result) for method, result in _RESULTS.items()}
_NUMBERS = {method: len(jax.tree.leaves(result)) for method, result in _RESULTS.items()}


@cache
def _task(request: Request) -> Task:
    """The same for the same request: it is part of what a compiled program is found by."""

    def function(rows: Rows, given: Any, options: Options) -> Any:
        return request.of(rows, *given)

    return Task(function, function)
