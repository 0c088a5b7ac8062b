"""Partial pooling of temperatures: log(1 / T) of a segment is Normal(mean, sd^2).

The mean and the standard deviation maximise the marginal likelihood, whose integrals over one
number are adaptive Gauss-Hermite quadratures (Naylor & Smith 1982).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Floats, Ints
from platt_jax.backend.threads import ordered_map
from platt_jax.multiclass.likelihoods import SoftmaxLikelihood
from platt_jax.results.multiclass import TemperaturePopulation
from platt_jax.status import Status

_Z, _WEIGHT = np.polynomial.hermite_e.hermegauss(15)
_LOG_WEIGHT = np.log(_WEIGHT / np.sqrt(2 * np.pi))
_START_SD = 0.5
_LEAST_SD = 1e-3  # below, segments differ by less than anyone would notice
_MAX_ITERATIONS = 100
_TOL = 1e-7  # of the mean and of the logarithm of the standard deviation
_STEPS_TO_MODE = 50
_FARTHEST = 300.0  # of t from 0


def _inverse_temperatures(t: Floats) -> Floats:
    """exp(t), within limits where it is a number."""
    b: Floats = np.exp(np.clip(t, -_FARTHEST, _FARTHEST))
    return b


class _TemperatureNormal(NamedTuple):
    """A normal distribution of log(1 / T)."""

    mean: float
    sd: float


class _TemperatureSegments:
    """The likelihoods of K segments at values t of log(1 / T), with 1 / T in units of `pooled`."""

    def __init__(self, parts: Sequence[tuple[Ints, SoftmaxLikelihood]], pooled: float) -> None:
        self._parts = parts
        self.number = sum(len(which) for which, _ in parts)
        self._unit = self._each(
            lambda x, _: pooled / x.original[:, 0, 0], np.zeros((self.number, 0))
        )

    def _each(self, function: Callable[[SoftmaxLikelihood, Floats], Floats], t: Floats) -> Floats:
        """(K, ...) results of a function of likelihoods and their t (k, ...)."""
        made = list(ordered_map(lambda part: function(part[1], t[part[0]]), self._parts))
        result = np.empty((self.number, *made[0].shape[1:]))
        for (which, _), x in zip(self._parts, made, strict=True):
            result[which] = x
        return result

    def losses(self, t: Floats) -> Floats:
        """(K, J) losses at t (K, J)."""

        def at(likelihood: SoftmaxLikelihood, b: Floats) -> Floats:
            return np.stack([likelihood.losses(x[:, None]) for x in b.T], axis=1)

        return self._each(at, _inverse_temperatures(t) * self._unit[:, None])

    def derivatives(self, t: Floats) -> Floats:
        """(K, 3) losses at t (K,), and their first and second derivatives by t."""

        def at(likelihood: SoftmaxLikelihood, b: Floats) -> Floats:
            made = likelihood.sums(b[:, None])
            slope = b * made.gradient[:, 0]
            return np.stack([made.loss, slope, b * b * made.hessian[:, 0, 0] + slope], axis=1)

        return self._each(at, _inverse_temperatures(t) * self._unit)


class _TemperatureNodes(NamedTuple):
    """Nodes of the integrals over t."""

    t: Floats  # (K, J)
    log_likelihood: Floats  # (K, J)
    log_width: Floats  # (K,) logarithm of the distance of t per unit of z


class _TemperaturePosteriors(NamedTuple):
    """Posteriors of the segments, given a population."""

    log_likelihood: float  # of the population
    gradient: Floats  # (2,) by the mean and the logarithm of the standard deviation
    information: Floats  # (2, 2), minus the Hessian
    weights: Floats  # (K, J) of the nodes


class TemperaturePosterior(NamedTuple):
    """What is known of each segment's inverse temperature."""

    population: TemperaturePopulation
    inverse_temperature: Floats  # (K,) exp of the posterior mean of its logarithm
    standard_error: Floats  # (K,)


def pool_temperatures(
    parts: Sequence[tuple[Ints, SoftmaxLikelihood]], pooled: float
) -> TemperaturePosterior:
    """The population and the posteriors; `pooled` is the inverse temperature of all rows."""
    segments = _TemperatureSegments(parts, pooled)
    if segments.number < 2 or not (np.isfinite(pooled) and pooled > 0):
        return _without_spread(segments.number, pooled, Status.NOT_ESTIMATED)
    population = _TemperatureNormal(0.0, _START_SD)
    mode = np.full(segments.number, population.mean)
    status = Status.MAX_ITERATIONS
    for _ in range(_MAX_ITERATIONS):
        nodes, mode = _adapted(segments, population, mode)
        after = _likeliest(nodes, population)
        if after.sd < _LEAST_SD:
            return _without_spread(segments.number, pooled, Status.BOUNDARY)
        change = abs(after.mean - population.mean) + abs(np.log(after.sd / population.sd))
        population = after
        if change < _TOL:
            status = Status.CONVERGED
            break
    found = _posteriors(nodes, population)
    with np.errstate(invalid="ignore"):  # a search that has not converged may end at a saddle
        errors = np.sqrt(np.diag(np.linalg.pinv(found.information)))
    mean = (found.weights * nodes.t).sum(axis=1)
    variance = (found.weights * (nodes.t - mean[:, None]) ** 2).sum(axis=1)
    unseen = population.mean + population.sd * _Z
    b = pooled * _inverse_temperatures(mean)
    return TemperaturePosterior(
        TemperaturePopulation(
            mean=np.array(population.mean + np.log(pooled)),
            sd=np.array(population.sd),
            mean_error=np.array(errors[0]),
            log_sd_error=np.array(errors[1]),
            status=np.array(status, np.int32),
            nodes=pooled * _inverse_temperatures(np.vstack([nodes.t, unseen])),
            node_weights=np.vstack([found.weights, np.exp(_LOG_WEIGHT)]),
        ),
        b,
        b * np.sqrt(variance),
    )


def _without_spread(number: int, pooled: float, status: Status) -> TemperaturePosterior:
    """The posteriors if all segments have the temperature of all rows."""
    nan = np.array(np.nan)
    estimated = status == Status.BOUNDARY
    weights = np.broadcast_to(np.exp(_LOG_WEIGHT), (number + 1, len(_Z))).copy()
    population = TemperaturePopulation(
        np.array(np.log(pooled)) if estimated else nan,
        np.array(0.0) if estimated else nan,
        nan,
        nan,
        np.array(status, np.int32),
        np.full_like(weights, pooled),
        weights,
    )
    return TemperaturePosterior(population, np.full(number, pooled), np.full(number, np.nan))


def _adapted(
    segments: _TemperatureSegments, population: _TemperatureNormal, start: Floats
) -> tuple[_TemperatureNodes, Floats]:
    """Nodes around the posterior modes, and the modes, by safeguarded Newton steps."""
    mean, precision = population.mean, population.sd**-2

    def objective(t: Floats) -> tuple[Floats, Floats, Floats]:
        loss, slope, curvature = segments.derivatives(t).T
        # A likelihood that bends the other way adds nothing, so that each step goes downhill.
        bend = np.maximum(curvature, 0) + precision
        return loss + (t - mean) ** 2 * precision / 2, slope + (t - mean) * precision, bend

    t, (value, slope, bend) = start, objective(start)
    length = np.ones_like(t)
    for _ in range(_STEPS_TO_MODE):
        step = -slope / bend
        # The nodes need not be at the mode exactly.
        if (np.abs(step) * np.sqrt(bend) < 1e-3).all():
            break
        trial = t + length * np.clip(step, -2, 2)
        new = objective(trial)
        better = new[0] <= value + 1e-12 * np.abs(value)
        t = np.where(better, trial, t)
        value, slope, bend = (
            np.where(better, x, old) for x, old in zip(new, (value, slope, bend), strict=True)
        )
        length = np.where(better, 1, length / 2)
    width = 1 / np.sqrt(bend)
    nodes = t[:, None] + width[:, None] * _Z
    return _TemperatureNodes(nodes, -segments.losses(nodes), np.log(width)), t


def _posteriors(nodes: _TemperatureNodes, population: _TemperatureNormal) -> _TemperaturePosteriors:
    """The marginal likelihood of a population, with its derivatives (Louis 1982)."""
    u = (nodes.t - population.mean) / population.sd
    terms = nodes.log_likelihood - u * u / 2 + _Z * _Z / 2 + _LOG_WEIGHT
    most = terms.max(axis=1, keepdims=True)
    weights = np.exp(terms - most)
    total = weights.sum(axis=1)
    weights /= total[:, None]
    # Derivatives of log Normal(t) by the mean and by log(sd): u / sd and u^2 - 1.
    scores = np.stack([u / population.sd, u * u - 1])
    mean = (scores * weights).sum(axis=2)
    second = np.einsum("akj,bkj,kj->ab", scores, scores, weights) - mean @ mean.T
    e_u, e_uu = (weights * u).sum(), (weights * u * u).sum()
    bend = np.array(
        [
            [len(u) / population.sd**2, 2 * e_u / population.sd],
            [2 * e_u / population.sd, 2 * e_uu],
        ]
    )
    each = most[:, 0] + np.log(total) + nodes.log_width - np.log(population.sd)
    return _TemperaturePosteriors(float(each.sum()), mean.sum(axis=1), bend - second, weights)


def _likeliest(nodes: _TemperatureNodes, start: _TemperatureNormal) -> _TemperatureNormal:
    """The likeliest population near the one of the nodes, by Newton steps."""
    at = partial(_posteriors, nodes)
    here, found = start, at(start)
    for _ in range(_STEPS_TO_MODE):
        values, vectors = np.linalg.eigh(found.information)
        # Where the likelihood bends upwards, a step goes uphill as far as it would downhill.
        bend = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
        step = vectors @ ((vectors.T @ found.gradient) / bend)
        step *= min(1, 1 / np.abs(step / [start.sd, 1]).max())
        length, improved = 1.0, False
        while length > 1e-4 and not improved:
            trial = _TemperatureNormal(
                here.mean + length * step[0], float(here.sd * np.exp(length * step[1]))
            )
            # The nodes stay where they were at the start.
            near = abs(np.log(trial.sd / start.sd)) <= 1
            new = at(trial)
            improved = near and new.log_likelihood > found.log_likelihood
            length /= 2
        if not improved:
            return here
        here, found = trial, new
        if np.abs(step / [here.sd, 1]).max() < 1e-9:
            break
    return here
