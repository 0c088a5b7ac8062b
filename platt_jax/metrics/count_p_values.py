"""p-values of numbers of positives, if every label is 1 with its predicted probability."""

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.metrics import groups

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
    """N rows.

    Attributes:
        proba: (N,) probabilities of class 1.
        weights: (N,) counts of rows > 0.
        group: (N,) number of the row's group, below K.
    """

    proba: Floats
    weights: Floats
    group: Ints


def counts(rows: GroupedPredictions, labels: NDArray[np.int8], number: int) -> Counts:
    """Rows, positives, their expectation and its variance by group."""
    p, w, group = rows
    columns = np.ones_like(p), labels, p, p * (1 - p)
    return Counts(*(groups.sums(group, w * column, number) for column in columns))


def count_p_values(rows: GroupedPredictions, by_group: Counts) -> Floats:
    """(K,) two-sided p-values of the observed numbers of positives: twice the smaller tail.

    A number has Poisson's binomial distribution. Its tails are those of a saddlepoint approximation
    with Daniels's (1987) continuity correction, which is within a few per cent; the farthest count
    of all has its exact probability. Groups within 1.5 standard deviations have the p-value 1.
    """
    n, observed, expected, variance = by_group
    p_value = np.ones(len(n))
    unusual = np.abs(observed - expected) > _USUAL * np.sqrt(variance)
    if not unusual.any():
        return p_value
    which = np.flatnonzero(unusual)
    mine = unusual[rows.group]
    # The lower tail of class 1 is the upper tail of class 0.
    low = observed < expected
    group = (np.cumsum(unusual) - 1)[rows.group[mine]]
    p = np.where(low[rows.group[mine]], 1 - rows.proba[mine], rows.proba[mine])
    reached = np.where(low, n - observed, observed)[which]
    tail = _upper_tails(GroupedPredictions(p, rows.weights[mine], group), reached)
    p_value[which] = np.minimum(2 * tail, 1)
    return p_value


def _upper_tails(rows: GroupedPredictions, reached: Floats) -> Floats:
    """(K,) P(count >= reached), where reached is above the expectation."""
    number = len(reached)
    possible = rows.proba > 0
    p, w, group = rows.proba[possible], rows.weights[possible], rows.group[possible]
    most = groups.sums(group, w, number)
    tail = np.exp(groups.sums(group, w * np.log(p), number))  # the count is at its largest
    inner = reached < most * (1 - 1e-12)
    tail[reached > most * (1 + 1e-12)] = 0
    mine = inner[group]
    inner_rows = GroupedPredictions(p[mine], w[mine], (np.cumsum(inner) - 1)[group[mine]])
    if inner.any():
        tail[inner] = _saddlepoint(inner_rows, reached[inner], most[inner])
    return tail


def _saddlepoint(rows: GroupedPredictions, reached: Floats, most: Floats) -> Floats:
    """(K,) P(count >= reached), where reached is between the expectation and the largest count."""
    p, w, group = rows
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log1p(-p)
    tilt, variance = _tilts(log_p - log_q, rows, reached, most)
    cumulant = groups.sums(group, w * np.logaddexp(log_q, log_p + tilt[group]), len(reached))
    root = np.sqrt(2 * np.maximum(tilt * reached - cumulant, 0))
    slope = -np.expm1(-tilt) * np.sqrt(variance)
    density = np.exp(-(root**2) / 2) / sqrt(2 * np.pi)
    normal = np.array([erfc(x / sqrt(2)) / 2 for x in root.tolist()])
    return np.clip(normal + density * (1 / slope - 1 / root), 0, 1)


def _tilts(
    log_odds: Floats, rows: GroupedPredictions, reached: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """(K,) t at which the expectation with log-odds + t is the number reached; its variance."""
    _, w, group = rows
    smallest = np.full(len(reached), np.inf)
    np.minimum.at(smallest, group, log_odds)
    low = np.zeros(len(reached))
    high = np.log(reached) - np.log(most - reached) - smallest
    t = np.minimum(high, 1.0)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(log_odds + t[group], -700, 700)))
        excess = groups.sums(group, w * p, len(t)) - reached
        variance = groups.sums(group, w * p * (1 - p), len(t))
        if (np.abs(excess) <= 1e-9 * (1 + reached)).all():
            break
        low, high = np.where(excess < 0, t, low), np.where(excess > 0, t, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = t - excess / variance
        t = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
    return t, variance
