"""The share of positives among rows without labels, if nothing else has changed.

Under label shift the scores of each class keep their distribution, and only the share of class 1
changes. With p the calibrated probability of a score and pi the share of class 1 among the rows of
the fit, the densities of the score in class 1 and in class 0, relative to all these rows, are
p / pi and (1 - p) / (1 - pi). So the likelihood of scores at a rate r is the product of
r p / pi + (1 - r) (1 - p) / (1 - pi). Its logarithm is concave in r. EM climbs to its maximum
(Saerens, Latinne & Decaestecker 2002, equation 2.9); Newton's method takes fewer passes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.predicted_rows import are_there, unlabelled_rows, with_predictions
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.vocabulary import distinct
from platt_jax.inference.rate_likelihoods import (
    LikelihoodHere,
    LikelihoodThere,
    RateLikelihood,
    RowsOnDevice,
)
from platt_jax.population.device_segments import fetched
from platt_jax.results import tables
from platt_jax.results.fit import one_parameter
from platt_jax.results.probabilities import critical_value, expit
from platt_jax.results.segment_calibrator import (
    ONLY,
    SegmentCalibrator,
    require_segment_calibrator,
)
from platt_jax.results.tables import Table
from platt_jax.searches import Roots, newton_roots
from platt_jax.status import Status

_NOTHING = 1e-6  # differences of densities, by root mean square, that say nothing of a rate
# Events of a calibrator's events after which probabilities do not add up to the labels' targets.
_RATES_UNLIKE = "prior", "offset", "drift", "shifted rows"
_TOLERANCE = 1e-10  # largest last step, relative to the rate and to its complement


@takes_columns
def estimate_rates(
    calibrator: SegmentCalibrator,
    scores: Column,
    segments: Column = None,
    *,
    from_rate: Column | None = None,
    level: float = 0.95,
) -> Table:
    """The share of positives in each segment of rows without labels, under label shift.

    This assumes that the scores of each class are distributed as among the rows of the fit, and
    that only the share of class 1 has changed. Where the scores given the class have changed, too,
    the estimate is wrong, and nothing in rows without labels shows it.

    The rate maximizes the likelihood. Its standard error and interval include the uncertainty of
    the fit and of the fit's share of positives: these two largely compensate each other.
    The interval holds the rates that a likelihood-ratio test accepts. It is wider than the test's
    own by the fit's part of the variance, without which it would hold the true rate in 50 % to 97 %
    of simulated segments (docs/explanation/numbers.md). With 10 positives fitted or fewer, rates
    are too high by up to 0.43 of their standard deviation.

    `calibrator.shift_prior(from_rate, rate)`, with a rate per segment, gives the probabilities at
    the new rates. Fits with an offset cannot be judged: their probabilities hold at no single rate.

    Args:
        calibrator: result of `fit_segments`.
        scores: (N,) scores of rows without labels; or SegmentRows, whose labels are not used.
        segments: (N,) their segments, or one id for all. Segments that were not fitted are judged
            by the curve of all rows, without error or interval.
        from_rate: the share of positives at which the calibrator's probabilities hold: (K,) in the
            order of `calibrator.keys`, or one for all. It is taken as exact, which makes intervals
            wide. None for the mean probability of the rows that were fitted, by the optimum's
            condition for B. It is needed where that does not hold: with a population, a prior, an
            offset or no intercept; after an `update` with a drift, or of a calibrator after
            `shift_prior`, whose rows are of several rates; without numbers of rows; and for the
            curve of all rows after `only`.
        level: confidence level of the interval, in (0, 1).

    Returns:
        A Table with a line for each segment of the rows, in ascending order, so none without rows,
        and the columns

        - `segment`, or one column for each of its several columns, and `rows`;
        - `from_rate`, and `expected`, the mean probability before any shift;
        - `rate`, with standard error `se_rate`, and the interval from `lower` to `upper`. A rate of
          0 or 1 is at the edge: no positives, or no negatives, explain the scores best. NaN where
          the segment's curve is NaN or a score is not finite; error and interval are NaN where too
          little is known of the segment's curve, see `triage`. A flat curve says nothing: its
          rate is `from_rate`, its error infinite, its interval from 0 to 1;
        - `status`: CONVERGED, MAX_ITERATIONS, or NON_FINITE for NaN.

    Raises:
        ValueError: an argument is not as above; SegmentRows have weights or an offset; or
            `from_rate` is missing.

    Example:
        >>> import numpy as np
        >>> from platt_jax import fit_segments
        >>> rng = np.random.default_rng(0)
        >>> shops, sold = np.arange(8000) % 4, rng.random(8000) < 0.5
        >>> calibrator = fit_segments(rng.normal(size=8000) + 2 * sold, sold, shops)
        >>> sold = rng.random(8000) < np.array([0.05, 0.1, 0.2, 0.5])[shops]
        >>> later = estimate_rates(calibrator, rng.normal(size=8000) + 2 * sold, shops)
        >>> later["rate"].round(2)
        array([0.06, 0.1 , 0.19, 0.49])
    """
    require_segment_calibrator(calibrator, "calibrator")
    calibrator, critical = fetched(calibrator), critical_value(level, False) ** 2
    if are_there(calibrator, scores):
        device_rows = unlabelled_rows(scores, segments)
        with jax.default_device(device_rows.device):
            return _rates_there(calibrator, device_rows, from_rate, critical)
    if isinstance(scores, SegmentRows):
        arrays = row_arrays(scores, "weights", "offset", segments=segments)
        scores, segments = arrays.scores, arrays.segments
    validation.require_each(scores, segments=segments)
    scores = validation.numbers(scores, "scores").astype(float, copy=False)
    validation.require_flat(scores, "scores")
    owner, keys = distinct(ids.read_like(calibrator.keys, segments, len(scores)))
    indices = get_indexer(calibrator.keys, split_columns(keys), "segments")
    base = _base_rates(calibrator, indices, from_rate)
    proba = calibrator.predict_proba(scores, keys[owner]).astype(float, copy=False)
    usable = np.bincount(owner[~np.isfinite(scores + proba)], minlength=len(keys)) == 0
    columns = scores, proba, owner
    if not usable.all():
        used = usable[owner]
        columns = scores[used], proba[used], (np.cumsum(usable) - 1)[owner[used]]
    mixture = LikelihoodHere(*columns, base.rate[usable])
    estimates = _estimated(mixture, *_joint(calibrator, keys, indices, base, usable), critical)
    rows = np.bincount(owner, minlength=len(keys))
    expected: Any = np.bincount(owner, proba, len(keys))
    return _table(keys, rows, base, expected, usable, estimates)


def _rates_there(
    calibrator: SegmentCalibrator, rows: SegmentRows, from_rate: Column | None, critical: float
) -> Table:
    indices = get_indexer(calibrator.keys, split_columns(rows.keys), "segments")
    base = _base_rates(calibrator, indices, from_rate)
    device_rows = RowsOnDevice(with_predictions(rows, calibrator), Caller())
    usable = device_rows.usable
    mixture = LikelihoodThere(device_rows, base.rate[usable])
    estimates = _estimated(mixture, *_joint(calibrator, rows.keys, indices, base, usable), critical)
    return _table(rows.keys, device_rows.rows, base, device_rows.expected, usable, estimates)


def _joint(
    calibrator: SegmentCalibrator,
    keys: NDArray[Any],
    place: NDArray[Any],
    base: "_BaseRates",
    usable: Bools,
) -> tuple[Floats, float]:
    """The covariance of A, B and the base rate, and its relative rounding error."""
    posterior = posteriors(calibrator, keys, place)
    usable_base = _BaseRates(*(x[usable] for x in base))
    return _joint_covariance(posterior.curves.covariance[usable], usable_base), posterior.rounding


def _table(
    keys: NDArray[Any],
    rows: NDArray[Any],
    base: "_BaseRates",
    expected: Floats,
    usable: Bools,
    found: "_Estimated",
) -> Table:
    """The result, from numbers of all segments and the estimates of the usable ones."""
    columns: dict[str, Any] = {
        "rows": rows,
        "from_rate": base.rate,
        "expected": expected / rows,
    }
    for name in ("rate", "se_rate", "lower", "upper"):
        columns[name] = np.full(len(keys), np.nan)
        columns[name][usable] = getattr(found, name)
    status = np.full(len(keys), Status.NON_FINITE)
    status[usable] = np.where(found.settled, Status.CONVERGED, Status.MAX_ITERATIONS)
    columns["status"] = tables.texts(status, lambda code: Status(code).name)
    return tables.keyed("segment", keys, columns)


class _BaseRates(NamedTuple):
    """The rates at which probabilities hold, for segments (S,)."""

    rate: Floats
    fitted: Floats  # the share among the fitted rows; another if the calibrator was shifted since
    rows: Floats  # number of rows of which that is the share; infinite for a known rate


def _base_rates(
    calibrator: SegmentCalibrator, place: NDArray[Any], from_rate: Column | None
) -> _BaseRates:
    number = len(calibrator.keys)
    if from_rate is not None:
        rates = validation.numbers(from_rate, "from_rate").astype(float)
        if rates.shape not in ((), (number,)) or not ((rates > 0) & (rates < 1)).all():
            raise ValueError(
                f"from_rate: expected a number between 0 and 1, or ({number},) of them, got "
                f"{from_rate!r}"
            )
        segment_rates = np.append(np.broadcast_to(rates, number), rates.mean())[place]
        return _BaseRates(segment_rates, segment_rates, np.full(len(place), np.inf))
    pooling = calibrator.pooling
    of_all = np.full(len(place), -1) if pooling == "complete" else place
    n_pos, n_neg = (np.asarray(x, float) for x in (calibrator.fit.n_pos, calibrator.fit.n_neg))
    positives, negatives = (np.append(x, x.sum())[of_all] for x in (n_pos, n_neg))
    rows = positives + negatives
    finite = np.isfinite(np.append(calibrator.fit.A, calibrator.fallback.A)[of_all])
    unlike = [x for x in calibrator.events if x in _RATES_UNLIKE]
    if ONLY in calibrator.events and (of_all < 0).any():
        unlike.append(ONLY)  # the curve of all rows is of other segments' rows, too
    why = ""
    if unlike:
        why = f"with {unlike[0]!r} in its events"
    elif one_parameter(calibrator.fit) == "temperature":
        why = "of temperatures"
    elif pooling not in ("none", "complete"):
        why = f"with pooling={pooling!r}"
    elif (finite & (rows == 0)).any():
        why = "without numbers of rows"
    if why:
        raise ValueError(
            f"from_rate: expected shares of positives for a calibrator {why}: one number, or "
            f"({number},) in the order of calibrator.keys, such as the mean probability of the "
            "rows that were fitted in each segment"
        )
    total = positives
    if calibrator.options.targets == "platt":  # the sum of Platt's targets (1999, section 2.2)
        total = positives * ((positives + 1) / (positives + 2)) + negatives / (negatives + 2)
    with np.errstate(invalid="ignore"):
        fitted = total / rows
    rate = fitted
    if calibrator.shift is not None:
        rate = expit(np.log(fitted) - np.log1p(-fitted) - calibrator.shift[place])
    return _BaseRates(rate, fitted, rows)


def _joint_covariance(curve_covariance: Floats, base: _BaseRates) -> Floats:
    """(S, 3, 3), the covariance of A, B and the base rate.

    At the optimum the labels move (A, B) by the inverse Hessian times the sum of (f, 1) (p - y),
    and the rate by the mean of y - p. So their covariance is (0, -1) / rows. The derivative of a
    rate r by that before a shift of the log-odds is the ratio of r (1 - r) after and before.
    """
    rate, fitted, rows = base
    joint = np.zeros((len(rate), 3, 3))
    joint[:, :2, :2] = curve_covariance
    with np.errstate(invalid="ignore"):  # without Platt's targets a rate may be 0 or 1
        moved = rate * (1 - rate) / (fitted * (1 - fitted))
    joint[:, 1, 2] = joint[:, 2, 1] = -moved / rows
    joint[:, 2, 2] = moved * rate * (1 - rate) / rows
    return joint


class _Estimated(NamedTuple):
    rate: Floats
    se_rate: Floats
    lower: Floats
    upper: Floats
    settled: Bools


def _estimated(
    mixture: RateLikelihood, joint: Floats, rounding: float, critical: float
) -> _Estimated:
    """The rates with errors and intervals; `joint` is the covariance of A, B and the base rate."""
    zero, one = np.zeros_like(mixture.base), np.ones_like(mixture.base)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(mixture.slope(one) >= 0, one, zero)
        high = np.where(mixture.slope(zero) <= 0, zero, one)
        none = mixture.squares() <= _NOTHING**2 * mixture.rows
        start = np.where(low == high, low, mixture.base)
        start, low, high = (np.where(none, mixture.base, x) for x in (start, low, high))
        rate, settled = _roots(mixture.slopes, start, low, high)
        information = -mixture.slopes(rate)[1]
        by_fit = mixture.gradient(rate) / information[:, None]
        fit_variance = _variance(by_fit, joint, rounding)
        variance = 1 / information + fit_variance
        unknown = ~np.isfinite(fit_variance) & ~none
        allowed = np.where(none | unknown, critical, critical * variance * information)
        best = mixture.log_likelihood(rate)

        def short(at: Floats) -> Floats:
            """How far twice the log likelihood is above the interval's ends."""
            return allowed - 2 * (best - mixture.log_likelihood(at))

        def below(at: Floats) -> tuple[Floats, Floats]:
            return -short(at), -2 * mixture.slope(at)

        def above(at: Floats) -> tuple[Floats, Floats]:
            return short(at), 2 * mixture.slope(at)

        reach = np.sqrt(critical * variance)
        lower, found_lower = _roots(below, rate - reach, zero, np.where(short(zero) > 0, 0, rate))
        upper, found_upper = _roots(above, rate + reach, np.where(short(one) > 0, 1, rate), one)
    lower, upper = (np.where(unknown, np.nan, x) for x in (lower, upper))
    settled &= (found_lower & found_upper) | unknown
    return _Estimated(rate, np.sqrt(np.where(none, np.inf, variance)), lower, upper, settled)


def _variance(by: Floats, covariance: Floats, rounding: float) -> Floats:
    """The variances (S,) of sums by numbers (S, P), at least as large as their rounding errors.

    Far from score 0 the terms of a float32 covariance cancel.
    """
    variance, terms = (
        np.einsum("sa,sab,sb->s", x, y, x)
        for x, y in ((by, covariance), (np.abs(by), np.abs(covariance)))
    )
    return np.maximum(variance, rounding * terms)


def _roots(
    slopes: Callable[[Floats], tuple[Floats, Floats]], start: Floats, low: Floats, high: Floats
) -> Roots:
    """The roots (S,) between two rates of functions with values and slopes.

    Where the bounds are equal, they are the root.
    """

    def function(at: Floats) -> tuple[Floats, Floats, Floats]:
        value, slope = slopes(at)
        return value, -value / slope, _TOLERANCE * np.minimum(at, 1 - at)

    start = np.where((start > low) & (start < high), start, (low + high) / 2)
    return newton_roots(function, start, low, high)
