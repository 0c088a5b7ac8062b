"""Curves that are fixed, or nearly: Rüping's softmax and clipped scores (2004, section 3).

Between the margins -1 and 1 the score of a support vector machine is mapped linearly to
(1 + f) / 2. Beyond them it indicates only the side of the row.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.columns import Column
from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit
from platt_jax.scalers.base import F, Fitted, Scaler, along_rows, checked, class_weights, fitted


class _FixedScaler(Scaler[F]):
    _curve: ClassVar[Any]

    def fit(self, scores: Column, labels: Column, *, weights: Column = None) -> F:
        """Check the arguments, as in `Scaler.fit`."""
        checked(scores, labels, weights)
        return self._curve


@fitted
class FittedClip(Fitted):
    """The fixed line."""

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return _clipped_line(f, 0, 1)


@dataclass(frozen=True)
class Clip(_FixedScaler[FittedClip]):
    """(1 + f) / 2 clipped to [0, 1], which Rüping's tables call SVM-01.

    Nothing is learned: `fit` only checks its input, and no row changes the predictions.

    Example:
        >>> Clip().fit([0.5, -2.0], [1, 0]).predict_proba([-3.0, 0.5, 3.0])
        array([0.  , 0.75, 1.  ])
    """

    _curve: ClassVar = FittedClip()


@fitted
class FittedSoftmax(Fitted):
    """The fixed sigmoid."""

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return expit(2 * f)


@dataclass(frozen=True)
class Softmax(_FixedScaler[FittedSoftmax]):
    """1 / (1 + exp(-2 f)) (Rüping 2004, section 3).

    Nothing is learned: `fit` only checks its input, and no row changes the predictions.

    Example:
        >>> Softmax().fit([0.5, -2.0], [1, 0]).predict_proba([-1.0, 0.0]).round(4)
        array([0.1192, 0.5   ])
    """

    _curve: ClassVar = FittedSoftmax()


@fitted
class FittedPPClip(Fitted):
    """The line and its two ends.

    Attributes:
        low: (...) share of class 1 among rows with f < -1.
        high: (...) share of class 1 among rows with f > 1.
    """

    low: Array
    high: Array

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return _clipped_line(f, along_rows(self.low), along_rows(self.high))


@dataclass(frozen=True)
class PPClip(Scaler[FittedPPClip]):
    """(1 + f) / 2 clipped to [P(y=1 | f < -1), P(y=1 | f > 1)]: Rüping's SVM-PP.

    Section 3.2 also allows a step at each margin; section 4 describes clipping, which is monotone.
    Where no row lies beyond a margin, that end is 0 or 1, as in `Clip`. Where the ends are in the
    wrong order, all scores get the upper one.

    One class or constant scores: no exception. Nothing is smoothed, so an end may be 0 or 1.

    Example:
        >>> fitted = PPClip().fit([-3.0, -2.0, 0.0, 1.5, 2.0], [0, 1, 0, 1, 1])
        >>> fitted.predict_proba([-9.0, 0.2, 9.0])
        array([0.5, 0.6, 1. ])
    """

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedPPClip:
        pos, neg = class_weights(y, w)

        def share(rows: jax.Array, otherwise: int) -> jax.Array:
            n_pos = jnp.sum(jnp.where(rows, pos, 0))
            total = n_pos + jnp.sum(jnp.where(rows, neg, 0))
            return jnp.where(total > 0, n_pos / jnp.where(total > 0, total, 1), otherwise)

        return FittedPPClip(low=share(f < -1, 0), high=share(f > 1, 1))


def _clipped_line(
    f: NDArray[Any], low: NDArray[Any] | int, high: NDArray[Any] | int
) -> NDArray[Any]:
    return np.minimum(np.maximum((1 + f) / 2, low), high)
