"""Groups of segments within larger groups, and the smallest that a test certifies.

Of m tested groups those with a p-value of at most t are certified. A segment is covered by the
smallest certified group that it belongs to, and F(t) groups cover a segment. The largest t at which
m t / F(t) is at most the false discovery rate keeps that rate for the groups that cover (Katsevich,
Sabatti & Bogomolov 2021, "Filtering the rejection set while preserving false discovery rate
control", theorem 2), as Benjamini and Hochberg's procedure does where each segment is a group of
its own and there are no others. The theorem asks for two things. One more certified group changes
F(t) by 0 or 1, since it takes segments from at most one larger group. And p-values are positively
dependent (PRDS): a group's number of right rows is a sum of independent variables of 0 or 1, and
all parts of such a sum increase with it (Efron 1965, "Increasing properties of Polya frequency
functions"). Of the shares of clusters of rows only simulations say that the rate is kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column
from platt_jax.ids.vocabulary import distinct
from platt_jax.results.tables import Table

Levels = Sequence[str] | Mapping[str, Column]
EVERYTHING = "all"  # the level of one group, of all segments


class NestedGroups(NamedTuple):
    """Groups of segments, of which each level's are within those of the level before."""

    levels: list[str]  # from all segments to single ones
    of: Integers  # (segments, levels) the group's number, which is ascending by level
    line: Integers  # (groups,) a line of the gate
    level: Integers  # (groups,) the place of the level
    ids: dict[str, NDArray[Any]]  # (groups,) by column; None for columns of finer levels

    def sums(self, counts: Integers) -> Integers:
        """(groups,) the sums of the segments' counts."""
        weights = np.broadcast_to(counts[:, None], self.of.shape)
        return np.bincount(self.of.ravel(), weights.ravel(), len(self.line)).astype(np.int64)


def groups_of(
    gate: Table,
    names: Sequence[str],
    levels: Levels | Literal[True] | None,
    taken: Sequence[str],
) -> NestedGroups:
    """The groups of the lines of a gate; lines of another side or target are in other groups.

    Columns of groups have other names than those that are taken.
    """
    finest = "class" if names == ["class"] else "segment"
    line = np.arange(len(gate))
    columns = {name: gate[name] for name in names}
    if levels is None:
        return NestedGroups([finest], line[:, None], line, np.zeros_like(line), columns)
    number: Integers = np.zeros_like(line)
    for column in gate["side"], gate["target"]:
        number = _within(number, np.unique(column, return_inverse=True)[1])
    level_groups, known_from = [number], {}
    by_level = _columns(gate, names, names[:-1] if levels is True else levels, finest, taken)
    for position, (name, column) in enumerate(by_level.items()):
        codes, values = distinct(ids.read_rows(column, len(gate), f"levels[{name!r}]"))
        number = _within(number, codes)
        level_groups.append(number)
        known_from[name], columns[name] = 1 + position, values[codes]
    level_groups.append(line)
    first = np.cumsum([0, *(len(np.unique(x)) for x in level_groups[:-1])])
    numbers = np.stack(level_groups, 1) + first
    line, level = np.divmod(np.unique(numbers, return_index=True)[1], len(level_groups))
    shown = {}
    for name in [*by_level, *(x for x in names if x not in by_level)]:
        has_value = level >= known_from.get(name, len(level_groups) - 1)
        shown[name] = np.full(len(line), None)
        shown[name][has_value] = columns[name][line[has_value]]
    return NestedGroups([EVERYTHING, *by_level, finest], numbers, line, level, shown)


def _columns(
    gate: Table, names: Sequence[str], levels: Levels, own: str, taken: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Ids of groups by the name of their level."""
    if isinstance(levels, str) or not isinstance(levels, Mapping | Sequence):
        raise ValueError(
            f"levels: expected True, a list of the gate's columns of ids, {names}, or a dict of "
            f"columns of ids, from coarse to fine, got {levels!r}"
        )
    for name in levels:
        if not isinstance(levels, Mapping) and name not in names:
            raise ValueError(f"levels: expected columns of ids of the gate, {names}, got {name!r}")
        if name in (EVERYTHING, own):
            raise ValueError(f"levels: {name!r} is a level anyway, expected those in between")
        if isinstance(levels, Mapping) and name in {*taken, *names}:
            raise ValueError(f"levels: expected other names than the table's, got {name!r}")
    return {x: levels[x] if isinstance(levels, Mapping) else gate[x] for x in levels}


def _within(number: Integers, codes: Integers) -> Integers:
    """The numbers of groups, each split by the codes."""
    split = number * (codes.max(initial=0) + 1) + codes
    return np.unique(split, return_inverse=True)[1]


def covering_q_values(p_value: Floats, of: Integers) -> Floats:
    """(groups,) the least false discovery rate at which each is certified; NaN where not tested."""
    p = np.where(np.isnan(p_value), np.inf, p_value)
    # A group covers a segment from its own p-value on, until a group within has been certified.
    until, within = np.full(len(p), -np.inf), np.full(len(of), np.inf)
    for number in of.T[::-1]:
        np.maximum.at(until, number, within)
        within = np.minimum(within, p[number])
    covers = p < until
    begun, ended = (np.searchsorted(np.sort(x[covers]), p, side="right") for x in (p, until))
    order = np.argsort(p)
    tested = order[: np.isfinite(p).sum()]
    q_value = np.full(len(p), np.nan)
    rate = p[tested] * len(tested) / (begun - ended)[tested]
    q_value[tested] = np.minimum(np.minimum.accumulate(rate[::-1])[::-1], 1)
    return q_value


def number_covering(certified: NDArray[np.bool_], of: Integers) -> int:
    """How many groups cover a segment."""
    is_certified = certified[of]
    position = of.shape[1] - 1 - np.argmax(is_certified[:, ::-1], 1)
    return len(np.unique(of[np.arange(len(of)), position][np.any(is_certified, 1)]))


def nearest(certified: NDArray[np.bool_], groups: NestedGroups) -> Integers:
    """(groups,) the place of the finest level at which each is certified, -1 if at none."""
    path, places = groups.of[groups.line], np.arange(len(groups.levels))
    is_certified = certified[path] & (places <= groups.level[:, None])
    return np.where(is_certified, places, -1).max(axis=1, initial=-1)
