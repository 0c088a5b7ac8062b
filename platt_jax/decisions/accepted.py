"""What is known of the rows of each segment from a score on: how many are right, and how surely.

The log-odds of a row are linear in a curve's parameters, x'theta. With s the probability of a row
at their mean, and d = s (1 - s), the precision of the rows from a score on is m = mean of s. Its
derivative by theta is the mean of d x, or (mean of d) times X, the mean of x weighted by d. So its
variance is (mean of d)^2 X'C X with the covariance C of theta, and by the delta method the log-odds
of m have a standard error of its root over m (1 - m). With the mean over theta in place of s, the
uncertainty would count twice. For a sigmoid x is (f, 1), and X'C X is the variance of the log-odds
at the mean score. Rows may have weights, with which all means are weighted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Ints
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.posteriors import LEAST_ROWS, posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.probabilities import UPPER, expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator

TINY = 1e-300  # a unit of scores that are all the same


class KnownRows(NamedTuple):
    """Rows (N,) of segments (S,) end to end, by ascending scores, and what is known of curves."""

    groups: Groups
    place: Ints  # (N,) the rows' places among those given
    scores: Floats
    weights: Floats  # > 0
    proba: Floats  # the predictions
    mode: Floats  # the probabilities at the mean of the parameters
    terms: Floats  # (P, N) the functions x of a row, but the constant one
    # From means of terms (P, N) to the variance (N,) of the log-odds there.
    variance: Callable[[Floats], Floats]
    status: NDArray[Any]  # (S,) OK, or why no row is accepted

    def reversed(self) -> "KnownRows":
        """The rows of each segment by descending scores, and as class 0 where they were class 1."""
        back = self.groups.by_row(2 * self.groups.starts + self.groups.sizes - 1)
        back = back - np.arange(self.groups.rows)
        return self._replace(
            place=self.place[back],
            scores=-self.scores[back],
            weights=self.weights[back],
            proba=(1 - self.proba)[back],
            mode=(1 - self.mode)[back],
            terms=self.terms[:, back],
        )


class Tails(NamedTuple):
    """Of the rows from each row to the last of its segment (N,)."""

    weight: Any  # of all
    precision: Any  # the share that is expected to be right
    error: Any  # its standard error by the curve's
    lower: Any  # its bound


class FirstAccepted(NamedTuple):
    """The first row of each segment (S,) that is accepted; any row where none is."""

    rows: Any  # number of the segment's rows
    reached: Any  # whether a row is accepted
    score: Any
    share: Any  # of the rows that is accepted
    precision: Any  # as in `Tails`, as the next two
    error: Any
    lower: Any


def require_curves(calibrator: SegmentCalibrator) -> None:
    """Refuses calibrators whose curves have no distribution.

    Raises:
        ValueError: it is something else than a SegmentCalibrator, or has such curves.
    """
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    curves = calibrator.curves
    if curves is not None and not isinstance(curves, LogOddsCurves):
        raise ValueError(
            "calibrator: expected sigmoids, or quadratic, beta or spline curves, which have "
            f"standard errors; got a calibrator with {curves.label} curves"
        )


def require_finite(finite: Any) -> None:
    """Refuses weights that are not all finite."""
    if not finite:
        raise ValueError("weights: expected finite numbers, got NaN or infinite ones")


def known_rows(
    calibrator: SegmentCalibrator, scores: Column, segments: Column, weights: Column
) -> tuple[NDArray[Any], KnownRows]:
    """The segments (S,) of the rows, ascending, and what the calibrator knows of their rows.

    Rows of weight 0 are left out.

    Raises:
        ValueError: as by `gate`.
    """
    require_curves(calibrator)
    if isinstance(scores, SegmentRows):
        rows = row_arrays(scores, "offset", segments=segments, weights=weights)
        scores, segments, weights = rows.scores, rows.segments, rows.weights
    validation.require_each(scores, segments=segments)
    f = validation.numbers(scores, "scores").astype(np.float64)
    validation.require_flat(f, "scores")
    codes, keys = distinct(ids.read_like(calibrator.keys, segments, len(f)))
    w, some = np.ones(len(f)), np.arange(len(f))
    if weights is not None:
        given = validation.broadcast(validation.weights(weights, np.float64), f.shape, "weights")
        require_finite(np.isfinite(given).all())
        some = np.flatnonzero(given)
        f, w = f[some], np.asarray(given)[some]
        present, codes = np.unique(codes[some], return_inverse=True)
        keys = keys[present]
    known = _known(calibrator, f, w, codes, keys)
    return keys, known._replace(place=some[known.place])


def _known(
    calibrator: SegmentCalibrator,
    scores: Floats,
    weights: Floats,
    owner: NDArray[Any],
    keys: NDArray[Any],
) -> KnownRows:
    place = get_indexer(calibrator.keys, split_columns(keys), "segments")
    proba = calibrator.predict_proba(scores, keys[owner]).astype(np.float64)
    finite = np.bincount(owner, ~np.isfinite(scores + proba), len(keys)) == 0
    scores = np.where(finite[owner], scores, 0.0)
    order = np.lexsort((scores, owner))
    groups = Groups(np.bincount(owner, minlength=len(keys)))
    scores, weights, proba = (x[order] for x in (scores, weights, proba))
    made = _sigmoids if calibrator.curves is None else _other_curves
    mode, terms, variance, usable, wrong = made(calibrator, groups, scores, proba, keys, place)
    status = status_of(finite, usable, wrong)
    return KnownRows(groups, order, scores, weights, proba, mode, terms, variance, status)


def status_of(finite: Any, usable: Any, wrong: Any) -> NDArray[Any]:
    """The status of segments (S,), of which `wrong` says what is wrong with the curve, or ""."""
    return np.select([~finite, ~usable, wrong != ""], ["NON_FINITE", "TOO_FEW", wrong], "OK")


def _sigmoids(
    calibrator: SegmentCalibrator,
    groups: Groups,
    scores: Floats,
    proba: Floats,
    keys: NDArray[Any],
    place: NDArray[Any],
) -> tuple[Any, ...]:
    """Probabilities at the mean, terms, variance, whether it is known, and what is wrong."""
    posterior = posteriors(calibrator, keys, place)
    A, B = np.array(posterior.mean.T, np.float64)
    covariance = np.stack([posterior.covariance[:, i, j] for i, j in UPPER]).astype(np.float64)
    # In units of each segment, so that sums of scores lose no digits.
    center = groups.by_row(groups.means(scores))
    unit = groups.by_row(np.maximum(groups.maxima(np.abs(scores - center)), TINY))

    def variance(means: Floats) -> Floats:
        return np.asarray(variance_of_logit(center + unit * means[0], *groups.by_row(covariance)))

    mode = expit(-(groups.by_row(A) * scores + groups.by_row(B)))
    terms = ((scores - center) / unit)[None]
    return mode, terms, variance, posterior.usable, np.where(A > 0, "REVERSED", "")


def _other_curves(
    calibrator: SegmentCalibrator,
    groups: Groups,
    scores: Floats,
    proba: Floats,
    keys: NDArray[Any],
    place: NDArray[Any],
) -> tuple[Any, ...]:
    """As `_sigmoids`, of curves whose log-odds are linear in parameters."""
    curves: Any = calibrator.curves
    place = np.where(place < 0, len(calibrator.keys), place)
    covariance = np.asarray(curves.covariance, np.float64)[place]
    fit = calibrator.fit
    # The last is of segments that were not fitted.
    rows = np.append(np.asarray(fit.n_pos, float) + np.asarray(fit.n_neg, float), 0)[place]
    enough = (rows >= LEAST_ROWS) | (calibrator.pooling == "complete")
    usable = enough & np.isfinite(covariance).all((1, 2))
    terms = np.stack(curves.functions(scores, groups.by_row(place))[1:]).astype(np.float64)

    def variance(means: Floats) -> Floats:
        x = [np.ones(means.shape[1]), *means]
        each = ((i, j) for i in range(len(x)) for j in range(len(x)))
        return np.asarray(sum(groups.by_row(covariance[:, i, j]) * x[i] * x[j] for i, j in each))

    monotone = curves.only(place).is_monotone
    return proba, terms, variance, usable, np.where(monotone, "", "NOT_MONOTONE")


def tails(known: KnownRows, quantile: float) -> Tails:
    """What is expected of the rows from each on, with bounds at this normal quantile."""
    terms = tail_terms(known.proba, known.mode, known.terms, np)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = _tail_means(known.groups, known.weights, terms)
        return tails_of_means(*means, known.variance, quantile, np)


def tail_terms(proba: Any, mode: Any, terms: Any, xp: Any) -> Any:
    """Numbers of rows whose means `tails_of_means` takes; arguments as in `KnownRows`."""
    d = mode * (1 - mode)
    return xp.stack([proba, mode, 1 - mode, d, *(d[None] * terms)])


def tails_of_means(
    weight: Any, means: Any, variance_at: Callable[[Any], Any], quantile: Any, xp: Any
) -> Tails:
    """See `Tails`, from the means of `tail_terms`; `variance_at` is as in `KnownRows`."""
    expected, m, rest, certain, *moments = means
    variance = xp.maximum(variance_at(xp.stack(moments) / certain[None]), 0)
    # Where all rows are certain, the curve's uncertainty does not matter.
    error = xp.where(certain > 0, certain * xp.sqrt(variance), 0.0)
    bound = expit(xp.log(m) - xp.log(rest) - quantile * error / (m * rest))
    lower = xp.minimum(xp.where(rest > 0, bound, 1.0), expected)
    return Tails(weight, expected, error, lower)


def _tail_means(groups: Groups, weights: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Weights (N,) and means of x (..., N) of the rows from each to the last of its group.

    Groups of like sizes are lines of a matrix: no mean depends on other groups.
    """
    total, made = np.empty_like(weights), np.empty_like(x)
    lengths = np.ceil(np.log2(np.maximum(groups.sizes, 1)))
    for length in np.unique(lengths[groups.sizes > 0]):
        some = np.flatnonzero((lengths == length) & (groups.sizes > 0))
        place = np.arange(int(groups.sizes[some].max()))
        # From the last row of a group on backwards.
        ends = groups.starts[some] + groups.sizes[some] - 1
        rows = np.maximum(ends[:, None] - place, groups.starts[some][:, None])
        inside = place < groups.sizes[some][:, None]
        weight = np.cumsum(weights[rows], axis=-1)
        sums = np.cumsum(x[..., rows] * weights[rows], axis=-1)
        total[rows[inside]] = weight[inside]
        made[..., rows[inside]] = (sums / weight)[..., inside]
    return total, made
