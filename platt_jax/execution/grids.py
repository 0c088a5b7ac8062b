"""Converts between a chunk's list of problems and the compiled program's grid [S, G]."""

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.backend import accelerators
from platt_jax.execution.planning import Chunk
from platt_jax.model.objective import Array
from platt_jax.passes import packing


def on_grid(values: Any, chunk: Chunk) -> Any:
    """Puts arrays with the chunk's problems as leading axis on the program's grid, [S, G, ...]."""

    def place(leaf: NDArray[Any]) -> NDArray[Any]:
        lengthened = packing.lengthen(leaf, math.prod(chunk.grid))
        return lengthened.reshape(chunk.grid + leaf.shape[1:])

    return jax.tree.map(place, values)


def off_grid(made: Any, chunk: Chunk) -> Any:
    """Puts the program's results, [S, G, ...], in arrays with the problems as leading axis."""
    made = accelerators.fetched(made)
    return jax.tree.map(lambda x: _lead_with_problems(x)[: len(chunk.sizes)], made)


def _lead_with_problems(x: Array) -> NDArray[Any]:
    x = np.asarray(x)
    return x.reshape((-1, *x.shape[2:]))
