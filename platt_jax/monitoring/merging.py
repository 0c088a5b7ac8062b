"""Adds up the monitors of parts of a night."""

from dataclasses import replace

from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.monitoring.evidence import Night
from platt_jax.monitoring.state import COLUMNS, EvidenceState
from platt_jax.results import tables


def merged(first: EvidenceState, second: EvidenceState) -> EvidenceState:
    """The state of both.

    Raises:
        ValueError: a segment of both has another past in the second.
    """
    if not len(second.keys):
        return first
    if not len(first.keys):
        return second
    shared = get_indexer(first.keys, split_columns(second.keys)) >= 0
    first, places = first.including(second.keys)
    second = second.placed(places, first.keys)
    in_both, in_second = places[shared], places[~shared]
    columns = {}
    for name in COLUMNS:
        mine, its = getattr(first, name).copy(), getattr(second, name)
        differs = (mine[in_both] != its[in_both]).any(axis=tuple(range(1, mine.ndim)))
        if differs.any():
            raise ValueError(
                "other: expected a monitor that was the same before the last night; it has another "
                f"past of segment {tables.name(first.keys, in_both[differs.argmax()])}"
            )
        mine[in_second] = its[in_second]
        columns[name] = mine
    tonight = Night(*(x + y for x, y in zip(first.tonight, second.tonight, strict=True)))
    return replace(first, **columns, tonight=tonight)
