"""Problems of a chunk as the compiled programs have them: on a grid [S, G]."""

import math
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.execution.planning import Chunk
from platt_jax.model.objective import Array
from platt_jax.passes import packing


def on_grid(of_problems: Any, chunk: Chunk) -> Any:
    """Arrays that lead with the problems of a chunk, as the compiled program takes them, [S, G]."""

    def place(leaf: NDArray[Any]) -> NDArray[Any]:
        lengthened = packing.lengthen(leaf, math.prod(chunk.grid))
        return lengthened.reshape(chunk.grid + leaf.shape[1:])

    return jax.tree.map(place, of_problems)


def off_grid(made: Any, chunk: Chunk) -> Any:
    """What the program returns, [S, G, ...], leading with the problems of the chunk."""
    return jax.tree.map(lambda x: _lead_with_problems(x)[: len(chunk.sizes)], made)


def _lead_with_problems(x: Array) -> NDArray[Any]:
    x = np.asarray(x)
    return x.reshape((-1, *x.shape[2:]))
