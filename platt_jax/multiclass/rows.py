"""The rows of several classes: checked, and padded by segment."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import columns, validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.columns import Column
from platt_jax.execution.class_labels import Classes, one_class_each
from platt_jax.ids.padding import PaddedRows, SegmentsBySize
from platt_jax.results.multiclass import Model, expected_class, no_options
from platt_jax.status import Status

# Logits of the segments that are fitted together: few, so that they stay in a cache.
_ENTRIES_AT_ONCE = 1 << 16
# How far below its row's largest a logit is no option: times the segment's typical distance, and at
# least in nats. So are the numbers that mask options, from -1e4 to the least of float32.
_FAR = 1e3
# Distances from a row's largest logit, in units of its size or in nats, that may be rounding.
_TIED = 1e-6


class Padded(NamedTuple):
    """The rows of k segments. The classes are the first axis, so that sums over them are fast."""

    logits: Floats  # (C, k, N) finite, 0 where a class is no option; (1, k, N) of ordinal scores
    absent: Bools | None  # (C, k, N) whether a class is no option; None if all are
    codes: Ints  # (k, N) numbers of the labels' classes
    weights: Floats  # (k, N), 0 for padding
    status: NDArray[np.int32]  # (k,) CONVERGED, NON_FINITE or EMPTY


@dataclass(frozen=True)
class MulticlassRows:
    """The rows of a call."""

    logits: NDArray[Any]  # (N, C) logits, -inf where a class is no option; or (N,) ordinal scores
    farthest: Floats  # (K + 1,) see `MulticlassCalibrator`
    codes: Ints  # (N,) numbers of the labels' classes
    weights: Floats  # (N,) float64, 0 for rows that are left out
    bad: Bools  # (N,) whether a row makes its segment NON_FINITE
    classes: int  # C, the number of classes

    @property
    def all(self) -> PaddedRows:
        """All rows as the rows of one segment."""
        return PaddedRows(np.arange(len(self.codes))[None], np.ones((1, len(self.codes)), bool))

    def without_bad(self) -> "MulticlassRows":
        """The same rows, of which none makes its segment NON_FINITE."""
        return replace(self, bad=np.zeros(len(self.codes), bool))

    def pieces(self, segments: SegmentsBySize) -> Iterator[tuple[Ints, PaddedRows]]:
        """Numbers and rows of segments that are fitted together."""
        return segments.pieces(max(1, _ENTRIES_AT_ONCE // self.classes))

    def padded(self, rows: PaddedRows) -> Padded:
        """The rows of these segments."""
        indices = rows.place
        weights = np.where(rows.inside, self.weights[indices], 0)
        f = np.atleast_2d(self.logits.T)[:, indices].astype(np.float64)
        absent: Bools | None = f == -np.inf
        if absent is not None and absent.any():
            f[absent] = 0
        else:
            absent = None
        status = np.where(weights.any(axis=1), Status.CONVERGED, Status.EMPTY)
        bad = (self.bad[indices] & rows.inside).any(axis=1)
        status = np.where(bad, Status.NON_FINITE, status).astype(np.int32)
        return Padded(f, absent, self.codes[indices], weights, status)


def read_multiclass(
    logits: NDArray[Any],
    codes: Ints,
    weights: Floats,
    model: Model,
    classes: int,
    segments: Ints,
) -> MulticlassRows:
    """The rows of logits (N, C), codes (N,) and weights (N,) >= 0. A code of -1 omits its row.

    The segments (N,) are numbers from 0 to K - 1.
    """
    weights = np.where(codes >= 0, weights, 0)
    farthest = np.full(segments.max() + 2, np.inf)
    if model == "ordinal":
        logits = logits if logits.ndim == 1 else expected_class(logits)
        finite = np.isfinite(logits)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            top = logits.max(axis=1, keepdims=True)
            below = top - logits
            below[below <= _TIED * np.maximum(np.abs(top), 1)] = 0
            farthest = _FAR * np.fmax(_typical_distances(below, weights, segments), 1)
        absent = no_options(logits, farthest[segments])
        finite = np.isfinite(top[:, 0]) & ~absent[np.arange(len(codes)), np.maximum(codes, 0)]
        if (absent & (logits > -np.inf)).any():
            logits = np.where(absent, -np.inf, logits)
    finite &= np.isfinite(weights)
    bad = ~finite & (weights != 0)
    left_out = ~finite | (weights == 0)
    if left_out.any():
        logits, weights = logits.copy(), np.where(left_out, 0, weights)
        logits[left_out] = 0
    return MulticlassRows(logits, farthest, np.maximum(codes, 0), weights, bad, classes)


def _typical_distances(below: NDArray[Any], weights: Floats, segments: Ints) -> Floats:
    """(K + 1,) of each segment and of all rows, how far options (N, C) are below the largest one.

    Options that tie do not count, and masks should not: of distances d, the fourth power of the sum
    of d^(-1/2) over that of d^(-3/4) is hardly moved by masks, even by 20 for each option. What is
    far beyond it is left out of the power mean with exponent -1/2.
    """
    counted = np.isfinite(weights) & (weights > 0)
    w = np.where(counted, weights, 0)
    largest = np.zeros(segments.max(initial=0) + 1)
    np.maximum.at(largest, segments, w)
    # In units of the largest weight, lest sums overflow.
    of_segment, of_all = (np.ldexp(w, -np.frexp(x)[1]) for x in (largest[segments], w.max()))
    ones = np.ones(below.shape[1])

    def totals(values: NDArray[Any]) -> Floats:
        by_row = values @ ones
        return np.append(np.bincount(segments, of_segment * by_row), of_all @ by_row)

    with np.errstate(invalid="ignore", divide="ignore"):
        roots = 1 / np.sqrt(below)
        roots[~(roots < np.inf)] = 0
        rough = (totals(roots) / totals(roots**1.5)) ** 4
        roots[below >= (_FAR * np.fmax(rough, 1))[segments, None]] = 0
        typical: Floats = (totals(np.sign(roots)) / totals(roots)) ** 2
    return typical


def bad_rows_error(rows: MulticlassRows) -> ValueError:
    """The error for rows that are not finite, with Options(non_finite="raise")."""
    first = int(np.flatnonzero(rows.bad)[0])
    return ValueError(
        "logits, labels, weights: expected finite weights, and in each row a largest logit that is "
        f"finite and a label that is an option; row {first} is not so"
    )


def read_logits(logits: Column, model: Model) -> NDArray[Any]:
    """Logits (N, C) with rows, or ordinal scores (N,)."""
    f = validation.scores_to_fit(logits, "logits")
    if model == "ordinal" and f.ndim == 1 and len(f):
        return f
    if f.ndim != 2 or not f.size:
        alternative = " or (N,)" if model == "ordinal" else ""
        raise ValueError(f"logits: expected (N, C){alternative} with rows, got shape {f.shape}")
    return f


def read_weights(weights: Column | None, rows: int) -> Floats:
    """Weights (N,) in float64; 1 for None."""
    if weights is None:
        return np.ones(rows)
    w: Any = validation.weights(weights, np.float64)
    if w.shape != (rows,):
        raise ValueError(f"weights: expected one per row, ({rows},), got shape {w.shape}")
    return w


def read_classes(
    labels: Column, logits: NDArray[Any], classes: Column | None, model: Model
) -> Classes:
    """The classes of logits (N, C), or of ordinal scores (N,), and the number of each row's class.

    Those of "ordinal" are in order: of labels that are no numbers or times only the user knows it.
    """
    if model == "ordinal" and classes is None:
        classes = columns.ordered_categories(labels)
    shape = len(logits), logits.shape[1] if logits.ndim == 2 else None
    parsed = one_class_each(labels, shape, classes)
    if model == "ordinal" and classes is None and parsed.names.dtype.kind not in "biufmM":
        raise ValueError(
            'classes: expected for model="ordinal" the ids in the order of the scale, lowest '
            f"first, because labels are no numbers; got {parsed.names[:10].tolist()}"
        )
    return parsed
