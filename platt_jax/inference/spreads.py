"""How much segments differ: profile intervals of their spreads, and tests of no spread."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from platt_jax import validation
from platt_jax.api import fit_segments
from platt_jax.arrays import Floats
from platt_jax.caller import Caller
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.options import Options
from platt_jax.population.device_segments import segments_of
from platt_jax.population.estimate import estimable
from platt_jax.population.profile import ONE_SPREAD, Maximum, Profile, p_value, weights_of_both
from platt_jax.population.search import Position
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.probabilities import critical_value
from platt_jax.results.tables import Table

_COLUMNS = ("parameter", "standard_deviation", "lower", "upper", "statistic", "p_value")
_PARAMETERS = ("A", "B", "both")
_NEITHER = 0.0, 0.0, 0.0  # entries of a covariance's factor, as in `profile.likeliest`
_MOST_TRIALS = 12
# Tolerances of the ends: of the root of the deviance, and relative to the standard deviation.
_NEAR = 0.01
_NARROW = 1e-3
# Range of the search for the upper end, in log-odds per standard deviation of the scores, and the
# factor between its trials: less where a trial's maximum is not found, but not below the least.
_FIRST, _LAST = 0.1, 10.0
_GROWTH, _LEAST_GROWTH = 2.0, 1.1

_NOT_CONVERGED = (
    "segments: a search for the largest likelihood did not converge, and statistics may be off or "
    "ends of intervals NaN: segments of one class each have no largest one. Use more rows a segment"
)


@takes_columns
def profile_spreads(
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    offset: Column = None,
    level: float = 0.95,
    options: Options = Options(),
) -> Table:
    """How much (A, B) differ between segments: profile intervals, and tests of no spread.

    The population is as in ``fit_segments(..., pooling="partial")``: (A, B) of a segment is
    normal, and its standard deviations are the spreads. An interval contains the spreads whose
    profile likelihood is close to the maximum: twice the difference of the log-likelihoods is at
    most the chi-square quantile, as in lme4's ``confint(method="profile")``. The lower end is 0 if
    that holds without spread. A test compares the maximum likelihood with the maximum without a
    spread of A, of B or of both, by mixtures of chi-squares (Stram & Lee 1994, Biometrics 50; Self
    & Liang 1987, JASA 82), which hold for many segments. With few the tests reject too rarely, and
    the intervals are not exact. It takes about 50 to 200 passes over the rows.
    docs/explanation/pooling.md has the method and figures.

    Args:
        scores: (N,) scores, as in `fit_segments`; or SegmentRows.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`.
        weights: (N,) weights, as in `fit_segments`.
        offset: (N,) offset, as in `fit_segments`.
        level: confidence level of the intervals, in (0, 1).
        options: as in `fit_segments`.

    Returns:
        A Table with a line for each `parameter`, "A", "B" and "both", and the columns

        - `standard_deviation`, the estimated spread, with the interval from `lower` to `upper`,
          which may be inf; NaN for "both";
        - `statistic` and `p_value` of the test of no spread.

        The spread of A is per unit of the scores, and the spread of B is at score 0. All numbers
        are NaN if there is no population to estimate, and an end that is not found is NaN. A
        RuntimeWarning says if a likelihood's maximum is not found.

    Raises:
        ValueError: the level is not between 0 and 1; or as in `fit_segments`.
        MemoryError: as in `fit_segments`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> shops, scores = np.arange(4000) % 80, rng.normal(size=4000)
        >>> levels = 0.5 * rng.normal(size=80)[shops]
        >>> sold = rng.random(4000) < 1 / (1 + np.exp(-scores - levels))
        >>> found = profile_spreads(scores, sold, shops)
        >>> found["lower"].round(2).tolist(), found["upper"].round(2).tolist()
        ([0.0, 0.35, nan], [0.21, 0.57, nan])
        >>> (found["p_value"] < 0.001).tolist()
        [False, True, True]
    """
    critical = critical_value(level, simultaneous=False)
    validation.pooling("partial", None, None, validation.options(options))
    compared = compare(segment_rows(scores, labels, segments, weights, offset=offset), options)
    nothing = (np.nan,) * 3
    ends, tests = [nothing] * 3, [(np.nan, np.nan)] * 3
    if compared is not None:
        intervals = compared.intervals(critical**2)
        ends = [*intervals, nothing]
        tests = list(zip(compared.statistics, compared.p_values, strict=True))
        if not compared.converged or np.isnan(intervals).any():
            Caller().warn(_NOT_CONVERGED)
    lines = [(name, *x, *y) for name, x, y in zip(_PARAMETERS, ends, tests, strict=True)]
    return Table(zip(_COLUMNS, map(np.array, zip(*lines, strict=True)), strict=True))


def compare(rows: SegmentRows, options: Options = Options()) -> "Compared | None":
    """The maximum likelihood with and without spread; None if no population can be estimated."""
    calibrator = fit_segments(rows, pooling="complete", options=options)
    if len(calibrator) < 2 or not estimable(jax.tree.map(lambda x: x[0], calibrator.fit)):
        return None
    options = replace(options, targets="none")
    by_segment = segments_of(rows, Caller())
    coordinates = by_segment.coordinates(options)
    to = coordinates.matrix
    segments = StandardizedSegments(by_segment, coordinates, options)
    pooled = to @ np.array([calibrator.fallback.A, calibrator.fallback.B], float)
    # B at score 0, as a combination of (A, B) in these coordinates.
    at_0 = np.array([-coordinates.center * coordinates.scale, 1])
    length = np.linalg.norm(at_0)
    turn = np.array([at_0, [1, -at_0[0]]]) / length
    profile_A = Profile(segments, np.eye(2))
    start = profile_A.start(pooled, len(by_segment.keys))
    spreads = (
        _ParameterSpread(profile_A, coordinates.scale, start),
        _ParameterSpread(Profile(segments, turn), float(length), start),
    )
    largest, neither = profile_A.likeliest(start), profile_A.likeliest(start, _NEITHER)
    maxima = [*(spread.held(0.0, start) for spread in spreads), neither]
    without = np.array([x.log_likelihood for x in maxima])
    return Compared(
        spreads,
        np.linalg.norm(np.linalg.inv(to) @ largest.factor, axis=1),
        max(largest.log_likelihood, without.max()),
        without,
        weights_of_both(neither.at.likelihoods),
        all(x.converged for x in (largest, *maxima)),
    )


class Compared(NamedTuple):
    """Maximum log-likelihoods with and without spread."""

    spreads: tuple["_ParameterSpread", "_ParameterSpread"]  # of A and of B
    deviations: Floats  # (2,) estimated standard deviations of A and B
    largest: float  # with spread
    without: Floats  # (3,) without spread of A, of B, and of both
    weights: Floats  # (4,) weights of the chi-squares in the test of both
    converged: bool  # whether all four maxima were found

    @property
    def statistics(self) -> Floats:
        """(3,) statistics of the tests: of A, of B, and of both."""
        return 2 * (self.largest - self.without)

    @property
    def p_values(self) -> list[float]:
        """The p-values of the tests, in the same order."""
        weights = ONE_SPREAD, ONE_SPREAD, self.weights
        return [p_value(x, w) for x, w in zip(self.statistics, weights, strict=True)]

    def intervals(self, cut: float) -> list[tuple[float, float, float]]:
        """For A and for B the estimate, and the ends where the deviance is `cut` higher."""
        parameters = zip(self.spreads, self.deviations, self.without[:2], strict=True)
        return [spread.interval(x, self.largest, none, cut) for spread, x, none in parameters]


class _ParameterSpread(NamedTuple):
    profile: Profile
    unit: float  # the spread of the parameter over the spread in the profile's coordinates
    start: Position  # from which searches start

    def held(self, spread: float, start: Position) -> Maximum:
        """The maximum with this spread, by a search from `start`."""
        return self.profile.likeliest(start, (spread, None if spread else 0.0, None))

    def interval(
        self, deviation: float, largest: float, none: float, cut: float
    ) -> tuple[float, float, float]:
        """The estimated standard deviation, and the lower and upper end of its interval.

        Log-likelihoods are the `largest`, and the largest with `none` of this spread; see
        `intervals`.
        """
        near, converged = self.start, True

        def excess(log_likelihood: float) -> float:
            # Roots of deviances: they are nearly linear in the spread.
            return float(max(2 * (largest - log_likelihood), 0.0) ** 0.5 - cut**0.5)

        def excess_at(spread: float) -> float:
            # From the latest maximum: from far away, a wide spread's is often not found.
            nonlocal near, converged
            maximum = self.held(spread, near)
            near, converged = (maximum.at, True) if maximum.converged else (near, False)
            return excess(maximum.log_likelihood)

        def end(inside: tuple[float, float], outside: tuple[float, float]) -> float:
            crossing = _crossing(excess_at, inside, outside)
            return self.unit * crossing if converged else np.nan

        inside, outside = (deviation / self.unit, -(cut**0.5)), (0.0, excess(none))
        lower = end(inside, outside) if outside[1] > 0 else 0.0
        high, growth = max(_GROWTH * inside[0], _FIRST), _GROWTH
        while high <= _LAST:
            beyond = excess_at(high)
            if not converged and growth > _LEAST_GROWTH:
                growth **= 0.5
                high /= growth
                continue
            if beyond > 0:
                return deviation, lower, end(inside, (high, beyond))
            inside, high = (high, beyond), growth * high
        return deviation, lower, np.inf


def _crossing(
    function: Callable[[float], float], inside: tuple[float, float], outside: tuple[float, float]
) -> float:
    """A zero of a function between two points with opposite signs (Illinois method), or NaN.

    The zero is the last point at which the function is evaluated.
    """
    (a, f_a), (b, f_b) = inside, outside
    for _ in range(_MOST_TRIALS):
        x = b - f_b * (b - a) / (f_b - f_a)
        f = function(x)
        if abs(f) <= _NEAR or abs(b - a) <= _NARROW * max(a, b):
            return x
        if f * f_b < 0:
            a, f_a = b, f_b
        else:
            f_a /= 2
        b, f_b = x, f
    return np.nan
