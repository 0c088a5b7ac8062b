"""Rows of several processes: every process sums over its own, and all add up the same sums."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.distributed.journal import Journal
from platt_jax.execution.caller import Caller
from platt_jax.execution.progress import SILENT
from platt_jax.execution.run import TakeRows, Task, run_problems
from platt_jax.ids.factorize import Integers
from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.protocol import Point, Rows


class LocalRows(NamedTuple):
    """This process's rows of some of the K problems."""

    sizes: Integers  # as `run_problems` takes them, like the next
    take: TakeRows
    dtype: np.dtype[Any]
    places: Integers  # which of the K problems they are of, in the order of sizes


@dataclass(frozen=True)
class SummedRows:
    """The rows of K problems in all processes. See `passes.protocol.Rows` for the methods.

    All processes call the same methods in the same order, and get the same bits.

    Attributes:
        local: this process's, None where it has none.
        number: K.
        dtype: of the scores of all.
        journal: of the sums over all processes.
        caller: is warned of what makes the sums slower.
        masked: how rows that are not finite were masked, if they were.
        standardization: of the scores, if any.
    """

    local: LocalRows | None
    number: int
    dtype: np.dtype[Any]
    journal: Journal
    caller: Caller
    masked: Options = Options()  # noqa: RUF009 - immutable
    standardization: Standardization | None = None

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        signs = np.array([-1, 1, -1, 1, -1, 1])[:, None]  # of the fields: smallest or largest
        nothing = np.broadcast_to(signs * np.inf, (6, self.number))

        def local() -> NDArray[np.float64]:
            return signs * self._local(_RANGES, (), nothing, options)

        least = self.journal.minima(local, nothing.shape)
        ranges = ScoreRanges(*(signs * least).astype(self.dtype))
        return ranges._replace(bad=ranges.bad > 0)

    def mask_nonfinite(self, options: Options) -> "SummedRows":
        """See `Rows`."""
        return replace(self, masked=options)

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        sums = self.sums(_MOMENTS, standardization, 8)
        return Moments(*sums[:4]), Moments(*sums[4:])

    def standardized(self, standardization: Standardization) -> "SummedRows":
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`."""
        given = self.standardization, point, targets
        return Derivatives(*self.sums(_DERIVATIVES, given, 5, options))

    def loss(self, point: Point, targets: Targets) -> Any:
        """See `Rows`."""
        return self.sums(_LOSS, (self.standardization, point, targets), 1)[0]

    def loss_change(self, before: Point, after: Point, targets: Targets) -> Any:
        """See `Rows`."""
        return self.sums(_CHANGE, (self.standardization, before, after, targets), 1)[0]

    def sums(self, task: Task, given: Any, number: int, options: Options | None = None) -> Any:
        """The sums (number, K) over all processes, in float64: counts stay exact.

        Args:
            task: makes that many numbers of each problem.
            given: to the task; arrays lead with (K,).
            number: how many they are.
            options: how rows that are not finite are masked; None for as they were.
        """
        nothing = np.zeros((number, self.number))

        def local() -> NDArray[np.float64]:
            return self._local(task, given, nothing, options or self.masked)

        return self.journal.sums(local, nothing.shape).astype(self.dtype)

    def _local(
        self, task: Task, given: Any, nothing: NDArray[np.float64], options: Options
    ) -> NDArray[np.float64]:
        """What the task makes of each problem, from the rows of this process."""
        mine = np.array(nothing, np.float64)
        if self.local is not None:
            sizes, take, dtype, places = self.local
            here = jax.tree.map(lambda x: np.asarray(x)[places], given)
            made = run_problems(task, sizes, take, dtype, here, options, SILENT, self.caller)
            leaves = [leaf.reshape(len(places), -1).T for leaf in jax.tree.leaves(made)]
            mine[:, places] = np.concatenate(leaves)
        return mine


def _ranges(rows: Rows, given: Any, options: Options) -> ScoreRanges:
    return rows.score_ranges(options)


def _moments(
    rows: Rows, standardization: Standardization, options: Options
) -> tuple[Moments, Moments]:
    return rows.mask_nonfinite(options).moments(standardization)


def _derivatives(rows: Rows, given: Any, options: Options) -> Derivatives:
    standardization, point, targets = given
    rows = rows.mask_nonfinite(options).standardized(standardization)
    return rows.derivatives(point, targets, options)


def _loss(rows: Rows, given: Any, options: Options) -> jax.Array:
    standardization, point, targets = given
    return rows.mask_nonfinite(options).standardized(standardization).loss(point, targets)


def _change(rows: Rows, given: Any, options: Options) -> jax.Array:
    standardization, before, after, targets = given
    rows = rows.mask_nonfinite(options).standardized(standardization)
    return rows.loss_change(before, after, targets)


def _task(function: Callable[..., Any]) -> Task:
    return Task(function, function)


_RANGES, _MOMENTS, _DERIVATIVES, _LOSS, _CHANGE = map(
    _task, (_ranges, _moments, _derivatives, _loss, _change)
)
