"""Segment ids of any container and type: read, numbered, looked up."""

from platt_jax.ids.containers import (
    Coded,
    Column,
    IdColumns,
    Ids,
    fields,
    length,
    number_like,
    read,
    read_like,
    read_rows,
    require_length,
    single_column,
    structured,
)
from platt_jax.ids.joining import join
from platt_jax.ids.objects import as_objects, kind, missing, require_savable

__all__ = [
    "Coded",
    "Column",
    "IdColumns",
    "Ids",
    "as_objects",
    "fields",
    "join",
    "kind",
    "length",
    "missing",
    "number_like",
    "read",
    "read_like",
    "read_rows",
    "require_length",
    "require_savable",
    "single_column",
    "structured",
]
