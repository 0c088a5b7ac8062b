"""Tests of segments' labels under uncertain curves, by two numbers of labels.

The first is the number of positives. The second, which changes with the slope, is the number of
positives among the rows of high score, plus negatives among the rows of low score. High and
low are the rows beyond the outer 27 % of the information, which find a slope best (Kelley 1939,
"The selection of upper and lower groups for the validation of test items"); so a common shift of
the log-odds changes this number little. Where all labels are nearly sure, the other rows count,
too. A p-value is the probability of a number as far from its
expectation, above or below, where a curve is drawn from its distribution, and labels by the curve
(the predictive check of Box 1980, "Sampling and Bayes' inference in scientific modelling and
robustness"). Twice the smaller of both is the segment's (Bonferroni). An unpooled fit with few
labels of one class is tested by the first alone.

That probability is an integral over the curve's two ends. The quantile of the tail given the curve
is smooth in the curve's log-odds. So it is computed at few nodes and interpolated between them;
density and tail are then added up on a fine grid. For most tests four nodes at each end do, among
curves that are likely. Of small tails the nodes are spread over all curves that matter for p-values
of 1e-15, then over curves with nearly all of the sum.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.groups import Groups
from platt_jax.hypothesis_tests.cluster_shocks import Clusters
from platt_jax.hypothesis_tests.count_tails import quantiles
from platt_jax.hypothesis_tests.curve_distributions import Distribution, Ends, Normal, counted
from platt_jax.hypothesis_tests.posteriors import SegmentPosteriors

_OUTER = 0.27
# Rows are joined whose log-odds differ by less than this, over the square root of their number: so
# the sums over all change little.
_SIMILAR = 3.0
# Information of a segment below which its rows are sure: less than two labels are expected that are
# not the likelier ones.
_SURE = 1.0
# Number of labels of the rarer class up to which Platt's targets shrink slopes by more than their
# errors say: of scores with heavy tails, p-values of 1e-4 would be 10 to 200 times too small.
_FEW_LABELS = 10
# Share of a distance from the expectation that may be rounding error.
_TIED = 1e-9
# Rows of all tests that are computed together, to stay in a cache.
_AT_ONCE = 1 << 12
# The most rows, and the least distance of the farthest in half-widths between the ends, for which
# curves that hardly differ at the ends are added up; and how far these move the farthest row.
_FEW_ROWS, _FAR_OUT, _MOVED = 40, 30.0, np.arange(-12.0, 13.0)
_FLAT_POINTS = np.linspace(-8, 8, 257)  # between the ends' log-odds, in standard deviations
# How much less than at the mode the log density is at the farthest curves. The first search tells
# tails of at least LARGE, the others, with so many nodes and points of a fine grid at each end,
# tails of 1e-12.
_FIRST, LARGE = 8.0, 0.02
_DEEPEST, _NODES, _POINTS = 40.0, (7, 7), 33
_NEGLIGIBLE = 12.0  # minus the log of a share of a sum that does not matter


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
    tested = sum((numbers.rows > 0).astype(float) for numbers in kinds)
    smallest = np.full(K, np.nan)
    for numbers in kinds:
        # A larger probability changes no result.
        enough = np.fmin(smallest, 1 / np.maximum(tested, 1))
        p_value = _two_sided(rows, numbers, at, fitted, enough)
        smallest = np.fmin(smallest, np.where(numbers.rows > 0, p_value, np.nan))
    return np.minimum(smallest * tested, 1)


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
    groups = Groups(np.bincount(rows.owner, minlength=K))
    first, last = (groups.by_row(x) for x in (groups.starts, groups.starts + groups.sizes - 1))
    information = rows.variance + np.finfo(float).tiny
    below = groups.cumulated(information)
    position = rows.basis[0] - rows.basis[1] if rows.offset is None else rows.proba
    tied = np.flatnonzero((np.diff(position, prepend=np.nan) != 0) | (groups.place == 0))
    alike = Groups(np.diff(tied, append=groups.rows))
    middle = (below - information)[tied] + below[tied + alike.sizes - 1]
    share = alike.by_row(middle) / 2 / below[last]
    # Rows of the least score are low, rows of the highest high, however many they are.
    low, high = np.maximum(share[first], _OUTER), np.minimum(share[last], 1 - _OUTER)
    sign = (share >= high) * 1.0 - (share <= low)
    # Of sure rows none is between: two wrong labels there would change no number.
    likely = rows.proba >= 0.5
    sure = (below[last] < _SURE) & (likely[first] != likely[last])
    sign = np.where(sure & (sign == 0), np.where(likely == likely[last], 1, -1), sign)
    return np.where(position[first] != position[last], sign, 0)


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
    alike = _joined(rows, numbers.sign, at)
    for side in (observed, -observed):
        above = side > 0
        number = numbers.expected + side * away
        least = np.where(above, np.ceil(number), most - np.floor(number))
        indices = np.flatnonzero((most > 0) & (least <= most) & (total < enough))
        rising = numbers.rising == above[:, None]
        curves = _curves(at.of(indices), fitted.of(indices), rising[indices])
        chosen = _Chosen(indices, side[indices], np.maximum(least[indices], 1), curves)
        tails = _segment_tails(alike, chosen, numbers.shock_variance)
        if side is observed:
            tails = np.maximum(tails, _by_flat_curves(rows, at, indices, curves))
        total[indices] += tails
        total[(most > 0) & (least <= 0)] += 1
    return np.minimum(total, 1)


def _by_flat_curves(rows: UncertainRows, at: Ends, which: Ints, curves: Distribution) -> Floats:
    """(T,) for each of these segments the probability of its labels and of a nearly flat curve.

    The tail of the observed number is not below it. Where rows lie much farther out than the fitted
    ones, few other curves are unsure of a label, and the nodes of a tail may miss these. It is 0
    where rows are many, near, or dependent.
    """
    probability = np.zeros(len(which))
    K, position = len(at.center), rows.basis[0] - rows.basis[1]
    groups = Groups(np.bincount(rows.owner, minlength=K))
    farthest = groups.maxima(np.abs(position))
    far_out = np.flatnonzero(((groups.sizes <= _FEW_ROWS) & (farthest >= _FAR_OUT))[which])
    if rows.clusters is not None or not len(far_out):
        return probability
    number = np.full(K, -1)
    number[which[far_out]] = np.arange(len(far_out))
    inside = number[rows.owner] >= 0
    owner, farthest = number[rows.owner[inside]], farthest[which[far_out]]
    level, density = _at_no_difference(type(curves)(*(x[far_out] for x in curves)))
    z = level[owner] + (0.0 if rows.offset is None else rows.offset[inside])
    moved, sign = position[inside] / farthest[owner], np.where(rows.labels[inside] > 0, -1.0, 1.0)
    for x in _MOVED:
        log_proba = -np.logaddexp(0, sign * (z + x * moved))
        probability[far_out] += np.exp(np.bincount(owner, log_proba, len(far_out)))
    probability[far_out] *= density * 2 / farthest
    return probability


def _at_no_difference(curves: Distribution) -> tuple[Floats, Floats]:
    """Of curves with equal log-odds at both ends: the mean of these, and the density."""
    center, scale = curves.center(), curves.scale()
    reach = scale.max(1)[:, None]
    middle, half = center.mean(1)[:, None], np.ptp(center, axis=1)[:, None] / 2
    x = middle + _FLAT_POINTS * (reach + half / 8)
    log_density = curves.log_density(np.repeat(x[:, None], 2, axis=1))
    densities = np.exp(log_density - log_density.max(-1, keepdims=True))
    step = np.diff(x[:, :2], axis=1)
    densities /= densities.sum(-1, keepdims=True) * step[..., None]
    joint = densities.prod(1)
    density = joint.sum(1)
    level = (joint * x).sum(1) / np.where(density > 0, density, 1)
    return level, density * step[:, 0]


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
    indices = np.flatnonzero(sign)
    owner, sign, K = rows.owner[indices], sign[indices], len(at.center)
    basis = rows.basis[:, indices]
    offset = np.zeros(len(indices)) if rows.offset is None else rows.offset[indices]
    slope = np.abs(at.mean[:, 0] - at.mean[:, 1]) / 2 + np.sqrt(at.variance.sum(1))
    resolution = slope * np.sqrt(np.bincount(owner, minlength=K)) / _SIMILAR
    cell = np.floor((basis[0] - basis[1]) * resolution[owner])
    if rows.offset is not None:
        cell = np.arange(len(indices))
    changes = [np.diff(x, prepend=np.nan) != 0 for x in (owner, sign, cell)]
    first = np.flatnonzero(np.any(changes, axis=0))
    alike = Groups(np.diff(first, append=len(indices)))
    starts = np.searchsorted(owner[first], np.arange(K + 1))
    means = alike.means(basis * sign), alike.means(offset * sign)
    return _JoinedRows(starts, *means, alike.sizes.astype(float))


class _Chosen(NamedTuple):
    """Tests of some segments (T,): of numbers of labels far above the expectation, or far below."""

    segment: Ints
    side: Floats  # 1 above, -1 below
    least: Floats  # number of labels, of the other kind if the side is below
    curves: Distribution


def _segment_tails(alike: _JoinedRows, tests: _Chosen, shocks: Floats | None) -> Floats:
    """(T,) tails, many together."""
    sizes = np.diff(alike.starts)[tests.segment]

    def computed(
        tails: Callable[[CountTests, _Axes], Floats], some: Ints, depth: float, to_an_octave: int
    ) -> Floats:
        axes = axes_of(tests.curves, depth, some)
        # Few lengths, so that rounding does not depend on the other segments.
        steps = np.maximum((1 << np.frexp(sizes[some] - 0.5)[1]) // (2 * to_an_octave), 1)
        lengths, values = -(-sizes[some] // steps) * steps, np.zeros(len(some))
        for piece in _of_one_length(lengths):
            indices = some[piece]
            segment, side = tests.segment[indices], tests.side[indices, None]
            number, last = np.arange(lengths[piece[0]]), sizes[indices, None] - 1
            # Beyond the last row is the last one again, so that the range of log-odds is the rows'.
            row = alike.starts[segment, None] + np.minimum(number, last)
            counts = np.where(number <= last, alike.counts[row], 0)
            shock = None if shocks is None else shocks[segment]
            rows = side * alike.basis[:, row], side * alike.offset[row], counts
            values[piece] = tails(CountTests(*rows, tests.least[indices], shock), axes.of(piece))
        return values

    result = computed(large_tails, np.arange(len(sizes)), _FIRST, 4)
    small = np.flatnonzero(~(result >= LARGE))
    result[small] = np.exp(computed(log_tails, small, _DEEPEST, 1))  # they are few
    return result


def _of_one_length(lengths: Ints) -> Iterator[Ints]:
    """Pieces of tests of these lengths (T,)."""
    order = np.argsort(-lengths, kind="stable")
    for tests in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(tests):
            step = max(1, _AT_ONCE // int(lengths[tests[0]]))
            yield from np.split(tests, range(step, len(tests), step))


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


class _Axes(NamedTuple):
    """The log-odds at both ends, as places from 0 to 1 of spans, for T tests."""

    curves: Distribution
    center: Floats  # (T, 2)
    scale: Floats  # (T, 2)
    span: Floats  # (T, 2, 2) the inverse hyperbolic sines of log-odds, centered and scaled

    def at(self, place: Floats) -> Floats:
        """(T, 2, J) the log-odds at places (J,)."""
        return self.center[..., None] + self.scale[..., None] * np.sinh(self._places(place))

    def log_weight(self, number: int) -> Floats:
        """(T, 2, J) log densities at so many equidistant places, times the distances of these."""
        position = np.linspace(0, 1, number)
        step = (self.span[..., 1] - self.span[..., 0]) / (number - 1) * self.scale
        stretch = np.cosh(self._places(position)) * step[..., None]
        return self.curves.log_density(self.at(position)) + np.log(stretch)

    def _places(self, place: Floats) -> Floats:
        return self.span[..., :1] + (self.span[..., 1:] - self.span[..., :1]) * place

    def of(self, some: Ints) -> "_Axes":
        """The axes of some of the tests."""
        parts = self.center[some], self.scale[some], self.span[some]
        return _Axes(_of(self.curves, some), *parts)


def _of(curves: Distribution, some: Ints) -> Distribution:
    return type(curves)(*(x[some] for x in curves))


def axes_of(curves: Distribution, depth: float, some: Ints) -> _Axes:
    """Of some tests, all curves up to this depth below the mode."""
    curves = _of(curves, some)
    center, scale = curves.center(), curves.scale()
    bounds = [np.arcsinh((x - center) / scale) for x in curves.bounds(depth)]
    return _Axes(curves, center, scale, np.stack(bounds, -1))


def large_tails(tests: CountTests, axes: _Axes) -> Floats:
    """(T,) tails, which are right if they are large."""
    from scipy.special import ndtr

    log_weight = axes.log_weight(len(_FIRST_TO_FINE))
    weight = np.exp(log_weight - log_weight.max(-1, keepdims=True))
    z = tests.quantiles(*np.moveaxis(axes.at(_FIRST_NODES), 1, 0))
    tails = ndtr(-(_FIRST_TO_FINE @ z @ _FIRST_TO_FINE.T))
    first, second = np.moveaxis(weight / weight.sum(-1, keepdims=True), 1, 0)
    return np.minimum(np.vecdot(np.vecdot(tails, second[:, None]), first), 1)


def log_tails(tests: CountTests, axes: _Axes) -> Floats:
    """(T,) log tails, from all curves that may matter for any tail, and then from those that do."""
    from scipy.special import log_ndtr

    log_total = _log_sum(axes.log_weight(4 * _POINTS)).sum(-1)
    for number in _NODES:
        nodes = np.linspace(0, 1, number)
        to_fine = _interpolation(nodes, _POINTS)
        z = to_fine @ tests.quantiles(*np.moveaxis(axes.at(nodes), 1, 0)) @ to_fine.T
        log_weight = axes.log_weight(_POINTS)
        log_density = log_ndtr(-z) + log_weight[:, 0, :, None] + log_weight[:, 1, None, :]
        most = log_density.max((1, 2))
        density = np.exp(log_density - most[:, None, None])
        by_end = np.stack([density.sum(2), density.sum(1)], 1)
        axes = axes._replace(span=_narrowed_spans(axes.span, by_end))
    return np.minimum(np.log(by_end[:, 0].sum(-1)) + most - log_total, 0)


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
    position = np.stack([first, final], -1) / last
    return span[..., :1] + (span[..., 1:] - span[..., :1]) * position


def _interpolation(nodes: Floats, points: int) -> Floats:
    """(points, nodes) cubic interpolation from ascending nodes to so many equidistant points."""
    position, number = np.linspace(0, 1, points), len(nodes)
    first = np.clip(np.searchsorted(nodes, position, side="right") - 2, 0, number - 4)
    matrix = np.zeros((points, number))
    for j in range(4):
        other_nodes = [nodes[first + k] for k in range(4) if k != j]
        share = np.prod([(position - x) / (nodes[first + j] - x) for x in other_nodes], axis=0)
        matrix[np.arange(points), first + j] = share
    return matrix


# Of the first search: places of nodes that keep a cubic's error small, and its interpolation.
_FIRST_NODES = 0.5 + np.array([-0.36, -0.15, 0.15, 0.36])
_FIRST_TO_FINE = _interpolation(_FIRST_NODES, 13)
