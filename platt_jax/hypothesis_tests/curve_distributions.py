"""Distributions of uncertain curves, as a fit implies them."""

from typing import NamedTuple, TypeAlias

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.results.probabilities import expit
from platt_jax.searches import newton_roots

# Least variance of the log-odds at a curve's center: (A, B) may be known in one direction only.
_LEAST_VARIANCE = 1e-9
# Variance of the log-odds at the center of a curve that a handful of rows were fitted to.
_FEW_ROWS = 2.0
# Least count of the labels that represent a curve. So small a count bounds the log-odds on no side.
_LEAST_COUNT = 0.1
_HALF_LABEL = 0.5
FARTHEST = 30.0  # maximum absolute log-odds at an end
_NEAR = 1e-6  # last step of a search for a bound, in standard deviations


class Ends(NamedTuple):
    """Two scores per problem at which the log-odds are uncorrelated, and their distribution.

    With the mean and the covariance C of (A, B), the log-odds at scores e and f have covariance
    [e, 1] C [f, 1]'. It is 0 for the two scores center +- half_width, the ends.
    """

    center: Floats  # (K,)
    half_width: Floats  # (K,)
    mean: Floats  # (K, 2) means of the log-odds at the ends
    variance: Floats  # (K, 2) variances of the log-odds at the ends

    def of(self, some: Ints) -> "Ends":
        """The ends of some of the curves."""
        return Ends(*(x[some] for x in self))

    def basis(self, scores: Floats, owner: Ints) -> Floats:
        """(2, N) factors: log-odds at the scores are the sum of these times those at the ends."""
        position = (scores - self.center[owner]) / self.half_width[owner]
        return np.stack([1 + position, 1 - position]) / 2

    def nodes(self) -> tuple[Floats, Floats]:
        """Quadrature of normal log-odds: nodes (9, K, 2) and weights (9,)."""
        z, weight = np.polynomial.hermite_e.hermegauss(3)
        first, second = (x.ravel() for x in np.meshgrid(z, z, indexing="ij"))
        points = self.mean + np.sqrt(self.variance) * np.stack([first, second], -1)[:, None]
        return points, np.outer(weight, weight).ravel() / weight.sum() ** 2


def ends(mean: Floats, covariance: Floats, rounding: float) -> Ends:
    """The ends of K curves, whose covariances have this relative rounding error."""
    c_AA, c_AB, c_BB = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
    c_AA = np.maximum(c_AA, np.finfo(float).tiny)
    center = -c_AB / c_AA
    # Far from 0 the terms cancel; the possible rounding error is added. Where it says more than any
    # rows would, the variance is at least that of few rows: wide ends would make the curve certain.
    at_center, error = np.maximum(c_BB - c_AB**2 / c_AA, 0), 4 * rounding * c_BB
    lost = np.maximum(at_center - error, _FEW_ROWS)
    at_center = np.where(error > _FEW_ROWS, lost, at_center + error)
    at_center = np.maximum(at_center, _LEAST_VARIANCE)
    half_width = np.sqrt(at_center / c_AA)
    scores = center[:, None] + np.stack([half_width, -half_width], -1)
    log_odds = -(mean[:, :1] * scores + mean[:, 1:])
    return Ends(center, half_width, log_odds, np.repeat(2 * at_center[:, None], 2, axis=1))


class Normal(NamedTuple):
    """Normal log-odds at the ends of K problems, with arrays (K, 2)."""

    mean: Floats
    variance: Floats

    def center(self) -> Floats:
        """The mode."""
        return self.mean

    def scale(self) -> Floats:
        """1 / sqrt(minus the second derivative of the log density at the mode)."""
        return np.sqrt(self.variance)

    def log_density(self, log_odds: Floats) -> Floats:
        """At log-odds (K, 2, J), up to a constant."""
        return -((log_odds - self.mean[..., None]) ** 2) / (2 * self.variance[..., None])

    def bounds(self, depth: float) -> tuple[Floats, Floats]:
        """The log-odds where the log density is that much less than at the mode."""
        away = np.sqrt(2 * depth * self.variance)
        return self.mean - away, self.mean + away


class LogBeta(NamedTuple):
    """Log-odds of beta variables: of a probability after these numbers of positives and negatives.

    The log density is positives x - (positives + negatives) log(1 + exp(x)) plus a constant.
    """

    positives: Floats
    negatives: Floats

    def center(self) -> Floats:
        """See `Normal`."""
        return np.log(self.positives / self.negatives)

    def scale(self) -> Floats:
        """See `Normal`."""
        return np.sqrt(1 / self.positives + 1 / self.negatives)

    def log_density(self, log_odds: Floats) -> Floats:
        """See `Normal`."""
        positives, negatives = self.positives[..., None], self.negatives[..., None]
        # log(1 + exp(x)) is at least 0 and x, by as much as log(1 + exp(-x)) at least 0 and -x.
        above = np.log1p(np.exp(-np.abs(log_odds)))
        positive, negative = np.maximum(log_odds, 0), np.maximum(-log_odds, 0)
        return -(positives * (negative + above) + negatives * (positive + above))

    def bounds(self, depth: float) -> tuple[Floats, Floats]:
        """See `Normal`."""
        mirrored = LogBeta(self.negatives, self.positives)
        return -mirrored._upper(depth), self._upper(depth)

    def _upper(self, depth: float) -> Floats:
        """The upper bound. The log density is concave, so Newton's steps from above stay above."""
        center, near = self.center(), _NEAR * self.scale()
        goal = self.log_density(center[..., None])[..., 0] - depth

        def excess(bound: Floats) -> tuple[Floats, Floats, Floats]:
            proba = expit(bound)
            slope = self.positives * (1 - proba) - self.negatives * proba
            value = self.log_density(bound[..., None])[..., 0] - goal
            return value, -value / slope, near

        most = -goal / self.negatives
        start = np.minimum(center + np.sqrt(2 * depth) * self.scale(), most)
        return newton_roots(excess, start, center, most).or_nan()


# Distribution of the log-odds at the ends of K problems.
Distribution: TypeAlias = Normal | LogBeta


def counted(at: Ends, n_pos: Floats, n_neg: Floats, up: Bools) -> LogBeta:
    """Distributions of the curves of unpooled fits, by labels at the ends with equal information.

    The labels match the modes and curvatures of the fits. Platt's targets are undone: of n
    positives, n / (n + 2) count as negatives; counts are 0 for fits without Platt's targets. At
    each end, half a label is added of the kind that makes the extremes of a test likelier: `up`
    (K, 2) says whether extremes are likelier if the log-odds are higher. With one label more, beta
    probabilities give the p-value of Fisher's exact test of two samples, which is valid at any
    probability (Altham 1969, "Exact Bayesian analysis of a 2 x 2 contingency table, and Fisher's
    'exact' significance test"); with two ends, it is half a label at each.
    """
    log_odds = np.clip(at.mean, -FARTHEST, FARTHEST)
    positives, negatives = (1 + np.exp(x * log_odds) for x in (1, -1))
    positives, negatives = positives / at.variance, negatives / at.variance
    share = positives / positives.sum(1, keepdims=True)
    to_negative = (n_pos / (n_pos + 2))[:, None] * share
    share = negatives / negatives.sum(1, keepdims=True)
    to_positive = (n_neg / (n_neg + 2))[:, None] * share
    positives = positives + to_negative - to_positive + np.where(up, _HALF_LABEL, 0)
    negatives = negatives - to_negative + to_positive + np.where(up, 0, _HALF_LABEL)
    return LogBeta(np.maximum(positives, _LEAST_COUNT), np.maximum(negatives, _LEAST_COUNT))
