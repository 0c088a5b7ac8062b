"""Spreads between segments: profile intervals, and tests of no spread."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.api import fit_segments
from platt_jax.columns import Column
from platt_jax.execution.caller import Caller
from platt_jax.execution.segment_rows import SegmentRows, segment_rows
from platt_jax.options import Options
from platt_jax.population.boundary import ONE_SPREAD, p_value, weights_of_both
from platt_jax.population.chunked import ChunkedSegments
from platt_jax.population.profile import Profile
from platt_jax.population.search import Position
from platt_jax.population.standardized import StandardizedSegments
from platt_jax.results.probabilities import critical_value
from platt_jax.results.tables import Table

_DEFAULT = Options()
_COLUMNS = ("parameter", "standard_deviation", "lower", "upper", "statistic", "p_value")
_PARAMETERS = ("A", "B", "both")
_NEITHER = 0.0, 0.0, 0.0  # factor of a covariance without spread
_MOST_TRIALS = 12
_NEAR = 0.01  # tolerance of the square root of the deviance
_NARROW = 1e-3  # relative tolerance of a spread
# Range in which the upper end is searched, in log-odds over a standard deviation of the scores.
_FIRST, _LAST = 0.1, 10.0


def profile_spreads(
    scores: Column,
    labels: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    level: float = 0.95,
    options: Options = _DEFAULT,
) -> Table:
    """Profile intervals of the spreads of (A, B) between segments, and tests of no spread.

    The population is that of ``fit_segments(..., pooling="partial")``: (A, B) of a segment is
    normal, and its standard deviations are the spreads. The profile log likelihood of a spread is
    maximized over the mean and the rest of the covariance. An interval holds the spreads at which
    twice this is below its maximum by at most the chi-square quantile; its lower end is 0 if that
    includes no spread. (lme4's ``confint(method="profile")`` is the same.) The likelihoods are
    those of the rows, by quadrature. The normal likelihoods that a calibrator keeps would change
    the statistics by a factor of two and more where positives are rare. This takes about 20 to 100
    passes over the rows.

    A test compares the maximum with that without spread of A (and so without covariance), of B, or
    of both. Zero spread is at the boundary of the covariances, so the statistic is distributed as a
    mixture of chi-squares: for one spread of 1 and 2 degrees of freedom in halves (Stram & Lee
    1994, Biometrics 50), and for both of 0 to 3 degrees, with weights estimated from the rows (Self
    & Liang 1987, JASA 82).

    With few segments intervals and tests are conservative, see docs/explanation/pooling.md: with 2
    to 5 segments a test at level 0.05 rejects in 0 to 3 % of cases without spread.

    Args:
        scores: (N,) scores, as in `fit_segments`; or SegmentRows.
        labels: (N,) labels, as in `fit_segments`.
        segments: (N,) segment ids, as in `fit_segments`.
        weights: (N,) weights, as in `fit_segments`.
        level: confidence level of the intervals, in (0, 1).
        options: as in `fit_segments`.

    Returns:
        A Table with a line for each `parameter`, "A", "B" and "both": the maximum-likelihood
        `standard_deviation`, with the interval from `lower` to `upper`, which may be inf; and the
        `statistic` and `p_value` of the test of no spread. A is in units of the scores; the spread
        of B is that at score 0. All are NaN if there is no population to estimate.

    Raises:
        ValueError: level is not in (0, 1); or as in `fit_segments`.
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
    compared = compare(segment_rows(scores, labels, segments, weights), options)
    nothing = (np.nan,) * 3
    ends, tests = [nothing] * 3, [(np.nan, np.nan)] * 3
    if compared is not None:
        ends = [*compared.intervals(critical**2), nothing]
        tests = list(zip(compared.statistics, compared.p_values, strict=True))
    lines = [(name, *x, *y) for name, x, y in zip(_PARAMETERS, ends, tests, strict=True)]
    return Table(zip(_COLUMNS, map(np.array, zip(*lines, strict=True)), strict=True))


def compare(rows: SegmentRows, options: Options = _DEFAULT) -> "Compared | None":
    """Compare the most likely population with those without spread; None if there is none.

    Args:
        rows: rows of the segments.
        options: as in `fit_segments`.
    """
    calibrator = fit_segments(rows, pooling="partial", options=options)
    if calibrator.pooling != "partial":
        return None
    options = replace(options, targets="none")
    by_segment = ChunkedSegments(rows, Caller())
    coordinates = by_segment.coordinates(options)
    to = coordinates.matrix
    segments = StandardizedSegments(by_segment, coordinates, options)
    pooled = to @ np.array([calibrator.fallback.A, calibrator.fallback.B], float)
    # B at score 0, as a combination of (A, B) in these coordinates.
    at_0 = np.array([-coordinates.center * coordinates.scale, 1])
    length = np.linalg.norm(at_0)
    turn = np.array([at_0, [1, -at_0[0]]]) / length
    of_A = Profile(segments, np.eye(2))
    start = of_A.start(pooled, len(by_segment.keys))
    spreads = (
        _Spread(of_A, coordinates.scale, start),
        _Spread(Profile(segments, turn), float(length), start),
    )
    largest, found, _ = of_A.likeliest(start)
    neither, _, at = of_A.likeliest(start, _NEITHER)
    without = np.array([*(spread.held(0.0) for spread in spreads), neither])
    return Compared(
        spreads,
        np.linalg.norm(np.linalg.inv(to) @ found.factor, axis=1),
        max(largest, without.max()),
        without,
        weights_of_both(at.likelihoods),
    )


class Compared(NamedTuple):
    """Maximum log likelihoods with and without spread."""

    spreads: tuple["_Spread", "_Spread"]  # of A and of B
    deviations: NDArray[np.float64]  # (2,) maximum-likelihood standard deviations of A and B
    largest: float  # with spread
    without: NDArray[np.float64]  # (3,) without spread of A, of B, and of both
    weights: NDArray[np.float64]  # (4,) weights of the chi-squares in the test of both

    @property
    def statistics(self) -> NDArray[np.float64]:
        """(3,) statistics of the tests."""
        return 2 * (self.largest - self.without)

    @property
    def p_values(self) -> list[float]:
        """The p-values of the tests."""
        weights = ONE_SPREAD, ONE_SPREAD, self.weights
        return [p_value(x, w) for x, w in zip(self.statistics, weights, strict=True)]

    def intervals(self, cut: float) -> list[tuple[float, float, float]]:
        """The estimate, and the lower and the upper end, for A and for B.

        Args:
            cut: difference of the deviance between the ends and the estimate.
        """
        both = zip(self.spreads, self.deviations, self.without[:2], strict=True)
        return [spread.interval(x, self.largest, none, cut) for spread, x, none in both]


class _Spread(NamedTuple):
    """The spread of one parameter."""

    profile: Profile
    unit: float  # unit of the parameter, in units of the profile
    start: Position  # start of searches

    def held(self, spread: float) -> float:
        """The maximum log likelihood with this spread."""
        held = (spread, None if spread else 0.0, None)
        return self.profile.likeliest(self.start, held)[0]

    def interval(
        self, deviation: float, largest: float, none: float, cut: float
    ) -> tuple[float, float, float]:
        """The estimate, and the lower and the upper end.

        Args:
            deviation: maximum-likelihood standard deviation.
            largest: maximum log likelihood.
            none: maximum log likelihood without spread.
            cut: difference of the deviance between the ends and the estimate.
        """

        def excess(log_likelihood: float) -> float:
            """The difference of square roots, which are nearly linear in the spread."""
            return float(max(2 * (largest - log_likelihood), 0.0) ** 0.5 - cut**0.5)

        def at(spread: float) -> float:
            return excess(self.held(spread))

        inside, outside = (deviation / self.unit, -(cut**0.5)), (0.0, excess(none))
        lower = _crossing(at, inside, outside) if outside[1] > 0 else 0.0
        high = max(2 * inside[0], _FIRST)
        while high <= _LAST:
            if (beyond := at(high)) > 0:
                upper = _crossing(at, inside, (high, beyond))
                return deviation, self.unit * lower, self.unit * upper
            inside, high = (high, beyond), 2 * high
        return deviation, self.unit * lower, np.inf


def _crossing(
    function: Callable[[float], float], inside: tuple[float, float], outside: tuple[float, float]
) -> float:
    """The root of a function between two points of opposite signs (Illinois method)."""
    (a, f_a), (b, f_b) = inside, outside
    for _ in range(_MOST_TRIALS):
        x = b - f_b * (b - a) / (f_b - f_a)
        f = function(x)
        if abs(f) <= _NEAR or abs(b - a) <= _NARROW * max(a, b):
            break
        if f * f_b < 0:
            a, f_a = b, f_b
        else:
            f_a /= 2
        b, f_b = x, f
    return x
