"""The rows of several classes: checked, and padded by segment."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.columns import Column
from platt_jax.ids.factorize import ascending, factorize
from platt_jax.ids.indexing import get_indexer
from platt_jax.ids.padding import PaddedRows, SegmentsBySize
from platt_jax.results import tables
from platt_jax.results.multiclass import Model, expected_class
from platt_jax.status import Status

# Logits of the segments that are fitted together: few, so that they stay in a cache.
_ENTRIES_AT_ONCE = 1 << 16


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
        place = rows.place
        weights = np.where(rows.inside, self.weights[place], 0)
        f = np.atleast_2d(self.logits.T)[:, place].astype(np.float64)
        absent: Bools | None = f == -np.inf
        if absent is not None and absent.any():
            f[absent] = 0
        else:
            absent = None
        status = np.where(weights.any(axis=1), Status.CONVERGED, Status.EMPTY)
        bad = (self.bad[place] & rows.inside).any(axis=1)
        status = np.where(bad, Status.NON_FINITE, status).astype(np.int32)
        return Padded(f, absent, self.codes[place], weights, status)


def read_multiclass(
    logits: NDArray[Any], codes: Ints, weights: Floats, model: Model, classes: int
) -> MulticlassRows:
    """The rows of logits (N, C), codes (N,) and weights (N,) >= 0. A code of -1 omits its row."""
    weights = np.where(codes >= 0, weights, 0)
    if model == "ordinal":
        scores = logits if logits.ndim == 1 else expected_class(logits)
        finite = np.isfinite(scores)
        logits = scores
    else:
        absent = logits == -np.inf
        with np.errstate(invalid="ignore", over="ignore"):
            highest = logits.max(axis=1)
            lowest = np.where(absent, np.inf, logits).min(axis=1)
            finite = np.isfinite(highest - lowest)
        finite &= ~absent[np.arange(len(codes)), np.maximum(codes, 0)]
    finite &= np.isfinite(weights)
    bad = ~finite & (weights != 0)
    left_out = ~finite | (weights == 0)
    if left_out.any():
        logits, weights = logits.copy(), np.where(left_out, 0, weights)
        logits[left_out] = 0
    return MulticlassRows(logits, np.maximum(codes, 0), weights, bad, classes)


def bad_rows_error(rows: MulticlassRows) -> ValueError:
    """The error for rows that are not finite, with Options(non_finite="raise")."""
    first = int(np.flatnonzero(rows.bad)[0])
    return ValueError(
        "logits, labels, weights: expected finite weights, and in each row logits that are finite "
        f"or -inf and the label's finite; row {first} is not so"
    )


def read_logits(logits: Column, model: Model) -> NDArray[Any]:
    """Logits (N, C) with rows, or ordinal scores (N,)."""
    read = validation.floating(logits, "logits")
    if model == "ordinal" and read.ndim == 1 and len(read):
        return read
    if read.ndim != 2 or not read.size:
        or_scores = " or (N,)" if model == "ordinal" else ""
        raise ValueError(f"logits: expected (N, C){or_scores} with rows, got shape {read.shape}")
    return read


def read_weights(weights: Column | None, rows: int) -> Floats:
    """Weights (N,) in float64; 1 for None."""
    if weights is None:
        return np.ones(rows)
    read: Any = validation.weights(weights, np.float64)
    if read.shape != (rows,):
        raise ValueError(f"weights: expected one per row, ({rows},), got shape {read.shape}")
    return read


def read_classes(
    labels: Column, rows: int, number: int | None, classes: Column | None
) -> tuple[NDArray[Any], Ints]:
    """The ids of the classes (C,), and the number of each row's class (N,).

    Without `classes` they are 0 ... C-1 if the labels are such integers, else the distinct labels,
    ascending. The number of columns is None if there are none.
    """
    given = ids.read_rows(labels, rows, "labels")
    if classes is None:
        if (
            number is not None
            and isinstance(given, np.ndarray)
            and given.dtype.kind in "iu"
            and given.min() >= 0
            and given.max() < number
        ):
            return np.arange(number), given.astype(np.int64)
        found = factorize(given)
        names = found.named(np.unique(found.of(slice(None))))
    else:
        names = ids.single_column(ids.read(classes, "classes"), "classes")
    if number is None:
        number = max(len(names), 2)
    if len(names) != number or len(set(names.tolist())) != number:
        what = "found labels of" if classes is None else "got"
        raise ValueError(
            f"classes: expected {number} distinct ids, one per column of logits, {what} "
            f"{names[:10].tolist()}"
        )
    keys, place = ascending(names)
    found_places = get_indexer(keys, given, "labels")
    if (found_places < 0).any():
        odd = ids.single_column(given, "labels")[found_places < 0]
        raise ValueError(f"labels: {tables.name(odd, 0)} is not among classes")
    return names, np.argsort(place)[found_places]
