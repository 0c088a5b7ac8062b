"""Field-level calibration errors: how far the mean probability of each field value is off."""

from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics.field_sums import (
    Field,
    FieldGroups,
    Term,
    by_chance,
    fields_of,
    grouped,
    variance,
)
from platt_jax.metrics.rows import Predictions, documented, ratio, read_flat_predictions
from platt_jax.results.probabilities import critical_value
from platt_jax.results.tables import Table


class _FieldRows(NamedTuple):
    predictions: Predictions
    fields: list[Field]


class FieldError(NamedTuple):
    """A field-level error; numbers for one field, arrays (L,) for L fields.

    Attributes:
        value: the error, as the papers define it. It is biased upwards.
        by_chance: its mean if the probabilities are calibrated.
        excess: value - by_chance. Its mean is 0 if the probabilities are calibrated.
        lower: lower end of the interval around the excess.
        upper: upper end of the interval around the excess.
        n_groups: number of values of the field.
        fields: (L,) names of the fields.
    """

    value: NDArray[Any]
    by_chance: NDArray[Any]
    excess: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    n_groups: NDArray[np.intp]
    fields: NDArray[np.str_]

    def table(self) -> Table:
        """A line per field."""
        return _table(self)


class FieldSquaredError(NamedTuple):
    """A squared field-level error; numbers for one field, arrays (L,) for L fields.

    Attributes:
        value: the estimate. It has no bias, so it is negative at times if the error is near 0.
        lower: lower end of its interval.
        upper: upper end of its interval.
        n_groups: number of values of the field with at least 2 rows.
        fields: (L,) names of the fields.
    """

    value: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    n_groups: NDArray[np.intp]
    fields: NDArray[np.str_]

    def table(self) -> Table:
        """A line per field."""
        return _table(self)


@documented
def field_calibration_error(
    labels: Column,
    proba: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> FieldError:
    """The field-level expected calibration error (Field-ECE, F-ECE).

        Field-ECE = sum over values z of the field of abs(sum of y - p over the rows of z) / rows

    It is the `expected_calibration_error` with the field's values as bins, defined by Pan et al.
    2020 ("Field-aware calibration", arXiv 1905.10713), and reported by later papers such as MLPlatt
    (arXiv 2601.08345).

    It is biased upwards, more with fewer rows for each value: calibrated probabilities have the
    error `by_chance`, computed as for `ece_by_chance`. `excess` is what is left. It is unbiased if
    the probabilities are calibrated. Chance adds less to larger errors, so otherwise it is too low
    by at most `by_chance`; `field_squared_error` is unbiased in both cases.

    The interval is for the mean of the excess over labels drawn again with the same frequencies.
    It is normal; how often it covers is in the how-to guide "Errors of fields and groups". If it
    does not have 0 in it, the probabilities are not calibrated.

    {flat_rows}
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldError in the dtype of proba; NaN as in the package's docstring.

    Example:
        >>> fields = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        >>> error = field_calibration_error([1, 0, 0, 1], [0.9, 0.5, 0.1, 0.5], fields)
        >>> error.value.round(2).tolist(), error.by_chance.round(2).tolist()
        ([0.2, 0.0], [0.27, 0.17])
    """
    rows = _read(labels, proba, segments, weights, from_logits)
    return FieldError(
        *_field_error(rows, level, lambda off, *_: off, lambda groups: np.ones_like(groups.n))
    )


@documented
def field_relative_error(
    labels: Column,
    proba: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    epsilon: float = 0.01,
    level: float = 0.95,
) -> FieldError:
    """The field-level relative calibration error (Field-RCE, F-RCE).

        Field-RCE = sum over values z of N_z abs(sum of y - p) / sum of (y + epsilon) / rows,

    with sums over the N_z rows of z (Pan et al. 2020, "Field-aware calibration", arXiv 1905.10713;
    AdaCalib, arXiv 2205.07295). The error of a value without positives is divided by N_z epsilon;
    some implementations leave such values out, and epsilon too.

    Where few positives are expected the error says little: with 1 % of positives and 10 rows a
    value, calibrated probabilities have an error of about 1. `by_chance`, `excess` and the interval
    are as for `field_calibration_error`; the interval covers less often where a few values without
    positives make most of the error.

    {flat_rows}
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        epsilon: number > 0 added to each label in the denominator.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldError in the dtype of proba; NaN as in the package's docstring.

    Example:
        >>> ads = ["a", "b", "a", "b"]
        >>> error = field_relative_error([1, 0, 0, 1], [0.6, 0.5, 0.1, 0.7], ads)
        >>> round(float(error.value), 3), round(float(error.by_chance), 3)
        (0.245, 11.023)
    """
    if not (isinstance(epsilon, Real) and 0 < float(epsilon) < np.inf):
        raise ValueError(f"epsilon: expected a number > 0, got {epsilon!r}")

    def term(off: Floats, positive: Floats, n: Floats) -> Floats:
        return off * (n / (positive + epsilon * n))

    def slope(of: FieldGroups) -> Floats:
        divisor = of.positive + epsilon * of.n
        return (of.n / divisor) * ((of.p + epsilon * of.n) / divisor)

    rows = _read(labels, proba, segments, weights, from_logits)
    return FieldError(*_field_error(rows, level, term, slope))


@documented
def field_squared_error(
    labels: Column,
    proba: Column,
    segments: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> FieldSquaredError:
    """The mean over rows of the squared calibration error of their field value, without bias.

    With r = y - p and the n rows of a value drawn independently, the mean product of two different
    rows' residuals has the expectation E[r]^2, calibrated or not:

        (sum(r)^2 - sum(r^2)) / (n (n - 1))

    This is the squared mean less an unbiased estimate of its variance (Bröcker 2012; Kumar, Liang &
    Ma 2019, "debiased", for bins). The result is its mean over all rows whose value has at least 2
    rows. Its root is comparable with `field_calibration_error`. The interval is normal, and wider
    where values have fewer than 4 rows: see the how-to guide "Errors of fields and groups".

    {flat_rows}
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldSquaredError in the dtype of proba; NaN where no value has 2 rows, and as in the
        package's docstring.

    Example:
        >>> ads = ["a", "a", "b", "b"]
        >>> error = field_squared_error([1, 1, 0, 1], [0.6, 0.5, 0.1, 0.7], ads)
        >>> round(float(error.value), 3)
        0.085
    """

    def measure(of: FieldGroups, z: float) -> tuple[Any, ...]:
        several = of.n >= 2
        n = np.where(several, of.n, 0)
        square, *variances = _mean_products(of)
        value = ratio((n * square).sum(), n.sum())
        half = z * ratio(np.sqrt(max((n**2 * x).sum() for x in variances)), n.sum())
        return value, value - half, value + half, several.sum()

    rows = _read(labels, proba, segments, weights, from_logits)
    return FieldSquaredError(*_by_field(rows, level, measure))


def _read(
    labels: Column, proba: Column, segments: Column, weights: Column, from_logits: bool
) -> _FieldRows:
    rows = read_flat_predictions(labels, proba, weights, from_logits)
    return _FieldRows(rows, fields_of(ids.read_rows(segments, rows.values.shape[1])))


def _field_error(
    rows: _FieldRows, level: float, term: Term, slope: Callable[[FieldGroups], Floats]
) -> list[Any]:
    """The sum of the terms of the groups of each field, over the number of rows."""

    def measure(of: FieldGroups, z: float) -> tuple[Any, ...]:
        moments, total = by_chance(of, term), of.binned.of.total[0]
        terms = term(np.abs(of.residual), of.positive, of.n)
        off = terms - moments.mean
        value, chance, excess = (ratio(x.sum(), total) for x in (terms, moments.mean, off))
        half = z * ratio(np.sqrt(variance(of, off, moments.variance, slope(of))), total)
        return value, chance, excess, excess - half, excess + half, len(of.n)

    return _by_field(rows, level, measure)


def _by_field(
    rows: _FieldRows, level: float, measure: Callable[[FieldGroups, float], tuple[Any, ...]]
) -> list[Any]:
    """The numbers of each field, the last of which is a count; and the fields' names.

    `measure` makes them of a field's groups and the normal quantile of the level.
    """
    z = critical_value(level, simultaneous=False)
    lines = [measure(grouped(rows.predictions, field), z) for field in rows.fields]
    *numbers, count = (np.array(x) for x in zip(*lines, strict=True))
    columns = [*(x.astype(rows.predictions.dtype) for x in numbers), count.astype(np.intp)]
    names = np.array([field.name for field in rows.fields])
    return [*(x[0] if len(names) == 1 else x for x in columns), names]


def _table(error: Any) -> Table:
    columns = error._asdict()
    names = columns.pop("fields")
    return Table({"field": names}, **{name: np.atleast_1d(x) for name, x in columns.items()})


def _mean_products(of: FieldGroups) -> tuple[Floats, Floats, Floats]:
    """Mean products of two residuals, unbiased estimates of their variances, and by chance.

    Each is (G,). The variance of the mean product of two of n independent numbers with mean d and
    mean square m is 2 (m^2 + 2 (n - 2) d^2 m - (2 n - 3) d^4) / (n (n - 1)) (Hoeffding 1948).
    Products of powers are estimated by means over pairs, triples and quadruples of different rows.
    """
    n, r, sums = of.n, of.binned.of.residuals(), of.binned.sums
    p1, p2, p3, p4 = (sums(r**k)[0] for k in (1, 2, 3, 4))

    def over(top: Floats, order: int) -> Floats:
        ways = np.prod([n - i for i in range(order)], axis=0)
        return np.where(n >= order, ratio(top, ways), 0)

    mm = over(p2**2 - p4, 2)
    ddm = over(p1**2 * p2 - p2**2 - 2 * p1 * p3 + 2 * p4, 3)
    dddd = over(p1**4 - 6 * p1**2 * p2 + 3 * p2**2 + 8 * p1 * p3 - 6 * p4, 4)
    p, q = of.binned.of.probabilities()
    chance = over(over(of.variance**2 - sums((p * q) ** 2)[0], 2), 2)
    estimate = over(mm + 2 * (n - 2) * ddm - (2 * n - 3) * dddd, 2)
    return over(p1**2 - p2, 2), 2 * estimate, 2 * chance
