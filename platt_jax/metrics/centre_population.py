"""What centres say together: populations of their measures of calibration, and a new centre."""

from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from platt_jax.api import fit_segments
from platt_jax.arrays import Bools, Floats
from platt_jax.groups import Groups
from platt_jax.metrics.rows import ratio
from platt_jax.population.one_number import LikelihoodTable, population_of_numbers
from platt_jax.results.population import Population
from platt_jax.results.probabilities import critical_value, expit, log_expit
from platt_jax.results.tables import Table
from platt_jax.searches import newton_roots

# Points of a centre's likelihood, in standard errors around its peak.
_POINTS = np.linspace(-10, 10, 97)
# The peak is that under a normal prior with this precision, since without positives, or without
# negatives, there is none.
_PEAK_PRECISION = 1 / 9
_FARTHEST = 60.0  # log-odds; the search for an intercept does not go further
_NEAR = 1e-10
_PARAMETERS = ("ratio", "in_the_large", "intercept", "slope")
_RATIO_FIELDS = ("value", "lower", "upper", "new_lower", "new_upper")


class CentreRows(NamedTuple):
    """Rows of centres, end to end."""

    groups: Groups
    logits: Floats
    positive: Bools
    weights: Floats


def expected_positives(rows: CentreRows, at: Floats) -> tuple[Floats, Floats]:
    """(K,) the expected positives with these intercepts, and their derivatives by them."""
    logits = rows.logits + rows.groups.by_row(at)
    p, q = expit(logits), expit(-logits)
    return rows.groups.sums(rows.weights * p), rows.groups.sums(rows.weights * p * q)


def intercepts(rows: CentreRows, precision: float) -> Floats:
    """(K,) the most probable intercepts with slope 1, under a normal prior around 0."""
    positives = rows.groups.sums(rows.weights * rows.positive)

    def function(at: Floats) -> tuple[Floats, Floats, float]:
        expected, information = expected_positives(rows, at)
        gradient = positives - expected - precision * at
        return gradient, ratio(gradient, information + precision), _NEAR

    bound = np.full(len(positives), _FARTHEST + np.abs(rows.logits).max())
    return newton_roots(function, np.zeros(len(positives)), -bound, bound).at


def _likelihood_tables(rows: CentreRows) -> tuple[LikelihoodTable, LikelihoodTable]:
    """The centres' likelihoods of log O:E, and of the intercept with slope 1.

    The intercept a determines O:E, which is the mean of expit(logit + a) over the mean at a = 0.
    """
    groups, sign = rows.groups, np.where(rows.positive, 1.0, -1.0)
    peak = intercepts(rows, _PEAK_PRECISION)
    width = 1 / np.sqrt(expected_positives(rows, peak)[1] + _PEAK_PRECISION)
    positives, predicted = (
        groups.sums(rows.weights * rows.positive),
        expected_positives(rows, 0 * peak)[0],
    )
    parts = []
    for x in _POINTS:
        shift = peak + width * x
        value = groups.sums(rows.weights * log_expit(sign * (rows.logits + groups.by_row(shift))))
        parts.append((shift, value, *expected_positives(rows, shift)))
    shift, value, expected, information = np.moveaxis(np.array(parts), 0, -1)
    value -= value.max(1, keepdims=True)
    slope = positives[:, None] - expected
    middle = len(_POINTS) // 2
    # The derivative of the log of O:E by a.
    change = information / np.maximum(expected, np.finfo(float).tiny)
    by_ratio = slope / np.maximum(change, np.finfo(float).eps)
    log_ratio = np.log(expected / predicted[:, None])
    return (
        LikelihoodTable(log_ratio, value, by_ratio, width * change[:, middle]),
        LikelihoodTable(shift, value, slope, width),
    )


class _Line(NamedTuple):
    """A line of the overall table."""

    value: float
    lower: float
    upper: float
    standard_deviation: float
    new_lower: float
    new_upper: float
    within: float


UNKNOWN = _Line(*[np.nan] * 7)


def overall_table(lines: list[_Line], segments: int) -> Table:
    """The table of the four measures, of so many centres."""
    columns = zip(_Line._fields, np.array(lines).T, strict=True)
    return Table(
        {"parameter": np.array(_PARAMETERS), "segments": np.full(4, segments)}, **dict(columns)
    )


def overall_of_one(centre: Mapping[str, float], level: float) -> Table:
    """What the columns of a single centre say, which is nothing of a new one."""
    reach, lines = critical_value(level, False), []
    for name in _PARAMETERS:
        value = centre[name]
        if name == "ratio":
            lower, upper = centre["ratio_lower"], centre["ratio_upper"]
        else:
            error = reach * centre[f"se_{name}"]
            lower, upper = value - error, value + error
        lines.append(UNKNOWN._replace(value=value, lower=lower, upper=upper))
    return overall_table(lines, 1)


def overall(rows: CentreRows, level: float, tolerance: float) -> Table:
    """What several centres say together."""
    number = len(rows.groups.sizes)
    together = rows._replace(groups=Groups([rows.groups.rows]))
    center = intercepts(together, _PEAK_PRECISION)
    off = np.log(
        expected_positives(together, center)[0] / expected_positives(together, 0 * center)[0]
    )
    factor = np.log1p(tolerance)
    ratio_table, in_the_large = _likelihood_tables(rows)
    log_ratio = _number_line(ratio_table, float(off[0]), level, factor)
    ends = {name: np.exp(getattr(log_ratio, name)) for name in _RATIO_FIELDS}
    lines = [
        log_ratio._replace(**ends),
        _number_line(in_the_large, float(center[0]), level, tolerance),
    ]
    if not all(x.min() < x.max() for x in (rows.logits, rows.positive)):
        # No line has a slope. `fit_segments` would warn of `pooling`, which nobody passed here.
        return overall_table([*lines, UNKNOWN, UNKNOWN], number)
    pooled = fit_segments(
        rows.logits, rows.positive, rows.groups.owner, weights=rows.weights, pooling="partial"
    )
    for parameter, ideal in ((1, 0.0), (0, 1.0)):
        lines.append(_pair_line(pooled.population, parameter, ideal, level, tolerance))
    return overall_table(lines, number)


def _number_line(table: LikelihoodTable, center: float, level: float, tolerance: float) -> _Line:
    with np.errstate(over="ignore", invalid="ignore"):  # of huge weights: then it is None
        population = population_of_numbers(table, center)
    if population is None:
        return UNKNOWN
    low, high = (1 - level) / 2, (1 + level) / 2
    return _Line(
        population.expectation,
        population.mean_quantile(low),
        population.mean_quantile(high),
        population.likeliest_spread,
        population.new_quantile(low),
        population.new_quantile(high),
        population.share_between(-tolerance, tolerance),
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
        return UNKNOWN
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
