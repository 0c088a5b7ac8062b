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
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Integers, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.groups import Groups, order_by
from platt_jax.hypothesis_tests.posteriors import LEAST_ROWS, SegmentPosteriors, posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.results.fit import inspected
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.probabilities import UPPER, expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator

_Made = TypeVar("_Made")


class KnownRows(NamedTuple):
    """Rows (N,) of segments (S,) end to end, by ascending scores, and what is known of curves."""

    groups: Groups
    place: Ints  # (N,) the rows' places among those given
    scores: Floats
    weights: Floats  # > 0
    proba: Floats  # the predictions
    mode: Floats  # the probabilities at the mean of the parameters
    terms: Floats  # (P, N) the functions x of a row, but the constant one
    covariance: Floats  # (S, P + 1, P + 1) of the parameters, the constant one first
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
    calibrator: SegmentCalibrator,
    scores: Column,
    segments: Column,
    weights: Column,
    work: Callable[[KnownRows], _Made],
    at_once: int = 1 << 16,
) -> tuple[NDArray[Any], list[_Made]]:
    """The segments (S,) of the rows, ascending, and what work makes of what is known of their rows.

    Rows of weight 0 are left out. Work gets segments with `at_once` rows or fewer together, which
    fit a cache, or one larger segment.

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
    w, indices = np.ones(len(f)), np.arange(len(f))
    if weights is not None:
        values = validation.broadcast(validation.weights(weights, np.float64), f.shape, "weights")
        require_finite(np.isfinite(values).all())
        indices = np.flatnonzero(values)
        f, w = f[indices], np.asarray(values)[indices]
        present, codes = np.unique(codes[indices], return_inverse=True)
        keys = keys[present]
    return keys, _known(calibrator, _GivenRows(f, w, codes, indices), keys, work, at_once)


class _GivenRows(NamedTuple):
    """Rows (N,) as given."""

    scores: Floats
    weights: Floats
    owner: NDArray[Any]  # the numbers of their segments
    place: Ints  # as in `KnownRows`


def _known(
    calibrator: SegmentCalibrator,
    given: _GivenRows,
    keys: NDArray[Any],
    work: Callable[[KnownRows], _Made],
    at_once: int,
) -> list[_Made]:
    scores, owner = given.scores, given.owner
    proba = calibrator.predict_proba(scores, keys[owner]).astype(np.float64)
    finite = np.bincount(owner, ~np.isfinite(scores + proba), len(keys)) == 0
    groups, order = Groups(np.bincount(owner, minlength=len(keys))), order_by(owner)
    indices = get_indexer(calibrator.keys, split_columns(keys), "segments")
    posterior = posteriors(calibrator, keys, indices) if calibrator.curves is None else None

    def computed(some: slice) -> _Made:
        spans, start = Groups(groups.sizes[some]), groups.starts[some].min(initial=groups.rows)
        rows = order[start : start + spans.rows]
        f = np.where(spans.by_row(finite[some]), scores[rows], 0.0)
        within = spans.order(f)
        rows, f = rows[within], f[within]
        p = proba[rows]
        if posterior is not None:
            curves = _sigmoids(posterior.of(some), spans, f)
        else:
            curves = _other_curves(calibrator, indices[some], spans, f, p)
        status = status_of(finite[some], curves.usable, curves.wrong)
        fields = given.place[rows], f, given.weights[rows], p
        return work(KnownRows(spans, *fields, curves.mode, curves.terms, curves.covariance, status))

    return list(ordered_map(computed, list(groups.slices(at_once)) or [slice(0)]))


def status_of(finite: Any, usable: Any, wrong: Any) -> NDArray[Any]:
    """The status of segments (S,), of which `wrong` is "OK", or says why no row is accepted."""
    return np.select([~finite, ~usable], ["NON_FINITE", "TOO_FEW"], wrong)


class _Curves(NamedTuple):
    """The curves of S segments with N rows; the first three as in `KnownRows`."""

    mode: Floats
    terms: Floats
    covariance: Floats
    usable: Bools  # (S,) whether the covariance is known
    wrong: NDArray[Any]  # (S,) "OK", or why no row is accepted though it is


def _sigmoids(posterior: SegmentPosteriors, groups: Groups, scores: Floats) -> _Curves:
    """Log-odds -(A f + B) as functions of t = (f - center) / unit."""
    A, B = np.array(posterior.curves.mean.T, np.float64)
    c_AA, c_AB, c_BB = (posterior.curves.covariance[:, i, j].astype(np.float64) for i, j in UPPER)
    center, unit = least_variance(c_AA, c_AB, np)
    cross = unit * (c_AA * center + c_AB)
    constant = variance_of_logit(center, c_AA, c_AB, c_BB)
    return _Curves(
        expit(-(groups.by_row(A) * scores + groups.by_row(B))),
        ((scores - groups.by_row(center)) / groups.by_row(unit))[None],
        np.array([[constant, cross], [cross, unit**2 * c_AA]]).transpose(2, 0, 1),
        posterior.usable,
        np.where(A > 0, "REVERSED", "OK"),
    )


def least_variance(c_AA: Any, c_AB: Any, xp: Any) -> tuple[Any, Any]:
    """The score (S,) whose log-odds have the least variance, and a step from there that adds 1.

    Sums of scores in these coordinates keep their digits however far out one score is.
    """
    varies = c_AA > 0
    c_AA = xp.where(varies, c_AA, 1)
    return xp.where(varies, -c_AB / c_AA, 0), 1 / xp.sqrt(c_AA)


def _other_curves(
    calibrator: SegmentCalibrator, place: Integers, groups: Groups, scores: Floats, proba: Floats
) -> _Curves:
    """Of curves whose log-odds are linear in parameters."""
    curves: Any = calibrator.curves
    place = np.where(place < 0, len(calibrator.keys), place)
    covariance = np.asarray(curves.covariance, np.float64)[place]
    fit, *_ = inspected(calibrator, any_curve=True)
    # The last is of segments that were not fitted.
    rows = np.append(np.asarray(fit.n_pos, float) + np.asarray(fit.n_neg, float), 0)[place]
    enough = (rows >= LEAST_ROWS) | (calibrator.pooling == "complete")
    return _Curves(
        proba,
        np.stack(curves.functions(scores, groups.by_row(place))[1:]).astype(np.float64),
        covariance,
        enough & np.isfinite(covariance).all((1, 2)),
        np.where(curves.only(place).is_monotone, "OK", "NOT_MONOTONE"),
    )


def tails(known: KnownRows, quantile: float) -> Tails:
    """What is expected of the rows from each on, with bounds at this normal quantile."""
    terms = tail_terms(known.proba, known.mode, known.terms, np)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = _tail_means(known.groups, known.weights, terms)
        return tails_of_means(*means, partial(_variance, known), quantile, np)


def tail_terms(proba: Any, mode: Any, terms: Any, xp: Any) -> Any:
    """Numbers of rows whose means `tails_of_means` takes; arguments as in `KnownRows`."""
    d = mode * (1 - mode)
    return xp.stack([proba, mode, 1 - mode, d, *(d[None] * terms)])


def tails_of_means(
    weight: Any, means: Any, variance_at: Callable[[Any], Any], quantile: Any, xp: Any
) -> Tails:
    """See `Tails`, from the means of `tail_terms`.

    `variance_at` returns the variances of the log-odds where the functions have means (P, N).
    """
    expected, m, complement, certain, *moments = means
    variance = xp.maximum(variance_at(xp.stack(moments) / certain[None]), 0)
    # Where all rows are certain, the curve's uncertainty does not matter.
    error = xp.where(certain > 0, certain * xp.sqrt(variance), 0.0)
    bound = expit(xp.log(m) - xp.log(complement) - quantile * error / (m * complement))
    lower = xp.minimum(xp.where(complement > 0, bound, 1.0), expected)
    return Tails(weight, expected, error, lower)


def _variance(known: KnownRows, means: Floats) -> Floats:
    """(N,) the variances of the log-odds, where the functions have these values (P, N)."""
    terms = [1.0, *means]
    pairs = product(range(len(terms)), repeat=2)
    of_pair = known.groups.by_row
    return np.asarray(
        sum(of_pair(known.covariance[:, i, j]) * terms[i] * terms[j] for i, j in pairs)
    )


def _tail_means(groups: Groups, weights: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Weights (N,) and means of x (..., N) of the rows from each to the last of its group."""
    mirrored = Groups(groups.sizes[::-1])
    total, sums = (mirrored.cumulated(y[..., ::-1])[..., ::-1] for y in (weights, x * weights))
    return total, sums / total
