"""The rows of metrics: checked, in float64, one line per problem; and their docstrings' text."""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.caller import Caller
from platt_jax.columns import Arguments, Column, Result, takes_columns
from platt_jax.results.probabilities import FARTHEST, clipped_logit, expit, log_expit

# Value of rows that do not count; valid as a probability and as a logit.
PLACEHOLDER = 0.5

# Powers of two between which counts are kept: beyond, no interval changes. Products of four counts
# do not overflow.
_LARGEST = 200

# Exact to rounding in the far tail, where SciPy's erfc has errors of hundreds of units.
_erfc = np.frompyfunc(math.erfc, 1, 1)

_CLIPPED = (
    "proba: probabilities of 0 or 1, or nearer to them than 1e-12, are taken as 1e-12 away, and "
    "the result depends on that; log-odds have no such limit: pass them with from_logits=True"
)

_OF_ROWS = ("positive", "values", "weights")
_OF_PROBLEMS = (*_OF_ROWS, "total", "exponent")
_AT_ONCE = 1 << 16  # rows whose terms are added up together, which stay in a cache

# What the docstrings of metrics have in common, by what it replaces.
_TEXTS = {
    "{rows}": """\
Args:
    labels: bool, {0, 1} or {-1, +1}, broadcastable to proba.
    proba: (..., N) probabilities of class 1, or logits.
    weights: counts of rows >= 0, broadcastable to proba.
    from_logits: whether proba holds logits.""",
    "{flat_rows}": """\
Args:
    labels: (N,) bool, {0, 1} or {-1, +1}.
    proba: (N,) probabilities of class 1, or logits.
    weights: (N,) counts of rows >= 0.
    from_logits: whether proba holds logits.""",
    "{class_rows}": """\
Args:
    labels: (..., N) class ids, or (..., N, C) with a 1 for each row's class.
    proba: (..., N, C) probabilities, a column per class.
    classes: (C,) class ids in the order of the columns. None means the distinct labels, ascending,
        if there are C of them, or 0 ... C-1 if the labels are such integers and 0 is one.
    weights: counts of rows >= 0, broadcastable to labels.""",
    "{bins}": """\
n_bins: number of bins; or "cube_root" for the cube root of the number of rows, rounded up, where
        problems have equal numbers of rows.
    strategy: "uniform", "quantile" or "positives", as in `reliability_curve`.""",
    "Example:": """\
Raises:
    ValueError: an argument is not as above.

Example:""",
}


def documented(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`takes_columns`, and completes a docstring: arguments for `{rows}` and the like, errors."""
    text = inspect.getdoc(function) or ""  # none under python -OO
    for placeholder, meaning in _TEXTS.items():
        text = text.replace(placeholder, meaning)
    function.__doc__ = text
    return takes_columns(function)


def pieces(which: NDArray[np.intp], most: int) -> Iterator[NDArray[np.intp]]:
    """These numbers of problems, `most` or fewer at a time."""
    for first in range(0, len(which), max(most, 1)):
        yield which[first : first + max(most, 1)]


@dataclass(frozen=True)
class MetricProblems:
    """What is known of K problems besides their rows, of which only sums are computed."""

    total: Floats  # (K,) sums of the weights, 0 or in [1/2, 2)
    # (K,) even integers e: the weights as given are the weights in the sums times 2^e
    exponent: Ints
    batch: tuple[int, ...]  # batch shape (...) of the arguments
    dtype: np.dtype[Any]  # dtype of the results

    def sum_of(self, function: Callable[[Any], Any]) -> Floats:
        """(K,) weighted sums over the rows of a function of them, (K, N); see `PredictedRows`."""
        raise NotImplementedError

    def mean_of(self, function: Callable[[Any], Any]) -> Floats:
        """(K,) weighted means over the rows of such a function."""
        return ratio(self.sum_of(function), self.total)

    def as_counts(self, least: int = -_LARGEST, most: int = _LARGEST) -> Self:
        """The same rows, with the weights as given; for what depends on the number of rows.

        Weights whose sum is below 2^least or above 2^most are scaled to that. The limits are even.
        """
        exponent = np.clip(self.exponent, least, most)
        total = np.ldexp(self.total, exponent)
        return replace(self, total=total, exponent=self.exponent - exponent)

    def unscaled(self, x: Floats) -> Floats:
        """Numbers (K, ...) proportional to the weights, for the weights as given."""
        with np.errstate(over="ignore"):
            return np.ldexp(x, self.exponent.reshape(-1, *(1,) * (x.ndim - 1)))

    def times_root(self, x: Floats) -> Floats:
        """Numbers (K,) proportional to the root of the weights, for the weights as given."""
        with np.errstate(over="ignore"):
            return np.ldexp(x, self.exponent // 2)

    def per_root(self, x: Floats) -> Floats:
        """Numbers (K,) inversely proportional to that root, for the weights as given."""
        with np.errstate(over="ignore"):
            return np.ldexp(x, -(self.exponent // 2))

    def result(self, x: NDArray[Any]) -> Any:
        """The result x (K, ...) in the batch's shape and the dtype; a scalar for one problem."""
        with np.errstate(over="ignore"):
            return x.reshape(self.batch + x.shape[1:]).astype(self.dtype)[()]


class PredictedRows:
    """Labels and predictions row by row: arrays (K, N) of NumPy, or of JAX in a program."""

    positive: Any  # bool, whether the label is 1
    values: Any  # float64, finite
    from_logits: bool  # whether the values are logits; otherwise they are probabilities

    def probabilities(self) -> tuple[Any, Any]:
        """P(y=1) and P(y=0), both (K, N); neither is rounded where the other is near 1."""
        return self._probabilities

    @cached_property
    def _probabilities(self) -> tuple[Any, Any]:
        if self.from_logits:
            return expit(self.values), expit(-self.values)
        return self.values, 1 - self.values

    def residuals(self) -> Any:
        """(K, N), y - P(y=1)."""
        p, q = self.probabilities()
        return self._xp.where(self.positive, q, -p)

    def log_losses(self) -> Any:
        """(K, N) -log P(label), finite; of probabilities at most `FARTHEST`."""
        xp = self._xp
        if self.from_logits:
            return -log_expit(xp.where(self.positive, self.values, -self.values))
        return xp.where(self.positive, *self.log_losses_by_label())

    def log_losses_by_label(self) -> tuple[Any, Any]:
        """(K, N) what `log_losses` are where the label is 1, and where it is 0."""
        xp, x = self._xp, self.values
        if self.from_logits:
            return -log_expit(x), -log_expit(-x)
        with np.errstate(divide="ignore"):
            exact = -xp.log(x), -xp.log1p(-x)
        return xp.minimum(exact[0], FARTHEST), xp.minimum(exact[1], FARTHEST)

    @property
    def _xp(self) -> Any:
        return jnp if isinstance(self.values, jax.Array) else np


@dataclass(frozen=True)
class MetricRows(MetricProblems):
    """K problems of N rows each.

    Rows of weight 0 hold placeholders. If a row that counts holds a NaN, all rows of its problem
    get placeholders and weight 0, so that its means are NaN.

    Weights of any scale are multiplied by a power of two, so that their sum is near 1: no digit is
    lost, and neither sums of weights nor products of two overflow. Only a weight below 1e-300 of
    the sum is lost.
    """

    positive: Bools  # (K, N) bool, whether the label is 1
    values: Floats  # (K, N) float64, finite: the predictions
    weights: Floats  # (K, N) float64, finite and >= 0

    def sum_of(self, function: Callable[[Any], Any]) -> Floats:
        """See `MetricProblems`."""
        (number, length), sums = self.values.shape, np.zeros(len(self.values))
        for line in range(0, number, max(1, _AT_ONCE // length)):
            lines = slice(line, line + max(1, _AT_ONCE // length))
            for first in range(0, length, _AT_ONCE):
                block = lines, slice(first, first + _AT_ONCE)
                part = replace(self, **{name: getattr(self, name)[block] for name in _OF_ROWS})
                sums[lines] += part.sum(function(part))
        return sums

    def sum(self, x: NDArray[Any]) -> Floats:
        """(K,) weighted sums over the rows of x (K, N)."""
        return (self.weights * x).sum(axis=-1)

    def mean(self, x: NDArray[Any]) -> Floats:
        """(K,) weighted means over the rows of x (K, N)."""
        return ratio(self.sum(x), self.total)

    def as_counts(self, least: int = -_LARGEST, most: int = _LARGEST) -> Self:
        """See `MetricProblems`."""
        scaled = super().as_counts(least, most)
        weights = validation.times_power(self.weights, self.exponent - scaled.exponent)
        return replace(scaled, weights=weights)

    def some(self, which: NDArray[np.intp]) -> Self:
        """The problems `which`, as a flat batch."""
        parts = {name: getattr(self, name)[which] for name in _OF_PROBLEMS}
        return replace(self, **parts, batch=which.shape)


@dataclass(frozen=True)
class Predictions(PredictedRows, MetricRows):
    """Rows whose values are probabilities or logits."""

    from_logits: bool

    def logits(self) -> Floats:
        """(K, N) finite; logits of probabilities are as by `platt_jax.logit`, with a warning."""
        if self.from_logits:
            return self.values
        logits: Floats = clipped_logit(self.values)
        if ((np.abs(logits) == FARTHEST) & (self.weights > 0)).any():
            Caller().warn(_CLIPPED)
        return logits


def read_scores(labels: Column, scores: Column, weights: Column) -> MetricRows:
    """Rows of scores of any scale."""
    return MetricRows(**_read(labels, validation.floating(scores, "scores"), weights, "scores"))


def read_predictions(
    labels: Column, proba: Column, weights: Column, from_logits: bool
) -> Predictions:
    """Rows of probabilities or logits."""
    values = validation.floating(proba, "proba")
    if not from_logits:
        validation.require_probabilities(values, "proba", validation.IF_LOGITS)
    return Predictions(**_read(labels, values, weights, "proba"), from_logits=from_logits)


def read_flat_predictions(
    labels: Column, proba: Column, weights: Column, from_logits: bool
) -> Predictions:
    """Flat rows as one problem, with the weights as given."""
    require_flat_rows(proba)
    return read_predictions(labels, proba, weights, from_logits).as_counts()


def require_flat_rows(proba: Column) -> None:
    """Refuses predictions that are no flat array, or have no rows."""
    shape = validation.floating(proba, "proba").shape
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"proba: expected a flat array with rows, got shape {shape}")


def require_rows(shape: tuple[int, ...], name: str) -> None:
    """Refuses arrays without rows."""
    if not shape or 0 in shape:
        raise ValueError(f"{name}: expected (..., N) with rows, got shape {shape}")


def ratio(top: Floats, bottom: Floats) -> Floats:
    """The quotient, without warnings; 0 / 0 is NaN and x / 0 infinite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return top / bottom


def two_sided_p_value(z: Floats) -> Floats:
    """P(abs(x) >= z) of a standard normal x, for z >= 0."""
    return _erfc(z / np.sqrt(2)).astype(float)


def _read(labels: Column, values: NDArray[Any], weights: Column, name: str) -> dict[str, Any]:
    require_rows(values.shape, name)
    class_advice = validation.a_problem_per_class(name)
    rows = validation.labelled_rows(values, labels, weights, name, class_advice=class_advice)
    y, w, spoilt = rows.flat()
    v = values.reshape(y.shape).astype(np.float64, copy=False)
    counts = (w > 0) & ~spoilt.any(axis=-1, keepdims=True)
    if not counts.all():
        w, v = np.where(counts, w, 0), np.where(counts, v, PLACEHOLDER)
    w, exponent = validation.scaled_weights(w)
    return {
        "positive": counts & (y == 1),
        "values": v,
        "weights": w,
        "total": w.sum(axis=-1),
        "exponent": exponent,
        "batch": values.shape[:-1],
        "dtype": values.dtype,
    }
