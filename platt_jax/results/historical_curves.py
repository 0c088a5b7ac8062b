"""Curves of the methods of old papers; how each is fitted is in `platt_jax.curves.historical`."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Integers
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.probabilities import expit

# Farther out, in the coordinates u, probabilities do not change, and here nothing overflows.
_FAR = 1e100


@dataclass(frozen=True, eq=False, kw_only=True)
class SigmoidCurves(FittedCurves):
    """1 / (1 + exp(A f + B)), by Platt's search or as it is, with statistics of the search.

    Attributes:
        A, B: (K,) minus the slope of the log-odds, and minus the log-odds at score 0.
        iterations: (K,) int, number of steps, good or bad.
        overflows: (K,) int, number of evaluations of exp(A f + B) that overflowed; there is one
            evaluation per row and trial.
        log_zeros: (K,) int, number of evaluations of log(p) and log(1 - p), one per row and trial,
            where p had been rounded to 0 or 1.
        nll: (K,) objective at (A, B), computed without overflow or rounding to log(0).
    """

    kind: ClassVar[str] = "historical_sigmoid"

    A: NDArray[Any]
    B: NDArray[Any]
    iterations: NDArray[Any]
    overflows: NDArray[Any]
    log_zeros: NDArray[Any]
    nll: NDArray[Any]

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        with np.errstate(over="ignore"):
            return np.asarray(-(self.A[which] * scores + self.B[which]))


@dataclass(frozen=True, eq=False, kw_only=True)
class _ScaledCurves(FittedCurves):
    """Curves in the coordinates u = (f - center) scale of their problems.

    Attributes:
        center, scale: (K,) the coordinates.
    """

    center: NDArray[Any]
    scale: NDArray[Any]

    def _coordinates(self, scores: NDArray[Any], which: Integers, most: float) -> Floats:
        with np.errstate(over="ignore"):
            u = (scores.astype(np.float64) - self.center[which]) * self.scale[which]
            return np.clip(u, -most, most)


@dataclass(frozen=True, eq=False, kw_only=True)
class ParabolaCurves(_ScaledCurves):
    """Log-odds intercept + u (slope + quadratic u), also beyond the fitted scores.

    Attributes:
        quadratic: (K,) coefficient of u^2.
        slope: (K,) slope of the log-odds at the center.
        intercept: (K,) log-odds at the center.
    """

    kind: ClassVar[str] = "parabola"

    quadratic: NDArray[Any]
    slope: NDArray[Any]
    intercept: NDArray[Any]

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        u = self._coordinates(scores, which, _FAR)
        made = u * (self.quadratic[which] * u + self.slope[which]) + self.intercept[which]
        with np.errstate(over="ignore"):
            return made.astype(np.result_type(scores, self.slope))


@dataclass(frozen=True, eq=False, kw_only=True)
class CosineCurves(_ScaledCurves):
    """p = a_0 + a_1 cos(t) + ... + a_n cos(n t), t = pi (1 + u) / 2, within [-1, 1] and [0, 1].

    Attributes:
        coefficients: (K, n + 1) coefficients a_0 to a_n.
    """

    kind: ClassVar[str] = "cosine"

    coefficients: NDArray[Any]

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        t = (1 + self._coordinates(scores, which, 1)) * (math.pi / 2)
        waves = enumerate(self.coefficients[which].T)
        p: Any = sum(a * np.cos(n * t) for n, a in waves)
        return np.clip(p, 0, 1).astype(np.result_type(scores, self.coefficients))


@dataclass(frozen=True, eq=False, kw_only=True)
class BetaScalingCurves(FittedCurves):
    """Beta quantiles of Beta probabilities.

    The Beta distribution of a mean m and a size n has alpha = m n and beta = (1 - m) n. There is
    one curve for all scores, or one of each predicted class, 1 and 0.

    Attributes:
        member_mean: (K, 1) or (K, 2) mean of the memberships.
        member_size: size of their distribution, 0 where the curve is flat.
        performance: mean of the probabilities.
        size: size of their distribution.
    """

    kind: ClassVar[str] = "beta_scaling"

    member_mean: NDArray[Any]
    member_size: NDArray[Any]
    performance: NDArray[Any]
    size: NDArray[Any]

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        p = self._scaled(scores, which, 0)
        if self.size.shape[1] == 2:
            p = np.where(scores > 0, p, 1 - self._scaled(-scores, which, -1))
        made = np.where(np.isnan(scores), np.nan, p)
        return made.astype(np.result_type(scores, self.size))

    def _scaled(self, scores: NDArray[Any], which: Integers, region: int) -> Floats:
        names = "member_mean", "member_size", "performance", "size"
        mean, member_size, performance, size = (
            getattr(self, name)[which, region].astype(np.float64) for name in names
        )
        ranks = member_ranks(membership(scores), mean, member_size)
        return np.where(
            member_size > 0,
            beta_quantile(performance * size, (1 - performance) * size, ranks),
            performance,
        )


def membership(scores: NDArray[Any]) -> Floats:
    """The softmax 1 / (1 + exp(-2 f))."""
    with np.errstate(over="ignore"):
        member: Floats = expit(2 * scores.astype(np.float64))
    return member


def member_ranks(member: Floats, mean: Any, size: Any) -> Floats:
    """The share of memberships below `member`, by their Beta distribution."""
    # SciPy adds warning filters when imported, so importing this module must not import it.
    from scipy.special import betainc

    varying = np.asarray(size) > 0
    size, mean = np.where(varying, size, 1), np.where(varying, mean, 0.5)
    return betainc(mean * size, (1 - mean) * size, member)


def beta_quantile(alpha: Any, beta: Any, ranks: Floats) -> Floats:
    """The Beta quantile function; SciPy's is NaN for some ranks in the lower tail."""
    from scipy.special import betaincinv, betaln

    p: Floats = betaincinv(alpha, beta, ranks)
    lost = np.isnan(p) & (ranks > 0)
    if not lost.any():
        return p
    alpha, beta, ranks = (np.broadcast_to(x, p.shape)[lost] for x in (alpha, beta, ranks))
    # Here p < 1e-13: the first term of the distribution function's series in p suffices.
    p[lost] = np.exp((np.log(ranks) + np.log(alpha) + betaln(alpha, beta)) / alpha)
    return p
