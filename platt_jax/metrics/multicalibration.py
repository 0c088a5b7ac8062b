"""The multicalibration error: the largest calibration error of many groups that may overlap."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.groups import Groups
from platt_jax.metrics.field_sums import Field, fields_of
from platt_jax.metrics.rows import (
    Predictions,
    documented,
    ratio,
    read_flat_predictions,
    two_sided_p_value,
)
from platt_jax.results.tables import Table

_ALL = "all rows"

# Below this, the series for the distribution function is used; above, that for the tail.
_MIDDLE = 1.5
_FAR = 1e3  # from here on the tail is 0
_TERMS = np.arange(1, 25)[:, None]


class MulticalibrationError(NamedTuple):
    """The multicalibration error of probabilities.

    Attributes:
        value: the error, as a difference of probabilities: sigma * standard deviation of all rows.
        sigma: the largest scaled Kuiper statistic of any group. It is at least about 1.6, and grows
            with the number of groups, if the probabilities are calibrated.
        by_chance: mean of sigma if the probabilities are calibrated.
        lower: lower end of the interval for sigma of infinitely many redrawn labels.
        upper: upper end of the interval.
        p_value: of the largest statistic, if the probabilities are calibrated in all groups.
        worst: line of the groups with the largest statistic.
        groups: table of the groups: "field" and "group" name it ("mask" and its number for the
            argument `groups`); "rows", "kuiper", "sigma", and "p_value" of the group alone.
    """

    value: Any
    sigma: Any
    by_chance: Any
    lower: Any
    upper: Any
    p_value: Any
    worst: int
    groups: Table

    def table(self) -> Table:
        """The table of the groups, that with the largest statistic first."""
        order = np.argsort(-self.groups["sigma"], kind="stable")
        return Table({name: column[order] for name, column in self.groups.items()})


class _Walks(NamedTuple):
    """Groups of rows, each in ascending order of P(y=1), one after the other."""

    row: NDArray[np.intp]  # (M,) rows of all groups
    groups: Groups  # the G groups of these
    ends: NDArray[np.intp]  # (E,) places of the last of equal probabilities of a group
    end_groups: Groups  # the groups of `ends`

    def sums(self, x: Floats) -> Floats:
        """(G,) sums of x (N,) over each group."""
        return self.groups.sums(x[self.row])

    def ranges(self, x: Floats) -> Floats:
        """(G,) ranges of the cumulative sums of x (N,) in each group, which start at 0."""
        sums = self.groups.cumulated(x[self.row])[self.ends]
        highest = np.maximum(self.end_groups.maxima(sums), 0)
        return highest - np.minimum(self.end_groups.minima(sums), 0)


class _GroupStatistics(NamedTuple):
    """Statistics of G groups; (G,)."""

    walks: _Walks
    n: Floats  # weighted number of rows, as the weights of the rows are scaled
    kuiper: Floats
    sd: Floats  # standard deviation of the mean residual if calibrated, as these are scaled
    sigma: Floats


class _Group(NamedTuple):
    """A group's name, and its rows in ascending order of P(y=1)."""

    field: str
    name: Any
    rows: NDArray[np.intp]


@documented
def multicalibration_error(
    labels: Column,
    proba: Column,
    groups: Column = None,
    *,
    segments: Column = None,
    weights: Column = None,
    from_logits: bool = False,
    min_rows: int = 10,
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
) -> MulticalibrationError:
    """The largest scaled Kuiper statistic of any group (Guy et al. 2025, arXiv 2506.11251).

        kuiper(group) = range of the sums of (y - p) / n over the rows with P(y=1) up to a threshold
        sigma(group) = kuiper(group) / sqrt(sum of p (1 - p) / n^2)
        sigma = max over groups of sigma(group)

    The sums are over the group's n rows; thresholds are all numbers, so the range has 0 in it. All
    rows are one of the groups. Rows of equal probabilities are added together, so that their order
    does not matter. docs/howto/field_errors.md has the names and rules of the package mcgrad.

    Labels are redrawn from the probabilities. The largest statistics of these draws have the mean
    `by_chance`, and give `p_value`, which allows for the number of groups and for their overlap.
    The interval is sigma -+ q, where q is the draws' quantile of this level. It covers at least as
    often as it says, if probabilities are right enough for the standard deviations. Its lower end
    is above 0 if probabilities are not calibrated in some group.

    {flat_rows}
        groups: (G, N) bool, which rows are in each group; a row may be in several, or in none.
        segments: (N,) ids as for `by_segment`, or several columns; each value is a group.
        min_rows: minimum (weighted) number of rows of a group; smaller ones are left out.
        level: confidence level of the interval, in (0, 1).
        replicates: number of draws of labels.
        seed: seed of the draws.

    Returns:
        A MulticalibrationError, its numbers in the dtype of proba; NaN as in the package's
        docstring. sigma is infinite where probabilities are 0 or 1 and a label differs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> proba = rng.uniform(0.1, 0.9, 1000)
        >>> city = rng.choice(["Bern", "Oslo", "Rome"], 1000)
        >>> labels = rng.random(1000) < np.where(city == "Oslo", proba**2, proba)
        >>> error = multicalibration_error(labels, proba, segments=city)
        >>> round(float(error.sigma), 1), round(float(error.lower), 1)
        (6.9, 4.0)
        >>> error.groups["group"][error.worst]
        'Oslo'
    """
    validation.require_fraction(level, "level")
    validation.require_integer(min_rows, "min_rows", 1)
    validation.require_integer(replicates, "replicates", 1)
    validation.require_integer(seed, "seed", 0)
    rows = read_flat_predictions(labels, proba, weights, from_logits)
    n = rows.values.shape[1]
    masks = np.empty((0, n), bool) if groups is None else _read_masks(groups, n)
    fields = [] if segments is None else fields_of(ids.read_rows(segments, n))
    all_groups = _groups(rows, masks, fields, min_rows)
    statistics = _statistics(rows, all_groups)
    worst = int(np.argmax(statistics.sigma))
    largest = statistics.sigma[worst]
    draws = _largest_by_chance(rows, statistics, replicates, seed)
    off = np.quantile(draws, level, method="higher")
    p_value = (1 + (draws >= largest).sum()) / (1 + replicates)
    sd = rows.per_root(statistics.sd)[0]
    numbers = {
        "value": largest if np.isinf(largest) else largest * sd,  # infinite also where sd is 0
        "sigma": largest,
        "by_chance": draws.mean(),
        "lower": np.maximum(largest - off, 0),
        "upper": largest + off,
        "p_value": np.nan if np.isnan(largest) else p_value,
    }
    return MulticalibrationError(
        **{name: rows.result(np.array([x])) for name, x in numbers.items()},
        worst=worst,
        groups=_table(rows, all_groups, statistics),
    )


def _read_masks(groups: Column, n: int) -> Bools:
    masks = validation.array(groups, "groups")
    if masks.dtype != bool or masks.ndim != 2 or masks.shape[1] != n:
        raise ValueError(
            f"groups: expected bool of shape (G, {n}), a mask over the rows for each group, got "
            f"{masks.dtype} of shape {masks.shape}"
        )
    return masks


def _groups(rows: Predictions, masks: Bools, fields: list[Field], min_rows: int) -> list[_Group]:
    """All rows, and the groups with enough of them."""
    w = rows.weights[0]
    p = rows.probabilities()[0][0]
    order = np.argsort(p, kind="stable")
    # Rows of weight 0 change no sum. Without any other, one stands for the group.
    order = order[w[order] > 0] if rows.total[0] > 0 else order[:1]
    groups = [_Group(_ALL, _ALL, order)]
    groups += (_Group("mask", i, order[mask[order]]) for i, mask in enumerate(masks))
    for field in fields:
        number = field.values.of(slice(None))
        sorted_rows = order[np.argsort(number[order], kind="stable")]
        numbers, first = np.unique(number[sorted_rows], return_index=True)
        names = ids.as_objects(field.values.named(numbers)).tolist()
        pieces = np.split(sorted_rows, first[1:])
        groups += (_Group(field.name, *pair) for pair in zip(names, pieces, strict=True))
    enough = rows.unscaled(np.array([w[group.rows].sum() for group in groups])) >= min_rows
    return groups[:1] + [group for group, keep in zip(groups[1:], enough[1:], strict=True) if keep]


def _walks(p: Floats, groups: list[NDArray[np.intp]]) -> _Walks:
    """The walks over groups of rows, none of them empty, in ascending order of p (N,)."""
    row, spans = np.concatenate(groups), Groups([len(group) for group in groups])
    is_end = np.append(p[row[1:]] != p[row[:-1]], True)
    is_end[spans.starts[1:] - 1] = True
    return _Walks(row, spans, np.flatnonzero(is_end), Groups(spans.sums(is_end.astype(np.intp))))


def _scaled(kuiper: Floats, sd: Floats) -> Floats:
    """Statistics in units of their standard deviation; 0 / 0 is 0."""
    return np.where(kuiper == 0, 0.0, ratio(kuiper, sd))


def _statistics(rows: Predictions, groups: list[_Group]) -> _GroupStatistics:
    (p,), (q,) = rows.probabilities()
    w = rows.weights[0]
    walks = _walks(p, [group.rows for group in groups])
    n = walks.sums(w)
    sd = ratio(np.sqrt(walks.sums(w * p * q)), n)
    statistic = ratio(walks.ranges(w * rows.residuals()[0]), n)
    sigma = rows.times_root(_scaled(statistic, sd))
    return _GroupStatistics(walks, n, statistic, sd, sigma)


def _largest_by_chance(
    rows: Predictions, each: _GroupStatistics, replicates: int, seed: int
) -> Floats:
    """(replicates,) largest statistics of labels drawn from the probabilities."""
    rng = np.random.default_rng(seed)
    counted = each.walks.row[: each.walks.groups.sizes[0]]  # all rows are the first group
    p = rows.probabilities()[0][0, counted]
    spread = np.sqrt(rows.weights[0, counted])  # a row of weight w has the variance of w rows
    x = np.zeros(rows.weights.shape[1])
    largest = np.full(replicates, np.nan)
    if not rows.total[0] > 0:
        return largest
    for i in range(replicates):
        x[counted] = spread * ((rng.random(len(p)) < p) - p)
        largest[i] = _scaled(each.walks.ranges(x) / each.n, each.sd).max()
    return largest


def _table(rows: Predictions, groups: list[_Group], each: _GroupStatistics) -> Table:
    with np.errstate(over="ignore"):
        sigma = each.sigma.astype(rows.dtype)
    return Table(
        field=np.array([group.field for group in groups]),
        group=np.fromiter((group.name for group in groups), object, len(groups)),
        rows=rows.unscaled(each.n),
        kuiper=each.kuiper.astype(rows.dtype),
        sigma=sigma,
        p_value=kuiper_p_value(each.sigma).astype(rows.dtype),
    )


def kuiper_p_value(x: Floats) -> Floats:
    """P(range of a Brownian motion on [0, 1] >= x) (Feller 1951), for x >= 0."""
    low, high = np.clip(x, 0.1, _MIDDLE), np.clip(x, _MIDDLE, _FAR)
    odd = (_TERMS - 0.5) * np.pi
    below = (8 / low**2 + 2 / odd**2) * np.exp(-2 * odd**2 / low**2)
    sign = np.where(_TERMS % 2 == 1, 1, -1)
    above = 4 * (sign * _TERMS * two_sided_p_value(_TERMS * high)).sum(axis=0)
    return np.where(x < _MIDDLE, 1 - below.sum(axis=0), above)
