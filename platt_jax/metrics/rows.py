"""The rows that a metric sums over: checked, in float64, one line per problem."""

from dataclasses import dataclass

import numpy as np

from platt_jax import validation
from platt_jax.results.probabilities import expit, log_expit

# Stands in for whatever a row held that does not count; a probability as well as a logit.
_PLACEHOLDER = 0.5


@dataclass(frozen=True)
class Rows:
    """K problems of N rows each.

    Rows of weight 0 hold placeholders, and so do all rows of a problem with a NaN among those that
    count: it has no weight at all, and its means come out as NaN.

    Attributes:
        positive: (K, N) bool, whether the label is 1.
        values: (K, N) float64, finite: what was predicted.
        weights: (K, N) float64, finite and >= 0.
        total: (K,) their sums.
        batch: the leading shape of what the user gave.
        dtype: of the results.
    """

    positive: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    total: np.ndarray
    batch: tuple[int, ...]
    dtype: np.dtype

    def sum(self, x: np.ndarray) -> np.ndarray:
        """(K,), the weighted sums over the rows of x (K, N)."""
        return (self.weights * x).sum(axis=-1)

    def mean(self, x: np.ndarray) -> np.ndarray:
        """(K,), the weighted means over the rows of x (K, N)."""
        return ratio(self.sum(x), self.total)

    def scaled_weights(self) -> np.ndarray:
        """(K, N), the weights times the power of two that brings each problem's sum near 1.

        Products of two of them neither overflow nor underflow, and no digit is lost.
        """
        _, exponent = np.frexp(self.total)
        return np.ldexp(self.weights, -exponent[:, None])

    def result(self, x: np.ndarray):
        """What the user gets for x (K, ...): the batch's shape, the dtype; a scalar for one."""
        with np.errstate(over="ignore"):
            return x.reshape(self.batch + x.shape[1:]).astype(self.dtype)[()]


@dataclass(frozen=True)
class Predictions(Rows):
    """Rows whose values are probabilities, or logits.

    Attributes:
        from_logits: which of the two.
    """

    from_logits: bool

    def probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        """P(y=1) and P(y=0), both (K, N); neither is rounded where the other is near 1."""
        if self.from_logits:
            return expit(self.values), expit(-self.values)
        return self.values, 1 - self.values

    def residuals(self) -> np.ndarray:
        """(K, N), y - P(y=1)."""
        p, q = self.probabilities()
        return np.where(self.positive, q, -p)

    def logits(self) -> np.ndarray:
        """(K, N), finite: probabilities of exactly 0 or 1 count as the float next to them."""
        if self.from_logits:
            return self.values
        p = _inside(self.values, self.dtype)
        return np.log(p) - np.log1p(-p)

    def log_losses(self) -> np.ndarray:
        """(K, N), -log of the probability of what happened, finite as the logits are."""
        if self.from_logits:
            return -log_expit(np.where(self.positive, self.values, -self.values))
        p = _inside(self.values, self.dtype)
        return -np.where(self.positive, np.log(p), np.log1p(-p))


def read_scores(labels, scores, weights) -> Rows:
    """Rows of scores of any scale.

    Raises:
        ValueError: an argument is not as the package's docstring says.
    """
    return Rows(**_read(labels, validation.floating(scores, "scores"), weights, "scores"))


def read_predictions(labels, proba, weights, from_logits: bool) -> Predictions:
    """Rows of probabilities or logits.

    Raises:
        ValueError: an argument is not as the package's docstring says.
    """
    values = validation.floating(proba, "proba")
    outside = (values < 0) | (values > 1)
    if not from_logits and outside.any():
        raise ValueError(
            f"proba: expected probabilities in [0, 1], got {values[outside].flat[0]}; "
            "for logits say from_logits=True"
        )
    return Predictions(**_read(labels, values, weights, "proba"), from_logits=from_logits)


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """The quotient; 0 / 0 is NaN and x / 0 infinite, in silence."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return top / bottom


def _read(labels, values, weights, name):
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"{name}: expected (..., N) with rows, got shape {values.shape}")
    w = validation.weights(1.0 if weights is None else weights, np.float64)
    w = _broadcast(w, "weights", values, name)
    of_classes = validation.a_problem_per_class(name)
    y = validation.labels(labels, of_classes)
    y = _broadcast(y, "labels", values, name, f"; for class ids {of_classes}")
    v = values.reshape(y.shape).astype(np.float64)
    with np.errstate(over="ignore"):
        finite = np.isfinite(w.sum(axis=-1))
    spoilt = (w != 0) & (~np.isfinite(v) | (y == validation.BAD_LABEL))
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


def _broadcast(x, name, values, values_name, of_rows=""):
    """X in the shape of the values as (K, N); of_rows ends the message for an x (N,) of (N, C)."""
    try:
        return np.broadcast_to(x, values.shape).reshape(-1, values.shape[-1])
    except ValueError:
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {values.shape}, that of {values_name}, "
            f"got {x.shape}{of_rows if x.shape == values.shape[:-1] else ''}"
        ) from None


def _inside(p, dtype):
    """Probabilities, strictly between 0 and 1: what rounding to this dtype may have hidden."""
    ends = np.array([0, 1], dtype)
    return np.clip(p, *np.nextafter(ends, ends[::-1]).astype(np.float64))
