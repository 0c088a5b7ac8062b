"""Segment ids of any container and type: read, numbered, looked up."""

from platt_jax.ids.containers import (
    Coded,
    Column,
    Columns,
    Ids,
    as_objects,
    fields,
    kind,
    length,
    missing,
    read,
    read_like,
    read_rows,
    require_length,
    require_savable,
    single_column,
    structured,
)
from platt_jax.ids.joining import join

__all__ = [
    "Coded",
    "Column",
    "Columns",
    "Ids",
    "as_objects",
    "fields",
    "join",
    "kind",
    "length",
    "missing",
    "read",
    "read_like",
    "read_rows",
    "require_length",
    "require_savable",
    "single_column",
    "structured",
]
