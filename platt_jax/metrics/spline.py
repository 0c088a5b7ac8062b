"""Calibration without bins: a smooth reliability curve with its confidence band."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.metrics.rows import read_predictions
from platt_jax.results.probabilities import critical_value, expit, log_expit

_POINTS = 200  # of the curve, evenly spaced by rank
# Quantiles of the logits at which splines have their knots (Harrell 2015, table 2.3), and the
# number of rows of the rarer class from which on a spline, or a line, is used.
_KNOTS = (
    (100, (0.05, 0.275, 0.5, 0.725, 0.95)),
    (60, (0.05, 0.35, 0.65, 0.95)),
    (30, (0.1, 0.5, 0.9)),
    (5, ()),
)
_MOST_STEPS, _HALVINGS, _ENOUGH = 50, 30, 1e-8
_ROUNDING = 4 * np.finfo(float).eps  # of a loss
_LARGEST = 40  # power of two above which counts remain scaled: the search's end depends on them
# Of classes that do not overlap the search ends where rounding ends it, far out. A standard error
# of log-odds above this shows it.
_MOST_ERROR = 30.0
_APART = (
    "labels: a threshold of proba splits the classes, so the smooth curve has infinite log-odds, "
    "and is NaN; isotonic_curve and reliability_curve have frequencies"
)
_NOT_FOUND = "labels: the search for a smooth curve did not converge, and the curve is NaN"


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
    more, since a spline with few knots is too stiff. Where most samples have no band, those of the
    others held 82 to 94 % (`python -m benchmarks.inference.smooth_curve`).

    Args:
        labels: (N,) bool, {0, 1} or {-1, +1}; of one problem.
        proba: (N,) probabilities of class 1, or logits.
        weights: (N,) counts of rows >= 0.
        from_logits: whether proba holds logits.
        level: confidence level of the band, in (0, 1).

    Returns:
        A SmoothCurve; a single point of NaN where the package's docstring says NaN. Where a class
        has fewer than 5 rows, prob_true is the mean of the labels, and the band is NaN. Where all
        probabilities are equal, it is the mean of the labels with its band. Where a threshold
        splits the classes, the spline's log-odds are infinite: prob_true and the band are NaN, with
        a RuntimeWarning. Probabilities are clipped to [1e-12, 1 - 1e-12], with another.

    Raises:
        ValueError: an argument is not as above.

    Example:
        >>> import numpy as np
        >>> p = np.linspace(0.05, 0.95, 500)
        >>> curve = smooth_curve(np.random.default_rng(0).random(500) < p, p)
        >>> bool(np.mean((curve.lower < curve.prob_pred) & (curve.prob_pred < curve.upper)) > 0.9)
        True
    """
    validation.require_fraction(level, "level")
    rows = read_predictions(labels, proba, weights, from_logits).as_counts(0, _LARGEST)
    if rows.batch:
        raise ValueError(f"proba: expected (N,), one problem's, got shape {np.shape(proba)}")
    if not rows.total[0]:
        return SmoothCurve(*np.full((4, 1), np.nan))
    counted = rows.weights[0] > 0
    x, y, w = (a[0, counted] for a in (rows.logits(), rows.positive, rows.weights))
    at = np.unique(_quantiles(x, w, np.linspace(0, 1, _POINTS)))
    # Logits may be far from 0, or near each other.
    sloping = bool(x.min() < x.max())
    middle, unit = x.mean(), (x.std() if sloping else 1.0)
    choices = _choices(x, y, w)
    for knots in choices:
        placed = [(knot - middle) / unit for knot in knots]
        columns, here = (_basis((z - middle) / unit, placed, sloping) for z in (x, at))
        fitted = _logistic(columns, y, w)
        if fitted is not None:
            beta, factor = fitted
            logit = here @ beta
            critical = critical_value(level, simultaneous=False)
            reach = critical * np.sqrt(np.ldexp(_variances(here, factor), -rows.exponent))
            return SmoothCurve(expit(at), expit(logit), expit(logit - reach), expit(logit + reach))
    unknown = np.full(len(at), np.nan)
    if choices:
        Caller().warn(_APART if _is_apart(x, y) else _NOT_FOUND)
        return SmoothCurve(expit(at), unknown, unknown, unknown)
    return SmoothCurve(expit(at), np.full(len(at), np.average(y, weights=w)), unknown, unknown)


def _is_apart(x: Floats, y: NDArray[np.bool_]) -> bool:
    """Whether a threshold splits the classes, ties included."""
    return bool(x[y].min() >= x[~y].max() or x[y].max() <= x[~y].min())


def _choices(x: Floats, y: NDArray[np.bool_], w: Floats) -> list[Floats]:
    """Knots to try in turn: as many as the rarer class allows, and fewer; none for a line."""
    rarer = min(w[y].sum(), w[~y].sum())
    tried = [_quantiles(x, w, np.array(at)) for least, at in _KNOTS if rarer >= least]
    return [knots for knots in tried if (np.diff(knots) > 0).all()]


def _quantiles(x: Floats, w: Floats, share: Floats) -> Floats:
    """Values below which these shares of the weight lie."""
    order = np.argsort(x)
    upto = np.cumsum(w[order])
    place = np.searchsorted(upto, share * upto[-1])
    return x[order][np.minimum(place, len(x) - 1)]


def _basis(x: Floats, knots: Sequence[Any] | Floats, sloping: bool = True) -> Floats:
    """(N, P), 1, x and the truncated cubics of a restricted spline (Harrell 2015, eq. 2.25)."""
    columns = [np.ones_like(x), x] if sloping else [np.ones_like(x)]
    if len(knots):
        *inner, before, last = knots
        cubes = {knot: np.maximum(x - knot, 0) ** 3 for knot in knots}
        for knot in inner:
            before_cube = cubes[before] * (last - knot) / (last - before)
            last_cube = cubes[last] * (before - knot) / (last - before)
            columns.append((cubes[knot] - before_cube + last_cube) / (last - knots[0]) ** 2)
    return np.stack(columns, 1)


def _logistic(columns: Floats, y: NDArray[np.bool_], w: Floats) -> tuple[Floats, Floats] | None:
    """Coefficients, and a factor F of the Hessian F F'; None where there is no optimum.

    By Newton's method from the mean of the labels.
    """
    sign = np.where(y, 1.0, -1.0)

    def loss(beta: Floats) -> float:
        return -float(w @ log_expit(sign * (columns @ beta)))

    beta = np.zeros(columns.shape[1])
    beta[0] = np.log(w[y].sum() / w[~y].sum())
    before = loss(beta)
    for _ in range(_MOST_STEPS):
        logit = columns @ beta
        p = expit(logit)
        gradient = columns.T @ (w * (p - y))
        hessian = (columns * (w * p * expit(-logit))[:, None]).T @ columns
        try:
            step = np.linalg.solve(hessian, gradient)
            factor = np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError:
            return None
        decrement = float(gradient @ step)
        if not 0 <= decrement < np.inf:
            return None
        if decrement < _ENOUGH:
            known = _variances(columns, factor).max() < _MOST_ERROR**2
            return (beta - step, factor) if known else None
        for _ in range(_HALVINGS):
            after = loss(beta - step)
            if after <= before * (1 + _ROUNDING):
                break
            step = step / 2
        else:
            return None
        beta, before = beta - step, after
    return None


def _variances(columns: Floats, factor: Floats) -> Floats:
    """(N,) variances of the log-odds, which are not negative."""
    variances: Floats = np.sum(np.linalg.solve(factor, columns.T) ** 2, 0)
    return variances
