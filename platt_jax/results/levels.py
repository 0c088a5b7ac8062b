"""Levels of segments, such as countries and cities: their spreads, and the effects of values."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.probabilities import normal_parameters
from platt_jax.results.tables import Table, counted

_Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Level(ComparedByValue):
    """One level and its V values.

    Attributes:
        name: the column; for nested levels all columns up to it, joined by " > ".
        keys: (V,) the values, ascending; for nested levels below the first a structured array of
            all columns up to it.
        rows: (V,) number of rows of each value, weighted.
        mean: (V, 2), posterior mean of (A, B): of the value's curve for nested levels, of its
            effect for crossed ones, relative to the average effect of the level.
        covariance: (V, 2, 2), its posterior covariance.
        spread: (2, 2), covariance of (A, B) between the effects of the level's values.
        spread_errors: (2, 2), standard errors of the spread; NaN where the rows show no spread.
        unseen: (2, 2), covariance of (A, B) of an unseen value's effect: the spread, and its
            uncertainty.
        share: share of the variance of log-odds between rows that is due to this level.
    """

    name: str
    keys: NDArray[Any]
    rows: _Array
    mean: _Array
    covariance: _Array
    spread: _Array
    spread_errors: _Array
    unseen: _Array
    share: float

    def places(self, columns: list[NDArray[Any]]) -> NDArray[Any]:
        """The places of the values of rows, given the level's columns; -1 for unseen values."""
        names = self.keys.dtype.names
        values = columns[0] if names is None else ids.structured(names, columns)
        return get_indexer(self.keys, split_columns(values))

    def moved(self, places: NDArray[Any], change: _Array, unseen_change: float) -> "Level":
        """The level with B of each value changed by the mean of its segments, at these places (K,).

        Values without a segment change by `unseen_change`.
        """
        number = np.bincount(places, minlength=len(self.keys))
        total = np.bincount(places, change, len(self.keys))
        mean = self.mean.copy()
        mean[:, 1] += np.where(number > 0, total / np.maximum(number, 1), unseen_change)
        return replace(self, mean=mean)


class Part(NamedTuple):
    """What one level adds to the curve of an unseen segment, as rows (A, B, AA, AB, BB)."""

    columns: range  # places of the columns of ids that the keys have
    keys: NDArray[Any]  # (V,) as in `Level`
    # (V, 5), for crossed levels the effect of each value; for nested ones the curve of an unseen
    # segment with this value and unseen values of all deeper levels
    normal: _Array
    # (5,), for crossed levels the effect of an unseen value; None for nested ones
    unseen: _Array | None


@dataclass(frozen=True, eq=False, repr=False)
class Levels(ComparedByValue):
    """What is known of each level, and of the mean curve.

    Attributes:
        kind: "nested" or "crossed".
        each: the levels, from the first column to the last.
        mean: (2,), the mean curve's (A, B); for crossed levels with the average effects.
        mean_covariance: (2, 2), its covariance.
    """

    kind: str
    each: tuple[Level, ...]
    mean: _Array
    mean_covariance: _Array

    def curves(self, segments: NDArray[Any]) -> tuple[_Array, _Array]:
        """Mean (n, 2) and covariance (n, 2, 2) of (A, B) of any segments, a structured array (n,).

        The effects of unseen values are 0 on average, with the spread of their level. For crossed
        levels the posteriors of the effects are taken as independent.
        """
        n, columns = len(segments), ids.fields(segments)
        mean = np.broadcast_to(self.mean, (n, 2)).copy()
        covariance = np.broadcast_to(self.mean_covariance, (n, 2, 2)).copy()
        for number, level in enumerate(self.each):
            first = 0 if self.kind == "nested" else number
            places = level.places(columns[first : number + 1])
            is_seen, places = places >= 0, places[places >= 0]
            covariance[~is_seen] += level.unseen
            if self.kind == "nested":
                mean[is_seen], covariance[is_seen] = level.mean[places], level.covariance[places]
            else:
                mean[is_seen] += level.mean[places]
                covariance[is_seen] += level.covariance[places]
        return mean, covariance

    def parts(self) -> tuple[_Array, list[Part]]:
        """`curves` of segments that were not fitted, to be evaluated in other programs.

        For crossed levels the mean curve (5,), to which the effects of the values add up. For
        nested ones the curve (5,) of a segment without a known value, which the curve of the
        deepest known value replaces; the last level is left out: its values were all fitted.
        """
        root, covariance = self.mean, self.mean_covariance
        crossed = self.kind == "crossed"
        if not crossed:
            covariance = covariance + sum(level.unseen for level in self.each)
        parts = []
        for number, level in enumerate(self.each if crossed else self.each[:-1]):
            deeper = np.zeros((2, 2)) if crossed else sum(x.unseen for x in self.each[number + 1 :])
            normal = normal_parameters(level.mean, level.covariance + deeper)
            unseen = normal_parameters(np.zeros((1, 2)), level.unseen[None])[0] if crossed else None
            columns = range(number if crossed else 0, number + 1)
            parts.append(Part(columns, level.keys, normal, unseen))
        return normal_parameters(root[None], covariance[None])[0], parts

    def only(self, keys: NDArray[Any]) -> "Levels":
        """The levels if only these segments (K,) are kept: of nested levels the last has no others.

        Values of the other levels are kept, since they also concern unseen segments.
        """
        *outer_levels, last = self.each
        if self.kind == "crossed":
            return self
        mask = np.zeros(len(last.keys), bool)
        mask[last.places(ids.fields(keys))] = True
        fields = ("keys", "rows", "mean", "covariance")
        last = replace(last, **{name: getattr(last, name)[mask] for name in fields})
        return replace(self, each=(*outer_levels, last))

    def moved(self, keys: NDArray[Any], change: _Array, unseen_change: float) -> "Levels":
        """The levels of segments (K,) whose B has changed.

        The mean curve of a value of a nested level changes by the mean of its segments, or without
        segments by `unseen_change`, as the overall mean curve does. Effects of crossed levels stay.
        """
        each = self.each
        if self.kind == "nested":
            columns = ids.fields(keys)
            each = tuple(
                level.moved(level.places(columns[: number + 1]), change, unseen_change)
                for number, level in enumerate(each)
            )
        return replace(self, each=each, mean=self.mean + np.array([0.0, unseen_change]))

    def table(self) -> Table:
        """A row per level; see `SegmentCalibrator.levels`."""
        each = self.each
        spreads = np.array([np.sqrt(np.diag(level.spread)) for level in each])
        # The error of a root is the error of its square over twice the root.
        errors = np.array([np.diag(level.spread_errors) for level in each]) / (2 * spreads)
        return Table(
            level=np.array([level.name for level in each]),
            values=np.array([len(level.keys) for level in each]),
            rows_per_value=np.array([level.rows.sum() / max(len(level.keys), 1) for level in each]),
            slope_sd=spreads[:, 0],
            se_slope_sd=errors[:, 0],
            intercept_sd=spreads[:, 1],
            se_intercept_sd=errors[:, 1],
            share=np.array([level.share for level in each]),
        )

    def lines(self) -> list[str]:
        """A line of text for each level."""
        table = self.table()
        columns = (table[name] for name in ("level", "values", "slope_sd", "intercept_sd"))
        return [
            f"level {name}: {counted(values, 'value')}, standard deviation {slope:.3g} of the "
            f"slope, {intercept:.3g} of the intercept"
            for name, values, slope, intercept in zip(*columns, strict=True)
        ]
