"""Field-level calibration errors: how far the mean probability of each field value is off."""

from numbers import Real
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics.field_chance import Term, by_chance, variance
from platt_jax.metrics.field_sums import (
    Field,
    FieldGroups,
    columns,
    field_table,
    grouped,
    read_fields,
)
from platt_jax.metrics.rows import Predictions, ratio
from platt_jax.results.tables import Table


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
        return field_table(self)


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

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits.
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldError in the dtype of proba; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> fields = [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        >>> error = field_calibration_error([1, 0, 0, 1], [0.9, 0.5, 0.1, 0.5], fields)
        >>> error.value.round(2).tolist(), error.by_chance.round(2).tolist()
        ([0.2, 0.0], [0.27, 0.17])
    """
    rows, fields = read_fields(labels, proba, segments, weights, from_logits)
    return _field_error(rows, fields, level, lambda off, *_: off, _one)


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

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits.
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        epsilon: number > 0 added to each label in the denominator.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldError in the dtype of proba; NaN as in the package's docstring.

    Raises:
        ValueError: an argument is not as above.

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

    rows, fields = read_fields(labels, proba, segments, weights, from_logits)
    return _field_error(rows, fields, level, term, slope)


def _one(of: FieldGroups) -> Floats:
    return np.ones_like(of.n)


def _field_error(
    rows: Predictions, fields: list[Field], level: float, term: Term, slope: Any
) -> FieldError:
    """The sum of the terms of the groups of each field, over the number of rows."""
    validation.require_fraction(level, "level")
    z = NormalDist().inv_cdf((1 + level) / 2)
    found = []
    for field in fields:
        of = grouped(rows, field)
        moments = by_chance(of, term)
        terms = term(np.abs(of.residual), of.positive, of.n)
        total = rows.total[0]
        value, chance = (ratio(x.sum(), total) for x in (terms, moments.mean))
        excess = ratio((terms - moments.mean).sum(), total)
        spread = np.sqrt(variance(of, terms - moments.mean, moments.variance, slope(of)))
        half = z * ratio(spread, total)
        found.append((value, chance, excess, excess - half, excess + half, len(of.n)))
    return FieldError(*columns(rows, fields, found))
