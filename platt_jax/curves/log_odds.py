"""Curves whose log-odds are linear in a few parameters, quadratic, beta and spline: their fits."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats, Ints
from platt_jax.backend.threads import run_concurrently
from platt_jax.curves.base import Curve, CurveRows, pieces, pooled, rows_of, thinned
from platt_jax.curves.newton import (
    CurveState,
    Limits,
    Penalty,
    bound,
    last_point,
    loss_terms,
    search,
    undetermined,
)
from platt_jax.execution.problems import Context, Problems, Task
from platt_jax.execution.progress import ignore_progress
from platt_jax.execution.run import run_problems
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import ON_THE_EDGE, Groups
from platt_jax.model import objective
from platt_jax.model.objective import Targets
from platt_jax.model.standardization import Standardization, far_scores_hide_others
from platt_jax.options import Options
from platt_jax.passes.protocol import TermRows
from platt_jax.results.features import (
    BetaFeatures,
    Features,
    QuadraticFeatures,
    ScoreFeatures,
    SplineFeatures,
)
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.solver.flags import far_code, has_inner_scores, raised_flags
from platt_jax.solver.search import TRACED, Runner, host
from platt_jax.solver.solution import coordinates_and_start, rough_coordinates
from platt_jax.status import Flag, Status

# Harrell's quantiles for 3 to 7 knots (2015, "Regression Modeling Strategies", table 2.3).
_QUANTILES = {
    3: (0.1, 0.5, 0.9),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
    6: (0.05, 0.23, 0.41, 0.59, 0.77, 0.95),
    7: (0.025, 0.1833, 0.3417, 0.5, 0.6583, 0.8167, 0.975),
}
# Total loss, in nats, below which labels without Platt's targets are separated by the curve: then
# there is no optimum.
_SEPARATED = 1e-6


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
        together, curves = run_concurrently(
            lambda: self.fit(rows.pooled, pooled(context)),
            lambda: self.fit(rows.problems, context),
        )
        return curves.joined(together)

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
        inputs = jax.tree.map(
            lambda x: np.full(number, x, problems.dtype),
            _Given(coordinates, features.constants, self.penalty_of(features)),
        )
        task = _search_task(features.without_constants())
        return _curves(features, run_problems(task, problems, inputs, context))


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
        thin = thinned(problems)
        parts = [
            _by_quartiles(rows_of(thin, context, part), problems.dtype) for part in pieces(problems)
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
    pair: Any = np.nan_to_num(middle), np.where(half > 0, scale, 1)
    return Standardization(*pair)


def _quartiles(rows: CurveRows) -> Floats:
    """(3, K), NaN without rows. Weight 2 is the row twice.

    A quantile is the mean of the least and the greatest score that have it, so that scores times -1
    have -1 times the quantiles.
    """
    groups, plain = rows.groups, bool((rows.weights == 1).all())
    quartiles = np.full((3, len(groups.sizes)), np.nan)
    for block, indices, inside in groups.lines():
        f = np.full(inside.shape, np.inf, rows.scores.dtype)
        f[inside] = rows.scores[indices]
        if plain:
            f.sort(axis=1)
        else:
            mass, order = np.zeros(inside.shape), np.argsort(f, axis=1)
            mass[inside] = rows.weights[indices]
            f, mass = (np.take_along_axis(x, order, 1) for x in (f, mass))
            np.cumsum(mass, axis=1, out=mass)
        for quantile, p in zip(quartiles, (0.25, 0.5, 0.75), strict=True):
            ends = []
            for share in (p - ON_THE_EDGE, p + ON_THE_EDGE):
                if plain:
                    below = np.ceil(share * groups.sizes[block]).astype(np.int64) - 1
                else:
                    below = (mass < share * mass[:, -1:]).sum(1)
                ends.append(np.take_along_axis(f, below[:, None], 1)[:, 0].astype(float))
            quantile[block] = ends[0] / 2 + ends[1] / 2
    return quartiles


def _half_deviations(rows: CurveRows, middle: Floats, some: Ints) -> Floats:
    """Half the standard deviations of the scores of some problems."""
    groups, indices = Groups(rows.groups.sizes[some]), rows.groups.rows_of(some)
    w, away = rows.weights[indices], rows.scores[indices] / 2 - groups.by_row(middle[some] / 2)
    # In a unit in which no square overflows or vanishes.
    unit = groups.maxima(np.abs(away))
    away = away / groups.by_row(np.where(unit > 0, unit, 1))
    total = groups.sums(w)
    square = groups.sums(w * (away - groups.by_row(groups.sums(w * away) / total)) ** 2)
    deviations: Floats = unit * np.sqrt(square / total)
    return deviations


# --- the fits of many problems at once ------------------------------------------------------------


class _Given(NamedTuple):
    """What is given for each problem."""

    coordinates: Standardization | None  # of the scores; None for the problems' own
    constants: tuple[Any, ...]  # of the functions
    penalty: Penalty = ()


class _FoundCurves(NamedTuple):
    """The curves of all problems; every array has their shape as leading axes."""

    coefficients: jax.Array  # (..., P)
    hessian: jax.Array  # (..., P, P)
    aliased: jax.Array  # (..., P): the rows say nothing of the parameter
    status: jax.Array
    flags: jax.Array
    iterations: jax.Array
    nll: jax.Array
    low: jax.Array
    high: jax.Array
    center: jax.Array
    scale: jax.Array  # of functions of the scores as they are: what they are multiplied by


def _curves(features: Features, found: _FoundCurves) -> LogOddsCurves:
    aliased: NDArray[Any] = np.asarray(found.aliased)
    either = aliased[..., :, None] | aliased[..., None, :]
    eye = np.eye(features.number)
    failed = np.isnan(found.nll)[:, None, None]
    covariance = np.linalg.inv(np.where(either | failed, eye, np.asarray(found.hessian, float)))
    used = "hessian", "aliased"
    fields = {name: x for name, x in found._asdict().items() if name not in used}
    if isinstance(features, ScoreFeatures):
        scale = np.where(np.arange(features.number) > 0, np.asarray(found.scale)[:, None], 1)
        with np.errstate(over="ignore", invalid="ignore"):  # of scores near 0
            covariance *= scale[:, :, None] * scale[:, None].astype(float)
        fields |= {"coefficients": found.coefficients * scale, "scale": np.ones_like(found.scale)}
    covariance[either & ~failed] = 0
    covariance[either & ~failed & (eye > 0)] = np.inf
    with np.errstate(over="ignore"):
        covariance = np.where(failed, np.nan, covariance).astype(found.coefficients.dtype)
    return LogOddsCurves(features=features, covariance=covariance, **fields)


@cache
def _search_task(features: Features) -> Task:
    """The task of fitting such curves. It is cached: compiled programs are found by the task."""
    return Task(partial(_fit, features), partial(_fit, features, runner=host(ignore_progress)))


def _fit(
    features: Features,
    rows: TermRows,
    given: _Given,
    options: Options,
    runner: Runner = TRACED,
) -> _FoundCurves:
    """The curves of the problems of these rows."""
    ranges = rows.score_ranges(options)
    rows = rows.mask_nonfinite(options)
    moments = rows.moments(runner.decide(rough_coordinates)(ranges, options=options))
    start = runner.decide(bound(_start, features))
    frame, targets, theta, limits = start(ranges, moments, given, options=options)
    rows = rows.standardized(frame)
    state = search(rows, theta, targets, limits, features, options, runner)
    point = runner.decide(bound(last_point, features))(state)
    (loss,) = rows.row_sums((point, targets, limits.constants), loss_terms(features))
    report = runner.decide(bound(_report, features))
    return report(state, point, loss, limits, frame, ranges, moments, options=options)


def _start(
    features: Features, ranges: Any, moments: Any, given: _Given, options: Options
) -> tuple[Standardization, Targets, list[jax.Array], Limits]:
    """Coordinates, targets, the start, which is the sigmoid of two normal densities, and limits."""
    n_pos, n_neg = (one_class.total for one_class in moments)
    make = objective.platt_targets if options.targets == "platt" else objective.plain_targets
    targets = make(n_pos, n_neg)
    usual, (A, B), line = coordinates_and_start(ranges, moments, targets, options)
    if line is not None:
        A, B = A + line[0], B + line[1]
    zero = jnp.zeros_like(A)
    frame, constants = given.coordinates or usual, given.constants
    # The same line in these coordinates; a constant where that is out of range.
    slope = -A * usual.scale / frame.scale
    level = -B + A * usual.scale * (usual.center - frame.center)
    usable = jnp.isfinite(slope) & jnp.isfinite(level)
    slope, level = jnp.where(usable, slope, 0), jnp.where(usable, level, -B)
    theta = [level, slope, *[zero] * (features.number - 2)]
    if features.not_negative:
        theta = [level, *[jnp.maximum(slope, 0)] * (features.number - 1)]
    if isinstance(features, ScoreFeatures):
        frame, constants = Standardization(zero, jnp.ones_like(A)), (usual.center, usual.scale)
    # Each function is largest at an end of the scores.
    low, high = (
        features.values((end - frame.center) * frame.scale, constants) for end in ranges.overall()
    )
    largest = [jnp.maximum(jnp.abs(x), jnp.abs(y)) for x, y in zip(low, high, strict=True)]
    if features.not_negative:
        # A parameter that moves no log-odds starts at its bound: on the way there it would hold up
        # the others.
        eps = jnp.finfo(zero.dtype).eps
        pairs = zip(theta[1:], largest, strict=True)
        theta[1:] = [jnp.where(x * y <= eps, 0, x) for x, y in pairs]
    limits = Limits(n_pos + n_neg, constants, [jnp.ones_like(zero), *largest], given.penalty)
    return frame, targets, theta, jax.lax.stop_gradient(limits)


def _report(
    features: Features,
    state: CurveState,
    point: list[jax.Array],
    loss: jax.Array,
    limits: Limits,
    own: Standardization,
    ranges: Any,
    moments: Any,
    options: Options,
) -> _FoundCurves:
    weight = moments[0].total + moments[1].total
    number, status = len(state.theta), state.status
    if options.targets != "platt":
        separated = loss <= _SEPARATED * jnp.minimum(weight, 1)
        status = jnp.where(separated, int(Status.MAX_ITERATIONS), status)
        hidden = far_scores_hide_others(ranges) & (status == Status.CONVERGED)
        status = jnp.where(hidden, int(Status.LINE_SEARCH_FAILED), status)
    aliased = jnp.stack(undetermined(state.at), -1)
    flags = raised_flags(jnp.zeros_like(loss), ranges, moments, options)
    flags |= far_code(ranges, moments, options)
    # Three scores tell the functions apart, unless a far one takes all digits of the others.
    has_far = (flags & Flag.OUTLIER) != 0 if features.name != "quadratic" else True
    hidden = aliased.any(-1) & has_inner_scores(ranges) & has_far & (status == Status.CONVERGED)
    status = jnp.where(hidden, int(Status.LINE_SEARCH_FAILED), status)
    # Functions of finite scores that are not finite are far beyond those of the other scores.
    status = jnp.where(status == Status.NON_FINITE, int(Status.LINE_SEARCH_FAILED), status)
    status = jnp.where(weight == 0, int(Status.EMPTY), status)
    status = jnp.where(ranges.bad, int(Status.NON_FINITE), status)
    failed = (status == Status.NON_FINITE) | (status == Status.EMPTY)
    for x, row in zip(point[2:], limits.penalty, strict=False):
        loss = loss + x / 2 * sum(map(jnp.multiply, row, point[2:]))
    hessian = [
        jnp.stack([state.at.hessian[max(i, j)][min(i, j)] for j in range(number)], -1)
        for i in range(number)
    ]
    if isinstance(features, ScoreFeatures):
        own = Standardization(*limits.constants)
    low, high = ranges.overall()
    nan = jnp.full_like(loss, jnp.nan)
    return _FoundCurves(
        coefficients=jnp.stack([jnp.where(failed, nan, x) for x in point], -1),
        hessian=jnp.stack(hessian, -2),
        aliased=aliased,
        status=status,
        flags=flags,
        iterations=state.iterations,
        nll=jnp.where(failed, nan, loss),
        low=jnp.where(failed, nan, low),
        high=jnp.where(failed, nan, high),
        center=jnp.broadcast_to(own.center, nan.shape),
        scale=jnp.broadcast_to(own.scale, nan.shape),
    )
