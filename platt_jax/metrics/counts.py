"""The number of labels in groups of rows, if the predictions are right, and its p-values.

The number is a sum of independent labels with different probabilities, so its distribution is
Poisson's binomial. Where few labels are expected, that is far from normal.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.groups import Groups
from platt_jax.metrics.binned import Binned
from platt_jax.metrics.rows import pieces, two_sided_p_value

# Minimum expected number of labels of a class at which the normal approximation is good enough.
FEW = 10

# Largest count of the distribution, by steps; larger counts are one value. If fewer than `FEW` are
# expected, the probability of 128 is 1e-89.
_MOST = (2, 8, 16, 32, 128)
MOST = _MOST[-1]

# Maximum number of rows processed together, so that the arrays of their groups stay in a cache.
_AT_ONCE = 1 << 15

# Minimum number of cells of a statistic's distribution, in all and per group.
_CELLS, _CELLS_PER_GROUP = 512, 64
_LARGEST = 1e300
# Counts within this many standard deviations of their expectation have the p-value 1: they are not
# unusual.
_USUAL = 1.5
_STEPS = 60  # maximum number of Newton steps; each at least halves the bracket


class Rarer(NamedTuple):
    """The class with fewer expected labels, in each group; (K, n_bins)."""

    is_negative: Bools  # whether it is y = 0
    expected: Floats  # expected number of its labels
    observed: Floats  # observed number of its labels
    few: Bools  # whether few are expected, so that the exact distribution is used


def rarer(each: Binned) -> Rarer:
    """The rarer classes; `few` is false where a problem's weights are not whole numbers."""
    is_negative = each.q < each.p
    expected = np.minimum(each.p, each.q)
    observed = np.where(is_negative, each.rows - each.positive, each.positive)
    whole = (each.of.weights == np.rint(each.of.weights)).all(axis=-1)
    few = (expected > 0) & (expected < FEW) & whole[:, None]
    return Rarer(is_negative, expected, observed, few)


def distributions(each: Binned, few: Bools, most: int) -> Iterator[tuple[slice, Floats]]:
    """The distributions of the counts of the rarer class, in pieces that fit a cache.

    They are of M bins, `few`, in which the sum of w p of the rarer class is at most `FEW`, and
    weights are whole numbers. Yields a slice of the M bins, and (m, most + 1) probabilities of
    0 ... most - 1 and of at least `most` for each of them.
    """
    codes, weights = each.codes.ravel(), each.of.weights.ravel()
    indices = np.flatnonzero(few.ravel()[codes] & (weights > 0))
    group = (np.cumsum(few) - 1)[codes[indices]]
    indices = indices[np.argsort(group, kind="stable")]
    flipped = (each.q < each.p).ravel()[codes[indices]]
    p, q = (x.ravel()[indices] for x in each.of.probabilities())
    p, q, w = np.where(flipped, q, p), np.where(flipped, p, q), weights[indices]
    groups = Groups(np.bincount(group, minlength=np.count_nonzero(few)))
    ends = np.append(groups.starts, groups.rows)
    for chunk in groups.slices(_AT_ONCE):
        rows = slice(ends[chunk.start], ends[chunk.stop])
        chances = _row_distributions(p[rows], q[rows], w[rows], most)
        yield chunk, _sums(chances, groups.sizes[chunk], most).T


def _row_distributions(p: Floats, q: Floats, w: Floats, most: int) -> Floats:
    """(at most most + 1, R) binomial distributions of rows that count w times."""
    # No row has a mean above `FEW`, so larger counts have no probability.
    k = np.arange(min(int(w.max(initial=1)), most + MOST) + 1)[:, None]
    chances = np.zeros((len(k), len(w)))
    once = w == 1
    chances[:2, once] = q[once], p[once]
    p, q, w = p[~once], q[~once], w[~once]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_ways = np.cumsum(np.log(np.maximum(w - k[:-1], 0) / k[1:]), axis=0)
        log_ways = np.concatenate([np.zeros((1, len(w))), log_ways])
        log_q = np.where(p < q, np.log1p(-p), np.log(q))
        log_chances = np.where(k == 0, 0, k * np.log(p)) + np.where(k == w, 0, (w - k) * log_q)
        chances[:, ~once] = np.where(k <= w, np.exp(log_ways + log_chances), 0)
    return _lumped(chances, most)


def _sums(own: Floats, sizes: Ints, most: int) -> Floats:
    """(most + 1, M) distributions of the sums over each group's adjacent rows, added in pairs."""
    numbers = sizes
    while (numbers > 1).any():
        is_first = Groups(numbers).place % 2 == 0
        second = np.flatnonzero(~is_first)
        pair_sums = _lumped(_convolved(own[:, second - 1], own[:, second]), most)
        alone = own[:, is_first]
        own = np.zeros((len(pair_sums), alone.shape[1]))
        own[: len(alone)] = alone
        own[:, np.cumsum(is_first)[second] - 1] = pair_sums
        numbers = (numbers + 1) // 2
    sums = np.zeros((most + 1, len(sizes)))
    sums[0] = 1  # a group without rows
    sums[: len(own), sizes > 0] = own
    return sums


def _convolved(one: Floats, other: Floats) -> Floats:
    product = np.zeros((2 * len(one) - 1, one.shape[1]))
    for k, chances in enumerate(one):
        product[k : k + len(other)] += chances * other
    return product


def _lumped(chances: Floats, most: int) -> Floats:
    """The distributions with all counts from `most` on as one."""
    if len(chances) <= most + 1:
        return chances
    # cumsum adds in order, so the result does not depend on the other columns.
    return np.concatenate([chances[:most], np.cumsum(chances[most:], axis=0)[-1:]])


def p_values(each: Binned, terms: Floats, variance: Floats) -> Floats:
    """P-values (K,) of sums of terms, which are squared deviations from the expectation.

    Terms (K, n_bins) are divided by their variance. Counts in groups where `Rarer.few` is true have
    their exact distribution; the terms of other groups are taken as chi-square with one degree of
    freedom. Exact terms are rounded to a fine grid. The p-value is for the rounded statistic, and
    is valid for any rounding. It is NaN where `Rarer.few` is false in all groups, and where the sum
    is 0 or infinite.
    """
    rare, total = rarer(each), terms.sum(axis=-1)
    result = np.full(len(terms), np.nan)
    exact = rare.few.any(axis=-1) & (total > 0) & np.isfinite(total)
    # A single larger count makes its term exceed the sum.
    with np.errstate(invalid="ignore", over="ignore"):
        top = np.where(rare.few, rare.expected + np.sqrt(total[:, None] * variance), 1).max(axis=-1)
    for most in _MOST:
        problems = np.flatnonzero(exact & (np.ceil(top) <= most) | exact & (most == MOST))
        exact[problems] = False
        for chunk in pieces(problems, _AT_ONCE // each.bin.shape[1]):
            result[chunk] = _tails(each.some(chunk), terms[chunk], variance[chunk], most)
    return result


def _tails(each: Binned, terms: Floats, variance: Floats, most: int) -> Floats:
    from scipy.special import chdtrc  # JAX has SciPy; the import adds a warnings filter

    rare, total = rarer(each), terms.sum(axis=-1)
    few = rare.few
    expected, spread = rare.expected[few], variance[few]
    groups = Groups(few.sum(axis=-1))
    cells = max(_CELLS, 1 << (_CELLS_PER_GROUP * few.shape[1] - 1).bit_length())
    chances = np.concatenate([piece for _, piece in distributions(each, few, most)])
    scale = np.minimum(cells / total, _LARGEST)
    width = cells + few.shape[1]  # more than all of the rounded terms, which sum up to `total`
    with np.errstate(over="ignore"):
        possible = (np.arange(most + 1) - expected[:, None]) ** 2 / spread[:, None]
        observed = (rare.observed[few] - expected) ** 2 / spread
        scaled = possible * groups.by_row(scale)[:, None], observed * groups.by_row(scale)
    possible, observed = (np.minimum(np.rint(x), width) for x in scaled)
    other_terms = np.where(few, 0, terms).sum(axis=-1)
    df = ((variance > 0) & ~few).sum(axis=-1)
    tails = np.empty(len(few))
    for k, first in enumerate(groups.starts):
        bins = slice(first, first + groups.sizes[k])
        cell, beyond = _sum_distribution(chances[bins], possible[bins].astype(int), width)
        remainder = other_terms[k] * scale[k] + observed[bins].sum() - np.arange(width)
        tail = np.where(remainder <= 0, 1.0, chdtrc(df[k], remainder / scale[k]) if df[k] else 0.0)
        tails[k] = np.minimum(beyond + cell @ tail, 1)
    return tails


def _sum_distribution(chances: Floats, place: Ints, width: int) -> tuple[Floats, float]:
    """The probabilities (width,) of a sum of M independent integers; and of all other values.

    The integers have the values `place` (M, n), from 0 to `width`, with these chances.
    """
    cell, beyond = np.zeros(width), 0.0
    cell[0] = 1
    for chance, to in zip(chances, place, strict=True):
        new = np.zeros(width)
        by_value = np.bincount(to, chance, width + 1)
        for j in np.flatnonzero(by_value):
            new[j:] += by_value[j] * cell[: width - j]
            beyond += by_value[j] * cell[width - j :].sum()
        cell = new
    return cell, beyond


class Counts(NamedTuple):
    """Sums over the rows of K groups, each (K,)."""

    rows: Floats
    observed: Floats
    expected: Floats
    variance: Floats


class GroupedPredictions(NamedTuple):
    """N rows."""

    proba: Floats  # (N,) probabilities of class 1
    weights: Floats  # (N,) counts of rows > 0
    group: Ints  # (N,) number of the row's group, below K

    def sums(self, x: Any, number: int) -> Floats:
        """(K,) weighted sums of x (N,) over the rows of each of this number K of groups."""
        # NumPy's stubs declare integers even with weights.
        summed: NDArray[Any] = np.bincount(self.group, self.weights * x, number)
        return summed

    def only(self, which: Bools) -> "GroupedPredictions":
        """The rows of some of the groups, given as (K,) bool; these are numbered anew."""
        rows = which[self.group]
        group = (np.cumsum(which) - 1)[self.group[rows]]
        return GroupedPredictions(self.proba[rows], self.weights[rows], group)


def counts(rows: GroupedPredictions, labels: NDArray[np.int8], number: int) -> Counts:
    """Rows, positives, their expectation and its variance by group."""
    p = rows.proba
    return Counts(*(rows.sums(x, number) for x in (1, labels, p, p * (1 - p))))


def count_p_values(rows: GroupedPredictions, by_group: Counts) -> Floats:
    """(K,) two-sided p-values of the observed numbers of positives: twice the smaller tail.

    A number has Poisson's binomial distribution. Its tails are by a saddlepoint approximation
    with Daniels's (1987) continuity correction, which is within a few per cent; the farthest count
    of all has its exact probability. Groups within 1.5 standard deviations have the p-value 1.
    """
    n, observed, expected, variance = by_group
    p_value = np.ones(len(n))
    unusual = np.abs(observed - expected) > _USUAL * np.sqrt(variance)
    if not unusual.any():
        return p_value
    # The lower tail of class 1 is the upper tail of class 0.
    low = observed < expected
    reached = np.where(low, n - observed, observed)[unusual]
    flipped = rows._replace(proba=np.where(low[rows.group], 1 - rows.proba, rows.proba))
    p_value[unusual] = np.minimum(2 * _upper_tails(flipped.only(unusual), reached), 1)
    return p_value


def _upper_tails(rows: GroupedPredictions, reached: Floats) -> Floats:
    """(K,) P(count >= reached), where reached is above the expectation."""
    possible = rows.proba > 0
    rows = GroupedPredictions(rows.proba[possible], rows.weights[possible], rows.group[possible])
    most = rows.sums(1, len(reached))
    tail = np.exp(rows.sums(np.log(rows.proba), len(reached)))  # the count is at its largest
    tail[reached > most * (1 + 1e-12)] = 0
    inner = reached < most * (1 - 1e-12)
    if inner.any():
        tail[inner] = _saddlepoint(rows.only(inner), reached[inner], most[inner])
    return tail


def _saddlepoint(rows: GroupedPredictions, reached: Floats, most: Floats) -> Floats:
    """(K,) P(count >= reached), where reached is between the expectation and the largest count."""
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(rows.proba), np.log1p(-rows.proba)
    tilt, variance = _tilts(log_p - log_q, rows, reached, most)
    cumulant = rows.sums(np.logaddexp(log_q, log_p + tilt[rows.group]), len(reached))
    root = np.sqrt(2 * np.maximum(tilt * reached - cumulant, 0))
    slope = -np.expm1(-tilt) * np.sqrt(variance)
    density = np.exp(-(root**2) / 2) / np.sqrt(2 * np.pi)
    return np.clip(two_sided_p_value(root) / 2 + density * (1 / slope - 1 / root), 0, 1)


def _tilts(
    log_odds: Floats, rows: GroupedPredictions, reached: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """(K,) t at which the expectation with log-odds + t is the number reached; its variance.

    The variance is NaN where t is not found. The pass over the rows after the last step of
    `newton_roots` would take a fifth of the time.
    """
    smallest = np.full(len(reached), np.inf)
    np.minimum.at(smallest, rows.group, log_odds)
    low = np.zeros(len(reached))
    high = np.log(reached) - np.log(most - reached) - smallest
    t = np.minimum(high, 1.0)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(log_odds + t[rows.group], -700, 700)))
        excess = rows.sums(p, len(t)) - reached
        variance = rows.sums(p * (1 - p), len(t))
        converged = np.abs(excess) <= 1e-9 * (1 + reached)
        if converged.all():
            break
        low, high = np.where(excess < 0, t, low), np.where(excess > 0, t, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = t - excess / variance
        t = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
    return t, np.where(converged, variance, np.nan)
