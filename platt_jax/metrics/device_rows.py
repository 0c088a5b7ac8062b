"""Rows of metrics in arrays on an accelerator, where they stay: the host gets sums of problems.

The formulas are as in `platt_jax.metrics.rows`, in float64. Programs read the rows as they were
given, so that no array of float64 is as long as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column
from platt_jax.execution.on_device import (
    device_labels,
    require_device_weights,
    require_numbers,
)
from platt_jax.groups import ON_THE_EDGE, SAME
from platt_jax.metrics.binned import Binned, binned, number_of_bins
from platt_jax.metrics.rows import (
    PLACEHOLDER,
    MetricProblems,
    MetricRows,
    PredictedRows,
    Predictions,
    read_predictions,
    read_scores,
    require_rows,
)


class BinSums(NamedTuple):
    """Sums over the rows of each bin, each (K, number); named as in `Binned`."""

    rows: Floats
    p: Floats
    q: Floats
    positive: Floats
    residual: Floats


class _Columns(NamedTuple):
    """Arrays (..., N): labels as by `device_labels`, values, and weights or None for ones."""

    labels: Any
    values: Any
    weights: Any


@dataclass(frozen=True)
class DeviceMetricProblems(MetricProblems):
    """K problems of N rows each on an accelerator.

    Attributes:
        columns: the rows as they were given.
        sound: (K,) bool, whether all rows that count are finite; the sums of others are 0.
        from_logits: whether the values are logits.
    """

    columns: _Columns
    sound: NDArray[np.bool_]
    from_logits: bool

    def sum_of(self, function: Callable[[Any], Any]) -> Floats:
        """See `MetricProblems`; a function of a module, so that its program is compiled once."""
        return self._fetched(partial(_sum_of, function=function))

    def in_bins(self, number: int, strategy: str) -> BinSums:
        """Sums over the rows of each bin; `strategy` is valid."""
        rows = self if strategy == "uniform" else self._sorted()
        program = partial(_sums_of_bins, number=number, strategy=strategy)
        return BinSums(*rows._fetched(program))

    def outranked(self) -> Floats:
        """(3, K), the weight of pairs whose positive outranks the negative, and of both classes."""
        return self._sorted()._fetched(_outranked)

    def _sorted(self) -> Self:
        """The same rows in the order of their values."""
        work = partial(_sorted, self.columns, self._roots())
        return replace(self, columns=run_programs(work, x64=True))

    def _fetched(self, program: Callable[..., Any]) -> Any:
        work = partial(program, self.columns, self._roots(), from_logits=self.from_logits)
        return jax.device_get(run_programs(work, x64=True))

    def _roots(self) -> Floats:
        """(K,) roots of the powers of two by which weights are multiplied; 0 if not sound.

        The power itself may be no number.
        """
        return np.where(self.sound, np.ldexp(1.0, -self.exponent // 2), 0)


class _Rows(PredictedRows):
    """The rows in a program, as in `Predictions`."""

    def __init__(self, columns: _Columns, roots: jax.Array, from_logits: bool) -> None:
        counts, weights = _counting(columns, roots)
        values = _by_problem(columns.values).astype(np.float64)
        root = roots[:, None]
        self.positive = counts & (_by_problem(columns.labels) > 0)
        self.values = jnp.where(counts, values, PLACEHOLDER)
        self.weights = jnp.where(counts, weights.astype(np.float64), 0) * root * root
        self.from_logits, self.dtype = from_logits, columns.values.dtype


def read_predictions_there(
    labels: Column, proba: Column, weights: Column, from_logits: bool
) -> Predictions | DeviceMetricProblems:
    """Rows of probabilities or logits, where the predictions are."""
    if not accelerators.holds(proba):
        return read_predictions(labels, proba, weights, from_logits)
    return _read(labels, proba, weights, "proba", from_logits, probabilities=not from_logits)


def read_scores_there(
    labels: Column, scores: Column, weights: Column
) -> MetricRows | DeviceMetricProblems:
    """Rows of scores of any scale, where the scores are."""
    if not accelerators.holds(scores):
        return read_scores(labels, scores, weights)
    return _read(labels, scores, weights, "scores", from_logits=True, probabilities=False)


def bin_sums(
    rows: Predictions | DeviceMetricProblems, n_bins: int | str, strategy: str
) -> Binned | BinSums:
    """Sums over the rows in each bin of a strategy."""
    if isinstance(rows, Predictions):
        return binned(rows, n_bins, strategy)
    return rows.in_bins(number_of_bins(rows, n_bins, strategy), strategy)


def _read(
    labels: Column,
    values: Column,
    weights: Column,
    name: str,
    from_logits: bool,
    probabilities: bool,
) -> DeviceMetricProblems:
    values = accelerators.taken(values)
    if values.dtype != bool:
        require_numbers(values, name)
    advice = validation.a_problem_per_class(name)

    def load() -> tuple[_Columns, Any]:
        y, w = accelerators.taken(labels), accelerators.taken(weights)
        require_rows(values.shape, name)
        if probabilities and values.dtype != bool:
            _require_probabilities(values, name)
        on_device = accelerators.holds(y)
        y = device_labels(y, advice)[0] if on_device else validation.labels(y, advice)
        if accelerators.holds(w):
            require_device_weights(w)
        else:
            w = validation.weights(w, np.float64)
        hint = f"for class ids {advice}"
        y = validation.broadcast(y, values.shape, "labels", name, hint)
        w = validation.broadcast(w, values.shape, "weights", name, hint)
        columns = _Columns(jnp.asarray(y), values, None if w is None else jnp.asarray(w))
        return columns, jax.device_get(_facts(columns))

    columns, (spoilt, largest) = run_programs(load, x64=True)
    # As if a problem had one row, of the largest weight.
    scaled, exponent = validation.scaled_weights(np.where(spoilt, 0, largest)[:, None])
    rows = DeviceMetricProblems(
        total=scaled[:, 0],
        exponent=exponent,
        batch=values.shape[:-1],
        dtype=_floating(columns),
        columns=columns,
        sound=~spoilt.astype(bool),
        from_logits=from_logits,
    )
    total, more = validation.scaled_weights(rows.sum_of(_one)[:, None])
    return replace(rows, total=total[:, 0], exponent=exponent + more)


def _require_probabilities(values: jax.Array, name: str) -> None:
    """Refuses numbers outside [0, 1]; NaN may be among them."""
    index = int(jax.device_get(_first_outside(values)))
    if index >= 0:
        value = jax.device_get(values.ravel()[index])
        validation.require_probabilities(value[None], name, validation.IF_LOGITS)


@partial(xla.jit, wide=True)
def _first_outside(values: jax.Array) -> jax.Array:
    """The place of the first number outside [0, 1], or -1."""
    outside = ((values < 0) | (values > 1)).ravel()
    first = jnp.min(jnp.where(outside, jnp.arange(len(outside)), len(outside)))
    return jnp.where(first < len(outside), first, -1)


def _floating(columns: _Columns) -> np.dtype[Any]:
    """The dtype that `validation.floating` gives the values."""
    dtype = columns.values.dtype
    wide = dtype == np.float64 or jnp.issubdtype(dtype, jnp.integer)
    return np.dtype(np.float64 if wide else np.float32)


def _by_problem(x: jax.Array) -> jax.Array:
    """(K, N)."""
    return x.reshape(-1, x.shape[-1])


def _given_weights(columns: _Columns) -> jax.Array:
    """(K, N)."""
    if columns.weights is None:
        return jnp.ones(_by_problem(columns.values).shape, np.float32)
    weights = _by_problem(columns.weights)
    return weights if jnp.issubdtype(weights.dtype, jnp.floating) else weights.astype(np.float64)


def _counting(columns: _Columns, roots: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(K, N) whether rows count, and their weights as given."""
    weights = _given_weights(columns)
    return (weights > 0) & (roots[:, None] > 0), weights


@partial(xla.jit, wide=True)
def _facts(columns: _Columns) -> jax.Array:
    """(2, K), whether a row that counts is not finite, and the largest finite weight."""
    weights = _given_weights(columns).astype(np.float64)
    finite = jnp.isfinite(_by_problem(columns.values)) & jnp.isfinite(weights)
    finite &= _by_problem(columns.labels) != validation.BAD_LABEL
    spoilt = jnp.any((weights != 0) & ~finite, axis=-1)
    largest = jnp.max(jnp.where(finite, weights, 0), axis=-1)
    return jnp.stack([spoilt.astype(np.float64), largest])


def _one(rows: PredictedRows) -> jax.Array:
    return jnp.ones_like(rows.values)


@partial(xla.jit, static_argnames=("from_logits", "function"), wide=True)
def _sum_of(
    columns: _Columns, roots: jax.Array, from_logits: bool, function: Callable[[Any], Any]
) -> jax.Array:
    rows = _Rows(columns, roots, from_logits)
    return jnp.sum(rows.weights * function(rows), axis=-1)


@partial(xla.jit, wide=True)
def _sorted(columns: _Columns, roots: jax.Array) -> _Columns:
    """The rows in the order of their values; those that do not count have weight 0."""
    counts, weights = _counting(columns, roots)
    values = jnp.where(counts, _by_problem(columns.values).astype(_floating(columns)), PLACEHOLDER)
    positive = _by_problem(columns.labels) > 0
    signed = jnp.where(counts, jnp.where(positive, weights, -weights), 0)
    # For unsigned integers and one more array XLA calls the library for GPUs; its own sort, which
    # floats get, takes 30 times as long.
    unsigned = jnp.dtype(f"uint{8 * values.dtype.itemsize}")
    negative = jnp.ones((), unsigned) << (8 * values.dtype.itemsize - 1)
    bits = lax.bitcast_convert_type(values, unsigned)
    keys = jnp.where(bits < negative, bits | negative, ~bits)
    keys, signed = lax.sort((keys, signed), num_keys=1, is_stable=False)
    bits = jnp.where(keys < negative, ~keys, keys ^ negative)
    values = lax.bitcast_convert_type(bits, values.dtype)
    return _Columns((signed > 0).astype(np.int8), values, jnp.abs(signed))


@partial(xla.jit, static_argnames=("from_logits", "number", "strategy"), wide=True)
def _sums_of_bins(
    columns: _Columns, roots: jax.Array, from_logits: bool, number: int, strategy: str
) -> jax.Array:
    """The fields of `BinSums` as one array; the rows are sorted unless bins are of equal width."""
    rows = _Rows(columns, roots, from_logits)
    bins = _bins(rows, number, strategy).astype(np.min_scalar_type(number))

    def one_bin(which: jax.Array) -> jax.Array:
        rows = _Rows(columns, roots, from_logits)
        p, q = rows.probabilities()
        weights = jnp.where(bins == which.astype(bins.dtype), rows.weights, 0)
        parts = jnp.ones_like(p), p, q, rows.positive.astype(p.dtype), rows.residuals()
        return jnp.stack([jnp.sum(weights * part, axis=-1) for part in parts])

    return jnp.moveaxis(lax.map(one_bin, jnp.arange(number)), 0, -1)


def _bins(rows: _Rows, number: int, strategy: str) -> jax.Array:
    """(K, N) bins as in `binned`."""
    p, _ = rows.probabilities()
    if strategy == "uniform":
        edges = (np.arange(1, number) / number * (1 + SAME)).astype(p.dtype)
        return jnp.searchsorted(edges, p, side="left", method="compare_all")
    weights = rows.weights * (p if strategy == "positives" else 1.0)
    mass = jnp.sum(weights, axis=-1)
    position = number * _mass_below(p, weights) / jnp.where(mass != 0, mass, 1)[:, None]
    return jnp.minimum((position + ON_THE_EDGE).astype(np.int32), number - 1)


@partial(xla.jit, static_argnames=("from_logits",), wide=True)
def _outranked(columns: _Columns, roots: jax.Array, from_logits: bool) -> jax.Array:
    """See `DeviceMetricProblems.outranked`; the rows are sorted."""
    rows = _Rows(columns, roots, from_logits)
    positive = jnp.where(rows.positive, rows.weights, 0)
    negative = jnp.where(rows.positive, 0, rows.weights)
    pairs = positive * _mass_below(rows.values, negative)
    return jnp.stack([jnp.sum(x, axis=-1) for x in (pairs, positive, negative)])


def _mass_below(values: jax.Array, weights: jax.Array) -> jax.Array:
    """(K, N) weight of smaller values plus half the weight of equal ones, of ascending values."""
    upto = jnp.cumsum(weights, axis=-1)
    apart = values[:, 1:] != values[:, :-1]
    edge = jnp.ones((len(values), 1), bool)
    first, last = jnp.hstack([edge, apart]), jnp.hstack([apart, edge])
    mass_before = jnp.pad(upto[:, :-1], ((0, 0), (1, 0)))
    start = lax.cummax(jnp.where(first, mass_before, 0), axis=1)
    end = lax.cummin(jnp.where(last, upto, jnp.inf), axis=1, reverse=True)
    return (start + end) / 2
