"""Partial pooling of temperatures: log(1 / T) of a segment is Normal(mean, sd^2).

The mean and the standard deviation that are told maximise the marginal likelihood, whose integrals
over one number are adaptive Gauss-Hermite quadratures (Naylor & Smith 1982). What is known of a
segment averages over all populations, for few segments leave the spread open, and often 0 is its
likeliest value: populations count by their likelihood and a half-normal prior of the standard
deviation, flat in the mean (Gelman 2006, "Prior distributions for variance parameters in
hierarchical models"; Rubin 1981, "Estimation in parallel randomized experiments").
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
# Standard deviations to average over; a prior beyond 1 knows that T rarely differs by e^2.
_SPREADS = np.geomspace(0.01, 3, 12)
_PRIOR_SD = 1.0
_WELL_KNOWN = 0.25  # error of the logarithm of a spread beside which few others count
_SHIFT, _SHIFT_WEIGHT = np.polynomial.hermite_e.hermegauss(5)  # in errors, of means and spreads


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
        part_results = list(ordered_map(lambda part: function(part[1], t[part[0]]), self._parts))
        result = np.empty((self.number, *part_results[0].shape[1:]))
        for (which, _), x in zip(self._parts, part_results, strict=True):
            result[which] = x
        return result

    def losses(self, t: Floats) -> Floats:
        """(K, J) losses at t (K, J)."""

        def part_losses(likelihood: SoftmaxLikelihood, b: Floats) -> Floats:
            return np.stack([likelihood.losses(x[:, None]) for x in b.T], axis=1)

        return self._each(part_losses, _inverse_temperatures(t) * self._unit[:, None])

    def derivatives(self, t: Floats) -> Floats:
        """(K, 3) losses at t (K,), and their first and second derivatives by t."""

        def part_derivatives(likelihood: SoftmaxLikelihood, b: Floats) -> Floats:
            sums = likelihood.sums(b[:, None])
            slope = b * sums.gradient[:, 0]
            return np.stack([sums.loss, slope, b * b * sums.hessian[:, 0, 0] + slope], axis=1)

        return self._each(part_derivatives, _inverse_temperatures(t) * self._unit)


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


class _Told(NamedTuple):
    """The likeliest population of log(1 / T), and its errors."""

    mean: float
    sd: float
    mean_error: float
    log_sd_error: float


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
        return _not_estimated(segments.number, pooled)
    population = _TemperatureNormal(0.0, _START_SD)
    mode = np.full(segments.number, population.mean)
    status = Status.MAX_ITERATIONS
    for _ in range(_MAX_ITERATIONS):
        nodes, mode = _adapted(segments, population, mode)
        updated = _likeliest(nodes, population)
        if updated.sd < _LEAST_SD:
            estimate = _Told(np.log(pooled), 0.0, np.nan, np.nan)
            return _averaged(segments, pooled, estimate, Status.BOUNDARY)
        change = abs(updated.mean - population.mean) + abs(np.log(updated.sd / population.sd))
        population = updated
        if change < _TOL:
            status = Status.CONVERGED
            break
    posteriors = _posteriors(nodes, population)
    with np.errstate(invalid="ignore"):  # a search that has not converged may end at a saddle
        errors = np.sqrt(np.diag(np.linalg.pinv(posteriors.information)))
    estimate = _Told(population.mean + np.log(pooled), population.sd, *map(float, errors))
    return _averaged(segments, pooled, estimate, status)


def _averaged(
    segments: _TemperatureSegments, pooled: float, told: _Told, status: Status
) -> TemperaturePosterior:
    """The posteriors over all populations, beside what is told of the likeliest one."""
    log_weights, normal, log_evidence, moments = _populations(segments, *_spreads(told, status))
    weights, log_density = np.exp(log_weights), log_weights - np.log(normal[1])
    mean = moments[0] @ weights
    sd = np.sqrt(np.maximum((moments[1] + moments[0] ** 2) @ weights - mean**2, 0))
    t = mean[:, None] + sd[:, None] * _Z
    # What the others say of t: each population by its weight without this segment.
    log_prior = np.full_like(t, -np.inf)
    for g, weight_without in enumerate((log_density - log_evidence).T):
        deviation = (t - normal[0, g]) / normal[1, g]
        np.logaddexp(log_prior, weight_without[:, None] - deviation**2 / 2, out=log_prior)
    node_weights = _normalized(log_prior - segments.losses(t) + _Z * _Z / 2 + _LOG_WEIGHT)
    center = (node_weights * t).sum(axis=1)
    variance = (node_weights * (t - center[:, None]) ** 2).sum(axis=1)
    average = weights @ normal[0]
    spread = np.sqrt(weights @ (normal[1] ** 2 + (normal[0] - average) ** 2))
    unseen = average + spread * _Z
    deviation = (unseen[:, None] - normal[0]) / normal[1]
    log_prior = np.logaddexp.reduce(log_density - deviation**2 / 2, 1)
    unseen_weights = _normalized(log_prior + _Z * _Z / 2 + _LOG_WEIGHT)
    b = pooled * _inverse_temperatures(center)
    return TemperaturePosterior(
        TemperaturePopulation(
            np.array(told.mean),
            np.array(told.sd),
            np.array(told.mean_error),
            np.array(told.log_sd_error),
            np.array(status, np.int32),
            pooled * _inverse_temperatures(np.vstack([t, unseen])),
            np.vstack([node_weights, unseen_weights]),
        ),
        b,
        b * np.sqrt(variance),
    )


def _normalized(terms: Floats) -> Floats:
    """Weights from their logarithms, along the last axis."""
    weights: Floats = np.exp(terms - terms.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _spreads(told: _Told, status: Status) -> tuple[Floats, Floats]:
    """Standard deviations to average over, and the logarithms of the steps between their logs."""
    error = told.log_sd_error
    if status == Status.CONVERGED and error < _WELL_KNOWN:
        return told.sd * np.exp(error * _SHIFT), np.log(_SHIFT_WEIGHT) + _SHIFT**2 / 2
    return _SPREADS, np.zeros(len(_SPREADS))


def _populations(
    segments: _TemperatureSegments, spreads: Floats, steps: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Populations with these spreads to average over.

    Logarithms of their weights (G,), their means and standard deviations (2, G), logarithms of each
    segment's evidence (K, G), and the means and variances of its t (2, K, G).
    """
    mode, mean = np.zeros(segments.number), 0.0
    flat = ~segments.derivatives(mode)[:, 1:].any(axis=1)  # which say nothing of populations
    pieces: list[tuple[Floats, ...]] = []
    for sd, step in zip(spreads, steps, strict=True):
        for _ in range(2):  # the mean of the next smaller spread is near
            nodes, mode = _adapted(segments, _TemperatureNormal(mean, sd), mode)
            posteriors = _posteriors(nodes, _TemperatureNormal(mean, sd))
            error = 1 / np.sqrt(max(posteriors.information[0, 0], len(mode) * 1e-6))
            shift = float(np.clip(posteriors.gradient[0] * error**2, -2, 2))
            mean += shift
            if abs(shift) < error / 10:
                break
        means = mean + error * _SHIFT
        u = (nodes.t[:, None] - means[:, None]) / sd
        terms = nodes.log_likelihood[:, None] - u * u / 2 + _Z * _Z / 2 + _LOG_WEIGHT
        evidence = np.logaddexp.reduce(terms, 2) + nodes.log_width[:, None] - np.log(sd)
        evidence[flat] = 0
        weights = _normalized(terms)
        centers = np.einsum("kij,kj->ki", weights, nodes.t)
        squares = np.einsum("kij,kj->ki", weights, nodes.t**2)
        # Of the steps of the mean, and of the logarithm of the standard deviation.
        width = np.log(_SHIFT_WEIGHT) + _SHIFT**2 / 2 + np.log(error) + np.log(sd)
        log_weight = evidence.sum(axis=0) + width + step - (sd / _PRIOR_SD) ** 2 / 2
        pieces.append((log_weight, means, np.full_like(means, sd), evidence, centers, squares))
    log_weight, means, sds, evidence, centers, squares = (
        np.concatenate(x, axis=-1) for x in zip(*pieces, strict=True)
    )
    moments = np.stack([centers, np.maximum(squares - centers**2, 0)])
    log_weight -= np.logaddexp.reduce(log_weight)
    return log_weight, np.stack([means, sds]), evidence, moments


def _not_estimated(number: int, pooled: float) -> TemperaturePosterior:
    """All segments have the temperature of all rows."""
    nan = np.array(np.nan)
    weights = np.broadcast_to(np.exp(_LOG_WEIGHT), (number + 1, len(_Z))).copy()
    population = TemperaturePopulation(
        nan,
        nan,
        nan,
        nan,
        np.array(Status.NOT_ESTIMATED, np.int32),
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
        probe = objective(trial)
        improved = probe[0] <= value + 1e-12 * np.abs(value)
        t = np.where(improved, trial, t)
        value, slope, bend = (
            np.where(improved, x, old) for x, old in zip(probe, (value, slope, bend), strict=True)
        )
        length = np.where(improved, 1, length / 2)
    width = 1 / np.sqrt(bend)
    nodes = t[:, None] + width[:, None] * _Z
    return _TemperatureNodes(nodes, -segments.losses(nodes), np.log(width)), t


def _posteriors(nodes: _TemperatureNodes, population: _TemperatureNormal) -> _TemperaturePosteriors:
    """The marginal likelihood of a population, with its derivatives (Louis 1982)."""
    u = (nodes.t - population.mean) / population.sd
    terms = nodes.log_likelihood - u * u / 2 + _Z * _Z / 2 + _LOG_WEIGHT
    largest = terms.max(axis=1, keepdims=True)
    weights = np.exp(terms - largest)
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
    evidence = largest[:, 0] + np.log(total) + nodes.log_width - np.log(population.sd)
    return _TemperaturePosteriors(float(evidence.sum()), mean.sum(axis=1), bend - second, weights)


def _likeliest(nodes: _TemperatureNodes, start: _TemperatureNormal) -> _TemperatureNormal:
    """The likeliest population near the one of the nodes, by Newton steps."""
    posteriors_at = partial(_posteriors, nodes)
    current, posteriors = start, posteriors_at(start)
    for _ in range(_STEPS_TO_MODE):
        values, vectors = np.linalg.eigh(posteriors.information)
        # Where the likelihood bends upwards, a step goes uphill as far as it would downhill.
        bend = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
        step = vectors @ ((vectors.T @ posteriors.gradient) / bend)
        step *= min(1, 1 / np.abs(step / [start.sd, 1]).max())
        length, improved = 1.0, False
        while length > 1e-4 and not improved:
            trial = _TemperatureNormal(
                current.mean + length * step[0], float(current.sd * np.exp(length * step[1]))
            )
            # The nodes stay where they were at the start.
            near = abs(np.log(trial.sd / start.sd)) <= 1
            trial_posteriors = posteriors_at(trial)
            improved = near and trial_posteriors.log_likelihood > posteriors.log_likelihood
            length /= 2
        if not improved:
            return current
        current, posteriors = trial, trial_posteriors
        if np.abs(step / [current.sd, 1]).max() < 1e-9:
            break
    return current
