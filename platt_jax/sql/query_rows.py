"""Rows in an engine: each method of `Rows` is a query, or uses the result of an earlier one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax.model.objective import Array, Derivatives, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import ScoreRanges
from platt_jax.options import Options
from platt_jax.results.tables import counted
from platt_jax.sql import moments, queries
from platt_jax.sql.engines import QueryEngine, numbers
from platt_jax.sql.moments import ClassMoments
from platt_jax.sql.queries import ALL, GAPS, SAME, STANDARDIZATION, PooledNumbers, RelationColumns

_EPS = np.finfo(float).eps
_ADVICE = "give snapshot=True, or store them as a table that nothing changes"

Point: TypeAlias = tuple[Array, Array]  # (A, B) of every problem


@dataclass(frozen=True)
class QueryRows:
    """The rows of S segments as S problems; or as S + 1, where the last has all rows.

    See `passes.protocol.Rows` for the methods.
    """

    engine: QueryEngine  # runs the queries
    names: RelationColumns  # names of the columns
    keys: pa.Table  # table of the segments, in columns p_k0, p_k1, ...
    ranges: ScoreRanges  # ranges of the scores of each problem
    # moments of the original scores of each segment, without rows where a square could overflow or
    # underflow
    plain_moments: ClassMoments
    # number of rows of each problem that are finite and have positive weight
    good: NDArray[np.int64]
    standardization: Standardization | None = None  # standardization of the scores, or None

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        omitting = options.non_finite == "omit"
        return self.ranges._replace(bad=self.ranges.bad & (not omitting))

    def mask_nonfinite(self, options: Options) -> "QueryRows":
        """See `Rows`; the queries sum over no other rows."""
        return self

    def moments(self, standardization: Standardization) -> ClassMoments:
        """See `Rows`; only the segments of `moments.lost_digits` need a query.

        The moments of all rows are computed from the segments' moments.
        """
        segments, number = self.without_all(), self.keys.num_rows
        coordinates: Any = (np.asarray(x, float) for x in standardization)
        center, scale = coordinates
        scaling = Standardization(center[:number], scale[:number])
        class_moments = moments.standardized(self.plain_moments, segments.ranges, scaling)
        lost = moments.lost_digits(self.plain_moments, segments.ranges, scaling, segments.good)
        if lost.any():
            sums = segments._sums(queries.moments, zip(STANDARDIZATION, scaling, strict=True), lost)
            class_moments = jax.tree.map(
                partial(np.where, lost),
                moments.from_columns(sums.__getitem__, self.names.offset is not None),
                class_moments,
            )
        if number == len(self.good):
            return class_moments
        pos, neg = (moments.with_all(one_class, center, scale) for one_class in class_moments)
        return pos, neg

    def standardized(self, standardization: Standardization) -> "QueryRows":
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: Array | None = None
    ) -> Derivatives:
        """See `Rows`; the rows of problems that are not active are not joined."""
        sums = self._sums(queries.derivatives, self._at(targets, A=point[0], B=point[1]), active)
        return Derivatives(*(sums[name.lower()] for name in Derivatives._fields))

    def loss(self, point: Point, targets: Targets) -> Any:
        """See `Rows`."""
        return self._sums(queries.loss, self._at(targets, A=point[0], B=point[1]))["loss"]

    def loss_change(self, before: Point, after: Point, targets: Targets) -> Any:
        """See `Rows`."""
        points = {"A": after[0], "B": after[1], "A_before": before[0], "B_before": before[1]}
        return self._sums(queries.loss_change, self._at(targets, **points))["loss_change"]

    def _at(self, targets: Targets, **point: Array) -> Iterator[tuple[str, Array]]:
        yield from zip(STANDARDIZATION, self.standardization or (), strict=True)
        yield from zip(GAPS, (targets.positive_complement, targets.negative), strict=True)
        yield from point.items()

    def scores(self) -> NDArray[np.float64]:
        """(N, 2), scores and weights of all rows that are fitted, in any order."""
        table = self.engine.run(queries.scores(self.names))
        return np.stack([numbers(table[name]) for name in ("f", "w")], -1)

    def without_all(self) -> "QueryRows":
        """The rows of the segments alone."""
        segments = self.keys.num_rows
        ranges = jax.tree.map(lambda x: x[:segments], self.ranges)
        return replace(self, ranges=ranges, good=self.good[:segments])

    def _sums(
        self,
        query: Callable[[RelationColumns, PooledNumbers | None], str],
        named_values: Iterable[tuple[str, Array]],
        active: Array | None = None,
    ) -> dict[str, Any]:
        """The columns of a query's result; 0 for problems that have no rows, or are not active."""
        segments, shape = self.keys.num_rows, self.good.shape
        active = np.ones(shape, bool) if active is None else np.array(active)
        has_all = active[segments:].any()
        active[:segments] |= has_all  # the sums over all rows come by segment
        indices = np.flatnonzero(active[:segments])
        points = self.keys.take(pa.array(indices)).append_column("j", pa.array(indices))
        pooled: dict[str, float] | None = {} if has_all else None
        for name, values in named_values:
            values = np.broadcast_to(np.asarray(values, float), shape)
            points = points.append_column(name, pa.array(values[indices]))
            if pooled is not None:
                pooled[name] = values[-1]
        result = self.engine.run(query(self.names, pooled), points)
        _check_same_rows(result, indices, self.good, self.plain_moments, self.ranges.widest_offset)
        return self._placed(result, has_all)

    def _placed(self, found: pa.Table, has_all: np.bool_) -> dict[str, Any]:
        """The columns of a result, and sums over the segments for all rows."""
        indices, sums = numbers(found["j"]).astype(int), {}
        for name in found.column_names:
            if name in ("j", *SAME) or name.endswith(ALL):
                continue
            sums[name] = np.zeros(self.good.shape)
            sums[name][indices] = numbers(found[name])
            if has_all and name + ALL in found.column_names:
                sums[name][-1] = numbers(found[name + ALL]).sum()
        return sums


# --- the check that every pass reads the rows of the first ---------------------------------------


def _check_same_rows(
    found: pa.Table,
    which: NDArray[np.intp],
    good: NDArray[np.int64],
    plain: ClassMoments,
    widest_offset: Any,
) -> None:
    """Check what a pass tells of its rows (see `queries._same_rows`) by what the first pass told.

    The segments `which` (J,) were joined. Arrays (K,) may have one more entry for all rows: numbers
    of good rows, and the largest absolute offsets, or None; `plain` are moments of the original
    scores.
    """
    indices = numbers(found["j"]).astype(int)
    number = np.zeros(len(good))
    number[indices] = numbers(found["good"])
    if (changed := number[which] != good[which]).any():
        first = which[np.argmax(changed)]
        raise ValueError(
            "relation: expected the same rows in every pass, but rows changed: "
            f"{counted(number[first], 'row')} of a segment that had {good[first]:,} are there now; "
            f"{_ADVICE}"
        )
    for name, (expected, size) in zip(SAME, _first_sums(plain, widest_offset), strict=False):
        off = np.abs(numbers(found[name]) - expected[indices])
        # A sum of n terms errs by up to n units in the last place of the sum of their sizes, in
        # each of the two passes; a term itself by one.
        if (off > 2 * (good[indices] + 2) * _EPS * size[indices]).any():
            raise ValueError(
                "relation: expected the same rows in every pass, but rows changed: a segment's "
                f"sums of {_name_in_words(name)} differ from the first pass's; {_ADVICE}"
            )


def _name_in_words(name: str) -> str:
    return f"{name.removeprefix('same_')}s and labels"


def _first_sums(plain: ClassMoments, widest_offset: Any) -> list[tuple[Any, Any]]:
    """The sums by the first pass, and bounds of the sums of their terms' sizes."""
    # Any: traced rows have JAX arrays where these are NumPy arrays.
    pos: Any
    neg: Any
    pos, neg = plain
    weight = pos.total + neg.total
    # By the inequality of Cauchy and Schwarz.
    score_bound = np.sqrt(weight) * np.sqrt(pos.second + neg.second)
    sums: list[tuple[Any, Any]] = [
        (pos.total - neg.total, weight),
        (pos.first - neg.first, score_bound),
    ]
    if widest_offset is not None:
        sums.append((pos.offset - neg.offset, weight * widest_offset[: len(weight)]))
    return sums
