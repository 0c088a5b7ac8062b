"""Calibration without bins: isotonic and smooth reliability curves of one problem."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Bools, Floats
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.metrics.rows import Predictions, documented, read_predictions
from platt_jax.results.probabilities import critical_value, expit, log_expit
from platt_jax.searches import newton_maximum

# Powers of two from which on more rows are not drawn: they are counted by 64-bit integers; and
# above which counts remain scaled: the end of the spline's search depends on them.
_MOST_DRAWN, MOST_FITTED = 60, 40
_RANKS = 500  # number of evenly ranked predictions on the isotonic curve, besides its corners
_POINTS = 200  # of the curve, evenly spaced by rank
# Quantiles of the logits at which splines have their knots (Harrell 2015, table 2.3), and the
# number of rows of the rarer class from which on a spline, or a line, is used.
_KNOTS = (
    (100, (0.05, 0.275, 0.5, 0.725, 0.95)),
    (60, (0.05, 0.35, 0.65, 0.95)),
    (30, (0.1, 0.5, 0.9)),
    (5, ()),
)
_LENGTHS, _ENOUGH = 30, 1e-8
_ROUNDING = 4 * np.finfo(float).eps  # of a loss
# Of classes that do not overlap the search ends where rounding ends it, far out. A standard error
# of log-odds above this shows it.
_MOST_ERROR = 30.0
_APART = (
    "labels: a threshold of proba splits the classes, so the smooth curve has infinite log-odds, "
    "and is NaN; isotonic_curve and reliability_curve have frequencies"
)
_NOT_FOUND = "labels: the search for a smooth curve did not converge, and the curve is NaN"


class IsotonicCurve(NamedTuple):
    """Predicted and observed frequencies without bins; each (M,), in float64.

    The M predictions are the corners of the curve and up to 500 others, evenly spaced by rank;
    between them all three curves are linear.

    Attributes:
        prob_pred: distinct predictions, ascending.
        prob_true: frequency of class 1 by isotonic regression, non-decreasing.
        lower: lower end of the consistency band, which holds prob_true if the predictions are
            right.
        upper: upper end of the consistency band.
    """

    prob_pred: Floats
    prob_true: Floats
    lower: Floats
    upper: Floats


class SmoothCurve(NamedTuple):
    """Predicted and observed frequencies without bins; each (M,), in float64.

    Attributes:
        prob_pred: up to 200 distinct predictions, evenly spaced by rank, ascending.
        prob_true: frequency of class 1 by the spline.
        lower: lower end of its confidence interval.
        upper: upper end of its confidence interval.
    """

    prob_pred: Floats
    prob_true: Floats
    lower: Floats
    upper: Floats


@documented
def isotonic_curve(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
    replicates: int = 100,
    seed: int = 0,
) -> IsotonicCurve:
    """Observed frequency against probability by isotonic regression, with a consistency band.

    This is the CORP reliability diagram (Dimitriadis, Gneiting & Jordan 2021, "Stable reliability
    diagrams for probabilistic classifiers"). It has no bins to choose. The band is pointwise: for
    each replicate labels are drawn from the predictions, and a curve is fitted to them. A curve
    outside the band indicates predictions that are not calibrated.

    {flat_rows}
        level: confidence level of the band, in (0, 1).
        replicates: number of curves that determine the band, at least 2.
        seed: seed of the drawn labels.

    Returns:
        An IsotonicCurve; a single point of NaN where the package's docstring says NaN.

    Example:
        >>> curve = isotonic_curve([0, 1, 0, 1], [0.1, 0.3, 0.6, 0.8])
        >>> curve.prob_true.tolist()
        [0.0, 0.5, 0.5, 1.0]
    """
    validation.require_fraction(level, "level")
    validation.require_integer(replicates, "replicates", 2)
    rows = _read(labels, proba, weights, from_logits, _MOST_DRAWN)
    if not rows.total[0]:
        return IsotonicCurve(*np.full((4, 1), np.nan))
    y, w, probabilities = _counted(rows, rows.probabilities()[0])
    p, index = np.unique(probabilities, return_inverse=True)
    # NumPy's stubs declare integers even with weights.
    weight: NDArray[Any] = np.bincount(index, w)
    positive = np.bincount(index, w * y)
    fitted = _isotonic(positive / weight, weight)
    points = _corners_and_some_others(fitted)
    ends = (1 - level) / 2, (1 + level) / 2
    band = np.quantile(_by_chance(p, weight, points, replicates, seed), ends, axis=0)
    return IsotonicCurve(p[points], fitted[points], *band)


def _read(
    labels: Column, proba: Column, weights: Column, from_logits: bool, largest: int
) -> Predictions:
    """The rows of one problem, as counts up to 2^largest."""
    rows = read_predictions(labels, proba, weights, from_logits).as_counts(0, largest)
    if rows.batch:
        raise ValueError(f"proba: expected (N,), one problem's, got shape {np.shape(proba)}")
    return rows


def _counted(rows: Predictions, x: Floats) -> tuple[Bools, Floats, Floats]:
    """Labels, weights and x (1, N) of the rows of positive weight."""
    counted = rows.weights[0] > 0
    return rows.positive[0, counted], rows.weights[0, counted], x[0, counted]


def _isotonic(values: Floats, weight: Floats) -> Floats:
    # SciPy adds warning filters when imported, so importing metrics must not import it.
    from scipy.optimize import isotonic_regression

    return isotonic_regression(values, weights=weight).x


def _by_chance(
    p: Floats, weight: Floats, at: NDArray[np.intp], replicates: int, seed: int
) -> Floats:
    """(replicates, M) curves fitted to labels drawn from the predictions."""
    rng = np.random.default_rng(seed)
    trials = np.floor(weight)
    fraction, trials = weight - trials, trials.astype(np.int64)
    curves = np.empty((replicates, len(at)))
    for curve in curves:
        drawn = rng.binomial(trials, p) + fraction * (rng.random(len(p)) < p)
        curve[:] = _isotonic(drawn / weight, weight)[at]
    return curves


def _corners_and_some_others(fitted: Floats) -> NDArray[np.intp]:
    step = np.diff(fitted) != 0
    corner = np.append(True, step) | np.append(step, True)
    ranks = np.linspace(0, len(fitted) - 1, min(len(fitted), _RANKS)).astype(np.intp)
    return np.union1d(np.flatnonzero(corner), ranks)


@documented
def smooth_curve(
    labels: Column,
    proba: Column,
    *,
    weights: Column = None,
    from_logits: bool = False,
    level: float = 0.95,
) -> SmoothCurve:
    """Observed frequency against probability by a logistic regression on a spline of the logit.

    This is the flexible calibration curve of Van Calster et al. (2016, "A calibration hierarchy for
    risk models was defined"). The spline is a restricted cubic one (Harrell 2015, "Regression
    Modeling Strategies", section 2.4.5), linear beyond its outer knots. It has five knots if both
    classes have 100 rows or more, four from 60 on, three from 30 on, and else it is a line. The
    band is pointwise, from the information matrix. Where the true log-odds are a line in those
    predicted, a band of 95 % held them at 94 to 97 % of the points, for 30 to 10,000 rows of which
    0.5 to 50 % were positive, if 19 of 20 such samples have a band. Of a wavy truth it held 87 % or
    more, since a spline with few knots is too stiff. Where most samples have no band, bands of the
    others held 82 to 94 % (`python -m benchmarks.inference.smooth_curve`).

    {flat_rows}
        level: confidence level of the band, in (0, 1).

    Returns:
        A SmoothCurve; a single point of NaN where the package's docstring says NaN. Where a class
        has fewer than 5 rows, prob_true is the mean of the labels, and the band is NaN. Where all
        probabilities are equal, it is the mean of the labels with its band. Where a threshold
        splits the classes, the spline's log-odds are infinite: prob_true and the band are NaN, with
        a RuntimeWarning. Probabilities are clipped to [1e-12, 1 - 1e-12], with another.

    Example:
        >>> import numpy as np
        >>> p = np.linspace(0.05, 0.95, 500)
        >>> curve = smooth_curve(np.random.default_rng(0).random(500) < p, p)
        >>> bool(np.mean((curve.lower < curve.prob_pred) & (curve.prob_pred < curve.upper)) > 0.9)
        True
    """
    validation.require_fraction(level, "level")
    rows = _read(labels, proba, weights, from_logits, MOST_FITTED)
    if not rows.total[0]:
        return SmoothCurve(*np.full((4, 1), np.nan))
    y, w, x = _counted(rows, rows.logits())
    grid = np.unique(quantiles(x, w, np.linspace(0, 1, _POINTS)))
    spline = fitted_spline(x, y, w)
    if spline is not None:
        columns = spline.columns(grid)
        logit = columns @ spline.coefficients
        critical = critical_value(level, simultaneous=False)
        variances = np.ldexp(_variances(columns, spline.factor), -rows.exponent)
        reach = critical * np.sqrt(variances)
        return SmoothCurve(expit(grid), expit(logit), expit(logit - reach), expit(logit + reach))
    unknown = np.full(len(grid), np.nan)
    if _choices(x, y, w):
        Caller().warn(_APART if _is_apart(x, y) else _NOT_FOUND)
        return SmoothCurve(expit(grid), unknown, unknown, unknown)
    return SmoothCurve(expit(grid), np.full(len(grid), np.average(y, weights=w)), unknown, unknown)


class FittedSpline(NamedTuple):
    """Log-odds of labels as a spline of predicted ones."""

    knots: Floats  # in standardized log-odds; none for a line
    middle: float  # of the log-odds
    unit: float
    sloping: bool  # whether the log-odds differ
    coefficients: Floats  # (P,)
    factor: Floats  # (P, P), F of the Hessian F F' of the loss

    def columns(self, x: Floats) -> Floats:
        """(N, P), of predicted log-odds (N,), which times the coefficients are log-odds."""
        return _basis((x - self.middle) / self.unit, self.knots, self.sloping)


def fitted_spline(x: Floats, y: Bools, w: Floats) -> FittedSpline | None:
    """The spline of the most knots that can be fitted, or None if none can."""
    # Logits may be far from 0, or near each other.
    sloping = bool(x.min() < x.max())
    exponent = np.frexp(np.abs(x).max())[1]
    moderate = np.ldexp(x, -exponent)  # whose squares are finite
    middle = np.ldexp(moderate.mean(), exponent)
    unit = np.ldexp(moderate.std(), exponent) if sloping else 1.0
    for knots in _choices(x, y, w):
        placed = (knots - middle) / unit
        fitted = _logistic(_basis((x - middle) / unit, placed, sloping), y, w)
        if fitted is not None:
            return FittedSpline(placed, middle, unit, sloping, *fitted)
    return None


def _is_apart(x: Floats, y: Bools) -> bool:
    """Whether a threshold splits the classes, ties included."""
    return bool(x[y].min() >= x[~y].max() or x[y].max() <= x[~y].min())


def _choices(x: Floats, y: Bools, w: Floats) -> list[Floats]:
    """Knots to try in turn: as many as the rarer class allows, and fewer; none for a line."""
    rarer = min(w[y].sum(), w[~y].sum())
    tried = [quantiles(x, w, np.array(shares)) for least, shares in _KNOTS if rarer >= least]
    return [knots for knots in tried if (np.diff(knots) > 0).all()]


def quantiles(x: Floats, w: Floats, share: Floats) -> Floats:
    """Values below which these shares of the weight lie."""
    order = np.argsort(x)
    upto = np.cumsum(w[order])
    position = np.searchsorted(upto, share * upto[-1])
    return x[order][np.minimum(position, len(x) - 1)]


def _basis(x: Floats, knots: Floats, sloping: bool = True) -> Floats:
    """(N, P), 1, x and the truncated cubics of a restricted spline (Harrell 2015, eq. 2.25)."""
    columns = [np.ones_like(x), x] if sloping else [np.ones_like(x)]
    if len(knots):
        *inner, second_last, last = knots
        cubes = {knot: np.maximum(x - knot, 0) ** 3 for knot in knots}
        for knot in inner:
            before_cube = cubes[second_last] * (last - knot) / (last - second_last)
            last_cube = cubes[last] * (second_last - knot) / (last - second_last)
            columns.append((cubes[knot] - before_cube + last_cube) / (last - knots[0]) ** 2)
    return np.stack(columns, 1)


class _Coefficients(NamedTuple):
    """Coefficients, and a factor F of the Hessian F F' of the loss."""

    parameters: Floats  # (P,)
    value: float  # log-likelihood
    step: Floats  # (P,)
    decrement: float
    factor: Floats  # (P, P)


def _logistic(columns: Floats, y: Bools, w: Floats) -> tuple[Floats, Floats] | None:
    """Coefficients, and a factor F of the Hessian F F'; None where there is no optimum.

    By Newton's method from the mean of the labels.
    """
    sign = np.where(y, 1.0, -1.0)

    def evaluate(beta: Floats) -> _Coefficients:
        logit = columns @ beta
        p, value = expit(logit), float(w @ log_expit(sign * logit))
        gradient = columns.T @ (w * (y - p))
        hessian = (columns * (w * p * expit(-logit))[:, None]).T @ columns
        try:
            step, factor = np.linalg.solve(hessian, gradient), np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError:
            return _Coefficients(beta, value, np.zeros_like(beta), np.nan, hessian)
        return _Coefficients(beta, value, step, float(gradient @ step), factor)

    beta = np.zeros(columns.shape[1])
    beta[0] = np.log(w[y].sum() / w[~y].sum())
    last, converged = newton_maximum(
        evaluate, beta, enough=_ENOUGH, near=_ENOUGH, lengths=_LENGTHS, lost=_ROUNDING
    )
    if not converged or _variances(columns, last.factor).max() >= _MOST_ERROR**2:
        return None
    return last.parameters + last.step, last.factor


def _variances(columns: Floats, factor: Floats) -> Floats:
    """(N,) variances of the log-odds, which are not negative."""
    variances: Floats = np.sum(np.linalg.solve(factor, columns.T) ** 2, 0)
    return variances
