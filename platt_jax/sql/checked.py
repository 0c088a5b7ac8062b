"""The rows of a relation, with their columns, labels and ids checked."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from platt_jax import ids, validation
from platt_jax.ids.factorize import factorize
from platt_jax.sql import queries
from platt_jax.sql.engines import QueryEngine
from platt_jax.sql.names import RelationColumns
from platt_jax.sql.relations import check_columns
from platt_jax.sql.values import numbers


class ColumnArguments(NamedTuple):
    """Names of columns, and the label of class 1, as in `fit_segments`."""

    score: str
    label: str
    segment: str | Sequence[str]
    weight: str | None = None
    offset: str | None = None
    pos_label: str | float | None = None


class CheckedRows(NamedTuple):
    """Rows in an engine."""

    engine: QueryEngine
    names: RelationColumns
    keys: NDArray[Any]  # (K,) segments, ascending
    found: pa.Table  # the result of `queries.summary`, in their order


@contextmanager
def checked_rows(
    engine: QueryEngine, named: ColumnArguments, snapshot: bool
) -> Iterator[CheckedRows]:
    """The rows of an engine's relation, as long as the context lasts.

    Raises:
        ValueError: a column is missing or of another type; a label is no label, or an id NULL.
    """
    segments = [named.segment] if isinstance(named.segment, str) else list(named.segment)
    numeric = {name: getattr(named, name) for name in ("score", "weight", "offset")}
    columns = engine.columns()
    if named.pos_label is None:
        check_columns(columns, {**numeric, "label": named.label}, segments)
    else:
        check_columns(columns, numeric, segments, {"label": named.label})
    booleans = [name for name in columns if pa.types.is_boolean(columns[name])]
    positive = None if named.pos_label is None else _literal(named.pos_label)
    names = RelationColumns(
        named.score, named.label, segments, named.weight, booleans, positive, named.offset
    )
    optional = (x for x in (named.weight, named.offset) if x is not None)
    used = dict.fromkeys([named.score, named.label, *segments, *optional])
    with engine.held(list(used), snapshot) as held:
        found = held.run(queries.summary(names))
        _check_values(found, names)
        yield CheckedRows(held, names, *_ascending(found, names))


def _ascending(found: pa.Table, names: RelationColumns) -> tuple[NDArray[Any], pa.Table]:
    """The segment ids in ascending order, and the result of `queries.summary` in that order."""
    if not found.num_rows:
        return np.empty(0, np.int64), found
    columns = found.select(names.keys).rename_columns(names.segment)
    numbered = factorize(ids.read(columns, "segment"))
    place = numbered.of(slice(None))
    order = np.argsort(place, kind="stable")
    used = place[order]
    if (used[1:] == used[:-1]).any():
        raise ValueError(
            "segment: expected ids that are equal where the engine calls them equal, got "
            f"{numbered.named(used[:-1][used[1:] == used[:-1]])[0]!r} twice"
        )
    return numbered.named(used), found.take(pa.array(order))


def _check_values(found: pa.Table, names: RelationColumns) -> None:
    """Check the rows, given the result of `queries.summary`."""
    if not found.num_rows:
        return
    for column, key in zip(names.segment, names.keys, strict=True):
        if found[key].null_count:
            rows = int(numbers(found["n"])[found[key].is_null().to_numpy()].sum())
            raise ValueError(
                f"segment, column {column!r}: expected ids, got NULL in {rows:,} rows; leave these "
                "out, or give them an id of their own"
            )
    least = np.fmin.reduce(numbers(found["least_weight"]))
    if least < 0:
        raise ValueError(f"weight, column {names.weight!r}: expected >= 0, got {least}")
    if names.pos_label is not None:
        _check_two_labels(found, names)
        return
    bad = numbers(found["bad_label"])
    name, coding = f"label, column {names.label!r}", validation.LABEL_CODINGS
    if not np.isnan(bad).all():
        raise ValueError(f"{name}: expected {coding}, got {bad[~np.isnan(bad)][0]}")
    if numbers(found["minus"]).max() > 0 and numbers(found["zero"]).max() > 0:
        raise ValueError(f"{name}: expected one of the codings {coding}, got 0 and -1 together")


def _check_two_labels(found: pa.Table, names: RelationColumns) -> None:
    """Check that labels have at most one value besides pos_label."""
    ends = {x for name in ("min_other", "max_other") for x in found[name].to_pylist()} - {None}
    if len(ends) > 1:
        raise ValueError(
            f"label, column {names.label!r}: expected pos_label={names.pos_label} and at most one "
            f"other value, got {', '.join(map(repr, sorted(ends)))}"
        )


def _literal(label: Any) -> str:
    """A label as a literal in DuckDB's dialect."""
    if isinstance(label, str):
        return exp.Literal.string(label).sql("duckdb")
    if isinstance(label, Real) and np.isfinite(float(label)):
        return repr(int(label) if isinstance(label, Integral) else float(label))
    raise ValueError(f"pos_label: expected a text or a number, got {label!r}")
