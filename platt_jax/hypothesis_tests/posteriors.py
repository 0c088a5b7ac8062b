"""A calibrator's knowledge of its segments' (A, B), with conservative uncertainty.

A population is taken to be the widest that its segments allow. The estimate alone would look exact
even with few segments, or few rows in each. Its width has two bounds, of which the smaller one
holds: by the number of segments, and by the average over populations, which is what bands show.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.hypothesis_tests.curve_distributions import ends
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results.fit import Fit
from platt_jax.results.population import PARAMETERS, Population
from platt_jax.results.segment_calibrator import SegmentCalibrator

# Probability that the population is wider than allowed for.
_DOUBT = 0.05
# How many times its mean a variance is at most, but for that probability, if the density of the
# standard deviation is log-concave: 4.5, which an exponential density reaches.
_TIMES_MEAN = np.log(_DOUBT) ** 2 / 2
# With fewer degrees of freedom the population's width is unknown. A segment is then used only if
# its own rows dominate: if the widest population raises its variance by at most _GROWTH.
_LEAST_FREEDOM = 1
_GROWTH = 1.0
# Least number of rows for a fit without a population.
LEAST_ROWS = 5


class SegmentPosteriors(NamedTuple):
    """Distributions of (A, B) of K segments."""

    curves: NormalMoments  # (K,); the mean is NaN where nothing is known
    # (K,) class counts of an unpooled fit with Platt's targets; 0 for other fits
    n_pos: Floats
    n_neg: Floats
    normal: bool  # whether distributions are normal (population), else by labels (`counted`)
    rounding: float  # relative rounding error of the covariances

    def of(self, some: Any) -> "SegmentPosteriors":
        """The distributions of some of the segments."""
        parts = self.curves.of(some), self.n_pos[some], self.n_neg[some]
        return SegmentPosteriors(*parts, self.normal, self.rounding)

    @property
    def usable(self) -> Bools:
        """(K,) whether the distribution is known."""
        mean, covariance = (np.isfinite(x) for x in self.curves)
        return np.logical_and(mean.all(1), covariance.all((1, 2)))


def posteriors(
    calibrator: SegmentCalibrator, keys: NDArray[Any], place: NDArray[Any]
) -> SegmentPosteriors:
    """The distributions of segments (K,), given their places among the fitted; -1 if not fitted.

    They are unknown

    - without a population, for segments that were not fitted, have fewer than 5 rows, or only one
      score;
    - with a population that is itself uncertain, for segments that depend on it.
    """
    fit, population, nothing = calibrator.fit, calibrator.population, np.zeros(len(place))
    if population is not None and population.estimated:
        averaged = _is_average(calibrator, population)
        curves = _widened(fit, population, averaged).of(place)
        if calibrator.by_level is not None and (new := place < 0).any():
            curves.mean[new], curves.covariance[new] = calibrator.by_level.curves(keys[new])
        return SegmentPosteriors(curves, nothing, nothing, True, _rounding(curves.covariance))
    if calibrator.pooling == "complete":
        pooled, unseen = calibrator.fallback_covariance, calibrator.fallback
        # One curve, but `shift_prior` may have moved each segment's by another difference.
        A, B = (np.append(*x).astype(float) for x in ((fit.A, unseen.A), (fit.B, unseen.B)))
        covariances = np.broadcast_to(pooled.astype(float), (len(A), 2, 2))
        curves = NormalMoments(np.stack([A, B], -1), covariances).of(place)
        return SegmentPosteriors(curves, nothing, nothing, False, _rounding(pooled))

    def placed(x: Any) -> Floats:
        x = np.asarray(x, float)
        return np.concatenate([x, np.full((1, *x.shape[1:]), np.nan)])[place]

    n_pos, n_neg = placed(fit.n_pos), placed(fit.n_neg)
    mean = np.stack([placed(fit.A), placed(fit.B)], -1)
    mean[n_pos + n_neg < LEAST_ROWS] = np.nan
    curves = NormalMoments(mean, placed(fit.covariance))
    counts = (n_pos, n_neg) if calibrator.options.targets == "platt" else (nothing, nothing)
    return SegmentPosteriors(curves, *counts, False, _rounding(fit.covariance))


def _rounding(x: Any) -> float:
    return float(np.finfo(np.asarray(x).dtype).eps)


def _is_average(calibrator: SegmentCalibrator, population: Population) -> bool:
    """Whether `predictive_covariance` is an average over populations.

    With a drift or from an old file it is the estimated population's alone. Levels are averaged
    over two values of each spread, which do not bound its density.
    """
    at_estimate = population.covariance + population.mean_covariance
    alone = np.array_equal(population.average_covariance, at_estimate)
    return calibrator.by_level is None and not alone


def _widened(fit: Fit, population: Population, averaged: bool) -> NormalMoments:
    """The distributions (J + 1,) of the segments, and last of one that was not fitted.

    A segment's own estimate varies around the population's mean with covariance S + D, S between
    segments and D by its rows; the mean's precision is the sum of the inverses. From K segments,
    S + D is estimated like a variance by a chi-square variable. It has K degrees of freedom, minus
    those used by each segment's own (A, B), minus two for the mean, and for each covariate. A
    segment's mean follows its covariates, with the errors of the coefficients.

    Where rows are few or surely predicted, segments differ much in D, and this may be ten times the
    variance that the rows allow. So if `predictive_covariance` is an average over populations, it
    bounds S as well: in no direction is its variance more than _TIMES_MEAN times an unseen
    segment's.
    """
    to = _to_unit(population)
    back = np.linalg.inv(to)
    S, M = (to @ x @ to.T for x in (population.covariance, population.mean_covariance))
    rows = population.likelihood_precision, population.likelihood_pull
    precision = Likelihoods.from_arrays(*rows).transformed(to).precision.matrices
    number, freedom = _effective_number(fit, population)
    more = most_times(freedom)
    wide = S + (more - 1) * number * M
    if averaged and freedom >= _LEAST_FREEDOM:
        values, vectors = np.linalg.eigh(wide)
        wide = (vectors * np.minimum(values, _TIMES_MEAN)) @ vectors.T
    by_estimate = precision + np.linalg.inv(S)
    covariance = np.linalg.inv(precision + np.linalg.inv(wide))
    unseen, covariates = wide + more * M, population.covariates
    if covariates is not None:
        errors = to @ (population.mean_covariance + covariates.errors(covariates.values)) @ to.T
        response = covariance @ np.linalg.inv(wide)
        covariance = covariance + more * response @ errors @ np.swapaxes(response, -1, -2)
        unseen = unseen + to @ covariates.spread @ to.T
    mean = np.vstack([population.posterior_mean, population.predictive_mean])
    mean[:-1][~np.isfinite(fit.A)] = np.nan
    if freedom < _LEAST_FREEDOM:
        grown = np.trace(by_estimate @ covariance, axis1=1, axis2=2) / 2 - 1
        mean[np.append(grown > _GROWTH, True)] = np.nan
    covariance = np.concatenate([covariance, [unseen]])
    covariance = back @ covariance @ back.T
    alone = np.flatnonzero(population.left_out(fit.flags) & np.isfinite(fit.A))
    mean[alone] = population.posterior_mean[alone]
    covariance[alone] = population.posterior_covariance[alone]
    return NormalMoments(mean, covariance)


def _to_unit(population: Population) -> Floats:
    """(2, 2), to coordinates in which the covariance of an unseen segment is the unit matrix.

    With covariates it is one with average ones. Scores may be far from 0, where the covariances of
    (A, B) are nearly singular.
    """
    covariance = population.average_covariance
    at = ends(population.predictive_mean[None], covariance[None], _rounding(covariance))
    scores = at.center + at.half_width * np.array([1.0, -1.0])
    to: Floats = np.stack([scores, np.ones(2)], -1) / np.sqrt(at.variance[0, 0])
    return to


def _effective_number(fit: Fit, population: Population) -> tuple[float, float]:
    """The effective number of equal segments behind the population's mean, and degrees of freedom.

    If the shares of the mean's precision do not add up to 1, as in an old file of some of the
    segments, the others are assumed to be of like sizes.
    """
    share, squares, lost = population.shares(fit.n_pos + fit.n_neg)
    if not share > 0:
        # The variance of the estimate of a variance S + D by K segments is 2 (S + D)^2 / K.
        errors = np.diag(population.covariance_errors), np.diag(population.mean_covariance)
        number = float(np.min(errors[0] ** 2 / (2 * errors[1] ** 2)))
        return number, number - PARAMETERS
    number = share * max(1, share) / squares
    coefficients = 1 if population.covariates is None else 1 + population.covariates.rank
    return float(number), float(number * (1 - lost / squares)) - PARAMETERS * coefficients


def most_times(freedom: float) -> float:
    """The maximum ratio of a variance to its estimate, with probability 1 - _DOUBT."""
    from scipy.special import chdtri

    freedom = max(freedom, _LEAST_FREEDOM)
    return float(freedom / chdtri(freedom, 1 - _DOUBT))
