"""Reductions of several arrays at once, which XLA compiles as one fused loop.

XLA treats the reduction of a single array as a special case, which is slow. JAX has no derivative
rule for several arrays, hence the rules below: tangents take plain sums, which JAX can transpose.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.passes import shapes
from platt_jax.passes.shapes import DEPTH, MAX_SIDE_BY_SIDE

Arrays: TypeAlias = tuple[jax.Array, ...]
Pair: TypeAlias = tuple[jax.Array, jax.Array]
Axes: TypeAlias = int | tuple[int, ...]

# Levels of a tree that XLA may compile as one kernel. It would make one of all levels on a GPU,
# with more numbers than there are registers.
_LEVELS_TOGETHER = 3


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def sums(axes: Axes, *terms: jax.Array) -> Arrays:
    """The sums of all terms over one or more axes, in one fused loop."""
    return _reduced(jnp.add, 0, axes, terms)


@sums.defjvp
def _sums_jvp(axes: Axes, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
    return sums(axes, *primals), tuple(jnp.sum(tangent, axes) for tangent in tangents)


@jax.custom_jvp
def sum_with_logs(linear: jax.Array, factor: jax.Array) -> Arrays:
    """The sums of linear and of log(factor). One logarithm serves the product of many factors.

    The terms have shape [R, 8, G, w]. They are summed over the depth and, where 4 divides w, over
    the quarters of the lanes: the results have shape [R, G, w / 4], otherwise [R, G, w].
    """
    start = [jnp.zeros((), linear.dtype), jnp.ones((), factor.dtype)]
    totals = lax.reduce([linear, factor], start, _add_multiply, dimensions=(1,))
    totals = lax.reduce([_quarters(x) for x in totals], start, _add_multiply, dimensions=(2,))
    return totals[0], jnp.log(totals[1])


@sum_with_logs.defjvp
def _sum_with_logs_jvp(primals: Pair, tangents: Pair) -> tuple[Arrays, Arrays]:
    (linear_dot, factor_dot), (_, factor) = tangents, primals
    dots = (_quarters(jnp.sum(x, 1)).sum(2) for x in (linear_dot, factor_dot / factor))
    return sum_with_logs(*primals), tuple(dots)


def _quarters(lanes: jax.Array) -> jax.Array:
    """[R, G, w] as [R, G, 4, w / 4], or [R, G, 1, w] where 4 does not divide w."""
    *lead, w = lanes.shape
    number = 4 if w % 4 == 0 else 1
    return lanes.reshape(*lead, number, w // number)


def minima(axes: Axes, *terms: jax.Array) -> Arrays:
    """The minima of all terms along one or more axes, in one fused loop. No term may be NaN."""
    return _reduced(_minimum, jnp.inf, axes, terms)


def _reduced(
    combine: Callable[..., jax.Array], nothing: float, axes: Axes, terms: Sequence[jax.Array]
) -> Arrays:
    """All terms, combined along one or more axes."""

    def combine_all(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> list[jax.Array]:
        return [_each_part(combine, x, y) for x, y in zip(a, b, strict=True)]

    operands = list if shapes.sizes().in_lanes else _in_pairs
    start = [jnp.asarray(nothing, terms[0].dtype)] * len(terms)
    reduced = lax.reduce(operands(terms), operands(start), combine_all, dimensions=_each(axes))
    return tuple(part for x in reduced for part in _parts(x))


def _in_pairs(terms: Sequence[jax.Array]) -> list[jax.Array]:
    """The terms two by two as complex numbers, and the last one alone if their number is odd.

    XLA for a GPU counts the cost of what a reduction's operands have in common once for each of
    them. With five operands it would rather write an exponential per row to memory.
    """
    pairs = [lax.complex(*pair) for pair in zip(terms[::2], terms[1::2], strict=False)]
    return [*pairs, *terms[2 * len(pairs) :]]


def _parts(x: jax.Array) -> list[jax.Array]:
    """The real and the imaginary part, or what is real."""
    return [x.real, x.imag] if jnp.iscomplexobj(x) else [x]


def _each_part(function: Callable[..., jax.Array], a: jax.Array, b: jax.Array) -> jax.Array:
    """The function of both arrays' real parts, and of their imaginary parts."""
    parts = [function(x, y) for x, y in zip(_parts(a), _parts(b), strict=True)]
    return parts[0] if len(parts) == 1 else lax.complex(*parts)


def _each(axes: Axes) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else axes


class TileGroups(NamedTuple):
    """Which tile rows are reduced together: the fields of `Tiles` with these names."""

    segment_ids: jax.Array
    tiles_per_group: jax.Array
    even: bool


def sums_by_group(tile_rows: Sequence[jax.Array], groups: TileGroups) -> list[jax.Array]:
    """The sums of tile rows, each [R, G], within each group of tile rows, [S, G]."""
    return _by_group(jnp.add, 0, tile_rows, groups)


def minima_by_group(tile_rows: Sequence[jax.Array], groups: TileGroups) -> list[jax.Array]:
    """The minima of tile rows, each [R, G], within each group of tile rows, [S, G]."""
    return _by_group(jnp.minimum, jnp.inf, tile_rows, groups)


def _by_group(
    combine: Callable[..., jax.Array],
    nothing: float,
    tile_rows: Sequence[jax.Array],
    groups: TileGroups,
) -> list[jax.Array]:
    """Reduces each group's tile rows by a binary tree.

    The tree depends on the place within the group alone, so the bits are the same on every device
    and for any other groups in the array. (A scatter would use atomic operations on a GPU.)
    """
    x = jnp.stack(tile_rows)
    segment_ids, tiles_per_group, even = groups
    length = len(segment_ids)
    if even:
        by_group = x.reshape(len(x), len(tiles_per_group), -1, x.shape[-1])
        return list(_reduce_evenly(combine, by_group))
    ends = jnp.cumsum(tiles_per_group, dtype=jnp.int32)
    position = jnp.arange(length, dtype=jnp.int32) - (ends - tiles_per_group)[segment_ids]
    rows_left = tiles_per_group[segment_ids] - position
    # Where problems lie side by side, all tile rows after the tile rows of the largest are padding.
    limit = length if x.shape[-1] == 1 else MAX_SIDE_BY_SIDE // DEPTH
    stride = 1
    while stride < limit:
        ahead = jnp.roll(x, -stride, axis=1)
        pairs = (position % (2 * stride) == 0) & (stride < rows_left)
        x = jnp.where(pairs[:, None], combine(x, ahead), x)
        stride *= 2
    first = jnp.minimum(ends - tiles_per_group, length - 1)
    reduced = jnp.where(tiles_per_group[:, None] > 0, x[:, first], nothing)
    return list(reduced)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _reduce_evenly(combine: Callable[..., jax.Array], x: jax.Array) -> jax.Array:
    """Reduces groups with equally many tile rows, along axis 2."""
    level = 0
    while (height := x.shape[2]) > 1:
        odd = x[:, :, height - 1 :] if height % 2 else x[:, :, :0]
        paired = combine(x[:, :, 0 : height - 1 : 2], x[:, :, 1:height:2])
        x = jnp.concatenate([paired, odd], 2)
        level += 1
        if level % _LEVELS_TOGETHER == 0:
            x = lax.optimization_barrier(x)
    return x[:, :, 0]


@_reduce_evenly.defjvp
def _reduce_evenly_jvp(
    combine: Callable[..., jax.Array], primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> Pair:
    # The derivative of a sum, which JAX can transpose. Minima are only taken without derivatives.
    (x,), (x_dot,) = primals, tangents
    return _reduce_evenly(combine, x), jnp.sum(x_dot, axis=2)


def _minimum(a: jax.Array, b: jax.Array) -> jax.Array:
    # jnp.minimum would take twice as long, because it propagates NaN.
    return jnp.where(a < b, a, b)


def _add_multiply(a: Sequence[jax.Array], b: Sequence[jax.Array]) -> list[jax.Array]:
    return [a[0] + b[0], a[1] * b[1]]
