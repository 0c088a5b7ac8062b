"""A monitor of a calibrator's predictions, night after night."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.monitoring import files
from platt_jax.monitoring.changes import changes
from platt_jax.monitoring.evidence import UNIT, Night
from platt_jax.monitoring.judging import Against, judge_night, read_night
from platt_jax.monitoring.merging import merged
from platt_jax.monitoring.multiplicity import e_q_values, lifted
from platt_jax.monitoring.state import State
from platt_jax.monitoring.summaries import from_table, to_table
from platt_jax.results import tables
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator
from platt_jax.results.tables import Table

_FDR = 0.05


@dataclass(frozen=True, eq=False)
class Monitor:
    """Watches the predictions of a calibrator on new rows, and says which segments are off.

    Call `update` with the rows of each night (or hour, or week), and `alarms` or `table` as often
    as you like. Looking again and again costs nothing: for each segment there is an e-process, and
    alarms are those of the e-BH procedure. At any night, chosen in advance or by looking at the
    alarms, the expected share of false alarms among the alarms of that night is at most `fdr`,
    however the segments depend on each other.

    A segment's alarm is false if, on every night, the true log-odds of each of its rows are within
    the margin of those predicted, and its labels are independent given what was known before the
    night. Rows of one night that share a cause, such as a storm, are not independent. There are two
    kinds of margin.

    - `against="fit"`: `margin`, and 4 standard errors of the fitted log-odds. An alarm means that
      the segment has changed since the fit, or differs from its population. Without the standard
      errors every segment that was fitted on few rows would be reported in time, as it is predicted
      by a curve that is off by its error.
    - `against="predictions"`: `margin` alone. An alarm means that predictions are off, whether or
      not the fit could have known better.

    With enough rows every prediction is off. The default margin, 0.1, is a tenth of the odds. That
    is 2.5 points at a probability of one half, and 0.1 points at 1 %. Such an error costs at most
    0.00125 nats of log loss per row, as much as the noise of a fit of 800 rows.

    The evidence of a change is spread over 16 kinds of change, and over all nights at which it may
    have begun: see `docs/howto/monitor.md`, also for simulations.

    A monitor is immutable: each method returns another. It has 58 numbers per segment.

    Attributes:
        calibrator: predicts the rows of the next nights.
        against: "fit" or "predictions".
        margin: by how much log-odds may be off, >= 0.
        night: number of nights so far; the first is 1.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> def night(shift):
        ...     shops, scores = np.arange(800) % 4, rng.normal(size=800)
        ...     log_odds = 2 * scores - 1 + np.where(shops == 3, shift, 0)
        ...     return scores, rng.random(800) < 1 / (1 + np.exp(-log_odds)), shops
        >>> history = [night(0) for _ in range(20)]
        >>> monitor = Monitor.start(fit_segments(*map(np.concatenate, zip(*history))))
        >>> for shift in [0, 0, 0, 1.5, 1.5, 1.5]:
        ...     monitor = monitor.update(*night(shift))
        >>> alarms = monitor.alarms(fdr=0.05)
        >>> alarms["segment"].tolist(), alarms["change"].tolist(), alarms["since"].tolist()
        ([3], ['higher'], [4])
    """

    calibrator: SegmentCalibrator
    against: Against
    margin: float
    night: int
    state: State

    @classmethod
    def start(
        cls,
        calibrator: SegmentCalibrator,
        *,
        against: Against = "fit",
        margin: float = 0.1,
    ) -> Self:
        """A monitor that has seen no rows.

        Args:
            calibrator: result of `fit_segments`.
            against: the hypothesis, "fit" or "predictions".
            margin: by how much log-odds may be off, >= 0.

        Raises:
            ValueError: an argument is not as above.
        """
        require_segment_calibrator(calibrator, "calibrator")
        validation.require_one_of(against, ("fit", "predictions"), "against")
        validation.require_not_negative(margin, "margin")
        return cls(calibrator, against, float(margin), 0, State.empty(calibrator.keys[:0]))

    def update(
        self,
        scores: Column | SegmentRows,
        labels: Column | None = None,
        segments: Column | None = None,
        *,
        offset: Column | None = None,
        reported: Column | None = None,
        non_finite: Literal["omit", "raise"] = "omit",
    ) -> Self:
        """The monitor after another night.

        Evidence does not depend on the order of the rows, nor on other segments. Parts of a night
        may be given to the same monitor separately, and merged.

        Args:
            scores: (N,) scores of rows that were not fitted, as in `fit_segments`; or SegmentRows.
            labels: (N,) labels, as in `fit_segments`.
            segments: (N,) segment ids, as in `fit_segments`.
            offset: (N,) offset, as in `SegmentCalibrator.predict_proba`.
            reported: the share of the positives that are known by now, in (0, 1]: (N,), or one for
                all. A row whose positive label is still to come counts as negative, and its
                prediction is multiplied by this share. It must be right, as the predictions must:
                see `docs/howto/monitor.md`. None for 1.
            non_finite: effect of a score, label, offset or prediction that is NaN or infinite.
                "omit": the row is left out, with a RuntimeWarning; "raise": a ValueError.

        Raises:
            ValueError: an argument is not as above; SegmentRows have weights; or ids have another
                type than the calibrator's.
        """
        judged = self._judged(scores, labels, segments, offset, reported, non_finite)
        return self._after(*judged)

    def sums(
        self,
        scores: Column | SegmentRows,
        labels: Column | None = None,
        segments: Column | None = None,
        *,
        offset: Column | None = None,
        reported: Column | None = None,
        non_finite: Literal["omit", "raise"] = "omit",
    ) -> Table:
        """The sums by which `update` judges these rows; see `add`.

        So the rows of a night can be judged where they lie: in the tasks of an engine, each of
        which has this monitor and some rows.

        Args:
            scores: as in `update`, and so are the others.
            labels: as in `update`.
            segments: as in `update`.
            offset: as in `update`.
            reported: as in `update`.
            non_finite: as in `update`.

        Returns:
            A Table with a line for each segment of the rows. It has the column `segment`, or one
            for each of its several columns, and 20 columns of integers (int64).

        Raises:
            ValueError: as in `update`.
        """
        judged = self._judged(scores, labels, segments, offset, reported, non_finite)
        return to_table(*judged)

    def add(self, sums: Any) -> Self:
        """The monitor after a night, given the sums of its rows.

        The result has the bits of `update` with all rows of the night.

        Args:
            sums: the result of `sums`, or those of several parts of the night: a Table, a frame of
                pandas or polars, or a pyarrow Table. Lines of one segment are added up; whether an
                engine has added them up before makes no difference.

        Raises:
            ValueError: a column is missing, or has other numbers than integers; or ids have another
                type than the monitor's.

        Example:
            >>> from platt_jax import fit_segments
            >>> rows = [2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]
            >>> monitor = Monitor.start(fit_segments(*rows), against="predictions")
            >>> monitor.add(monitor.sums(*rows)).table()["rows"].tolist()
            [2, 2]
        """
        keys, night = from_table(sums)
        get_indexer(self.calibrator.keys, split_columns(keys))  # refuses ids of another type
        return self._after(keys, night)

    def _judged(
        self,
        scores: Any,
        labels: Any,
        segments: Any,
        offset: Any,
        reported: Any,
        non_finite: Literal["omit", "raise"],
    ) -> tuple[NDArray[Any], Night]:
        """The segments of a night's rows and their sums."""
        validation.require_one_of(non_finite, ("omit", "raise"), "non_finite")
        rows = read_night(scores, labels, segments, offset, reported)
        settings = self.against, self.margin, non_finite
        return judge_night(self.calibrator, rows, *settings, Caller())

    def _after(self, keys: NDArray[Any], sums: Night) -> Self:
        """The monitor after a night with these sums."""
        state, place = self._before_next.including(keys)
        state = replace(state, tonight=sums.placed(place, len(state.keys)))
        return replace(self, night=self.night + 1, state=state)

    def with_calibrator(self, calibrator: SegmentCalibrator) -> Self:
        """The monitor with another calibrator for the rows of the next nights.

        The nights so far remain as they were judged.

        Args:
            calibrator: result of `fit_segments` or `platt_jax.update`.

        Raises:
            ValueError: it is something else.
        """
        _require_ids(calibrator, self.state)
        return replace(self, calibrator=calibrator)

    def restart(self, segments: Column) -> Self:
        """The monitor without the evidence of some segments, such as those that were fitted anew.

        Args:
            segments: (S,) ids; those that had no rows are ignored.

        Raises:
            ValueError: ids have another type than the calibrator's.
        """
        place = get_indexer(self.state.keys, ids.read(segments), "segments")
        keep = np.ones(len(self.state.keys), bool)
        keep[place[place >= 0]] = False
        return replace(self, state=self.state.of(keep))

    def merge(self, other: "Monitor") -> Self:
        """The monitor of the rows of both, where each has seen a part of the last night's rows.

        Log likelihood ratios are sums of integers. So the result is exactly the monitor of one
        update with all rows of the night.

        Args:
            other: a monitor that was the same before the last night. Segments that it does not
                share may differ, as if one had always seen some segments and one the others.

        Raises:
            ValueError: the two have different nights, margins or hypotheses, or another past.
        """
        if not isinstance(other, Monitor):
            raise ValueError(f"other: expected a Monitor, got a {type(other).__name__}")
        for name in ("night", "against", "margin"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(f"other: expected a monitor with {name} {mine!r}, got {its!r}")
        return replace(self, state=merged(self.state, other.state))

    @cached_property
    def _before_next(self) -> State:
        """The state with all nights so far."""
        return self.state.after(self.night)

    def alarms(self, fdr: float = _FDR, *, ever: bool = False) -> Table:
        """The lines of `table` of the segments with an alarm.

        Args:
            fdr: false discovery rate, in (0, 1).
            ever: False for the segments with an alarm now. If one acts on the alarms of several
                nights, the guarantee holds for those of each night, but not for their union. True
                for the union, with the guarantee: for all that were reported until now. This needs
                about half as much evidence again.

        Raises:
            ValueError: an argument is not as above.
        """
        validation.require_fraction(fdr, "fdr")
        table = self.table()
        some = table["q_value_ever" if ever else "q_value"] <= fdr
        return Table({name: column[some] for name, column in table.items()})

    def table(self) -> Table:
        """All segments that had rows, in the order of their evidence.

        Returns:
            A Table with the columns

            - `segment`, or one column for each of its several columns;
            - `nights` with rows, `rows`, `positives`, `expected`, the sum of the predictions, and
              `ratio`, positives over that;
            - `q_value`: the least `fdr` at which the segment has an alarm;
            - `change`: "higher", "lower", "flatter" or "steeper" than predicted, the alternative
              that explains the labels best, or "" for none; and `since`, the number of the night
              when it began, or 0;
            - `intercept`, the shift of the true log-odds from those predicted since then, and its
              standard error `se_intercept`, where the change begins at an unknown night. Both are
              NaN if there is no change;
            - `log_e_value`: the evidence against the hypothesis, in nats: the logarithm of the
              e-value; and `highest`, its maximum over the nights;
            - `q_value_ever`: like `q_value`, for alarms until now.
        """
        state = self._before_next
        highest, log_e = state.highest, state.log_e()
        rows = np.maximum(state.rows, 1)
        expected, margin = state.expected * UNIT, state.margin * UNIT
        with np.errstate(divide="ignore", invalid="ignore"):  # expected may be rounded to 0
            ratio = state.positives / expected
        found = changes(state.log_sums, state.since, margin / rows, expected / rows)
        columns: dict[str, Any] = {
            "nights": state.nights,
            "rows": state.rows,
            "positives": state.positives,
            "expected": expected,
            "ratio": ratio,
            "q_value": e_q_values(log_e),
            "change": found.kind,
            "since": found.since,
            "intercept": found.intercept,
            "se_intercept": found.se_intercept,
            "log_e_value": log_e,
            "highest": highest,
            "q_value_ever": e_q_values(lifted(highest)),
        }
        order = np.argsort(-log_e, kind="stable")
        table = tables.keyed("segment", state.keys, columns)
        return Table({name: x[order] for name, x in table.items()})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the monitor remembers to one .npz file, atomically, without the calibrator.

        Args:
            path: the file, exactly as named. An existing file is replaced.

        Raises:
            ValueError: path is not a path, or names something other than a file.
        """
        files.save(path, (self.against, self.margin, self.night), self.state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], calibrator: SegmentCalibrator) -> Self:
        """Read a monitor that `save` wrote.

        Args:
            path: the file.
            calibrator: predicts the rows of the next nights.

        Raises:
            ValueError: the file is something else, is damaged, or is from a newer version; or its
                segments have another type than the calibrator's.
        """
        settings, state = files.load(path)
        _require_ids(calibrator, state)
        return cls(calibrator, *settings, state)

    def __repr__(self) -> str:
        rows, segments = int(self._before_next.rows.sum()), len(self.state.keys)
        text = (
            f"Monitor: night {self.night:,}, {rows:,} rows of {segments:,} segments; "
            f"against the {self.against}, margin {self.margin:g}"
        )
        if not rows:
            return text
        alarms = len(self.alarms()["rows"])
        return f"{text}\n  alarms: {alarms:,} at a false discovery rate of {_FDR:g}"


def _require_ids(calibrator: Any, state: State) -> None:
    """Refuses anything but a calibrator of segments of the same type."""
    require_segment_calibrator(calibrator, "calibrator")
    get_indexer(calibrator.keys, split_columns(state.keys), "calibrator")
