"""The population of a third period from the populations of two, by normal distributions of (A, B).

A segment's (A, B) in period t is m_t + x_t. The deviations x_t are Normal(0, S) between segments,
and deviations of consecutive periods have covariance c S: a share c of their variance lasts.
For two periods this is x_t = u + v_t, with u ~ Normal(0, c S) the lasting part and
v_t ~ Normal(0, (1 - c) S) the part of one period. The covariance of the third period's deviations
with the first one's is c^2 S, as in an autoregression of order one.

The share is estimated from the rows of the second period.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.levels import times
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results.averages import mean_probability
from platt_jax.results.population import Population
from platt_jax.results.probabilities import clipped_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.searches import newton_maximum, newton_roots
from platt_jax.status import Status
from platt_jax.updating.priors import at_places

# Last step of matching the mean of sigmoids.
_CLOSE = 1e-13

# The search for the lasting share. Its last steps are in standard errors: those at which it ends,
# and the longest with which it has succeeded where rounding hides further gains.
_START = 0.5
_ENOUGH, _NEAR = 1e-4, 0.05
_LENGTHS = 8

# Step of numerical derivatives by log-odds and their variances.
_APART = 1e-3

# Maximum number of rows processed together.
_AT_ONCE = 1 << 16

# Least probability used.
_LEAST = 1e-300


def deviations(calibrator: SegmentCalibrator, keys: NDArray[Any]) -> Likelihoods:
    """The likelihoods of the deviations from the population's mean of the segments `keys`.

    Flat for segments without rows, or with a failed fit.
    """
    population: Any = calibrator.population
    usable = np.asarray(calibrator.fit.converged)
    indices = get_indexer(calibrator.keys[usable], split_columns(keys))
    precision = population.likelihood_precision[usable]
    pull = population.likelihood_pull[usable] - precision @ population.mean
    return Likelihoods.from_arrays(*(at_places(x, indices) for x in (precision, pull)))


def _learnt(likelihoods: Likelihoods, before: NormalMoments) -> NormalMoments:
    """The normal distributions after a period, given those before it and its likelihoods."""
    gain = np.linalg.inv(np.eye(2) + before.covariance @ likelihoods.precision.matrices)
    covariance = gain @ before.covariance
    mean = times(gain, before.mean) + times(covariance, likelihoods.pull)
    return NormalMoments(mean, covariance)


def next_population(
    both: tuple[SegmentCalibrator, SegmentCalibrator],
    periods: Sequence[Likelihoods],
    weight: Floats,
    share: float,
    ahead: float,
) -> Population:
    """The population of a period `ahead` in the future, with its segments.

    The calibrators and the likelihoods are of the two periods, whose weights (2,) are for common
    means. The share of the variance lasts from one period to the next.
    """
    populations: list[Any] = [x.population for x in both]
    means = np.stack([x.mean for x in populations])
    covariance = np.einsum("t,tij->ij", weight, [x.covariance for x in populations])
    number = len(periods[0].pull)
    deviation, remaining = np.zeros((number, 2)), np.broadcast_to(covariance, (number, 2, 2))
    for period in periods:
        moved = share * deviation, covariance - share**2 * (covariance - remaining)
        deviation, remaining = _learnt(period, NormalMoments(*moved))
    lasting = share**ahead
    remaining = covariance - lasting**2 * (covariance - remaining)
    pooled = np.stack([_pooled_mean(x, covariance) for x in both])
    mean = weight @ (lasting * means + (1 - lasting) * pooled)
    uncertain = uncertainty(weight, means, [x.mean_covariance for x in populations])
    errors = np.stack([x.covariance_errors for x in populations])
    precision, prior_precision = np.linalg.inv(remaining), np.linalg.inv(covariance)
    population_share = np.trace(np.linalg.solve(covariance, remaining), axis1=1, axis2=2) / 2
    return Population(
        mean=mean,
        covariance=covariance,
        mean_covariance=uncertain,
        covariance_errors=np.sqrt(np.einsum("t,tij->ij", weight**2, errors**2)),
        status=_joined_status([x.status for x in populations]),
        likelihood_precision=precision - prior_precision,
        likelihood_pull=times(precision, mean + lasting * deviation) - prior_precision @ mean,
        posterior_mean=mean + lasting * deviation,
        posterior_covariance=remaining + uncertain,
        predictive_mean=mean,
        predictive_covariance=covariance + uncertain,
        shrinkage=np.clip(population_share, 0, 1),
    )


def _joined_status(each: list[Status]) -> Status:
    """The status of a population made from others: no failure is lost."""
    return Status.MAX_ITERATIONS if Status.MAX_ITERATIONS in each else max(each)


def _pooled_mean(calibrator: SegmentCalibrator, covariance: Floats) -> Floats:
    """(2,) mean of a normal (A, B) with this covariance and the pooled curve as its mean sigmoid.

    The two curves are equal at two scores, one standard deviation to each side of the mean, by the
    weights of the rows in the pooled fit.
    """
    information = np.linalg.inv(np.asarray(calibrator.fallback_covariance, float))
    center = information[0, 1] / information[1, 1]
    spread = np.sqrt(information[0, 0] / information[1, 1] - center**2)
    design = np.array([[center - spread, 1], [center + spread, 1]])
    sigmoid = calibrator.fallback
    target = -(design @ np.array([sigmoid.A, sigmoid.B], float))
    variance = np.einsum("ij,jk,ik->i", design, covariance, design)
    reach = variance / 2 + 1

    def missing(at: Floats) -> tuple[Floats, Floats, float]:
        value, later = (
            target - clipped_logit(_probabilities(x, variance)) for x in (at, at + _APART)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            return value, _APART * value / (value - later), _CLOSE

    roots = newton_roots(missing, target, target - reach, target + reach)
    return -np.linalg.solve(design, roots.or_nan())


def uncertainty(weight: Floats, means: Floats, covariances: Sequence[Any]) -> Floats:
    """(2, 2) covariance of a weighted mean over both periods: its error plus their distance."""
    apart = means[1] - means[0]
    error = np.einsum("t,tij->ij", weight**2, np.asarray(covariances, float))
    return error + weight.prod() * np.outer(apart, apart)


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
    value: float  # log-likelihood
    gradients: Floats  # (N, 3), of each row
    information: Floats  # (3, 3), expected
    step: Floats  # (3,), of Fisher scoring
    decrement: float  # its squared length in standard errors


class LastingShare(NamedTuple):
    """An estimated share of the variance between segments that lasts."""

    share: float
    error: float  # standard error
    found: bool  # whether the search converged


def lasting_share(rows: LaterRows, mean: Floats) -> LastingShare:
    """The share that maximizes the likelihood of the rows of the later period.

    The likelihood is the product of the rows' posterior predictive probabilities. The mean (A, B)
    of the later period, common to all segments, is estimated with the share, by Fisher scoring from
    `mean`. The standard error is a sandwich with the segments as clusters (Liang & Zeger 1986), or
    comes from the information if it is larger: a few positives make the sandwich too small (Angrist
    & Pischke 2009, "Mostly Harmless Econometrics", section 8.2).
    """
    best, converged = newton_maximum(
        partial(_point, rows),
        np.append(mean, _START),
        enough=_ENOUGH**2,
        near=_NEAR**2,
        lengths=_LENGTHS,
    )
    sums: Floats = np.stack([np.bincount(rows.segments, g) for g in best.gradients.T]).astype(float)
    influence = _solved(best.information, sums)[2]
    number = len(np.unique(rows.segments))
    variance = number / (number - 1) * np.sum(influence**2)
    by_information = _solved(best.information, np.eye(3)[2])[2]
    error = float(np.sqrt(max(variance, by_information)))
    return LastingShare(float(best.parameters[2]), error, converged)


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
    information, gradient = (weight[:, None] * design).T @ design, gradients.sum(0)
    step = _solved(information, gradient)
    value = float(rows.weights @ log_p)
    return _Point(parameters, value, gradients, information, step, float(gradient @ step))


def _probabilities(logit: Floats, variance: Floats) -> Floats:
    """Mean probabilities over normal log-odds."""
    mean = np.empty_like(logit)
    for start in range(0, len(logit), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        none = np.zeros(len(logit[block]))
        normal = np.column_stack([none, -logit[block], none, none, variance[block]])
        mean[block] = mean_probability(none, normal)
    return mean
