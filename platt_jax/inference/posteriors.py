"""What a calibrator knows of (A, B) of its segments, where in doubt rather too little.

A population is taken for the widest that its segments allow. By its estimate alone, few segments,
or few rows of each, would make it look as if it were known exactly.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population

Floats = NDArray[np.float64]

# The probability of a population at least as wide as is allowed for.
_DOUBT = 0.05
# With fewer degrees of freedom its width is not known. Segments still are if they lean on their own
# rows: if the widest population does not double their variances.
_LEAST_FREEDOM = 1
_GROWTH = 1.0
_PARAMETERS = 2
# A fit by itself to fewer rows says nothing of other scores.
_LEAST_ROWS = 5


class Posteriors(NamedTuple):
    """(A, B) of K segments; the mean is NaN where nothing is known."""

    mean: Floats  # (K, 2)
    covariance: Floats  # (K, 2, 2)
    # (K,) the labels of a fit by itself with Platt's targets, 0 of other fits.
    n_pos: Floats
    n_neg: Floats
    normal: bool  # as by a population; else as by labels of their own
    rounding: float  # of the covariances, relative

    def of(self, some: Any) -> "Posteriors":
        """Of some of the segments."""
        return self._replace(
            mean=self.mean[some],
            covariance=self.covariance[some],
            n_pos=self.n_pos[some],
            n_neg=self.n_neg[some],
        )

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(K,) whether anything is known."""
        finite = np.isfinite(self.mean).all(1), np.isfinite(self.covariance).all((1, 2))
        return np.logical_and(*finite)


def posteriors(calibrator: SegmentCalibrator, place: NDArray[Any]) -> Posteriors:
    """Of the segments at these places (K,) among the keys; -1 is one that was not fitted.

    Nothing is known

    - without a population, of segments that were not fitted, have fewer than 5 rows, or only one
      score;
    - with a population that is hardly known itself, of segments that need it.
    """
    fit, population, nothing = calibrator.fit, calibrator.population, np.zeros(len(place))
    if population is not None and population.estimated:
        mean, covariance = _widened(fit, population)
        return Posteriors(
            mean[place], covariance[place], nothing, nothing, True, _rounding(covariance)
        )
    if calibrator.pooling == "complete":
        pooled = calibrator.fallback_covariance
        mean = np.array([calibrator.fallback.A, calibrator.fallback.B], float)
        mean, covariance = (
            np.broadcast_to(x, (len(place), *x.shape)) for x in (mean, pooled.astype(float))
        )
        return Posteriors(mean, covariance, nothing, nothing, False, _rounding(pooled))

    def each(x: Any) -> Floats:
        x = np.asarray(x, float)
        found: Floats = np.concatenate([x, np.full((1, *x.shape[1:]), np.nan)])[place]
        return found

    n_pos, n_neg = each(fit.n_pos), each(fit.n_neg)
    mean = np.stack([each(fit.A), each(fit.B)], -1)
    mean[n_pos + n_neg < _LEAST_ROWS] = np.nan
    return Posteriors(mean, each(fit.covariance), n_pos, n_neg, False, _rounding(fit.covariance))


def _rounding(x: Any) -> float:
    return float(np.finfo(np.asarray(x).dtype).eps)


def _widened(fit: Fit, population: Population) -> tuple[Floats, Floats]:
    """Means (J + 1, 2) and covariances of the segments, and of one that was not fitted.

    A segment's own estimate lies around the population's mean with the covariance S + D, S between
    segments and D by its rows, and the mean's precision is the sum of their inverses. Of K segments
    S + D is told as a variance is by a chi-square variable with K degrees of freedom, less those
    that each segment's own (A, B) takes of its rows, and less two for the mean.
    """
    S, M, own = population.covariance, population.mean_covariance, population.likelihood_precision
    weight = np.linalg.solve(np.eye(2) + own @ S, own)  # (S + D)^-1
    number, freedom = _told_by(np.einsum("kij,ji->k", weight, M) / 2, fit, population)
    more = _most(freedom)
    wide = S + (more - 1) * number * M
    by_estimate = own + np.linalg.inv(S)
    covariance = np.linalg.inv(own + np.linalg.inv(wide))
    mean = np.vstack([population.posterior_mean, population.predictive_mean])
    mean[:-1][~np.isfinite(fit.A)] = np.nan
    if freedom < _LEAST_FREEDOM:
        grown = np.trace(by_estimate @ covariance, axis1=1, axis2=2) / 2 - 1
        mean[np.append(grown > _GROWTH, True)] = np.nan
    return mean, np.concatenate([covariance, [wide + more * M]])


def _told_by(share: Floats, fit: Fit, population: Population) -> tuple[float, float]:
    """Of how many equal segments the population's mean is, and its degrees of freedom.

    Args:
        share: (J,) of what tells the mean, by segment. Where the shares do not add up to 1, there
            were others, which `SegmentCalibrator.only` has left out: of the same sizes, perhaps.
        fit: (J,).
        population: of them.
    """
    if not share.sum() > 0:
        # The variance of the estimate of a variance S + D by K segments is 2 (S + D)^2 / K.
        errors = np.diag(population.covariance_errors), np.diag(population.mean_covariance)
        number = float(np.min(errors[0] ** 2 / (2 * errors[1] ** 2)))
        return number, number - _PARAMETERS
    share = share / max(1, share.sum())
    rows = np.maximum(np.asarray(fit.n_pos + fit.n_neg, float), _PARAMETERS)
    number = share.sum() / (share**2).sum()
    lost = (share**2 * _PARAMETERS / rows).sum() / (share**2).sum()
    return float(number), float(number * (1 - lost)) - _PARAMETERS


def _most(freedom: float) -> float:
    """How many times its estimate a variance may be."""
    from scipy.special import chdtri

    freedom = max(freedom, _LEAST_FREEDOM)
    return float(freedom / chdtri(freedom, 1 - _DOUBT))
