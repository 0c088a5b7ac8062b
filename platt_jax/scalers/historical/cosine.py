"""The probability as a sum of cosines of the score."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.scalers.base import Fitted, Scaler, along_rows, fitted, require, unit_frame


@fitted
class FittedCosine(Fitted):
    """p(t) = a_0 + a_1 cos(t) + ... + a_n cos(n t), clipped to [0, 1].

    Attributes:
        center: (...) score where t = pi / 2.
        scale: (...) scale of u in t = pi (1 + u) / 2, u = (f - center) scale clipped to [-1, 1].
        coefficients: (..., n + 1) coefficients a_0 to a_n.
    """

    center: Array
    scale: Array
    coefficients: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        u = (f - along_rows(self.center)) * along_rows(self.scale)
        t = (1 + np.clip(u, -1, 1)) * (math.pi / 2)
        waves = range(np.shape(self.coefficients)[-1])
        p: Any = sum(along_rows(self.coefficients[..., n]) * np.cos(n * t) for n in waves)
        return np.clip(p, 0, 1)


@dataclass(frozen=True)
class CosineExpansion(Scaler[FittedCosine]):
    """P(y=1 | f) as a sum of cosines of the score (after Vapnik 1998, section 11.11).

    Vapnik expands P(y=1 | t, u) in cos(n t), where t is a scaled score and the coefficients depend
    on u, the rest of the feature vector, and minimizes a regularised quadratic functional. This
    class has no u. Platt (1999, section 1) does not print the functional; it is taken to be

        (1 / W) sum_i w_i (p(t_i) - y_i)^2 + penalty sum_n n^2 a_n^2,    W = sum_i w_i,

    whose second term is proportional to the integral of p'(t)^2. t goes from 0 at the smallest
    score to pi at the largest, and is clipped there. The coefficients solve one linear system. As
    Platt remarks, the sum need not be monotone or within [0, 1]; it is clipped to [0, 1].

    One class: 0 or 1. Constant scores: the share of class 1.

    Attributes:
        terms: number n of cosines (>= 1).
        penalty: weight of the penalty (> 0).

    Example:
        >>> fitted = CosineExpansion(terms=1, penalty=1.0).fit([0.0, 1.0, 2.0], [0, 0, 1])
        >>> fitted.predict_proba([0.0, 1.0, 2.0]).round(4)
        array([0.1333, 0.3333, 0.5333])
    """

    terms: int = 8
    penalty: float = 1e-3

    def __post_init__(self) -> None:
        ok = isinstance(self.terms, int) and self.terms >= 1
        require(self, "terms", ok, "an integer >= 1")
        require(self, "penalty", 0 < self.penalty < math.inf, "a number > 0")

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedCosine:
        center, scale = unit_frame(f)
        n = jnp.arange(1, self.terms + 1, dtype=f.dtype)
        t = (1 + (f - center) * scale) * (math.pi / 2)
        basis, share = jnp.cos(jnp.outer(t, n)), w / jnp.sum(w)
        # Cosines and labels minus their means: a_0, which has no penalty, is what remains. Together
        # with a_0 the system is ill-conditioned where the scores are nearly constant.
        positive = jnp.where(y, share, 0)
        mean, rate = share @ basis, jnp.sum(positive)
        basis = basis - mean[None]
        system = basis.T @ (share[:, None] * basis) + self.penalty * jnp.diag(n * n)
        coefficients = jnp.linalg.solve(system, basis.T @ (positive - rate * share))
        first = rate - mean @ coefficients
        return FittedCosine(center, scale, jnp.concatenate([first[None], coefficients]))
