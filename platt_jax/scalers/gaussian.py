"""Bayes' rule on a normal density of scores for each class."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit
from platt_jax.scalers.base import (
    Fitted,
    Scaler,
    along_rows,
    class_weights,
    fitted,
    flat_logit,
    require,
    told_apart,
    unit_frame,
)


@fitted
class FittedGaussian(Fitted):
    """Log-odds u (quadratic u + slope) + intercept, with u = (f - center) scale.

    Attributes:
        center: (...) score where u = 0.
        scale: (...) change of u per unit of score.
        quadratic: (...) coefficient of u^2, 0 with one variance.
        slope: (...) slope of the log-odds at the center.
        intercept: (...) log-odds at the center.
    """

    center: Array
    scale: Array
    quadratic: Array
    slope: Array
    intercept: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        u = (f - along_rows(self.center)) * along_rows(self.scale)
        # Farther out the probabilities do not change, and here nothing overflows.
        u = np.clip(u, -1e9, 1e9)
        curve = along_rows(self.quadratic) * u + along_rows(self.slope)
        return expit(u * curve + along_rows(self.intercept))


@dataclass(frozen=True)
class Gaussian(Scaler[FittedGaussian]):
    """P(y=1 | f) from normal densities of f given y, by Bayes' rule.

    Means and variances are maximum-likelihood estimates (sums of squares divided by the count).
    With variance="tied", as in Hastie & Tibshirani (1998, "Classification by pairwise coupling"),
    both classes share the pooled variance s^2. With m1 and m0 the classes' means, the log-odds are

        (m1 - m0) / s^2 (f - (m1 + m0) / 2) + log(n_pos / n_neg),

    a sigmoid. With bias="zero" only its slope is used, and P(y=1 | f = 0) is 1/2, as those authors
    did according to Platt (1999, section 1). With variance="separate" each class has its own
    variance, and the log-odds are a f^2 + b f + c, which is not monotone, as Platt remarks there.

    One class or constant scores: flat. A class whose scores are all equal uses the pooled variance.
    The pooled variance is at least (eps range)^2 / 4, so that classes without any variance are
    separated by a steep but finite slope.

    Attributes:
        variance: "tied" or "separate".
        bias: "bayes" to use the classes' shares, or "zero" (with variance="tied").

    Example:
        >>> scores, labels = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1]
        >>> Gaussian().fit(scores, labels).predict_proba([0.5, 2.0]).round(6)
        array([0.5     , 0.904651])
        >>> Gaussian("tied", bias="zero").fit(scores, labels).predict_proba([0.0])
        array([0.5])
    """

    variance: Literal["tied", "separate"] = "tied"
    bias: Literal["bayes", "zero"] = "bayes"

    def __post_init__(self) -> None:
        require(self, "variance", self.variance in ("tied", "separate"), '"tied" or "separate"')
        require(self, "bias", self.bias in ("bayes", "zero"), '"bayes" or "zero"')
        allowed = self.bias == "bayes" or self.variance == "tied"
        require(self, "bias", allowed, '"bayes" with variance="separate"')

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedGaussian:
        center, scale = unit_frame(f)
        u = (f - center) * scale
        pos, neg = class_weights(y, w)
        n_pos, n_neg = jnp.sum(pos), jnp.sum(neg)
        usable = told_apart(f, n_pos, n_neg)
        mean_pos, square_pos = _moments(u, pos)
        mean_neg, square_neg = _moments(u, neg)
        least = jnp.finfo(f.dtype).eps ** 2
        pooled = jnp.maximum((square_pos + square_neg) / (n_pos + n_neg), least)
        variance_pos = variance_neg = pooled
        if self.variance == "separate":
            variance_pos = _own_variance(square_pos, n_pos, pooled, least)
            variance_neg = _own_variance(square_neg, n_neg, pooled, least)

        # u is measured from the midpoint of the means, so these are -half and half.
        half = (mean_pos - mean_neg) / 2
        quadratic = 1 / (2 * variance_neg) - 1 / (2 * variance_pos)
        slope = half * (1 / variance_pos + 1 / variance_neg)
        if self.bias == "zero":
            middle, intercept = jnp.zeros_like(center), jnp.zeros_like(center)
        else:
            middle = center + (mean_pos + mean_neg) / 2 / scale
            intercept = (
                jnp.log(n_pos / n_neg)
                + quadratic * half * half
                + jnp.log(variance_neg / variance_pos) / 2
            )
        return FittedGaussian(
            center=jnp.where(usable, middle, center),
            scale=scale,
            quadratic=jnp.where(usable, quadratic, 0),
            slope=jnp.where(usable, slope, 0),
            intercept=jnp.where(usable, intercept, flat_logit(n_pos, n_neg)),
        )


def _moments(u: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean and the sum of squares about it; 0 without weight."""
    total = jnp.sum(w)
    mean = jnp.sum(w * u) / jnp.where(total > 0, total, 1)
    return mean, jnp.sum(w * (u - mean) ** 2)


def _own_variance(
    square: jax.Array, n: jax.Array, pooled: jax.Array, least: np.floating[Any]
) -> jax.Array:
    variance = square / jnp.where(n > 0, n, 1)
    return jnp.where(variance > least, variance, pooled)
