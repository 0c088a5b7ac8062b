"""Functions in the operations that Mosaic, Pallas's compiler of kernels, has for scalars."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

_VECTOR = 128  # a length of vectors that Mosaic has


def compilable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with other operations in place of those that Mosaic lacks.

    It is traced, and its operations are applied one by one.
    """

    def run(*arguments: Any, **static: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        traced, out_shapes = jax.make_jaxpr(
            lambda *leaves: function(*jax.tree.unflatten(tree, leaves), **static), return_shape=True
        )(*leaves)
        return jax.tree.unflatten(jax.tree.structure(out_shapes), _applied(traced, leaves))

    return run


def _applied(traced: "ClosedJaxpr", values: Sequence[Any]) -> list[Any]:
    from jax.extend.core import ClosedJaxpr, Literal  # which imports parts of Pallas

    jaxpr = traced.jaxpr
    bindings = dict(zip(jaxpr.constvars, traced.consts, strict=True))
    bindings |= zip(jaxpr.invars, values, strict=True)

    def value(x: Any) -> Any:
        return x.val if isinstance(x, Literal) else bindings[x]

    for equation in jaxpr.eqns:
        primitive, inputs = equation.primitive, list(map(value, equation.invars))
        if isinstance(inner := equation.params.get("jaxpr"), ClosedJaxpr):
            outputs = _applied(inner, inputs)
        elif primitive.name in _REPLACED:
            outputs = [_REPLACED[primitive.name](*inputs, **equation.params)]
        else:
            outputs = primitive.bind(*inputs, **equation.params)
            outputs = outputs if primitive.multiple_results else [outputs]
        bindings |= zip(equation.outvars, outputs, strict=True)
    return list(map(value, jaxpr.outvars))


def _bitcast(x: jax.Array, new_dtype: Any, **_: Any) -> jax.Array:
    """A scalar's bits as another type: Mosaic converts vectors only."""
    return jnp.max(lax.bitcast_convert_type(jnp.full(_VECTOR, x), new_dtype))


_REPLACED: dict[str, Callable[..., Any]] = {
    "bitcast_convert_type": _bitcast,
    "is_finite": lambda x, **_: jnp.abs(x) < jnp.inf,
    "stop_gradient": lambda x, **_: x,
}
