"""Curves whose log-odds are linear in parameters; how each is fitted is in `platt_jax.curves`."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Integers
from platt_jax.results.features import (
    Features,
    ScoreFeatures,
    StandardizedFeatures,
)
from platt_jax.results.fitted_curves import NO_FALL, FittedCurves
from platt_jax.results.pieces import Pieces


@dataclass(frozen=True, eq=False, kw_only=True)
class LogOddsCurves(FittedCurves):
    """Curves whose log-odds are linear in P parameters.

    Attributes:
        features: the functions of the score.
        center, scale: (K,) the coordinates u = (f - center) scale of the scores; where the
            functions are of f itself, they are 0 at the center, and the scale is 1.
        coefficients: (K, P) the parameters.
        covariance: (K, P, P) the inverse of the Hessian of the objective; infinite variances where
            the rows say nothing of a parameter.
        flags, iterations: (K,) int, as in `Fit`.
        nll: (K,) the objective, as in `Fit`.
    """

    kind: ClassVar[str] = "log-odds"
    has_errors: ClassVar[bool] = True

    features: Features
    center: NDArray[Any]
    scale: NDArray[Any]
    coefficients: NDArray[Any]
    covariance: NDArray[Any]
    flags: NDArray[Any]
    iterations: NDArray[Any]
    nll: NDArray[Any]

    @property
    def label(self) -> str:
        """See `FittedCurves`."""
        return self.features.name

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        constant, *factors = self.coefficients[which].T
        with np.errstate(over="ignore", invalid="ignore"):
            functions, slopes, distance = self._functions(scores, which)
            log_odds = sum(map(np.multiply, factors, functions), start=constant)
            if slopes:
                log_odds = log_odds + sum(map(np.multiply, factors, slopes)) * distance
            return np.asarray(log_odds)

    def variance(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        covariance = self.covariance[which]
        unknown = np.isinf(np.diagonal(covariance, axis1=1, axis2=2))
        covariance = np.where(np.isinf(covariance), 0, covariance)
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.stack(self.functions(scores, which), -1)
            # So that differences of infinities do not arise from squares.
            unit = np.abs(x).max(1)
            x = x / unit[:, None]
            variance, bound = (
                np.einsum("np,npq,nq->n", *y, y[0])
                for y in ((x, covariance), (np.abs(x), np.abs(covariance)))
            )
            # Not below 0 by rounding.
            variance = np.maximum(variance, np.finfo(x.dtype).eps * bound) * unit * unit
        return np.where((unknown & (x != 0)).any(1), np.inf, variance)

    @property
    def is_monotone(self) -> Bools:
        """See `FittedCurves`."""
        if not isinstance(self.features, StandardizedFeatures):
            return np.asarray((self.coefficients[:, 1:] >= 0).all(1))
        origins, functions = self.features.polynomials()
        places = self.center, self.scale, self.low, self.high
        center, scale, low, high = (x.astype(float)[:, None] for x in places)
        coefficients = self.coefficients.astype(float)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            _, c1, c2, c3 = np.moveaxis(np.einsum("kp,mpd->kmd", coefficients, functions), -1, 0)
            first, last = self.features.ends((low - center) * scale, (high - center) * scale)
            inner = np.broadcast_to(origins[1:], (len(center), len(origins) - 1))
            ends = np.hstack([first + 0 * center, inner, last + 0 * center])
            start, end = ends[:, :-1] - origins, ends[:, 1:] - origins
            turn = np.clip(np.where(c3 > 0, -c2 / (3 * c3), start), start, end)
            slope = np.stack([c1 + (2 * c2 + 3 * c3 * t) * t for t in (start, turn, end)])
            return np.asarray((slope * (end - start) >= -NO_FALL).all((0, 2)))

    def functions(self, scores: NDArray[Any], which: Integers) -> list[NDArray[Any]]:
        """The functions (N,) whose sum, each times its parameter, are the log-odds of scores."""
        functions, slopes, distance = self._functions(scores, which)
        if slopes:
            functions = [x + d * distance for x, d in zip(functions, slopes, strict=True)]
        return [np.ones_like(functions[0]), *functions]

    def _functions(
        self, scores: NDArray[Any], which: Integers
    ) -> tuple[list[NDArray[Any]], list[NDArray[Any]], Any]:
        """The functions at the scores, or at the end before them with the slopes from there on.

        The third is how far the scores are beyond the ends; without ends there are no slopes.
        Infinite scores, and far ones whose squares overflow, are taken as nearer ones: the
        log-odds and their standard error grow alike, so these have the same probabilities.
        """
        center, scale = self.center[which], self.scale[which]
        largest = np.finfo(center.dtype).max ** 0.25
        if not isinstance(self.features, StandardizedFeatures):
            nearer = np.clip(scores, *(x[which] for x in self._reach))
            return self.features.values(nearer, (center, 1.0)), [], 0
        ends = self.features.ends(*((x[which] - center) * scale for x in (self.low, self.high)))
        u = np.clip((scores - center) * scale, -largest, largest)
        clipped = np.clip(u, *ends)
        return self.features.values(clipped), self.features.slopes(clipped), u - clipped

    @property
    def _reach(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """(K,) the farthest scores of functions of scores, below 0 and above.

        They follow the unit of the scores, and lie beyond those fitted. Of two functions the first
        is nearly constant at large scores, and the second at small ones.
        """
        largest = np.finfo(self.center.dtype).max
        errors = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2)[:, 1:])
        size = np.fmax(np.abs(self.coefficients[:, 1:]), np.where(errors < np.inf, errors, 0))
        with np.errstate(divide="ignore", over="ignore"):
            reach = largest**0.25 / size
        low, high = np.fmax(reach[:, 0], -self.low), np.fmax(reach[:, -1], self.high)
        return -np.minimum(low, largest / 4), np.minimum(high, largest / 4)

    def pieces(self) -> Pieces:
        """See `FittedCurves`."""
        places = self.center, self.scale, self.low, self.high
        with np.errstate(over="ignore", invalid="ignore"):
            return self.features.pieces(
                self.coefficients.astype(float), *(x.astype(float)[:, None] for x in places)
            )

    def columns(self) -> dict[str, NDArray[Any]]:
        """See `FittedCurves`. The constant of functions of scores is the log-odds at score 0."""
        coefficients, diagonal = self.coefficients, np.diagonal(self.covariance, axis1=1, axis2=2)
        errors = np.sqrt(diagonal)
        if isinstance(self.features, ScoreFeatures):
            at_0 = np.zeros_like(self.center), np.arange(len(self))
            coefficients = np.column_stack([self.log_odds(*at_0), coefficients[:, 1:]])
            errors = np.column_stack([np.sqrt(self.variance(*at_0)), errors[:, 1:]])
        named = {f"coefficient_{j}": x for j, x in enumerate(coefficients.T)}
        named |= {f"se_coefficient_{j}": x for j, x in enumerate(errors.T)}
        return named | super().columns()

    @property
    def about(self) -> dict[str, Any]:
        """See `FittedCurves`."""
        options = {x.name: getattr(self.features, x.name) for x in fields(self.features)}
        return {"kind": self.kind, "features": self.features.name, "options": options}
