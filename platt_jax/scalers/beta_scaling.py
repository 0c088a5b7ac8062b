"""Beta scaling: Beta distributed memberships, made Beta distributed probabilities."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import numpy as np
from scipy.special import betainc, betaincinv

from platt_jax.calibrators import expit
from platt_jax.objective import Array
from platt_jax.scalers.base import Fitted, Scaler, along_rows, mean_target, require

# The sizes alpha_2 + beta_2 that are tried, before the best of them is refined.
_SIZES = np.geomspace(0.1, 1e4, 26)
_REFINEMENTS = 35
_GOLDEN = (math.sqrt(5) - 1) / 2

# Memberships vary if their variance has this share of the most it could be.
_LEAST_SHARE = 1e-10

# Where the memberships are all but 0 or 1, their size is all but 0.
_SMALLEST = 1e-6


class BetaCurve(NamedTuple):
    """The distributions of memberships, and of the probabilities that they become.

    The Beta distribution of a mean m and a size n has alpha = m n and beta = (1 - m) n.
    """

    member_mean: Array
    member_size: Array  # 0 where the curve is flat
    performance: Array  # the mean of the probabilities
    size: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FittedBetaScaling(Fitted):
    """Beta quantiles for Beta probabilities.

    Attributes:
        curves: with arrays (..., 1), one curve for all scores; or (..., 2), those of the predicted
            classes 1 and 0.
        form: as in `BetaScaling`.
    """

    curves: BetaCurve
    form: str = field(metadata={"static": True})

    _own_axes: ClassVar[int] = 1

    def _predict(self, f):
        p = self._scaled(f, 0)
        if self.form == "predicted":
            p = np.where(f > 0, p, 1 - self._scaled(-f, 1))
        return p.astype(np.result_type(f, self.curves.performance))

    def _scaled(self, f, region):
        curve = BetaCurve(*(leaf[..., region].astype(np.float64) for leaf in self.curves))
        curve = _over_rows(curve)
        return _scale(_ranks(_membership(f), curve), curve, curve.size)


@dataclass(frozen=True)
class BetaScaling(Scaler[FittedBetaScaling]):
    """sigma(m) = Q(B(m)): B a Beta distribution function, Q a Beta quantile function.

    Garczarek (2002, "Classification rules in standardized partition spaces"), as Rüping (2004,
    section 3) has it: the parameters are such that the average of sigma is the classifier's
    performance, and the mean squared error is least. Of the readings that leaves open these are
    taken:

    - The membership m in [0, 1] of class 1 is the softmax 1 / (1 + exp(-2 f)).
    - B has the mean and variance of the memberships. Then Q's mean is the average of sigma, and is
      set to the performance, the share of right answers. (So does the R package klaR.)
    - Q's other parameter, alpha + beta, is what minimises the mean squared error, in [0.1, 10^4].
    - form="predicted" (SVM-Beta) has a curve for the rows with f > 0, and one, for the membership
      of class 0, for the others; it jumps at 0. form="binary" (Beta-2) has one curve for all rows,
      with the share of class 1 for its mean; it does not descend.

    SciPy computes the Beta functions, in float64, for all problems together.

    One class or constant scores: flat; likewise a predicted class whose rows are all right, all
    wrong or all of one score, by the targets of these rows alone, and 1/2 if it has no rows.

    Attributes:
        form: "binary" or "predicted".

    Example:
        >>> scores, labels = [-1.0, -0.5, -0.2, 0.1, 0.4, 1.2], [0, 0, 1, 0, 1, 1]
        >>> BetaScaling().fit(scores, labels).predict_proba([-0.5, 0.0, 0.5]).round(4)
        array([0.2161, 0.5156, 0.8063])
    """

    form: Literal["binary", "predicted"] = "binary"

    def __post_init__(self):
        require(self, "form", self.form in ("binary", "predicted"), '"binary" or "predicted"')

    def _fit_batch(self, rows):
        f, y, w = rows
        dtype, w = f.dtype, w.astype(np.float64)
        if self.form == "binary":
            curves = [_fit_curve(_membership(f), y, w)]
        else:
            above = f > 0
            curves = [
                _fit_curve(_membership(f), y, np.where(above, w, 0)),
                _fit_curve(_membership(-f), ~y, np.where(above, 0, w)),
            ]
        leaves = (np.stack(leaf, axis=-1).astype(dtype) for leaf in zip(*curves, strict=True))
        return FittedBetaScaling(BetaCurve(*leaves), self.form)


def _membership(f):
    with np.errstate(over="ignore"):
        return expit(2 * f.astype(np.float64))


def _fit_curve(member, right, w) -> BetaCurve:
    """The curves of K problems, from memberships, whether they are right, and weights (K, N)."""
    n_right, n = (w * right).sum(axis=1), w.sum(axis=1)
    some = n > 0
    total, n_wrong = np.where(some, n, 1), np.where(some, n - n_right, 1)
    mean = (w * member).sum(axis=1) / total
    variance = (w * (member - mean[:, None]) ** 2).sum(axis=1) / total
    most = mean * (1 - mean)
    curved = (variance > _LEAST_SHARE * most) & (n_right > 0) & (n_right < n)
    flat = np.where(some, mean_target(n_right, n_wrong), 0.5)
    member_size = np.maximum(most / np.where(curved, variance, 1) - 1, _SMALLEST)
    curve = BetaCurve(
        member_mean=mean,
        member_size=np.where(curved, member_size, 0),
        performance=np.where(curved, n_right / total, flat),
        size=np.ones_like(n),
    )
    over_rows = _over_rows(curve)
    ranks = _ranks(member, over_rows)

    def error(log_size):
        p = _scale(ranks, over_rows, np.exp(log_size)[:, None])
        return (w * (p - right) ** 2).sum(axis=1)

    return curve._replace(size=np.where(curved, np.exp(_least(error, len(n))), 1))


def _over_rows(curve):
    return BetaCurve(*(along_rows(leaf) for leaf in curve))


def _ranks(member, curve):
    """B(m): how many of the memberships lie below, if they are Beta distributed."""
    size = np.where(curve.member_size > 0, curve.member_size, 1)
    mean = np.where(curve.member_size > 0, curve.member_mean, 0.5)
    return betainc(mean * size, (1 - mean) * size, member)


def _scale(ranks, curve, size):
    """Q(ranks), or the performance where the curve is flat."""
    p = betaincinv(curve.performance * size, (1 - curve.performance) * size, ranks)
    return np.where(curve.member_size > 0, p, curve.performance)


def _least(error, problems):
    """Where the errors of K problems are least: the best of a grid, then golden section."""
    grid = np.log(_SIZES)
    errors = np.stack([error(np.full(problems, point)) for point in grid])
    best = errors.argmin(axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = error(left), error(right)
    for _ in range(_REFINEMENTS):
        below = at_left < at_right
        low, high = np.where(below, low, left), np.where(below, right, high)
        new = np.where(below, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_new = error(new)
        left, right = np.where(below, new, right), np.where(below, left, new)
        at_left, at_right = np.where(below, at_new, at_right), np.where(below, at_left, at_new)
    return (low + high) / 2
