"""Bins of scores, and the share of class 1 in each."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.model.objective import Array
from platt_jax.scalers.base import Fitted, Scaler, along_rows, fitted, require


@fitted
class FittedBinning(Fitted):
    """One probability per bin.

    Attributes:
        probabilities: (..., bins) probabilities, bins ascending.
        edges: (..., bins - 1) edges between bins; a score on an edge is in the bin below it.
    """

    probabilities: Array
    edges: Array

    _own_axes: ClassVar[int] = 1

    def _predict(self, f: NDArray[Any]) -> NDArray[Any]:
        which: Any = sum(
            (f > along_rows(self.edges[..., k])).astype(int) for k in range(self.edges.shape[-1])
        )
        batch = np.shape(self.probabilities)[:-1]
        which = np.broadcast_to(which, np.broadcast_shapes(np.shape(which), (*batch, 1)))
        table = np.broadcast_to(
            self.probabilities, which.shape[:-1] + np.shape(self.probabilities)[-1:]
        )
        return np.take_along_axis(table, which, -1)


@dataclass(frozen=True)
class Binning(Scaler[FittedBinning]):
    """The weighted share of class 1 among the rows of a bin (Rüping 2004, with 10 and 50 bins).

    The paper does not say how bins are cut, nor what an empty one predicts. Here by="width" cuts
    the range of the scores into equal parts. by="mass" puts the k-th edge at the smallest score
    with at least k / bins of the weight at or below it, so that equal scores share a bin. Scores
    outside the range belong to the outermost bins. An empty bin predicts the share of class 1 among
    all rows. Nothing is smoothed: a bin of one class predicts 0 or 1.

    One class: 0 or 1. Constant scores: the share of class 1.

    Attributes:
        bins: number of bins (>= 2).
        by: "width" or "mass".

    Example:
        >>> scores, labels = [0.0, 1.0, 2.0, 3.0, 4.0, 20.0], [0, 0, 1, 0, 1, 1]
        >>> Binning(2).fit(scores, labels).predict_proba([-5.0, 11.0]).round(2)
        array([0.4, 1. ])
        >>> Binning(2, by="mass").fit(scores, labels).predict_proba([-5.0, 11.0]).round(2)
        array([0.33, 0.67])
    """

    bins: int = 10
    by: Literal["width", "mass"] = "width"

    def __post_init__(self) -> None:
        require(self, "bins", isinstance(self.bins, int) and self.bins >= 2, "an integer >= 2")
        require(self, "by", self.by in ("width", "mass"), '"width" or "mass"')

    def _fit_one(self, f: jax.Array, y: jax.Array, w: jax.Array) -> FittedBinning:
        cuts = jnp.arange(1, self.bins, dtype=f.dtype)
        if self.by == "width":
            low, high = f.min(), f.max()
            # XLA would replace division by a constant with its reciprocal, which is rounded.
            bins = jax.lax.optimization_barrier(jnp.asarray(self.bins, f.dtype))
            # Multiplied first, so that an edge at a score is exactly that score.
            edges = low + (high - low) * cuts / bins
            share = cuts / bins
            spread_out = low * (1 - share) + high * share  # where the range overflows
            edges = jnp.where(jnp.isfinite((high - low) * bins), edges, spread_out)
        else:
            order = jnp.argsort(f)
            weight_below = jnp.cumsum(w[order])
            # Multiplied rather than divided, so that counts of rows stay whole.
            wanted = cuts * weight_below[-1]
            edges = f[order][jnp.searchsorted(weight_below * self.bins, wanted)]
        which = jnp.searchsorted(edges, f)

        def per_bin(x: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(x, which, self.bins)

        total, n_pos = per_bin(w), per_bin(jnp.where(y, w, 0))
        share = n_pos / jnp.where(total > 0, total, 1)
        return FittedBinning(
            probabilities=jnp.where(total > 0, share, jnp.sum(n_pos) / jnp.sum(total)),
            edges=edges,
        )
