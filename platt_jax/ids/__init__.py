"""Segment ids of any container and type: read, numbered, found again."""

from platt_jax.ids.containers import (
    Coded,
    Column,
    Columns,
    Ids,
    kind,
    length,
    missing,
    read,
    read_like,
    require_savable,
    single_column,
    structured,
)

__all__ = [
    "Coded",
    "Column",
    "Columns",
    "Ids",
    "kind",
    "length",
    "missing",
    "read",
    "read_like",
    "require_savable",
    "single_column",
    "structured",
]
