"""The likelihoods of rates of positives: sums over the rows of segments, on the host or a GPU.

See `platt_jax.inference.rates` for the formulas.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.backend.threads import ordered_map, row_slices
from platt_jax.caller import Caller
from platt_jax.execution.row_sums import SumTerms, row_sums
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.model.objective import Row


class _RatedRow(NamedTuple):
    """Rows with the rates of their segments: arrays of NumPy, or of JAX in a program."""

    score: Any
    proba: Any
    base: Any  # the rate at which the probability holds
    negative: Any  # density of class 0
    difference: Any  # of class 1, minus that
    rate: Any

    @classmethod
    def of(cls, score: Any, proba: Any, base: Any) -> "_RatedRow":
        """Rows without rates."""
        negative = (1 - proba) / (1 - base)
        return cls(score, proba, base, negative, proba / base - negative, None)

    @property
    def density(self) -> Any:
        """The density of each row at its segment's rate."""
        return self.negative + self.rate * self.difference


# What is added up over rows.
_Terms: TypeAlias = Callable[[_RatedRow], list[Any]]


def _squares(row: _RatedRow) -> list[Any]:
    return [row.difference**2]


def _slope(row: _RatedRow) -> list[Any]:
    return [row.difference / row.density]


def _slopes(row: _RatedRow) -> list[Any]:
    relative = row.difference / row.density
    return [relative, relative * relative]


def _log_density(row: _RatedRow) -> list[Any]:
    xp = np if isinstance(row.score, np.ndarray) else jnp
    return [xp.log(row.density)]


def _gradient(row: _RatedRow) -> list[Any]:
    p, base, density_squared = row.proba, row.base, row.density**2
    # The first derivative is a sum of d / (n + r d); so its derivative is (n d' - d n') / (.)^2
    # where n' and d' are the derivatives of n and d.
    n, d = row.negative, row.difference
    n_by_p, n_by_base = -1 / (1 - base), n / (1 - base)
    d_by_p, d_by_base = 1 / base - n_by_p, -p / base**2 - n_by_base
    by_z = -p * (1 - p) * (n * d_by_p - d * n_by_p) / density_squared
    by_base = (n * d_by_base - d * n_by_base) / density_squared
    return [by_z * row.score, by_z, by_base]


class RateLikelihood:
    """The likelihood of the rate of each segment (S,).

    Attributes:
        base: (S,) the rates at which the rows' probabilities hold.
        rows: (S,) numbers of rows.
    """

    base: Floats
    rows: Floats

    def _sums(self, terms: _Terms, rate: Floats) -> list[Floats]:
        """(S,) the sum of each of the terms over each segment's rows."""
        raise NotImplementedError

    def squares(self) -> Floats:
        """(S,) sums of squared differences of the densities."""
        return self._sums(_squares, self.base)[0]

    def slope(self, rate: Floats) -> Floats:
        """(S,) the first derivative of the log likelihood."""
        return self._sums(_slope, rate)[0]

    def slopes(self, rate: Floats) -> tuple[Floats, Floats]:
        """(S,) the first derivative of the log likelihood, and the second."""
        first, squares = self._sums(_slopes, rate)
        return first, -squares

    def log_likelihood(self, rate: Floats) -> Floats:
        """(S,)."""
        return self._sums(_log_density, rate)[0]

    def gradient(self, rate: Floats) -> Floats:
        """(S, 3), of the first derivative by A, B and the base rate."""
        return np.stack(self._sums(_gradient, rate), -1)


class LikelihoodHere(RateLikelihood):
    """For rows in NumPy arrays.

    Args:
        scores: (N,) scores of the rows.
        proba: (N,) their probabilities.
        owner: (N,) the segment of each row, from 0 to S - 1.
        base: (S,) the rates at which these probabilities hold.
    """

    def __init__(self, scores: Floats, proba: Floats, owner: NDArray[Any], base: Floats) -> None:
        self.base, self._columns = base, (scores, proba, owner)
        self.rows = np.bincount(owner, minlength=len(base)).astype(float)

    def _sums(self, terms: _Terms, rate: Floats) -> list[Floats]:
        def chunk_sums(some: slice) -> list[Any]:
            scores, proba, owner = (x[some] for x in self._columns)
            row = _RatedRow.of(scores, proba, self.base[owner])._replace(rate=rate[owner])
            return [np.bincount(owner, x, len(self.base)) for x in terms(row)]

        # Not shorter than the sums.
        slices = row_slices(len(self._columns[0]), len(self.base)) or [slice(0)]
        return [sum(parts) for parts in zip(*ordered_map(chunk_sums, slices), strict=True)]


class RowsOnDevice:
    """The rows of segments (K,) on a device, as by `with_predictions`, in the order of the keys.

    Attributes:
        rows: (K,) numbers of rows.
        expected: (K,) sums of the probabilities.
        usable: (K,) whether all rows and probabilities are finite.
    """

    def __init__(self, rows: SegmentRows, caller: Caller) -> None:
        self._problems, self._caller = rows.problems, caller
        self.rows = np.empty(len(rows.keys), np.int64)
        self.rows[rows.largest_first] = rows.sizes
        finite, self.expected = row_sums(self._problems, _EXPECTED, (), caller)
        self.usable: Bools = (finite == self.rows) & np.isfinite(self.expected)

    def sums(self, terms: SumTerms, base: Floats, rate: Floats) -> list[Floats]:
        """(S,) the sums over rows of the usable segments, given numbers (S,)."""
        indices = np.flatnonzero(self.usable)
        padded = [np.full(len(self.rows), 0.5) for _ in range(2)]
        for into, x in zip(padded, (base, rate), strict=True):
            into[indices] = x
        return [x[indices] for x in row_sums(self._problems, terms, tuple(padded), self._caller)]


class LikelihoodThere(RateLikelihood):
    """For the usable segments (S,) of rows on a device; `base` as in `LikelihoodHere`."""

    def __init__(self, rows: RowsOnDevice, base: Floats) -> None:
        self.base, self._there = base, rows
        self.rows = rows.rows[rows.usable].astype(float)

    def _sums(self, terms: _Terms, rate: Floats) -> list[Floats]:
        return self._there.sums(_TERMS[terms], self.base, rate)


def _expected(row: Row, finite: Any, _: Any) -> list[Any]:
    return [finite.astype(np.float64), row.offset]


_EXPECTED = SumTerms(_expected, 2)


def _on_device(terms: _Terms, number: int) -> SumTerms:
    def function(row: Row, finite: Any, numbers: Any) -> list[Any]:
        base, rate = numbers
        rated = _RatedRow.of(row.f, row.offset, base)
        return terms(rated._replace(rate=rate))

    return SumTerms(function, number)


_NUMBERS: dict[_Terms, int] = {_squares: 1, _slope: 1, _slopes: 2, _log_density: 1, _gradient: 3}
_TERMS = {terms: _on_device(terms, number) for terms, number in _NUMBERS.items()}
