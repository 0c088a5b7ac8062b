"""Small p-values: by labels drawn where extreme ones are common, and weighted.

Labels are drawn with the log-odds moved by a multiple of what they add to a sum (exponential
tilting: Siegmund 1976, "Importance sampling in the Monte Carlo study of sequential tests"), so that
the sum's mean is at the bound of a half-space of extreme labels. Several such half-spaces hold all
of the extreme labels: the draws are from a mixture over these, and weighted by what labels are
drawn more often in it than by the hypothesis (Owen & Zhou 2000, "Safe and effective importance
sampling"). The weight of extreme labels is then at most the sum of the half-spaces' Chernoff
bounds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.inference.simulation import (
    AT_ONCE,
    LinearTest,
    blocks,
    in_pieces,
    rows_of,
    thresholds,
    words,
)
from platt_jax.passes.replicated import mixed, random_words
from platt_jax.results.probabilities import expit, log_expit

# Draws are enough where the p-value's standard error is this part of it; they are so many then, or
# the last number at most.
_ERROR = 0.05
_DRAWS = (1_024, 4_096, 16_384)
_SEED = 1

# Of the draws, those by the hypothesis as it is: they bound the weights of all labels.
_AS_IT_IS = 0.02

# How near a sum's mean has to come to the bound, in standard deviations, and in how many steps: any
# tilt gives the p-value, a good one by few draws.
_NEAR = 0.1
_STEPS = 30
_LEAST, _LARGEST = 1e-6, 1e4  # tilts of the log-odds that move most

# Where no labels give a sum so large but for rounding, it is out of reach.
_OUT_OF_REACH = 1 - 1e-9

_BELOW_ONE = 1 - 2.0**-53
_LARGEST_EXPONENT = 700
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # less 1, times 2^64


def tilted_pvalues(
    logit: NDArray[np.float64],
    proba: NDArray[np.float64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.uint64],
    which: NDArray[np.int64],
    test: LinearTest,
) -> NDArray[np.float64]:
    """P-values of problems, to a standard error of a twentieth of them, however small they are.

    The labels observed count as one of the draws, which keeps the p-values valid (Harrison 2012,
    "Conservative hypothesis tests and confidence intervals using importance sampling"). Where there
    are rows enough, normal sums are drawn, and no labels: this is a saddlepoint approximation.

    Args:
        logit: (N,) log-odds of the rows, those of a problem end to end.
        proba: (N,) their P(y=1).
        sizes: (K,) how many each problem has.
        ids: (K,) uint64; a problem's draws depend on its own id and on nothing else.
        which: (J,) the numbers of those whose p-values are wanted: the smaller, the more is gained.
        test: of the labels.

    Returns:
        (J,) in [0, 1].
    """
    starts = np.cumsum(sizes) - sizes
    pvalues = np.full(len(sizes), np.nan)
    log_scale, own, total, squares = np.zeros((4, len(sizes)))
    open_, drawn = which, 0
    for until in _DRAWS:

        def draw(
            some: NDArray[np.int64], first: int = drawn, last: int = until
        ) -> tuple[NDArray[np.float64], ...]:
            owner, number = rows_of(sizes[some])
            rows = starts[some][owner] + number
            theirs = _Rows(rows, test.shares[:, rows], logit[rows], proba[rows], sizes[some])
            mixture = _Mixture(test, some, theirs)
            return mixture.log_scale, mixture.own_weight(), *mixture.draw(ids[some], first, last)

        for normal in (False, True):
            alike = open_[test.normal[open_] == normal]
            for some, made in in_pieces(draw, alike, sizes) if len(alike) else ():
                log_scale[some], own[some] = made[:2]
                total[some] += made[2]
                squares[some] += made[3]
        drawn = until
        # Of the weights' mean, relative to it: where none is extreme, infinite.
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt(squares[open_] / total[open_] ** 2 - 1 / drawn)
        settled = error <= _ERROR
        mean = (own[open_] + total[open_]) / (1 + drawn)
        pvalues[open_] = np.exp(log_scale[open_]) * mean
        open_ = open_[~settled]
    return np.minimum(pvalues[which], 1)


class _Rows(NamedTuple):
    """The n rows of k problems."""

    place: NDArray[np.int64]  # (n,), among all rows
    shares: NDArray[np.float64]  # (S, n), what a label adds to each sum
    logit: NDArray[np.float64]  # (n,)
    proba: NDArray[np.float64]  # (n,)
    sizes: NDArray[np.int64]  # (k,)

    @property
    def starts(self) -> NDArray[np.int64]:
        """(k,), where each problem's begin."""
        starts: NDArray[np.int64] = np.cumsum(self.sizes) - self.sizes
        return starts

    def total(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """(..., k), the sums over the rows of each problem."""
        sums: NDArray[np.float64] = np.add.reduceat(x, self.starts, axis=-1)
        return sums


class _Tilt(NamedTuple):
    """Tilts of k problems in some of the directions, d of them."""

    length: NDArray[np.float64]  # (d, k), what multiplies the direction; infinite where none is
    log_bound: NDArray[np.float64]  # (d, k), of Chernoff's bound on the half-space's probability
    proba: NDArray[np.float64]  # (d, n)


def _tilt(rows: _Rows, directions: NDArray[np.float64], bounds: NDArray[np.float64]) -> _Tilt:
    """The tilts in these directions (d, S) with which sums are (d, k) on average."""
    p, total = rows.proba, rows.total
    along = directions @ rows.shares
    most = total(np.where(along > 0, (1 - p) * along, -p * along))
    largest = np.maximum.reduceat(np.abs(along), rows.starts, axis=-1)
    none = (most < _OUT_OF_REACH * bounds) | (largest == 0)
    largest = np.where(none, 1, largest)
    low, high = _LEAST / largest, _LARGEST / largest
    # That of a normal sum.
    length = np.clip(bounds, low, high)
    for step in range(_STEPS):
        by_row = np.repeat(length, rows.sizes, axis=-1) * along
        tilted = np.clip(expit(rows.logit + by_row), 0, _BELOW_ONE)
        mean = total((tilted - p) * along)
        variance = total(tilted * (1 - tilted) * along**2)
        far = np.abs(mean - bounds) > _NEAR * np.sqrt(variance)
        if step == _STEPS - 1 or not (far & ~none).any():
            break
        low, high = np.where(mean < bounds, length, low), np.where(mean < bounds, high, length)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = length + (bounds - mean) / variance
        inside = (newton > low) & (newton < high)
        length = np.where(far, np.where(inside, newton, np.sqrt(low * high)), length)
    # The logarithm of the mean of exp(length * sum).
    log_mean = total(log_expit(-rows.logit) - log_expit(-rows.logit - by_row) - by_row * p)
    return _Tilt(
        np.where(none, np.inf, length),
        np.where(none, -np.inf, log_mean - length * bounds),
        tilted,
    )


class _Mixture:
    """Draws of k problems' sums from J tilts and from none, and their weights."""

    def __init__(self, test: LinearTest, some: NDArray[np.int64], rows: _Rows) -> None:
        self._test, self._some = test, some
        self._bounds = test.bounds[:, some]
        step = max(1, AT_ONCE // len(rows.proba))
        kind = _NormalSums if test.normal[some[0]] else _LabelSums
        parts, of_sums = [], []
        for first in range(0, len(test.directions), step):
            which = slice(first, first + step)
            tilt = _tilt(rows, test.directions[which], self._bounds[which])
            of_sums.append(kind.taken(rows, tilt.proba))
            parts.append((tilt.length, tilt.log_bound))
        of_sums.append(kind.taken(rows, rows.proba[None]))
        self._sums = kind(test, some, rows, of_sums)
        self._length, log_bound = (np.concatenate(x) for x in zip(*parts, strict=True))
        # (k,), of what weights are divided by: they may be too small for floats.
        self.log_scale = np.logaddexp.reduce(log_bound)
        self._until = (1 - _AS_IT_IS) * np.cumsum(np.exp(log_bound - self.log_scale), axis=0)

    def draw(
        self, ids: NDArray[np.uint64], first: int, last: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(k,), the sum and the sum of squares of the extreme draws' weights."""
        number = len(self._some)
        total, squares = np.zeros((2, number))
        for draws in blocks(first, last, self._sums.elements):
            # A golden-ratio sequence takes each tilt as often as it should be, all but exactly.
            place = draws[:, None].astype(np.uint64) * _GOLDEN_RATIO + mixed(ids)
            which = (np.ldexp(place.astype(float), -64) >= self._until[:, None]).sum(axis=0)
            sums = self._sums.draw(random_words(_SEED, ids, draws[:, None]), which)
            of_draw, owner = np.nonzero(self._test.extreme(self._some, sums))
            weights = self._weights(owner, sums[:, of_draw, owner])
            total += np.bincount(owner, weights, number)
            squares += np.bincount(owner, weights**2, number)
        return total, squares

    def own_weight(self) -> NDArray[np.float64]:
        """(k,), of the labels observed."""
        return self._weights(np.arange(len(self._some)), self._test.observed[:, self._some])

    def _weights(self, owner: NDArray[np.int64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """(m,), of extreme draws with these sums (S, m)."""
        beyond = self._length[:, owner] * (self._test.directions @ sums - self._bounds[:, owner])
        tilted = np.exp(np.minimum(beyond, _LARGEST_EXPONENT)).sum(axis=0)
        as_it_is = _AS_IT_IS * np.exp(self.log_scale[owner])
        weights: NDArray[np.float64] = 1 / (as_it_is + (1 - _AS_IT_IS) * tilted)
        return weights


class _LabelSums:
    """Sums of k problems' labels, which are drawn.

    Attributes:
        elements: how many numbers a draw takes.
    """

    def __init__(
        self,
        test: LinearTest,
        some: NDArray[np.int64],
        rows: _Rows,
        taken: list[NDArray[np.uint64]],
    ) -> None:
        self._test, self._some, self._rows = test, some, rows
        self._owner, self._number = rows_of(rows.sizes)
        self._thresholds = np.concatenate(taken)
        self.elements = len(rows.proba)

    @staticmethod
    def taken(rows: _Rows, proba: NDArray[np.float64]) -> NDArray[np.uint64]:
        """What is taken of the probabilities (d, n) by some tilts."""
        return thresholds(proba).ravel()

    def draw(self, streams: NDArray[np.uint64], which: NDArray[np.int64]) -> NDArray[np.float64]:
        """(S, R, k), given random streams and the tilts' numbers, (R, k) each."""
        at = which[:, self._owner] * self.elements + np.arange(self.elements)
        labels = words(streams, self._owner, self._number) < self._thresholds[at]
        return self._test.sums(self._some, self._rows.place, labels)


class _NormalSums:
    """Normal variables with the mean and covariance of k problems' sums.

    Attributes:
        elements: how many numbers a draw takes.
    """

    def __init__(
        self,
        test: LinearTest,
        some: NDArray[np.int64],
        rows: _Rows,
        taken: list[tuple[NDArray[np.float64], NDArray[np.float64]]],
    ) -> None:
        self._mean, self._root = (np.concatenate(x) for x in zip(*taken, strict=True))
        self.elements = self._mean.size

    @staticmethod
    def taken(
        rows: _Rows, proba: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Means (d, k, S), and roots of the covariances, of the probabilities (d, n)."""
        mean = np.stack([rows.total((proba - rows.proba) * x) for x in rows.shares], -1)
        variance = proba * (1 - proba)
        covariance = [
            np.stack([rows.total(variance * x * y) for x in rows.shares], -1) for y in rows.shares
        ]
        values, vectors = np.linalg.eigh(np.stack(covariance, -1))
        return mean, vectors * np.sqrt(np.maximum(values, 0))[..., None, :]

    def draw(self, streams: NDArray[np.uint64], which: NDArray[np.int64]) -> NDArray[np.float64]:
        """(S, R, k), given random streams and the tilts' numbers, (R, k) each."""
        from scipy.special import ndtri

        numbers = np.arange(self._mean.shape[-1], dtype=np.uint64)
        random = mixed(streams[..., None] + numbers) >> np.uint64(12)
        normal = ndtri(np.ldexp(random + 0.5, -52))
        at = which, np.arange(which.shape[1])
        return np.einsum("rkij,rkj->irk", self._root[at], normal) + np.moveaxis(
            self._mean[at], -1, 0
        )
