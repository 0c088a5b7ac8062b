"""Tests of segments' labels under uncertain curves, by two numbers of labels.

The first is the number of positives. The second, which changes with the slope, is the number of
positives among the rows of high score, plus negatives among the rows of low score. High and
low are the rows beyond the outer 27 % of the information, which find a slope best (Kelley 1939,
"The selection of upper and lower groups for the validation of test items"); so a common shift of
the log-odds changes this number little. A p-value is the probability of a number as far from its
expectation, above or below, where a curve is drawn from its distribution, and labels by the curve
(the predictive check of Box 1980, "Sampling and Bayes' inference in scientific modelling and
robustness"). Twice the smaller of both is the segment's (Bonferroni).
"""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.cluster_shocks import Clusters
from platt_jax.hypothesis_tests.curve_distributions import Distribution, Ends, Normal, counted
from platt_jax.hypothesis_tests.posteriors import SegmentPosteriors
from platt_jax.hypothesis_tests.uncertain_counts import CountTests, log_tails

_OUTER = 0.27
# Rows are joined whose log-odds differ by less than this, over the square root of their number: so
# the sums over all change little.
_SIMILAR = 3.0
# Share of a distance from the expectation that may be rounding error.
_TIED = 1e-9
# Rows of all tests that are computed together, to stay in a cache.
_AT_ONCE = 1 << 12


class UncertainRows(NamedTuple):
    """Rows of K segments, ascending by score in each, or by probability where offsets differ."""

    owner: Ints  # (N,) ascending
    labels: Bools  # (N,)
    proba: Floats  # (N,) mean probability
    variance: Floats  # (N,) mean of P(y=1) P(y=0)
    basis: Floats  # (2, N), the log-odds by those at the curve's ends
    offset: Floats | None  # (N,) log-odds added to the curve's
    clusters: Clusters | None  # of rows that depend on each other


class _Numbers(NamedTuple):
    """A number of labels of each segment: of positives, or of negatives where the sign is -1."""

    sign: Floats  # (N,); 0 for rows that do not count
    rows: Ints  # (K,) number of rows that count
    observed: Floats  # (K,)
    expected: Floats  # (K,)
    rising: Bools  # (K, 2) whether it rises with the log-odds at each end
    shock_variance: Floats | None  # (K,) of a shift of its rows' log-odds, by their clusters


def p_values(rows: UncertainRows, at: Ends, fitted: SegmentPosteriors) -> Floats:
    """(K,) p-values, with relative errors of a few percent; NaN if the clusters' variance is."""
    K = len(at.center)
    kinds = [_numbers(rows, sign, K) for sign in (np.ones(len(rows.owner)), _outer(rows, K))]
    if rows.clusters is not None and np.isnan(rows.clusters.variance):
        return np.full(K, np.nan)
    kinds_tested = sum((numbers.rows > 0).astype(float) for numbers in kinds)
    smallest = np.ones(K)
    for numbers in kinds:
        # A larger probability changes no result.
        enough = np.minimum(smallest, 1 / np.maximum(kinds_tested, 1))
        found = np.where(numbers.rows > 0, _two_sided(rows, numbers, at, fitted, enough), 1)
        smallest = np.minimum(smallest, found)
    return np.minimum(smallest * kinds_tested, 1)


def _numbers(rows: UncertainRows, sign: Floats, K: int) -> _Numbers:
    def total(x: Floats) -> Floats:
        return np.asarray(np.bincount(rows.owner, x, K), float)

    low = sign < 0
    slopes = np.stack([total(sign * rows.variance * x) for x in rows.basis], -1)
    return _Numbers(
        sign,
        total(np.abs(sign)).astype(np.int64),
        total(sign * rows.labels + low),
        total(sign * rows.proba + low),
        slopes > 0,
        rows.clusters and rows.clusters.shock_variance(rows.owner, sign * rows.variance, K),
    )


def _outer(rows: UncertainRows, K: int) -> Floats:
    """(N,) 1 for the rows of high score, -1 for rows of low score, 0 between; equal ones alike."""
    information = rows.variance + np.finfo(float).tiny
    new_owner = np.diff(rows.owner, prepend=-1) != 0
    whole = np.bincount(rows.owner, information, K)
    below = np.cumsum(information) - (np.cumsum(whole) - whole)[rows.owner]
    place = rows.basis[0] - rows.basis[1] if rows.offset is None else rows.proba
    tied = np.flatnonzero((np.diff(place, prepend=np.nan) != 0) | new_owner)
    middle = (below - information)[tied] + below[np.append(tied[1:], len(place)) - 1]
    share = np.repeat(middle, np.diff(tied, append=len(place))) / 2 / whole[rows.owner]
    # Rows of the least score are low, rows of the highest high, however many they are.
    first = np.flatnonzero(new_owner)
    last = np.append(first[1:], len(place)) - 1
    low, high = np.maximum(share[first], _OUTER), np.minimum(share[last], 1 - _OUTER)
    several = (place[first] != place[last])[rows.owner]
    is_low, is_high = share <= low[rows.owner], share >= high[rows.owner]
    sign: Floats = np.where(several, is_high * 1.0 - is_low, 0)
    return sign


def _two_sided(
    rows: UncertainRows, numbers: _Numbers, at: Ends, fitted: SegmentPosteriors, enough: Floats
) -> Floats:
    """(K,) probabilities of numbers as far from the expectation as the observed ones.

    Of segments whose probability is at least `enough` (K,), any number from there on.
    """
    away = np.abs(numbers.observed - numbers.expected)
    away = away - _TIED * (away + numbers.rows)
    most = numbers.rows.astype(float)
    total = np.zeros(len(most))
    # First the side of the observed number, which mostly has the larger tail.
    observed = np.where(numbers.observed >= numbers.expected, 1.0, -1.0)
    for side in (observed, -observed):
        above = side > 0
        number = numbers.expected + side * away
        least = np.where(above, np.ceil(number), most - np.floor(number))
        which = np.flatnonzero((most > 0) & (least <= most) & (total < enough))
        rising = numbers.rising == above[:, None]
        curves = _curves(at.of(which), fitted.of(which), rising[which])
        alike = _joined(rows, side[rows.owner] * numbers.sign, at)
        tails = _log_tails(
            alike, which, np.maximum(least[which], 1), curves, numbers.shock_variance
        )
        total[which] += np.exp(tails)
        total[(most > 0) & (least <= 0)] += 1
    return np.minimum(total, 1)


def _curves(at: Ends, fitted: SegmentPosteriors, rising: Bools) -> Distribution:
    if fitted.normal:
        return Normal(at.mean, at.variance)
    return counted(at, fitted.n_pos, fitted.n_neg, rising)


class _JoinedRows(NamedTuple):
    """Rows that count, with rows of similar log-odds joined, by the segment."""

    starts: Ints  # (K + 1,) of the segments
    basis: Floats  # (2, M), times the sign
    offset: Floats  # (M,)
    counts: Floats  # (M,)


def _joined(rows: UncertainRows, sign: Floats, at: Ends) -> _JoinedRows:
    some = np.flatnonzero(sign)
    owner, sign, K = rows.owner[some], sign[some], len(at.center)
    basis = rows.basis[:, some]
    offset = np.zeros(len(some)) if rows.offset is None else rows.offset[some]
    slope = np.abs(at.mean[:, 0] - at.mean[:, 1]) / 2 + np.sqrt(at.variance.sum(1))
    resolution = slope * np.sqrt(np.bincount(owner, minlength=K)) / _SIMILAR
    cell = np.floor((basis[0] - basis[1]) * resolution[owner])
    if rows.offset is not None:
        cell = np.arange(len(some))
    changes = [np.diff(x, prepend=np.nan) != 0 for x in (owner, sign, cell)]
    first = np.flatnonzero(np.any(changes, axis=0))
    alike = Groups(np.diff(first, append=len(some)))
    starts = np.searchsorted(owner[first], np.arange(K + 1))
    means = alike.means(basis * sign), alike.means(offset * sign)
    return _JoinedRows(starts, *means, alike.sizes.astype(float))


def _log_tails(
    alike: _JoinedRows, which: Ints, least: Floats, curves: Distribution, shocks: Floats | None
) -> Floats:
    """Log tails (T,) of the numbers of some segments (T,), many together."""
    sizes = np.diff(alike.starts)[which]
    # Few lengths, so that rounding does not depend on the other segments.
    steps = 1 << np.maximum(np.frexp(sizes - 0.5)[1] - 3, 0)
    lengths = -(-sizes // steps) * steps
    order = np.argsort(-lengths, kind="stable")
    found = np.zeros(len(which))

    def work(some: Ints) -> Floats:
        number, last = np.arange(lengths[some[0]]), sizes[some, None] - 1
        # Beyond the last row is the last one again, so that the range of log-odds is the rows'.
        at = alike.starts[which[some], None] + np.minimum(number, last)
        counts = np.where(number <= last, alike.counts[at], 0)
        shock = None if shocks is None else shocks[which[some]]
        tests = CountTests(alike.basis[:, at], alike.offset[at], counts, least[some], shock)
        return log_tails(tests, type(curves)(*(x[some] for x in curves)))

    changes = np.flatnonzero(np.diff(lengths[order])) + 1
    pieces = []
    for same in np.split(order, changes):
        step = max(1, _AT_ONCE // int(lengths[same[0]])) if len(same) else 1
        pieces += np.split(same, range(step, len(same), step))
    pieces = [x for x in pieces if len(x)]
    for some, tails in zip(pieces, ordered_map(work, pieces), strict=True):
        found[some] = tails
    return found
