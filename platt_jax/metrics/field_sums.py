"""Sums over the groups of rows that the values of a field form, and what chance makes of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats
from platt_jax.ids.factorize import Factorized, factorize
from platt_jax.metrics import counts
from platt_jax.metrics.binned import Binned
from platt_jax.metrics.rows import Predictions, pieces, ratio

_GROUPS = 1 << 12  # maximum number of groups processed together
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


class Field(NamedTuple):
    """A column of ids, and the rows with their values' numbers."""

    name: str
    values: Factorized


class FieldGroups(NamedTuple):
    """The groups of a field, and sums over the rows of each, (G,)."""

    binned: Binned  # of the rows that count, a bin for each group
    n: Floats  # weighted number of rows
    p: Floats  # sum of P(y=1)
    q: Floats  # sum of P(y=0)
    positive: Floats  # weighted number of positives
    residual: Floats  # sum of y - P(y=1)
    variance: Floats  # of the residual, if the predictions are right
    third: Floats  # central moment of the residual, if the predictions are right


class TermMoments(NamedTuple):
    """Mean and variance of each group's term; (G,)."""

    mean: Floats
    variance: Floats


def fields_of(row_ids: ids.Ids) -> list[Field]:
    """A field for each column of ids."""
    if isinstance(row_ids, ids.IdColumns):
        pairs = zip(row_ids.names, row_ids.columns, strict=True)
        return [Field(name, factorize(column)) for name, column in pairs]
    if isinstance(row_ids, ids.Coded) and row_ids.values.dtype.names is not None:  # tuples
        return [
            Field(name, factorize(_coded_again(row_ids.codes, row_ids.values[name])))
            for name in row_ids.values.dtype.names
        ]
    return [Field("segment", factorize(row_ids))]


def _coded_again(codes: NDArray[np.integer], values: NDArray[np.generic]) -> ids.Ids:
    """Rows with codes into values that are not distinct."""
    column = ids.read(values)
    if isinstance(column, ids.Coded):
        return ids.Coded(column.codes[codes], column.values)
    assert isinstance(column, np.ndarray)
    return column[codes]


def grouped(rows: Predictions, field: Field) -> FieldGroups:
    """The groups of a field that have rows of positive weight, given rows (1, N)."""
    counted, number = rows.weights[0] > 0, field.values.of(slice(None))
    if not counted.all():
        columns = {x: getattr(rows, x)[:, counted] for x in ("positive", "values", "weights")}
        rows, number = replace(rows, **columns), number[counted]
    used = np.bincount(number) > 0
    group = number if used.all() else (np.cumsum(used) - 1)[number]
    bins = Binned(rows, group[None], int(used.sum()))
    p, q = bins.of.probabilities()
    sums = bins.rows, bins.p, bins.q, bins.positive, bins.residual, bins.variance
    return FieldGroups(bins, *(x[0] for x in (*sums, bins.sums(p * q * (q - p)))))


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
    rarer = counts.rarer(of.binned)
    (few,) = rarer.few
    for chunk in pieces(np.flatnonzero(~few), _GROUPS):
        moments = _normal(of.p[chunk], spread[chunk], skewness[chunk], of.n[chunk], term)
        mean[chunk], square[chunk] = moments
    where, k = np.flatnonzero(few), np.arange(counts.MOST + 1)
    for piece, chances in counts.distributions(of.binned, rarer.few, counts.MOST):
        chunk = where[piece]
        n, expected = of.n[chunk, None], rarer.expected[0, chunk, None]
        positives = np.where(rarer.is_negative[0, chunk, None], n - k, k)
        # Counts above n have no probability, but must not be divided by.
        value = term(np.abs(k - expected), np.clip(positives, 0, n), n)
        mean[chunk], square[chunk] = ((chances * x).sum(axis=-1) for x in (value, value**2))
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


def variance(of: FieldGroups, excess: Floats, chance: Floats, slope: Floats) -> float:
    """The variance of the sum of the groups' terms, with the labels' frequencies as they are.

    Groups where few labels of a class are expected do not show their own variance. It is taken from
    the terms' excess (G,) over their means by chance, between groups, for which differences between
    groups count, too; but it is at least the variance by chance. In others the residual is normal
    with the variance observed in the group, so its absolute value is folded normal. The slope (G,)
    is the term's derivative by abs(positives - sum(p)).
    """
    few = np.minimum(of.p, of.q) < counts.FEW
    n, x = of.n[few], excess[few]
    between = 0.0
    if few.sum() > 1:
        off = x - n * (x.sum() / n.sum())
        between = float((off**2).sum() * few.sum() / (few.sum() - 1))
    (squares,) = of.binned.sums(of.binned.of.residuals() ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (squares - of.residual**2 / of.n) * of.n / (of.n - 1)
        folded = _folded_variance(of.residual, observed)
    many = (slope**2 * folded)[~few]
    return max(between, float(chance[few].sum())) + float(many.sum())


def _folded_variance(mean: Floats, variance: Floats) -> Floats:
    """The variance of abs(x), x normal, given an observation of x instead of its mean."""
    from scipy.special import erf  # JAX has SciPy; the import adds a warnings filter

    square = np.maximum(mean**2 - variance, 0)
    z = np.sqrt(ratio(square, variance))
    density = np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)
    fold = density + z * erf(z / np.sqrt(2))
    return np.where(variance > 0, variance * (1 + z**2 - fold**2), 0)
