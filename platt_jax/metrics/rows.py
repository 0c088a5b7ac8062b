"""The rows of metrics: checked, in float64, one line per problem."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.columns import Column
from platt_jax.results.probabilities import expit, log_expit

# Value of rows that do not count; valid as a probability and as a logit.
_PLACEHOLDER = 0.5

_OF_PROBLEMS = ("positive", "values", "weights", "total")


@dataclass(frozen=True)
class MetricRows:
    """K problems of N rows each.

    Rows of weight 0 hold placeholders. If a row that counts holds a NaN, all rows of its problem
    get placeholders and weight 0, so that its means are NaN.

    Attributes:
        positive: (K, N) bool, whether the label is 1.
        values: (K, N) float64, finite: the predictions.
        weights: (K, N) float64, finite and >= 0.
        total: (K,) sums of the weights.
        batch: batch shape (...) of the arguments.
        dtype: dtype of the results.
    """

    positive: Bools
    values: Floats
    weights: Floats
    total: Floats
    batch: tuple[int, ...]
    dtype: np.dtype[Any]

    def sum(self, x: NDArray[Any]) -> Floats:
        """(K,) weighted sums over the rows of x (K, N)."""
        return (self.weights * x).sum(axis=-1)

    def mean(self, x: NDArray[Any]) -> Floats:
        """(K,) weighted means over the rows of x (K, N)."""
        return ratio(self.sum(x), self.total)

    def scaled_weights(self) -> Floats:
        """(K, N) weights times the power of two that brings each problem's sum near 1.

        Products of two of them neither overflow nor underflow, and no digit is lost.
        """
        _, exponent = np.frexp(self.total)
        return np.ldexp(self.weights, -exponent[:, None])

    def some(self, which: NDArray[np.intp]) -> Self:
        """The problems `which`, as a flat batch."""
        parts = {name: getattr(self, name)[which] for name in _OF_PROBLEMS}
        return replace(self, **parts, batch=which.shape)

    def result(self, x: NDArray[Any]) -> Any:
        """The result x (K, ...) in the batch's shape and the dtype; a scalar for one problem."""
        with np.errstate(over="ignore"):
            return x.reshape(self.batch + x.shape[1:]).astype(self.dtype)[()]


@dataclass(frozen=True)
class Predictions(MetricRows):
    """Rows whose values are probabilities or logits.

    Attributes:
        from_logits: whether they are logits.
    """

    from_logits: bool

    def probabilities(self) -> tuple[Floats, Floats]:
        """P(y=1) and P(y=0), both (K, N); neither is rounded where the other is near 1."""
        if self.from_logits:
            return expit(self.values), expit(-self.values)
        return self.values, 1 - self.values

    def residuals(self) -> Floats:
        """(K, N), y - P(y=1)."""
        p, q = self.probabilities()
        return np.where(self.positive, q, -p)

    def logits(self) -> Floats:
        """(K, N) finite; probabilities of exactly 0 or 1 are replaced by the next float."""
        if self.from_logits:
            return self.values
        p = _inside(self.values, self.dtype)
        return np.log(p) - np.log1p(-p)

    def log_losses(self) -> Floats:
        """(K, N) -log of the probability of the label, finite as the logits are."""
        if self.from_logits:
            log_proba: Floats = log_expit(np.where(self.positive, self.values, -self.values))
            return -log_proba
        p = _inside(self.values, self.dtype)
        return -np.where(self.positive, np.log(p), np.log1p(-p))


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


def ratio(top: Floats, bottom: Floats) -> Floats:
    """The quotient, without warnings; 0 / 0 is NaN and x / 0 infinite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return top / bottom


def _read(labels: Column, values: NDArray[Any], weights: Column, name: str) -> dict[str, Any]:
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"{name}: expected (..., N) with rows, got shape {values.shape}")
    of_classes = validation.a_problem_per_class(name)
    rows = validation.labelled_rows(values, labels, weights, name, of_classes=of_classes)
    y, w, spoilt = rows.flat()
    v = values.reshape(y.shape).astype(np.float64)
    with np.errstate(over="ignore"):
        finite = np.isfinite(w.sum(axis=-1))
    counts = (w > 0) & (finite & ~spoilt.any(axis=-1))[:, None]
    w = np.where(counts, w, 0)
    return {
        "positive": counts & (y == 1),
        "values": np.where(counts, v, _PLACEHOLDER),
        "weights": w,
        "total": w.sum(axis=-1),
        "batch": values.shape[:-1],
        "dtype": values.dtype,
    }


def _inside(p: Floats, dtype: np.dtype[Any]) -> Floats:
    """Probabilities clipped to the floats of this dtype strictly between 0 and 1."""
    ends = np.array([0, 1], dtype)
    return np.clip(p, *np.nextafter(ends, ends[::-1]).astype(np.float64))
