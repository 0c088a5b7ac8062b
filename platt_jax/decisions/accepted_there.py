"""Rows on a GPU: from which on they are accepted is found there, by sorts and sums of segments."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.columns import Column
from platt_jax.decisions.accepted import (
    FirstAccepted,
    least_variance,
    require_finite,
    status_of,
    tail_terms,
    tails_of_means,
)
from platt_jax.execution.predicted_rows import places, unlabelled_rows, with_predictions
from platt_jax.hypothesis_tests.posteriors import posteriors
from platt_jax.passes.columns import Columns
from platt_jax.population.device_segments import fetched
from platt_jax.results.probabilities import UPPER, expit, variance_of_logit
from platt_jax.results.segment_calibrator import SegmentCalibrator


class KnownThere:
    """Rows of segments (S,) on a device, and what a calibrator with sigmoids knows of them.

    Attributes:
        keys: (S,) segments of the rows, ascending; without those whose rows all have weight 0.
        status: (S,) as in `KnownRows`.
    """

    def __init__(
        self, calibrator: SegmentCalibrator, scores: Column, segments: Column, weights: Column
    ) -> None:
        calibrator = fetched(calibrator)
        rows: Any = unlabelled_rows(scores, segments, without=["offset"], weights=weights)
        keys = rows.keys[rows.largest_first]
        with jax.default_device(rows.device):
            self._rows = with_predictions(rows, calibrator)
            number, bad, odd = self._rows.map(_facts).T
        require_finite(not odd.any())
        known = posteriors(calibrator, keys, places(rows, calibrator))
        A, B = np.array(known.curves.mean.T, np.float64)
        covariance = [known.curves.covariance[:, i, j].astype(np.float64) for i, j in UPPER]
        self._numbers, self._device = (A, B, *covariance), rows.device
        ascending = np.argsort(rows.largest_first)
        self._order = ascending[number[ascending] > 0]
        self._number = number[self._order].astype(np.int64)
        self.keys = keys[self._order]
        status = status_of(bad == 0, known.usable, np.where(A > 0, "REVERSED", "OK"))
        self.status: NDArray[Any] = status[self._order]

    def first_accepted(
        self, positive: bool, target: float, quantile: float, halves: bool
    ) -> FirstAccepted:
        """As class 1, or as class 0, given the precision asked for and the bound's quantile.

        With `halves` no row is taken as a class whose probability is below one half.
        """
        least = 0.0 if not halves else 0.5 if positive else np.nextafter(0.5, 1)
        asked = 1.0 if positive else -1.0, target, quantile, least
        each = (np.full(len(self._numbers[0]), x) for x in asked)
        with jax.default_device(self._device):
            found = self._rows.map(_first_accepted, *self._numbers, *each)[self._order].T
        reached, *others = found
        return FirstAccepted(self._number, reached > 0, *others)


def _counted(rows: Columns, inside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Which rows have another weight than 0, and the weights."""
    weights = jnp.ones_like(rows.scores) if rows.weights is None else rows.weights
    return inside & (weights != 0), weights


def _facts(rows: Columns, inside: jax.Array) -> jax.Array:
    """(k, 3) numbers of rows, of those that are not finite, and of weights that are not."""
    counted, weights = _counted(rows, inside)
    bad = counted & ~jnp.isfinite(rows.scores + rows.offset)
    each = counted, bad, counted & ~jnp.isfinite(weights)
    return jnp.stack([jnp.sum(x, -1, dtype=np.float64) for x in each], -1)


def _first_accepted(
    rows: Columns,
    inside: jax.Array,
    A: jax.Array,
    B: jax.Array,
    c_AA: jax.Array,
    c_AB: jax.Array,
    c_BB: jax.Array,
    sign: jax.Array,
    target: jax.Array,
    quantile: jax.Array,
    least: jax.Array,
) -> jax.Array:
    """(k, 6) the fields of `FirstAccepted` but for the first; predictions are the offset.

    With the sign -1 class 1 is class 0 of the opposite scores. A row is accepted only if its
    probability is at least `least`.
    """
    counted, w = _counted(rows, inside)
    f = jnp.where(counted & jnp.isfinite(rows.scores), rows.scores, 0)
    number = jnp.sum(counted, -1, keepdims=True)
    center, unit = least_variance(c_AA, c_AB, jnp)
    by_score = jnp.where(counted, sign * f, jnp.inf), w, rows.offset
    score, w, proba = lax.sort(by_score, num_keys=1)
    place = jnp.arange(score.shape[1])[None]
    there = place < number
    f, w = jnp.where(there, sign * score, 0), jnp.where(there, w, 0)
    proba, mode = (jnp.where(sign > 0, x, 1 - x) for x in (proba, expit(-(A * f + B))))

    def variance(means: jax.Array) -> jax.Array:
        return variance_of_logit(center + unit * means[0], c_AA, c_AB, c_BB)

    terms = tail_terms(proba, mode, ((f - center) / unit)[None], jnp)
    weight = lax.cumsum(w, 1, reverse=True)
    means = lax.cumsum(terms * w[None], 2, reverse=True) / weight[None]
    found = tails_of_means(weight, means, variance, quantile, jnp)
    # Rows of one score are accepted together.
    first_of_score = jnp.pad(f[:, 1:] != f[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    allowed = there & first_of_score & (found.lower >= target) & (proba >= least)
    first = jnp.min(jnp.where(allowed, place, place.size), -1, keepdims=True)
    reached = first < number
    row = jnp.where(reached, first, 0)
    each = f, weight / weight[:, :1], found.precision, found.error, found.lower
    picked = [jnp.take_along_axis(x, row, 1) for x in each]
    return jnp.concatenate([reached.astype(np.float64), *picked], -1)
