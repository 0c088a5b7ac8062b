"""Rows with labels, and a pool of rows with scores only, of the segments that `means` is about."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column
from platt_jax.execution.predicted_rows import are_there, unlabelled_rows, with_predictions
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.ids.factorize import split_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.joining import join
from platt_jax.ids.vocabulary import distinct
from platt_jax.inference.leave_one_out import leave_one_out
from platt_jax.passes.columns import Columns
from platt_jax.population.device_segments import fetched
from platt_jax.results.segment_calibrator import SegmentCalibrator, require_segment_calibrator


class MeanRows(NamedTuple):
    """Rows of S segments: n with labels, and N of a pool."""

    keys: NDArray[Any]  # (S,) ascending
    owner: Integers  # (n,) the segment of each row with labels
    labels: Floats  # (n,) NaN where a label is missing
    left_out: Floats  # (n,) predictions by fits without the row
    pool: "PoolSums"
    pool_owner: Integers | None  # (N,) None if the rows of the pool are on a device
    pool_proba: Floats | None  # (N,) their predictions

    def sums(self, x: Floats) -> Floats:
        """(S,) sums over the rows with labels."""
        total: Any = np.bincount(self.owner, x, len(self.keys))
        return total


class PoolSums(NamedTuple):
    """Sums over the rows of the pool in each segment (S,), with p their predictions."""

    rows: Floats
    proba: Floats
    squares: Floats  # of p minus their mean
    by_A: Floats  # p (1 - p) times the score
    by_B: Floats  # p (1 - p)

    @classmethod
    def of(cls, owner: Integers, scores: Floats, p: Floats, number: int) -> "PoolSums":
        """Of rows in NumPy arrays, of so many segments."""

        def total(x: Floats) -> Floats:
            summed: Any = np.bincount(owner, x, number)
            return summed

        rows, proba, by_logit = total(np.ones(len(owner))), total(p), p * (1 - p)
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = total((p - (proba / rows)[owner]) ** 2)
            return cls(rows, proba, squares, total(by_logit * scores), total(by_logit))


def sums_there(rows: Columns, inside: jax.Array) -> jax.Array:
    """(k, 5) the fields of `PoolSums`, of rows as by `with_predictions`."""
    p, number = rows.offset, jnp.sum(inside, -1, dtype=np.float64)

    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(inside, x, 0), -1)

    proba, by_logit = total(p), p * (1 - p)
    squares = total((p - (proba / number)[:, None]) ** 2)
    return jnp.stack([number, proba, squares, total(by_logit * rows.scores), total(by_logit)], -1)


def read_rows(
    calibrator: SegmentCalibrator,
    scores: Column,
    labels: Column,
    segments: Column,
    pool: Column,
    pool_segments: Column,
    probability: Column,
    with_pool_rows: bool = False,
) -> MeanRows:
    """The rows, with their predictions; a pool on a device stays there unless rows are needed."""
    require_segment_calibrator(calibrator, "calibrator", any_curve=True)
    without = "weights", "offset"
    if isinstance(scores, SegmentRows):
        beside = {"labels": labels, "segments": segments, "probability": probability}
        arrays = row_arrays(scores, *without, **beside)
        scores, labels, segments = arrays.scores, arrays.labels, arrays.segments
    if on_device := not with_pool_rows and are_there(calibrator, pool):
        in_pool: Any = unlabelled_rows(pool, pool_segments, "pool", "pool_segments")
    elif isinstance(pool, SegmentRows):
        arrays = row_arrays(pool, *without, pool_segments=pool_segments)
        pool, pool_segments = arrays.scores, arrays.segments
    validation.require_each(scores, labels=labels, segments=segments)
    scores = validation.numbers(scores, "scores")
    validation.require_flat(scores, "scores")
    if not on_device:
        validation.require_each(pool, "pool", pool_segments=pool_segments)
        pool = validation.numbers(pool, "pool").astype(float)
        validation.require_flat(pool, "pool")
    y = validation.labelled_rows(scores, labels, None, "scores").labels
    owner, row_keys = distinct(ids.read_like(calibrator.keys, segments, len(scores)))
    if on_device:
        pool_owner, pool_keys = None, in_pool.keys[in_pool.largest_first]
    else:
        pool_owner, pool_keys = distinct(
            ids.read_like(calibrator.keys, pool_segments, len(pool), "pool_segments")
        )
    for values, name in ((row_keys, "segments"), (pool_keys, "pool_segments")):
        get_indexer(calibrator.keys, split_columns(values), name)  # refuses ids of another kind
    indices, keys = distinct(split_columns(join([row_keys, pool_keys])))
    owner, pool_indices = indices[: len(row_keys)][owner], indices[len(row_keys) :]
    pool_proba = None
    if on_device:
        with jax.default_device(in_pool.device):
            values = with_predictions(in_pool, fetched(calibrator)).map(sums_there)
        by_key = np.zeros((5, len(keys)))
        by_key[:, pool_indices] = values.T
        sums = PoolSums(*by_key)
    else:
        pool_owner = pool_indices[pool_owner]
        pool_proba = np.asarray(calibrator.predict_proba(pool, keys[pool_owner]), float)
        sums = PoolSums.of(pool_owner, pool, pool_proba, len(keys))
    if probability is not None:
        left_out = validation.numbers(probability, "probability").astype(float)
        left_out = validation.broadcast(left_out, scores.shape, "probability")
        validation.require_probabilities(left_out, "probability")
        left_out = np.where(np.isfinite(scores), left_out, np.nan)
    elif len(scores):
        how = calibrator.options
        left_out = leave_one_out(calibrator, scores, labels, keys[owner], options=how).astype(float)
    else:
        left_out = np.zeros(0)
    return MeanRows(
        keys,
        owner,
        np.where(y == validation.BAD_LABEL, np.nan, y > 0),
        left_out,
        sums,
        pool_owner,
        pool_proba,
    )
