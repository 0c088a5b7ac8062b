"""The mean squared calibration error of field values, without bias."""

from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.metrics.field_sums import FieldGroups, columns, field_table, grouped, read_fields
from platt_jax.metrics.rows import ratio
from platt_jax.results.tables import Table


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
        return field_table(self)


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
    rows. Its root is comparable with `field_calibration_error`.

    The interval is normal. Its variance is an unbiased estimate of that of these products' means,
    but at least that of calibrated probabilities, which is known. With fewer than 4 rows for a
    value, terms of order E[r]^4 are left out of it, which makes the interval wider. The
    distribution is skew where all values together have few positives.

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}.
        proba: (N,) probabilities of class 1, or logits.
        segments: (N,) values of a field as for `by_segment`, or several columns: a field each.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A FieldSquaredError in the dtype of proba; NaN where no value has 2 rows, and as in the
        package's docstring.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> ads = ["a", "a", "b", "b"]
        >>> error = field_squared_error([1, 1, 0, 1], [0.6, 0.5, 0.1, 0.7], ads)
        >>> round(float(error.value), 3)
        0.085
    """
    validation.require_fraction(level, "level")
    rows, fields = read_fields(labels, proba, segments, weights, from_logits)
    z = NormalDist().inv_cdf((1 + level) / 2)
    found = []
    for field in fields:
        of = grouped(rows, field)
        several = of.n >= 2
        n = np.where(several, of.n, 0)
        square, *variances = mean_products(of)
        value = ratio((n * square).sum(), n.sum())
        spread = np.sqrt(max((n**2 * x).sum() for x in variances))
        half = z * ratio(spread, n.sum())
        found.append((value, value - half, value + half, several.sum()))
    return FieldSquaredError(*columns(rows, fields, found))


def mean_products(of: FieldGroups) -> tuple[Floats, Floats, Floats]:
    """Mean products of two residuals, unbiased estimates of their variances, and those by chance.

    Each is (G,). The variance of the mean product of two of n independent numbers with mean d and
    mean square m is 2 (m^2 + 2 (n - 2) d^2 m - (2 n - 3) d^4) / (n (n - 1)) (Hoeffding 1948).
    Products of powers are estimated by means over pairs, triples and quadruples of different rows.
    """
    n, r = of.n, of.rows.residuals()
    p1, p2, p3, p4 = (of.sums(r**k) for k in (1, 2, 3, 4))

    def over(top: Floats, order: int) -> Floats:
        ways = np.prod([n - i for i in range(order)], axis=0)
        return np.where(n >= order, ratio(top, ways), 0)

    mm = over(p2**2 - p4, 2)
    ddm = over(p1**2 * p2 - p2**2 - 2 * p1 * p3 + 2 * p4, 3)
    dddd = over(p1**4 - 6 * p1**2 * p2 + 3 * p2**2 + 8 * p1 * p3 - 6 * p4, 4)
    p, q = of.rows.probabilities()
    chance = over(over(of.variance**2 - of.sums((p * q) ** 2), 2), 2)
    estimate = over(mm + 2 * (n - 2) * ddm - (2 * n - 3) * dddd, 2)
    return over(p1**2 - p2, 2), 2 * estimate, 2 * chance
