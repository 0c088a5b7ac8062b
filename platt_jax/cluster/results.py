"""Fits that stay in the engine."""

import pickle
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax.cluster.engines import Engine
from platt_jax.cluster.segments import ascending_order
from platt_jax.cluster.tasks import (
    TESTED,
    EngineColumns,
    Shifts,
    Summary,
    among_all,
    check_columns,
    loaded,
    predict_part,
    table_part,
    triage_part,
    typed,
    with_q_values,
)
from platt_jax.hypothesis_tests.triage import q_values
from platt_jax.results.population import SHAPES, Population
from platt_jax.results.segment_calibrator import (
    SegmentCalibrator,
    require_segment_calibrator,
)
from platt_jax.results.sigmoid import Sigmoid, change_of_B
from platt_jax.results.tables import counted


class ClusterCalibrator:
    """One curve per segment, kept in the engine that has the rows.

    Attributes:
        fallback: the sigmoid fitted to all finite rows, for unseen segments; None beside other
            curves.
        fallback_covariance: (2, 2), covariance of its (A, B); None beside other curves.
        population: the population of the segments with pooling="partial", without the segments'
            own fields; else None.
    """

    def __init__(
        self,
        engine: Engine,
        fitted: Any,
        names: EngineColumns,
        ids: list[pa.Field],
        summaries: list[Summary],
        shifts: Shifts = (),
    ) -> None:
        self._engine, self._fitted, self._names = engine, fitted, names
        self._summaries, self._ids, self._shifts = summaries, ids, shifts
        self._counts = np.sum([part.smoothing for part in summaries], axis=0)
        # Part 0 has the large segments.
        self._large = first = loaded(pickle.dumps(summaries[0].large), shifts)
        self.fallback: Sigmoid | None = getattr(first, "fallback", None)
        self.fallback_covariance: NDArray[Any] | None = getattr(first, "fallback_covariance", None)
        shares = [part.shares for part in summaries if part.shares is not None]
        self._shares = np.sum(shares, axis=0) if shares else None
        empty = first.only(np.zeros(len(first), bool))
        self.population: Population | None = among_all(empty, self._shares).population

    def __len__(self) -> int:
        return int(self._counts[0])

    def __repr__(self) -> str:
        summary = self.summary()
        kinds = (summary["statuses"], summary["flags"])
        counts = "; ".join(
            ", ".join(f"{n:,} {name}" for name, n in sorted(kind.items(), key=lambda x: -x[1]))
            for kind in kinds
            if kind
        )
        return f"ClusterCalibrator of {counted(len(self), 'segment')}: {counts}"

    def summary(self) -> dict[str, Any]:
        """Counts of all segments.

        Returns:
            `segments`, `n_pos` and `n_neg` (weighted rows of each class), and `statuses` and
            `flags`: the number of segments with each, by name.
        """
        summaries = self._summaries
        return {
            "segments": len(self),
            "n_pos": float(self._counts[1]),
            "n_neg": float(self._counts[2]),
            "statuses": dict(sum((Counter(part.statuses) for part in summaries), Counter())),
            "flags": dict(sum((Counter(part.flags) for part in summaries), Counter())),
        }

    def table(self) -> Any:
        """The fits as a table of the engine, a row for each segment.

        Returns:
            A DataFrame of Spark or Dask, a Dataset of Ray, or an Arrow table for rows in memory,
            with the columns of `SegmentCalibrator.table`, for sigmoids the covariance `cov_AB` of A
            and B, and `shrinkage` with a population.
        """
        task = partial(table_part, shifts=self._shifts, segment=self._names.segment)
        fields = task(pickle.dumps(self._summaries[0].large)).schema
        schema = pa.schema([*self._ids, *(fields.field(x) for x in fields.names[len(self._ids) :])])
        return self._engine.map(self._fitted, partial(typed, schema, task), schema)

    def predict(self, rows: Any, out: str = "probability") -> Any:
        """The rows with a column of probabilities, as `SegmentCalibrator.predict_proba` gives them.

        Args:
            rows: rows of the same engine, with the columns of scores, segments and offsets.
            out: name of the new column.

        Raises:
            ValueError: a column is missing, or there is one of the new name.
        """
        names = self._names._replace(label=None, weight=None)
        schema = self._engine.schema(rows)
        check_columns(schema, names)
        if out in schema.names:
            raise ValueError(f"out: expected the name of a new column, got {out!r}")
        task = partial(predict_part, shifts=self._shifts, names=names, large=self._large, out=out)
        result_schema = schema.append(pa.field(out, pa.float64()))
        return self._engine.join(self._fitted, rows, names, task, result_schema)

    def triage(
        self,
        rows: Any,
        *,
        label: str,
        against: Literal["fit", "predictions"] = "fit",
        fdr: float = 0.05,
    ) -> Any:
        """Test which segments have changed or are predicted wrongly; see `platt_jax.triage`.

        Only the p-values come to this machine, 8 bytes for each segment of the rows.

        Args:
            rows: fresh rows of the same engine, with the columns of the fit.
            label: name of the column of labels.
            against: the hypothesis, as in `platt_jax.triage`.
            fdr: the false discovery rate.

        Returns:
            A table of the engine with the columns of `platt_jax.triage`, in any order.

        Raises:
            ValueError: an argument is not as above, or a column is missing.
        """
        if against not in ("fit", "predictions"):
            raise ValueError(f"against: expected 'fit' or 'predictions', got {against!r}")
        require_segment_calibrator(self._large, "calibrator", any_curve=against == "predictions")
        if not 0 < fdr < 1:
            raise ValueError(f"fdr: expected a number between 0 and 1, got {fdr!r}")
        # The rows of large segments, too, must meet in one place.
        names = self._names._replace(label=label, weight=None, large=self._names.large[:0])
        check_columns(self._engine.schema(rows), names)
        schema = pa.schema([*self._ids, *TESTED])
        arguments: dict[str, Any] = {"shifts": self._shifts, "names": names, "large": self._large}
        arguments["shares"] = self._shares
        task = partial(typed, schema, triage_part, **arguments, against=against)
        tested = self._engine.kept(self._engine.join(self._fitted, rows, names, task, schema))
        p = np.sort(self._engine.collect(tested, ["p_value"])["p_value"].to_numpy())
        q = partial(with_q_values, p_values=p, q_values=q_values(p), fdr=fdr)
        return self._engine.with_column(tested, q, q(schema.empty_table()).schema)

    def shift_prior(self, from_rate: float, to_rate: float) -> "ClusterCalibrator":
        """The calibrator for another rate of positives; see `SegmentCalibrator.shift_prior`.

        Args:
            from_rate: the share of positives among the fitted rows, in (0, 1), of all segments.
            to_rate: the share where the calibrator will be used, in the same way.

        Raises:
            ValueError: a rate is not one number between 0 and 1.
        """
        change_of_B(from_rate, to_rate, ())
        shifts = (*self._shifts, (from_rate, to_rate))
        arguments = self._engine, self._fitted, self._names, self._ids, self._summaries
        return ClusterCalibrator(*arguments, shifts)

    def write_parquet(self, path: str) -> None:
        """Writes `table` to a folder of Parquet files, by the engine."""
        self._engine.write_parquet(self.table(), path)

    def collect(self) -> SegmentCalibrator:
        """All fits on this machine, as `platt_jax.fit_segments` returns them."""
        parts = self._engine.results(self._fitted, "calibrator")
        return _joined([loaded(part, self._shifts) for part in parts])


def _joined(parts: list[SegmentCalibrator]) -> SegmentCalibrator:
    keys, order = ascending_order([part.keys for part in parts], parts[0].keys)

    def merged(*each: Any) -> Any:
        return np.concatenate([np.asarray(x) for x in each])[order]

    fit = jax.tree.map(merged, *(vars(part)["fit"] for part in parts))
    population = parts[0].population
    if population is not None:
        populations: list[Any] = [part.population for part in parts]
        fields = {
            name: merged(*(getattr(x, name) for x in populations))
            for name, (per_segment, _) in SHAPES.items()
            if per_segment
        }
        population = replace(population, **fields)
    curves = parts[0].curves
    if curves is not None:
        fitted: list[Any] = [x.curves and x.curves.only(np.arange(len(x.keys))) for x in parts]
        one_curve = curves.only([len(parts[0].keys)])
        curves = fitted[0].joined(*fitted[1:], one_curve).only(np.append(order, len(keys)))
    return parts[0]._replaced(keys=keys, fit=fit, population=population, curves=curves)
