"""Tests of calibration: whether the labels agree with the probabilities."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.api import fit
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics import counts
from platt_jax.metrics.binned import binned
from platt_jax.metrics.device_rows import read_predictions_there
from platt_jax.metrics.rows import (
    MetricProblems,
    PredictedRows,
    documented,
    ratio,
    read_predictions,
    two_sided_p_value,
)
from platt_jax.model.objective import Array
from platt_jax.options import Options
from platt_jax.status import Flag

# Power of two above which the weights of a fit remain scaled, as below 1: its stopping rule depends
# on their scale.
_LARGEST = 40


class ZTest(NamedTuple):
    """A two-sided test by a standard normal statistic.

    Attributes:
        statistic: (...) standard normal under the hypothesis.
        p_value: (...) in [0, 1].
    """

    statistic: NDArray[Any]
    p_value: NDArray[Any]


class ChiSquareTest(NamedTuple):
    """A test by a statistic that is chi-square in the limit of many rows.

    Attributes:
        statistic: (...) chi-square under the hypothesis if there are many rows.
        df: (...) degrees of freedom of that distribution.
        p_value: (...) in [0, 1]; NaN where df is 0.
    """

    statistic: NDArray[Any]
    df: NDArray[np.intp]
    p_value: NDArray[Any]


class CoxCalibration(NamedTuple):
    """The fit of logit P(y=1) = intercept + slope * logit(proba); each (...).

    Attributes:
        slope: 1 if calibrated; below 1 probabilities are too extreme, above 1 not extreme enough.
        intercept: 0 if calibrated.
        se_slope: standard error of the slope.
        se_intercept: standard error of the intercept.
        slope_test: Wald's test of slope = 1.
        intercept_test: Wald's test of intercept = 0.
        joint_test: likelihood-ratio test of both, with 2 degrees of freedom.
    """

    slope: NDArray[Any]
    intercept: NDArray[Any]
    se_slope: NDArray[Any]
    se_intercept: NDArray[Any]
    slope_test: ZTest
    intercept_test: ZTest
    joint_test: ChiSquareTest


@documented
def cox_calibration(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> CoxCalibration:
    """Calibration slope and intercept by logistic recalibration, with tests (Cox 1958).

    Slope and intercept are fitted together, by maximum likelihood without Platt's targets. (The
    intercept of a fit with slope 1, calibration-in-the-large, is another number.) Each has Wald's
    test. Base decisions on the likelihood-ratio test of (slope, intercept) = (1, 0), which does not
    depend on where the probabilities are centred.

    Use other rows than a sigmoid was fitted to, on which slope and intercept are near (1, 0)
    by construction. Probabilities are clipped to [1e-12, 1 - 1e-12], as by `platt_jax.logit`, with
    a RuntimeWarning: slope and intercept then depend on that limit.

    {rows}

    Returns:
        A CoxCalibration of arrays (...) in the dtype of proba. NaN where there is no finite fit
        (one class only, classes separated by a threshold, equal probabilities), and as the
        package's docstring says.

    Example:
        >>> cox = cox_calibration([0, 1, 0, 1, 0, 1], [0.1, 0.2, 0.3, 0.6, 0.7, 0.9])
        >>> round(float(cox.slope), 4), round(float(cox.joint_test.p_value), 4)
        (0.5805, 0.8163)
    """
    rows = read_predictions(labels, proba, weights, from_logits).as_counts(0, _LARGEST)
    rows = replace(rows, values=rows.logits(), from_logits=True)
    cox = fit(rows.values, rows.positive, weights=rows.weights, options=Options(targets="none"))
    determined = cox.converged & (cox.flags & Flag.CONSTANT_SCORES == 0)

    def masked(x: Array) -> Floats:
        return np.where(determined, x, np.nan)

    # (slope, intercept) = (-A, -B) has the covariance of (A, B).
    slope, intercept = masked(-cox.A), masked(-cox.B)
    se_slope, se_intercept = (rows.per_root(masked(se)) for se in cox.standard_errors.T)
    twice_gain = rows.unscaled(masked(2 * np.maximum(rows.sum(rows.log_losses()) - cox.nll, 0)))
    return CoxCalibration(
        slope=rows.result(slope),
        intercept=rows.result(intercept),
        se_slope=rows.result(se_slope),
        se_intercept=rows.result(se_intercept),
        slope_test=_z_test(rows, ratio(slope - 1, se_slope)),
        intercept_test=_z_test(rows, ratio(intercept, se_intercept)),
        joint_test=_chi_square_test(rows, twice_gain, np.full(len(slope), 2)),
    )


@documented
def spiegelhalter(
    labels: Column, proba: Column, *, weights: Column = None, from_logits: bool = False
) -> ZTest:
    """Spiegelhalter's test (1986) of whether the Brier score is as for calibrated probabilities.

        z = sum((y - p)(1 - 2p)) / sqrt(sum((1 - 2p)^2 p (1 - p)))

    z > 0 means that the Brier score is larger. Weights are counts of rows.

    {rows}

    Returns:
        A ZTest of arrays (...) in the dtype of proba. NaN where all probabilities are 1/2, or all
        are 0 or 1 and right; infinite, with p_value 0, where all are 0 or 1 and one is wrong; and
        NaN as in the package's docstring.

    Example:
        >>> test = spiegelhalter([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.9])
        >>> round(float(test.statistic), 4), round(float(test.p_value), 4)
        (0.603, 0.5465)
    """
    rows = read_predictions_there(labels, proba, weights, from_logits)
    z = ratio(rows.sum_of(_excess), np.sqrt(rows.sum_of(_variance_of_excess)))
    return _z_test(rows, rows.times_root(z))


def _excess(rows: PredictedRows) -> Any:
    """(K, N), whose sum is what the Brier score has more than expected, times the rows."""
    p, q = rows.probabilities()
    return rows.residuals() * (q - p)


def _variance_of_excess(rows: PredictedRows) -> Any:
    p, q = rows.probabilities()
    return (q - p) ** 2 * p * q


@documented
def hosmer_lemeshow(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    in_sample: bool = False,
) -> ChiSquareTest:
    """The Hosmer-Lemeshow test (1980) over groups of equal mass ("deciles of risk").

        chi2 = sum over groups of (positives - sum(p))^2 / (n m (1 - m)), m the group's mean p

    The groups are the non-empty "quantile" bins of `reliability_curve`. The p-values depend on
    them; `cox_calibration` and `spiegelhalter` use no groups.

    In a group where at least 10 labels of either class are expected, the term is taken as
    chi-square. With fewer the number of positives has its exact distribution given the
    probabilities (Poisson's binomial), unless a weight of the problem is no whole number. The
    p-value is exact if all groups are of this kind (`docs/explanation/numbers.md`).

    {rows}
        n_bins: number of groups.
        in_sample: whether the probabilities come from a model fitted to the same rows. If True, df
            is the number of groups - 2; if False, the number of groups (Hosmer, Lemeshow &
            Sturdivant 2013). If True, all terms are taken as chi-square, because the fit moves the
            counts towards their expectations by an unknown amount, and p-values are approximate:
            with 1 % of positives, level .05 rejects 0.5 % of sets of 50 rows and 4 % of 500, but
            level .001 rejects 0.7 % of these.

    Returns:
        A ChiSquareTest of arrays (...) in the dtype of proba, df integers. A group whose
        probabilities are all 0 or all 1 adds 0 if it is right and infinity if not; NaN as in the
        package's docstring.

    Example:
        >>> test = hosmer_lemeshow([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.9], n_bins=2)
        >>> round(float(test.statistic), 4), int(test.df), round(float(test.p_value), 4)
        (1.7917, 2, 0.3952)
    """
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    bins = binned(rows, n_bins, "quantile")
    variance = ratio(bins.p * bins.q, bins.rows)
    squared = bins.residual**2
    terms = np.where(squared == 0, 0, ratio(squared, variance))
    df = (bins.rows > 0).sum(axis=-1) - (2 if in_sample else 0)
    chi2 = np.where(rows.total > 0, rows.unscaled(terms.sum(axis=-1)), np.nan)
    test = _chi_square_test(rows, chi2, np.maximum(df, 0))
    if in_sample:
        return test
    exact = counts.p_values(bins, terms, variance)
    p_value = np.where(np.isnan(exact), _p_value(chi2, df), exact)
    return test._replace(p_value=rows.result(p_value))


def _z_test(rows: MetricProblems, z: Floats) -> ZTest:
    return ZTest(rows.result(z), rows.result(two_sided_p_value(np.abs(z))))


def _chi_square_test(rows: MetricProblems, chi2: Floats, df: NDArray[np.intp]) -> ChiSquareTest:
    p_value = rows.result(_p_value(chi2, df))
    return ChiSquareTest(rows.result(chi2), df.reshape(rows.batch)[()], p_value)


def _p_value(chi2: Floats, df: NDArray[np.intp]) -> Floats:
    from scipy.special import chdtrc  # JAX has SciPy; the import adds a warnings filter

    return np.where(df > 0, chdtrc(df, chi2), np.nan)
