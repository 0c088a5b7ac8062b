"""Checks of labels and weights that lie on an accelerator: computed there, no row is copied."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import validation
from platt_jax.backend import xla
from platt_jax.backend.threads import run_programs


class LabelFacts(NamedTuple):
    """Whether labels are valid."""

    known: Any  # whether all labels are in one of the codings, or not finite
    minus: Any  # whether a label is -1
    bad: Any  # whether a label is not finite

    def require_known(self, odd: jax.Array) -> None:
        """Raises a ValueError that names the odd label if there is one; for facts on the host."""
        if not self.known:
            raise validation.odd_label_error(jax.device_get(odd).item(), self.minus)


def labels(values: jax.Array) -> tuple[jax.Array, bool]:
    """Labels on an accelerator as int8, as by `validation.labels`, and whether all are finite.

    Raises:
        ValueError: the labels are not numbers, or in none of the codings.
    """
    if values.dtype != bool:
        require_numbers(values, "labels", validation.LABEL_CODINGS)
    as_int8, odd, found = run_programs(partial(_labels, values), x64=True)
    facts = LabelFacts(*jax.device_get(found).tolist())
    facts.require_known(odd)
    return as_int8, not facts.bad


def require_weights(values: jax.Array) -> None:
    """Refuses weights on an accelerator that are not numbers, or negative."""
    require_numbers(values, "weights")
    least = jax.device_get(run_programs(partial(_least_weight, values), x64=True)).item()
    if least < 0:
        raise validation.negative_weight_error(least)


def require_numbers(values: jax.Array, name: str, expected: str = "numbers") -> None:
    """Refuses an array of anything but integers and floating-point numbers."""
    if not any(jnp.issubdtype(values.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise ValueError(f"{name}: expected {expected}, got dtype {values.dtype}")


def coded_labels(labels: jax.Array, coded: bool) -> tuple[jax.Array, jax.Array, LabelFacts]:
    """Labels as int8, as by `validation.labels`; a label in no coding; and facts; traceable.

    Args:
        labels: labels of any real dtype.
        coded: whether labels are int8 already.
    """
    one, zero = jnp.ones((), labels.dtype), jnp.zeros((), labels.dtype)
    signed = not (
        coded or labels.dtype == bool or jnp.issubdtype(labels.dtype, jnp.unsignedinteger)
    )
    minus = jnp.any(labels == -one) if signed else jnp.zeros((), bool)
    positive = labels == one
    known = positive | (labels == (jnp.where(minus, -one, zero) if signed else zero))
    bad = ~jnp.isfinite(labels)
    if coded:
        bad = labels == validation.BAD_LABEL
    known |= bad
    as_int8 = jnp.where(bad, jnp.int8(validation.BAD_LABEL), positive.astype(jnp.int8))
    odd = jnp.max(jnp.where(known, zero, labels))
    return as_int8, odd, LabelFacts(jnp.all(known), minus, jnp.any(bad))


def in_one_array(facts: Any) -> jax.Array:
    """Facts as float64: each array that is fetched takes as long as a small fit; traceable."""
    return jnp.stack([jnp.asarray(x, np.float64) for x in facts])


def least_weight(weights: jax.Array) -> jax.Array:
    """The least weight, or 0 if none is negative; traceable."""
    return jnp.min(jnp.where(weights < 0, weights, 0))


@partial(xla.jit, wide=True)
def _labels(labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    as_int8, odd, facts = coded_labels(labels, coded=False)
    return as_int8, odd, in_one_array(facts)


_least_weight = xla.jit(least_weight, wide=True)
