"""The share of segments' deviations that lasts, estimated from the rows of the next period."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.results.averages import mean_probability

_START = 0.5
_MOST_STEPS = 40
_TOLERANCE = 1e-4  # standard errors
_HALVINGS = 8

# Step of numerical derivatives by log-odds and their variances.
_APART = 1e-3

# Maximum number of rows processed together.
_AT_ONCE = 1 << 16

# Least probability used.
_LEAST = 1e-300


class LaterRows(NamedTuple):
    """N rows of the later period, with the earlier period's estimate of their log-odds.

    With x = (f, 1), a row's log-odds have mean -(mean' x) + offset + share * moved and variance
    spread - share^2 * known.
    """

    scores: Floats  # f
    labels: Bools
    weights: Floats
    segments: NDArray[np.integer[Any]]  # segment numbers, from 0
    moved: Floats  # change of the log-odds by the segment's deviation, if all of it lasts
    spread: Floats  # variance of the log-odds between segments
    known: Floats  # reduction of that variance by the earlier period, if all of it lasts
    offset: Floats | float = 0.0


class _Point(NamedTuple):
    """A trial (A, B, share), with the log-likelihood and its derivatives."""

    parameters: Floats  # (3,)
    log_likelihood: float
    gradients: Floats  # (N, 3), of each row
    information: Floats  # (3, 3), expected


def lasting_share(rows: LaterRows, mean: Floats) -> tuple[float, float]:
    """The share that maximizes the likelihood of the rows, and its standard error.

    The likelihood is the product of the rows' posterior predictive probabilities. The mean (A, B)
    of the later period, common to all segments, is estimated with the share, by Fisher scoring. The
    standard error is a sandwich with the segments as clusters (Liang & Zeger 1986), or that of the
    information if it is larger: a few positives make the sandwich too small (Angrist & Pischke
    2009, "Mostly Harmless Econometrics", section 8.2).

    Args:
        rows: rows of the later period.
        mean: (2,) starting value of (A, B).
    """
    at = _point(rows, np.append(mean, _START))
    for _ in range(_MOST_STEPS):
        gradient = at.gradients.sum(0)
        step = _solved(at.information, gradient)
        if gradient @ step <= _TOLERANCE**2:
            break
        for halvings in range(_HALVINGS):
            trial = _point(rows, at.parameters + 0.5**halvings * step)
            if trial.log_likelihood > at.log_likelihood:
                at = trial
                break
        else:
            break
    sums: Floats = np.stack([np.bincount(rows.segments, g) for g in at.gradients.T]).astype(float)
    influence = _solved(at.information, sums)[2]
    number = len(np.unique(rows.segments))
    variance = number / (number - 1) * np.sum(influence**2)
    by_information = _solved(at.information, np.eye(3)[2])[2]
    return float(at.parameters[2]), float(np.sqrt(max(variance, by_information)))


def _solved(information: Floats, right: Floats) -> Floats:
    """The solution of a linear system that may be singular."""
    scale = 1 / np.sqrt(np.maximum(np.diag(information), np.finfo(float).tiny))
    inverse = np.linalg.pinv(scale[:, None] * information * scale, hermitian=True)
    return (scale[:, None] * inverse * scale) @ right


def _point(rows: LaterRows, parameters: Floats) -> _Point:
    share = parameters[2]
    inside = min(max(share, 0.0), 1.0)
    logit = rows.offset - (parameters[0] * rows.scores + parameters[1]) + share * rows.moved
    variance = np.maximum(rows.spread - inside**2 * rows.known, 0)
    p, lower, upper, wider = (
        _probabilities(logit + shift, variance + extra)
        for shift, extra in ((0, 0), (-_APART, 0), (_APART, 0), (0, _APART))
    )
    p = np.clip(p, _LEAST, 1 - np.finfo(float).eps)
    by_logit, by_variance = (upper - lower) / (2 * _APART), (wider - p) / _APART
    by_share = by_logit * rows.moved
    if inside == share:
        by_share -= 2 * share * rows.known * by_variance
    design = np.stack([-by_logit * rows.scores, -by_logit, by_share], -1)
    weight = rows.weights / (p * (1 - p))
    gradients = (weight * (rows.labels - p))[:, None] * design
    log_p = np.where(rows.labels, np.log(p), np.log1p(-p))
    return _Point(
        parameters,
        float(rows.weights @ log_p),
        gradients,
        (weight[:, None] * design).T @ design,
    )


def _probabilities(logit: Floats, variance: Floats) -> Floats:
    """Mean probabilities over normal log-odds."""
    mean = np.empty_like(logit)
    for start in range(0, len(logit), _AT_ONCE):
        of = slice(start, start + _AT_ONCE)
        none = np.zeros(len(logit[of]))
        normal = np.column_stack([none, -logit[of], none, none, variance[of]])
        mean[of] = mean_probability(none, normal)
    return mean
