"""Calibration in many centres, and what it says of a new one."""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.api import fit_segments
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.groups import Groups
from platt_jax.ids.factorize import factorize
from platt_jax.metrics.rows import Predictions, ratio, read_flat_predictions
from platt_jax.metrics.segments import by_segment
from platt_jax.metrics.significance import cox_calibration
from platt_jax.population.one_number import LikelihoodTable, population_of_numbers
from platt_jax.results.population import Population
from platt_jax.results.probabilities import critical_value, expit, log_expit
from platt_jax.results.tables import Table, keyed
from platt_jax.searches import newton_roots

# Rows of the rarer class below which a centre says little of its slope.
_FEW = 10
# Points of a centre's likelihood, in standard errors around its peak.
_POINTS = np.linspace(-10, 10, 97)
# The peak is that under a normal prior with this precision, since without positives, or without
# negatives, there is none.
_PEAK_PRECISION = 1 / 9
_FARTHEST = 60.0  # log-odds; the search for an intercept does not go further
_NEAR = 1e-10
_COLUMNS = (
    *("rows", "positives", "expected", "ratio", "se_log_ratio", "ratio_lower", "ratio_upper"),
    *("in_the_large", "se_in_the_large", "intercept", "se_intercept", "slope", "se_slope"),
)
_PARAMETERS = ("ratio", "in_the_large", "intercept", "slope")
_RATIO_FIELDS = ("value", "lower", "upper", "new_lower", "new_upper")


class Centres(Table):
    """A table with a line per centre, and `overall`, what they say together.

    Attributes:
        overall: a table with a line for each parameter.
    """

    overall: Table

    def __init__(self, columns: Any, overall: Table) -> None:
        super().__init__(columns)
        self.overall = overall


class _CentreRows(NamedTuple):
    """Rows of centres, end to end."""

    groups: Groups
    logits: Floats
    positive: Bools
    weights: Floats


def summarize_centres(
    proba: Column,
    labels: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    tolerance: float = 0.2,
) -> Centres:
    """How well probabilities are calibrated in each of several centres, and in a new one.

    Each centre (hospital, site, country) has three usual measures (Van Calster et al. 2016): the
    ratio of observed to expected positives, O:E; calibration in the large, the intercept a of
    logit P(y=1) = logit(proba) + a; and intercept and slope fitted together. The two intercepts are
    different numbers.

    Over centres each measure is normal (O:E on the log scale), and its mean, its standard deviation
    and a prediction interval for a new centre are estimated as in a meta-analysis of validations
    (Debray et al. 2019; in R `metamisc::valmeta` and CalibrationCurves). The likelihoods are those
    of the rows, without a normal approximation, so centres without positives count for what they
    say and nothing is added to zeros. Intercept and slope together have the population of
    ``fit_segments(..., pooling="partial")``; the other two have their spread integrated out, under
    the same prior.

    Simulated with 10 and 30 centres of 50 to 500 rows, 2 to 50 % positives and standard deviations
    of 0.2 and 0.5 (0.25 of slopes), prediction intervals of 95 % held the measures of new centres
    in 91 to 99 % of the draws. They hold all of them where centres do not differ, since a spread of
    0 is never certain: with 10 centres the interval of a slope is then 0.7 wide, and `within` too
    low. With 2 % positives in 10 centres the spread is hardly known, and intervals are as wide as
    its prior lets them be. Intervals of the mean held
    it in 88 to 100 % of the samples, the least for slopes. Nothing here says whether the centres
    are a fair sample of those to come.

    Where centres are large, means and spreads agree with a meta-analysis by restricted maximum
    likelihood. Of the 23 validations of EuroSCORE II in metamisc, that has a mean O:E of 1.11 (0.90
    to 1.36) and a prediction interval from 0.43 to 2.86; here it is 1.09 (0.89 to 1.34), and 0.42
    to 2.85, as the likelihoods of studies with few positives are skewed.

    Args:
        proba: (N,) probabilities of class 1, or logits.
        labels: (N,) bool, {0, 1} or {-1, +1}.
        segments: (N,) ids of the centres, as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: probability of the intervals, in (0, 1).
        tolerance: how far off a centre may be: log-odds within `tolerance` of 0, a slope within it
            of 1, a ratio between 1 / (1 + tolerance) and 1 + tolerance.

    Returns:
        A Centres table with a line per centre, in ascending order, and the columns

        - `segment`, or one column for each of its several columns; `rows` and `positives`,
          weighted; and `expected`, the sum of the probabilities;
        - `ratio`, positives / expected, `se_log_ratio`, and the interval from `ratio_lower` to
          `ratio_upper`;
        - `in_the_large` and `se_in_the_large`;
        - `intercept`, `se_intercept`, `slope` and `se_slope` of the joint fit, as by
          `metrics.cox_calibration`;
        - `status`: OK; FEW_EVENTS with fewer than 10 rows of the rarer class, whose joint fit says
          little; ONE_CLASS, whose intercepts, slope and errors are NaN; SEPARABLE, without a joint
          fit; EMPTY, without rows of positive weight; NON_FINITE, with a NaN in a row, so that all
          is NaN and the centre counts nowhere.

        Its `overall` is a Table with a line per `parameter` ("ratio", "in_the_large", "intercept",
        "slope") and the columns `segments`, the number of centres; `value`, the mean, with the
        interval from `lower` to `upper`; `standard_deviation` of the centres, of the log for the
        ratio; `new_lower` and `new_upper`, the prediction interval for a new centre; and `within`,
        the probability that a new centre is within the tolerance. NaN where fewer than two centres
        count, or a population cannot be estimated.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> sites, logits = np.arange(6000) % 30, rng.normal(-1, 1, 6000)
        >>> off = 0.4 * rng.normal(size=30)[sites]
        >>> labels = rng.random(6000) < 1 / (1 + np.exp(-logits - off))
        >>> centres = summarize_centres(logits, labels, sites, from_logits=True)
        >>> overall = centres.overall
        >>> overall["parameter"].tolist()
        ['ratio', 'in_the_large', 'intercept', 'slope']
        >>> float(overall["standard_deviation"][1].round(2))
        0.36
    """
    validation.require_fraction(level, "level")
    validation.require_not_negative(tolerance, "tolerance")
    validation.require_each(proba, "proba", labels=labels, segments=segments)
    values = validation.floating(proba, "proba")
    validation.require_flat(values, "proba")
    if not from_logits:
        validation.require_probabilities(values, "proba", validation.IF_LOGITS)
    numbered = factorize(ids.read_rows(segments, len(values)))
    number = numbered.of(slice(None))
    given = validation.labelled_rows(values, labels, weights, "proba")
    y, w, spoilt = (x.reshape(-1) for x in given.flat())
    total = numbered.numbers
    finite = np.bincount(number, spoilt & (w > 0), total) == 0
    kept = finite[number] & (w > 0)
    order = np.flatnonzero(kept)[np.argsort(number[kept], kind="stable")]
    sizes = np.bincount(number[kept], minlength=total)
    used = np.flatnonzero(sizes)
    columns = {name: np.full(total, np.nan) for name in _COLUMNS}
    status = np.where(finite, "EMPTY", "NON_FINITE").astype("<U10")
    overall = _overall_table([_UNKNOWN] * 4, 0)
    if len(used):
        read = read_flat_predictions(y[order], values[order], w[order], from_logits)
        rows = _end_to_end(read, sizes[used])
        for name, column in _centre_columns(rows, level).items():
            columns[name][used] = column
        status[used] = _statuses(*(columns[x][used] for x in ("rows", "positives", "slope")))
        overall = _overall(rows, level, tolerance)
    used_keys = numbered.named(np.arange(total))
    return Centres(keyed("segment", used_keys, {**columns, "status": status}), overall)


def _end_to_end(read: Predictions, sizes: NDArray[Any]) -> _CentreRows:
    return _CentreRows(Groups(sizes), read.logits()[0], read.positive[0], read.weights[0])


def _statuses(rows: Floats, positives: Floats, slope: Floats) -> NDArray[np.str_]:
    rarer = np.minimum(positives, rows - positives)
    few = np.where(rarer < _FEW, "FEW_EVENTS", "OK")
    return np.where(rarer == 0, "ONE_CLASS", np.where(np.isnan(slope), "SEPARABLE", few))


def _centre_columns(rows: _CentreRows, level: float) -> dict[str, NDArray[Any]]:
    groups, w = rows.groups, rows.weights
    positives, number = groups.sums(w * rows.positive), groups.sums(w)
    expected = groups.sums(w * expit(rows.logits))
    one_class = (positives == 0) | (positives == number)
    at = np.where(one_class, np.nan, _intercepts(rows, 0.0))
    information = _expected(rows, at)[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        se_log_ratio = np.sqrt(information) / positives
        reach = np.exp(critical_value(level, simultaneous=False) * se_log_ratio)
        se_in_the_large = 1 / np.sqrt(information)
    observed = ratio(positives, expected)
    cox = by_segment(
        cox_calibration, rows.positive, rows.logits, groups.owner, weights=w, from_logits=True
    ).values
    return {
        "rows": number,
        "positives": positives,
        "expected": expected,
        "ratio": observed,
        "se_log_ratio": se_log_ratio,
        "ratio_lower": observed / reach,
        "ratio_upper": observed * reach,
        "in_the_large": at,
        "se_in_the_large": se_in_the_large,
        "intercept": cox.intercept,
        "se_intercept": cox.se_intercept,
        "slope": cox.slope,
        "se_slope": cox.se_slope,
    }


def _expected(rows: _CentreRows, at: Floats) -> tuple[Floats, Floats]:
    """(K,) the expected positives with these intercepts, and their derivatives by them."""
    logits = rows.logits + rows.groups.by_row(at)
    p, q = expit(logits), expit(-logits)
    return rows.groups.sums(rows.weights * p), rows.groups.sums(rows.weights * p * q)


def _intercepts(rows: _CentreRows, precision: float) -> Floats:
    """(K,) the most probable intercepts with slope 1, under a normal prior around 0."""
    positives = rows.groups.sums(rows.weights * rows.positive)

    def function(at: Floats) -> tuple[Floats, Floats, float]:
        expected, information = _expected(rows, at)
        gradient = positives - expected - precision * at
        return gradient, ratio(gradient, information + precision), _NEAR

    far = np.full(len(positives), _FARTHEST + np.abs(rows.logits).max())
    return newton_roots(function, np.zeros(len(positives)), -far, far).at


def _likelihood_tables(rows: _CentreRows) -> tuple[LikelihoodTable, LikelihoodTable]:
    """The centres' likelihoods of log O:E, and of the intercept with slope 1.

    The intercept a determines O:E, which is the mean of expit(logit + a) over the mean at a = 0.
    """
    groups, sign = rows.groups, np.where(rows.positive, 1.0, -1.0)
    peak = _intercepts(rows, _PEAK_PRECISION)
    width = 1 / np.sqrt(_expected(rows, peak)[1] + _PEAK_PRECISION)
    positives, before = groups.sums(rows.weights * rows.positive), _expected(rows, 0 * peak)[0]
    parts = []
    for x in _POINTS:
        at = peak + width * x
        value = groups.sums(rows.weights * log_expit(sign * (rows.logits + groups.by_row(at))))
        parts.append((at, value, *_expected(rows, at)))
    at, value, expected, information = np.moveaxis(np.array(parts), 0, -1)
    value -= value.max(1, keepdims=True)
    slope = positives[:, None] - expected
    middle = len(_POINTS) // 2
    # The derivative of the log of O:E by a.
    change = information / np.maximum(expected, np.finfo(float).tiny)
    by_ratio = slope / np.maximum(change, np.finfo(float).eps)
    log_ratio = np.log(expected / before[:, None])
    return (
        LikelihoodTable(log_ratio, value, by_ratio, width * change[:, middle]),
        LikelihoodTable(at, value, slope, width),
    )


class _Line(NamedTuple):
    value: float
    lower: float
    upper: float
    standard_deviation: float
    new_lower: float
    new_upper: float
    within: float


_UNKNOWN = _Line(*[np.nan] * 7)


def _overall_table(lines: list[_Line], segments: int) -> Table:
    columns = zip(_Line._fields, np.array(lines).T, strict=True)
    return Table(
        {"parameter": np.array(_PARAMETERS), "segments": np.full(4, segments)}, **dict(columns)
    )


def _overall(rows: _CentreRows, level: float, tolerance: float) -> Table:
    number = len(rows.groups.sizes)
    if number < 2:
        return _overall_table([_UNKNOWN] * 4, number)
    together = rows._replace(groups=Groups([rows.groups.rows]))
    center = _intercepts(together, _PEAK_PRECISION)
    off = np.log(_expected(together, center)[0] / _expected(together, 0 * center)[0])
    factor = np.log1p(tolerance)
    ratio_table, in_the_large = _likelihood_tables(rows)
    log_ratio = _number_line(ratio_table, float(off[0]), level, factor)
    ends = {name: np.exp(getattr(log_ratio, name)) for name in _RATIO_FIELDS}
    lines = [
        log_ratio._replace(**ends),
        _number_line(in_the_large, float(center[0]), level, tolerance),
    ]
    pooled = fit_segments(
        rows.logits, rows.positive, rows.groups.owner, weights=rows.weights, pooling="partial"
    )
    for parameter, right in ((1, 0.0), (0, 1.0)):
        lines.append(_pair_line(pooled.population, parameter, right, level, tolerance))
    return _overall_table(lines, number)


def _number_line(table: LikelihoodTable, center: float, level: float, tolerance: float) -> _Line:
    found = population_of_numbers(table, center)
    low, high = (1 - level) / 2, (1 + level) / 2
    return _Line(
        found.expectation,
        found.mean_quantile(low),
        found.mean_quantile(high),
        found.likeliest_spread,
        found.new_quantile(low),
        found.new_quantile(high),
        found.share_between(-tolerance, tolerance),
    )


class NormalNumber(NamedTuple):
    """A number that is normal over centres."""

    value: Floats  # its mean
    error: Floats  # the standard error of the mean
    spread: Floats  # the standard deviation between centres
    new: Floats  # the standard deviation of what is known of a new centre


def over_centres(population: Population, direction: Floats) -> NormalNumber:
    """The number d'(A, B) for directions d (..., 2)."""
    spread, mean, predictive = (
        np.einsum("...i,ij,...j->...", direction, x, direction)
        for x in (
            population.covariance,
            population.mean_covariance,
            population.predictive_covariance,
        )
    )
    # The variance of the mean is that at the most probable spread. The predictive variance is
    # the mean's plus the expected squared spread, and a larger one adds a K-th of the
    # difference to the variance of the mean.
    number = len(population.shrinkage)
    error = np.maximum(mean, (number * mean + predictive - spread) / (number + 1)) ** 0.5
    value = direction @ population.predictive_mean
    return NormalNumber(value, error, spread**0.5, predictive**0.5)


def _pair_line(
    population: Population | None, parameter: int, right: float, level: float, tolerance: float
) -> _Line:
    """Of the slope -A (parameter 0) or the intercept -B, where `right` is no fault."""
    if population is None or not np.isfinite(population.predictive_mean).all():
        return _UNKNOWN
    value, error, spread, new = map(float, over_centres(population, -np.eye(2)[parameter]))
    reach, normal = critical_value(level, False), NormalDist(value, new)
    return _Line(
        value,
        value - reach * error,
        value + reach * error,
        spread,
        normal.inv_cdf((1 - level) / 2),
        normal.inv_cdf((1 + level) / 2),
        normal.cdf(right + tolerance) - normal.cdf(right - tolerance),
    )
