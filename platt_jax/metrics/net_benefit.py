"""What decisions at thresholds are worth: net benefit, decision curves and expected costs.

Each is a sum of shares of rows times what they are worth: of true and false positives, or of rows
whose decision changed. The shares are of disjoint cells, so their counts are multinomial. A
normal interval would fail where a cell has few rows, and have no width where it has none. So each
share has Wilson's interval, and the distances from the shares to their ends are combined as
standard deviations are (MOVER: Zou & Donner 2008, "Construction of confidence limits about effect
measures"), with the multinomial correlations.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.groups import SAME
from platt_jax.metrics.rows import Predictions, documented, ratio, read_predictions
from platt_jax.results.probabilities import critical_value
from platt_jax.results.tables import Table

# Thresholds of a decision curve, by default.
_THRESHOLDS = tuple(i / 100 for i in range(1, 100))


class NetBenefit(NamedTuple):
    """The net benefit of deciding by a threshold; each (...) or, for T thresholds, (..., T).

    Attributes:
        value: true positives minus weighted false positives, per row.
        standard_error: its standard error.
        lower: lower end of its interval.
        upper: upper end of its interval.
        treat_all: the net benefit of calling every row positive.
        treat_none: the net benefit of calling no row positive, which is 0.
    """

    value: NDArray[Any]
    standard_error: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    treat_all: NDArray[Any]
    treat_none: NDArray[Any]


class DecisionCurve(NamedTuple):
    """Net benefits before and after calibration; each (..., T).

    Attributes:
        threshold: the thresholds.
        value: net benefit of the probabilities.
        lower: lower end of its interval.
        upper: upper end of its interval.
        before: net benefit of the probabilities before calibration.
        difference: value - before.
        difference_lower: lower end of the interval of the difference, paired by rows.
        difference_upper: upper end of that interval.
        treat_all: the net benefit of calling every row positive.
        treat_none: the net benefit of calling no row positive, which is 0.
    """

    threshold: NDArray[Any]
    value: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]
    before: NDArray[Any]
    difference: NDArray[Any]
    difference_lower: NDArray[Any]
    difference_upper: NDArray[Any]
    treat_all: NDArray[Any]
    treat_none: NDArray[Any]

    def table(self) -> Table:
        """A line per threshold, of one problem."""
        return Table(self._asdict())


class Cost(NamedTuple):
    """The mean cost of decisions per row; each (...).

    Attributes:
        value: the mean cost.
        standard_error: its standard error.
        lower: lower end of its interval.
        upper: upper end of its interval.
    """

    value: NDArray[Any]
    standard_error: NDArray[Any]
    lower: NDArray[Any]
    upper: NDArray[Any]


class _Cell(NamedTuple):
    """Rows that are worth the same."""

    worth: float
    inside: Bools  # (K, N)
    possible: Bools  # (K,), whether a row decided so has any label


class _WorthSums(NamedTuple):
    """Sums of worths per row, with errors; each (K, T)."""

    value: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats


@documented
def net_benefit(
    labels: Column,
    proba: Column,
    *,
    threshold: Column = 0.5,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> NetBenefit:
    """The net benefit of calling rows positive from a threshold on (Vickers & Elkin 2006).

        NB(t) = TP / n - FP / n * t / (1 - t)

    TP and FP are the numbers of positives and of negatives with a probability of t or more. Its
    unit is a true positive per row: a threshold of t says that a true positive is worth (1 - t) / t
    false ones. Compare it with the net benefit of calling all rows positive, and none.

    The interval joins Wilson's intervals of the shares of true and of false positives (Zou & Donner
    2008), so it holds with few positives, too (`docs/explanation/numbers.md`). Where no row is
    called positive the net benefit is 0, without error.

    {rows}
        threshold: a number in (0, 1), or (T,) of them.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A NetBenefit of arrays (...), or (..., T) for several thresholds, in the dtype of proba; NaN
        as in the package's docstring.

    Example:
        >>> found = net_benefit([1, 0, 1, 0], [0.9, 0.4, 0.6, 0.1], threshold=[0.2, 0.5])
        >>> found.value.round(4).tolist(), found.treat_all.round(4).tolist()
        ([0.4375, 0.5], [0.375, 0.0])
    """
    validation.require_fraction(level, "level")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    thresholds, single = _thresholds(threshold)
    net = _sums(rows, (_decided(rows, _called(rows, t), 1.0, -_odds(t)) for t in thresholds), level)
    treat_all = _treat_all(rows, thresholds)
    parts = (*net, treat_all, 0 * treat_all)
    return NetBenefit(*(_result(rows, x, single) for x in parts))


@documented
def decision_curve(
    labels: Column,
    proba: Column,
    *,
    before: Column,
    threshold: Column = _THRESHOLDS,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> DecisionCurve:
    """Net benefits of probabilities before and after calibration (Vickers & Elkin 2006).

    Both are by `net_benefit` on the same rows, so their difference has a paired interval: only rows
    that are decided otherwise count. Intervals are pointwise; `docs/explanation/numbers.md` has how
    often they held. Where no row is decided otherwise, the difference and its interval are 0.

    Use other rows than those the calibrator was fitted to, or `leave_one_out`.

    {rows}
        before: probabilities before calibration, or logits, with the shape of proba.
        threshold: (T,) numbers in (0, 1).
        level: confidence level of the intervals, in (0, 1).

    Returns:
        A DecisionCurve of arrays (..., T) in the dtype of proba; `DecisionCurve.table` makes one
        problem's a table. NaN as in the package's docstring.

    Example:
        >>> labels, before, after = [0, 0, 1, 1], [0.6, 0.7, 0.8, 0.9], [0.1, 0.3, 0.6, 0.8]
        >>> curve = decision_curve(labels, after, before=before, threshold=[0.25, 0.5])
        >>> curve.before.round(4).tolist(), curve.value.round(4).tolist()
        ([0.3333, 0.0], [0.4167, 0.5])
    """
    validation.require_fraction(level, "level")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    earlier = validation.floating(before, "before")
    if earlier.shape != np.shape(proba):
        expected = f"expected the shape of proba, {np.shape(proba)}"
        raise ValueError(f"before: {expected}, got {earlier.shape}")
    if not from_logits:
        validation.require_probabilities(earlier, "before", validation.IF_LOGITS)
    # A NaN among them spoils its problem, as one among the probabilities does.
    values = earlier.reshape(rows.values.shape).astype(float)
    finite = np.isfinite(values)
    lost = (~finite & (rows.weights > 0)).any(axis=-1)[:, None]
    rows_before = replace(rows, values=np.where(finite, values, 0.5), dtype=earlier.dtype)
    thresholds, _ = _thresholds(threshold)

    def decided(by: Predictions) -> _WorthSums:
        called = ((t, _called(by, t)) for t in thresholds)
        cells = (_decided(rows, mask, 1.0, -_odds(t)) for t, mask in called)
        return _sums(rows, cells, level)

    def changed(t: Any) -> list[_Cell]:
        called_now, called_before = _called(rows, t), _called(rows_before, t)
        gained = _decided(rows, called_now & ~called_before, 1.0, -_odds(t))
        return gained + _decided(rows, called_before & ~called_now, -1.0, _odds(t))

    after, former = decided(rows), decided(rows_before)
    difference = _sums(rows, map(changed, thresholds), level)
    treat_all = _treat_all(rows, thresholds)
    parts = (
        after.value,
        after.lower,
        after.upper,
        former.value,
        difference.value,
        difference.lower,
        difference.upper,
        treat_all,
        0 * treat_all,
    )
    threshold_table = np.broadcast_to(thresholds, treat_all.shape)
    known_parts = (np.where(lost, np.nan, x) for x in parts)
    return DecisionCurve(*(_result(rows, x, False) for x in (threshold_table, *known_parts)))


@documented
def expected_cost(
    labels: Column,
    proba: Column,
    *,
    cost: tuple[float, float],
    threshold: float | None = None,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> Cost:
    """The mean cost per row of calling rows positive from a threshold on.

    A false positive and a false negative cost something, right decisions nothing. By default the
    threshold is the one that is best if probabilities are calibrated, false positive cost / (false
    positive cost + false negative cost) (Elkan 2001, "The foundations of cost-sensitive learning").
    Compare other thresholds, or probabilities before calibration. The interval is as for
    `net_benefit`.

    {rows}
        cost: costs of a false positive and of a false negative, each >= 0 and one above 0.
        threshold: a number in (0, 1), or None for the best one.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A Cost of arrays (...) in the dtype of proba; NaN as in the package's docstring.

    Example:
        >>> rows = [1, 0, 1, 0], [0.9, 0.4, 0.3, 0.1]
        >>> float(expected_cost(*rows, cost=(1, 4)).value)
        0.25
        >>> float(expected_cost(*rows, cost=(1, 4), threshold=0.5).value)
        1.0
    """
    validation.require_fraction(level, "level")
    unit, (false_positive, false_negative) = _costs(cost)
    if threshold is None:
        threshold = false_positive / (false_positive + false_negative)
    thresholds, single = _thresholds(threshold, ends=True)
    if not single:
        raise ValueError(f"threshold: expected one number, got {threshold!r}")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    called = _called(rows, thresholds[0])
    cells = [
        *_decided(rows, called, 0.0, false_positive),
        *_decided(rows, ~called, false_negative, 0.0),
    ]
    return Cost(*(_result(rows, x * unit, True) for x in _sums(rows, [cells], level)))


def _thresholds(threshold: Column, ends: bool = False) -> tuple[Floats, bool]:
    """The thresholds (T,), and whether it was a single number."""
    values = validation.numbers(threshold, "threshold").astype(float)
    inside = (values >= 0) & (values <= 1) if ends else (values > 0) & (values < 1)
    if values.ndim > 1 or not values.size or not inside.all():
        raise ValueError(f"threshold: expected numbers between 0 and 1, got {threshold!r}")
    return values.reshape(-1), values.ndim == 0


def _costs(cost: Any) -> tuple[float, tuple[float, float]]:
    """A power of two, and the costs in this unit, whose sums and squares are finite."""
    costs = validation.numbers(cost, "cost").astype(float)
    if costs.shape != (2,) or not ((costs >= 0) & np.isfinite(costs)).all() or not costs.any():
        raise ValueError(f"cost: expected two costs >= 0, one of them above 0, got {cost!r}")
    unit = 2.0 ** (np.frexp(costs.max())[1] - 1)
    return unit, (float(costs[0] / unit), float(costs[1] / unit))


def _called(rows: Predictions, at: Any) -> Bools:
    """(K, N), whether values reach a threshold, as a float32 of it does, or its log-odds."""
    size = at
    if rows.from_logits:
        with np.errstate(divide="ignore"):
            at = np.log(at) - np.log1p(-at)
        size = np.where(np.isfinite(at), np.maximum(1, abs(at)), 0)
    called: Bools = rows.values >= at - SAME * size
    return called


def _odds(threshold: Any) -> Any:
    return threshold / (1 - threshold)


def _decided(rows: Predictions, so: Bools, positive: float, negative: float) -> list[_Cell]:
    """The cells of rows (K, N) decided so, with what the rows of each label are worth."""
    possible = rows.sum(so) > 0
    return [
        _Cell(worth, so & (rows.positive == label), possible)
        for worth, label in ((positive, True), (negative, False))
        if worth
    ]


def _sums(rows: Predictions, cells_of_each: Iterable[list[_Cell]], level: float) -> _WorthSums:
    """Sums (K, T) over the cells of each of T thresholds."""
    z2 = critical_value(level, simultaneous=False) ** 2
    columns = []
    for cells in cells_of_each:
        worth = np.array([cell.worth for cell in cells])
        share = np.stack([rows.mean(cell.inside) for cell in cells], -1)
        possible = np.stack([cell.possible for cell in cells], -1)
        n = rows.total[:, None]
        value = share @ worth
        error = np.sqrt(np.maximum(ratio(share @ worth**2 - value**2, rows.total), 0))
        center = ratio(share * n + z2 / 2, n + z2)
        half = ratio(np.sqrt(z2 * (n * share * (1 - share) + z2 / 4)), n + z2)
        # Decisions that were never made add nothing, whatever the labels would have been.
        down = np.where(possible, share - np.maximum(center - half, 0), 0)
        up = np.where(possible, np.minimum(center + half, 1) - share, 0)
        below, above = (worth * np.where((worth > 0) == low, down, up) for low in (True, False))
        root = np.sqrt(ratio(share, 1 - share), where=share < 1, out=np.zeros_like(share))
        lower, upper = (value - _length(below, root), value + _length(above, root))
        columns.append((value, error, lower, upper))
    return _WorthSums(*(np.stack(x, -1) for x in zip(*columns, strict=True)))


def _length(parts: Floats, root: Floats) -> Floats:
    """(K,) lengths of sums of parts (K, C) whose correlations are -root root', and 1."""
    squares = (parts**2 * (1 + root**2)).sum(-1) - (parts * root).sum(-1) ** 2
    return np.sqrt(np.maximum(squares, 0))


def _treat_all(rows: Predictions, at: Floats) -> Floats:
    rate = rows.mean(rows.positive)[:, None]
    return rate - (1 - rate) * at / (1 - at)


def _result(rows: Predictions, x: Floats, single: bool) -> Any:
    return rows.result(x[:, 0] if single else x)
