"""Platt scaling with the interface of the other scalers."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from platt_jax.api import fit
from platt_jax.columns import Column
from platt_jax.model.prior import GaussianPrior
from platt_jax.options import Options
from platt_jax.results.fit import Fit, describe
from platt_jax.results.sigmoid import Sigmoid
from platt_jax.scalers.base import Fitted, fitted


@fitted
class FittedPlatt(Fitted):
    """Fitted sigmoids, with the results of their fits.

    Attributes:
        result: the `platt_jax.Fit`, with status, flags and standard errors.
    """

    result: Fit

    @property
    def sigmoid(self) -> Sigmoid:
        """The fitted sigmoids."""
        return self.result.sigmoid

    def __repr__(self) -> str:
        return describe(type(self).__name__, self.result, shared_rows=False)

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        return self.sigmoid.predict_proba(f)


@dataclass(frozen=True)
class PlattScaling:
    """P(y=1 | f) = 1 / (1 + exp(A f + B)) by `platt_jax.fit` (Lin, Lin & Weng 2007).

    One class or constant scores: flat.

    Attributes:
        prior: a Gaussian prior on (A, B), or None.
        options: as in `platt_jax.fit`.

    Example:
        >>> fitted = PlattScaling().fit([5.0, -4.0, 1.0], [1, 0, 0])
        >>> float(fitted.result.A.round(6)), float(fitted.predict_proba([1.0])[0].round(6))
        (-0.202614, 0.38942)
    """

    prior: GaussianPrior | None = None
    options: Options = Options()

    def fit(self, scores: Column, labels: Column, *, weights: Column = None) -> FittedPlatt:
        """Fit by `platt_jax.fit`, with the same arguments and errors."""
        prior, options = self.prior, self.options
        return FittedPlatt(fit(scores, labels, weights=weights, prior=prior, options=options))
