"""Scores and positives to be expected from calibrated probabilities, before labels arrive.

Each of these metrics is a mean of independent terms with two values: a row's term is `l1` with
probability p, else `l0`. With d = l1 - l0 and q = 1 - p, sums over rows give its cumulants exactly:

    mean: sum of p l1 + q l0    variance: sum of p q d^2    third: sum of p q (q - p) d^3
"""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column, takes_columns
from platt_jax.metrics import counts
from platt_jax.metrics.binned import Binned
from platt_jax.metrics.rows import Predictions, pieces, ratio, read_predictions, require_flat_rows
from platt_jax.metrics.segments import by_segment

# Skewness below which the gamma distribution is replaced by its expansion about the normal one.
_NEARLY_NORMAL = 1e-4
_SMALLEST_ROOT = 1e-100  # of a gamma distribution's shape; its square does not underflow
_MOST = 64  # largest count kept; if fewer than `counts.FEW` are expected, its probability is 1e-27
_AT_ONCE = 1 << 15  # maximum number of rows whose counts' distributions are computed together
_UNITS = 64  # of rounding in a metric, at most
_ROUNDING = 1e-12  # of a sum of probabilities


class Expectation(NamedTuple):
    """A metric of labels that are not known yet; each (...).

    Attributes:
        value: its expectation.
        standard_deviation: of its value about the expectation.
        lower: lower end of the prediction interval.
        upper: upper end of the prediction interval.
    """

    value: NDArray[Any]
    standard_deviation: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]


class Expected(NamedTuple):
    """What calibrated probabilities lead to expect.

    Attributes:
        log_loss: of `metrics.log_loss`, in nats per row.
        brier_score: of `metrics.brier_score`.
        rate: of the share of positives.
        positives: of the number of positives, which is the rate times the number of rows.
    """

    log_loss: Expectation
    brier_score: Expectation
    rate: Expectation
    positives: Expectation


@takes_columns
def expected(
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    segments: Column | None = None,
) -> Any:
    """Log loss, Brier score, rate and number of positives to be expected, before labels arrive.

    Each label is taken as drawn independently with the stated probability. So this says what
    happens if the probabilities are calibrated, and nothing about whether they are. Once labels are
    there, compare: a metric outside its interval is evidence of miscalibration, or of labels that
    depend on each other. `Monitor` and `triage` test for it. NannyML's CBPE estimates metrics of
    the confusion matrix so (Kivimaki, Bialek, Kuberski & Nurminen 2025, arXiv:2505.05295).

    The interval is a prediction interval: it holds the metric's value on the labels to come, not
    only its expectation, with a probability of about `level` or more. Its ends are quantiles of a
    shifted gamma distribution (Pearson's type III), within the attainable range; of the number of
    positives, where few are expected, of Poisson's binomial. `docs/explanation/numbers.md` has the
    method, and how often simulated intervals held the metrics.

    Args:
        proba: (..., N) probabilities of class 1, or logits; (N,) with `segments`.
        weights: counts of rows >= 0, broadcastable to proba: a row of weight 2 is two rows, with a
            label each. Intervals depend on the weights' scale. With weights that are not whole
            numbers the number of positives is not rounded.
        from_logits: whether proba holds logits.
        level: probability of the interval, in (0, 1), half of the rest on each side.
        segments: (N,) ids as in `fit_segments`, or None.

    Returns:
        An Expected of four Expectations of arrays (...), in the dtype of proba; NaN as in the
        package's docstring. With segments, a BySegment of it, whose `table` has a line per segment
        with columns such as `log_loss_value` and `positives_upper`.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> found = expected([0.1, 0.2, 0.9, 0.4], segments=["a", "b", "b", "b"])
        >>> found.values.positives.value.round(2), found.values.positives.upper
        (array([0.1, 1.5]), array([1., 3.]))
    """
    validation.require_fraction(level, "level")
    if segments is None:
        return _expected(False, proba, weights=weights, from_logits=from_logits, level=level)
    require_flat_rows(proba)
    options: dict[str, Any] = {"from_logits": from_logits, "level": level}
    return by_segment(_expected, False, proba, segments, weights=weights, **options)


def _expected(
    labels: Column, proba: Column, *, weights: Column, from_logits: bool, level: float
) -> Expected:
    """As `expected`; the labels do not matter."""
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    shape, tail = rows.values.shape, (1 - level) / 2
    p, q = rows.probabilities()
    # Whether all labels are the more probable ones so surely that the intervals are one value.
    surely = np.exp(rows.sum(np.log1p(-np.minimum(p, q)))) >= 1 - tail
    rate = _mean_of_terms(rows, np.ones(shape), np.zeros(shape), tail, surely)
    parts = (
        _mean_of_terms(rows, *rows.log_losses_by_label(), tail, surely),
        _mean_of_terms(rows, q * q, p * p, tail, surely),
        *_rate_and_positives(rows, rate, tail),
    )
    return Expected(*(Expectation(*map(rows.result, part)) for part in parts))


def _mean_of_terms(
    rows: Predictions, l1: Floats, l0: Floats, tail: float, surely: Bools
) -> Expectation:
    """The mean of terms that are l1 (K, N) where the label is 1, and l0 where it is 0."""
    p, q = rows.probabilities()
    d = l1 - l0
    # In this order nothing overflows: p q is 0 where d is huge.
    variance_of_row = p * q * d * d
    variance, third, fourth = (
        rows.mean(x)
        for x in (variance_of_row, variance_of_row * (q - p) * d, variance_of_row * d * d)
    )
    value = rows.mean(p * l1 + q * l0)
    least, most = rows.mean(np.minimum(l0, l1)), rows.mean(np.maximum(l0, l1))
    # Weights of less than a row in all do not make it vary more than between its ends.
    widest = np.maximum((most - value) * (value - least), 0)
    deviation = np.sqrt(np.minimum(ratio(variance, rows.total), widest))
    varies = variance > 0
    skewness = np.where(varies, ratio(ratio(third, variance), deviation * rows.total), 0)
    step = np.where(varies, ratio(np.sqrt(ratio(fourth, variance)), rows.total), 0)
    below, above = (deviation * _quantile(skewness, x) for x in (tail, 1 - tail))
    lower = np.clip(value + below - step / 2, least, most)
    upper = np.clip(value + above + step / 2, least, most)
    likely = rows.mean(np.where(p > q, l1, l0))
    lower, upper = (np.where(surely, likely, end) for end in (lower, upper))
    # So that the metric is inside where it differs from an end by rounding alone.
    rounding = _UNITS * np.finfo(rows.dtype).eps
    return Expectation(value, deviation, lower * (1 - rounding), upper * (1 + rounding))


def _quantile(skewness: Floats, probability: float) -> Floats:
    """(K,) quantiles of shifted gamma distributions of mean 0 and variance 1."""
    from scipy.special import gammaincinv  # JAX has SciPy; the import adds a warnings filter

    # A negative skewness belongs to the mirrored distribution.
    mirrored = skewness < 0
    size = np.maximum(np.abs(skewness), _NEARLY_NORMAL)
    root = np.maximum(2 / size, _SMALLEST_ROOT)
    gamma = gammaincinv(root * root, np.where(mirrored, 1 - probability, probability))
    gamma = np.where(mirrored, -1, 1) * (gamma / root - root)
    z = NormalDist().inv_cdf(probability)
    normal = z + skewness * (z * z - 1) / 6  # Cornish & Fisher's expansion
    return np.where(np.abs(skewness) < _NEARLY_NORMAL, normal, gamma)


def _rate_and_positives(
    rows: Predictions, rate: Expectation, tail: float
) -> tuple[Expectation, Expectation]:
    """The rate, and the number of positives, with ends that the number can attain."""
    value, deviation, lower, upper = (x * rows.total for x in rate)
    p, q = rows.probabilities()
    whole = (rows.weights == np.rint(rows.weights)).all(axis=-1)
    lower, upper = np.where(whole, np.ceil(lower), lower), np.where(whole, np.floor(upper), upper)
    few = whole & (rows.total > 0)
    for rarer in (np.where(p <= q, p, 0), np.where(p > q, q, 0)):
        few &= rows.sum(rarer) < counts.FEW
    for chunk in pieces(np.flatnonzero(few), _AT_ONCE // rows.values.shape[1]):
        lower[chunk], upper[chunk] = _exact_interval(rows.some(chunk), tail)
    lower, upper = (np.clip(x, 0, rows.total) for x in (lower, upper))
    ends = (ratio(x, rows.total) for x in (lower, upper))
    return (
        Expectation(rate.value, rate.standard_deviation, *ends),
        Expectation(*map(rows.unscaled, (value, deviation, lower, upper))),
    )


def _exact_interval(rows: Predictions, tail: float) -> tuple[Floats, Floats]:
    """Quantiles (K,) of the numbers of positives, where few labels are the less probable ones.

    The number is the count of the rows whose label 1 is the more probable one, plus the 1s among
    the other rows, minus the 0s among these.
    """
    p, q = rows.probabilities()
    likely = p > q
    bins = Binned(rows, likely.astype(np.intp), 2)
    distributions = counts.distributions(bins, np.ones((len(p), 2), bool), _MOST)
    chances = np.concatenate([piece for _, piece in distributions])
    more, fewer = chances[0::2], chances[1::2]
    sum_chances = np.zeros((len(p), 2 * _MOST + 1))
    for k in range(_MOST + 1):
        sum_chances[:, _MOST - k : 2 * _MOST + 1 - k] += fewer[:, k, None] * more
    below = np.cumsum(sum_chances, axis=-1)
    start = rows.sum(likely) - _MOST
    lower, upper = (
        start + (below < limit).sum(axis=-1) for limit in (tail + _ROUNDING, 1 - tail - _ROUNDING)
    )
    return lower, upper
