"""Tests of probabilities by sums over rows, problem by problem."""

import numpy as np
from numpy.typing import NDArray

# So little of a sum's variance is rounding.
_NOTHING = 1e-18
# Where the sums are as good as normal: by the fourth moments of the rows' shares of them.
_NORMAL = 1e-3
# Draws as extreme as the labels but for rounding are ties.
_TIED = 1 - 1e-9


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

    Attributes:
        cox_pvalue: (K,), by the chi-square distribution.
        spiegelhalter_z: (K,), standard normal; NaN where all probabilities are 1/2.
        least_pvalue: (K,), the smaller of the two p-values.
        normal: (K,) bool, whether there are rows enough for these distributions to hold.
    """

    def __init__(
        self,
        logit: NDArray[np.float64],
        proba: NDArray[np.float64],
        labels: NDArray[np.bool_],
        sizes: NDArray[np.int64],
    ) -> None:
        from scipy.special import erfc, ndtri  # JAX has SciPy; the import adds a warnings filter

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
        self._shares = np.stack([np.ones_like(proba), away, 1 - 2 * proba])
        self._shares /= [by_row(x) for x in deviations]
        self._expected = np.stack([total(proba * x) for x in self._shares])
        self.normal = np.max([total(variance * x**4) for x in self._shares], axis=0) < _NORMAL

        every = slice(None)
        (chi_square,), (z,) = self._statistics(every, every, labels[None])
        of_two, of_one = np.exp(-chi_square / 2), erfc(np.sqrt(chi_square / 2))
        self.cox_pvalue = np.where(has_slope, of_two, of_one)
        self.spiegelhalter_z = np.where(v_22 > 0, z, np.nan)
        self.least_pvalue = np.minimum(self.cox_pvalue, erfc(np.abs(z) / np.sqrt(2)))
        least_z = -ndtri(self.least_pvalue / 2)
        with np.errstate(divide="ignore"):
            least_chi_square = np.where(has_slope, -2 * np.log(self.least_pvalue), least_z**2)
        self._least: tuple[NDArray[np.float64], NDArray[np.float64]] = (
            _TIED * least_chi_square,
            _TIED * least_z,
        )

    def extreme(
        self, some: NDArray[np.int64], rows: NDArray[np.int64], labels: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Whether labels give a p-value no larger than `least_pvalue`.

        Args:
            some: (k,) which problems.
            rows: (n,) their rows.
            labels: (R, n) bool, other labels of these.

        Returns:
            (R, k) bool.
        """
        chi_square, z = self._statistics(some, rows, labels)
        return (chi_square >= self._least[0][some]) | (np.abs(z) >= self._least[1][some])

    def _statistics(
        self,
        some: NDArray[np.int64] | slice,
        rows: NDArray[np.int64] | slice,
        labels: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cox's chi-square and Spiegelhalter's z, each (R, k)."""
        sizes = self._sizes[some]
        starts = np.cumsum(sizes) - sizes
        intercept, slope, z = (
            np.add.reduceat(labels * share, starts, axis=1) - expected
            for share, expected in zip(self._shares[:, rows], self._expected[:, some], strict=True)
        )
        return intercept**2 + slope**2, z
