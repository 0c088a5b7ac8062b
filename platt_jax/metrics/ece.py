"""Calibration by bins: the reliability curve, and calibration errors with what chance adds."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics import counts
from platt_jax.metrics.binned import Binned, binned
from platt_jax.metrics.device_rows import BinSums, bin_sums, read_predictions_there
from platt_jax.metrics.rows import documented, ratio, read_predictions
from platt_jax.results.probabilities import critical_value

# Variance of a count from which on its mean absolute deviation is taken as a normal's; it is within
# 0.1 %.
_NEARLY_NORMAL = 100


class ReliabilityCurve(NamedTuple):
    """Predicted and observed frequencies by bin; each (..., n_bins), NaN in empty bins.

    Attributes:
        prob_pred: mean probability of the bin's rows.
        prob_true: frequency of class 1 among the bin's rows.
        lower: lower end of the interval around prob_true.
        upper: upper end of the interval around prob_true.
        rows: (weighted) number of rows; 0 in empty bins.
    """

    prob_pred: NDArray[Any]
    prob_true: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    rows: NDArray[Any]


class ECEInterval(NamedTuple):
    """The expected calibration error and its confidence interval; each (...).

    Attributes:
        value: the result of `expected_calibration_error`.
        lower: lower end of the interval around the true error.
        upper: upper end of the interval around the true error.
    """

    value: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]


@documented
def reliability_curve(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    strategy: str = "uniform",
    level: float = 0.95,
) -> ReliabilityCurve:
    """Observed frequency against mean probability in bins, with Wilson's intervals.

    "uniform" bins have equal width: (b/n, (b+1)/n], with 0 in the first and 1 in the last (Guo et
    al. 2017). "quantile" bins have equal mass. A row's bin is determined by the midpoint of its
    probability's share of the total weight, in the order of probabilities. "positives" bins have
    equal expected numbers of positives, for which each row's weight is multiplied by its
    probability: where positives are rare, most rows are in the first bin. Equal probabilities are
    never split, so the order of rows does not matter, and weight 2 equals the row twice. With many
    equal probabilities bins are uneven and may be empty.

    The intervals (Wilson 1927) cover each bin's frequency at the given level on average.
    They treat weights as counts.

    {rows}
        {bins}
        level: confidence level of the intervals, in (0, 1).

    Returns:
        A ReliabilityCurve of arrays (..., n_bins) in the dtype of proba.

    Example:
        >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8], n_bins=2)
        >>> curve.prob_pred.round(2).tolist(), curve.prob_true.tolist()
        ([0.2, 0.7], [0.0, 1.0])
        >>> curve.lower.round(4).tolist(), curve.upper.round(4).tolist()
        ([0.0, 0.3424], [0.6576, 1.0])
    """
    validation.require_fraction(level, "level")
    rows = read_predictions_there(labels, proba, weights, from_logits).as_counts()
    bins = bin_sums(rows, n_bins, strategy)
    z2 = critical_value(level, simultaneous=False) ** 2
    frequency = ratio(bins.positive, bins.rows)
    center = (bins.positive + z2 / 2) / (bins.rows + z2)
    variance = frequency * (bins.rows - bins.positive) + z2 / 4
    half = np.sqrt(z2 * variance) / (bins.rows + z2)
    curve = (
        ratio(bins.p, bins.rows),
        frequency,
        np.maximum(center - half, 0),
        np.minimum(center + half, 1),
        np.where(rows.total > 0, rows.unscaled(bins.rows).T, np.nan).T,
    )
    return ReliabilityCurve(*(rows.result(column) for column in curve))


@documented
def expected_calibration_error(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    strategy: str = "uniform",
) -> Any:
    """The expected calibration error (ECE), by bins.

    This is the mean over rows of the bin's abs(frequency of class 1 - mean probability of class 1),
    the binary ECE of the positive class (Naeini, Cooper & Hauskrecht 2015). Bins cover all of
    [0, 1]. The ECE of the predicted class's confidence, max(p, 1 - p), is a different measure. With
    strategy="quantile" it is the adaptive calibration error (Nguyen & O'Connor 2015; Nixon et al.
    2019).

    It is biased upwards, more with fewer rows per bin: `ece_by_chance` gives its mean for
    calibrated probabilities, `ece_interval` an interval of the true error. It also depends on the
    bins; `smooth_ece` does not.

    {rows}
        {bins}

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> round(float(expected_calibration_error([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8])), 6)
        0.25
    """
    rows = read_predictions_there(labels, proba, weights, from_logits)
    bins = bin_sums(rows, n_bins, strategy)
    return rows.result(ratio(np.abs(bins.residual).sum(axis=-1), rows.total))


@documented
def maximum_calibration_error(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    strategy: str = "uniform",
) -> Any:
    """The maximum calibration error (MCE): the largest of any bin with rows.

    A bin's error is abs(frequency of class 1 - mean probability of class 1), for the positive class
    (Naeini, Cooper & Hauskrecht 2015). A bin with a single row can determine it;
    strategy="quantile" avoids that.

    {rows}
        {bins}

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> round(float(maximum_calibration_error([0, 0, 1, 1], [0.1, 0.3, 0.6, 0.8])), 6)
        0.4
    """
    rows = read_predictions_there(labels, proba, weights, from_logits)
    bins = bin_sums(rows, n_bins, strategy)
    gaps = np.abs(ratio(bins.residual, bins.rows))
    largest = np.where(bins.rows > 0, gaps, 0).max(axis=-1)
    return rows.result(np.where(rows.total > 0, largest, np.nan))


@documented
def ece_by_chance(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    strategy: str = "uniform",
) -> Any:
    """The mean of `expected_calibration_error` if the probabilities are calibrated.

    Calibrated probabilities do not have error 0, because in each bin the labels vary by chance.
    This function gives the mean of the error in that case; compare the error with it. The result
    does not depend on the labels' values.

        ECE by chance = sum over bins of E abs(positives - sum(p)) / rows

    In a bin where fewer than 10 labels of a class are expected, the number of positives has its
    exact distribution (Poisson's binomial), so the mean is exact. In other bins, and with weights
    that are not whole numbers, it is taken as normal (`docs/explanation/numbers.md`). Unlike the
    error, this depends on the scale of the weights.

    {rows}
        {bins}

    Returns:
        (...) in the dtype of proba, in [0, 1]; NaN as in the package's docstring, also for
        a NaN label.

    Example:
        >>> from platt_jax.metrics import expected_calibration_error
        >>> rows = [0, 1, 0, 1], [0.1, 0.3, 0.6, 0.9]
        >>> round(float(expected_calibration_error(*rows)), 3)
        0.375
        >>> round(float(ece_by_chance(*rows)), 3)
        0.315
    """
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    bins = binned(rows, n_bins, strategy)
    most = np.where(bins.rows > 0, 2 * bins.p * ratio(bins.q, bins.rows), 0)
    distance = np.minimum(np.sqrt(2 / np.pi * bins.variance), most)
    rare = counts.rarer(bins)
    expected, exact = rare.expected[rare.few], np.empty(rare.few.sum())
    for chunk, chances in counts.distributions(bins, rare.few, counts.FEW):
        # Twice the mean shortfall from the expectation is the mean absolute deviation.
        short = np.maximum(expected[chunk, None] - np.arange(counts.FEW), 0)
        exact[chunk] = 2 * (short * chances[:, : counts.FEW]).sum(axis=-1)
    distance[rare.few] = exact
    return rows.result(ratio(distance.sum(axis=-1), rows.total))


@documented
def ece_interval(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    n_bins: int | str = 10,
    strategy: str = "uniform",
    level: float = 0.95,
) -> ECEInterval:
    """The expected calibration error (ECE) with a confidence interval of the true error.

    An interval that leaves out 0 is evidence, at this level, that the predictions are not
    calibrated. The true error is what the ECE would be if each label were replaced by its true
    probability; for calibrated predictions it is 0. Labels are taken as independent.

        interval = ECE -+ (quantile of the noise at `level` + 1 / (2 rows)), within [0, 1],

    where the noise is the sum over bins of abs(positives - their expectation) / rows, as for
    binomial numbers (Hoeffding 1956; Diaconis & Zabell 1991). It is wider than necessary where the
    errors of most bins exceed their noise. Unlike the error, the interval depends on the scale of
    the weights. `docs/explanation/numbers.md` has the method, and how often intervals held.

    {rows}
        {bins}
        level: confidence level of the interval, in (0, 1).

    Returns:
        An ECEInterval in the dtype of proba, in [0, 1]; NaN as in the package's docstring.

    Example:
        >>> import numpy as np
        >>> p = np.linspace(0.05, 0.95, 500)
        >>> labels = np.random.default_rng(0).random(500) < p
        >>> [round(float(x), 3) for x in ece_interval(labels, p)]
        [0.052, 0.0, 0.121]
        >>> [round(float(x), 3) for x in ece_interval(labels, p**2)]
        [0.164, 0.095, 0.234]
    """
    validation.require_fraction(level, "level")
    rows = read_predictions_there(labels, proba, weights, from_logits).as_counts()
    bins = bin_sums(rows, n_bins, strategy)
    error = np.abs(bins.residual).sum(axis=-1)
    reach = _noise_quantile(bins, rows.total, level) + 0.5
    ends = np.maximum(error - reach, 0), np.minimum(error + reach, rows.total)
    return ECEInterval(*(rows.result(ratio(x, rows.total)) for x in (error, *ends)))


def _noise_quantile(each: Binned | BinSums, total: Floats, level: float) -> Floats:
    """(K,) quantiles of the sum over bins of abs(positives - their expectation)."""
    from scipy.special import gammaincinv  # JAX has SciPy; the import adds a warnings filter

    n = each.rows
    added = critical_value(level, simultaneous=False) ** 2 * ratio(n, total[:, None])
    observed = ratio(np.minimum(each.positive, n - each.positive) + added / 2, n + added)
    predicted = ratio(np.minimum(each.p, each.q), n)
    rate = np.where(n > 0, np.fmax(observed, predicted), 0)
    bin_means = _mean_absolute_deviation(n, rate)
    mean = bin_means.sum(axis=-1)
    variance = np.maximum(n * rate * (1 - rate) - bin_means**2, 0).sum(axis=-1)
    shape = ratio(mean, variance) * mean  # in this order nothing overflows
    gamma = gammaincinv(shape, level) * ratio(variance, mean)
    return np.where(variance > 0, gamma, mean)


def _mean_absolute_deviation(n: Floats, rate: Floats) -> Floats:
    """The deviation of a binomial count of n rows, by De Moivre's formula; n need not be whole.

    It is 2 m C(n, m) rate^m (1 - rate)^(n - m + 1) with m = floor(n rate) + 1, and
    m C(n, m) = 1 / B(m, n - m + 1).
    """
    from scipy.special import betaln, xlog1py, xlogy

    variance = n * rate * (1 - rate)
    m = np.floor(n * rate) + 1
    complement = n + (1 - m)  # n - m would lose a small n
    log_power = xlogy(m, rate) + xlog1py(complement, -rate)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = 2 * np.exp(log_power - betaln(m, complement))
    return np.where(variance < _NEARLY_NORMAL, exact, np.sqrt(2 / np.pi * variance))
