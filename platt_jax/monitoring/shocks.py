"""Likelihood ratios for nights whose rows share a cause.

The log-odds of a segment's rows move together by a shock, which is normal around 0 in each night;
given the shock, labels are independent. A night's likelihood is the mean over the shock, and a
shift of the log-odds is a shift of the shock. The likelihood ratio grows with each label on the
shift's side, because the posterior of the shock does (its likelihood ratios are monotone). So its
expectation is at most 1 wherever in the margin the truth lies, as without shocks.

The log likelihood of a given shock is a sum over rows, and an analytic function of the shock: its
values at a few shocks, which are sums of integers, give it everywhere.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebpts1, chebvander

from platt_jax.arrays import Floats, Ints
from platt_jax.population.places import namespace
from platt_jax.results.probabilities import expit

LARGEST = 3.0  # standard deviation of shocks; the number of nodes grows with it
_FARTHEST = 7.0  # standard deviations; a shock is larger in one of 4e11 nights
_INTERPOLATION_ERROR = 1e-7  # of a row's log likelihood, about
_POLE = np.pi  # distance from the real axis to where p(1 + exp(shock)) has no logarithm
_NUMBERS_AT_ONCE = 1 << 20
_WIDEST, _STEP = 128.0, 1 / 256  # range and distance of the tabulated log-odds


class Shocks(NamedTuple):
    """Normal shocks of the log-odds of a segment's night."""

    sd: float
    locations: Floats  # (L,) the means of the shocks: 0, and the alternatives
    nodes: Floats  # (N,) the shocks at which log likelihoods are summed
    table: tuple[Floats, Floats]  # log-odds of the mean probability, and log-odds at a shock of 0

    def centred(self, log_odds: Floats) -> Floats:
        """The log-odds at a shock of 0, if the mean probability over nights has these."""
        result: Floats = namespace(log_odds).interp(log_odds, *self.table)
        return result

    def log_ratios(self, values: Floats, rows: Ints) -> Floats:
        """(K, L - 1) log likelihood ratios of the other locations to the first.

        The values (K, N) are log likelihoods at the nodes, up to a constant. A row's information on
        the shock is at most 1/4.
        """
        ratios = np.empty((len(values), len(self.locations) - 1))
        # A step is at most a standard deviation of the posterior, and 0.7, because of the pole.
        halvings = np.ceil(np.log2(1 + self.sd**2 * (2 + rows / 4)) / 2).astype(int)
        for number in np.unique(halvings):
            points, log_weights = _rule(int(number))
            grid = (self.locations[:, None] + self.sd * points).ravel()
            matrix = np.linalg.solve(_vander(self.nodes, self.nodes).T, _vander(self.nodes, grid).T)
            group = np.flatnonzero(halvings == number)
            for part in np.array_split(group, 1 + matrix.shape[1] * len(group) // _NUMBERS_AT_ONCE):
                # Not @, whose bits depend on the number of segments.
                value = np.einsum("kn,np->kp", values[part], matrix)
                value = value.reshape(len(part), len(self.locations), -1) + log_weights
                most = value.max(2, keepdims=True)
                mean = np.log(np.exp(value - most).sum(2)) + most[:, :, 0]
                ratios[part] = mean[:, 1:] - mean[:, :1]
        return ratios


@lru_cache(maxsize=4)
def shocks(sd: float, shifts: tuple[float, ...], unit: float) -> Shocks:
    """Shocks of this standard deviation, for these shifts; nodes are multiples of the unit."""
    low, high = -_FARTHEST * sd, max(shifts) + _FARTHEST * sd
    half = (high - low) / 2
    # An interpolation at N points has an error of r^-N, where half the sum of the axes of the
    # ellipse through the pole is r times half the interval (Trefethen 2013, theorem 8.2).
    ratio = _POLE / half + np.hypot(1, _POLE / half)
    number = 2 + int(np.ceil(-np.log(_INTERPOLATION_ERROR) / np.log(ratio)))
    nodes = np.rint((low + half * (1 + chebpts1(number))) / unit) * unit
    return Shocks(sd, np.array([0.0, *shifts]), nodes, _table(sd))


def _table(sd: float) -> tuple[Floats, Floats]:
    below = np.arange(-_WIDEST, _STEP / 2, _STEP)
    points, log_weights = _rule(3)
    mean = expit(below[:, None] + sd * points) @ np.exp(log_weights)
    log_odds = np.log(mean) - np.log1p(-mean)
    log_odds[-1] = 0  # exactly
    return tuple(np.concatenate([x, -x[-2::-1]]) for x in (log_odds, below))  # type: ignore[return-value]


def _rule(halvings: int) -> tuple[Floats, Floats]:
    """Points of a standard normal variable, and the logarithms of their weights.

    The trapezoidal rule has an error of 5e-9 with a step of a standard deviation.
    """
    number = int(_FARTHEST) << halvings
    points = np.arange(-number, number + 1) / (1 << halvings)
    weights = np.exp(-(points**2) / 2)
    return points, np.log(weights / weights.sum())


def _vander(nodes: Floats, points: Any) -> Floats:
    """Chebyshev polynomials of the nodes' interval at these points."""
    scaled = 2 * (points - nodes[0]) / (nodes[-1] - nodes[0]) - 1
    polynomials: Floats = chebvander(scaled, len(nodes) - 1)
    return polynomials
