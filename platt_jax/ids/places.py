"""Finds ids among others in any order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.ids.factorize import ascending, split_columns
from platt_jax.ids.indexing import get_indexer


def places(keys: NDArray[Any], wanted: NDArray[Any]) -> Integers:
    """The place of each wanted id among distinct keys in any order, or -1."""
    known, order = ascending(keys)
    place = np.full(len(known) + 1, -1)
    place[order] = np.arange(len(keys))
    # Ids that are not known have the place -1, the last.
    return place[get_indexer(known, split_columns(wanted))]
