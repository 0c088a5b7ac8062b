"""Pooling methods compared on later rows."""

from operator import itemgetter
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.api import fit_segments
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.ids.factorize import factorize
from platt_jax.options import Options, Pooling
from platt_jax.population.fitting import inner_fits
from platt_jax.results.probabilities import LEAST
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table
from platt_jax.updating.drift import drift_between

_POOLINGS: tuple[Literal["complete", "partial", "none"], ...] = ("complete", "partial", "none")
_REFERENCE = "complete"
_COLUMNS = ("cut", "pooling", "rows", "log_loss", "difference", "standard_error")
# Probabilities are clipped to these, as in `metrics.log_loss`.
_INSIDE = np.array([LEAST, 1 - LEAST])


@takes_columns
def judge_pooling(
    scores: Column,
    labels: Column,
    segments: Column,
    times: Column,
    cuts: Column,
    *,
    available: Column = None,
    offset: Column = None,
    options: Options = Options(),
) -> Table:
    """Compare the log loss of pooling methods on rows later than the fitted ones.

    For each cut the rows before it are fitted, and rows from it to the next cut are evaluated.
    Rows held out at random would be of the same period, and would not show drift. Where labels
    arrive late, `available` keeps out of a fit what was not known at the cut.

    Args:
        scores: (N,) finite numbers, as in `fit_segments`.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`.
        times: (N,) time of each row: finite numbers, or dates as NumPy's datetime64.
        cuts: one or more times, ascending, at which the later rows begin.
        available: (N,) the time from which on each row's label is known, as `times`; NaN, inf
            or NaT means never. Rows are fitted whose time and label are before the cut. None means
            that each label is known at the time of its row. If some labels come before others of
            their time because of what they say, as of questions that may be answered "yes" on any
            day and "no" only at the end, give all rows the last day on which theirs can come.
        offset: (N,) offset, as in `fit_segments`: of fits and of their predictions.
        options: as in `fit_segments`.

    Returns:
        A Table with a line for each cut and each method. The methods are

        - "complete" (one curve for all), "partial" and "none", as in `fit_segments`;
        - "drift", `estimate_drift` between the earlier rows' two halves by time, with `ahead` the
          later rows' mean distance. Left out where a half has no population.

        Columns: `cut`; `pooling`; `rows`, the number evaluated; `log_loss`, its mean over them;
        `difference` of the mean from "complete"; and `standard_error` of the difference,
        with the segments as clusters. With few segments it is too small.

    Raises:
        ValueError: an argument is not as above; or there are no rows before a cut, or between a
            cut and the next.
        MemoryError: as in `fit_segments`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> weeks, shops = np.repeat([0, 1, 2], 2000), np.arange(6000) % 100
        >>> levels = rng.normal(size=(3, 100))[weeks, shops]  # new ones each week
        >>> scores = rng.normal(size=6000)
        >>> labels = rng.random(6000) < 1 / (1 + np.exp(-scores - levels))
        >>> judged = judge_pooling(scores, labels, shops, weeks, 2)
        >>> judged["pooling"].tolist()
        ['complete', 'partial', 'none', 'drift']
        >>> judged["difference"].round(2).tolist()
        [0.0, 0.03, 0.07, 0.0]
    """
    rows = _ComparisonRows.of(scores, labels, segments, offset)
    when, starts, cut_values = _times(times, cuts, rows.scores.shape)
    label_times = when
    if available is not None:
        dates = [validation.array(x, "times").dtype.kind == "M" for x in (times, available)]
        if dates[0] != dates[1]:
            kinds = [("numbers", "dates")[x] for x in dates]
            raise ValueError(f"available: expected {kinds[0]}, as times are, got {kinds[1]}")
        label_times = _times(available, cuts, rows.scores.shape, "available")[0]
    lines = []
    for cut, start, end in zip(cut_values, starts, [*starts[1:], np.inf], strict=True):
        earlier, later = (when < start) & (label_times < start), (when >= start) & (when < end)
        condition = "before" if available is None else "with labels before"
        for words, mask in ((condition, earlier), ("from", later)):
            if not mask.any():
                raise ValueError(f"cuts: expected rows {words} {cut} on, got none")
        calibrators: dict[str, SegmentCalibrator] = {
            pooling: rows.fitted(earlier, pooling, options) for pooling in _POOLINGS
        }
        if (drift := _drift(rows, when, earlier, later, options)) is not None:
            calibrators["drift"] = drift
        losses = {pooling: rows.losses(later, x) for pooling, x in calibrators.items()}
        for pooling, loss in losses.items():
            apart = loss - losses[_REFERENCE]
            error = _clustered_error(apart, rows.numbers[later])
            lines.append((cut, pooling, len(loss), loss.mean(), apart.mean(), error))
    return Table(zip(_COLUMNS, map(np.array, zip(*lines, strict=True)), strict=True))


class _ComparisonRows(NamedTuple):
    """The rows of `judge_pooling`, checked."""

    scores: NDArray[Any]
    labels: NDArray[np.int8]
    numbers: Ints  # segment numbers
    offset: NDArray[Any] | None

    @classmethod
    def of(
        cls, scores: Column, labels: Column, segments: Column, offset: Column
    ) -> "_ComparisonRows":
        """The rows, checked."""
        scores = validation.scores(scores)
        validation.require_flat(scores, "scores")
        labels, _, bad = validation.labelled_rows(scores, labels, None, "scores")
        offset = validation.offset(offset, scores)
        if offset is not None:
            bad = bad | ~np.isfinite(offset)
        if bad.any():
            raise ValueError(
                f"scores, labels, offset: expected finite values, got {np.count_nonzero(bad):,} "
                "rows with NaN or infinite ones; leave these out"
            )
        numbered = factorize(ids.read_rows(segments, len(scores)))
        return cls(scores, labels, numbered.of(slice(None)), offset)

    def only(self, some: Bools) -> "_ComparisonRows":
        """The rows where `some` holds."""
        subset: _ComparisonRows = jax.tree.map(itemgetter(some), self)
        return subset

    def grouped(self) -> SegmentRows:
        """The rows by segment."""
        return SegmentRows(self.scores, self.labels, self.numbers, offset=self.offset)

    def fitted(self, some: Bools, pooling: Pooling, options: Options) -> SegmentCalibrator:
        """The calibrator of the rows where `some` holds."""
        with inner_fits():
            return fit_segments(self.only(some).grouped(), pooling=pooling, options=options)

    def losses(self, some: Bools, calibrator: SegmentCalibrator) -> Floats:
        """The log loss of each row where `some` holds."""
        f, y, segments, offset = self.only(some)
        proba = calibrator.predict_proba(f.astype(np.float64), segments, offset=offset)
        proba = np.clip(proba.astype(np.float64), *_INSIDE)
        return -np.where(y, np.log(proba), np.log1p(-proba))


def _drift(
    rows: _ComparisonRows, when: Floats, earlier: Bools, later: Bools, options: Options
) -> SegmentCalibrator | None:
    """The calibrator by drift between the earlier rows' halves; None if drift is not estimable."""
    middle = (when[earlier].min() + when[later].min()) / 2
    halves = earlier & (when < middle), earlier & (when >= middle)
    if not all(half.any() for half in halves):
        return None
    first, second = (rows.fitted(half, "partial", options) for half in halves)
    if not (
        np.isin(first.keys, second.keys).any() and first.pooling == second.pooling == "partial"
    ):
        return None
    t = [when[mask].mean() for mask in (*halves, later)]
    second_rows = rows.only(halves[1]).grouped()
    return drift_between(first, second, second_rows, (t[2] - t[1]) / (t[1] - t[0])).calibrator


def _times(
    times: Column, cuts: Column, shape: tuple[int, ...], name: str = "times"
) -> tuple[Floats, Floats, NDArray[Any]]:
    """Times and cuts as numbers, and the cuts as given."""
    when = validation.array(times, name)
    if when.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {when.shape}")
    values = np.atleast_1d(validation.array(cuts, "cuts"))
    if when.dtype.kind == "M":
        try:
            in_unit = values.astype(when.dtype)
            starts = in_unit if values.dtype.kind in "iu" else values.astype("M8[us]")
        except (TypeError, ValueError):
            raise ValueError(f"cuts: expected dates, got {cuts!r}") from None
        # A cut within a day lies after a row of that date.
        values = in_unit if (in_unit == starts).all() else starts
        when, starts = (x.astype("M8[us]") for x in (when, starts))
        when, starts = (np.where(np.isnat(x), np.nan, x.astype("i8")) for x in (when, starts))
    else:
        when, starts = validation.numbers(when, name), validation.numbers(values, "cuts")
    when, starts = when.astype(np.float64), starts.astype(np.float64)
    if name == "available":
        when = np.where(np.isnan(when), np.inf, when)
    elif not np.isfinite(when).all():
        raise ValueError("times: expected finite numbers or dates, got some that are not")
    if starts.ndim != 1 or not len(starts) or not (np.diff(starts) > 0).all():
        raise ValueError(f"cuts: expected one or more times, ascending, got {cuts!r}")
    return when, starts, values


def _clustered_error(values: Floats, clusters: Ints) -> float:
    """The standard error of a mean whose values are dependent within clusters.

    The formula is as in `robust_covariance` (Liang & Zeger 1986); NaN with a single cluster.
    """
    _, index = np.unique(clusters, return_inverse=True)
    sums = np.bincount(index, values - values.mean())
    number = len(sums)
    if number < 2:
        return float("nan")
    return float(np.sqrt(number / (number - 1) * np.sum(sums**2)) / len(values))
