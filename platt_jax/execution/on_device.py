"""Rows in arrays on an accelerator: checked and fitted there. Only a few numbers reach the host."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.device_checks import (
    LabelFacts,
    coded_labels,
    in_one_array,
    least_weight,
    require_numbers,
)
from platt_jax.execution.oversized import memory_errors
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import reporting
from platt_jax.ids.labels import labels_by_name
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs, solve_checked


class DeviceRows:
    """The rows of the problems of a batch, on the device that has their scores.

    Labels and weights may be elsewhere, and are then sent there.

    Args:
        scores: (..., N) scores on an accelerator, as in `fit`.
        labels: labels, broadcastable to scores, as in `fit`.
        weights: weights or None, broadcastable to scores, as in `fit`.
        pos_label: the positive label, as in `fit`, of labels on the host.
        offset: offset or None, broadcastable to scores, as in `fit`.
        length: the number of rows with those added whose scores are NaN; None adds none.

    Attributes:
        columns: JAX arrays (..., length): floating scores, NaN where a label is not finite; int8
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
        length: int | None = None,
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
        elif labels.dtype != bool:
            require_numbers(labels, "labels", validation.LABEL_CODINGS)
        if not accelerators.holds(weights):
            weights = validation.weights(weights, self.dtype)
        else:
            require_numbers(weights, "weights")
        if not accelerators.holds(offset):
            offset = None if offset is None else validation.floating(offset, "offset")
        else:
            require_numbers(offset, "offset")
        self.batch = scores.shape[:-1]
        # 64-bit labels and weights keep their values until they are checked.
        columns = Columns(scores, labels, weights, offset)
        length = scores.shape[-1] if length is None else length
        run_programs(partial(self._check, columns, coded, length), x64=True)

    def _check(self, columns: Columns, coded: bool, length: int) -> None:
        """Sets the arrays and the warnings; `coded` is as for `_facts`."""
        scores, labels, weights, offset = columns
        shape = scores.shape
        weights, offset = (
            None if x is None else jnp.asarray(x).astype(self.dtype) for x in (weights, offset)
        )
        weights = validation.broadcast(weights, shape, "weights")
        offset = validation.broadcast(offset, shape, "offset")
        labels = validation.broadcast(jnp.asarray(labels), shape, "labels")
        columns = Columns(scores.astype(self.dtype), labels, weights, offset)
        if length > shape[-1]:
            columns = _longer(columns, length=length)
        scores, labels, weights, offset = columns
        labels, odd, *found = _facts(scores, labels, weights, coded=coded)
        numbers = [x.tolist() for x in jax.device_get(found)]
        label_facts, facts = LabelFacts(*numbers[0]), _Facts(*numbers[1])
        label_facts.require_known(odd)
        if facts.least_weight < 0:
            raise validation.negative_weight_error(facts.least_weight)
        if label_facts.bad:
            scores = jnp.where(labels == validation.BAD_LABEL, jnp.nan, scores)
        self.columns = Columns(scores, labels, weights, offset)
        self.doubtful_shape = validation.doubtful_shape(shape, lambda: facts.one_hot)
        interval = validation.UnitInterval(facts.outside, int(facts.inside), facts.between)
        self.doubtful_scores = interval.doubt if shape[-1] >= validation.FEW else None

    def fit(self, given: ProblemInputs, context: Context) -> Fit:
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
    if scores.dtype != bool:
        require_numbers(scores, "scores")
    if jnp.issubdtype(scores.dtype, jnp.integer):
        return np.dtype(jnp.result_type(float))
    return np.dtype(np.float64 if scores.dtype == np.float64 else np.float32)


@partial(xla.jit, static_argnames=("length",))
def _longer(columns: Columns, length: int) -> Columns:
    """The columns (N,) with valid rows added, whose scores are NaN."""
    scores, *others = columns
    add = (0, length - len(scores))
    # The last label is in the coding of the others.
    others = [None if x is None else jnp.pad(x, add, mode="edge") for x in others]
    return Columns(jnp.pad(scores, add, constant_values=np.nan), *others)


class _Facts(NamedTuple):
    """Numbers that show whether rows are valid, besides those of labels."""

    one_hot: Any  # as `validation.one_hot`
    least_weight: Any
    outside: Any  # as in `validation.UnitInterval`, as the next two
    inside: Any
    between: Any


@partial(xla.jit, static_argnames=("coded",), wide=True)
def _facts(
    scores: jax.Array, labels: jax.Array, weights: jax.Array | None, coded: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Labels as by `device_checks.coded_labels`, a label in no coding, `LabelFacts`, and `_Facts`.

    Args:
        scores: floating scores.
        labels: labels of any real dtype.
        weights: weights, or None.
        coded: whether labels are int8 already.
    """
    as_int8, odd, label_facts = coded_labels(labels, coded)
    finite = jnp.isfinite(scores)
    facts = _Facts(
        one_hot=jnp.all(jnp.sum(as_int8, -1, dtype=jnp.int64) == 1) & (jnp.min(as_int8) == 0),
        least_weight=0 if weights is None else least_weight(weights),
        outside=jnp.any(finite & ((scores < 0) | (scores > 1))),
        inside=jnp.sum(finite, dtype=jnp.int64),
        between=jnp.any((scores > 0) & (scores < 1)),
    )
    return as_int8, odd, in_one_array(label_facts), in_one_array(facts)
