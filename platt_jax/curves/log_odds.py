"""Curves whose log-odds are linear in a few parameters: quadratic, beta and spline."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.backend.threads import run_concurrently
from platt_jax.curves.base import Curve, pooled
from platt_jax.curves.log_odds_task import FoundCurves, Given, search_task
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import Groups
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import quartiles
from platt_jax.passes import packing
from platt_jax.results.features import BetaFeatures, Features, QuadraticFeatures, SplineFeatures
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves

# Rows sampled for the knots of a spline, and rows read together for that.
_SAMPLED_ROWS, _TOGETHER = 100_000, 1 << 18
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

    penalty = 0.0

    def fit_rows(self, rows: SegmentRows, context: Context) -> FittedCurves:
        """See `Curve`. All have the functions that suit the segments."""
        made = self.made_for(rows.problems)
        together, each = run_concurrently(
            lambda: self._fitted(rows.pooled, pooled(context), *made),
            lambda: self._fitted(rows.problems, context, *made),
        )
        return each.joined(together)

    def fit(self, problems: Problems, context: Context) -> FittedCurves:
        """See `Curve`."""
        return self._fitted(problems, context, *self.made_for(problems))

    @abstractmethod
    def made_for(self, problems: Problems) -> tuple[Features, Standardization | None]:
        """The functions, and the coordinates that all problems share; None for their own."""

    def _fitted(
        self,
        problems: Problems,
        context: Context,
        features: Features,
        coordinates: Standardization | None,
    ) -> LogOddsCurves:
        number = len(problems.sizes)
        given = jax.tree.map(
            lambda x: np.full(number, x, problems.dtype), Given(coordinates, features.constants)
        )
        task = search_task(features.without_constants(), self.penalty)
        return _curves(features, run_problems(task, problems, given, context))


def _curves(features: Features, found: FoundCurves) -> LogOddsCurves:
    aliased: NDArray[Any] = np.asarray(found.aliased)
    either = aliased[..., :, None] | aliased[..., None, :]
    one = np.eye(features.number)
    failed = np.isnan(found.nll)[:, None, None]
    covariance = np.linalg.inv(np.where(either | failed, one, np.asarray(found.hessian, float)))
    covariance[either & ~failed] = 0
    covariance[either & ~failed & (one > 0)] = np.inf
    used = "hessian", "aliased"
    return LogOddsCurves(
        features=features,
        covariance=np.where(failed, np.nan, covariance).astype(found.coefficients.dtype),
        **{name: x for name, x in found._asdict().items() if name not in used},
    )


@dataclass(frozen=True)
class Quadratic(LogOddsCurve):
    """Log-odds that are quadratic in the score, and go on along the tangent beyond its range.

    Example:
        >>> from platt_jax import fit
        >>> fit([-2.0, -1.0, 0.0, 1.0], [0, 1, 0, 1], curve=Quadratic()).predict_proba([0.0]).shape
        (1,)
    """

    name: ClassVar[str] = "quadratic"

    def made_for(self, problems: Problems) -> tuple[Features, Standardization | None]:
        """See `LogOddsCurve`."""
        return QuadraticFeatures(), None


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

    def made_for(self, problems: Problems) -> tuple[Features, Standardization | None]:
        """See `LogOddsCurve`."""
        return BetaFeatures(), None


@dataclass(frozen=True)
class Spline(LogOddsCurve):
    """Log-odds that are a natural cubic spline of the score, linear beyond the outer knots.

    The knots are quantiles of the scores of all problems (Harrell 2015, section 2.4.6). A normal
    prior keeps curves of few rows near a line: the parameters of what is curved have mean 0 and
    the precision `penalty`.

    Attributes:
        knots: number of knots, 3 to 7.
        penalty: the precision, >= 0; scores have an interquartile range of 1.35.

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

    def made_for(self, problems: Problems) -> tuple[Features, Standardization | None]:
        """See `LogOddsCurve`."""
        sample = _sampled_scores(problems)
        if not len(sample):
            sample = np.zeros(1)
        weights = np.ones(len(sample))
        low, middle, high, deviation = quartiles(sample, weights, np)
        width = (high - low) / 1.349 or deviation or 1.0
        scale = 2.0 ** -np.round(np.log2(width))
        u = np.quantile((sample - middle) * scale, _QUANTILES[self.knots])
        knots = np.unique(u)
        if len(knots) < self.knots:  # few distinct scores
            knots = np.linspace(min(u[0], -1), max(u[-1], 1), self.knots)
        return SplineFeatures(tuple(map(float, knots))), Standardization(middle, scale)


def _sampled_scores(problems: Problems) -> NDArray[Any]:
    """Finite scores of evenly spaced rows."""
    sizes = np.asarray(problems.sizes, np.int64)
    step, found = max(1, int(sizes.sum()) // _SAMPLED_ROWS), []
    for some in Groups(sizes).slices(_TOGETHER):
        if rows := int(sizes[some].sum()):
            taken = problems.take(some, slice(None), packing.Space(rows))
            found.append(np.asarray(taken.scores)[:rows:step].astype(float))
    sample = np.concatenate(found) if found else np.empty(0)
    return sample[np.isfinite(sample)]
