"""Curves that are fixed, or that a few sums over the rows determine."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.curves.base import SortedRows, SortingCurve
from platt_jax.groups import Groups
from platt_jax.model.objective import platt_targets
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.historical_curves import CosineCurves, ParabolaCurves
from platt_jax.results.ragged_curves import CornerCurves
from platt_jax.status import Status


def require(curve: Any, name: str, ok: bool, expected: str) -> None:
    """Check an option of a curve."""
    if not ok:
        raise ValueError(
            f"{type(curve).__name__}({name}={getattr(curve, name)!r}): expected {expected}"
        )


def flat_probability(n_pos: Any, n_neg: Any) -> Any:
    """The mean of Platt's targets: the prediction where the scores are uninformative."""
    targets = platt_targets(n_pos, n_neg)
    return (n_pos * targets.positive + n_neg * targets.negative) / (n_pos + n_neg)


class _Shares(SortingCurve):
    """The score of a support vector machine as a probability, mapped linearly between the margins.

    Between -1 and 1 it is (1 + f) / 2. Beyond them it indicates only the side of the row.
    """

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        lost = rows.status != Status.CONVERGED
        low, high = (np.where(lost, np.nan, x) for x in self._ends(rows))
        # Ends in the wrong order leave one corner.
        both = ~(low >= high)
        kept = np.stack([both, np.ones_like(both)], 1)
        p = np.stack([low, high], 1)[kept].astype(rows.scores.dtype)
        scores = np.nan_to_num(2 * p - 1)
        return CornerCurves(sizes=1 + both, scores=scores, probabilities=p, **common)

    @abstractmethod
    def _ends(self, rows: SortedRows) -> tuple[Floats, Floats]:
        """(K,) the lowest and the highest probability."""


@dataclass(frozen=True)
class Clip(_Shares):
    """(1 + f) / 2 clipped to [0, 1], which Rüping's tables call SVM-01 (2004, section 3).

    Nothing is learned: no row changes the predictions.

    Example:
        >>> from platt_jax import fit
        >>> fit([0.5, -2.0], [1, 0], curve=Clip()).predict_proba([-3.0, 0.5, 3.0])
        array([0.  , 0.75, 1.  ])
    """

    def _ends(self, rows: SortedRows) -> tuple[Floats, Floats]:
        number = len(rows.status)
        return np.zeros(number), np.ones(number)


@dataclass(frozen=True)
class PPClip(_Shares):
    """(1 + f) / 2 clipped to [P(y=1 | f < -1), P(y=1 | f > 1)]: Rüping's SVM-PP (2004, section 3).

    Section 3.2 also allows a step at each margin; section 4 describes clipping, which is monotone.
    Where no row lies beyond a margin, that end is 0 or 1, as in `Clip`. Where the ends are in the
    wrong order, all scores get the upper one.

    One class or constant scores: no exception. Nothing is smoothed, so an end may be 0 or 1.

    Example:
        >>> from platt_jax import fit
        >>> fitted = fit([-3.0, -2.0, 0.0, 1.5, 2.0], [0, 1, 0, 1, 1], curve=PPClip())
        >>> fitted.predict_proba([-9.0, 0.2, 9.0])
        array([0.5, 0.6, 1. ])
    """

    def _ends(self, rows: SortedRows) -> tuple[Floats, Floats]:
        def share(beyond: NDArray[np.bool_], otherwise: int) -> Floats:
            total, n_pos = rows.groups.sums(np.where(beyond, (rows.weights, rows.positive), 0))
            return np.where(total > 0, n_pos / np.where(total > 0, total, 1), otherwise)

        return share(rows.scores < -1, 0), share(rows.scores > 1, 1)


@dataclass(frozen=True)
class Softmax(SortingCurve):
    """1 / (1 + exp(-2 f)) (Rüping 2004, section 3).

    Nothing is learned: no row changes the predictions.

    Example:
        >>> from platt_jax import fit
        >>> fit([0.5, -2.0], [1, 0], curve=Softmax()).predict_proba([-1.0, 0.0]).round(4)
        array([0.1192, 0.5   ])
    """

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        zero, one, two = (np.full(len(rows.status), x) for x in (0.0, 1.0, 2.0))
        return _parabolas(rows, common, zero, one, zero, two, zero)


@dataclass(frozen=True)
class Gaussian(SortingCurve):
    """P(y=1 | f) from normal densities of f given y, by Bayes' rule.

    Means and variances are maximum-likelihood estimates (sums of squares divided by the count).
    With variance="tied", as in Hastie & Tibshirani (1998, "Classification by pairwise coupling"),
    both classes share the pooled variance s^2. With m1 and m0 the classes' means, the log-odds are

        (m1 - m0) / s^2 (f - (m1 + m0) / 2) + log(n_pos / n_neg),

    a sigmoid. With bias="zero" only its slope is used, and P(y=1 | f = 0) is 1/2, as those authors
    did according to Platt (1999, section 1). With variance="separate" each class has its own
    variance, and the log-odds are a f^2 + b f + c, which is not monotone, as Platt remarks there.

    One class or constant scores: the mean of Platt's targets for every score. A class whose scores
    are all equal uses the pooled variance. The pooled variance is at least (eps range)^2 / 4, so
    that classes without any variance are separated by a steep but finite slope.

    Attributes:
        variance: "tied" or "separate".
        bias: "bayes" to use the classes' shares, or "zero" (with variance="tied").

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [0, 0, 1, 0, 1, 1]
        >>> fit(scores, labels, curve=Gaussian()).predict_proba([0.5, 2.0]).round(6)
        array([0.5     , 0.904651])
        >>> fit(scores, labels, curve=Gaussian("tied", bias="zero")).predict_proba([0.0])
        array([0.5])
    """

    variance: Literal["tied", "separate"] = "tied"
    bias: Literal["bayes", "zero"] = "bayes"

    def __post_init__(self) -> None:
        require(self, "variance", self.variance in ("tied", "separate"), '"tied" or "separate"')
        require(self, "bias", self.bias in ("bayes", "zero"), '"bayes" or "zero"')
        allowed = self.bias == "bayes" or self.variance == "tied"
        require(self, "bias", allowed, '"bayes" with variance="separate"')

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        center, scale, u = _coordinates(rows, common)
        with np.errstate(divide="ignore", invalid="ignore"):
            n_pos, mean_pos, square_pos = _moments(rows.groups, u, rows.positive)
            n_neg, mean_neg, square_neg = _moments(rows.groups, u, rows.weights - rows.positive)
            least = np.finfo(rows.scores.dtype).eps ** 2
            pooled = np.maximum((square_pos + square_neg) / (n_pos + n_neg), least)
            variance_pos = variance_neg = pooled
            if self.variance == "separate":
                variance_pos, variance_neg = (
                    np.where(x > least, x, pooled) for x in (square_pos / n_pos, square_neg / n_neg)
                )
            # u is measured from the midpoint of the means, so these are -half and half.
            half = (mean_pos - mean_neg) / 2
            quadratic = 1 / (2 * variance_neg) - 1 / (2 * variance_pos)
            slope = half * (1 / variance_pos + 1 / variance_neg)
            middle = center + (mean_pos + mean_neg) / 2 / scale
            intercept = np.log(n_pos / n_neg) + quadratic * half * half
            intercept = intercept + np.log(variance_neg / variance_pos) / 2
            if self.bias == "zero":
                middle = intercept = np.zeros_like(center)
            p = flat_probability(n_pos, n_neg)
            flat = np.log(p / (1 - p))
        useful = (n_pos > 0) & (n_neg > 0) & (common["low"] < common["high"])
        return _parabolas(
            rows,
            common,
            np.where(useful, middle, center),
            scale,
            np.where(useful, quadratic, 0),
            np.where(useful, slope, 0),
            np.where(useful, intercept, flat),
        )


@dataclass(frozen=True)
class CosineExpansion(SortingCurve):
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
        >>> from platt_jax import fit
        >>> fitted = fit([0.0, 1.0, 2.0], [0, 0, 1], curve=CosineExpansion(1, penalty=1.0))
        >>> fitted.predict_proba([0.0, 1.0, 2.0]).round(4)
        array([0.1333, 0.3333, 0.5333])
    """

    terms: int = 8
    penalty: float = 1e-3

    def __post_init__(self) -> None:
        ok = isinstance(self.terms, int) and self.terms >= 1
        require(self, "terms", ok, "an integer >= 1")
        require(self, "penalty", 0 < self.penalty < math.inf, "a number > 0")

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        center, scale, u = _coordinates(rows, common)
        groups, n = rows.groups, np.arange(1, self.terms + 1)
        basis = np.cos(np.multiply.outer(n, (1 + u) * (math.pi / 2)))
        total = groups.by_row(groups.sums(rows.weights))
        share, positive = rows.weights / total, rows.positive / total
        # Cosines and labels minus their means: a_0, which has no penalty, is what remains. Together
        # with a_0 the system is ill-conditioned where the scores are nearly constant.
        mean, rate = groups.sums(share * basis), groups.sums(positive)
        basis = basis - groups.by_row(mean)
        system = np.stack([groups.sums(share * x * basis) for x in basis]).T
        wanted = groups.sums(basis * (positive - groups.by_row(rate) * share)).T
        system = system + self.penalty * np.diag(n * n)
        coefficients = np.linalg.solve(system, wanted[..., None])[..., 0]
        first = rate - (mean.T * coefficients).sum(1)
        made = center, scale, np.column_stack([first, coefficients])
        center, scale, coefficients = (x.astype(rows.scores.dtype) for x in made)
        return CosineCurves(center=center, scale=scale, coefficients=coefficients, **common)


def _coordinates(rows: SortedRows, common: dict[str, Any]) -> tuple[Floats, Floats, Floats]:
    """Center and scale (K,) that map scores to [-1, 1], or constant scores to 0; mapped scores."""
    low, high = (common[end].astype(np.float64) for end in ("low", "high"))
    # Halved before they are subtracted, because the range of finite scores may overflow.
    center, half = low / 2 + high / 2, high / 2 - low / 2
    scale = np.where(half > 0, 1 / np.maximum(half, np.finfo(rows.scores.dtype).tiny), 1)
    u = (rows.scores - rows.groups.by_row(center)) * rows.groups.by_row(scale)
    return center, scale, u


def _moments(groups: Groups, u: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """Weight, mean, and sum of squares about it, of each problem; the last two 0 without weight."""
    total = groups.sums(w)
    mean = groups.sums(w * u) / np.where(total > 0, total, 1)
    return total, mean, groups.sums(w * (u - groups.by_row(mean)) ** 2)


def _parabolas(
    rows: SortedRows,
    common: dict[str, Any],
    center: Floats,
    scale: Floats,
    quadratic: Floats,
    slope: Floats,
    intercept: Floats,
) -> ParabolaCurves:
    lost, dtype = rows.status != Status.CONVERGED, rows.scores.dtype
    return ParabolaCurves(
        center=center.astype(dtype),
        scale=scale.astype(dtype),
        quadratic=quadratic.astype(dtype),
        slope=slope.astype(dtype),
        intercept=np.where(lost, np.nan, intercept).astype(dtype),
        **common,
    )
