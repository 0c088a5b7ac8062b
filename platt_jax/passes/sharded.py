"""Rows of the same problems on several devices: each device sums its own, then sums are added.

For use inside `jax.shard_map`.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax import lax

from platt_jax.model.objective import Derivatives, Point, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges
from platt_jax.options import Options
from platt_jax.passes.protocol import Rows, RowTerms


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ShardedRows:
    """The rows of all devices along some axes of a mesh. See `protocol.Rows` for the methods.

    Only numbers per problem are exchanged, and all devices get the same bits.
    """

    local: Any  # Rows: this device's rows of all problems
    axes: tuple[str, ...] = field(metadata={"static": True})

    def score_ranges(self, options: Options) -> ScoreRanges:
        """See `Rows`."""
        ranges = self.local.score_ranges(options)
        bad = ranges.bad.astype(ranges.low_pos.dtype)
        low_pos, low_neg, lightest = lax.pmin(
            (ranges.low_pos, ranges.low_neg, ranges.lightest), self.axes
        )
        largest = bad, ranges.high_pos, ranges.high_neg, ranges.widest_offset
        bad, high_pos, high_neg, widest_offset = lax.pmax(largest, self.axes)
        return ScoreRanges(bad > 0, low_pos, high_pos, low_neg, high_neg, lightest, widest_offset)

    def mask_nonfinite(self, options: Options) -> "ShardedRows":
        """See `Rows`."""
        return self._with(self.local.mask_nonfinite(options))

    def moments(self, standardization: Standardization) -> tuple[Moments, Moments]:
        """See `Rows`."""
        moments = self.local.moments(standardization)
        return lax.psum(moments, self.axes)

    def standardized(self, standardization: Standardization) -> "ShardedRows":
        """See `Rows`."""
        return self._with(self.local.standardized(standardization))

    def derivatives(
        self, point: Point, targets: Targets, options: Options, active: jax.Array | None = None
    ) -> Derivatives:
        """See `Rows`."""
        derivatives = self.local.derivatives(point, targets, options, active)
        return lax.psum(derivatives, self.axes)

    def row_sums(self, numbers: Any, terms: RowTerms) -> Any:
        """See `Rows`."""
        return lax.psum(self.local.row_sums(numbers, terms), self.axes)

    def loss(self, point: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        return lax.psum(self.local.loss(point, targets), self.axes)

    def loss_change(self, before: Point, after: Point, targets: Targets) -> jax.Array:
        """See `Rows`."""
        change = self.local.loss_change(before, after, targets)
        return lax.psum(change, self.axes)

    def _with(self, local: Rows) -> "ShardedRows":
        return replace(self, local=local)
