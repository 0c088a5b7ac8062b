"""Beta scaling: Beta distributed memberships mapped to Beta distributed probabilities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.backend.threads import ordered_map
from platt_jax.model.objective import Array
from platt_jax.results.probabilities import expit
from platt_jax.scalers.base import (
    FiniteRows,
    Fitted,
    Scaler,
    along_rows,
    fitted,
    mean_target,
    require,
)

# Grid of log(alpha_2 + beta_2), searched before the best size is refined.
_LOG_SIZES = np.log(np.geomspace(0.1, 1e4, 26))

# Number of groups of neighbouring ranks that approximate the error on the grid.
_GROUPS = 64

# Newton's method on the log of the size: step of the finite differences, longest step (the grid's),
# and step after which only rounding error is left.
_DIFFERENCE = 3e-5
_LONGEST_STEP = 0.5
_SHORTEST_STEP = 1e-5

# Least ratio of the memberships' variance to its maximum at which they count as varying.
_LEAST_SHARE = 1e-10

# Least size of the memberships' distribution, where they are nearly all 0 or 1.
_SMALLEST = 1e-6

# The squared error of a curve as a function of the log of its size.
_ErrorOfLogSize: TypeAlias = Callable[[float], float]


class BetaCurve(NamedTuple):
    """The Beta distributions of the memberships and of the probabilities.

    The Beta distribution of a mean m and a size n has alpha = m n and beta = (1 - m) n.
    """

    member_mean: Array
    member_size: Array  # 0 where the curve is flat
    performance: Array  # mean of the probabilities
    size: Array


@fitted
class FittedBetaScaling(Fitted):
    """Beta quantiles for Beta probabilities.

    Attributes:
        curves: with arrays (..., 1), one curve for all scores; or (..., 2), curves of the predicted
            classes 1 and 0.
        form: as in `BetaScaling`.
    """

    curves: BetaCurve
    form: str = field(metadata={"static": True})

    _own_axes: ClassVar[int] = 1

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        p = self._scaled(f, 0)
        if self.form == "predicted":
            p = np.where(f > 0, p, 1 - self._scaled(-f, 1))
        return p.astype(np.result_type(f, self.curves.performance))

    def _scaled(self, f: NDArray[Any], region: int) -> Floats:
        parameters = (leaf[..., region].astype(np.float64) for leaf in self.curves)
        curve = BetaCurve(*map(along_rows, parameters))
        return _scale(_ranks(_membership(f), curve), curve, curve.size)


@dataclass(frozen=True)
class BetaScaling(Scaler[FittedBetaScaling]):
    """sigma(m) = Q(B(m)): B a Beta distribution function, Q a Beta quantile function.

    Garczarek (2002, "Classification rules in standardized partition spaces"), as given by Rüping
    (2004, section 3): the parameters make the mean of sigma equal the classifier's performance, and
    minimize the mean squared error. That leaves several readings open; this class takes these:

    - The membership m in [0, 1] of class 1 is the softmax 1 / (1 + exp(-2 f)).
    - B has the mean and variance of the memberships. Then Q's mean is the mean of sigma, and is set
      to the performance, the share of right predictions. (The R package klaR does the same.)
    - Q's other parameter, alpha + beta, minimizes the mean squared error within [0.1, 10^4].
    - form="predicted" (SVM-Beta) has one curve for rows with f > 0 and another, for the membership
      of class 0, for the others; it jumps at 0. form="binary" (Beta-2) has one curve for all rows,
      with the share of class 1 as its mean; it does not descend.

    SciPy computes the Beta functions in float64, which takes nearly all of the time.

    One class or constant scores: flat. A predicted class whose rows are all right, all wrong or all
    of one score is flat, too, by the targets of these rows alone; it is 1/2 without rows.

    Attributes:
        form: "binary" or "predicted".

    Example:
        >>> scores, labels = [-1.0, -0.5, -0.2, 0.1, 0.4, 1.2], [0, 0, 1, 0, 1, 1]
        >>> BetaScaling().fit(scores, labels).predict_proba([-0.5, 0.0, 0.5]).round(4)
        array([0.2161, 0.5156, 0.8063])
    """

    form: Literal["binary", "predicted"] = "binary"

    def __post_init__(self) -> None:
        require(self, "form", self.form in ("binary", "predicted"), '"binary" or "predicted"')

    def _fit_batch(self, rows: FiniteRows) -> FittedBetaScaling:
        curves = list(ordered_map(self._curves, zip(*rows, strict=True)))
        leaves = np.moveaxis(np.array(curves, rows.scores.dtype), -1, 0)
        return FittedBetaScaling(BetaCurve(*leaves), self.form)

    def _curves(self, rows: tuple[NDArray[Any], Bools, NDArray[Any]]) -> list[BetaCurve]:
        """The curves of one problem."""
        f, y, w = rows
        w = w.astype(np.float64)
        if self.form == "binary":
            return [_fit_curve(_membership(f), y, w)]
        above = f > 0
        below = ~above
        return [
            _fit_curve(_membership(f[above]), y[above], w[above]),
            _fit_curve(_membership(-f[below]), ~y[below], w[below]),
        ]


def _membership(f: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):
        member: Floats = expit(2 * f.astype(np.float64))
    return member


def _fit_curve(member: Floats, right: Bools, w: Floats) -> BetaCurve:
    """The curve of rows (N,), given memberships, whether predictions are right, and weights."""
    n_right, n = w[right].sum(), w.sum()
    if n == 0:
        return _curve(0, 0, 0.5)
    mean = (w * member).sum() / n
    variance = (w * (member - mean) ** 2).sum() / n
    most = mean * (1 - mean)
    if not (variance > _LEAST_SHARE * most and 0 < n_right < n):
        return _curve(mean, 0, mean_target(n_right, n - n_right))
    curve = _curve(mean, max(most / variance - 1, _SMALLEST), n_right / n)
    ranks, which = np.unique(_ranks(member, curve), return_inverse=True)
    weight: NDArray[Any] = np.bincount(which, w)
    share = np.bincount(which, w * right) / weight
    return curve._replace(size=np.exp(_best_log_size(curve, ranks, share, weight)))


def _curve(member_mean: float, member_size: float, performance: float) -> BetaCurve:
    return BetaCurve(*np.array([member_mean, member_size, performance, 1.0]))


def _ranks(member: Floats, curve: BetaCurve) -> Floats:
    """B(m): the share of memberships below m, by their Beta distribution."""
    # SciPy adds warning filters when imported, so importing scalers must not import it.
    from scipy.special import betainc

    size = np.where(curve.member_size > 0, curve.member_size, 1)
    mean = np.where(curve.member_size > 0, curve.member_mean, 0.5)
    return betainc(mean * size, (1 - mean) * size, member)


def _scale(ranks: Floats, curve: BetaCurve, size: Array) -> Floats:
    """Q(ranks), or the performance where the curve is flat."""
    p = _quantile(curve.performance * size, (1 - curve.performance) * size, ranks)
    return np.where(curve.member_size > 0, p, curve.performance)


def _quantile(alpha: Array, beta: Array, ranks: Floats) -> Floats:
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


def _best_log_size(curve: BetaCurve, ranks: Floats, share: Floats, weight: Floats) -> float:
    """The log size with the least squared error, from distinct ascending ranks and their rows."""

    def error_of(ranks: Floats, share: Floats, weight: Floats) -> _ErrorOfLogSize:
        def error(log_size: float) -> float:
            p = _scale(ranks, curve, np.exp(log_size))
            return (weight * (p - share) ** 2).sum()

        return error

    starts = np.unique(np.linspace(0, len(ranks), _GROUPS, endpoint=False).astype(int))
    total, sum_share, sum_rank = (
        np.add.reduceat(x, starts) for x in (weight, weight * share, weight * ranks)
    )
    coarse = error_of(sum_rank / total, sum_share / total, total)
    error = error_of(ranks, share, weight)
    return min(_refined(error, start) for start in _minima(coarse))[1]


def _minima(error: _ErrorOfLogSize) -> Iterator[float]:
    """Log sizes near the local minima of an error; there are often two of similar depth."""
    from scipy.optimize import minimize_scalar

    errors = np.array([error(log_size) for log_size in _LOG_SIZES])
    padded = np.pad(errors, 1, constant_values=np.inf)
    (lowest,) = np.nonzero((errors <= padded[:-2]) & (errors < padded[2:]))
    for k in lowest:
        bounds = np.take(_LOG_SIZES, [k - 1, k + 1], mode="clip")
        coarsely = {"xatol": 1e-3}
        yield minimize_scalar(error, bounds=bounds, method="bounded", options=coarsely).x


def _refined(error: _ErrorOfLogSize, start: float) -> tuple[float, float]:
    """The minimum of an error near a log size, and the log size there."""
    at, lowest, step = start, np.inf, 0.0
    while True:
        below, here, above = (error(at + step + h) for h in (-_DIFFERENCE, 0, _DIFFERENCE))
        if here < lowest:
            at, lowest = at + step, here
            slope = (above - below) / (2 * _DIFFERENCE)
            curvature = (above - 2 * here + below) / _DIFFERENCE**2
            step = -slope / curvature if curvature > 0 else -np.sign(slope)
            step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        else:
            step = step / 2
        end = np.clip(at + step, *_LOG_SIZES[[0, -1]])
        step = end - at
        if abs(step) < _SHORTEST_STEP:
            return lowest, end
