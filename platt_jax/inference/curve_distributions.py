"""Distributions of uncertain curves, as a fit implies them, and draws from these."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from platt_jax.arrays import Bools, Floats, Ints, Words
from platt_jax.passes.replicated import mixed
from platt_jax.results.probabilities import expit

# Least variance of the log-odds at a curve's center: (A, B) may be known in one direction only.
_LEAST_VARIANCE = 1e-9
# Least count of the labels that represent a curve. So small a count bounds the log-odds on no side.
_LEAST_COUNT = 0.1
_HALF_LABEL = 0.5
_FARTHEST = 30.0  # maximum absolute log-odds at an end
# Maximum number of tries of a gamma variate; all but 1e-10 are accepted within them.
_TRIES = 8
_LAST = np.uint64(0xA5A5A5A5A5A5A5A5)


class Ends(NamedTuple):
    """Two scores per problem at which the log-odds are uncorrelated, and their distribution.

    With the mean and the covariance C of (A, B), the log-odds at scores e and f have covariance
    [e, 1] C [f, 1]'. It is 0 for the two scores center +- half_width, the ends.
    """

    center: Floats  # (K,)
    half_width: Floats  # (K,)
    mean: Floats  # (K, 2) means of the log-odds at the ends
    variance: Floats  # (K, 2) variances of the log-odds at the ends

    def basis(self, scores: Floats, owner: Ints) -> Floats:
        """(2, N) factors: log-odds at the scores are the sum of these times those at the ends."""
        place = (scores - self.center[owner]) / self.half_width[owner]
        return np.stack([1 + place, 1 - place]) / 2

    def nodes(self) -> tuple[Floats, Floats]:
        """Quadrature of normal log-odds: nodes (9, K, 2) and weights (9,)."""
        z, weight = np.polynomial.hermite_e.hermegauss(3)
        first, second = (x.ravel() for x in np.meshgrid(z, z, indexing="ij"))
        at = self.mean + np.sqrt(self.variance) * np.stack([first, second], -1)[:, None]
        return at, np.outer(weight, weight).ravel() / weight.sum() ** 2


def ends(mean: Floats, covariance: Floats, rounding: float) -> Ends:
    """The ends of K curves.

    Args:
        mean: (K, 2) means of (A, B).
        covariance: (K, 2, 2) covariances of (A, B).
        rounding: relative rounding error of the covariances.
    """
    c_AA, c_AB, c_BB = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
    c_AA = np.maximum(c_AA, np.finfo(float).tiny)
    center = -c_AB / c_AA
    # Far from 0 the terms cancel; the possible rounding error is added.
    at_center = np.maximum(c_BB - c_AB**2 / c_AA, 0) + 4 * rounding * c_BB
    at_center = np.maximum(at_center, _LEAST_VARIANCE)
    half_width = np.sqrt(at_center / c_AA)
    scores = center[:, None] + np.stack([half_width, -half_width], -1)
    log_odds = -(mean[:, :1] * scores + mean[:, 1:])
    return Ends(center, half_width, log_odds, np.repeat(2 * at_center[:, None], 2, axis=1))


class Normal(NamedTuple):
    """Normal log-odds at the ends of K problems, with arrays (K, 2)."""

    mean: Floats
    variance: Floats

    def of(self, some: Any) -> "Normal":
        """The distribution for some of the problems."""
        return Normal(self.mean[some], self.variance[some])

    def center(self) -> Floats:
        """The mode."""
        return self.mean

    def draws(self, words: Words) -> Floats:
        """(..., K, 2) draws, one for each random word (..., K)."""
        return self.mean + np.sqrt(self.variance) * _normal(words[..., None], 2)

    def at(self, log_odds: Floats) -> "Normal":
        """The distribution tilted exponentially, with its mode at these log-odds."""
        return Normal(log_odds, np.broadcast_to(self.variance, log_odds.shape))

    def log_ratio(self, tilted: Any, log_odds: Floats) -> Floats:
        """(...) log of the ratio of its density to a tilted one's, at log-odds (..., 2)."""
        # (x - m')^2 - (x - m)^2, without cancellation
        away = (self.mean - tilted.mean) * (2 * log_odds - tilted.mean - self.mean)
        return (away / (2 * self.variance)).sum(-1)

    def slope(self, log_odds: Floats) -> Floats:
        """The derivative of the log density."""
        return (self.mean - log_odds) / self.variance

    def curvature(self, log_odds: Floats) -> Floats:
        """Minus the second derivative of the log density."""
        return np.broadcast_to(1 / self.variance, log_odds.shape)


class LogBeta(NamedTuple):
    """Log-odds of beta variables: of a probability after these numbers of positives and negatives.

    The log density is positives x - (positives + negatives) log(1 + exp(x)) plus a constant.
    """

    positives: Floats
    negatives: Floats

    def of(self, some: Any) -> "LogBeta":
        """See `Normal`."""
        return LogBeta(self.positives[some], self.negatives[some])

    def center(self) -> Floats:
        """See `Normal`."""
        return np.log(self.positives / self.negatives)

    def draws(self, words: Words) -> Floats:
        """See `Normal`."""
        shape = np.concatenate([self.positives, self.negatives], -1)
        streams = mixed(words[..., None] + np.arange(4).astype(np.uint64))
        gamma = _log_gamma(np.broadcast_to(shape, streams.shape), streams)
        return gamma[..., :2] - gamma[..., 2:]

    def at(self, log_odds: Floats) -> "LogBeta":
        """See `Normal`."""
        total = self.positives + self.negatives
        proba = expit(log_odds)
        positives = np.maximum(total * proba, _LEAST_COUNT / 10)
        return LogBeta(positives, np.maximum(total - positives, _LEAST_COUNT / 10))

    def log_ratio(self, tilted: Any, log_odds: Floats) -> Floats:
        """See `Normal`."""
        from scipy.special import betaln

        more = self.positives - tilted.positives
        total = self.positives + self.negatives - tilted.positives - tilted.negatives
        return (
            betaln(tilted.positives, tilted.negatives)
            - betaln(self.positives, self.negatives)
            + more * log_odds
            - total * np.logaddexp(0, log_odds)
        ).sum(-1)

    def slope(self, log_odds: Floats) -> Floats:
        """See `Normal`."""
        return self.positives - (self.positives + self.negatives) * expit(log_odds)

    def curvature(self, log_odds: Floats) -> Floats:
        """See `Normal`."""
        proba = expit(log_odds)
        return (self.positives + self.negatives) * proba * (1 - proba)


# Distribution of the log-odds at the ends of K problems.
Distribution: TypeAlias = Normal | LogBeta


def counted(at: Ends, n_pos: Floats, n_neg: Floats, up: Bools) -> LogBeta:
    """Distributions of the curves of unpooled fits, by labels at the ends with equal information.

    The labels match the modes and curvatures of the fits. Platt's targets are undone: of n
    positives, n / (n + 2) count as negatives. Half a positive is added at each end if the new
    labels have more positives than expected, half a negative if they have fewer. With one label
    more, beta probabilities give the p-value of Fisher's exact test of two samples, which is valid
    at any probability (Altham 1969, "Exact Bayesian analysis of a 2 x 2 contingency table, and
    Fisher's 'exact' significance test"); with two ends, it is half a label at each. Where only the
    slope changes, half of each is added, as by Jeffreys' prior.

    Args:
        at: the ends of K curves.
        n_pos: (K,) positives of the fits; 0 for fits without Platt's targets.
        n_neg: (K,) negatives of the fits; 0 for fits without Platt's targets.
        up: (K, 2) whether the new labels have more positives than expected, at each end.
    """
    log_odds = np.clip(at.mean, -_FARTHEST, _FARTHEST)
    positives, negatives = (1 + np.exp(x * log_odds) for x in (1, -1))
    positives, negatives = positives / at.variance, negatives / at.variance
    share = positives / positives.sum(1, keepdims=True)
    to_negative = (n_pos / (n_pos + 2))[:, None] * share
    share = negatives / negatives.sum(1, keepdims=True)
    to_positive = (n_neg / (n_neg + 2))[:, None] * share
    more, fewer = (np.where(x.any(1, keepdims=True), _HALF_LABEL, 0) for x in (up, ~up))
    positives = positives + to_negative - to_positive + more
    negatives = negatives - to_negative + to_positive + fewer
    return LogBeta(np.maximum(positives, _LEAST_COUNT), np.maximum(negatives, _LEAST_COUNT))


def _normal(words: Words, number: int) -> Floats:
    """(..., number) standard normal, given random words (..., 1)."""
    from scipy.special import ndtri

    return ndtri(_uniform(mixed(words + np.arange(number).astype(np.uint64))))


def _uniform(words: Words) -> Floats:
    return np.ldexp((words >> np.uint64(12)) + 0.5, -52)


def _log_gamma(shape: Floats, streams: Words) -> Floats:
    """Logarithms of gamma variates, from random words.

    The method is that of Marsaglia & Tsang (2000, "A simple method for generating gamma
    variables"). Their device for small shapes is used for all: a variate of shape a + 1 times
    u^(1 / a) has shape a.
    """
    from scipy.special import ndtri

    d = shape + 2 / 3
    c = 1 / np.sqrt(9 * d)
    drawn, open_ = np.log(d), np.ones(shape.shape, bool)
    for attempt in range(_TRIES):
        words = mixed(streams[open_] + np.uint64(2 * attempt))
        z = ndtri(_uniform(words))
        v = 1 + c[open_] * z
        with np.errstate(invalid="ignore", divide="ignore"):
            log_v = 3 * np.log(v)
            log_u = np.log(_uniform(mixed(words)))
            accepted = log_u < z * z / 2 + d[open_] * (1 - v**3 + log_v)
        drawn[open_] = np.where(accepted, np.log(d[open_]) + log_v, drawn[open_])
        open_[open_] = ~accepted
        if not open_.any():
            break
    return drawn + np.log(_uniform(mixed(streams ^ _LAST))) / shape
