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
            self.keys, positions = ascending(keys)
            self.numbers = np.argsort(positions).astype(np.int32)
            return np.arange(len(keys), dtype=np.int32)[rows]
        self._require_same_type(keys)
        indices = self._find(keys)
        if (indices < 0).any():
            self._insert(keys[indices < 0])
            indices = self._find(keys)
        return self.numbers[indices][rows]

    def _find(self, keys: NDArray[Any]) -> Integers:
        return indexer(self.keys, split_columns(keys), "segments")(slice(None))

    def _insert(self, new: NDArray[Any]) -> None:
        old_count = len(self.keys)
        self.keys, positions = ascending(join([self.keys, new]))
        numbers = np.empty(old_count + len(new), np.int32)
        numbers[positions[:old_count]] = self.numbers
        numbers[positions[old_count:]] = np.arange(old_count, old_count + len(new))
        self.numbers = numbers

    def _require_same_type(self, keys: NDArray[Any]) -> None:
        key_dtype, dtype = self.keys.dtype, keys.dtype
        if _kinds(key_dtype) != _kinds(dtype):
            raise ValueError(
                f"segments: expected ids of one type in all batches, got {dtype} after {key_dtype}"
            )


def distinct(segments: Ids) -> tuple[Integers, NDArray[Any]]:
    """The index of each row's id among the distinct ids, and the distinct ids."""
    rows = factorize(segments)
    numbers = rows.of(slice(None))
    used = np.zeros(rows.numbers, bool)
    used[numbers] = True
    positions = np.cumsum(used) - 1
    return positions[numbers], rows.named(np.flatnonzero(used))


def _kinds(dtype: np.dtype[Any]) -> str | list[tuple[str, str]]:
    """The kind of the ids, or the name and kind of each of their columns."""
    if dtype.names is None:
        return dtype.kind
    return [(name, dtype[name].kind) for name in dtype.names]
