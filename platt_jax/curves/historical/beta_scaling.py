"""Beta scaling: Beta distributed memberships mapped to Beta distributed probabilities."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from platt_jax.arrays import Floats
from platt_jax.backend.threads import ordered_map
from platt_jax.curves.base import SortedRows, SortingCurve
from platt_jax.curves.historical.sums import flat_probability, require
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.historical_curves import (
    BetaScalingCurves,
    beta_quantile,
    member_ranks,
    membership,
)
from platt_jax.status import Status

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


class _BetaCurve(NamedTuple):
    """A curve, as in `BetaScalingCurves`."""

    member_mean: float
    member_size: float
    performance: float
    size: float = 1.0


@dataclass(frozen=True)
class BetaScaling(SortingCurve):
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

    One class or constant scores: the mean of Platt's targets for every score. A predicted class
    whose rows are all right, all wrong or all of one score is flat, too, by the targets of these
    rows alone; it is 1/2 without rows.

    Attributes:
        form: "binary" or "predicted".

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [-1.0, -0.5, -0.2, 0.1, 0.4, 1.2], [0, 0, 1, 0, 1, 1]
        >>> fitted = fit(scores, labels, curve=BetaScaling())
        >>> fitted.predict_proba([-0.5, 0.0, 0.5]).round(4)
        array([0.2161, 0.5156, 0.8063])
    """

    form: Literal["binary", "predicted"] = "binary"

    def __post_init__(self) -> None:
        require(self, "form", self.form in ("binary", "predicted"), '"binary" or "predicted"')

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        made = ordered_map(self._curves, _by_problem(rows))
        regions = 1 if self.form == "binary" else 2
        numbers = np.array(list(made), rows.scores.dtype).reshape(-1, regions, 4)
        numbers[rows.status != Status.CONVERGED] = np.nan
        named = zip(_BetaCurve._fields, np.moveaxis(numbers, -1, 0), strict=True)
        return BetaScalingCurves(**dict(named), **common)

    def _curves(self, rows: tuple[Floats, ...]) -> list[_BetaCurve]:
        """The curves of one problem, from its scores, all weights, and the weights of class 1."""
        f, w, positive = rows
        if self.form == "binary":
            return [_fit_curve(membership(f), w, positive)]
        up = f > 0
        return [
            _fit_curve(membership(f[up]), w[up], positive[up]),
            _fit_curve(membership(-f[~up]), w[~up], (w - positive)[~up]),
        ]


def _by_problem(rows: SortedRows) -> Iterator[tuple[Floats, ...]]:
    for first, size in zip(rows.groups.starts, rows.groups.sizes, strict=True):
        yield tuple(x[first : first + size] for x in (rows.scores, rows.weights, rows.positive))


def _fit_curve(member: Floats, w: Floats, right: Floats) -> _BetaCurve:
    """The curve of memberships, given their weights and the weights of right predictions."""
    n_right, n = right.sum(), w.sum()
    if n == 0:
        return _BetaCurve(0, 0, 0.5)
    mean = (w * member).sum() / n
    variance = (w * (member - mean) ** 2).sum() / n
    most = mean * (1 - mean)
    if not (variance > _LEAST_SHARE * most and 0 < n_right < n):
        return _BetaCurve(mean, 0, flat_probability(n_right, n - n_right))
    curve = _BetaCurve(mean, max(most / variance - 1, _SMALLEST), n_right / n)
    ranks, which = np.unique(
        member_ranks(member, curve.member_mean, curve.member_size), return_inverse=True
    )
    weight: Any = np.bincount(which, w)
    share = np.bincount(which, right) / weight
    return curve._replace(size=np.exp(_best_log_size(curve, ranks, share, weight)))


def _best_log_size(curve: _BetaCurve, ranks: Floats, share: Floats, weight: Floats) -> float:
    """The log size with the least squared error, from distinct ascending ranks and their rows."""

    def error_of(ranks: Floats, share: Floats, weight: Floats) -> _ErrorOfLogSize:
        def error(log_size: float) -> float:
            size = np.exp(log_size)
            p = beta_quantile(curve.performance * size, (1 - curve.performance) * size, ranks)
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
