"""Effects of crossed levels: each segment has a value of every level, in any combination.

The posterior precision of all effects is sparse. The values of one level, the one with the most,
depend on each other only by the other levels, so they are eliminated; the rest is dense. If the
rest has too many values, all large levels but that one are fitted in turn with it. Then means are
exact; covariances include the coupling of each large level with the eliminated one, and leave out
how it depends on the dense levels and on other large levels.
"""

from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.population.couplings import UPPER, Carried, Couplings, Elimination, Layout, entries
from platt_jax.population.gaussians import NormalMoments
from platt_jax.population.levels import LevelPosteriors, summed, times
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.population.population_prior import MEAN_PRECISION
from platt_jax.population.symmetric import Symmetric

_Array: TypeAlias = NDArray[Any]
_Codes: TypeAlias = NDArray[Any]

_MOST_DENSE = 1_500  # maximum number of values in the dense part
# Large levels besides the eliminated one are fitted in turn until no mean moves by more than this.
_SETTLED = 1e-4
_MOST_SWEEPS = 50
_TRIANGLE = [0, 0, 1], [0, 1, 1]  # entries AA, AB and BB of a symmetric matrix


class _Pairs(NamedTuple):
    """Pairs of values of the eliminated level and of another large one that share segments."""

    eliminated: _Codes  # (M,)
    other: _Codes  # (M,)
    codes: _Codes  # (K,), the pair of each segment


class _LikelihoodSums(NamedTuple):
    """What depends on the likelihoods, but not on the spreads."""

    likelihoods: Likelihoods
    by_level: dict[int, _Array]  # (V, 2, 2), precisions by value of each large level
    dense: _Array  # (R, 2, R, 2), precision of the dense part


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


class _Effects(NamedTuple):
    """The posteriors of the effects, and what the segments' posteriors are made from."""

    root: _Array  # (2,), the mean of the mean curve
    means: list[_Array]  # (V, 2), of each level
    spreads: list[_Array]  # (V, 2, 2), of each level
    segment_means: _Array  # (K, 2)
    left: _Array  # see `_Eliminated`
    dense: _DensePart
    carried: Carried
    between: dict[int, _Array]  # of the other large levels, from `_couple`

    @property
    def moments(self) -> list[NormalMoments]:
        """The posteriors of each level."""
        return [NormalMoments(*x) for x in zip(self.means, self.spreads, strict=True)]


class Crossed:
    """See `levels.Design`.

    The codes (K, L) are the value of each level for each segment; all values occur.
    """

    def __init__(self, codes: _Codes, sizes: list[int]) -> None:
        self.sizes = sizes
        self._codes = [np.ascontiguousarray(x) for x in codes.T]
        largest_first = sorted(range(len(sizes)), key=lambda level: -sizes[level])
        dense_size, large = sum(sizes), 0
        while large == 0 or (dense_size > _MOST_DENSE and large < len(sizes)):
            dense_size -= sizes[largest_first[large]]
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
        self.settled = True
        self._latest = {level: np.zeros((sizes[level], 2)) for level in self._others}
        self._kept_sums: _LikelihoodSums | None = None
        self._kept: _Eliminated | None = None

    def _pairs_with(self, level: int) -> _Pairs:
        size = self.sizes[level]
        flat_index = self._codes[self._eliminated] * size + self._codes[level]
        pairs, codes = np.unique(flat_index, return_inverse=True)
        return _Pairs(*np.divmod(pairs, size), codes)

    def effects(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> list[NormalMoments]:
        """See `levels.Design`."""
        return self._effects(likelihoods, covariances, center, between=False).moments

    def posteriors(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array
    ) -> LevelPosteriors:
        """See `levels.Design`."""
        joint = self._effects(likelihoods, covariances, center, between=True)
        dense, left, eliminated = joint.dense, joint.left, self._eliminated
        around = self._within_dense(dense)
        around += (joint.spreads[eliminated][:, *_TRIANGLE])[self._codes[eliminated]]
        around -= 2 * joint.carried.between
        for level, between in joint.between.items():
            pairs = self._pairs[level]
            around += joint.spreads[level][:, *_TRIANGLE][self._codes[level]]
            around -= (between + between.swapaxes(1, 2))[:, *_TRIANGLE][pairs.codes]
        R = self._number
        mean_curve = NormalMoments(joint.root[None], dense.covariance.reshape(R, 2, R, 2)[:1, :, 0])
        values = self.sizes[eliminated]
        with_average = left / values + joint.carried.with_average
        effects = joint.moments
        centred = self._centred(mean_curve, effects, dense, with_average, left.mean(0) / values)
        segments = NormalMoments(joint.segment_means, Symmetric(*around.T).matrices)
        return LevelPosteriors(mean_curve, effects, segments, *centred)

    def _effects(
        self, likelihoods: Likelihoods, covariances: list[_Array], center: _Array, between: bool
    ) -> _Effects:
        """The effects; `between` as in `Couplings.carried`."""
        sums = self._sums(likelihoods)
        priors = [np.linalg.inv(x) for x in covariances]
        precision = sums.by_level[self._eliminated] + priors[self._eliminated]
        left = Symmetric.of(precision).inverse().matrices  # if all else is known
        dense = self._dense(sums, priors, self._elimination(likelihoods, left))
        root, means, segment_means = self._means(sums, center, priors, left, dense)
        spreads: list[_Array] = [np.empty(0)] * len(self.sizes)
        R = self._number
        everywhere = np.arange(R)
        diagonal = dense.covariance.reshape(R, 2, R, 2)[everywhere, :, everywhere]
        for part, level in zip(self._slices, self._small, strict=True):
            spreads[level] = diagonal[part]
        carried = dense.couplings.carried(dense.covariance, dense.average, between)
        spreads[self._eliminated] = left + carried.spread
        with_others = {
            level: self._couple(level, sums, priors, left, spreads) for level in self._others
        }
        return _Effects(root, means, spreads, segment_means, left, dense, carried, with_others)

    def _sums(self, likelihoods: Likelihoods) -> _LikelihoodSums:
        """The sums of the likelihoods; the latest ones are kept, for all spreads leave them be."""
        sums = self._kept_sums
        if sums is None or sums.likelihoods is not likelihoods:
            precision = likelihoods.precision.matrices
            by_level = {
                level: summed(self._codes[level], precision, self.sizes[level])
                for level in (self._eliminated, *self._others)
            }
            sums = _LikelihoodSums(likelihoods, by_level, self._dense_precision(likelihoods))
            self._kept_sums = sums
        return sums

    def _elimination(self, likelihoods: Likelihoods, left: _Array) -> _Eliminated:
        """The elimination; the latest one is kept, for the spreads of other levels leave it be."""
        elimination = self._kept
        if (
            elimination is None
            or elimination.likelihoods is not likelihoods
            or not np.array_equal(elimination.left, left)
        ):
            couplings = self._layout.couplings(likelihoods.precision.matrices, left)
            elimination = _Eliminated(likelihoods, left, couplings, couplings.reduction())
            self._kept = elimination
        return elimination

    def _dense_precision(self, likelihoods: Likelihoods) -> _Array:
        """(R, 2, R, 2), what the segments say of the dense part if all else is known."""
        R = self._number
        squares = np.zeros((3, R, R))
        for number, positions in enumerate(self._places):
            for other in self._places[number + 1 :]:
                flat_index = positions * R + other
                for square, entry in zip(squares, likelihoods.precision, strict=True):
                    square += np.bincount(flat_index, entry, R * R).reshape(R, R)
        squares += squares.swapaxes(1, 2)
        for positions in self._places:
            for square, entry in zip(squares, likelihoods.precision, strict=True):
                square += np.diag(np.bincount(positions, entry, R))
        total: _Array = np.empty((R, 2, R, 2))
        for (i, j), square in zip(UPPER, squares, strict=True):
            total[:, i, :, j] = total[:, j, :, i] = square
        return total

    def _dense(
        self, sums: _LikelihoodSums, priors: list[_Array], without: _Eliminated
    ) -> _DensePart:
        """The dense part, from its precision with the eliminated level integrated out."""
        R, total = self._number, sums.dense.copy()
        total[0, :, 0, :] += MEAN_PRECISION * np.eye(2)
        for part, level in zip(self._slices, self._small, strict=True):
            places = np.arange(part.start, part.stop)
            total[places, :, places, :] += priors[level]
        total = total.reshape(2 * R, 2 * R)
        reduction = without.reduction
        covariance = np.linalg.inv(total - reduction.precision)
        covariance = (covariance + covariance.T) / 2
        pair_entries = entries(covariance.reshape(R, 2, R, 2))
        return _DensePart(covariance, pair_entries, without.couplings, reduction.average)

    def _means(
        self,
        sums: _LikelihoodSums,
        center: _Array,
        priors: list[_Array],
        left: _Array,
        dense: _DensePart,
    ) -> tuple[_Array, list[_Array], _Array]:
        """The means of the mean curve (2,), of the effects, and of the segments' (A, B)."""
        likelihoods = sums.likelihoods
        precision = likelihoods.precision
        eliminated, values = self._codes[self._eliminated], self.sizes[self._eliminated]
        inverses = {
            level: Symmetric.of(sums.by_level[level] + priors[level]).inverse().matrices
            for level in self._others
        }
        others_effect = sum(
            (self._latest[level][self._codes[level]] for level in self._others),
            np.zeros_like(likelihoods.pull),
        )
        for _ in range(_MOST_SWEEPS):
            pull = likelihoods.pull - _times(precision, others_effect)
            level_pull = summed(eliminated, pull, values)
            passed_on = pull - _times(precision, times(left, level_pull)[eliminated])
            pull_sums: Any = sum(summed(places, passed_on, self._number) for places in self._places)
            pull_sums[0] += MEAN_PRECISION * center
            dense_means: Any = (dense.covariance @ np.ravel(pull_sums)).reshape(-1, 2)
            dense_effect = sum(dense_means[places] for places in self._places)
            level_pull -= summed(eliminated, _times(precision, dense_effect), values)
            level_effects = times(left, level_pull)
            segment_means = dense_effect + level_effects[eliminated] + others_effect
            moved = 0.0
            for level, inverse in inverses.items():
                codes, before = self._codes[level], self._latest[level]
                residual = likelihoods.pull - _times(precision, segment_means - before[codes])
                after = times(inverse, summed(codes, residual, self.sizes[level]))
                segment_means += (after - before)[codes]
                others_effect = others_effect + (after - before)[codes]
                self._latest[level] = after
                moved = max(moved, np.abs(after - before).max())
            if moved <= _SETTLED:
                break
        else:
            self.settled = False
        effects: list[_Array] = [np.empty(0)] * len(self.sizes)
        effects[self._eliminated] = level_effects
        for part, level in zip(self._slices, self._small, strict=True):
            effects[level] = dense_means[part]
        for level in self._others:
            effects[level] = self._latest[level]
        return dense_means[0], effects, segment_means

    def _within_dense(self, dense: _DensePart) -> _Array:
        """(K, 3), the covariance of each segment's sum over the dense part."""
        R, (_, *places) = self._number, self._places
        blocks = dense.entries.reshape(R, R, 3)
        if not places:
            return np.repeat(blocks[0], len(self._codes[0]), 0)
        # A value's own variance, with the mean curve's: each pair of levels takes a share.
        variances = blocks[np.arange(R), np.arange(R)] + 2 * blocks[0] + blocks[0, 0] / len(places)
        if len(places) == 1:
            return variances[places[0]]
        variances /= len(places) - 1
        pairs = (2 * blocks + variances[:, None] + variances).reshape(-1, 3)
        total = np.zeros((len(places[0]), 3))
        for one, other in combinations(places, 2):
            total += pairs.take(one * R + other, 0)
        return total

    def _couple(
        self,
        level: int,
        sums: _LikelihoodSums,
        priors: list[_Array],
        left: _Array,
        spreads: list[_Array],
    ) -> _Array:
        """Sets the covariances (V, 2, 2) of the effects of another large level.

        The eliminated level is integrated out for each value alone. Adds what follows to the
        covariances of that level's effects. Returns minus the covariances (M, 2, 2) of each pair.
        """
        pairs = self._pairs[level]
        shared = summed(pairs.codes, sums.likelihoods.precision.matrices, len(pairs.other))
        precision = sums.by_level[level] + priors[level]
        by_other = left[pairs.eliminated] @ shared
        precision -= summed(pairs.other, shared @ by_other, self.sizes[level])
        spread = Symmetric.of(precision).inverse().matrices
        between = by_other @ spread[pairs.other]
        increase = between @ by_other.swapaxes(1, 2)
        spreads[self._eliminated] += summed(pairs.eliminated, increase, len(left))
        spreads[level] = spread
        return between

    def _centred(
        self,
        root: NormalMoments,
        effects: list[NormalMoments],
        dense: _DensePart,
        with_average: _Array,
        left_of_average: _Array,
    ) -> tuple[NormalMoments, list[NormalMoments]]:
        """The effects minus their averages, which are added to the mean curve.

        Sums of these for prediction are nearly independent, unlike sums of the effects: only the
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


def _times(precision: Symmetric, vectors: _Array) -> _Array:
    """The product of each precision and its vector (K, 2)."""
    return np.stack(precision.times(*vectors.T), -1)
