"""Softmax scaling: a fixed sigmoid."""

from dataclasses import dataclass
from typing import Any

import jax
from numpy.typing import NDArray

from platt_jax.columns import Column
from platt_jax.results.probabilities import expit
from platt_jax.scalers.base import Fitted, Scaler, checked


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class FittedSoftmax(Fitted):
    """The fixed sigmoid."""

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return expit(2 * f)


@dataclass(frozen=True)
class Softmax(Scaler[FittedSoftmax]):
    """1 / (1 + exp(-2 f)) (Rüping 2004, section 3).

    Nothing is learned: `fit` only checks its input, and no row changes the predictions.

    Example:
        >>> Softmax().fit([0.5, -2.0], [1, 0]).predict_proba([-1.0, 0.0]).round(4)
        array([0.1192, 0.5   ])
    """

    def fit(self, scores: Column, labels: Column, *, weights: Column = None) -> FittedSoftmax:
        """Check the arguments, as in `Scaler.fit`."""
        checked(scores, labels, weights)
        return FittedSoftmax()
