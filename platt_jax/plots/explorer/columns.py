"""The numbers of every segment, those to look at first coming first; and columns as bytes.

A column is stored as planes: the first byte of every number, then the second, and so on, which
deflate compresses well. `static/unpack.js` reads it.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids
from platt_jax.arrays import Floats, Integers
from platt_jax.hypothesis_tests.verdict import kinds_off
from platt_jax.ids.factorize import ascending
from platt_jax.ids.indexing import get_indexer
from platt_jax.model.objective import Array
from platt_jax.plots import names
from platt_jax.plots.explorer.rows import JudgedSegments
from platt_jax.results.fit import inspected
from platt_jax.results.segment_calibrator import SegmentCalibrator, pooled_proba
from platt_jax.status import Status

_LONGEST_NAME = 120
# Names of statuses by code; the last is for segments that were not fitted.
STATUSES = [*(status.name for status in Status), "UNSEEN"]
_UNSEEN = len(Status)
# Of deflate: fast, and larger by a few per cent than the best.
_LEVEL = 6
SAMPLES = 49  # scores at which a curve that is no sigmoid is kept
_MANTISSA = 23  # bits of a float32, without its leading 1


class Column(NamedTuple):
    """Numbers of one type."""

    values: Array  # (n,) numbers
    dtype: str  # "u1", "u4" or "f4", in little-endian order
    # of a float's mantissa, how many to keep: 16 for five digits, 11 for three
    bits: int = _MANTISSA

    def stored(self) -> NDArray[Any]:
        """(n,) the numbers as a reader finds them."""
        values = np.asarray(self.values).astype(f"<{self.dtype}")
        return _rounded(values, self.bits) if self.dtype == "f4" else values


NamedColumns: TypeAlias = Mapping[str, Column]


class Order(NamedTuple):
    """The K segments, fitted or in the rows.

    Failed fits come first, then the segments of the rows in the order of triage, and last those
    without rows, flagged ones first.
    """

    judged: Integers  # (K,) number of each segment among the judged ones, -1 if it has no rows
    place: Integers  # (K,) index among the calibrator's keys, -1 if it was not fitted

    def values_of_judged(self, values: Array, without: float) -> Array:
        """(K,) values of the judged segments, another for segments without rows."""
        return np.append(values, without)[self.judged]

    def values_of_fits(self, values: Array, without: float) -> Array:
        """(K,) values of the fits, another for segments that were not fitted."""
        return np.append(np.asarray(values), without)[self.place]


def ordered(calibrator: SegmentCalibrator, judged: JudgedSegments) -> Order:
    """All segments in their order."""
    fit, number = inspected(calibrator, any_curve=True)[0], len(judged.keys)
    without = np.setdiff1d(np.arange(len(calibrator.keys)), judged.place)
    fit_index = np.concatenate([judged.place, without])
    is_fitted = fit_index >= 0
    failed = is_fitted & (np.append(fit.status, Status.CONVERGED)[fit_index] != Status.CONVERGED)
    rank = np.minimum(np.arange(len(fit_index)), number)
    flags = np.where(is_fitted, np.append(fit.flags, 0)[fit_index], 0)
    order = np.lexsort((-flags, rank, ~failed))
    return Order(np.where(order < number, order, -1), fit_index[order])


def row_columns(judged: JudgedSegments, order: Order) -> NamedColumns:
    """What the rows say of each segment: all that a funnel needs."""
    table = judged.table
    return {
        "rows": Column(order.values_of_judged(table["rows"], 0), "u4"),
        "positives": Column(order.values_of_judged(table["positives"], 0), "f4"),
        "expected": Column(order.values_of_judged(table["expected"], 0), "f4", 16),
        "q": Column(order.values_of_judged(table["q_value"], np.nan), "f4", 11),
        "off": Column(order.values_of_judged(table["flagged"], 0), "u1"),
        "kind": Column(order.values_of_judged(kinds_off(table), 0), "u1"),
        "slope": Column(order.values_of_judged(table["slope"], np.nan), "f4", 8),
    }


def fit_columns(calibrator: SegmentCalibrator, order: Order, window: list[float]) -> NamedColumns:
    """The fit of each segment, NaN where there is none.

    The log-odds of class 0 at the score f are level + A (f - middle), with the middle of the
    window. Their variance is steepness² (u - center)² + certainty², where u is f - middle in widths
    of the window. A sum of squares stays exact to the digits kept, unlike one with a covariance.
    Curves that are no sigmoids are probabilities at `SAMPLES` scores, evenly over the window.
    """
    fit, *_ = inspected(calibrator, any_curve=True)
    fitted = np.asarray(fit.n_pos, float) + np.asarray(fit.n_neg, float)
    curve = _sampled if calibrator.curves is not None else _sigmoids
    columns = {
        **curve(calibrator, order, window),
        "fitted": Column(order.values_of_fits(fitted, np.nan), "f4"),
        "status": Column(order.values_of_fits(fit.status, _UNSEEN), "u1"),
        "flags": Column(order.values_of_fits(fit.flags, 0), "u1"),
    }
    if calibrator.population is not None:
        shrinkage = calibrator.population.shrinkage
        columns["shrinkage"] = Column(order.values_of_fits(shrinkage, np.nan), "f4", 11)
    return columns


def _sigmoids(calibrator: SegmentCalibrator, order: Order, window: list[float]) -> NamedColumns:
    fit, middle = calibrator.fit, (window[0] + window[1]) / 2
    A, B = np.asarray(fit.A, float), np.asarray(fit.B, float)
    steepness, center, certainty = _errors(np.asarray(fit.covariance, float), window)
    return {
        "A": Column(order.values_of_fits(A, np.nan), "f4", 16),
        "level": Column(order.values_of_fits(B + A * middle, np.nan), "f4", 16),
        "steepness": Column(order.values_of_fits(steepness, np.nan), "f4", 11),
        "center": Column(order.values_of_fits(center, np.nan), "f4", 11),
        "certainty": Column(order.values_of_fits(certainty, np.nan), "f4", 11),
    }


def pooled(calibrator: SegmentCalibrator, window: list[float]) -> list[float] | None:
    """The curve of all rows pooled, in the numbers that a segment's has; None without one."""
    if calibrator.curves is not None:
        numbers = pooled_proba(calibrator, np.linspace(window[0], window[1], SAMPLES))
    else:
        A, B = float(calibrator.fallback.A), float(calibrator.fallback.B)
        numbers = np.array([A, B + A * (window[0] + window[1]) / 2])
    return numbers.tolist() if np.isfinite(numbers).all() else None


def _sampled(calibrator: SegmentCalibrator, order: Order, window: list[float]) -> NamedColumns:
    keys, scores = calibrator.keys, np.linspace(window[0], window[1], SAMPLES)
    by_score = (calibrator.predict_proba(np.full(len(keys), x), keys) for x in scores)
    return {
        f"p{i}": Column(order.values_of_fits(p, np.nan), "f4", 11) for i, p in enumerate(by_score)
    }


def _errors(covariance: Floats, window: list[float]) -> tuple[Floats, Floats, Floats]:
    """The variance of the log-odds by score, as in `fit_columns`."""
    middle, width = (window[0] + window[1]) / 2, window[1] - window[0]
    AA, AB, BB = covariance[:, 0, 0], covariance[:, 0, 1], covariance[:, 1, 1]
    AA, AB, BB = AA * width**2, width * (AA * middle + AB), (AA * middle + 2 * AB) * middle + BB
    with np.errstate(divide="ignore", invalid="ignore"):
        center = np.where(AA > 0, -AB / AA, 0.0)
        return np.sqrt(AA), center, np.sqrt(np.maximum(BB - AA * center**2, 0))


class Ids(NamedTuple):
    """The ids of the K segments."""

    judged: NDArray[Any]  # (M,) ids of the segments judged
    fitted: NDArray[Any]  # ids of the fits, ascending
    order: Order  # the segments in their order

    def at(self, i: int) -> Any:
        """The id of one segment."""
        judged, fit_index = self.order.judged[i], self.order.place[i]
        return self.judged[judged] if judged >= 0 else self.fitted[fit_index]

    def place(self, id_: Any, name: str) -> int:
        """The number of a segment, -1 if there is none of this id."""
        for keys, number in ((self.judged, self.order.judged), (self.fitted, self.order.place)):
            sorted_keys, order_of_keys = ascending(keys)
            (index,) = get_indexer(sorted_keys, ids.read([id_], name), name)
            if index >= 0:
                return int(np.flatnonzero(number == np.flatnonzero(order_of_keys == index)[0])[0])
        return -1

    def texts(self) -> list[str]:
        """The ids as texts."""
        id_texts = [""] * len(self.order.place)
        for keys, number in ((self.judged, self.order.judged), (self.fitted, self.order.place)):
            indices = np.flatnonzero(number >= 0)
            for i, key in zip(indices.tolist(), keys[number[indices]], strict=True):
                id_texts[i] = shortened(names.text(key))
        return id_texts


def shortened(text: str) -> str:
    """An id, cut off if it is very long."""
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…"


def packed(columns: NamedColumns) -> bytes:
    """The columns, one after the other, deflated."""
    return zlib.compress(b"".join(map(_planes, columns.values())), _LEVEL)


def layout(columns: NamedColumns) -> list[list[str]]:
    """Name and type of each column, by which a reader finds them in `packed`."""
    return [[name, column.dtype] for name, column in columns.items()]


def packed_texts(texts: Iterable[str]) -> bytes:
    """Texts as a list in JSON, deflated."""
    return zlib.compress(json.dumps(list(texts), separators=(",", ":")).encode(), _LEVEL)


def _planes(column: Column) -> bytes:
    values = column.stored()
    return values.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


def _rounded(values: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """The nearest numbers with this many bits of mantissa; the other bits are 0."""
    dropped = _MANTISSA - bits
    if not dropped:
        return values
    coded = values.view("<u4") + np.uint32(1 << (dropped - 1))
    return (coded & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)).view("<f4")
