"""Tests of segments' labels under uncertain curves, by two numbers of labels.

The first is the number of positives. The second, which changes with the slope, is the number of
positives among the rows of high score, plus negatives among the rows of low score. High and
low are the rows beyond the outer 27 % of the information, which find a slope best (Kelley 1939,
"The selection of upper and lower groups for the validation of test items"); so a common shift of
the log-odds changes this number little. A p-value is the probability of a number as far from its
expectation, above or below, where a curve is drawn from its distribution, and labels by the curve
(the predictive check of Box 1980, "Sampling and Bayes' inference in scientific modelling and
robustness"). Twice the smaller of both is the segment's (Bonferroni). An unpooled fit with few
labels of one class is tested by the first alone.

That probability is an integral over the curve's two ends. The quantile of the tail given the curve
is smooth in the curve's log-odds. So it is computed at few nodes and interpolated between them;
density and tail are then added up on a fine grid. The nodes are first spread over all curves that
matter for p-values of 1e-15, then over curves with nearly all of the sum.
"""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.cluster_shocks import Clusters
from platt_jax.hypothesis_tests.count_tails import quantiles
from platt_jax.hypothesis_tests.curve_distributions import Distribution, Ends, Normal, counted
from platt_jax.hypothesis_tests.posteriors import SegmentPosteriors

_OUTER = 0.27
# Rows are joined whose log-odds differ by less than this, over the square root of their number: so
# the sums over all change little.
_SIMILAR = 3.0
# Number of labels of the rarer class up to which Platt's targets shrink slopes by more than their
# errors say: of scores with heavy tails, p-values of 1e-4 would be 10 to 200 times too small.
_FEW_LABELS = 10
# Share of a distance from the expectation that may be rounding error.
_TIED = 1e-9
# Rows of all tests that are computed together, to stay in a cache.
_AT_ONCE = 1 << 12
# How much less than at the mode the log density is at the farthest curves, and the number of nodes
# of each search, at each end. The first tells tails of at least _LARGE, the others tails of 1e-12.
_FIRST, _LARGE = (8.0, 6), 0.02
_DEEPEST, _NODES = 40.0, (7, 7)
_NEGLIGIBLE = 12.0  # minus the log of a share of a sum that does not matter
_POINTS = 17, 33  # of the fine grid, for the first search and the others


class UncertainRows(NamedTuple):
    """Rows of K segments, ascending by score in each, or by probability where offsets differ."""

    owner: Ints  # (N,) ascending
    labels: Bools  # (N,)
    proba: Floats  # (N,) mean probability
    variance: Floats  # (N,) mean of P(y=1) P(y=0)
    basis: Floats  # (2, N), the log-odds by those at the curve's ends
    offset: Floats | None  # (N,) log-odds added to the curve's
    clusters: Clusters | None  # of rows that depend on each other


class _LabelCounts(NamedTuple):
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
    outer = np.where(_says_little_of_slope(fitted)[rows.owner], 0, _outer(rows, K))
    kinds = [_label_counts(rows, sign, K) for sign in (np.ones(len(rows.owner)), outer)]
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


def _says_little_of_slope(fitted: SegmentPosteriors) -> Bools:
    """(K,) whether an unpooled fit has too few labels of one class for a test of its slope."""
    few, many = np.minimum(fitted.n_pos, fitted.n_neg), np.maximum(fitted.n_pos, fitted.n_neg)
    return (few <= _FEW_LABELS) & (many > 0)


def _label_counts(rows: UncertainRows, sign: Floats, K: int) -> _LabelCounts:
    def total(x: Floats) -> Floats:
        return np.asarray(np.bincount(rows.owner, x, K), float)

    low = sign < 0
    slopes = np.stack([total(sign * rows.variance * x) for x in rows.basis], -1)
    return _LabelCounts(
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
    rows: UncertainRows, numbers: _LabelCounts, at: Ends, fitted: SegmentPosteriors, enough: Floats
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
        tails = _segment_log_tails(
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


def _segment_log_tails(
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


class CountTests(NamedTuple):
    """T tests, each of a number of labels."""

    basis: Floats  # (2, T, n), the rows' log-odds by those at the curve's ends
    offset: Floats  # (T, n)
    counts: Floats  # (T, n) number of rows; 0 beyond the last
    least: Floats  # (T,) number of labels
    shock_variance: Floats | None  # (T,) of a shift that a test's rows have in common

    def quantiles(self, first: Floats, second: Floats) -> Floats:
        """(T, G, G) quantiles of the tails, given log-odds at the ends (T, G)."""
        one, other = self.basis[:, :, None]
        second_part = second[..., None] * other + self.offset[:, None]
        log_odds = (first[..., None] * one)[:, :, None] + second_part[:, None]
        shock = None if self.shock_variance is None else self.shock_variance[:, None, None]
        return quantiles(log_odds, self.counts[:, None, None], self.least[:, None, None], shock)

    def of(self, some: Ints) -> "CountTests":
        """Some of the tests."""
        shock = None if self.shock_variance is None else self.shock_variance[some]
        rows = self.basis[:, some], self.offset[some], self.counts[some]
        return CountTests(*rows, self.least[some], shock)


def log_tails(tests: CountTests, curves: Distribution) -> Floats:
    """(T,) logarithms of the tails' probabilities, given distributions (T, 2) of the ends."""
    found = _searched(tests, curves, _FIRST[0], _FIRST[1:], _POINTS[0])
    small = np.flatnonzero(found < np.log(_LARGE))
    if len(small):
        curves = type(curves)(*(x[small] for x in curves))
        found[small] = _searched(tests.of(small), curves, _DEEPEST, _NODES, _POINTS[1])
    return np.minimum(found, 0)


def _searched(
    tests: CountTests, curves: Distribution, depth: float, nodes: tuple[int, ...], points: int
) -> Floats:
    """The log tails, by nodes among the curves up to this depth below the mode."""
    from scipy.special import log_ndtr

    center, scale = curves.center(), curves.scale()
    span = np.stack([np.arcsinh((x - center) / scale) for x in curves.bounds(depth)], -1)

    def grid(span: Floats, number: int) -> tuple[Floats, Floats]:
        """(T, 2, number) log-odds, and log densities times the distances of the points."""
        share = np.linspace(0, 1, number)
        x = span[..., :1] + (span[..., 1:] - span[..., :1]) * share
        at = center[..., None] + scale[..., None] * np.sinh(x)
        step = (span[..., 1] - span[..., 0]) / (number - 1) * scale
        return at, curves.log_density(at) + np.log(np.cosh(x) * step[..., None])

    every = _log_sum(grid(span, 4 * points)[1]).sum(-1)
    for number in nodes:
        at, _ = grid(span, number)
        to_fine = _interpolation(number, points)
        z = to_fine @ tests.quantiles(at[:, 0], at[:, 1]) @ to_fine.T
        _, log_weight = grid(span, points)
        inside = log_ndtr(-z) + log_weight[:, 0, :, None] + log_weight[:, 1, None, :]
        most = inside.max((1, 2))
        density = np.exp(inside - most[:, None, None])
        by_end = np.stack([density.sum(2), density.sum(1)], 1)
        span = _narrowed_spans(span, by_end)
    return np.log(by_end[:, 0].sum(-1)) + most - every


def _log_sum(x: Floats) -> Floats:
    """log(sum(exp(x))) over the last axis."""
    most = x.max(-1)
    return most + np.log(np.exp(x - most[..., None]).sum(-1))


def _narrowed_spans(span: Floats, by_end: Floats) -> Floats:
    """The parts of the spans (T, 2, 2) that have nearly all of the sums, by points (T, 2, F)."""
    matters = by_end > by_end.max(-1, keepdims=True) * np.exp(-_NEGLIGIBLE)
    last = by_end.shape[-1] - 1
    first = np.maximum(np.argmax(matters, -1) - 1, 0)
    final = np.minimum(last - np.argmax(matters[..., ::-1], -1) + 1, last)
    place = np.stack([first, final], -1) / last
    return span[..., :1] + (span[..., 1:] - span[..., :1]) * place


def _interpolation(nodes: int, points: int) -> Floats:
    """(points, nodes) cubic interpolation from equidistant nodes to points of the same span."""
    place = np.linspace(0, nodes - 1, points)
    first = np.clip(np.floor(place) - 1, 0, nodes - 4).astype(int)
    matrix = np.zeros((points, nodes))
    for j in range(4):
        others = [k for k in range(4) if k != j]
        share = np.prod([(place - first - k) / (j - k) for k in others], axis=0)
        matrix[np.arange(points), first + j] = share
    return matrix
