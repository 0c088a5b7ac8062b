"""How far segments differ: intervals of their spreads, and tests of there being none."""

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
from platt_jax.population.profile import Profile
from platt_jax.population.rows import ChunkedSegments
from platt_jax.population.search import Position
from platt_jax.population.segments import Segments
from platt_jax.results.probabilities import critical_value
from platt_jax.results.tables import Table

_DEFAULT = Options()
_COLUMNS = ("parameter", "standard_deviation", "lower", "upper", "statistic", "p_value")
_PARAMETERS = ("A", "B", "both")
_NEITHER = 0.0, 0.0, 0.0  # of a covariance's factor
_MOST_TRIALS = 12
_NEAR = 0.01  # of the root of a deviance
_NARROW = 1e-3  # of a standard deviation
# Log-odds over a standard deviation of the scores: where the upper end is looked for.
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
    """How far (A, B) differ between segments: profile intervals, and tests of no spread.

    The population is that of ``fit_segments(..., pooling="partial")``: (A, B) of a segment is
    normal, and its standard deviations are the spreads. An interval holds the values at which twice
    the log likelihood, largest as to the mean and the rest of the covariance, is no more than
    chi-squared's quantile below its maximum; its lower end is 0 where that is so without spread.
    (lme4's ``confint(method="profile")`` has the same.) The likelihoods are those of the rows, by
    quadrature: the normal ones that a calibrator keeps would be off by a factor of two and more in
    the statistics where positives are rare. It takes some 50 to 200 passes over the rows.

    A test compares the maximum to that without spread of A (and so without covariance), of B, or of
    both. No spread is at the boundary of the covariances, so the statistic's distribution is a
    mixture of chi-squares: in halves of 1 and 2 degrees of freedom for one spread (Stram & Lee
    1994, Biometrics 50), and of 0 to 3 for both, with weights by what the rows tell (Self & Liang
    1987, JASA 82).

    The mixture is that of many segments. With few of them the tests reject too seldom, and
    intervals are not exact: docs/explanation/pooling.md has figures.

    Args:
        scores: (N,) as in `fit_segments`; or SegmentRows.
        labels: (N,) likewise.
        segments: (N,) likewise.
        weights: (N,) likewise.
        level: of the intervals.
        options: as in `fit_segments`.

    Returns:
        A Table with a line for each `parameter`, "A", "B" and "both": its `standard_deviation`, the
        likeliest, with the interval from `lower` to `upper`, which may be inf; and of the test of
        no spread the `statistic` and the `p_value`. A is in units of the scores, B the spread at
        score 0. All NaN where there is no population to estimate.

    Raises:
        ValueError: a level that is not between 0 and 1; or as in `fit_segments`.
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
    """The likeliest population beside those without spread; None where there is none to estimate.

    Args:
        rows: of the segments.
        options: as in `fit_segments`.
    """
    calibrator = fit_segments(rows, pooling="partial", options=options)
    if calibrator.pooling != "partial":
        return None
    options = replace(options, targets="none")
    by_segment = ChunkedSegments(rows, Caller())
    coordinates = by_segment.coordinates(options)
    segments, to = Segments(by_segment, coordinates, options), coordinates.matrix
    pooled = to @ np.array([calibrator.fallback.A, calibrator.fallback.B], float)
    # B at score 0, by (A, B) in the coordinates.
    at_0 = np.array([-coordinates.center * coordinates.scale, 1])
    length = np.linalg.norm(at_0)
    turn = np.array([at_0, [1, -at_0[0]]]) / length
    of_A = Profile(segments, np.eye(2))
    start = of_A.start(pooled, by_segment.number)
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
    """Log likelihoods with spread and without."""

    spreads: tuple["_Spread", "_Spread"]  # of A and of B
    deviations: NDArray[np.float64]  # (2,), the likeliest standard deviations of A and B
    largest: float
    without: NDArray[np.float64]  # (3,), spread of A, of B, and of both
    weights: NDArray[np.float64]  # (4,), of the chi-squares in the test of both

    @property
    def statistics(self) -> NDArray[np.float64]:
        """(3,), of the tests."""
        return 2 * (self.largest - self.without)

    @property
    def p_values(self) -> list[float]:
        """Of the same."""
        weights = ONE_SPREAD, ONE_SPREAD, self.weights
        return [p_value(x, w) for x, w in zip(self.statistics, weights, strict=True)]

    def intervals(self, cut: float) -> list[tuple[float, float, float]]:
        """For A and for B the estimate, and the lower and the upper end.

        Args:
            cut: by how much the deviance is larger at the ends.
        """
        both = zip(self.spreads, self.deviations, self.without[:2], strict=True)
        return [spread.interval(x, self.largest, none, cut) for spread, x, none in both]


class _Spread(NamedTuple):
    """That of one parameter."""

    profile: Profile
    unit: float  # of the parameter, in that of the profile
    start: Position  # of searches

    def held(self, spread: float) -> float:
        """The greatest log likelihood with this spread."""
        held = (spread, None if spread else 0.0, None)
        return self.profile.likeliest(self.start, held)[0]

    def interval(
        self, deviation: float, largest: float, none: float, cut: float
    ) -> tuple[float, float, float]:
        """The likeliest standard deviation, and the lower and the upper end.

        Args:
            deviation: the likeliest.
            largest: log likelihood.
            none: that without spread.
            cut: by how much the deviance is larger at the ends.
        """

        def excess(log_likelihood: float) -> float:
            """By roots, which are about linear in the spread."""
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
    """Where a function is 0, between two points of unlike signs (Illinois method)."""
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
