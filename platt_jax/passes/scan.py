"""Runs a function on groups of problems in turn. A group is one problem, or 128 small ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.backend.xla import single_call
from platt_jax.model.objective import Array
from platt_jax.passes.columns import Columns
from platt_jax.passes.vectors import LANES, VectorRows


def scan_groups(
    function: Callable[..., Any],
    columns: Columns,
    start: Array,
    size: Array,
    more: Any,
    most: int,
    draw: Callable[..., jax.Array] | None = None,
    then: Callable[..., Any] | None = None,
) -> Any:
    """The results of the function for each group of problems, computed in turn, [S, G, ...].

    Groups without rows must come last. Their results are 0.

    Args:
        function: takes VectorRows and the part of `more` for their problems. The shapes of this
            part and of the results begin with the shape of `rows.size`: [] for one problem, not
            [1], because XLA would make a loop over that axis in every operation.
        columns: flat columns.
        start: [S, G], the first row of each problem.
        size: [S, G], the number of rows of each problem.
        more: a pytree of arrays [S, G, ...] for the function.
        most: the maximum number of rows of a problem among problems side by side.
        draw: takes the part of `more` and row numbers, [128] or [], and returns factors for the
            weights, [128]; None for no factors.
        then: takes the results of a group. Its own results are computed in a loop after the one of
            the function, whose last digits they do not change, and returned behind the others.
    """
    groups, group = size.shape
    alone = group == 1
    length = 0 if alone else most * LANES
    function = jax.jit(function, inline=True)  # traced once, for the shapes and the loop

    def fold_group(
        scratch: Any, number: jax.Array | int, columns: Columns, start: Any, size: Any, more: Any
    ) -> tuple[Any, Any]:
        laid, drawn = scratch
        index = (number, 0) if alone else number
        start, size, more = jax.tree.map(lambda x: x[index], (start, size, more))
        if not alone:
            laid = columns = _lay(columns, laid, start, size)
            start = jnp.int32(0)
        scores, labels, weights, offset = columns
        if draw is not None:
            weights = drawn = _drawn_weights(partial(draw, more), drawn, weights, start, size)
        rows = VectorRows(scores, labels, weights, start, size, offset=offset)
        return (laid, drawn), function(rows, more)

    @single_call
    def scan(*arguments: Any) -> Any:
        columns, _, size, _ = arguments

        def next_group(number: jax.Array, so_far: Any) -> tuple[Any, Any]:
            scratch, results = so_far
            scratch, new = fold_group(scratch, number, *arguments)
            update = partial(lax.dynamic_update_index_in_dim, index=number, axis=0)
            return scratch, jax.tree.map(update, results, new)

        laid = jax.tree.map(lambda x: jnp.zeros(length, x.dtype), columns)
        scores = columns.scores if alone else laid.scores
        scratch = laid, None if draw is None else jnp.zeros_like(scores)
        _, shapes = jax.eval_shape(fold_group, scratch, 0, *arguments)
        results = jax.tree.map(lambda x: jnp.zeros((groups, *x.shape), x.dtype), shapes)
        used = jnp.sum(size[:, 0] > 0, dtype=jnp.int32)
        results = lax.fori_loop(0, used, next_group, (scratch, results))[1]
        if then is None:
            return results

        def last_of_group(number: jax.Array, so_far: Any) -> Any:
            update = partial(lax.dynamic_update_index_in_dim, index=number, axis=0)
            return jax.tree.map(update, so_far, then(jax.tree.map(lambda x: x[number], results)))

        last = jax.tree.map(
            lambda x: jnp.zeros((groups, *x.shape), x.dtype), jax.eval_shape(then, shapes)
        )
        return results, lax.fori_loop(0, used, last_of_group, last)

    results = scan(columns, start, size, more)
    return jax.tree.map(lambda x: x[:, None], results) if alone else results


def _lay(columns: Columns, laid: Columns, start: jax.Array, size: jax.Array) -> Columns:
    """Rows of problems that lie end to end, rearranged side by side."""

    def lay_vector(i: jax.Array, laid: Columns) -> Any:
        def update(into: jax.Array, x: jax.Array) -> jax.Array:
            vector = x.at[start + i].get(mode="clip")
            return lax.dynamic_update_slice_in_dim(into, vector, i * LANES, 0)

        return jax.tree.map(update, laid, columns)

    return lax.fori_loop(0, jnp.max(size), lay_vector, laid)


def _drawn_weights(
    draw: Callable[..., jax.Array],
    drawn: jax.Array,
    weights: jax.Array | None,
    start: jax.Array,
    size: jax.Array,
) -> jax.Array:
    """`drawn` with new weights at the places of these problems' rows."""
    alone = size.ndim == 0
    lanes = jnp.arange(LANES, dtype=jnp.int32)

    def draw_vector(i: jax.Array, drawn: jax.Array) -> jax.Array:
        first = start + i * LANES
        vector = draw(i * LANES + lanes if alone else i)
        if weights is not None:
            vector *= lax.dynamic_slice_in_dim(weights, first, LANES)
        return lax.dynamic_update_slice_in_dim(drawn, vector, first, 0)

    vectors = -(-size // LANES) if alone else jnp.max(size)
    return lax.fori_loop(0, vectors, draw_vector, drawn)
