"""A night's sums as a table, which any engine can compute in parts, and add up by segment."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.ids.factorize import factorize
from platt_jax.monitoring.evidence import Night
from platt_jax.results import tables
from platt_jax.results.tables import Table

_INEXACT = 2.0**53  # floats from here on may have been rounded
_TOTALS = list(Night._fields[1:])


def to_table(keys: NDArray[Any], night: Night) -> Table:
    """The sums of segments (K,) as columns of integers."""
    columns = dict(zip(_TOTALS, night[1:], strict=True))
    ratios = dict(zip(_names_of_terms(night.log_ratios.shape[1]), night.log_ratios.T, strict=True))
    return tables.keyed("segment", keys, columns | ratios)


def _names_of_terms(terms: int) -> list[str]:
    return [f"log_ratio_{i}" for i in range(terms)]


def from_table(table: Any, terms: int) -> tuple[NDArray[Any], Night]:
    """The distinct segments of a table of `to_table`, and their sums over its lines.

    It has so many terms of log likelihood ratios, as in `Night`.
    """
    names, ratios = _names(table), _names_of_terms(terms)
    fields = [name for name in names if name not in (*_TOTALS, *ratios)]
    if missing := [name for name in (*_TOTALS, *ratios) if name not in names]:
        raise ValueError(
            f"sums: expected the columns of Monitor.sums, got none named {missing[0]!r}"
        )
    if not fields:
        raise ValueError("sums: expected a column of segments, got none")
    columns: Any = tuple(ids.read(table[name]) for name in fields)
    if not ids.length(columns[0]):
        return np.empty(0, np.int64), Night.without_rows(0, terms)
    segments = factorize(columns[0] if len(fields) == 1 else ids.IdColumns(tuple(fields), columns))
    owner = segments.of(slice(None))
    night = Night.without_rows(segments.numbers, terms)
    for name, into in zip(_TOTALS, night[1:], strict=True):
        np.add.at(into, owner, _integers(table[name], name))
    for i, name in enumerate(ratios):
        np.add.at(night.log_ratios[:, i], owner, _integers(table[name], name))
    if ((night.positives < 0) | (night.positives > night.rows)).any():
        raise ValueError("sums: expected positives from 0 to rows, got others")
    indices = np.flatnonzero(night.rows)
    return segments.named(indices), night.of(indices)


def _names(table: Any) -> list[str]:
    """The columns' names of a pyarrow Table, a frame or a dictionary."""
    for attribute in ("column_names", "columns"):
        if (names := getattr(table, attribute, None)) is not None:
            return [str(name) for name in names]
    if isinstance(table, dict):
        return list(table)
    raise ValueError(f"sums: expected a table, got a {type(table).__name__}")


def _integers(column: Any, name: str) -> NDArray[np.int64]:
    values = validation.numbers(column, "sums")
    result: NDArray[np.int64] = values.astype(np.int64)
    inexact = values.dtype.kind not in "iu" and (
        values.dtype != np.float64 or (np.abs(values) >= _INEXACT).any() or (result != values).any()
    )
    if inexact:
        raise ValueError(f"sums: expected integers in column {name!r}, got {values.dtype}")
    return result
