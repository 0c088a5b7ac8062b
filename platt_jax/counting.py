"""Counting sort: where rows go if those with the same number are to lie together.

A piece of the rows at a time. It is counted; then it is known where its rows of each number go.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from platt_jax import loops, packing, tiles

# Fewer rows are sorted by NumPy, before the loop could be compiled.
_MANY = 1 << 16
_LEAST = 1 << 12


def count(numbers: np.ndarray, length: int) -> np.ndarray:
    """How many rows have each number below a length, in the smallest type that holds them."""
    counts = np.bincount(numbers, minlength=length)
    return counts.astype(np.min_scalar_type(counts.max()))


def places(numbers: np.ndarray, first: np.ndarray, longest: int) -> np.ndarray:
    """Where each row goes, after those before it with its number.

    Args:
        numbers: (n,) of the rows, integers from 0 on.
        first: where the first row of each number goes.
        longest: no call of this kind has more rows.
    """
    if longest < _MANY or not loops.at_hand():
        return _by_sort(numbers, first)
    rows = packing.aligned((_at_least(longest),), np.dtype(np.int64))
    rows[: len(numbers)] = numbers
    with jax.enable_x64(True):
        first = packing.lengthen(first, _at_least(len(first)))
        return np.asarray(_by_loop(rows, first, np.int64(len(numbers))))[: len(numbers)]


def _by_sort(numbers, first):
    order = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers, minlength=len(first))
    out = np.empty(len(numbers), np.int64)
    out[order] = np.arange(len(numbers)) + np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
    return out


def _at_least(length):
    """A power of 2, so that one program serves for many lengths; XLA fails where it is 1."""
    return max(_LEAST, 1 << (length - 1).bit_length())


@partial(jax.jit, compiler_options=tiles.COMPILER_OPTIONS)
def _by_loop(numbers, first, rows):
    """The places of the first so many rows."""

    @loops.as_one
    def run(numbers, first, rows):
        def next_row(i, so_far):
            next_place, found = so_far
            number = _at(numbers, i)
            found = _put(found, _at(next_place, number), i)
            # Read where it was written: else XLA would copy what it reads and writes here.
            return _put(next_place, _at(found, i) + 1, number), found

        return lax.fori_loop(0, rows, next_row, (first, jnp.zeros_like(numbers)))[1]

    return run(numbers, first, rows)


_at = partial(lax.dynamic_index_in_dim, keepdims=False)
_put = partial(lax.dynamic_update_index_in_dim, axis=0)
