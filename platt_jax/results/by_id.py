"""A result with a fit for each id, as a mapping from ids to fits."""

from collections.abc import Iterator
from typing import Any

import jax

from platt_jax import ids
from platt_jax.arrays import Integers
from platt_jax.columns import Column
from platt_jax.ids.indexing import get_indexer
from platt_jax.results.fit import Fit, Inspectable


class ById(Inspectable):
    """A result with a fit for each of K ids: a mapping from ids to fits."""

    def _fits(self) -> Fit:
        """The fits (K,) of the ids."""
        raise NotImplementedError

    def _places(self, some: Column, name: str) -> Integers:
        """The places of these ids' fits, -1 for ids without a fit."""
        return get_indexer(self._inspected()[2], ids.read(some, name), name)

    def __getitem__(self, id_: Any) -> Fit:
        """The fit of one id.

        Raises:
            KeyError: there is no fit for this id.
        """
        _, kind, _ = self._inspected()
        (position,) = self._places([id_], kind)
        if position < 0:
            raise KeyError(f"{kind} {id_!r} was not fitted")
        fit: Fit = jax.tree.map(lambda x: x[position], self._fits())
        return fit

    def __contains__(self, id_: object) -> bool:
        try:
            return bool(self._places([id_], self._inspected()[1])[0] >= 0)
        except ValueError:
            return False

    def __len__(self) -> int:
        return len(self._inspected()[2])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inspected()[2])
