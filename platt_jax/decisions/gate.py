"""Which rows of a segment to accept, so that a share of them is right: gates by fitted curves.

Of rows on a GPU, from which on they are accepted is found there, by sorts and sums of segments.
"""

from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column, takes_columns
from platt_jax.decisions.accepted import (
    FirstAccepted,
    KnownRows,
    known_rows,
    least_variance,
    require_curves,
    require_finite,
    status_of,
    tail_terms,
    tails,
    tails_of_means,
)
from platt_jax.decisions.exact import first_certified, hard_labels
from platt_jax.execution.class_rows import ClassRows
from platt_jax.execution.predicted_rows import are_there, places, unlabelled_rows, with_predictions
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.passes.columns import Columns
from platt_jax.population.device_segments import fetched
from platt_jax.results import tables
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import UPPER, expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table

POSITIVE, NEGATIVE, BOTH = "positive", "negative", "both"


@takes_columns
def gate(
    calibrator: SegmentCalibrator | OneVsRestCalibrator,
    scores: Column,
    segments: Column = None,
    *,
    precision: float = 0.95,
    level: float = 0.95,
    side: str = POSITIVE,
    weights: Column = None,
    labels: Column = None,
) -> Table:
    """The rows of each segment to accept, so that at least a given share of them is right.

    Among the rows of a segment with scores from a threshold on, the mean probability is the
    expected precision. Its lower bound allows for the uncertainty of the segment's curve, as
    `triage` knows it. The gate is the lowest threshold whose bound reaches the precision.

    If the curves are sigmoids of one population, and segments are pooled, at a level of 95 % at
    most about one gated segment in twenty has a lower precision than was asked for. For a curve of
    another shape nothing holds, and more labels make it worse. `certify` says of fresh labels which
    gates hold, and needs no curve. docs/explanation/numbers.md has simulations of both.

    With `labels` no curve is needed: the gate is the lowest of some thresholds, each of which
    accepts about a tenth more rows, that exact binomial tests do not reject, from the most cautious
    one on. In each segment, with probability `level`, at least the share `precision` of such rows
    is right, for a curve of any shape. That needs 59 accepted rows without a mistake for 95 %, and
    598 for 99.5 %. The rows must be independent, and not those of the fit.

    Quadratic, beta and spline curves have the same bound, with the covariance of their own
    parameters; these are not pooled, so they need more labels. Other curves have no standard
    errors, and are refused.

    Args:
        calibrator: result of `fit_segments` or `fit_one_vs_rest`, with sigmoids, or with quadratic,
            beta or spline curves.
        scores: (N,) scores of rows, labelled or not: new rows, or the fitted ones; or
            SegmentRows, whose labels are not used. For classes (N, C), or ClassRows. Rows of scores
            on a GPU stay there if the curves are sigmoids; else they are copied to the host.
        segments: (N,) their segments, or one id for all; None for SegmentRows and for classes.
        precision: the share of the accepted rows that is to be right, in (0, 1).
        level: the probability with which each segment's bound is to hold, in (0, 1). The bound is
            one-sided.
        side: "positive" accepts rows as class 1, from a threshold on; "negative" accepts them as
            class 0, up to a threshold; "both" does both, and takes no row as a class whose
            probability by the curves is below one half, with labels too.
        weights: (N,) how many rows each row stands for, >= 0, as in a sample of which some rows
            were drawn more often than others: shares and precisions are then meant of all rows.
            Rows of weight 0 are left out. None for 1 each, or for the weights of SegmentRows.
        labels: (N,) labels of the rows, as in `fit_segments`, for exact thresholds; None for those
            by the curves. With labels rows have no weights, are on the host, and are no rows of
            classes.

    Returns:
        A Table with a line for each segment of the rows, in ascending order, and with "both" for
        each side of it, and the columns

        - `segment`, or one column for each of its several columns; for classes `class`;
        - `side`, "positive" or "negative", and `rows`, counted without their weights;
        - `threshold`: rows with this score or a higher one are accepted, with side "negative" this
          or a lower one. Infinite if none is;
        - `share` of the rows that is accepted;
        - `precision` that is expected of them, its `standard_error` by the curve's, and its bound
          `lower`, all NaN if none is accepted; with labels the share of right ones, NaN, and its
          Clopper-Pearson bound, which does not allow for the choice of the threshold: only
          `target` does; and `target`, the precision that was asked for;
        - `basis`, "model": they hold as far as the curves do; with labels "exact";
        - `status`: OK; UNREACHED, no threshold reaches the target; REVERSED, lower scores are more
          probable in this segment; NOT_MONOTONE, a curve that is no sigmoid falls somewhere;
          TOO_FEW, too little is known of the segment's curve, see `triage`, or with labels so many
          rows would not suffice if all were right; NON_FINITE, the curve
          is NaN or a score is not finite. No row is accepted unless it is OK.

    Raises:
        ValueError: an argument is not as above; SegmentRows have an offset; the calibrator has
            curves without standard errors.

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
        if labels is not None:
            raise ValueError("labels: expected None for a calibrator of classes")
        *pairs, weights = _pairs(calibrator, scores, segments, weights)
        request: dict[str, Any] = dict(precision=precision, level=level, side=side, weights=weights)
        return tables.by_class(gate(calibrator.by_class, *pairs, **request))
    validation.require_fraction(precision, "precision")
    validation.require_fraction(level, "level")
    validation.require_one_of(side, (POSITIVE, NEGATIVE, BOTH), "side")
    require_curves(calibrator)
    on_device = are_there(calibrator, scores)
    if labels is not None:
        _require_plain(weights, not (on_device or isinstance(scores, SegmentRows)))
    sides = [POSITIVE, NEGATIVE] if side == BOTH else [side]
    rule = precision, NormalDist().inv_cdf(level), side == BOTH
    if on_device:
        device_rows = _KnownThere(calibrator, scores, segments, weights)
        keys, status = device_rows.keys, device_rows.status
        firsts = [device_rows.first_accepted(x == POSITIVE, *rule) for x in sides]
    else:
        y = None if labels is None else hard_labels(labels, validation.numbers(scores, "scores"))

        def work(known: KnownRows) -> tuple[Any, ...]:
            if y is None:
                return known.status, *(_first_accepted(known, x == POSITIVE, *rule) for x in sides)
            exact = precision, level, y, side == BOTH
            gates = [first_certified(known, x == POSITIVE, *exact) for x in sides]
            return gates[0][0], *(first for _, first in gates)

        keys, pieces = known_rows(calibrator, scores, segments, weights, work)
        status, *firsts = jax.tree.map(lambda *x: np.concatenate(x), *pieces)
    parts = [_side(x, status, first) for x, first in zip(sides, firsts, strict=True)]
    order = np.argsort(np.tile(np.arange(len(keys)), len(sides)), kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([x[name] for x in parts])[order] for name in parts[0]
    }
    columns["target"] = np.full(len(order), float(precision))
    columns["basis"] = np.full(len(order), "model" if labels is None else "exact")
    columns["status"] = columns.pop("status")
    return tables.keyed("segment", np.tile(keys, len(sides))[order], columns)


def _require_plain(weights: Column, plain: bool) -> None:
    """Refuses rows that have no exact thresholds."""
    if weights is not None:
        raise ValueError("weights: expected None beside labels: an exact test counts rows")
    if not plain:
        raise ValueError(
            "scores: expected an array on the host beside labels; pass scores, segments and labels "
            "of rows apart"
        )


def _pairs(
    calibrator: OneVsRestCalibrator, scores: Column, segments: Column, weights: Column
) -> tuple[Any, Column, Column]:
    """Scores, class ids and weights of all pairs of a row and a class."""
    if isinstance(scores, ClassRows):
        if scores.device is not None:
            return scores, segments, weights
        rows = row_arrays(scores, "offset", segments=segments, weights=weights)
        return rows.scores, rows.segments, rows.weights
    if segments is not None:
        raise ValueError("segments: expected none for a calibrator of classes")
    on_device = accelerators.holds(scores)
    f = accelerators.taken(scores) if on_device else validation.numbers(scores, "scores")
    number = len(calibrator.classes)
    if f.ndim != 2 or f.shape[1] != number:
        raise ValueError(f"scores: expected shape (N, {number}), a column per class, got {f.shape}")
    if weights is not None:
        w = validation.broadcast(validation.numbers(weights, "weights"), (len(f),), "weights")
        weights = np.tile(w, number)
    pairs = run_programs(lambda: f.T.reshape(-1), x64=True) if on_device else f.T.reshape(-1)
    return pairs, np.repeat(calibrator.classes, len(f)), weights


def _first_accepted(
    known: KnownRows, positive: bool, target: float, quantile: float, halves: bool
) -> FirstAccepted:
    """Rows are accepted from the last one of a segment on downwards."""
    if not positive:  # class 1 is class 0 of the opposite scores
        known = known.reversed()
    groups, scores, proba = known.groups, known.scores, known.proba
    accepted = tails(known, quantile)
    allowed = accepted.lower >= target
    if halves:
        allowed &= proba >= 0.5 if positive else proba > 0.5
    # Rows of one score are accepted together.
    first_of_score = np.append(True, scores[1:] != scores[:-1])[: groups.rows]
    first_of_score[groups.starts] = True
    position = np.where(allowed & first_of_score, groups.place, groups.by_row(groups.sizes))
    first = groups.minima(position)
    reached = first < groups.sizes
    row = (groups.starts + np.where(reached, first, 0)).astype(np.int64)
    score = scores[row] if positive else -scores[row]
    share = accepted.weight[row] / accepted.weight[groups.starts]
    estimates = accepted.precision[row], accepted.error[row], accepted.lower[row]
    return FirstAccepted(groups.sizes, reached, score, share, *estimates)


def _side(side: str, status: NDArray[Any], first: FirstAccepted) -> dict[str, NDArray[Any]]:
    """The columns of one side."""
    status = np.where((status == "OK") & ~first.reached, "UNREACHED", status)
    good = status == "OK"
    return {
        "side": np.full(len(good), side),
        "rows": first.rows,
        "threshold": np.where(good, first.score, np.inf if side == POSITIVE else -np.inf),
        "share": np.where(good, first.share, 0.0),
        "precision": np.where(good, first.precision, np.nan),
        "standard_error": np.where(good, first.error, np.nan),
        "lower": np.where(good, first.lower, np.nan),
        "status": status,
    }


# --- rows on a GPU --------------------------------------------------------------------------------


class _KnownThere:
    """Rows of segments (S,) on a device, and what a calibrator with sigmoids knows of them.

    Attributes:
        keys: (S,) segments of the rows, ascending; without those whose rows all have weight 0.
        status: (S,) as in `KnownRows`.
    """

    def __init__(
        self, calibrator: SegmentCalibrator, scores: Column, segments: Column, weights: Column
    ) -> None:
        calibrator = fetched(calibrator)
        rows: Any = unlabelled_rows(scores, segments, without=["offset"], weights=weights)
        keys = rows.keys[rows.largest_first]
        with jax.default_device(rows.device):
            self._rows = with_predictions(rows, calibrator)
            number, bad, odd = self._rows.map(_facts).T
        require_finite(not odd.any())
        posterior = posteriors(calibrator, keys, places(rows, calibrator))
        A, B = np.array(posterior.curves.mean.T, np.float64)
        covariance = [posterior.curves.covariance[:, i, j].astype(np.float64) for i, j in UPPER]
        self._numbers, self._device = (A, B, *covariance), rows.device
        ascending = np.argsort(rows.largest_first)
        self._order = ascending[number[ascending] > 0]
        self._number = number[self._order].astype(np.int64)
        self.keys = keys[self._order]
        status = status_of(bad == 0, posterior.usable, np.where(A > 0, "REVERSED", "OK"))
        self.status: NDArray[Any] = status[self._order]

    def first_accepted(
        self, positive: bool, target: float, quantile: float, halves: bool
    ) -> FirstAccepted:
        """As class 1, or as class 0, given the precision asked for and the bound's quantile.

        With `halves` no row is taken as a class whose probability is below one half.
        """
        least = 0.0 if not halves else 0.5 if positive else np.nextafter(0.5, 1)
        arguments = 1.0 if positive else -1.0, target, quantile, least
        columns = (np.full(len(self._numbers[0]), x) for x in arguments)
        with jax.default_device(self._device):
            results = self._rows.map(_first_accepted_there, *self._numbers, *columns)[self._order].T
        reached, *numbers = results
        return FirstAccepted(self._number, reached > 0, *numbers)


def _facts(rows: Columns, inside: jax.Array) -> jax.Array:
    """(k, 3) numbers of rows, of those that are not finite, and of weights that are not."""
    counted, weights = _counted(rows, inside)
    bad = counted & ~jnp.isfinite(rows.scores + rows.offset)
    columns = counted, bad, counted & ~jnp.isfinite(weights)
    return jnp.stack([jnp.sum(x, -1, dtype=np.float64) for x in columns], -1)


def _first_accepted_there(
    rows: Columns,
    inside: jax.Array,
    A: jax.Array,
    B: jax.Array,
    c_AA: jax.Array,
    c_AB: jax.Array,
    c_BB: jax.Array,
    sign: jax.Array,
    target: jax.Array,
    quantile: jax.Array,
    least: jax.Array,
) -> jax.Array:
    """(k, 6) the fields of `FirstAccepted` but for the first; predictions are the offset.

    With the sign -1 class 1 is class 0 of the opposite scores. A row is accepted only if its
    probability is at least `least`.
    """
    counted, w = _counted(rows, inside)
    f = jnp.where(counted & jnp.isfinite(rows.scores), rows.scores, 0)
    number = jnp.sum(counted, -1, keepdims=True)
    center, unit = least_variance(c_AA, c_AB, jnp)
    by_score = jnp.where(counted, sign * f, jnp.inf), w, rows.offset
    score, w, proba = lax.sort(by_score, num_keys=1)
    position = jnp.arange(score.shape[1])[None]
    is_row = position < number
    f, w = jnp.where(is_row, sign * score, 0), jnp.where(is_row, w, 0)
    proba, mode = (jnp.where(sign > 0, x, 1 - x) for x in (proba, expit(-(A * f + B))))

    def variance(means: jax.Array) -> jax.Array:
        return variance_of_logit(center + unit * means[0], c_AA, c_AB, c_BB)

    terms = tail_terms(proba, mode, ((f - center) / unit)[None], jnp)
    weight = lax.cumsum(w, 1, reverse=True)
    means = lax.cumsum(terms * w[None], 2, reverse=True) / weight[None]
    accepted = tails_of_means(weight, means, variance, quantile, jnp)
    # Rows of one score are accepted together.
    first_of_score = jnp.pad(f[:, 1:] != f[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    allowed = is_row & first_of_score & (accepted.lower >= target) & (proba >= least)
    first = jnp.min(jnp.where(allowed, position, position.size), -1, keepdims=True)
    reached = first < number
    row = jnp.where(reached, first, 0)
    columns = f, weight / weight[:, :1], accepted.precision, accepted.error, accepted.lower
    picked = [jnp.take_along_axis(x, row, 1) for x in columns]
    return jnp.concatenate([reached.astype(np.float64), *picked], -1)


def _counted(rows: Columns, inside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which rows have another weight than 0, and the weights."""
    weights = jnp.ones_like(rows.scores) if rows.weights is None else rows.weights
    return inside & (weights != 0), weights
