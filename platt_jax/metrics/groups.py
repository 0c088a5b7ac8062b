"""Rows in groups: equal values, and bins of equal width, mass or expected positives."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.metrics.rows import MetricRows

# Kinds of bins: of equal width, equal mass, and equal expected numbers of positives.
STRATEGIES = ("uniform", "quantile", "positives")
# Edge tolerance, in bin widths.
_ON_THE_EDGE = 1e-9


def mass_below(values: Floats, weights: Floats) -> Floats:
    """(K, N) weight of the problem's smaller values plus half of that of equal ones."""
    order, first = _sorted(values)
    cumulative = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(np.take_along_axis(weights, order, axis=-1), axis=-1, out=cumulative[:, 1:])
    column = np.arange(values.shape[1])
    start = np.maximum.accumulate(np.where(first, column, 0), axis=-1)
    last = np.roll(first, -1, axis=-1)  # each line starts with True, which wraps around
    end = np.minimum.accumulate(np.where(last, column + 1, column[-1] + 1)[:, ::-1], axis=-1)
    ends = np.take_along_axis(cumulative, end[:, ::-1], axis=-1)
    return _unsorted(order, (np.take_along_axis(cumulative, start, axis=-1) + ends) / 2)


def distinct(values: Floats) -> NDArray[np.intp]:
    """(K, N) int: equal numbers for equal values of one problem, different ones otherwise."""
    order, first = _sorted(values)
    return _unsorted(order, np.cumsum(first).reshape(first.shape) - 1)


def bins(rows: MetricRows, p: Floats, n_bins: int, strategy: str) -> NDArray[np.intp]:
    """(K, N) int, the bin of each row; those of problem k are k n_bins + (0 ... n_bins-1)."""
    validation.require_integer(n_bins, "n_bins", 1)
    validation.require_one_of(strategy, STRATEGIES, "strategy")
    if strategy == "uniform":
        which = np.searchsorted(np.arange(1, n_bins) / n_bins, p, side="left")
    else:
        weights = rows.weights * (p if strategy == "positives" else 1)
        mass = weights.sum(axis=-1)
        total = np.where((rows.total > 0) & (mass != 0), mass, 1)[:, None]
        place = n_bins * mass_below(p, weights) / total
        # Rounding must not move a value across an edge. Rows of weight 0 may lie above all mass.
        which = np.minimum((place + _ON_THE_EDGE).astype(np.intp), n_bins - 1)
    return which + n_bins * np.arange(len(p))[:, None]


def sums(codes: NDArray[np.intp], x: Floats, groups: int = 0) -> Floats:
    """(groups or more,) sum of x over each group of rows."""
    # NumPy's stubs declare integers even with weights.
    summed: NDArray[Any] = np.bincount(codes.ravel(), x.ravel(), groups)
    return summed


def _sorted(values: Floats) -> tuple[NDArray[np.intp], Bools]:
    """The sort order of each line, and where a new value begins in that order."""
    order = np.argsort(values, axis=-1, kind="stable")
    ascending = np.take_along_axis(values, order, axis=-1)
    first = np.ones(values.shape, bool)
    first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    return order, first


def _unsorted(order: NDArray[np.intp], x: NDArray[Any]) -> NDArray[Any]:
    out = np.empty_like(x)
    np.put_along_axis(out, order, x, axis=-1)
    return out
