"""A night's rows with their predictions, and how far off these may be."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows, laid_out, segment_rows
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.monitoring.evidence import (
    ROWS_AT_ONCE,
    UNIT,
    JudgedRows,
    Night,
    night_sums,
    shocks_of,
    terms_of,
)
from platt_jax.monitoring.shocks import Shocks
from platt_jax.results import tables
from platt_jax.results.fit import inspected
from platt_jax.results.probabilities import UPPER, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, shift_of

Against = Literal["fit", "predictions"]

# Against the fit, the margin is wider by this number of standard errors. A normal variable leaves
# them with probability 6e-5: fewer segments than e-BH reports by mistake.
STANDARD_ERRORS = 4.0
LEAST = 2.0**-53  # least distance of probabilities from 0 and 1
FARTHEST = 53 * np.log(2)  # the log-odds there
WIDEST = 64.0  # largest margin; no evidence is possible against so wide a one
_READ_AT_ONCE = 1 << 24  # rows on disk
_ROWS_TO_TELL = 30  # of a segment in a night
_MARGIN_TO_TELL = 16.0  # of standard errors of 4: even odds may be 3,000 to 1, or 1 to 3,000


class Settings(NamedTuple):
    """What a monitor keeps from its start."""

    against: Against
    margin: float
    night_sd: float

    @property
    def shocks(self) -> Shocks | None:
        """What the rows of a night have in common; None for nothing."""
        return shocks_of(self.night_sd)


class NightRows(NamedTuple):
    """Rows of S segments, concatenated by segment."""

    keys: NDArray[Any]  # (S,)
    owner: Ints  # (N,) ascending
    scores: Floats  # (N,) NaN for a row with a bad label
    labels: Bools  # (N,)
    reported: Floats | None  # (N,)
    offset: Floats | None  # (N,)

    def where(self, some: Any) -> "NightRows":
        """Some of the rows."""
        columns: Any = (x if x is None else x[some] for x in self[1:])
        return NightRows(self.keys, *columns)


def has_no_rows(scores: Any, labels: Any, segments: Any) -> bool:
    """Whether all columns are empty, of any type: an engine's partition may have no rows."""
    columns = scores, labels, segments
    return all(hasattr(column, "__len__") and not len(column) for column in columns)


def read_night(
    scores: Column | SegmentRows,
    labels: Column | None,
    segments: Column | None,
    offset: Column | None,
    reported: Column | None,
) -> Iterator[NightRows]:
    """The rows of a night by segment; those on disk some segments at a time."""
    if not isinstance(scores, SegmentRows):
        validation.require_each(scores, labels=labels, segments=segments)
        scores = validation.scores(scores)
    share = None if reported is None else shares(reported, scores)
    # The shares take the place of weights, which these rows cannot have.
    rows = segment_rows(scores, labels, segments, share, offset=offset)
    without = ("weights",) if reported is None else ()
    for block in Groups(rows.sizes).slices(_READ_AT_ONCE if rows.reread else len(rows)):
        keys, groups, (f, y, w, o) = laid_out(rows, *without, some=block)
        w, o = (x if x is None else x.astype(float) for x in (w, o))
        yield NightRows(keys, groups.owner, f.astype(float), y > 0, w, o)


def shares(reported: Column, scores: Any) -> Floats:
    """The share of each row; refuses shares that are not such."""
    if isinstance(scores, SegmentRows):
        raise ValueError("reported: expected none beside SegmentRows")
    share = validation.floating(reported, "reported").astype(float)
    number = scores.size
    if share.shape not in ((), (number,)):
        raise ValueError(f"reported: expected one share or {number:,}, got shape {share.shape}")
    if not ((share > 0) & (share <= 1)).all():
        raise ValueError(
            f"reported: expected shares above 0 and up to 1, got {share.min():g} to {share.max():g}"
        )
    return np.broadcast_to(share, number)


def judge_night(
    calibrator: SegmentCalibrator,
    rows: NightRows,
    settings: Settings,
    non_finite: Literal["omit", "raise"],
    caller: Caller,
) -> tuple[NDArray[Any], Night]:
    """The segments (S,) with rows that can be judged, and their sums."""
    unlabelled = _UnlabelledRows.of(calibrator, rows, settings)
    shared = settings.shocks

    def part_sums(part: slice) -> tuple[Bools, tuple[int, Night]]:
        part_rows, log_odds = rows.where(part), unlabelled.log_odds(rows, part)
        finite = np.isfinite(part_rows.scores) & np.isfinite(log_odds)
        if part_rows.offset is not None:
            finite &= np.isfinite(part_rows.offset)
        judged = finite & unlabelled.segments.usable[part_rows.owner]
        if not judged.all():  # else copying would take a fifth of the time
            part_rows, log_odds = part_rows.where(judged), log_odds[judged]
        return finite, night_sums(unlabelled.judged(part_rows, log_odds), shared)

    number = len(rows.owner)
    parts = (slice(x, x + ROWS_AT_ONCE) for x in range(0, number, ROWS_AT_ONCE))
    total, finite = Night.without_rows(len(rows.keys), terms_of(shared)), []
    for finite_part, (first, sums) in ordered_map(part_sums, parts):
        total.add(first, sums)
        finite.append(finite_part)
    left_out = np.bincount(rows.owner[~np.concatenate(finite)], minlength=len(rows.keys))
    tell_left_out(rows.keys, left_out, unlabelled.segments.usable, non_finite, caller)
    has_rows = total.rows > 0
    return rows.keys[has_rows], total.of(has_rows)


class BeforeNight(NamedTuple):
    """What is known of segments (S,) before a night."""

    place: NDArray[Any]  # (S,) index among the calibrator's segments, -1 for others
    usable: Bools  # (S,) whether they can be judged
    pivot: Floats  # (S,) log-odds of the share of positives in the fit, shifted as the calibrator
    covariance: Floats | None  # (3, S): c_AA, c_AB and c_BB; None against the predictions


def before_night(
    calibrator: SegmentCalibrator, keys: NDArray[Any], against: Against
) -> BeforeNight:
    """What a calibrator knows of these segments."""
    indices = get_indexer(calibrator.keys, split_columns(keys), "segments")
    fitted, *_ = inspected(calibrator, any_curve=True)
    n_pos, n_neg = (
        np.append(x, x.sum())[indices]
        for x in (np.asarray(x, float) for x in (fitted.n_pos, fitted.n_neg))
    )
    pivot = np.log(n_pos + 1) - np.log(n_neg + 1) - shift_of(calibrator, keys, indices)
    if against == "predictions":
        return BeforeNight(indices, np.ones(len(keys), bool), pivot, None)
    posterior = posteriors(calibrator, keys, indices)
    covariance = np.stack([posterior.curves.covariance[:, i, j] for i, j in UPPER])
    return BeforeNight(indices, posterior.usable, pivot, covariance)


def curves_at(calibrator: SegmentCalibrator, place: NDArray[Any]) -> tuple[Floats, Floats]:
    """A and B of segments at these places among the calibrator's; of the fallback at -1."""
    fit, fallback = calibrator.fit, calibrator.fallback
    A, B = (
        np.append(np.asarray(x, float), default)[place]
        for x, default in ((fit.A, fallback.A), (fit.B, fallback.B))
    )
    return A, B


class _UnlabelledRows(NamedTuple):
    """What is known of a night's rows before their labels."""

    segments: BeforeNight
    sigmoids: Any  # (S,) A and B, where predictions are theirs; else None
    proba: Any  # (N,) other predictions, or None
    margin: float

    @classmethod
    def of(
        cls, calibrator: SegmentCalibrator, rows: NightRows, settings: Settings
    ) -> "_UnlabelledRows":
        segments = before_night(calibrator, rows.keys, settings.against)
        if calibrator.predictive() is None and calibrator.curves is None:
            return cls(segments, curves_at(calibrator, segments.place), None, settings.margin)
        keys = rows.keys[rows.owner]
        proba = calibrator.predict_proba(rows.scores, keys, offset=rows.offset)
        return cls(segments, None, proba, settings.margin)

    def log_odds(self, rows: NightRows, part: slice) -> Floats:
        """The predicted log-odds of a part of the rows; NaN without a prediction."""
        if self.sigmoids is None:
            proba = np.clip(self.proba[part].astype(float), LEAST, 1 - LEAST)
            return np.log(proba) - np.log1p(-proba)
        A, B = (x[rows.owner[part]] for x in self.sigmoids)
        log_odds = -(A * rows.scores[part] + B)
        if rows.offset is not None:
            log_odds += rows.offset[part]
        return np.clip(log_odds, -FARTHEST, FARTHEST)

    def judged(self, rows: NightRows, log_odds: Floats) -> JudgedRows:
        """The rows with their log-odds and margins."""
        margin = np.full(len(log_odds), self.margin)
        pivot, covariance = self.segments.pivot, self.segments.covariance
        if covariance is not None:
            variance = variance_of_logit(rows.scores, *covariance[:, rows.owner])
            margin += STANDARD_ERRORS * np.sqrt(np.maximum(variance, 0))
        margin = np.minimum(margin, WIDEST)
        return JudgedRows(log_odds, margin, rows.labels, rows.owner, pivot, rows.reported)


def tell_left_out(
    keys: NDArray[Any], left_out: Any, usable: Bools, non_finite: str, caller: Caller
) -> None:
    """Warns of rows that are not finite, given their numbers (S,), the largest segments first."""
    if left_out.any():
        unusable = np.flatnonzero(left_out)
        text = (
            f"{tables.counted(left_out.sum(), 'row')} of "
            f"{tables.counted(len(unusable), 'segment')}, the largest "
            f"{tables.name(keys, unusable[0])}"
        )
        if non_finite == "raise":
            raise ValueError(
                f"scores, labels, offset: expected finite values and predictions, found others in "
                f"{text}"
            )
        caller.warn(f"{text}, not judged: no finite score, label or prediction")
    tell_unusable(keys, usable, caller)


def tell_wide_margins(keys: NDArray[Any], night: Night, caller: Caller) -> None:
    """Warns of segments whose errors are so large that no label counts, as in another unit."""
    wide = night.margin > _MARGIN_TO_TELL / UNIT * night.rows
    many = wide & (night.rows >= _ROWS_TO_TELL)
    if many.any() or 2 * night.rows[wide].sum() > night.rows.sum():
        mean = night.margin[wide].sum() * UNIT / night.rows[wide].sum()
        largest = tables.name(keys, int(np.argmax(np.where(wide, night.rows, 0))))
        caller.warn(
            f"the fits say next to nothing about the rows of {np.count_nonzero(wide):,} of "
            f"{tables.counted(len(keys), 'segment')}, the largest {largest}: the margins of "
            f"their log-odds are {mean:.0f} on average, so that no label counts as evidence. "
            "Are the scores in the unit of the fit?"
        )


def tell_unusable(keys: NDArray[Any], usable: Bools, caller: Caller) -> None:
    """Warns of segments that cannot be judged, if there are any."""
    if not usable.all():
        first = tables.name(keys, np.flatnonzero(~usable)[0])
        caller.warn(
            f"{np.count_nonzero(~usable):,} of "
            f"{tables.counted(len(usable), 'segment')} not judged, the largest "
            f"{first}: their fits say too little (few rows, one score, not fitted, or few "
            'segments). Monitor.start(..., against="predictions") judges what is predicted for them'
        )
