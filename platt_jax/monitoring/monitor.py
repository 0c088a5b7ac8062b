"""A monitor of a calibrator's predictions, night after night."""

import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.hypothesis_tests.verdict import together
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.monitoring import files
from platt_jax.monitoring.changes import evidence_table
from platt_jax.monitoring.evidence import Night, terms_of
from platt_jax.monitoring.history import History, known, require_successor
from platt_jax.monitoring.judged_night import by_segment, judged_night
from platt_jax.monitoring.judging import Against, Settings, tell_wide_margins
from platt_jax.monitoring.shocks import LARGEST
from platt_jax.monitoring.state import EvidenceState, merged
from platt_jax.monitoring.summaries import from_table, to_table
from platt_jax.results import tables
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_sigmoids
from platt_jax.results.tables import Table

_FDR = 0.05


@dataclass(frozen=True, eq=False)
class Monitor:
    """Watches the predictions of a calibrator on new rows, and says which segments are off.

    Call `update` with the rows of each night (or hour, or week), and `alarms` or `table` as often
    as you like: each segment has an e-process, and e-BH (Wang & Ramdas 2022) gives the alarms. At
    any night, chosen in advance or by looking at the alarms, the expected share of false alarms
    among the alarms of that night is at most `fdr`, however the segments depend on each other.

    A segment's alarm is false if, on every night, the true log-odds of each of its rows are within
    the margin of the prediction, and its labels are independent given what was known before the
    night. Rows of one night that share a cause, such as a storm, are not independent: `night_sd`
    says how far such causes move the log-odds. There are two kinds of margin.

    - `against="fit"`: `margin`, and 4 standard errors of the fitted log-odds. An alarm means that
      the segment has changed since the fit, or differs from its population.
    - `against="predictions"`: `margin` alone. An alarm means that predictions are off, whether or
      not the fit could have known better.

    A monitor is immutable: each method returns another. It has 58 numbers per segment; with
    `night_sd`, 72 to 278. `docs/howto/monitor.md` helps to choose a margin, and has simulations;
    `docs/explanation/numbers.md` explains e-values.

    Attributes:
        calibrator: predicts the rows of the next nights.
        against: "fit" or "predictions".
        margin: by how much log-odds may be off, >= 0.
        night_sd: standard deviation of the log-odds' shocks in a segment's nights, >= 0.

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

    calibrator: SegmentCalibrator | OneVsRestCalibrator
    against: Against
    margin: float
    night_sd: float
    history: History
    state: EvidenceState
    _versions: files.Versions = field(default_factory=files.Versions, repr=False)

    @classmethod
    def start(
        cls,
        calibrator: SegmentCalibrator | OneVsRestCalibrator,
        *,
        against: Against = "fit",
        margin: float = 0.1,
        night_sd: float = 0.0,
    ) -> Self:
        """A monitor that has seen no rows.

        Args:
            calibrator: result of `fit_segments`; or of `fit_one_vs_rest`, whose classes are then
                watched as segments: each class's own probability.
            against: the hypothesis, "fit" or "predictions".
            margin: by how much log-odds may be off, >= 0.
            night_sd: standard deviation of shocks, from 0 to 3. In each night the log-odds of all
                rows of a segment may move together by a normal variable, whose mean is such that
                predictions are right on average over nights. With shocks only shifts are found, not
                slopes. 0 for rows that are independent of each other.

        Raises:
            ValueError: an argument is not as above.
        """
        segments = by_segment(calibrator)
        validation.require_one_of(against, ("fit", "predictions"), "against")
        if against == "fit":
            require_sigmoids(calibrator, "calibrator")
        validation.require_not_negative(margin, "margin")
        validation.require_not_negative(night_sd, "night_sd")
        if night_sd > LARGEST:
            raise ValueError(f"night_sd: expected a number from 0 to {LARGEST:g}, got {night_sd}")
        settings = Settings(against, float(margin), float(night_sd))
        state = EvidenceState.empty(segments.keys[:0], terms_of(settings.shocks))
        return cls(calibrator, *settings, History(), state)

    @property
    def _segments(self) -> SegmentCalibrator:
        return by_segment(self.calibrator)

    @property
    def night(self) -> int:
        """Number of nights so far."""
        return self.history.night

    @property
    def nights(self) -> tuple[str, ...]:
        """The names given to `update`, in their order."""
        return self.history.names

    @takes_columns
    def update(
        self,
        scores: Column | SegmentRows,
        labels: Column | None = None,
        segments: Column | None = None,
        *,
        offset: Column | None = None,
        reported: Column | None = None,
        night: Any = None,
        non_finite: Literal["omit", "raise"] = "omit",
    ) -> Self:
        """The monitor after another night.

        Evidence does not depend on the order of the rows, nor on other segments. Parts of a night
        may be given to the same monitor separately, and merged. A night may have no rows. Against
        the fit, a RuntimeWarning tells where the rows of a segment are so far out that no label
        counts, as scores of another unit are.

        Args:
            scores: (N,) scores of rows that were not fitted, as in `fit_segments`; or SegmentRows.
                For classes (N, C), as in `fit_one_vs_rest`.
            labels: (N,) labels, as in `fit_segments`, or as in `fit_one_vs_rest`.
            segments: (N,) segment ids, as in `fit_segments`; None for classes.
            offset: offset, as in the calibrator's `predict_proba`.
            reported: the share of the positives that are known by now, in (0, 1]: (N,), or one for
                all. A row whose positive label is still to come counts as negative, and its
                prediction is multiplied by this share. It must be right, as the predictions must:
                see `docs/howto/monitor.md`. None for 1.
            night: the night's name, a text, an integer or a date. A name that the monitor has is
                refused, so that no night counts twice. Parts of a night have one name. None for a
                night without a name.
            non_finite: effect of a score, label, offset or prediction that is NaN or infinite.
                "omit": the row is left out, with a RuntimeWarning; "raise": a ValueError.

        Raises:
            ValueError: an argument is not as above; the night is in the monitor; SegmentRows have
                weights; or ids have another type than the calibrator's.
        """
        self.history.named(night)
        judged = self._judged(scores, labels, segments, offset, reported, non_finite)
        return self._after(*judged, night)

    @takes_columns
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
        """The sums by which `update` judges these rows, given as there; see `add`.

        So the rows of a night can be judged where they lie: in the tasks of an engine, each of
        which has this monitor and some rows.

        Returns:
            A Table with a line for each segment of the rows. It has the column `segment`, or one
            for each of its several columns, and 20 columns of integers (int64); more with
            `night_sd`.

        Raises:
            ValueError: as in `update`.
        """
        judged = self._judged(scores, labels, segments, offset, reported, non_finite)
        return to_table(*judged)

    def add(self, sums: Any, *, night: Any = None) -> Self:
        """The monitor after a night, given the sums of its rows.

        The result has the bits of `update` with all rows of the night.

        Args:
            sums: the result of `sums`, or the results for parts of the night: a Table, a frame of
                pandas or polars, or a pyarrow Table. Lines of one segment are added up; whether an
                engine has added them up before makes no difference.
            night: as in `update`.

        Raises:
            ValueError: a column is missing, or has other numbers than integers; ids have another
                type than the monitor's; or the night is in the monitor.

        Example:
            >>> from platt_jax import fit_segments
            >>> rows = [2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]
            >>> monitor = Monitor.start(fit_segments(*rows), against="predictions")
            >>> monitor.add(monitor.sums(*rows)).table()["rows"].tolist()
            [2, 2]
        """
        keys, total = from_table(sums, self.state.terms)
        get_indexer(self._segments.keys, split_columns(keys))  # refuses ids of another type
        return self._after(keys, total, night)

    def _judged(self, *rows: Any) -> tuple[NDArray[Any], Night]:
        """The segments of a night's rows, as the arguments of `sums`, and their sums."""
        return judged_night(self.calibrator, self._settings, *rows)

    def _after(self, keys: NDArray[Any], sums: Night, night: Any) -> Self:
        """The monitor after a night with these sums, and its name."""
        if self.against == "fit":
            tell_wide_margins(keys, sums, Caller())
        history = self.history.next(night, self._segments)
        state, indices = self._before_next.including(keys)
        state = replace(state, tonight=sums.placed(indices, len(state.keys)))
        return replace(self, history=history, state=state)

    def with_calibrator(self, calibrator: SegmentCalibrator | OneVsRestCalibrator) -> Self:
        """The monitor with another calibrator for the rows of the next nights.

        The nights so far remain as they were judged.

        Args:
            calibrator: result of `fit_segments` or `platt_jax.update`.

        Raises:
            ValueError: the calibrator is something else, or knows fewer than half of the monitor's
                segments that the calibrator before it knew.
        """
        number_known = known(self._segments, self.state.keys)
        require_successor(by_segment(calibrator), self.state.keys, number_known)
        return replace(self, calibrator=calibrator)

    def restart(self, segments: Column) -> Self:
        """The monitor without the evidence of some segments, such as segments fitted anew.

        Args:
            segments: (S,) ids. Nothing is known of the calibrator's segments that had no rows.

        Raises:
            ValueError: ids have another type than the calibrator's, or are neither the monitor's
                nor the calibrator's.
        """
        segment_ids = ids.read(segments)
        indices = get_indexer(self.state.keys, segment_ids, "segments")
        unknown = (indices < 0) & (get_indexer(self._segments.keys, segment_ids, "segments") < 0)
        if unknown.any():
            raise ValueError(
                "segments: expected segments of the monitor, or of its calibrator, got "
                f"{np.count_nonzero(unknown):,} others, the first at {unknown.argmax()}"
            )
        keep = np.ones(len(self.state.keys), bool)
        keep[indices[indices >= 0]] = False
        return replace(self, state=self.state.of(keep))

    def merge(self, other: "Monitor") -> Self:
        """The monitor of the rows of both, where each has seen a part of the last night's rows.

        Log likelihood ratios are sums of integers. So the result is exactly the monitor of one
        update with all rows of the night. A part that is merged twice counts twice: only the
        monitor itself is recognized.

        Args:
            other: a monitor that was the same before the last night. Segments that it does not
                share may differ, as if one had always seen some segments and one the others.

        Raises:
            ValueError: the two have different nights, margins, hypotheses or calibrators, or
                another past; or `other` is this monitor.
        """
        if not isinstance(other, Monitor):
            raise ValueError(f"other: expected a Monitor, got a {type(other).__name__}")
        if other is self:
            raise ValueError("other: expected a monitor of other rows, got the same monitor")
        for name in ("against", "margin", "night_sd"):
            value, second = getattr(self, name), getattr(other, name)
            if value != second:
                raise ValueError(f"other: expected a monitor with {name} {value!r}, got {second!r}")
        self.history.require_parts(other.history)
        return replace(self, state=merged(self.state, other.state))

    @cached_property
    def _before_next(self) -> EvidenceState:
        return self.state.after(self.night, self._settings.shocks)

    @property
    def _settings(self) -> Settings:
        return Settings(self.against, self.margin, self.night_sd)

    def alarms(self, fdr: float = _FDR, *, ever: bool = False) -> Table:
        """The lines of `table` of the segments with an alarm.

        Args:
            fdr: false discovery rate, in (0, 1).
            ever: False for the segments with an alarm now. If one acts on the alarms of several
                nights, the guarantee holds for each night's alarms, but not for their union. True
                for the union, with the guarantee: for all that were reported until now. This needs
                about half as much evidence again.

        Raises:
            ValueError: an argument is not as above.
        """
        validation.require_fraction(fdr, "fdr")
        table = self.table()
        in_alarm = table["q_value_ever" if ever else "q_value"] <= fdr
        return Table({name: column[in_alarm] for name, column in table.items()})

    def table(self) -> Table:
        """All segments that had rows, in the order of their evidence.

        Returns:
            A Table with the columns

            - `segment`, or one column for each of its several columns; for classes `class`;
            - `nights` with rows, `rows`, `positives`, `expected`, the sum of the predictions, and
              `ratio`, positives over that;
            - `q_value`: the least `fdr` at which the segment has an alarm;
            - `change`: "higher", "lower", "flatter" or "steeper" than predicted, the alternative
              that explains the labels best, or "" for none; and `since`, the number of the night
              when it began, or 0;
            - `intercept`, the shift of the true log-odds from the predicted since then, and its
              standard error `se_intercept`, where the change begins at an unknown night. Both are
              NaN if there is no change, or if the evidence for it is 20 or more and an interval of
              95 % would not exclude 0;
            - `log_e_value`: the evidence against the hypothesis, in nats: the logarithm of the
              e-value; and `highest`, its maximum over the nights;
            - `q_value_ever`: like `q_value`, for alarms until now.
        """
        table = evidence_table(self._before_next)
        classes = isinstance(self.calibrator, OneVsRestCalibrator)
        return tables.by_class(table) if classes else table

    def save(self, path: str | os.PathLike[str], *, new: bool = False) -> None:
        """Write what the monitor remembers to one .npz file, atomically, without the calibrator.

        Of several processes that read a file, and each save another night to it, only one can: the
        others are refused, and have to read it again.

        Args:
            path: the file, exactly as named. An existing file is replaced, unless this monitor, or
                the one that it comes from, was read from it, or saved to it, and it has changed
                since.
            new: True to refuse to replace any file.

        Raises:
            ValueError: path is not a path, or names something other than a file; or the file has
                changed, or exists, as above.
        """
        by = known(self._segments, self.state.keys)
        with self._versions.replacing(path, new=new):
            files.save(path, self._settings, self.history, by, self.state)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], calibrator: SegmentCalibrator | OneVsRestCalibrator
    ) -> Self:
        """Read a monitor that `save` wrote.

        Args:
            path: the file.
            calibrator: predicts the rows of the next nights.

        Raises:
            ValueError: the file is something else, is damaged, or is from a newer version; its
                segments have another type than the calibrator's; or the calibrator knows fewer than
                half of the segments that the calibrator before it knew.
        """
        versions = files.Versions()
        versions.note(path)
        settings, history, by, state = files.load(path)
        require_successor(by_segment(calibrator), state.keys, by)
        return cls(calibrator, *settings, history, state, versions)

    def __repr__(self) -> str:
        rows, segments = int(self._before_next.rows.sum()), len(self.state.keys)
        text = (
            f"Monitor: night {self.night:,}, {tables.counted(rows, 'row')} of "
            f"{tables.counted(segments, 'segment')}; "
            f"against the {self.against}, margin {self.margin:g}"
            f"{f', night_sd {self.night_sd:g}' if self.night_sd else ''}"
        )
        if not rows:
            return text
        alarms = len(self.alarms()["rows"])
        counts = together(self.table(), "judged rows")
        return f"{text}\n  {counts}\n  alarms: {alarms:,} at a false discovery rate of {_FDR:g}"
