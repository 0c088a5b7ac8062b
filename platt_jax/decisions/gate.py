"""Which rows of a segment to accept, so that a share of them is right: gates by the fitted curves.

With s the probability of a row at the mean of (A, B), and d = s (1 - s), the precision of the rows
at a threshold or above is m = mean of s. Its derivative by (A, B) is minus (mean of d f, mean of
d): the mean of d times (F, 1), with F the mean score weighted by d. So its variance is (mean of
d)^2 times the variance of the log-odds at F, and by the delta method the log-odds of m have a
standard error of its root over m (1 - m). With the mean over (A, B) in place of s, the
uncertainty would count twice.
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results import tables
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import UPPER, expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator
from platt_jax.results.tables import Table

_TINY = 1e-300  # a unit of scores that are all the same
POSITIVE, NEGATIVE, BOTH = "positive", "negative", "both"


def gate(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    segments: Column = None,
    *,
    precision: float = 0.95,
    level: float = 0.95,
    side: str = POSITIVE,
) -> Table:
    """The rows of each segment to accept, so that at least a given share of them is right.

    Among the rows of a segment with scores from a threshold on, the mean probability is the
    expected precision. Its lower bound allows for the uncertainty of the segment's curve, as
    `triage` knows it. The gate is the lowest threshold whose bound reaches the precision.

    What holds if the curves are sigmoids of one population, and segments are pooled: at a level of
    95 % at most about one gated segment in twenty has a lower precision than was asked for. In
    simulations it was 1 % to 5 % of the gated segments with 20 to 1,000 labels each
    (docs/explanation/numbers.md). What holds for a curve of any shape: nothing. Where curves have a
    ceiling, or bend where probabilities are high, a quarter to nearly all of the gated segments
    violate the precision, and more labels make it worse. `certify` says of fresh labels which gates
    hold, and needs no curve.

    Args:
        calibrator: result of `fit_segments` or `fit_one_vs_rest`, with sigmoids.
        scores: (N,) scores of rows, labelled or not: new rows, or the fitted ones; or
            SegmentRows, whose labels are not used. For classes (N, C), or ClassRows.
        segments: (N,) their segments, or one id for all; None for SegmentRows and for classes.
        precision: the share of the accepted rows that is to be right, in (0, 1).
        level: the probability with which each segment's bound is to hold, in (0, 1). The bound is
            one-sided.
        side: "positive" accepts rows as class 1, from a threshold on; "negative" accepts them as
            class 0, up to a threshold; "both" does both, and takes no row as a class whose
            probability is below one half.

    Returns:
        A Table with a line for each segment of the rows, in ascending order, and with "both" for
        each side of it, and the columns

        - `segment`, or one column for each of its several columns; for classes `class`;
        - `side`, "positive" or "negative", and `rows`;
        - `threshold`: rows with this score or a higher one are accepted, with side "negative" this
          or a lower one. Infinite if none is;
        - `share` of the rows that is accepted;
        - `precision` that is expected of them, its `standard_error` by the curve's, and its bound
          `lower`, all NaN if none is accepted; and `target`, the precision that was asked for;
        - `basis`, "model": they hold as far as the curves do;
        - `status`: OK; UNREACHED, no threshold reaches the target; REVERSED, lower scores are more
          probable in this segment; TOO_FEW, too little is known of the segment's curve, see
          `triage`; NON_FINITE, the curve is NaN or a score is not finite. No row is accepted unless
          it is OK.

    Raises:
        ValueError: an argument is not as above; SegmentRows have weights or an offset; the
            calibrator has other curves than sigmoids.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> task, score = np.arange(2000) % 10, rng.normal(size=2000)
        >>> right = rng.random(2000) < 1 / (1 + np.exp(-3 * score))
        >>> judge = fit_segments(score, right, task, pooling="partial")
        >>> gates = gate(judge, rng.normal(size=4000), np.arange(4000) % 10)
        >>> bool((gates["lower"] >= 0.95).all()), float(gates["share"].mean().round(2))
        (True, 0.25)
    """
    if isinstance(calibrator, OneVsRestCalibrator):
        pairs = _pairs(calibrator, scores, segments)
        given: dict[str, Any] = dict(precision=precision, level=level, side=side)
        return tables.by_class(gate(calibrator.by_class, *pairs, **given))
    require_segment_calibrator(calibrator, "calibrator")
    validation.require_fraction(precision, "precision")
    validation.require_fraction(level, "level")
    validation.require_one_of(side, (POSITIVE, NEGATIVE, BOTH), "side")
    if isinstance(scores, SegmentRows):
        rows = row_arrays(scores, "weights", "offset", segments=segments)
        scores, segments = rows.scores, rows.segments
    validation.require_each(scores, segments=segments)
    scores = validation.numbers(scores, "scores").astype(np.float64)
    validation.require_flat(scores, "scores")
    owner, keys = distinct(ids.read_like(calibrator.keys, segments, len(scores)))
    known = _known(calibrator, scores, owner, keys)
    sides = [POSITIVE, NEGATIVE] if side == BOTH else [side]
    quantile = NormalDist().inv_cdf(level)
    found = [_side(known, x, precision, quantile, side == BOTH) for x in sides]
    order = np.argsort(np.tile(np.arange(len(keys)), len(sides)), kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([x[name] for x in found])[order] for name in found[0]
    }
    columns["target"] = np.full(len(order), float(precision))
    columns["basis"] = np.full(len(order), "model")
    columns["status"] = columns.pop("status")
    return tables.keyed("segment", np.tile(keys, len(sides))[order], columns)


def _pairs(
    calibrator: OneVsRestCalibrator, scores: Column, segments: Column
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores and class ids of all pairs of a row and a class."""
    if isinstance(scores, ClassRows):
        rows = row_arrays(scores, "weights", "offset", segments=segments)
        return rows.scores, rows.segments
    if segments is not None:
        raise ValueError("segments: expected none for a calibrator of classes")
    table = validation.numbers(scores, "scores")
    number = len(calibrator.classes)
    if table.ndim != 2 or table.shape[1] != number:
        raise ValueError(
            f"scores: expected shape (N, {number}), a column per class, got {table.shape}"
        )
    return table.T.reshape(-1), np.repeat(calibrator.classes, len(table))


class _Known(NamedTuple):
    """Rows (N,) of segments (S,) end to end, by ascending scores, and what is known of curves."""

    groups: Groups
    scores: Floats
    proba: Floats  # the predictions
    mode: Floats  # the probabilities at the mean of (A, B)
    slope: Floats  # (S,) the mean of A
    covariance: Floats  # (3, S)
    finite: Bools  # (S,) whether the curve and all scores are finite
    usable: Bools  # (S,) whether the curve's distribution is known


def _known(
    calibrator: SegmentCalibrator, scores: Floats, owner: NDArray[Any], keys: NDArray[Any]
) -> _Known:
    place = get_indexer(calibrator.keys, split_columns(keys), "segments")
    proba = calibrator.predict_proba(scores, keys[owner]).astype(np.float64)
    posterior = posteriors(calibrator, keys, place)
    A, B = np.array(posterior.mean.T, np.float64)
    finite = np.bincount(owner, ~np.isfinite(scores + proba), len(keys)) == 0
    scores = np.where(finite[owner], scores, 0.0)
    order = np.lexsort((scores, owner))
    return _Known(
        Groups(np.bincount(owner, minlength=len(keys))),
        scores[order],
        proba[order],
        expit(-(A[owner] * scores + B[owner]))[order],
        A,
        np.stack([posterior.covariance[:, i, j] for i, j in UPPER]).astype(np.float64),
        finite,
        posterior.usable,
    )


def _side(
    known: _Known, side: str, target: float, quantile: float, halves: bool
) -> dict[str, NDArray[Any]]:
    """The columns of one side; rows are accepted from the last one of a segment on downwards."""
    groups, scores, covariance = known.groups, known.scores, known.covariance
    proba, mode = known.proba, known.mode
    if side == NEGATIVE:  # class 1 is class 0 of the opposite scores
        back = groups.by_row(2 * groups.starts + groups.sizes - 1) - np.arange(groups.rows)
        scores, proba, mode = -scores[back], (1 - proba)[back], (1 - mode)[back]
        covariance = covariance * np.array([[1.0], [-1.0], [1.0]])
    expected = _tail_means(groups, proba)
    lower, error = _lower(groups, scores, mode, covariance, quantile)
    lower = np.minimum(lower, expected)
    allowed = lower >= target
    if halves:
        allowed &= proba >= 0.5 if side == POSITIVE else proba > 0.5
    # Rows of one score are accepted together.
    first_of_score = np.append(True, scores[1:] != scores[:-1])[: groups.rows]
    first_of_score[groups.starts[groups.sizes > 0]] = True
    place = np.where(allowed & first_of_score, groups.place, groups.by_row(groups.sizes))
    first = groups.minima(place)
    status = np.select(
        [~known.finite, ~known.usable, known.slope > 0, first >= groups.sizes],
        ["NON_FINITE", "TOO_FEW", "REVERSED", "UNREACHED"],
        "OK",
    )
    good = status == "OK"
    row = (groups.starts + np.where(good, first, 0)).astype(np.int64)
    sign = 1.0 if side == POSITIVE else -1.0
    return {
        "side": np.full(len(good), side),
        "rows": groups.sizes,
        "threshold": np.where(good, sign * scores[row], sign * np.inf),
        "share": np.where(good, 1 - first / groups.sizes, 0.0),
        "precision": np.where(good, expected[row], np.nan),
        "standard_error": np.where(good, error[row], np.nan),
        "lower": np.where(good, lower[row], np.nan),
        "status": status,
    }


def _lower(
    groups: Groups, scores: Floats, mode: Floats, covariance: Floats, quantile: float
) -> tuple[Floats, Floats]:
    """(N,) bounds of the precision from each row to the last of its segment, and its errors."""
    center = groups.by_row(groups.means(scores))
    unit = groups.by_row(np.maximum(groups.maxima(np.abs(scores - center)), _TINY))
    d = mode * (1 - mode)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.stack([mode, 1 - mode, d, d * (scores - center) / unit])
        m, rest, weight, moment = _tail_means(groups, terms)
        at = center + unit * moment / weight
        variance = variance_of_logit(at, *groups.by_row(covariance))
        # Where all rows are certain, the curve's uncertainty does not matter.
        error = np.where(weight > 0, weight * np.sqrt(variance), 0.0)
        lower = np.log(m) - np.log(rest) - quantile * error / (m * rest)
    return np.where(rest > 0, expit(lower), 1.0), error


def _tail_means(groups: Groups, x: Floats) -> Floats:
    """(..., N) means of x (..., N) from each row to the last of its group.

    Groups of like sizes are lines of a matrix: no mean depends on other groups.
    """
    made = np.empty_like(x)
    lengths = np.ceil(np.log2(np.maximum(groups.sizes, 1)))
    for length in np.unique(lengths[groups.sizes > 0]):
        some = np.flatnonzero((lengths == length) & (groups.sizes > 0))
        width = int(groups.sizes[some].max())
        # From the last row of a group on backwards.
        place, number = np.arange(width), np.arange(1, width + 1)
        ends = groups.starts[some] + groups.sizes[some] - 1
        rows = np.maximum(ends[:, None] - place, groups.starts[some][:, None])
        inside = place < groups.sizes[some][:, None]
        made[..., rows[inside]] = (np.cumsum(x[..., rows], axis=-1) / number)[..., inside]
    return made
