"""Checks of labels and weights that lie on an accelerator: computed there, no row is copied."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from platt_jax import validation, xla
from platt_jax.threads import run_programs


class LabelFacts(NamedTuple):
    """Whether labels are valid."""

    known: Any  # whether all labels are in one of the codings, or not finite
    odd: Any  # a label that is in none, if there is one
    minus: Any  # whether a label is -1
    bad: Any  # whether a label is not finite

    def require_known(self) -> None:
        """Raises a ValueError if a label is in none of the codings; for facts on the host."""
        if not self.known:
            raise validation.of_odd_label(self.odd, self.minus)


def labels(values: jax.Array) -> tuple[jax.Array, bool]:
    """Labels on an accelerator as int8, as by `validation.labels`, and whether all are finite.

    Raises:
        ValueError: the labels are not numbers, or in none of the codings.
    """
    if values.dtype != bool:
        require_numbers(values, "labels", validation.LABEL_CODINGS)
    as_int8, found = run_programs(partial(_labels, values), x64=True)
    facts = LabelFacts(*(x.item() for x in jax.device_get(found)))
    facts.require_known()
    return as_int8, not facts.bad


def require_weights(values: jax.Array) -> None:
    """Refuses weights on an accelerator that are not numbers, or negative."""
    require_numbers(values, "weights")
    least = jax.device_get(run_programs(partial(_least_weight, values), x64=True)).item()
    if least < 0:
        raise validation.of_negative_weight(least)


def require_numbers(values: jax.Array, name: str, expected: str = "numbers") -> None:
    """Refuses an array of anything but integers and floating-point numbers."""
    if not any(jnp.issubdtype(values.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise ValueError(f"{name}: expected {expected}, got dtype {values.dtype}")


def coded_labels(labels: jax.Array, coded: bool) -> tuple[jax.Array, LabelFacts]:
    """Labels as int8, as by `validation.labels`, and whether they are valid; traceable.

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
    return as_int8, LabelFacts(jnp.all(known), odd, minus, jnp.any(bad))


def least_weight(weights: jax.Array) -> jax.Array:
    """The least weight, or 0 if none is negative; traceable."""
    return jnp.min(jnp.where(weights < 0, weights, 0))


_labels = xla.jit(partial(coded_labels, coded=False), wide=True)
_least_weight = xla.jit(least_weight, wide=True)
