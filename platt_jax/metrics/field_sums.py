"""Rows by the values of fields, and sums over the groups that they form."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.ids.factorize import Factorized, factorize
from platt_jax.metrics import groups
from platt_jax.metrics.binned import Binned
from platt_jax.metrics.rows import Predictions, read_predictions
from platt_jax.results.tables import Table

# Maximum number of rows and of groups processed together.
_ROWS, _GROUPS = 1 << 16, 1 << 12


class Field(NamedTuple):
    """A column of ids, and the rows with their values' numbers."""

    name: str
    values: Factorized


class FieldGroups(NamedTuple):
    """The rows that count of one field, in the order of their groups, and sums over each group.

    Attributes:
        rows: (1, N) rows.
        start: (G + 1,) first row of each group, and N.
        n: (G,) weighted number of rows.
        p: sum of P(y=1).
        q: sum of P(y=0).
        positive: weighted number of positives.
        residual: sum of y - P(y=1).
        variance: sum of P(y=1) P(y=0), the variance of the residual if calibrated.
        third: sum of the third central moments of the labels if calibrated.
    """

    rows: Predictions
    start: NDArray[np.intp]
    n: Floats
    p: Floats
    q: Floats
    positive: Floats
    residual: Floats
    variance: Floats
    third: Floats

    def sums(self, x: Floats) -> Floats:
        """(G,) weighted sums of x (1, N) over each group."""
        number = np.repeat(np.arange(len(self.n)), np.diff(self.start))
        return groups.sums(number, self.rows.weights * x, len(self.n))

    def pieces(self) -> Iterator[tuple[slice, Predictions, Binned]]:
        """Adjacent groups with their rows, and sums, as problems with a bin for each group."""
        first, end = 0, len(self.n)
        while first < end:
            full = int(np.searchsorted(self.start, self.start[first] + _ROWS, "right")) - 1
            last = min(max(full, first + 1), first + _GROUPS, end)
            some, inside = slice(first, last), slice(self.start[first], self.start[last])
            rows = _subset(self.rows, np.arange(inside.start, inside.stop))
            number = np.repeat(np.arange(last - first), np.diff(self.start[first : last + 1]))
            columns = (self.n, self.p, self.q, self.positive, self.residual)
            yield some, rows, Binned(number[None], *(x[None, some] for x in columns))
            first = last


def read_fields(
    labels: Column, proba: Column, segments: Column, weights: Column, from_logits: bool
) -> tuple[Predictions, list[Field]]:
    """Flat rows (1, N), and the fields of their segment ids."""
    flat = validation.floating(proba, "proba")
    if flat.ndim != 1 or not len(flat):
        raise ValueError(f"proba: expected a flat array with rows, got shape {flat.shape}")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts()
    return rows, fields_of(ids.read_rows(segments, len(flat)))


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
    """The groups of a field that have rows of positive weight."""
    number = field.values.of(slice(None))
    which = np.flatnonzero(rows.weights[0] > 0)
    order = which[np.argsort(number[which], kind="stable")]
    mine = _subset(rows, order)
    change = np.flatnonzero(np.diff(number[order], prepend=-1))
    start = np.append(change, len(order))
    place = np.repeat(np.arange(len(change)), np.diff(start))
    p, q = mine.probabilities()
    columns = (1, p, q, mine.positive, mine.residuals(), p * q, p * q * (q - p))
    return FieldGroups(
        mine, start, *(groups.sums(place, mine.weights * x, len(change)) for x in columns)
    )


def columns(rows: Predictions, fields: list[Field], found: list[tuple[Any, ...]]) -> list[Any]:
    """The columns of lines of numbers, the last of which are counts; and the fields' names."""
    *numbers, counts = (np.array(x) for x in zip(*found, strict=True))
    found_each = [*(x.astype(rows.dtype) for x in numbers), counts.astype(np.intp)]
    one = len(fields) == 1
    return [*(x[0] if one else x for x in found_each), np.array([field.name for field in fields])]


def field_table(error: Any) -> Table:
    """A line for each field of a result with `fields`."""
    columns = error._asdict()
    names = columns.pop("fields")
    return Table({"field": names}, **{name: np.atleast_1d(x) for name, x in columns.items()})


def _subset(rows: Predictions, which: NDArray[np.intp]) -> Predictions:
    """Some of the rows (1, N)."""
    weights = rows.weights[:, which]
    return replace(
        rows,
        positive=rows.positive[:, which],
        values=rows.values[:, which],
        weights=weights,
        total=weights.sum(axis=-1),
    )
