"""Rows in arrays on an accelerator: checked and fitted there. Only a few numbers reach the host."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import accelerators, validation, xla
from platt_jax.columns import Column
from platt_jax.execution.oversized import memory_errors
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import reporting
from platt_jax.ids.labels import labels_by_name
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import Given, solve_checked
from platt_jax.threads import run_programs


class DeviceRows:
    """The rows of the problems of a batch, on the device that has their scores.

    Labels and weights may be elsewhere, and are then sent there.

    Args:
        scores: (..., N) scores on an accelerator, as in `fit`.
        labels: labels, broadcastable to scores, as in `fit`.
        weights: weights or None, broadcastable to scores, as in `fit`.
        pos_label: the positive label, as in `fit`, of labels on the host.
        offset: offset or None, broadcastable to scores, as in `fit`.

    Attributes:
        columns: JAX arrays (..., N): floating scores, NaN where a label is not finite; int8
            labels, above 0 for class 1; and in the dtype of the scores weights and offset.
        batch: the leading axes of the scores.
        dtype: the dtype of the scores and of the fits, float32 or float64.
        doubtful_shape: a warning about the shape of the arrays, or None.
        doubtful_scores: a warning about scores that look like probabilities, or None.

    Raises:
        ValueError: an argument is invalid for `fit`.
    """

    def __init__(
        self,
        scores: Column,
        labels: Column,
        weights: Column | None = None,
        pos_label: Any = None,
        offset: Column | None = None,
    ) -> None:
        scores, labels, weights, offset = map(accelerators.taken, (scores, labels, weights, offset))
        if scores.ndim == 0 or scores.size == 0:
            raise ValueError(
                f"scores: expected (..., N) with rows to fit, got shape {scores.shape}"
            )
        self.dtype = _floating(scores)
        coded = not accelerators.holds(labels)
        if coded:
            named = pos_label is not None
            read = labels_by_name(labels, pos_label, scores.ndim) if named else None
            labels = validation.labels(labels) if read is None else read
        elif pos_label is not None:
            raise ValueError(
                "pos_label: expected None for labels on a device: "
                f"pass labels == {pos_label!r} as labels"
            )
        elif not (labels.dtype == bool or _are_numbers(labels)):
            raise ValueError(
                f"labels: expected {validation.LABEL_CODINGS}, got dtype {labels.dtype}"
            )
        if not accelerators.holds(weights):
            weights = validation.weights(weights, self.dtype)
        elif not _are_numbers(weights):
            raise ValueError(f"weights: expected numbers, got dtype {weights.dtype}")
        if not accelerators.holds(offset):
            offset = None if offset is None else validation.floating(offset, "offset")
        elif not _are_numbers(offset):
            raise ValueError(f"offset: expected numbers, got dtype {offset.dtype}")
        self.batch = scores.shape[:-1]
        # 64-bit labels and weights keep their values until they are checked.
        columns = Columns(scores, labels, weights, offset)
        run_programs(partial(self._check, columns, coded), x64=True)

    def _check(self, columns: Columns, coded: bool) -> None:
        """Sets the arrays and the warnings; `coded` is as for `_facts`."""
        scores, labels, weights, offset = columns
        shape = scores.shape
        weights, offset = (
            None if x is None else jnp.asarray(x).astype(self.dtype) for x in (weights, offset)
        )
        weights = validation.broadcast(weights, shape, "weights")
        offset = validation.broadcast(offset, shape, "offset")
        labels = validation.broadcast(jnp.asarray(labels), shape, "labels")
        scores = scores.astype(self.dtype)
        labels, of_arrays = _facts(scores, labels, weights, coded=coded)
        facts = _Facts(*(x.item() for x in jax.device_get(of_arrays)))
        if not facts.labels_known:
            raise validation.of_odd_label(facts.odd_label, facts.minus)
        if facts.least_weight < 0:
            raise validation.of_negative_weight(facts.least_weight)
        if facts.labels_bad:
            scores = jnp.where(labels == validation.BAD_LABEL, jnp.nan, scores)
        self.columns = Columns(scores, labels, weights, offset)
        self.doubtful_shape = validation.doubtful_shape(shape, lambda: facts.one_hot)
        interval = validation.UnitInterval(facts.outside, facts.inside, facts.between)
        self.doubtful_scores = interval.doubt if shape[-1] >= validation.FEW else None

    def fit(self, given: Given, context: Context) -> Fit:
        """The fits of all problems with the batch shape; see `accelerators.results`.

        Args:
            given: arrays with leading axis (K,).
            context: how to fit them, and what receives progress.

        Raises:
            ValueError: there is a mesh.
            MemoryError: the device's memory is too small.
        """
        validation.no_mesh(context.mesh)
        options, batch = validation.options(context.options), self.batch
        given = jax.tree.map(lambda x: x.reshape(batch + x.shape[1:]), given)
        work = partial(solve_checked, self.columns, given, options)
        problems = math.prod(batch)
        with (
            memory_errors(),
            reporting(np.full(problems, self.columns.scores.shape[-1]), context.stage) as advance,
        ):
            fit = jax.block_until_ready(run_programs(work, x64=self.dtype == np.float64))
            advance(problems)
        found: Fit = accelerators.results(fit, self.dtype)
        return found


def _floating(scores: jax.Array) -> np.dtype[Any]:
    """The dtype in which scores are fitted. Integers get JAX's usual one.

    Raises:
        ValueError: the scores are not numbers.
    """
    if not (scores.dtype == bool or _are_numbers(scores)):
        raise ValueError(f"scores: expected numbers, got dtype {scores.dtype}")
    if jnp.issubdtype(scores.dtype, jnp.integer):
        return np.dtype(jnp.result_type(float))
    return np.dtype(np.float64 if scores.dtype == np.float64 else np.float32)


def _are_numbers(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.integer) or jnp.issubdtype(x.dtype, jnp.floating)


class _Facts(NamedTuple):
    """Numbers that show whether rows are valid."""

    labels_known: Any  # whether all labels are in one of the codings, or not finite
    odd_label: Any  # a label that is in none, if there is one
    minus: Any  # whether a label is -1
    labels_bad: Any  # whether a label is not finite
    one_hot: Any  # as `validation.one_hot`
    least_weight: Any
    outside: Any  # as in `validation.UnitInterval`, as the next two
    inside: Any
    between: Any


@partial(xla.jit, static_argnames=("coded",), wide=True)
def _facts(
    scores: jax.Array, labels: jax.Array, weights: jax.Array | None, coded: bool
) -> tuple[jax.Array, _Facts]:
    """Labels as int8, as by `validation.labels`, and facts about rows (..., N).

    Args:
        scores: floating scores.
        labels: labels of any real dtype.
        weights: weights, or None.
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
    finite = jnp.isfinite(scores)
    least: Any = zero if weights is None else jnp.min(jnp.where(weights < 0, weights, 0))
    return as_int8, _Facts(
        labels_known=jnp.all(known),
        odd_label=jnp.max(jnp.where(known, zero, labels)),
        minus=minus,
        labels_bad=jnp.any(bad),
        one_hot=jnp.all(jnp.sum(as_int8, -1, dtype=jnp.int64) == 1) & (jnp.min(as_int8) == 0),
        least_weight=least,
        outside=jnp.any(finite & ((scores < 0) | (scores > 1))),
        inside=jnp.sum(finite, dtype=jnp.int64),
        between=jnp.any((scores > 0) & (scores < 1)),
    )
