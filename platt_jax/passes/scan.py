"""Groups of problems, one after the other in one function: a problem, or 128 small ones abreast."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model.objective import Array
from platt_jax.passes.vectors import LANES, VectorRows
from platt_jax.xla import single_call

# Scores, labels and weights (or None).
Columns: TypeAlias = tuple[jax.Array, jax.Array, jax.Array | None]


def scan_groups(
    function: Callable[..., Any],
    columns: Columns,
    start: Array,
    size: Array,
    more: Any,
    most: int,
    draw: Callable[..., jax.Array] | None = None,
) -> Any:
    """What the function makes of each group of problems, one after the other, [S, G, ...].

    Groups without rows come last, and stay zero.

    Args:
        function: called with VectorRows, and with what more there is of their problems. Both this
            and its results have shapes that begin as that of the rows' sizes: of one problem not
            [1], for XLA makes a loop over that of every operation.
        columns: scores, labels and weights (or None), flat.
        start: [S, G] where the rows of each problem begin.
        size: [S, G] how many they are.
        more: a pytree of arrays [S, G, ...].
        most: of problems side by side, none has more rows.
        draw: given what more there is of the problems, and numbers of rows [128] or [], factors of
            their weights [128]; None for none.
    """
    groups, group = size.shape
    alone = group == 1
    length = 0 if alone else most * LANES
    function = jax.jit(function, inline=True)  # which is traced once: for its shapes and the loop

    def of_group(
        scratch: Any, number: jax.Array | int, columns: Columns, start: Any, size: Any, more: Any
    ) -> tuple[Any, Any]:
        laid, drawn = scratch
        at = (number, 0) if alone else number
        start, size, more = jax.tree.map(lambda x: x[at], (start, size, more))
        if not alone:
            laid = columns = _lay(columns, laid, start, size)
            start = jnp.int32(0)
        scores, labels, weights = columns
        if draw is not None:
            weights = drawn = _drawn_weights(partial(draw, more), drawn, weights, start, size)
        return (laid, drawn), function(VectorRows(scores, labels, weights, start, size), more)

    @single_call
    def each(*arguments: Any) -> Any:
        columns, _, size, _ = arguments

        def next_group(number: jax.Array, so_far: Any) -> tuple[Any, Any]:
            scratch, made = so_far
            scratch, new = of_group(scratch, number, *arguments)
            place = partial(lax.dynamic_update_index_in_dim, index=number, axis=0)
            return scratch, jax.tree.map(place, made, new)

        laid = jax.tree.map(lambda x: jnp.zeros(length, x.dtype), columns)
        scores = columns[0] if alone else laid[0]
        scratch = laid, None if draw is None else jnp.zeros_like(scores)
        _, shapes = jax.eval_shape(of_group, scratch, 0, *arguments)
        made = jax.tree.map(lambda x: jnp.zeros((groups, *x.shape), x.dtype), shapes)
        used = jnp.sum(size[:, 0] > 0, dtype=jnp.int32)
        return lax.fori_loop(0, used, next_group, (scratch, made))[1]

    made = each(columns, start, size, more)
    return jax.tree.map(lambda x: x[:, None], made) if alone else made


def _lay(columns: Columns, laid: Columns, start: jax.Array, size: jax.Array) -> Columns:
    """The rows of problems that lie end to end, side by side."""

    def lay_vector(i: jax.Array, laid: Columns) -> Any:
        def place(into: jax.Array, x: jax.Array) -> jax.Array:
            vector = x.at[start + i].get(mode="clip")
            return lax.dynamic_update_slice_in_dim(into, vector, i * LANES, 0)

        return jax.tree.map(place, laid, columns)

    filled: Columns = lax.fori_loop(0, jnp.max(size), lay_vector, laid)
    return filled


def _drawn_weights(
    draw: Callable[..., jax.Array],
    drawn: jax.Array,
    weights: jax.Array | None,
    start: jax.Array,
    size: jax.Array,
) -> jax.Array:
    """The array, with the weights drawn where the rows of these problems lie."""
    alone = size.ndim == 0
    lanes = jnp.arange(LANES, dtype=jnp.int32)

    def draw_vector(i: jax.Array, drawn: jax.Array) -> jax.Array:
        at = start + i * LANES
        vector = draw(i * LANES + lanes if alone else i)
        if weights is not None:
            vector *= lax.dynamic_slice_in_dim(weights, at, LANES)
        return lax.dynamic_update_slice_in_dim(drawn, vector, at, 0)

    vectors = -(-size // LANES) if alone else jnp.max(size)
    filled: jax.Array = lax.fori_loop(0, vectors, draw_vector, drawn)
    return filled
