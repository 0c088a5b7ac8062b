"""Rows in bins: of equal width, mass or expected positives, or of equal values."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.groups import ON_THE_EDGE, SAME
from platt_jax.metrics.rows import MetricProblems, Predictions

# Kinds of bins: of equal width, equal mass, and equal expected numbers of positives.
STRATEGIES = ("uniform", "quantile", "positives")
# Most bins for "cube_root", lest huge weights make them.
_MOST = 1 << 16


class Binned:
    """K problems whose rows are in bins, and sums over the rows of each bin.

    Attributes:
        of: the rows.
        bin: (K, N) int, the bin of each row, below `number`.
        number: number of bins of each problem.
    """

    def __init__(self, of: Predictions, bin: NDArray[np.intp], number: int) -> None:
        self.of, self.bin, self.number = of, bin, number

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """(K, N) int, the bin of each row among the bins of all problems."""
        if len(self.bin) == 1:
            return self.bin
        return self.bin + self.number * np.arange(len(self.bin))[:, None]

    def sums(self, x: Any) -> Floats:
        """(K, number) weighted sums of x (K, N) over the rows of each bin."""
        return self._added(self.of.weights * x)

    def _added(self, x: Floats) -> Floats:
        problems = len(self.bin)
        # NumPy's stubs declare integers even with weights.
        summed: NDArray[Any] = np.bincount(self.codes.ravel(), x.ravel(), problems * self.number)
        return summed.reshape(problems, self.number)

    @cached_property
    def rows(self) -> Floats:
        """(K, number) weighted numbers of rows."""
        return self._added(self.of.weights)

    @cached_property
    def p(self) -> Floats:
        """(K, number) sums of P(y=1)."""
        return self.sums(self.of.probabilities()[0])

    @cached_property
    def q(self) -> Floats:
        """(K, number) sums of P(y=0)."""
        return self.sums(self.of.probabilities()[1])

    @cached_property
    def positive(self) -> Floats:
        """(K, number) weighted numbers of positives."""
        return self.sums(self.of.positive)

    @cached_property
    def residual(self) -> Floats:
        """(K, number) sums of y - P(y=1)."""
        return self.sums(self.of.residuals())

    @cached_property
    def variance(self) -> Floats:
        """(K, number) variances of the numbers of positives if the predictions are right."""
        p, q = self.of.probabilities()
        return self.sums(p * q)

    def some(self, which: NDArray[np.intp]) -> Self:
        """The problems `which`."""
        return type(self)(self.of.some(which), self.bin[which], self.number)


def number_of_bins(rows: MetricProblems, n_bins: int | str, strategy: str) -> int:
    """The number of bins of each problem; refuses what is no number of bins, or no strategy."""
    validation.require_one_of(strategy, STRATEGIES, "strategy")
    if not isinstance(n_bins, str):
        validation.require_integer(n_bins, "n_bins", 1)
        return int(n_bins)
    if n_bins != "cube_root":
        raise ValueError(f'n_bins: expected an integer >= 1, or "cube_root", got {n_bins!r}')
    with np.errstate(over="ignore"):
        sizes = np.ldexp(rows.total, rows.exponent)
    numbers = np.unique(np.ceil(np.cbrt(sizes[sizes > 0])))
    if len(numbers) > 1:
        raise ValueError(
            f'n_bins: "cube_root" is {numbers[0]:.0f} to {numbers[-1]:.0f} bins for problems of '
            f"{sizes[sizes > 0].min():g} to {sizes.max():g} rows, expected one number for all; "
            "pass an integer, or one problem at a time"
        )
    return int(min(numbers.max(initial=1), _MOST))


def binned(rows: Predictions, n_bins: int | str, strategy: str) -> Binned:
    """The rows in bins of a strategy."""
    n_bins = number_of_bins(rows, n_bins, strategy)
    p, _ = rows.probabilities()
    if strategy == "uniform":
        # A float32 of .3 lies on the edge, as a float64 of .3 does, and as expit(logit(.3)) does.
        edges = np.arange(1, n_bins) / n_bins * (1 + SAME)
        bins = np.searchsorted(edges, p, side="left")
    else:
        weights = rows.weights * (p if strategy == "positives" else 1)
        mass = weights.sum(axis=-1)
        total = np.where((rows.total > 0) & (mass != 0), mass, 1)[:, None]
        position = n_bins * mass_below(p, weights) / total
        # Rounding must not move a value across an edge. Rows of weight 0 may lie above all mass.
        bins = np.minimum((position + ON_THE_EDGE).astype(np.intp), n_bins - 1)
    return Binned(rows, bins, n_bins)


def distinct(rows: Predictions) -> Binned:
    """The rows with a bin for each distinct probability of a problem."""
    order, first = _sorted(rows.probabilities()[0])
    first[:, 0] = False  # bins count from 0
    bins = _unsorted(order, np.cumsum(first, axis=-1))
    return Binned(rows, bins, bins.shape[1])


def mass_below(values: Floats, weights: Floats) -> Floats:
    """(K, N) weight of the problem's smaller values plus half the weight of equal ones."""
    order, first = _sorted(values)
    cumulative = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(weights.take(order), axis=-1, out=cumulative[:, 1:])
    column = np.arange(values.shape[1])
    start = np.maximum.accumulate(np.where(first, column, 0), axis=-1)
    last = np.roll(first, -1, axis=-1)  # each line starts with True, which wraps around
    end = np.minimum.accumulate(np.where(last, column + 1, column[-1] + 1)[:, ::-1], axis=-1)
    ends = np.take_along_axis(cumulative, end[:, ::-1], axis=-1)
    return _unsorted(order, (np.take_along_axis(cumulative, start, axis=-1) + ends) / 2)


def _sorted(values: Floats) -> tuple[NDArray[np.intp], Bools]:
    """Places among all values, ascending on each line, and where a new value begins."""
    order = np.argsort(values, axis=-1, kind="stable")
    order += values.shape[1] * np.arange(len(values))[:, None]
    ascending = values.take(order)
    first = np.ones(values.shape, bool)
    first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    return order, first


def _unsorted(order: NDArray[np.intp], x: NDArray[Any]) -> NDArray[Any]:
    out = np.empty(x.size, x.dtype)
    out[order] = x
    return out.reshape(x.shape)
