"""Rows as vectors: flat arrays read 128 numbers at a time, for a CPU.

On a CPU, XLA runs a program operation by operation, each over all rows and with a fixed cost. Here
problems are fitted in turn (small ones 128 at a time), by loops over vectors of rows, and the whole
is compiled as one function (see `scan`, `xla`). A problem's rows stay in the caches from the score
ranges to the loss, and each problem's loop ends as soon as the problem does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.backend.xla import noinline
from platt_jax.model import objective
from platt_jax.model.objective import Arithmetic, Point, Row, Targets
from platt_jax.passes.elementary import exp_quotient, log1p
from platt_jax.passes.folded import (
    SUM,
    Fold,
    FoldedRows,
    Terms,
    Vector,
)

# Rows per vector. Fewer make the loops too short. With ten times as many, XLA would split an
# operation among threads, which it cannot do within a function.
LANES = 128

# Vectors per partial sum. Partial sums keep rounding errors small.
_TOGETHER = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VectorRows(FoldedRows):
    """The rows of one problem, or of 128 side by side, a lane each. Vector i begins at 128 i.

    `start` is [], the place of the first vector. `size` is [] or [128].
    """

    arithmetic: ClassVar[Arithmetic] = Arithmetic(exp_quotient, noinline)

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        if self.weights is not None:
            return super().loss(point, targets)

        def parts(vector: Vector, point: Point, targets: Targets) -> tuple[jax.Array, jax.Array]:
            return objective.loss(point, self._row(vector), targets, self.arithmetic)

        return self._fold(Fold(parts, 2, (point, targets), _LOSS))[0]

    def _row(self, vector: Vector) -> Row:
        """See `FoldedRows`. If rows have weights, those not present weigh 0 and need no mask."""
        if vector.weights is None:
            return super()._row(vector)
        return Row(vector.scores, vector.positive, weight=vector.weights, offset=vector.offset)

    def _fold(self, fold: Fold) -> Terms:
        """See `FoldedRows`. All problems are read as long as one of them is active."""
        start, combine, _, merge, close = fold.reduction
        one_problem = self.size.ndim == 0
        vectors = -(-self.size // LANES) if one_problem else jnp.max(self.size)

        def none(shape: int | tuple[int, ...]) -> Terms:
            return [jnp.full(shape, start, self.scores.dtype)] * fold.number

        def combine_all(a: Terms, b: Sequence[jax.Array]) -> Terms:
            return [combine(x, y) for x, y in zip(a, b, strict=True)]

        def add(i: jax.Array, found: Terms) -> Terms:
            return (merge or combine_all)(found, fold.terms(self._read(i), *fold.per_problem))

        def add_block(j: jax.Array, found: Terms) -> Terms:
            last = jnp.minimum((j + 1) * _TOGETHER, vectors)
            block = close(lax.fori_loop(j * _TOGETHER, last, add, none(LANES)))
            return combine_all(found, _across(block, combine) if one_problem else block)

        first = close(none(self.size.shape))
        return lax.fori_loop(0, -(-vectors // _TOGETHER), add_block, first)

    def _read(self, i: jax.Array) -> Vector:
        first = self.start + i * LANES
        take = partial(lax.dynamic_slice_in_dim, start_index=first, slice_size=LANES)
        number = i if self.size.ndim else i * LANES + jnp.arange(LANES, dtype=jnp.int32)
        return self._vector(jax.tree.map(take, self.columns), number < self.size)


def _merge_odds(found: Terms, more: Sequence[jax.Array]) -> Terms:
    """Adds what is linear in z, and multiplies 1 + odds: one logarithm serves many rows."""
    (linear, odds), (new, o) = found, more
    return [linear + new, odds + (o + odds * o)]


def _close_odds(found: Terms) -> Terms:
    linear, odds = found
    return [linear + log1p(odds)]


_LOSS = SUM._replace(merge=_merge_odds, close=_close_odds)


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
