"""Rows whose sums are folds over vectors of rows; subclasses differ in how they fold.

A fold computes terms of each vector of rows, and reduces the terms of all vectors to numbers per
problem. Everything that a fit needs of the rows is such a fold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import jax
import jax.numpy as jnp

from platt_jax.model import objective, statistics
from platt_jax.model.objective import Arithmetic, Derivatives, Point, Row, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.columns import Columns
from platt_jax.passes.elementary import log1p_unit
from platt_jax.passes.protocol import RowTerms

Terms: TypeAlias = list[jax.Array]  # one array per term


class Vector(NamedTuple):
    """A vector of rows, each field [L]. Where `present` is False, other fields are undefined."""

    scores: jax.Array  # standardized if the rows are
    positive: jax.Array
    weights: jax.Array | None  # finite; 0 where not present
    there: jax.Array  # whether it is a row of the problem whose weight is not 0
    present: jax.Array  # whether it is also finite, or assumed to be
    offset: jax.Array | None = None  # finite; 0 where not present


class Reduction(NamedTuple):
    """How the terms of many vectors are combined."""

    start: float  # the neutral element of `combine`
    combine: Callable[[jax.Array, jax.Array], jax.Array]  # combines two terms
    across: Callable[[jax.Array], jax.Array] = jnp.sum  # combines the terms of one vector
    # Combines the terms of one vector with the next vector's; None: `combine` for each term.
    merge: Callable[[Terms, Sequence[jax.Array]], Terms] | None = None
    # Applied to the terms of a few dozen vectors, before `combine`.
    close: Callable[[Terms], Terms] = list


SUM = Reduction(0.0, lambda a, b: a + b)
LEAST = Reduction(jnp.inf, lambda a, b: jnp.where(a < b, a, b), jnp.min)


class Fold(NamedTuple):
    """Terms of all rows, reduced to a list of arrays with the shape of `size`."""

    terms: Callable[..., Sequence[jax.Array]]  # takes a Vector and the numbers per problem
    number: int  # of terms
    per_problem: tuple[Any, ...] = ()  # pytrees of arrays with the shape of `size`
    reduction: Reduction = SUM
    active: jax.Array | None = None  # which problems need to be read; None for all


@dataclass(frozen=True)
class FoldedRows:
    """A base class for rows in flat arrays; a subclass implements `_fold`.

    See `protocol.Rows` for the methods.
    """

    # How exponentials are computed.
    arithmetic: ClassVar[Arithmetic] = objective.XLA

    scores: jax.Array  # [C] flat scores
    labels: jax.Array  # [C]: above 0 for class 1
    weights: jax.Array | None  # [C]
    start: jax.Array  # int32: the place of the first row of each problem
    size: jax.Array  # int32: number of rows of each problem
    standardization: Standardization | None = None  # applied when the scores are read
    # Whether all rows are assumed to be finite. If one is not, neither are the results.
    finite: bool = field(default=False, metadata={"static": True})
    offset: jax.Array | None = None  # [C]

    @property
    def columns(self) -> Columns:
        """The columns of the flat arrays."""
        return Columns(self.scores, self.labels, self.weights, self.offset)

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""

        def terms(vector: Vector) -> Terms:
            bad = vector.there & _not(vector.present) & (options.non_finite != "omit")
            weights = vector.weights
            if weights is not None:
                weights = jnp.where(vector.present, weights, jnp.inf)
            classes = _classes(vector)
            return statistics.range_terms(bad, vector.scores, classes, weights, vector.offset)

        has_offset = self.offset is not None
        number = 5 + (self.weights is not None) + has_offset
        minima = self._fold(Fold(terms, number, reduction=LEAST))
        return statistics.ranges_of_minima(minima, has_offset)

    def mask_nonfinite(self, options: Options) -> Self:
        """See `Rows`. From here on all rows are assumed to be finite, unless non_finite="omit"."""
        return replace(self, finite=options.non_finite != "omit")

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""

        def terms(vector: Vector) -> Terms:
            return statistics.moment_terms(
                vector.scores, vector.weights, vector.present, _classes(vector), vector.offset
            )

        # Non-finite rows are left out of the counts.
        rows = replace(self.standardized(standardization), finite=False)
        has_offset = self.offset is not None
        number = statistics.number_of_moments(self.weights is not None, has_offset)
        return statistics.moments_of_sums(rows._fold(Fold(terms, number)), has_offset)

    def standardized(self, standardization: Standardization) -> Self:
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`."""
        derivatives = objective.DERIVATIVES[options.derivatives]

        def terms(vector: Vector, point: Point, targets: Targets) -> Derivatives:
            return derivatives(point, self._row(vector), targets, self.arithmetic)

        return Derivatives(*self._fold(Fold(terms, 5, (point, targets), active=active)))

    def row_sums(self, numbers: Any, terms: RowTerms) -> Terms:
        """See `Rows`."""

        def of_vector(vector: Vector, numbers: Any) -> Sequence[jax.Array]:
            return terms.terms(self._row(vector), self.arithmetic, numbers)

        return self._fold(Fold(of_vector, terms.number, (numbers,)))

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return self._fold(Fold(lambda *x: [self._loss(*x)], 1, (point, targets)))[0]

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""

        def terms(vector: Vector, before: Point, after: Point, targets: Targets) -> Terms:
            return [self._loss(vector, after, targets) - self._loss(vector, before, targets)]

        return self._fold(Fold(terms, 1, (before, after, targets)))[0]

    def _row(self, vector: Vector) -> Row:
        """The rows as the formulas take them."""
        weight = 1 if vector.weights is None else vector.weights
        return Row(vector.scores, vector.positive, vector.present, weight, vector.offset)

    def _loss(self, vector: Vector, point: Point, targets: Targets) -> jax.Array:
        """The loss of each row of a vector."""
        row = self._row(vector)
        linear, odds = objective.loss(point, row, targets, self.arithmetic)
        return jnp.where(row.present, row.weight * (linear + log1p_unit(odds)), 0)

    def _fold(self, fold: Fold) -> Terms:
        """See `Fold`."""
        raise NotImplementedError

    def _vector(self, columns: Columns, there: jax.Array) -> Vector:
        """The rows in vectors of the columns; `there` says which places are rows of the problem."""
        f, label, weight, offset = columns
        is_finite = jnp.abs(f) < jnp.inf
        if weight is not None:
            there &= weight != 0
            is_finite &= weight < jnp.inf
        if offset is not None:
            is_finite &= jnp.abs(offset) < jnp.inf
        present = there if self.finite else there & is_finite
        if offset is not None:
            offset = jnp.where(present, offset, 0)
        if weight is None:
            f = _standardized(f, present, self.standardization)
            return Vector(f, label > 0, None, there, present, offset)
        # Every loop over the vector would otherwise begin with this computation.
        once = self.arithmetic.separately(_or_zero)
        f, weight = once(f, weight, present, self.standardization)
        return Vector(f, label > 0, weight, there, weight > 0, offset)


def _classes(vector: Vector) -> tuple[jax.Array, jax.Array]:
    """Which rows have label 1, and which label 0."""
    return vector.present & vector.positive, vector.present & _not(vector.positive)


def _not(x: jax.Array) -> jax.Array:
    """~x, which not all compilers of kernels have."""
    return x ^ True


def _or_zero(
    f: jax.Array, weight: jax.Array, present: jax.Array, standardization: Standardization | None
) -> tuple[jax.Array, jax.Array]:
    """Standardized scores and weights, with 0 where not present."""
    return _standardized(f, present, standardization), jnp.where(present, weight, 0)


def _standardized(
    f: jax.Array, present: jax.Array, standardization: Standardization | None
) -> jax.Array:
    if standardization is not None:
        f = (f - standardization.center) * standardization.scale
    return jnp.where(present, f, 0)
