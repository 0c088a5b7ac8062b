"""The distinct ids of rows that are read in batches."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Integers
from platt_jax.ids import Ids, join
from platt_jax.ids.factorize import ascending, factorize, split_columns
from platt_jax.ids.indexing import indexer


class Vocabulary:
    """Ids and their numbers, assigned in order of appearance.

    Attributes:
        keys: (K,) the ids so far, ascending; None before the first batch.
        numbers: (K,) int32, the number of each id.
    """

    def __init__(self) -> None:
        self.keys: Any = None
        self.numbers: NDArray[np.int32] = np.empty(0, np.int32)

    def add(self, rows: Integers, keys: NDArray[Any]) -> NDArray[np.int32]:
        """The numbers of a batch's rows (N,), given as indices into its distinct ids.

        New ids get the next free numbers.
        """
        if self.keys is None:
            self.keys, place = ascending(keys)
            self.numbers = np.argsort(place).astype(np.int32)
            return np.arange(len(keys), dtype=np.int32)[rows]
        self._require_same_type(keys)
        found = self._find(keys)
        if (found < 0).any():
            self._insert(keys[found < 0])
            found = self._find(keys)
        return self.numbers[found][rows]

    def _find(self, keys: NDArray[Any]) -> Integers:
        return indexer(self.keys, split_columns(keys), "segments")(slice(None))

    def _insert(self, new: NDArray[Any]) -> None:
        old = len(self.keys)
        self.keys, place = ascending(join([self.keys, new]))
        numbers = np.empty(old + len(new), np.int32)
        numbers[place[:old]] = self.numbers
        numbers[place[old:]] = np.arange(old, old + len(new))
        self.numbers = numbers

    def _require_same_type(self, keys: NDArray[Any]) -> None:
        had, got = self.keys.dtype, keys.dtype
        if _kinds(had) != _kinds(got):
            raise ValueError(
                f"segments: expected ids of one type in all batches, got {got} after {had}"
            )


def distinct(segments: Ids) -> tuple[Integers, NDArray[Any]]:
    """The index of each row's id among the distinct ids, and the distinct ids."""
    rows = factorize(segments)
    numbers = rows.of(slice(None))
    used = np.zeros(rows.numbers, bool)
    used[numbers] = True
    place = np.cumsum(used) - 1
    return place[numbers], rows.named(np.flatnonzero(used))


def _kinds(dtype: np.dtype[Any]) -> str | list[tuple[str, str]]:
    """The kind of the ids, or the name and kind of each of their columns."""
    if dtype.names is None:
        return dtype.kind
    return [(name, dtype[name].kind) for name in dtype.names]
