"""Reductions of several arrays at once, which XLA makes one fused loop of.

One operand alone it takes for a case of its own, and a slow one. JAX has no derivative rule for
several, hence the rules below: tangents take the plain sums, which JAX can transpose.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def sum_together(axis, *terms):
    """Sums over an axis, all of them in one fused loop."""
    zeros = tuple(jnp.zeros((), term.dtype) for term in terms)
    return tuple(lax.reduce(terms, zeros, _add_all, dimensions=(axis,)))


@sum_together.defjvp
def _sum_together_jvp(axis, primals, tangents):
    return sum_together(axis, *primals), tuple(jnp.sum(tangent, axis) for tangent in tangents)


@jax.custom_jvp
def sum_with_logs(linear, factor):
    """Sums of linear and of log(factor), with one logarithm for the product of many factors.

    Of terms [R, 8, G, w] over the depth, and over the quarters of the lanes where there are that
    many: [R, G, w / 4].
    """
    start = [jnp.zeros((), linear.dtype), jnp.ones((), factor.dtype)]
    both = lax.reduce([linear, factor], start, _add_multiply, dimensions=(1,))
    both = lax.reduce([_quarters(x) for x in both], start, _add_multiply, dimensions=(2,))
    return both[0], jnp.log(both[1])


@sum_with_logs.defjvp
def _sum_with_logs_jvp(primals, tangents):
    (linear_dot, factor_dot), (_, factor) = tangents, primals
    dots = (_quarters(jnp.sum(x, 1)).sum(2) for x in (linear_dot, factor_dot / factor))
    return sum_with_logs(*primals), tuple(dots)


def _quarters(lanes):
    """[R, G, w] as [R, G, 4, w / 4], or [R, G, 1, w] where 4 does not divide w."""
    *lead, w = lanes.shape
    number = 4 if w % 4 == 0 else 1
    return lanes.reshape(*lead, number, w // number)


def least(axis, *terms):
    """The least along an axis, of all of the terms in one fused loop; none of them is NaN."""
    inf = tuple(jnp.asarray(jnp.inf, term.dtype) for term in terms)
    return lax.reduce(terms, inf, _lesser_all, dimensions=(axis,))


def _add_all(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _lesser_all(a, b):
    # Not jnp.minimum, which takes twice as long for the sake of NaN.
    return tuple(jnp.where(x < y, x, y) for x, y in zip(a, b, strict=True))


def _add_multiply(a, b):
    return [a[0] + b[0], a[1] * b[1]]
