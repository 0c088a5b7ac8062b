"""Score tests of probabilities, from sums over the rows of each problem."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.groups import Groups

# Least variance of a label under uncertain curves: the surest probability's.
_LEAST_VARIANCE = 2.0**-53
# Share of a sum's variance that may be rounding error.
_NOTHING = 1e-18
# Maximum ratio of fourth moments to squared variances at which sums are taken as normal.
_NORMAL = 1e-3
# Factor for statistics of draws that tie with the labels' but for rounding.
_TIED = 1 - 1e-9

# Number of groups of rows with similar probabilities, where sums are normal.
GROUPS = 1_024

_LOG_2 = np.log(2)
_FARTHEST = 1e60  # log-odds, or scores in any unit: fourth powers are finite


class MixingDistribution(NamedTuple):
    """Distribution of uncertain probabilities, by J nodes of an integral.

    A row's log-odds are the sum of its offset and of its problem's two variables, each times a
    number of the row.
    """

    basis: Floats  # (2, N) numbers of the rows
    log_odds: Floats  # (J, K, 2) variables of the problems
    weight: Floats  # (J,) weights of the nodes, with sum 1
    owner: Ints  # (N,), the problem of each row
    offset: Floats  # (N,)

    def probabilities(self) -> "MixedProbabilities":
        """The probabilities of the rows, of a number of rows that fits a cache."""
        proba = np.empty((len(self.weight), len(self.owner)))
        mean, variance = np.zeros((2, len(self.owner)))
        for p, weight, variables in zip(proba, self.weight, self.log_odds, strict=True):
            first, second = variables[self.owner].T * self.basis
            log_odds = first + second + self.offset
            odds = np.exp(-np.abs(log_odds))
            likelier = 1 / (1 + odds)
            unlikelier = odds * likelier
            np.copyto(p, np.where(log_odds >= 0, likelier, unlikelier))
            mean += weight * p
            variance += weight * (likelier * unlikelier)
        return MixedProbabilities(self.weight, proba, mean, variance)


class MixedProbabilities(NamedTuple):
    """Probabilities of N rows by the J nodes of a `MixingDistribution`."""

    weight: Floats  # (J,)
    each: Floats  # (J, N) P(y=1)
    mean: Floats  # (N,) of P(y=1)
    variance: Floats  # (N,) mean of P(y=1) P(y=0)


def judged_variances(
    v_00: Floats, v_11: Floats, v_22: Floats, center: Floats, fourth: Any
) -> tuple[Bools, Floats, Bools]:
    """Whether log-odds differ, (K,); variances of the three sums, (3, K); and `ScoreTests.normal`.

    The first three are sums (K,) of the rows' variances, as they are and times squared shares. The
    center is the mean log-odds by these variances; `fourth` (3, K) has fourth powers of the shares.
    """
    has_slope = v_11 > _NOTHING * v_00 * (1 + center**2)
    variances = np.array([v_00, np.where(has_slope, v_11, np.inf), v_22])
    positive = np.array([*variances[:2], np.where(v_22 == 0, np.inf, v_22)])
    return has_slope, variances, np.max(fourth / positive**2, axis=0) < _NORMAL


class Statistics(NamedTuple):
    """The statistics of K problems, by their three sums."""

    cox_p_value: Floats  # (K,) as in `ScoreTests`, as the next two
    spiegelhalter_z: Floats
    least_p_value: Floats
    chi_square: Floats  # (K,) squared radii of the circle beyond which sums are as extreme
    z: Floats  # (K,) half-widths of the interval


def statistics(observed: Floats, has_slope: Bools, has_spread: Bools) -> Statistics:
    """The statistics, from the sums of the labels (3, K) less their expectations.

    Each sum is divided by its standard deviation; `has_spread` says whether a probability is not
    1/2.
    """
    # JAX has SciPy; the import adds a warnings filter.
    from scipy.special import erfc, log_ndtr, ndtri_exp

    chi_square, z = observed[0] ** 2 + observed[1] ** 2, observed[2]
    p_of_two, p_of_one = np.exp(-chi_square / 2), erfc(np.sqrt(chi_square / 2))
    cox_p_value = np.where(has_slope, p_of_two, p_of_one)
    # In logarithms, because a p-value may underflow.
    cox_log_p = np.where(has_slope, -chi_square / 2 - _LOG_2, log_ndtr(-np.sqrt(chi_square)))
    z_log_p = log_ndtr(-np.abs(z))
    least = np.minimum(cox_log_p, z_log_p)
    # The statistic of the smaller p-value as it is: by way of its p-value, which for sure
    # predictions is nearly 1, it would be lost in rounding.
    least_z = np.where(z_log_p <= cox_log_p, np.abs(z), np.maximum(-ndtri_exp(least), 0))
    as_large = np.where(has_slope, -2 * (least + _LOG_2), least_z**2)
    return Statistics(
        cox_p_value,
        np.where(has_spread, z, np.nan),
        np.minimum(cox_p_value, erfc(np.abs(z) / np.sqrt(2))),
        _TIED * np.where(cox_log_p <= z_log_p, chi_square, as_large),
        _TIED * least_z,
    )


class ScoreTests:
    """Cox's joint test of intercept 0 and slope 1, and Spiegelhalter's test, of many problems.

    With p the probability of a row, l its log-odds and r = y - p, Cox's test (1958, as a score
    test) uses sum(r) and sum(r (l - c)), where the center c makes the two independent.
    Spiegelhalter's (1986) uses sum(r (1 - 2p)). Each sum is divided by its standard deviation. The
    two p-values are combined by their minimum (Tippett 1931).

    Rows (N,) are concatenated by problem, ascending in each; no probability is 0 or 1. With a
    spread, `proba` are mean probabilities, `logit` may be the scores in any unit, and the standard
    deviations include the variance of the probabilities.

    Attributes:
        cox_p_value: (K,) p-value by the chi-square distribution.
        spiegelhalter_z: (K,) standard normal statistic; NaN where all probabilities are 1/2.
        least_p_value: (K,) the smaller of the two p-values.
        normal: (K,) bool, whether there are enough rows to take the sums as normal.
    """

    def __init__(
        self,
        logit: Floats,
        proba: Floats,
        labels: Bools,
        groups: Groups,
        spread: MixedProbabilities | None = None,
    ) -> None:
        self.groups, self.proba = groups, proba
        total, by_row = groups.sums, groups.by_row
        logit = np.clip(logit, -_FARTHEST, _FARTHEST)
        variance = proba * (1 - proba)
        if spread is not None:
            variance = np.maximum(spread.variance, _LEAST_VARIANCE)

        v_00 = total(variance)
        center = total(variance * logit) / v_00
        away = logit - by_row(center)
        shares = np.stack([np.ones_like(proba), away, 1 - 2 * proba])
        squares = variance * shares[1:] ** 2
        v_11, v_22 = total(squares)
        fourth = [v_00, *total(squares * shares[1:] ** 2)]
        has_slope, variances, self.normal = judged_variances(v_00, v_11, v_22, center, fourth)
        s_00, s_11, s_22 = variances
        if spread is not None:
            # Covariances, over the curves, of the expected sums.
            curve_covariance = np.zeros((3, 3, len(groups.sizes)))
            for weight, p in zip(spread.weight, spread.each, strict=True):
                moved = total(shares * (p - proba))
                curve_covariance += weight * moved * moved[:, None]
            s_00, s_22 = s_00 + curve_covariance[0, 0], s_22 + curve_covariance[2, 2]
            mixing = curve_covariance[0, 1] / s_00
            s_11 = s_11 + curve_covariance[1, 1] - mixing * curve_covariance[0, 1]
            shares[1] -= by_row(mixing)
        deviations = np.sqrt([s_00, s_11, s_22])
        deviations[deviations == 0] = np.inf
        self._shares = shares / by_row(deviations)
        self._expected = total(proba * self._shares)

        self._observed = total(labels * self._shares) - self._expected
        result = statistics(self._observed, has_slope, v_22 > 0)
        self.cox_p_value, self.spiegelhalter_z = result.cox_p_value, result.spiegelhalter_z
        self.least_p_value = result.least_p_value
        self._chi_square, self._z = result.chi_square, result.z

    def one(self, k: int) -> "ScoreTest":
        """The test of problem k."""
        first, size = self.groups.starts[k], self.groups.sizes[k]
        rows = slice(first, first + size)
        proba, counts = self.proba[rows], np.ones(size)
        shares = self._shares[:, rows]
        if self.normal[k]:
            starts = np.linspace(0, size, GROUPS, endpoint=False).astype(np.int64)
            similar = Groups(np.diff(starts, append=size))
            counts = similar.sizes.astype(float)
            proba, shares = similar.means(proba), similar.means(shares)
        return ScoreTest(
            proba,
            shares,
            counts,
            self._expected[:, k],
            self._observed[:, k],
            self._chi_square[k],
            self._z[k],
            self.normal[k],
        )

    def extreme(self, some: Ints, rows: Ints, labels: Bools) -> Bools:
        """(R, k), whether other labels (R, n) give a p-value of at most `least_p_value`."""
        groups = Groups(self.groups.sizes[some])
        pairs = zip(self._shares[:, rows], self._expected[:, some], strict=True)
        sums = [groups.sums(labels * share) - expected for share, expected in pairs]
        return extreme(sums, self._chi_square[some], self._z[some])


class ScoreTest(NamedTuple):
    """The tests of one problem, whose sums are extreme outside of a circle or an interval.

    The sums are Cox's two and Spiegelhalter's, minus their expectations, each with variance 1.
    """

    proba: Floats  # (n,)
    shares: Floats  # (3, n) contribution of a label to each of the sums
    counts: Floats  # (n,) number of rows in each group: 1 unless sums are normal
    expected: Floats  # (3,)
    observed: Floats  # (3,) sums of the observed labels
    chi_square: float  # squared radius of the circle
    z: float  # half-width of the interval
    normal: bool  # whether sums are taken as normal

    def sums(self, labels: NDArray[Any]) -> Floats:
        """(3, R) sums of other labels (R, n), or of numbers of positives."""
        return (labels.astype(float) @ self.shares.T - self.expected).T

    def extreme(self, sums: Floats) -> Bools:
        """(R,) whether sums (3, R) are at least as extreme as the observed ones."""
        return extreme(sums, self.chi_square, self.z)


def extreme(sums: Any, chi_square: Any, z: Any) -> Any:
    """Whether sums are at least as extreme as these, for arrays of NumPy or of JAX."""
    return (sums[0] ** 2 + sums[1] ** 2 >= chi_square) | (abs(sums[2]) >= z)
