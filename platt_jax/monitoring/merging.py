"""Adds up the monitors of parts of a night."""

from dataclasses import replace

import numpy as np

from platt_jax.ids import join
from platt_jax.ids.factorize import ascending
from platt_jax.monitoring.state import COLUMNS, State
from platt_jax.results import tables


def merged(first: State, second: State) -> State:
    """The state of both.

    Raises:
        ValueError: a segment of both has another past in the second.
    """
    if not len(second.keys):
        return first
    if not len(first.keys):
        return second
    keys, place = ascending(join([first.keys, second.keys]))
    of_first, of_second = np.split(place, [len(first.keys)])
    first, second = first.placed(of_first, keys), second.placed(of_second, keys)
    in_both = np.intersect1d(of_first, of_second)
    in_second = np.setdiff1d(of_second, of_first)
    columns = {}
    for name in COLUMNS:
        mine, its = getattr(first, name).copy(), getattr(second, name)
        differs = (mine[in_both] != its[in_both]).any(axis=tuple(range(1, mine.ndim)))
        if differs.any():
            raise ValueError(
                "other: expected a monitor that was the same before the last night; it has another "
                f"past of segment {tables.name(keys, in_both[differs.argmax()])}"
            )
        mine[in_second] = its[in_second]
        columns[name] = mine
    first.tonight.add(0, second.tonight)
    return replace(first, **columns)
