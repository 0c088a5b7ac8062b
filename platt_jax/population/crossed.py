"""Effects of crossed levels: each segment has a value of every level, in any combination.

The posterior precision of all effects is sparse. The values of one level, the one with the most,
depend on each other only by the other levels, so they are eliminated; the rest is dense. If the
rest has too many values, all large levels but that one are fitted in turn with it. Then means are
exact; covariances include the coupling of each large level with the eliminated one, and leave out
how it depends on the dense levels and on other large levels.
"""

from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.couplings import UPPER, Couplings, Elimination, Layout, entries
from platt_jax.population.levels import (
    LevelPosteriors,
    NormalMoments,
    summed,
    times,
)
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.symmetric import Symmetric

_Array: TypeAlias = NDArray[Any]
_Codes: TypeAlias = NDArray[Any]

_MOST_DENSE = 1_500  # maximum number of values in the dense part
# Large levels besides the eliminated one are fitted in turn until no mean moves by more than this.
_SETTLED = 1e-4
_MOST_SWEEPS = 50
_SQUARE = np.array([[0, 1], [1, 2]])  # entries AA, AB and BB as a symmetric matrix


class _Pairs(NamedTuple):
    """Pairs of values of the eliminated level and of another large one that share segments."""

    eliminated: _Codes  # (M,)
    other: _Codes  # (M,)
    codes: _Codes  # (K,), the pair of each segment


class _Eliminated(NamedTuple):
    """The elimination of the level with the most values."""

    likelihoods: Likelihoods
    left: _Array  # (V, 2, 2), the covariances of its effects if all else is known
    couplings: Couplings
    reduction: Elimination


class _DensePart(NamedTuple):
    """The dense part: the mean curve, followed by the values of the small levels."""

    covariance: _Array  # (2R, 2R), of the posterior, with the eliminated level integrated out
    entries: _Array  # (R R, 3), from `couplings.entries`
    couplings: Couplings  # of the eliminated level
    average: _Array  # (2, 2R), from `Elimination`


class Crossed:
    """See `levels.Design`.

    Args:
        codes: (K, L) the value of each level, for each segment.
        sizes: (L,) the number of values of each level, which all occur.
    """

    def __init__(self, codes: _Codes, sizes: list[int]) -> None:
        self.sizes = sizes
        self._codes = [np.ascontiguousarray(x) for x in codes.T]
        largest_first = sorted(range(len(sizes)), key=lambda level: -sizes[level])
        left, large = sum(sizes), 0
        while large == 0 or (left > _MOST_DENSE and large < len(sizes)):
            left -= sizes[largest_first[large]]
            large += 1
        self._eliminated, *self._others = largest_first[:large]
        self._small = sorted(largest_first[large:])
        ends = np.cumsum([1, *(sizes[level] for level in self._small)])
        self._slices = [slice(*x) for x in pairwise(ends)]
        self._number = int(ends[-1])
        # For each segment the places of its values in the dense part; the mean curve comes first.
        self._places = [np.zeros(len(codes), np.intp)] + [
            part.start + self._codes[level]
            for part, level in zip(self._slices, self._small, strict=True)
        ]
        self._pairs = {level: self._pairs_with(level) for level in self._others}
        self._layout = Layout(
            self._codes[self._eliminated],
            self._places,
            sizes[self._eliminated],
            self._number,
        )
        self._latest = {level: np.zeros((sizes[level], 2)) for level in self._others}
        self._kept: _Eliminated | None = None

    def _pairs_with(self, level: int) -> _Pairs:
        size = self.sizes[level]
        both = self._codes[self._eliminated] * size + self._codes[level]
        pairs, codes = np.unique(both, return_inverse=True)
        return _Pairs(*np.divmod(pairs, size), codes)

    def posteriors(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> LevelPosteriors:
        """See `levels.Design`."""
        precision = likelihoods.precision.matrices
        priors = [np.linalg.inv(x) for x in covariances]
        values = self.sizes[self._eliminated]
        eliminated = self._codes[self._eliminated]
        own = summed(eliminated, precision, values) + priors[self._eliminated]
        left = Symmetric.of(own).inverse().matrices  # if all else is known
        dense = self._dense(precision, priors, self._elimination(likelihoods, left))
        means = self._means(likelihoods, center, precision, priors, left, dense)
        root, effects, segment_means = means

        spreads: list[_Array] = [np.empty(0)] * len(self.sizes)
        R = self._number
        everywhere = np.arange(R)
        diagonal = dense.covariance.reshape(R, 2, R, 2)[everywhere, :, everywhere]
        for part, level in zip(self._slices, self._small, strict=True):
            spreads[level] = diagonal[part]
        around = self._within_dense(dense)
        carried = dense.couplings.carried(dense.covariance, dense.average)
        around -= 2 * carried.between[:, _SQUARE]
        spreads[self._eliminated] = left + carried.spread
        for level in self._others:
            spreads[level] = self._couple(level, precision, priors, left, spreads, around)
        around += spreads[self._eliminated][eliminated]
        made = [NormalMoments(*x) for x in zip(effects, spreads, strict=True)]
        mean_curve = NormalMoments(root[None], diagonal[:1])
        with_average = left / values + carried.with_average
        centred = self._centred(mean_curve, made, dense, with_average, left.mean(0) / values)
        return LevelPosteriors(mean_curve, made, NormalMoments(segment_means, around), *centred)

    def _elimination(self, likelihoods: Likelihoods, left: _Array) -> _Eliminated:
        """The elimination; the latest one is kept, for the spreads of other levels leave it be."""
        kept = self._kept
        if (
            kept is None
            or kept.likelihoods is not likelihoods
            or not np.array_equal(kept.left, left)
        ):
            couplings = self._layout.couplings(likelihoods.precision.matrices, left)
            kept = _Eliminated(likelihoods, left, couplings, couplings.reduction())
            self._kept = kept
        return kept

    def _dense(self, precision: _Array, priors: list[_Array], without: _Eliminated) -> _DensePart:
        """The dense part, from its precision with the eliminated level integrated out."""
        R = self._number
        total: _Array = np.zeros((R, 2, R, 2))
        for i, j in UPPER:
            entry = precision[:, i, j]
            square = np.zeros((R, R))
            for number, at in enumerate(self._places):
                for other in self._places[number + 1 :]:
                    square += np.bincount(at * R + other, entry, R * R).reshape(R, R)
            square += square.T
            for at in self._places:
                square += np.diag(np.bincount(at, entry, R))
            total[:, i, :, j] = total[:, j, :, i] = square
        total[0, :, 0, :] += MEAN_PRECISION * np.eye(2)
        for part, level in zip(self._slices, self._small, strict=True):
            places = np.arange(part.start, part.stop)
            total[places, :, places, :] += priors[level]
        total = total.reshape(2 * R, 2 * R)
        taken = without.reduction
        covariance = np.linalg.inv(total - taken.precision)
        covariance = (covariance + covariance.T) / 2
        pair_entries = entries(covariance.reshape(R, 2, R, 2))
        return _DensePart(covariance, pair_entries, without.couplings, taken.average)

    def _means(
        self,
        likelihoods: Likelihoods,
        center: _Array,
        precision: _Array,
        priors: list[_Array],
        left: _Array,
        dense: _DensePart,
    ) -> tuple[_Array, list[_Array], _Array]:
        """The means of the mean curve (2,), of the effects, and of the segments' (A, B)."""
        eliminated, values = self._codes[self._eliminated], self.sizes[self._eliminated]
        others = {
            level: Symmetric.of(
                summed(self._codes[level], precision, self.sizes[level]) + priors[level]
            )
            .inverse()
            .matrices
            for level in self._others
        }
        others_effect = sum(
            (self._latest[level][self._codes[level]] for level in self._others),
            np.zeros_like(likelihoods.pull),
        )
        for _ in range(_MOST_SWEEPS):
            pull = likelihoods.pull - times(precision, others_effect)
            own = summed(eliminated, pull, values)
            passed_on = pull - times(precision, times(left, own)[eliminated])
            at: Any = sum(summed(places, passed_on, self._number) for places in self._places)
            at[0] += MEAN_PRECISION * center
            rest: Any = (dense.covariance @ np.ravel(at)).reshape(-1, 2)
            rest_effect = sum(rest[places] for places in self._places)
            own -= summed(eliminated, times(precision, rest_effect), values)
            effects_here = times(left, own)
            segment_means = rest_effect + effects_here[eliminated] + others_effect
            moved = 0.0
            for level, inverse in others.items():
                codes, before = self._codes[level], self._latest[level]
                residual = likelihoods.pull - times(precision, segment_means - before[codes])
                after = times(inverse, summed(codes, residual, self.sizes[level]))
                segment_means += (after - before)[codes]
                others_effect = others_effect + (after - before)[codes]
                self._latest[level] = after
                moved = max(moved, np.abs(after - before).max())
            if moved <= _SETTLED:
                break
        effects: list[_Array] = [np.empty(0)] * len(self.sizes)
        effects[self._eliminated] = effects_here
        for part, level in zip(self._slices, self._small, strict=True):
            effects[level] = rest[part]
        for level in self._others:
            effects[level] = self._latest[level]
        return rest[0], effects, segment_means

    def _within_dense(self, dense: _DensePart) -> _Array:
        """(K, 2, 2), the covariance of each segment's sum over the dense part."""
        total = np.zeros((len(self._places[0]), 3))
        for number, at in enumerate(self._places):
            for other in self._places[number:]:
                times = 1 if other is at else 2
                total += times * dense.entries[at * self._number + other]
        return total[:, _SQUARE]

    def _couple(
        self,
        level: int,
        precision: _Array,
        priors: list[_Array],
        left: _Array,
        spreads: list[_Array],
        around: _Array,
    ) -> _Array:
        """The covariances (V, 2, 2) of the effects of another large level.

        The eliminated level is integrated out for each value alone. Adds what follows to the
        covariances of the eliminated level's effects and of the segments.
        """
        pairs = self._pairs[level]
        shared = summed(pairs.codes, precision, len(pairs.other))
        own = summed(self._codes[level], precision, self.sizes[level]) + priors[level]
        by_other = left[pairs.eliminated] @ shared
        own -= summed(pairs.other, shared @ by_other, self.sizes[level])
        spread = Symmetric.of(own).inverse().matrices
        between = by_other @ spread[pairs.other]
        more = between @ by_other.swapaxes(1, 2)
        spreads[self._eliminated] += summed(pairs.eliminated, more, len(left))
        around += spread[self._codes[level]]
        around -= (between + between.swapaxes(1, 2))[pairs.codes]
        return spread

    def _centred(
        self,
        root: NormalMoments,
        effects: list[NormalMoments],
        dense: _DensePart,
        with_average: _Array,
        left_of_average: _Array,
    ) -> tuple[NormalMoments, list[NormalMoments]]:
        """The effects minus their averages, which are added to the mean curve.

        Sums of these for prediction are nearly independent, unlike those of the effects: only the
        sum of mean curve and average is known well.
        """
        total, centred, R = root.mean[0], [], self._number
        blocks = dense.covariance.reshape(R, 2, R, 2)
        averages = np.zeros((2, self._number, 2))
        averages[:, 0] = np.eye(2)
        for level, (mean, covariance) in enumerate(effects):
            average = mean.mean(0)
            total = total + average
            if level == self._eliminated:
                average_covariance = with_average.mean(0)
                covariance = (
                    covariance - with_average - with_average.swapaxes(1, 2) + average_covariance
                )
            elif level in self._small:
                part = self._slices[self._small.index(level)]
                averages[:, part] = np.eye(2)[:, None] / self.sizes[level]
                by_value = blocks[part, :, part].mean(2)
                covariance = covariance - by_value - by_value.swapaxes(1, 2) + by_value.mean(0)
            centred.append(NormalMoments(mean - average, covariance))
        by_rest = averages.reshape(2, -1) - dense.average
        spread = by_rest @ dense.covariance @ by_rest.T + left_of_average
        return NormalMoments(total[None], spread[None]), centred
