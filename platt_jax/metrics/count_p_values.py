"""p-values of numbers of positives, if every label is 1 with its predicted probability."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.metrics.rows import two_sided_p_value

# Counts within this many standard deviations of their expectation have the p-value 1: they are not
# unusual.
_USUAL = 1.5
_STEPS = 60  # maximum number of Newton steps; each at least halves the bracket


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
        mine = which[self.group]
        group = (np.cumsum(which) - 1)[self.group[mine]]
        return GroupedPredictions(self.proba[mine], self.weights[mine], group)


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
        found = np.abs(excess) <= 1e-9 * (1 + reached)
        if found.all():
            break
        low, high = np.where(excess < 0, t, low), np.where(excess > 0, t, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = t - excess / variance
        t = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
    return t, np.where(found, variance, np.nan)
