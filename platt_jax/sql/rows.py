"""Rows in an engine: every method of `Rows` is a query, or is answered by an earlier one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.sql import queries
from platt_jax.sql.engines import Engine
from platt_jax.sql.queries import STANDARDIZATION, TARGETS, Names


@dataclass(frozen=True)
class QueryRows:
    """The rows of K problems. See `passes.protocol.Rows` for the methods.

    Attributes:
        engine: runs the queries.
        names: the columns of the rows; without columns of segments all rows are of one problem.
        keys: with a row for each problem: the segments, in columns p_k0, p_k1, ...
        ranges: of the scores of each.
        good: (K,) how many rows of each are finite and have a weight.
        standardization: of the scores, if any.
    """

    engine: Engine
    names: Names
    keys: pa.Table
    ranges: ScoreRanges
    good: np.ndarray
    standardization: Standardization | None = None

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        omitting = options.non_finite == "omit"
        return self.ranges._replace(bad=self.ranges.bad & (not omitting))

    def mask_nonfinite(self, options: Options) -> "QueryRows":
        """See `Rows`; the queries sum over no other rows."""
        return self

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        sums = self._sums(queries.moments, zip(STANDARDIZATION, standardization, strict=True))
        pos, neg = (
            Moments(*(sums[f"{name}_{suffix}"] for name in queries.MOMENTS))
            for suffix in ("pos", "neg")
        )
        return pos, neg

    def standardized(self, standardization: Standardization) -> "QueryRows":
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(self, point, targets: Targets, options: Options, active=None) -> Derivatives:
        """See `Rows`; the rows of problems that are not active are not joined."""
        sums = self._sums(queries.derivatives, self._at(targets, A=point[0], B=point[1]), active)
        return Derivatives(*(sums[name] for name in Derivatives._fields))

    def loss(self, point, targets: Targets):
        """See `Rows`."""
        return self._sums(queries.loss, self._at(targets, A=point[0], B=point[1]))["loss"]

    def loss_change(self, before, after, targets: Targets):
        """See `Rows`."""
        points = {"A": after[0], "B": after[1], "A_before": before[0], "B_before": before[1]}
        return self._sums(queries.loss_change, self._at(targets, **points))["loss_change"]

    def _at(self, targets, **point):
        yield from zip(STANDARDIZATION, self.standardization or (), strict=True)
        yield from zip(TARGETS, targets, strict=True)
        yield from point.items()

    def _sums(self, query, of_problems, active=None) -> dict[str, Any]:
        """The columns (K,) of a query's result; 0 for problems without a row, or not active.

        Raises:
            ValueError: the rows are not as many as before.
        """
        which = np.arange(len(self.good))
        if active is not None:
            which = np.flatnonzero(np.asarray(active))
        points = self.keys.take(pa.array(which)).append_column("j", pa.array(which))
        for name, values in of_problems:
            column = np.broadcast_to(np.asarray(values, float), self.good.shape)[which]
            points = points.append_column(name, pa.array(column))
        found = self.engine.run(query(self.names), points)
        place = numbers(found["j"]).astype(int)
        sums = {}
        for name in found.column_names:
            sums[name] = np.zeros(len(self.good))
            sums[name][place] = numbers(found[name])
        if (changed := sums["good"][which] != self.good[which]).any():
            first = which[np.argmax(changed)]
            raise ValueError(
                "relation: expected the same rows in every pass, but "
                f"{int(sums['good'][first]):,} rows of a segment that had {self.good[first]:,} "
                "are there now; fit a copy, or in a transaction"
            )
        return sums


def numbers(column: pa.ChunkedArray) -> np.ndarray:
    """A column as float64, NaN where it is NULL."""
    return pc.cast(column, pa.float64()).to_numpy()
