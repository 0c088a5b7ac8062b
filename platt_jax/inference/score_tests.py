"""Tests of probabilities by sums over rows, problem by problem."""

import numpy as np
from numpy.typing import NDArray

# So little of a sum's variance is rounding.
_NOTHING = 1e-18
# Where the sums are as good as normal: by the fourth moments of the rows' shares of them.
_NORMAL = 1e-3
# Draws as extreme as the labels but for rounding are ties.
_TIED = 1 - 1e-9

# Half-spaces around the circle of Cox's test.
_AROUND = 16


class ScoreTests:
    """Cox's joint test of intercept 0 and slope 1, and Spiegelhalter's, of many problems.

    With p the probability of a row, l its log-odds and r = y - p, Cox's test (1958, as a score
    test) takes sum(r) and sum(r (l - c)), where the center c makes the two independent;
    Spiegelhalter's (1986) takes sum(r (1 - 2p)). Each is divided by its standard deviation. The two
    p-values are combined by their minimum (Tippett 1931).

    Args:
        logit: (N,) of the rows, those of a problem end to end.
        proba: (N,) likewise, P(y=1); neither 0 nor 1.
        labels: (N,) bool.
        sizes: (K,) how many each problem has, at least one.

    Other labels are at least as extreme as those observed where the minimum is no larger: where the
    two sums of Cox's test are outside of a circle, or that of Spiegelhalter's of an interval.

    Attributes:
        cox_pvalue: (K,), by the chi-square distribution.
        spiegelhalter_z: (K,), standard normal; NaN where all probabilities are 1/2.
        least_pvalue: (K,), the smaller of the two p-values.
        normal: (K,) bool, whether there are rows enough for the sums to be as good as normal.
        shares: (3, N), what a label adds to each of the three sums, of variance 1.
        observed: (3, K), the sums less their expectations.
        directions: (J, 3), for each of J half-spaces that together hold all labels that are at
            least as extreme.
        bounds: (J, K): there the sum of a direction times the sums is at least this.
    """

    def __init__(
        self,
        logit: NDArray[np.float64],
        proba: NDArray[np.float64],
        labels: NDArray[np.bool_],
        sizes: NDArray[np.int64],
    ) -> None:
        from scipy.special import erfc, log_ndtr, ndtri_exp  # which JAX needs, too

        self._sizes = sizes
        starts = np.cumsum(sizes) - sizes
        variance = proba * (1 - proba)

        def total(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.add.reduceat(x, starts)

        def by_row(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.repeat(x, sizes)

        v_00 = total(variance)
        center = total(variance * logit) / v_00
        away = logit - by_row(center)
        v_11, v_22 = total(variance * away**2), total(variance * (1 - 2 * proba) ** 2)
        has_slope = v_11 > _NOTHING * v_00 * (1 + center**2)
        deviations = np.sqrt([v_00, np.where(has_slope, v_11, np.inf), v_22])
        deviations[deviations == 0] = np.inf
        self.shares = np.stack([np.ones_like(proba), away, 1 - 2 * proba])
        self.shares /= [by_row(x) for x in deviations]
        self._expected = np.stack([total(proba * x) for x in self.shares])
        self.normal = np.max([total(variance * x**4) for x in self.shares], axis=0) < _NORMAL

        every = slice(None)
        self.observed = self.sums(every, every, labels[None])[:, 0]
        chi_square, z = self.observed[0] ** 2 + self.observed[1] ** 2, self.observed[2]
        # Logarithms, since the p-values of labels that are next to impossible round to 0.
        two = np.log(2)
        log_cox = np.where(has_slope, -chi_square / 2, two + log_ndtr(-np.sqrt(chi_square)))
        log_least = np.minimum(log_cox, two + log_ndtr(-np.abs(z)))
        of_two, of_one = np.exp(-chi_square / 2), erfc(np.sqrt(chi_square / 2))
        self.cox_pvalue = np.where(has_slope, of_two, of_one)
        self.spiegelhalter_z = np.where(v_22 > 0, z, np.nan)
        self.least_pvalue = np.minimum(self.cox_pvalue, erfc(np.abs(z) / np.sqrt(2)))
        least_z = np.maximum(-ndtri_exp(log_least - two), 0)
        self._chi_square = _TIED * np.where(has_slope, -2 * log_least, least_z**2)
        self._z = _TIED * least_z

        angles = 2 * np.pi / _AROUND * np.arange(_AROUND)
        around = np.stack([np.cos(angles), np.sin(angles), 0 * angles], -1)
        self.directions = np.concatenate([around, [[0, 0, 1], [0, 0, -1]]])
        # So near that neighbouring half-spaces meet on the circle.
        near = np.cos(np.pi / _AROUND)
        radius = np.broadcast_to(np.sqrt(self._chi_square), (_AROUND, len(sizes)))
        self.bounds = near * np.concatenate([radius, [self._z, self._z]])

    def sums(
        self,
        some: NDArray[np.int64] | slice,
        rows: NDArray[np.int64] | slice,
        labels: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """The three sums of other labels, less their expectations.

        Args:
            some: (k,) which problems.
            rows: (n,) their rows.
            labels: (R, n) bool, the labels of these.

        Returns:
            (3, R, k).
        """
        sizes = self._sizes[some]
        starts = np.cumsum(sizes) - sizes
        return np.stack(
            [
                np.add.reduceat(labels * share, starts, axis=1) - expected
                for share, expected in zip(
                    self.shares[:, rows], self._expected[:, some], strict=True
                )
            ]
        )

    def extreme(self, some: NDArray[np.int64], sums: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether labels with these sums (3, R, k) are at least as extreme as those observed."""
        chi_square = sums[0] ** 2 + sums[1] ** 2
        extreme: NDArray[np.bool_] = chi_square >= self._chi_square[some]
        return extreme | (np.abs(sums[2]) >= self._z[some])
