"""A normal population of one number of each segment, from the segments' likelihoods of it.

The likelihoods are tables: log-likelihoods at points that are close where a segment's likelihood is
narrow. So rows are read once, and segments without positives count for what they say. The spread is
integrated out over a grid, under the prior of `population_prior`, and the mean exactly, as a normal
distribution for each spread. What is left is a mixture of normals.
"""

from typing import NamedTuple

import numpy as np

from platt_jax.arrays import Floats, Ints
from platt_jax.population.population_prior import MEAN_PRECISION, SCALE
from platt_jax.searches import newton_roots

# Nodes under the population, in its standard deviations.
_Z = np.linspace(-6, 6, 33)
# Spreads that are tried first, and the number of those tried again where these are plausible.
_FIRST, _AGAIN = np.geomspace(0.005, 10, 17), 41
_PLAUSIBLE = 12.0  # difference of log-densities
_MOST_STEPS, _NEAR = 12, 1e-3  # Newton steps of the mean; the last, in standard errors


class LikelihoodTable(NamedTuple):
    """Log-likelihoods of one number of each of K segments, at J points of each."""

    at: Floats  # (K, J), ascending
    log_likelihood: Floats  # (K, J), up to a constant for each segment
    slope: Floats  # (K, J), its derivative
    width: Floats  # (K,), a length in which a likelihood changes little

    def values(self, x: Floats) -> Floats:
        """(K, I), the log-likelihoods at x (K, I): cubic between points, linear beyond them."""
        low, high = self.at[:, :1], self.at[:, -1:]
        inside = np.clip(x, low, high)
        # All tables end to end, so that one search serves all segments.
        ahead = 2.0 * np.arange(len(x))[:, None]
        points = ahead + (self.at - low) / (high - low)
        right = np.searchsorted(points.ravel(), (ahead + (inside - low) / (high - low)).ravel())
        first = len(self.at[0]) * np.arange(len(x))[:, None]
        right = np.clip(right.reshape(x.shape) - first, 1, len(self.at[0]) - 1)

        def picked(table: Floats, which: Ints) -> Floats:
            return np.take_along_axis(table, which, 1)

        x0, x1 = picked(self.at, right - 1), picked(self.at, right)
        gap = np.where(x1 > x0, x1 - x0, 1)
        t = (inside - x0) / gap
        y0, y1 = picked(self.log_likelihood, right - 1), picked(self.log_likelihood, right)
        m0, m1 = gap * picked(self.slope, right - 1), gap * picked(self.slope, right)
        cubic = (
            y0 + t * m0 + t**2 * (3 * (y1 - y0) - 2 * m0 - m1) + t**3 * (m0 + m1 - 2 * (y1 - y0))
        )
        beyond = np.maximum(self.slope[:, :1], 0) * np.minimum(x - low, 0)
        beyond += np.minimum(self.slope[:, -1:], 0) * np.maximum(x - high, 0)
        return cubic + beyond


class _NumberMoments(NamedTuple):
    """The marginal likelihood of a population, and its derivatives by the mean."""

    log_likelihood: float
    gradient: float
    curvature: float  # minus the second derivative


class NumberPopulation(NamedTuple):
    """What is known of a population: a mixture of G normals."""

    weight: Floats  # (G,) probabilities of the components
    spread: Floats  # (G,) the standard deviation of the population
    mean: Floats  # (G,) the expectation of its mean
    mean_error: Floats  # (G,) the standard deviation of its mean
    likeliest_spread: float  # the most probable standard deviation

    @property
    def expectation(self) -> float:
        """The expectation of the mean."""
        return float(self.weight @ self.mean)

    def mean_quantile(self, probability: float) -> float:
        """A quantile of the mean."""
        return self._quantile(probability, self.mean_error)

    def new_quantile(self, probability: float) -> float:
        """A quantile of the number of a segment without rows."""
        return self._quantile(probability, self._new_error)

    def share_between(self, low: float, high: float) -> float:
        """The probability that the number of a segment without rows is between these."""
        return self._below(high, self._new_error) - self._below(low, self._new_error)

    @property
    def _new_error(self) -> Floats:
        return np.hypot(self.spread, self.mean_error)

    def _below(self, x: float, error: Floats) -> float:
        from scipy.special import ndtr

        # Weights may sum up to a little more than 1.
        return min(float(self.weight @ ndtr((x - self.mean) / error)), 1.0)

    def _quantile(self, probability: float, error: Floats) -> float:
        def function(x: Floats) -> tuple[Floats, Floats, float]:
            z = (x - self.mean) / error
            density = self.weight @ (np.exp(-z * z / 2) / (error * np.sqrt(2 * np.pi)))
            off = np.asarray(probability - self._below(float(x), error))
            return off, off / np.maximum(density, np.finfo(float).tiny), 1e-10

        reach = 40 * error.max() + np.ptp(self.mean)
        middle = np.asarray(self.expectation)
        return float(newton_roots(function, middle, middle - reach, middle + reach).or_nan())


def population_of_numbers(table: LikelihoodTable, center: float) -> NumberPopulation | None:
    """The population, given the segments' likelihoods and the mean of the prior of its mean.

    None if the likelihoods overflow.
    """
    spread, log_density = _FIRST, np.empty(0)
    for _ in range(2):
        estimates = _with_spreads(table, center, spread)
        log_density = estimates[:, 2] - spread**2 / (2 * SCALE**2)
        # The grid is of logarithms.
        log_weight = log_density + np.log(spread)
        plausible = np.flatnonzero(log_weight > log_weight.max() - _PLAUSIBLE)
        if not len(plausible):
            return None
        if len(spread) == _AGAIN:
            break
        least, most = max(plausible[0] - 1, 0), min(plausible[-1] + 1, len(spread) - 1)
        spread = np.geomspace(spread[least], spread[most], _AGAIN)
    weight = np.exp(log_weight - log_weight.max())
    mode = int(np.argmax(log_density))
    return NumberPopulation(
        weight=weight / weight.sum(),
        spread=spread,
        mean=estimates[:, 0],
        mean_error=estimates[:, 1],
        likeliest_spread=_vertex(spread, log_density, mode) if mode else 0.0,
    )


def _vertex(x: Floats, y: Floats, i: int) -> float:
    """The place of the maximum of the parabola through three points around the largest."""
    if i in (0, len(x) - 1):
        return float(x[i])
    left, right = x[i] - x[i - 1], x[i + 1] - x[i]
    falls, rises = (y[i] - y[i - 1]) / left, (y[i + 1] - y[i]) / right
    # The slopes are those in the middles, and linear between.
    return float(x[i] - left / 2 + falls / (falls - rises) * (left + right) / 2)


def _with_spreads(table: LikelihoodTable, center: float, spreads: Floats) -> Floats:
    """(G, 3) for each spread: the mean, its error, and the log-likelihood without the mean."""
    mean, estimates = center, []
    for spread in spreads[::-1]:
        for _ in range(_MOST_STEPS):
            moments = _moments(table, mean, float(spread))
            gradient = moments.gradient - MEAN_PRECISION * (mean - center)
            precision = max(moments.curvature, 0.0) + MEAN_PRECISION
            step = gradient / precision
            mean += step
            if abs(step) <= _NEAR / np.sqrt(precision):
                break
        prior = -MEAN_PRECISION * (mean - center) ** 2 / 2
        value = _moments(table, mean, float(spread)).log_likelihood + prior
        estimates.append((mean, precision**-0.5, value - np.log(precision) / 2))
    return np.array(estimates[::-1])


def _moments(table: LikelihoodTable, mean: float, spread: float) -> _NumberMoments:
    """The segments' integrals over a normal population.

    Where the population is narrower than a likelihood, the nodes are its own, else the table's.
    """
    narrow = spread < table.width
    parts = []
    if narrow.any():
        subset = LikelihoodTable(*(x[narrow] for x in table))
        z = np.broadcast_to(_Z, (len(subset.at), len(_Z)))
        parts.append((z, subset.values(mean + spread * z) + np.log(_Z[1] - _Z[0])))
    if not narrow.all():
        nodes, log_likelihood = table.at[~narrow], table.log_likelihood[~narrow]
        gaps = np.gradient(nodes, axis=1) / spread
        with np.errstate(divide="ignore"):
            parts.append(((nodes - mean) / spread, log_likelihood + np.log(gaps)))
    value, gradient, curvature = 0.0, 0.0, 0.0
    for z, log_terms in parts:
        log_density = log_terms - z * z / 2 - np.log(2 * np.pi) / 2
        highest = log_density.max(1, keepdims=True)
        density = np.exp(log_density - highest)
        total = density.sum(1)
        first = (density * z).sum(1) / total
        variance = (density * (z - first[:, None]) ** 2).sum(1) / total
        value += float((highest[:, 0] + np.log(total)).sum())
        gradient += float(first.sum()) / spread
        curvature += float((1 - variance).sum()) / spread**2
    return _NumberMoments(value, gradient, curvature)
