"""Random weights of bootstrap replicates, drawn on the device: no weights are transferred.

A weight depends only on its replicate's stream and on its row's number in the problem, so it is the
same in any layout. Weights are drawn once per fit, into an array for the rows of one problem (on
tiles: of a chunk), because drawing them in every pass would cost more than reading them.
"""

from collections.abc import Callable
from dataclasses import replace
from math import exp, factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.passes.elementary import log1p
from platt_jax.passes.tiles import Tiles, broadcast_to_rows

# The distribution function of Poisson(1) at 0, 1, ..., times 2^32. Later values round to 2^32.
_POISSON = [
    np.uint32(round(2**32 * sum(exp(-1) / factorial(j) for j in range(count + 1))))
    for count in range(12)
]


class Stream(NamedTuple):
    """The random numbers that a replicate uses: two words of 32 bits, or arrays of them."""

    first: Array
    second: Array


def streams(seed: int, problems: NDArray[np.uint64], replicates: NDArray[Any]) -> Stream:
    """The streams of replicates of problems, by the seed, a uint64.

    Both arrays are (K,): what identifies the problem of each replicate, and its number within it.
    """
    words = random_words(seed, problems, replicates)
    return Stream((words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32))


def random_words(
    seed: int, problems: NDArray[np.uint64], replicates: NDArray[Any]
) -> NDArray[np.uint64]:
    """A random 64-bit word for each replicate of each problem; arguments as in `streams`.

    The arguments broadcast against each other.
    """
    return mixed(problem_words(seed, problems) + replicates.astype(np.uint64))


def problem_words(seed: int, problems: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A random word for each problem, to which `random_words` adds the replicate's number."""
    return mixed(mixed(np.full(1, seed, np.uint64)) ^ problems)


def draw(kind: str, stream: Stream, row: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    """Random weights of rows; traceable.

    They are counts of mean 1 ("poisson") or exponential variables of mean 1 ("bayesian"). A row has
    an int32 or uint32 number, or its cluster has, in the problem.
    """
    return _DRAWS[kind](_random_bits(stream, row.astype(jnp.uint32)), dtype)


def reweighted(tiles: Tiles, stream: Stream, kind: str) -> Tiles:
    """The tiles, not yet standardized, with random weights from a stream [S, G] per problem.

    Rows that have weights get the product.
    """
    tile_rows, block, _ = tiles.scores.shape
    first = jnp.cumsum(tiles.tiles_per_group, dtype=jnp.int32) - tiles.tiles_per_group
    position = jnp.arange(tile_rows, dtype=jnp.int32) - first[tiles.segment_ids]
    row = position[:, None, None] * block + jnp.arange(block, dtype=jnp.int32)[None, :, None]
    row_stream = Stream(*(broadcast_to_rows(tiles, word) for word in stream))
    weights = draw(kind, row_stream, row, tiles.scores.dtype)
    if tiles.weights is not None:
        weights *= tiles.weights
    return replace(tiles, weights=jnp.where(jnp.isnan(tiles.scores), 0, weights))


def mixed(words: Any) -> Any:
    """A bijection of 64-bit words that looks random: splitmix64 (Steele, Lea & Flood 2014).

    For arrays of NumPy or of JAX.
    """
    words = words + np.uint64(0x9E3779B97F4A7C15)  # an array of its own, which NumPy changes
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _random_bits(stream: Stream, row: jax.Array) -> jax.Array:
    """32 bits for each row: Wellons' integer hash triple32, with the stream in its first rounds."""
    x = row ^ stream.first
    x = (x ^ (x >> 17)) * np.uint32(0xED5AD4BB)
    x = ((x ^ (x >> 11)) ^ stream.second) * np.uint32(0xAC4C1B51)
    x = (x ^ (x >> 15)) * np.uint32(0x31848BAB)
    return x ^ (x >> 14)


def _poisson(bits: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    count = jnp.zeros(bits.shape, jnp.int32)
    for threshold in _POISSON:
        count += (bits >= threshold).astype(jnp.int32)
    return count.astype(dtype)


def _exponential(bits: jax.Array, dtype: np.dtype[Any]) -> jax.Array:
    """-log(u) = log(1 + (1 - u) / u), where u is uniform and neither 0 nor 1."""
    number = min(32, jnp.finfo(dtype).nmant)
    u = ((bits >> (32 - number)).astype(dtype) + 0.5) * 2.0**-number
    return log1p((1 - u) / u)


_DRAWS: dict[str, Callable[[jax.Array, np.dtype[Any]], jax.Array]] = {
    "poisson": _poisson,
    "bayesian": _exponential,
}
KINDS = tuple(_DRAWS)
