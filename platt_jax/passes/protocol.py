"""What every kind of rows can do: the seam between the sums over rows and the search."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax

from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.objective import Point as Point
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options


class RowTerms(NamedTuple):
    """Terms of each row, to be added up; hashable, for it is a static argument of programs."""

    # Takes a `Row`, an `Arithmetic` and the numbers of the row's problem. Terms of rows that are
    # not present must be 0.
    terms: Callable[..., Sequence[jax.Array]]
    number: int  # of terms


class Rows(Protocol):
    """The rows of a batch of problems. Only these methods touch rows.

    All arrays that they take and return have the shape of the batch. A row whose weight is 0 is
    missing: it adds nothing to any result, whatever its score. `score_ranges` comes first, then
    `mask_nonfinite`, `moments` and `standardized`; the others are for standardized rows.
    """

    def score_ranges(self, options: Options) -> ScoreRanges:
        """The range of each class's scores, and which problems hold a row that is not finite."""

    def mask_nonfinite(self, options: Options) -> Self:
        """The rows that are finite.

        Of problems that hold such a row, and are not to omit it, later sums mean nothing.
        """

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """The moments of the standardized scores with label 1, and of scores with label 0."""

    def standardized(self, standardization: Standardization) -> Self:
        """The rows with standardized scores, computed now or when they are read."""

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """Gradient and Hessian of every problem at its point.

        Problems that are not active need not be read: their sums mean nothing.
        """

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """The loss of every problem at its point, in nats."""

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """The loss at a point minus that at the point before, row by row: less is rounded off."""


class TermRows(Rows, Protocol):
    """Rows here, and not in an engine, of which any terms can be added up."""

    def row_sums(self, numbers: Any, terms: RowTerms) -> Sequence[jax.Array]:
        """The sums of any terms of the rows; `numbers` is a pytree of numbers of every problem."""


AnyRows = TypeVar("AnyRows", bound=Rows)
