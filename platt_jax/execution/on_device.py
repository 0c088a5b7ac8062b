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
from platt_jax.execution.oversized import memory_errors
from platt_jax.execution.problems import Context
from platt_jax.execution.progress import reporting
from platt_jax.ids.labels import labels_by_name
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.solver.dense import solve_checked
from platt_jax.solver.solution import ProblemInputs


class DeviceRows:
    """`DenseRows` on the device that has their scores, with its attributes except `labels`.

    Labels, weights and offsets may be elsewhere, and are then sent there. With a `length` rows are
    added up to it, whose scores are NaN.

    Attributes:
        columns: JAX arrays (..., length): floating scores, NaN where a label is not finite; int8
            labels, above 0 for class 1; and in the dtype of the scores weights and offset.
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
        require_rows(scores)
        self.dtype = _floating(scores)
        coded = not accelerators.holds(labels)
        if coded:
            named = pos_label is not None
            codes = labels_by_name(labels, pos_label, scores.ndim) if named else None
            labels = validation.labels(labels) if codes is None else codes
        elif pos_label is not None:
            raise ValueError(
                "pos_label: expected None for labels on a device: "
                f"pass labels == {pos_label!r} as labels"
            )
        else:
            _require_labels(labels)
        if accelerators.holds(weights):
            require_numbers(weights, "weights")
        else:
            weights = validation.weights(weights, self.dtype)
        if accelerators.holds(offset):
            require_numbers(offset, "offset")
        elif offset is not None:
            offset = validation.floating(offset, "offset")
        self.batch = scores.shape[:-1]
        # 64-bit labels and weights keep their values until they are checked.
        columns = Columns(scores, labels, weights, offset)
        length = scores.shape[-1] if length is None else length
        run_programs(partial(self._check, columns, coded, length), x64=True)

    def _check(self, columns: Columns, coded: bool, length: int) -> None:
        """Sets the arrays and the warnings; `coded` is as for `_coded`."""
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
        labels, facts = _checked(columns, coded)
        scores = columns.scores
        if facts.bad:
            scores = jnp.where(labels == validation.BAD_LABEL, jnp.nan, scores)
        self.columns = columns._replace(scores=scores, labels=labels)
        self.doubtful_shape = validation.doubtful_shape(shape, lambda: facts.one_hot)
        interval = validation.UnitInterval(facts.outside, int(facts.inside), facts.between)
        self.doubtful_scores = interval.doubt if shape[-1] >= validation.FEW else None

    def fit(self, given: ProblemInputs, context: Context) -> Fit:
        """See `DenseRows`, but for the arrays: `accelerators.results`. There can be no mesh."""
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
        result: Fit = accelerators.results(fit, self.dtype)
        return result


def only_device(scores: jax.Array) -> jax.Device:
    """The device of the scores; refuses those on several."""
    device, *other_devices = accelerators.devices(scores)
    if other_devices:
        raise ValueError(
            f"scores: expected an array on one device, got one on {1 + len(other_devices)}; "
            "pass np.asarray(scores), and the devices as mesh"
        )
    return device


def require_rows(scores: jax.Array) -> None:
    """Refuses scores without rows."""
    if scores.ndim == 0 or scores.size == 0:
        raise ValueError(f"scores: expected (..., N) with rows to fit, got shape {scores.shape}")


def device_labels(
    labels: jax.Array, class_advice: str = validation.SEE_CLASSES
) -> tuple[jax.Array, bool]:
    """Labels on an accelerator as int8, as by `validation.labels`, and whether all are finite."""
    _require_labels(labels)
    work = partial(_checked, Columns(None, labels), class_advice=class_advice)
    as_int8, facts = run_programs(work, x64=True)
    return as_int8, not facts.bad


def require_device_weights(weights: jax.Array) -> None:
    """Refuses weights on an accelerator that are not numbers, or negative."""
    require_numbers(weights, "weights")
    run_programs(partial(_checked, Columns(None, None, weights)), x64=True)


def _require_labels(labels: jax.Array) -> None:
    if labels.dtype != bool:
        require_numbers(labels, "labels", validation.LABEL_CODINGS)


def require_numbers(values: jax.Array, name: str, expected: str = "numbers") -> None:
    """Refuses arrays on an accelerator that are neither integers nor floats."""
    if not any(jnp.issubdtype(values.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise ValueError(f"{name}: expected {expected}, got dtype {values.dtype}")


def _floating(scores: jax.Array) -> np.dtype[Any]:
    """The dtype in which scores are fitted. Integers get JAX's usual one."""
    if scores.dtype != bool:
        require_numbers(scores, "scores")
    if jnp.issubdtype(scores.dtype, jnp.integer):
        return np.dtype(jnp.result_type(float))
    return np.dtype(np.float64 if scores.dtype == np.float64 else np.float32)


@partial(xla.jit, static_argnames=("length",))
def _longer(columns: Columns, length: int) -> Columns:
    """The columns (N,) with valid rows added, whose scores are NaN."""
    scores, *more_columns = columns
    add = (0, length - len(scores))
    # The last label is in the coding of the others.
    more_columns = [None if x is None else jnp.pad(x, add, mode="edge") for x in more_columns]
    return Columns(jnp.pad(scores, add, constant_values=np.nan), *more_columns)


class _Facts(NamedTuple):
    """What shows whether rows are valid: numbers on the host, or arrays without axes."""

    known: Any = True  # whether all labels are in one of the codings, or not finite
    minus: Any = False  # whether a label is -1
    bad: Any = False  # whether a label is not finite
    one_hot: Any = False  # as `validation.one_hot`
    least_weight: Any = 0  # 0 if none is negative
    outside: Any = False  # as in `validation.UnitInterval`, as the next two
    inside: Any = 0
    between: Any = False


def _checked(
    columns: Columns, coded: bool = False, class_advice: str = validation.SEE_CLASSES
) -> tuple[jax.Array, _Facts]:
    """Labels as int8, as by `validation.labels`, and the facts; refuses labels in no coding.

    Columns may be missing, but without labels or weights there can be no scores.
    """
    labels, odd, numbers = _facts(columns, coded=coded)
    facts = _Facts(*jax.device_get(numbers).tolist())
    if not facts.known:
        odd = jax.device_get(odd).item()
        raise validation.odd_label_error(odd, facts.minus, class_advice=class_advice)
    if facts.least_weight < 0:
        raise validation.negative_weight_error(facts.least_weight)
    return labels, facts


@partial(xla.jit, static_argnames=("coded",), wide=True)
def _facts(columns: Columns, coded: bool) -> tuple[Any, Any, jax.Array]:
    """Labels as int8, a label in no coding, and the fields of `_Facts`; checks no offset."""
    scores, labels, weights, _ = columns
    facts, odd = _Facts(), None
    if labels is not None:
        labels, odd, facts = _coded(labels, coded)
    if weights is not None:
        facts = facts._replace(least_weight=jnp.min(jnp.where(weights < 0, weights, 0)))
    if scores is not None:
        finite = jnp.isfinite(scores)
        facts = facts._replace(
            one_hot=jnp.all(jnp.sum(labels, -1, dtype=jnp.int64) == 1) & (jnp.min(labels) == 0),
            outside=jnp.any(finite & ((scores < 0) | (scores > 1))),
            inside=jnp.sum(finite, dtype=jnp.int64),
            between=jnp.any((scores > 0) & (scores < 1)),
        )
    # One array: each that is fetched takes as long as a small fit.
    return labels, odd, jnp.stack([jnp.asarray(x, np.float64) for x in facts])


def _coded(labels: jax.Array, coded: bool) -> tuple[jax.Array, jax.Array, _Facts]:
    """Labels of any real dtype as int8, which they are already if `coded`; and facts of labels."""
    one, zero = jnp.ones((), labels.dtype), jnp.zeros((), labels.dtype)
    signed = not (
        coded or labels.dtype == bool or jnp.issubdtype(labels.dtype, jnp.unsignedinteger)
    )
    minus = jnp.any(labels == -one) if signed else jnp.zeros((), bool)
    positive = labels == one
    in_coding = positive | (labels == (jnp.where(minus, -one, zero) if signed else zero))
    bad = labels == validation.BAD_LABEL if coded else ~jnp.isfinite(labels)
    in_coding |= bad
    as_int8 = jnp.where(bad, jnp.int8(validation.BAD_LABEL), positive.astype(jnp.int8))
    odd = jnp.max(jnp.where(in_coding, zero, labels))
    return as_int8, odd, _Facts(jnp.all(in_coding), minus, jnp.any(bad))
