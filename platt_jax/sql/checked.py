"""The rows of a relation, with their columns, labels and ids checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.ids.factorize import factorize
from platt_jax.results.tables import counted
from platt_jax.sql import queries
from platt_jax.sql.engines import QueryEngine, numbers
from platt_jax.sql.queries import RelationColumns


class CheckedRows(NamedTuple):
    """Rows in an engine."""

    engine: QueryEngine
    names: RelationColumns
    keys: NDArray[Any]  # (K,) segments, ascending
    found: pa.Table  # the result of `queries.summary`, in their order


@contextmanager
def checked_rows(
    engine: QueryEngine, names: RelationColumns, snapshot: bool
) -> Iterator[CheckedRows]:
    """The rows of an engine's relation, as long as the context lasts."""
    if names.label is None:
        raise ValueError("label: expected the name of a column, got None")
    columns = engine.columns()
    check_columns(columns, names)
    booleans = [name for name in columns if pa.types.is_boolean(columns[name])]
    names = names._replace(booleans=booleans)
    with engine.held(names.used, snapshot) as held_engine:
        summary = held_engine.run(queries.summary(names))
        _check_values(summary, names)
        yield CheckedRows(held_engine, names, *_ascending(summary, names))


def check_columns(there: dict[str, pa.DataType], names: RelationColumns) -> None:
    """Check that the columns exist in a relation, and have the right types."""
    segment = names.segment
    if len(set(segment)) < len(segment):
        raise ValueError(f"segment: expected different columns, got {list(segment)}")
    any_type = {"segment", "label"} if names.pos_label is not None else {"segment"}
    numeric = [(role, getattr(names, role)) for role in ("score", "weight", "offset")]
    wanted = [*numeric, ("label", names.label), *(("segment", column) for column in segment)]
    for role, column in wanted:
        if column is None:
            continue
        if column not in there:
            raise ValueError(f"{role}: expected one of the columns {list(there)}, got {column!r}")
        if pa.types.is_union(kind := there[column]):
            kinds = " and ".join(field.name for field in kind)
            raise ValueError(f"{role}, column {column!r}: expected values of one type, got {kinds}")
        if role not in any_type and not _is_numeric(kind):
            raise ValueError(f"{role}, column {column!r}: expected numbers, got {kind}")


def _is_numeric(kind: pa.DataType) -> bool:
    tests = ("is_integer", "is_floating", "is_decimal", "is_boolean", "is_null")
    return any(getattr(pa.types, test)(kind) for test in tests)


def _ascending(found: pa.Table, names: RelationColumns) -> tuple[NDArray[Any], pa.Table]:
    """The segment ids in ascending order, and the result of `queries.summary` in that order."""
    if not found.num_rows:
        return np.empty(0, np.int64), found
    columns = found.select(names.keys).rename_columns(names.segment)
    numbered = factorize(ids.read(columns, "segment"))
    codes = numbered.of(slice(None))
    order = np.argsort(codes, kind="stable")
    used = codes[order]
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
                f"segment, column {column!r}: expected ids, got NULL in {counted(rows, 'row')}: "
                "leave these out, or give them an id of their own"
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
