"""Curves whose log-odds are linear in a few parameters: quadratic, beta and spline."""

from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.backend.threads import run_concurrently
from platt_jax.curves.base import Curve, CurveRows, pieces, pooled, rows_of, thinned
from platt_jax.curves.log_odds_task import FoundCurves, Given, search_task
from platt_jax.curves.newton import Penalty
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import ON_THE_EDGE, Groups
from platt_jax.model.standardization import Standardization
from platt_jax.results.features import (
    BetaFeatures,
    Features,
    QuadraticFeatures,
    ScoreFeatures,
    SplineFeatures,
)
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves

# Harrell's quantiles for 3 to 7 knots (2015, "Regression Modeling Strategies", table 2.3).
_QUANTILES = {
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
    6: (0.05, 0.23, 0.41, 0.59, 0.77, 0.95),
    7: (0.025, 0.1833, 0.3417, 0.5, 0.6583, 0.8167, 0.975),
}


@dataclass(frozen=True)
class LogOddsCurve(Curve):
    """A curve whose log-odds are a sum of functions of the score, each times a parameter.

    The parameters minimise the log loss with Platt's targets, or with the labels as they are, by
    `Options.targets`. Weights and offsets are as in `platt_jax.fit`.
    """

    def penalty_of(self, features: Any) -> Penalty:
        """What keeps the curve near a line."""
        return ()

    def fit_rows(self, rows: SegmentRows, context: Context) -> FittedCurves:
        """See `Curve`."""
        together, each = run_concurrently(
            lambda: self.fit(rows.pooled, pooled(context)),
            lambda: self.fit(rows.problems, context),
        )
        return each.joined(together)

    @property
    @abstractmethod
    def features(self) -> Features:
        """The functions, the same for all problems."""

    def coordinates(self, problems: Problems, context: Context) -> Standardization | None:
        """Of each problem, (K,); None for those of its search."""
        return None

    def fit(self, problems: Problems, context: Context) -> LogOddsCurves:
        """See `Curve`."""
        number, features = len(problems.sizes), self.features
        coordinates = self.coordinates(problems, context)
        given = jax.tree.map(
            lambda x: np.full(number, x, problems.dtype),
            Given(coordinates, features.constants, self.penalty_of(features)),
        )
        task = search_task(features.without_constants())
        return _curves(features, run_problems(task, problems, given, context))


def _curves(features: Features, found: FoundCurves) -> LogOddsCurves:
    aliased: NDArray[Any] = np.asarray(found.aliased)
    either = aliased[..., :, None] | aliased[..., None, :]
    one = np.eye(features.number)
    failed = np.isnan(found.nll)[:, None, None]
    covariance = np.linalg.inv(np.where(either | failed, one, np.asarray(found.hessian, float)))
    used = "hessian", "aliased"
    fields = {name: x for name, x in found._asdict().items() if name not in used}
    if isinstance(features, ScoreFeatures):
        scale = np.where(np.arange(features.number) > 0, np.asarray(found.scale)[:, None], 1)
        with np.errstate(over="ignore", invalid="ignore"):  # of scores near 0
            covariance *= scale[:, :, None] * scale[:, None].astype(float)
        fields |= {"coefficients": found.coefficients * scale, "scale": np.ones_like(found.scale)}
    covariance[either & ~failed] = 0
    covariance[either & ~failed & (one > 0)] = np.inf
    with np.errstate(over="ignore"):
        covariance = np.where(failed, np.nan, covariance).astype(found.coefficients.dtype)
    return LogOddsCurves(features=features, covariance=covariance, **fields)


@dataclass(frozen=True)
class Quadratic(LogOddsCurve):
    """Log-odds that are quadratic in the score, and go on along the tangent beyond its range.

    Example:
        >>> from platt_jax import fit
        >>> fit([-2.0, -1.0, 0.0, 1.0], [0, 1, 0, 1], curve=Quadratic()).predict_proba([0.0]).shape
        (1,)
    """

    name: ClassVar[str] = "quadratic"

    @property
    def features(self) -> Features:
        """See `LogOddsCurve`."""
        return QuadraticFeatures()


@dataclass(frozen=True)
class Beta(LogOddsCurve):
    """Beta calibration: log-odds c + a log q - b log(1 - q) with a, b >= 0, for log-odds as scores.

    q is 1 / (1 + exp(-score)). Kull, Silva Filho & Flach (2017, "Beta calibration", section 4) use
    the labels without Platt's targets: Options(targets="none"). One class or constant scores: the
    mean of the targets for every score.

    Example:
        >>> from platt_jax import Options, fit, logit
        >>> f, labels = logit([0.1, 0.4, 0.35, 0.8, 0.7, 0.9]), [0, 1, 0, 0, 1, 1]
        >>> fitted = fit(f, labels, curve=Beta(), options=Options(targets="none"))
        >>> fitted.predict_proba(logit([0.2, 0.8])).round(4)
        array([0.1712, 0.7225])
    """

    name: ClassVar[str] = "beta"

    @property
    def features(self) -> Features:
        """See `LogOddsCurve`."""
        return BetaFeatures()


@dataclass(frozen=True)
class Spline(LogOddsCurve):
    """Log-odds that are a natural cubic spline of the score, linear beyond the outer knots.

    The scores of each problem are moved and scaled to the median 0 and the interquartile range
    1.349 of a standard normal distribution, whose quantiles are the knots (Harrell 2015, section
    2.4.6). With more than 262,144 rows these are the quartiles of evenly spaced rows. A penalty
    keeps curves of few rows near a line: half the integral of the squared second derivative of the
    log-odds, times `penalty`, is added to the loss (Green & Silverman 1994, "Nonparametric
    Regression and Generalized Linear Models"). It does not depend on the unit of the scores.

    Attributes:
        knots: number of knots, 3 to 7.
        penalty: the factor, >= 0, for scores with an interquartile range of 1.349.

    Example:
        >>> from platt_jax import fit
        >>> bool(fit([-2.0, -1.0, 0.0, 1.0], [0, 1, 0, 1], curve=Spline(knots=3)).converged)
        True
    """

    name: ClassVar[str] = "spline"

    knots: int = 4
    penalty: float = 0.1

    def __post_init__(self) -> None:
        if self.knots not in _QUANTILES:
            raise ValueError(f"Spline(knots={self.knots!r}): expected an integer from 3 to 7")
        if not 0 <= self.penalty < np.inf:
            raise ValueError(f"Spline(penalty={self.penalty!r}): expected a number >= 0")

    @property
    def features(self) -> Features:
        """See `LogOddsCurve`."""
        return SplineFeatures(tuple(map(NormalDist().inv_cdf, _QUANTILES[self.knots])))

    def coordinates(self, problems: Problems, context: Context) -> Standardization:
        """See `LogOddsCurve`. Scores have the median 0 and the interquartile range 1.349."""
        some = thinned(problems)
        parts = [
            _by_quartiles(rows_of(some, context, part), problems.dtype) for part in pieces(problems)
        ]
        order = slice(None) if problems.order is None else np.argsort(problems.order)
        return jax.tree.map(lambda *x: np.concatenate(x)[order], *parts)

    def penalty_of(self, features: Any) -> Penalty:
        """See `LogOddsCurve`."""
        penalty: list[list[float]] = (self.penalty * features.roughness).tolist()
        return penalty


def _by_quartiles(rows: CurveRows, dtype: np.dtype[Any]) -> Standardization:
    """Coordinates by the problems' own quartiles; by the standard deviation if two are equal."""
    low, middle, high = _quartiles(rows)
    half = (high / 2 - low / 2) / 1.349  # halved: the range of finite scores may overflow
    if len(equal := np.flatnonzero(half == 0)):
        half[equal] = _half_deviations(rows, middle, equal)
    with np.errstate(divide="ignore", over="ignore"):  # of scores near 0
        scale = np.minimum(0.5 / half, np.finfo(dtype).max)
    made: Any = np.nan_to_num(middle), np.where(half > 0, scale, 1)
    return Standardization(*made)


def _quartiles(rows: CurveRows) -> Floats:
    """(3, K), NaN without rows. Weight 2 is the row twice.

    A quantile is the mean of the least and the greatest score that have it, so that scores times -1
    have -1 times the quantiles.
    """
    groups, plain = rows.groups, bool((rows.weights == 1).all())
    found = np.full((3, len(groups.sizes)), np.nan)
    for some, mine, inside in groups.lines():
        f = np.full(inside.shape, np.inf, rows.scores.dtype)
        f[inside] = rows.scores[mine]
        if plain:
            f.sort(axis=1)
        else:
            mass, order = np.zeros(inside.shape), np.argsort(f, axis=1)
            mass[inside] = rows.weights[mine]
            f, mass = (np.take_along_axis(x, order, 1) for x in (f, mass))
            np.cumsum(mass, axis=1, out=mass)
        for quantile, p in zip(found, (0.25, 0.5, 0.75), strict=True):
            ends = []
            for share in (p - ON_THE_EDGE, p + ON_THE_EDGE):
                if plain:
                    below = np.ceil(share * groups.sizes[some]).astype(np.int64) - 1
                else:
                    below = (mass < share * mass[:, -1:]).sum(1)
                ends.append(np.take_along_axis(f, below[:, None], 1)[:, 0].astype(float))
            quantile[some] = ends[0] / 2 + ends[1] / 2
    return found


def _half_deviations(rows: CurveRows, middle: Floats, some: Ints) -> Floats:
    """Half the standard deviations of the scores of some problems."""
    own, at = Groups(rows.groups.sizes[some]), rows.groups.rows_of(some)
    w, away = rows.weights[at], rows.scores[at] / 2 - own.by_row(middle[some] / 2)
    # In a unit in which no square overflows or vanishes.
    unit = own.maxima(np.abs(away))
    away = away / own.by_row(np.where(unit > 0, unit, 1))
    whole = own.sums(w)
    square = own.sums(w * (away - own.by_row(own.sums(w * away) / whole)) ** 2)
    deviations: Floats = unit * np.sqrt(square / whole)
    return deviations
