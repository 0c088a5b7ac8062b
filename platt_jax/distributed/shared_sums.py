"""Rows in several processes: each process sums over its own rows, and the sums are added."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from platt_jax.arrays import Floats, Integers
from platt_jax.caller import Caller
from platt_jax.distributed.exchange import Gathers, Merge
from platt_jax.execution.problems import Context, Problems, Task
from platt_jax.execution.run import run_problems
from platt_jax.model.objective import Derivatives
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.deferred import DeferredRows, Request
from platt_jax.passes.protocol import Rows, RowTerms


class Meeting(Gathers, Protocol):
    """Where all processes exchange numbers; they must ask for the same in the same order."""

    def merged(self, mine: Floats, merge: Merge) -> Floats:
        """The elementwise sum or minimum of the float64 arrays of all processes, of one shape."""

    def pass_over_rows(
        self, local: Callable[[], Floats], merge: Merge, shape: tuple[int, int]
    ) -> Floats:
        """The same of the results of `local`, of this shape, which a journal may keep."""
        return self.merged(local(), merge)


class LocalRows(NamedTuple):
    """This process's rows of some of the K problems."""

    problems: Problems
    places: Integers  # their places among the K problems, in the order of their results


@dataclass(frozen=True, kw_only=True)
class SummedRows(DeferredRows):
    """The rows of K problems in all processes. See `passes.protocol.Rows` for the methods.

    All processes call the same methods in the same order, and get the same bits.
    """

    local: tuple[LocalRows, ...]  # the rows of this process, in any number of pieces
    number: int  # K
    dtype: np.dtype[Any]  # the dtype of all scores
    meeting: Meeting  # reductions over all processes
    caller: Caller  # gets warnings about anything that makes the sums slower
    has_offset: bool = False  # whether the rows have offsets
    # whether ranges are rounded before they are sent, so that they are no row's
    rounded: bool = False

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        # Signs of the fields, so that each is a minimum: -1 where it is a maximum.
        signs = np.array([-1, 1, -1, 1, -1, 1, *[-1] * self.has_offset])[:, None]
        nothing = np.full((len(signs), self.number), np.inf)
        nothing[6:] = 0  # the widest offset of no rows
        request = Request("score_ranges", options)

        def local() -> Floats:
            minima = nothing.copy()
            for values, places in self._local(_task(request), ((), None), options):
                minima[:, places] = np.minimum(minima[:, places], signs * values)
            return _rounded_down(minima) if self.rounded else minima

        least = self.meeting.pass_over_rows(local, "minimum", nothing.shape)
        ranges = ScoreRanges(*(signs * least).astype(self.dtype))
        return ranges._replace(bad=ranges.bad > 0)

    def _sum(self, request: Request, *arrays: Any) -> Any:
        last = request.last
        options = last if isinstance(last, Options) else request.masked or Options()
        arguments = arrays, self.standardization
        if isinstance(last, RowTerms):
            result: Any = list(range(last.number))
        else:
            result = _RESULTS[request.method]
        if request.method == "moments" and self.has_offset:
            result = _MOMENTS_WITH_OFFSET
        leaves, tree = jax.tree.flatten(result)
        sums = self.sums(_task(request), arguments, len(leaves), options)
        return jax.tree.unflatten(tree, list(sums))

    def sums(self, task: Task, given: Any, number: int, options: Options) -> Any:
        """The sums (number, K), over all processes, of a task's `number` numbers for each problem.

        They are added in float64, so that counts stay exact. `given`, which has leading axis (K,),
        and the options are arguments of the task.
        """
        shape = number, self.number

        def local() -> Floats:
            totals = np.zeros(shape)
            for values, places in self._local(task, given, options):
                totals[:, places] += values
            return totals

        return self.meeting.pass_over_rows(local, "sum", shape).astype(self.dtype)

    def _local(self, task: Task, given: Any, options: Options) -> Iterator[tuple[Floats, Integers]]:
        """The results of the task from each piece of this process's rows, and their places."""
        for problems, places in self.local:
            arguments = jax.tree.map(lambda x, indices=places: np.asarray(x)[indices], given)
            results = run_problems(task, problems, arguments, Context(options, self.caller))
            leaves = [leaf.reshape(len(places), -1).T for leaf in jax.tree.leaves(results)]
            yield np.concatenate(leaves).astype(np.float64), places


def _rounded_down(minima: Floats) -> Floats:
    """Minima as of `range_terms`, each moved outward.

    Ends of scores go to a multiple of a power of two between a sixteenth and an eighth of their
    distance, the other numbers to a power of two. Equal scores stay: their sums give them away.
    """
    mantissa, exponent = np.frexp(minima)
    rounded: Floats = np.ldexp(np.floor(2 * mantissa) / 2, exponent)
    low_pos, high_pos, low_neg, high_neg = ends = minima[1:5]
    width = -np.minimum(high_pos, high_neg) - np.minimum(low_pos, low_neg)
    wide = np.isfinite(width) & (width > 0)
    step = np.exp2(np.floor(np.log2(np.where(wide, width, 1))) - 3)
    rounded[1:5] = np.where(wide, np.floor(ends / step) * step, ends)
    return rounded


# The structure of each method's result.
_RESULTS: dict[str, Any] = {
    "moments": (Moments(*range(4)), Moments(*range(4))),
    "derivatives": Derivatives(*range(5)),
    "loss": 0,
    "loss_change": 0,
}
_MOMENTS_WITH_OFFSET = (Moments(*range(6)), Moments(*range(6)))


@cache
def _task(request: Request) -> Task:
    """The task of a request. It is cached, because compiled programs are found by the task."""

    def function(rows: Rows, given: Any, options: Options) -> Any:
        return request.of(rows, *given)

    return Task(function, function)
