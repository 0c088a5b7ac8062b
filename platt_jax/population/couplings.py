"""How the eliminated level of a crossed design depends on the dense part.

Minus the regression of each eliminated effect on the dense part is a matrix (2, 2R), with a block
for each dense value that shares segments with the effect's value. If these are few, only they are
computed. Otherwise the matrices are whole.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.groups import Groups

_Array: TypeAlias = NDArray[Any]
_Codes: TypeAlias = NDArray[Any]

UPPER = (0, 0), (0, 1), (1, 1)  # the upper triangle of a symmetric matrix
# Maximum number of pairs of dense values of the same eliminated value, for computing only these.
_MOST_PAIRS = 1 << 22
# How much less time a pair takes in products of whole matrices.
_FASTER = 16
_AT_ONCE = 1 << 22  # numbers per array


class Elimination(NamedTuple):
    """What the elimination takes off the precision of the dense part."""

    precision: _Array  # (2R, 2R)
    average: _Array  # (2, 2R), minus the regression of the average effect on the dense part


class Carried(NamedTuple):
    """What the uncertainty of the dense part adds, given its covariance."""

    spread: _Array  # (V, 2, 2), to the covariances of the effects
    with_average: _Array  # (V, 2, 2), to their covariances with the average effect
    # (K, 3), entries AA, AB and BB of the symmetric part of minus the covariance between each
    # segment's effect and its sum over the dense part.
    between: _Array


class Couplings(Protocol):
    """The couplings of the eliminated level, for one set of likelihoods."""

    def reduction(self) -> Elimination:
        """What the elimination takes off."""

    def carried(self, covariance: _Array, average: _Array, between: bool) -> Carried:
        """What the covariance (2R, 2R) of the dense part adds, with its average, from `reduction`.

        `Carried.between` is empty unless asked for.
        """


class Layout:
    """Which values of the eliminated level share segments with which places of the dense part.

    Args:
        codes: (K,) the value of each segment, of V.
        places: for each dense level, the mean curve included, the place (K,) of each segment's
            value in the dense part.
        values: V.
        number: R, the number of places.
    """

    def __init__(self, codes: _Codes, places: list[_Codes], values: int, number: int) -> None:
        self.codes, self.places, self.values, self.number = codes, places, values, number
        flat_index = np.concatenate([codes * number + positions for positions in places])
        pairs, self.pair_codes = np.unique(flat_index, return_inverse=True)
        self.value, self.place = np.divmod(pairs, number)
        self._counts = np.bincount(self.value, minlength=values)
        pairs_of_pairs = float((self._counts.astype(float) ** 2).sum())
        dense_cost = float(values) * number**2 / _FASTER
        self.sparse = pairs_of_pairs <= min(_MOST_PAIRS, dense_cost)
        if self.sparse:
            self.one, self.other = self._pairs_of_pairs()
        self.order = np.argsort(codes, kind="stable")

    def _pairs_of_pairs(self) -> tuple[_Codes, _Codes]:
        """All ordered pairs of the pairs of one value."""
        first = Groups(self._counts).starts[self.value]
        pair_groups = Groups(self._counts[self.value])
        return pair_groups.owner, pair_groups.by_row(first) + pair_groups.place

    def couplings(self, precision: _Array, left: _Array) -> Couplings:
        """The couplings.

        `precision` (K, 2, 2) is of the segments' likelihoods, `left` (V, 2, 2) the covariances of
        the effects if all else is known.
        """
        kind = _SparseCouplings if self.sparse else _DenseCouplings
        return kind(self, precision, left)


class _SparseCouplings(Couplings):
    """Blocks of the pairs alone."""

    def __init__(self, layout: Layout, precision: _Array, left: _Array) -> None:
        self._layout = layout
        repeated = len(layout.places)
        self._shared = np.empty((len(layout.value), 2, 2))
        for i, j in UPPER:
            entry = np.bincount(layout.pair_codes, np.tile(precision[:, i, j], repeated))
            self._shared[:, i, j] = self._shared[:, j, i] = entry
        self._by_rest = left[layout.value] @ self._shared

    def reduction(self) -> Elimination:
        """See `Couplings`."""
        layout, R = self._layout, self._layout.number
        flat_index = layout.place[layout.one] * R + layout.place[layout.other]
        precision, average = np.empty((R, 2, R, 2)), np.empty((2, R, 2))
        one, other = self._shared[layout.one], self._by_rest[layout.other]
        for i in (0, 1):
            for j in (0, 1):
                entry = one[:, i, 0] * other[:, 0, j] + one[:, i, 1] * other[:, 1, j]
                precision[:, i, :, j] = np.bincount(flat_index, entry, R * R).reshape(R, R)
                average[i, :, j] = np.bincount(layout.place, self._by_rest[:, i, j], R)
        return Elimination(
            precision.reshape(2 * R, 2 * R), average.reshape(2, 2 * R) / layout.values
        )

    def carried(self, covariance: _Array, average: _Array, between: bool) -> Carried:
        """See `Couplings`."""
        layout, R = self._layout, self._layout.number
        blocks = covariance.reshape(R, 2, R, 2)
        with_rest = np.empty_like(self._by_rest)  # for each pair
        other = self._by_rest[layout.other]
        rows, columns = layout.place[layout.other], layout.place[layout.one]
        for j in (0, 1):
            down = [blocks[:, k, :, j][rows, columns] for k in (0, 1)]
            for i in (0, 1):
                entry = other[:, i, 0] * down[0] + other[:, i, 1] * down[1]
                with_rest[:, i, j] = np.bincount(layout.one, entry, len(with_rest))
        with_mean = (covariance @ average.T).reshape(R, 2, 2)[layout.place]
        with_segments = np.empty((0, 3))
        if between:
            pair_entries = entries(with_rest[:, :, None]).take(layout.pair_codes, 0)
            with_segments = pair_entries.reshape(len(layout.places), -1, 3).sum(0)
        return Carried(
            self._by_value(with_rest @ self._by_rest.swapaxes(1, 2)),
            self._by_value(self._by_rest @ with_mean),
            with_segments,
        )

    def _by_value(self, x: _Array) -> _Array:
        columns = [
            np.bincount(self._layout.value, column, self._layout.values)
            for column in x.reshape(-1, 4).T
        ]
        return np.stack(columns, -1).reshape(-1, 2, 2)


class _DenseCouplings(Couplings):
    """Whole matrices, for some of the values at once."""

    def __init__(self, layout: Layout, precision: _Array, left: _Array) -> None:
        self._layout, self._left = layout, left
        self._parts = list(self._couplings(precision))

    def _couplings(self, precision: _Array) -> Iterator[tuple[slice, _Codes, _Array]]:
        """Slices of the values, their segments, and their precision (v, 2, 2R) with the rest."""
        layout, R = self._layout, self._layout.number
        codes = layout.codes[layout.order]
        step = max(1, _AT_ONCE // (4 * R))
        for first in range(0, layout.values, step):
            values = slice(first, min(first + step, layout.values))
            number = values.stop - first
            segments = layout.order[slice(*np.searchsorted(codes, [first, values.stop]))]
            rows = (layout.codes[segments] - first) * R
            flat_index = np.concatenate([rows + positions[segments] for positions in layout.places])
            coupling = np.empty((number, 2, R, 2))
            for i, j in UPPER:
                entry = np.tile(precision[segments, i, j], len(layout.places))
                sums = np.bincount(flat_index, entry, number * R).reshape(number, R)
                coupling[:, i, :, j] = coupling[:, j, :, i] = sums
            yield values, segments, coupling.reshape(number, 2, 2 * R)

    def reduction(self) -> Elimination:
        """See `Couplings`."""
        width = 2 * self._layout.number
        precision, average = np.zeros((width, width)), np.zeros((2, width))
        root = np.linalg.cholesky(self._left)
        for values, _, coupling in self._parts:
            half = (root[values].swapaxes(1, 2) @ coupling).reshape(-1, width)
            precision += half.T @ half  # BLAS takes half of the products of a symmetric matrix
            average += (root[values] @ half.reshape(coupling.shape)).sum(0)
        return Elimination(precision, average / self._layout.values)

    def carried(self, covariance: _Array, average: _Array, between: bool) -> Carried:
        """See `Couplings`."""
        layout, R = self._layout, self._layout.number
        spread, with_average = np.empty_like(self._left), np.empty_like(self._left)
        with_segments = np.empty((len(layout.codes) if between else 0, 3))
        for values, segments, coupling in self._parts:
            by_rest = self._left[values] @ coupling
            with_rest = (by_rest.reshape(-1, 2 * R) @ covariance).reshape(by_rest.shape)
            spread[values] = with_rest @ by_rest.swapaxes(1, 2)
            with_average[values] = with_rest @ average.T
            if between:
                pair_entries = entries(with_rest.reshape(-1, 2, R, 2))
                rows = (layout.codes[segments] - values.start) * R
                terms = (pair_entries[rows + positions[segments]] for positions in layout.places)
                with_segments[segments] = sum(terms)
        return Carried(spread, with_average, with_segments)


def entries(blocks: _Array) -> _Array:
    """(m n, 3), the entries AA, AB and BB of the symmetric parts of blocks (m, 2, n, 2)."""
    between = (blocks[:, 0, :, 1] + blocks[:, 1, :, 0]) / 2
    return np.stack([blocks[:, 0, :, 0], between, blocks[:, 1, :, 1]], -1).reshape(-1, 3)
