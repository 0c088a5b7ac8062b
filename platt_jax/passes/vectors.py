"""Rows as vectors: flat arrays read 128 numbers at a time, for a CPU.

On a CPU, XLA runs a program operation by operation, each over all rows and with a fixed cost. Here
problems are fitted in turn (small ones 128 at a time), by loops over vectors of rows, and the whole
is compiled as one function (see `scan`, `xla`). A problem's rows stay in the caches from the score
ranges to the loss, and each problem's loop ends as soon as the problem does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model import objective, statistics
from platt_jax.model.objective import Arithmetic, Derivatives, Point, Row, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.elementary import exp_quotient, log1p, log1p_unit
from platt_jax.xla import noinline

# Rows per vector. Fewer make the loops too short. With ten times as many, XLA would split an
# operation among threads, which it cannot do within a function.
LANES = 128

# Vectors per partial sum. Partial sums keep rounding errors small.
_TOGETHER = 64

Terms: TypeAlias = list[jax.Array]  # one array per term

_ARITHMETIC = Arithmetic(exp_quotient, noinline)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VectorRows:
    """The rows of one problem, or of 128 side by side, a lane each. Vector i begins at 128 i.

    See `protocol.Rows` for the methods.
    """

    scores: jax.Array  # [C] flat scores
    labels: jax.Array  # [C]: above 0 for class 1
    weights: jax.Array | None  # [C]
    start: jax.Array  # [] int32: the place of the first vector
    size: jax.Array  # [] or [128] int32: number of rows of each problem
    standardization: Standardization | None = None  # applied when the scores are read
    # Whether all rows are assumed to be finite. If one is not, neither are the results.
    finite: bool = field(default=False, metadata={"static": True})

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""

        def terms(vector: Vector) -> Terms:
            bad = vector.there & ~vector.present & (options.non_finite != "omit")
            weights = vector.weights
            if weights is not None:
                weights = jnp.where(vector.present, weights, jnp.inf)
            return statistics.range_terms(bad, vector.scores, _classes(vector), weights)

        number = 5 if self.weights is None else 6
        return statistics.ranges_of_minima(*_fold(self, terms, number, reduction=_LEAST))

    def mask_nonfinite(self, options: Options) -> "VectorRows":
        """See `Rows`. From here on all rows are assumed to be finite, unless non_finite="omit"."""
        return replace(self, finite=options.non_finite != "omit")

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""

        def terms(vector: Vector) -> Terms:
            return statistics.moment_terms(
                vector.scores, vector.weights, vector.present, _classes(vector)
            )

        # Non-finite rows are left out of the counts.
        rows = replace(self.standardized(standardization), finite=False)
        return statistics.moments_of_sums(_fold(rows, terms, 6 if self.weights is None else 8))

    def standardized(self, standardization: Standardization) -> "VectorRows":
        """See `Rows`."""
        return replace(self, standardization=standardization)

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`. All problems of a group are read as long as one of them is active."""
        derivatives = objective.DERIVATIVES[options.derivatives]

        def terms(vector: Vector, point: Point, targets: Targets) -> Derivatives:
            return derivatives(point, _row(vector), targets, _ARITHMETIC)

        return Derivatives(*_fold(self, terms, 5, point, targets))

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""

        def parts(vector: Vector, point: Point, targets: Targets) -> tuple[jax.Array, jax.Array]:
            return objective.loss(point, _row(vector), targets, _ARITHMETIC)

        if self.weights is not None:
            return _fold(self, lambda *arguments: [_loss(*arguments)], 1, point, targets)[0]
        return _fold(self, parts, 2, point, targets, reduction=_LOSS)[0]

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""

        def terms(vector: Vector, before: Point, after: Point, targets: Targets) -> Terms:
            return [_loss(vector, after, targets) - _loss(vector, before, targets)]

        return _fold(self, terms, 1, before, after, targets)[0]


class Vector(NamedTuple):
    """A vector of rows, each field [128]. Where `present` is False, other fields are undefined."""

    scores: jax.Array  # standardized if the rows are
    positive: jax.Array
    weights: jax.Array | None  # finite; 0 where not present
    there: jax.Array  # whether it is a row of the problem whose weight is not 0
    present: jax.Array  # whether it is also finite, or assumed to be


class Reduction(NamedTuple):
    """How the terms of many vectors are combined."""

    start: float  # the neutral element of `combine`
    combine: Callable[[jax.Array, jax.Array], jax.Array]  # combines two terms
    # Combines the terms of one vector with those of the next; None: `combine` for each term.
    merge: Callable[[Terms, Sequence[jax.Array]], Terms] | None = None
    # Applied to the terms of a few dozen vectors, before `combine`.
    close: Callable[[Terms], Terms] = list


def _merge_odds(found: Terms, more: Sequence[jax.Array]) -> Terms:
    """Adds what is linear in z, and multiplies 1 + odds: one logarithm serves many rows."""
    (linear, odds), (new, o) = found, more
    return [linear + new, odds + (o + odds * o)]


def _close_odds(found: Terms) -> Terms:
    linear, odds = found
    return [linear + log1p(odds)]


_SUM = Reduction(0.0, lambda a, b: a + b)
_LEAST = Reduction(jnp.inf, lambda a, b: jnp.where(a < b, a, b))
_LOSS = Reduction(0.0, _SUM.combine, _merge_odds, _close_odds)


def _classes(vector: Vector) -> tuple[jax.Array, jax.Array]:
    """Which rows have label 1, and which label 0."""
    return vector.present & vector.positive, vector.present & ~vector.positive


def _row(vector: Vector) -> Row:
    """The rows as the formulas take them. If rows have weights, those not present weigh 0."""
    if vector.weights is None:
        return Row(vector.scores, vector.positive, vector.present)
    return Row(vector.scores, vector.positive, weight=vector.weights)


def _loss(vector: Vector, point: Point, targets: Targets) -> jax.Array:
    row = _row(vector)
    linear, odds = objective.loss(point, row, targets, _ARITHMETIC)
    return jnp.where(row.present, row.weight * (linear + log1p_unit(odds)), 0)


def _fold(
    rows: VectorRows,
    terms: Callable[..., Sequence[jax.Array]],
    number: int,
    *per_problem: Any,
    reduction: Reduction = _SUM,
) -> Terms:
    """The terms of all rows, reduced to a list of arrays with the shape of `rows.size`.

    Args:
        rows: the rows.
        terms: takes a Vector and the numbers per problem, and returns the terms.
        number: number of terms.
        *per_problem: pytrees of arrays with the shape of `rows.size`.
        reduction: how terms are combined.
    """
    start, combine, merge, close = reduction
    one_problem = rows.size.ndim == 0
    vectors = -(-rows.size // LANES) if one_problem else jnp.max(rows.size)

    def none(shape: int | tuple[int, ...]) -> Terms:
        return [jnp.full(shape, start, rows.scores.dtype)] * number

    def each(a: Terms, b: Sequence[jax.Array]) -> Terms:
        return [combine(x, y) for x, y in zip(a, b, strict=True)]

    def add(i: jax.Array, found: Terms) -> Terms:
        return (merge or each)(found, terms(_read(rows, i), *per_problem))

    def add_some(j: jax.Array, found: Terms) -> Terms:
        last = jnp.minimum((j + 1) * _TOGETHER, vectors)
        some = close(lax.fori_loop(j * _TOGETHER, last, add, none(LANES)))
        return each(found, _across(some, combine) if one_problem else some)

    first = close(none(rows.size.shape))
    return lax.fori_loop(0, -(-vectors // _TOGETHER), add_some, first)


def _across(found: Terms, combine: Callable[[jax.Array, jax.Array], jax.Array]) -> Terms:
    """Combines each vector [128] to a scalar []."""
    x = jnp.stack(found)
    while x.shape[1] > 8:
        half = x.shape[1] // 2
        x = noinline(lambda x, half=half: combine(x[:, :half], x[:, half:]))(x)
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = combine(x[:, :half], x[:, half:])
    return list(x[:, 0])


def _take(column: jax.Array | None, at: jax.Array) -> Any:
    return None if column is None else lax.dynamic_slice_in_dim(column, at, LANES)


def _read(rows: VectorRows, i: jax.Array) -> Vector:
    """Reads vector i."""
    columns = rows.scores, rows.labels, rows.weights
    f, label, weight = (_take(x, rows.start + i * LANES) for x in columns)
    number = i if rows.size.ndim else i * LANES + jnp.arange(LANES, dtype=jnp.int32)
    there = number < rows.size
    finite = jnp.abs(f) < jnp.inf
    if weight is not None:
        there &= weight != 0
        finite &= weight < jnp.inf
    present = there if rows.finite else there & finite
    if weight is None:
        return Vector(
            _standardized(f, present, rows.standardization), label > 0, None, there, present
        )
    # Not inlined: every loop over the vector would otherwise begin with this computation.
    f, weight = noinline(_or_zero)(f, weight, present, rows.standardization)
    return Vector(f, label > 0, weight, there, weight > 0)


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
