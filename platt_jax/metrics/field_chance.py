"""Mean and variance of the terms of field-level errors: by chance, and as observed."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.metrics import counts
from platt_jax.metrics.binned import Binned
from platt_jax.metrics.field_sums import FieldGroups
from platt_jax.metrics.rows import Predictions, ratio

# Nodes of the integral over a normal distribution: (-8, 0) and (0, 8), as terms have a kink at 0.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_Z = np.concatenate([4 * _NODES - 4, 4 * _NODES + 4])
_DENSITY = np.tile(4 * _WEIGHTS, 2) * np.exp(-(_Z**2) / 2) / np.sqrt(2 * np.pi)
_SKEW = (_Z**3 - 3 * _Z) / 6
# Counts of whole rows are less skew, 1 / sqrt(counts.FEW). Beyond, the corrected density is of no
# use: it is negative.
_MOST_SKEW = 0.4

# The value of a group from abs(positives - sum(p)), positives and rows.
Term: TypeAlias = Callable[[Floats, Floats, Floats], Floats]


class TermMoments(NamedTuple):
    """Mean and variance of each group's term; (G,)."""

    mean: Floats
    variance: Floats


def by_chance(of: FieldGroups, term: Term) -> TermMoments:
    """The moments if the probabilities are right.

    Where few labels of a class are expected, the number of positives has its exact distribution.
    Elsewhere, and with weights that are not whole numbers, it is normal with a first correction for
    its skewness.
    """
    mean, square = np.empty(len(of.n)), np.empty(len(of.n))
    spread = np.sqrt(of.variance)
    skewness = np.where(of.variance > 0, ratio(ratio(of.third, of.variance), spread), 0)
    skewness = np.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    for some, rows, each in of.pieces():
        rarer = counts.rarer(rows, each)
        for moment, out in zip(
            _normal(of.p[some], spread[some], skewness[some], of.n[some], term),
            (mean[some], square[some]),
            strict=True,
        ):
            out[:] = moment
        few = rarer.few[0]
        if few.any():
            mean[some][few], square[some][few] = _exact(rows, each, rarer, term)
    return TermMoments(mean, np.maximum(square - mean**2, 0))


def _normal(
    p: Floats, spread: Floats, skewness: Floats, n: Floats, term: Term
) -> tuple[Floats, Floats]:
    """Mean and mean square of terms of groups whose number of positives is normal."""
    off = spread[:, None] * _Z
    positives = np.clip(p[:, None] + off, 0, n[:, None])
    # A small number is far from normal; it is kept between 0 and n.
    few = np.minimum(p, n - p) < counts.FEW
    off = np.where(few[:, None], positives - p[:, None], off)
    density = _DENSITY * (1 + skewness[:, None] * _SKEW)
    value = term(np.abs(off), positives, n[:, None])
    return (density * value).sum(axis=-1), (density * value**2).sum(axis=-1)


def _exact(rows: Predictions, each: Binned, of: counts.Rarer, term: Term) -> tuple[Floats, Floats]:
    """Mean and mean square of terms of the groups where `of.few` is true."""
    chances = counts.distributions(rows, each, of, counts.MOST)
    k = np.arange(counts.MOST + 1)
    n, expected = each.rows[of.few][:, None], of.expected[of.few][:, None]
    positives = np.where(of.is_negative[of.few][:, None], n - k, k)
    # Counts above n have no probability, but must not be divided by.
    value = term(np.abs(k - expected), np.clip(positives, 0, n), n)
    return (chances * value).sum(axis=-1), (chances * value**2).sum(axis=-1)


def variance(of: FieldGroups, excess: Floats, chance: Floats, slope: Floats) -> float:
    """The variance of the sum of the groups' terms, with the labels' frequencies as they are.

    Groups where few labels of a class are expected cannot tell their own variance. Theirs is that
    of the terms' excess between groups, for which differences between groups count, too; but at
    least the variance by chance. In others the residual is normal with the variance observed in the
    group, so its absolute value is folded normal.

    Args:
        of: the groups.
        excess: (G,) term - its mean by chance.
        chance: (G,) the term's variance by chance.
        slope: (G,) derivative of the term with respect to abs(positives - sum(p)).
    """
    few = np.minimum(of.p, of.q) < counts.FEW
    n, x = of.n[few], excess[few]
    between = 0.0
    if few.sum() > 1:
        off = x - n * (x.sum() / n.sum())
        between = float((off**2).sum() * few.sum() / (few.sum() - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (of.sums(of.rows.residuals() ** 2) - of.residual**2 / of.n) * of.n / (of.n - 1)
        folded = _folded_variance(of.residual, observed)
    many = (slope**2 * folded)[~few]
    return max(between, float(chance[few].sum())) + float(many.sum())


def _folded_variance(mean: Floats, variance: Floats) -> Floats:
    """The variance of abs(x), x normal, given an observation of x instead of its mean."""
    square = np.maximum(mean**2 - variance, 0)
    z = np.sqrt(ratio(square, variance))
    density = np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)
    fold = density + z * _erf(z / np.sqrt(2))
    return np.where(variance > 0, variance * (1 + z**2 - fold**2), 0)


def _erf(x: NDArray[Any]) -> Floats:
    from scipy.special import erf  # JAX has SciPy; the import adds a warnings filter

    found: Floats = erf(x)
    return found
