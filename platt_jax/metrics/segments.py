"""Metrics by segment."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column
from platt_jax.execution.segment_rows import SegmentRows, row_arrays
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import PaddedRows, SegmentsBySize
from platt_jax.multiclass.rows import read_classes
from platt_jax.results.tables import Table, keyed


class BySegment(NamedTuple):
    """A metric of the rows of each of K segments.

    Attributes:
        keys: (K,) segment ids, ascending if they can be sorted.
        rows: (K,) number of rows of each segment.
        values: result of the metric, each of its arrays with leading axis K.
    """

    keys: NDArray[Any]
    rows: NDArray[np.intp]
    values: Any

    def table(self) -> Table:
        """A line per segment: its id, its number of rows and its values, without values by bin."""
        flat = {name: x for name, x in _named("value", self.values) if x.ndim == 1}
        return keyed("segment", self.keys, {"rows": self.rows, **flat})


def by_segment(
    metric: Callable[..., Any],
    labels: Column,
    proba: Column = None,
    segments: Column = None,
    *,
    weights: Column = None,
    **options: Any,
) -> BySegment:
    """Compute a metric for the rows of each segment.

    Segments of similar size are padded to one shape, and computed at once.

    Args:
        metric: a function of this package, such as `log_loss`, but not `isotonic_curve` or
            `smooth_curve`, which take one problem; or a similar function of labels and
            probabilities (..., N) and `weights`, where weight 0 removes a row.
        labels: (N,) bool, {0, 1} or {-1, +1}; class ids for a metric of several classes; or
            SegmentRows, which replace the arrays, with their scores as `proba`.
        proba: (N,) argument of the metric: probabilities, logits or scores; (N, C) for a metric of
            several classes.
        segments: (N,) ids as in `fit_segments`.
        weights: (N,) counts of rows >= 0.
        options: options of the metric, such as from_logits=True or classes; `before` of
            `decision_curve` has a number per row, (N,).

    Returns:
        A BySegment; `BySegment.table` makes it a table.

    Raises:
        ValueError: an argument is not as above, or SegmentRows have an offset.

    Example:
        >>> from platt_jax import metrics
        >>> shops = ["a", "b", "a", "b"]
        >>> brier = by_segment(metrics.brier_score, [1, 0, 0, 1], [0.9, 0.5, 0.1, 0.5], shops)
        >>> brier.keys.tolist(), brier.values.round(2).tolist()
        (['a', 'b'], [0.01, 0.25])
    """
    if isinstance(labels, SegmentRows):
        beside = dict(proba=proba, segments=segments, weights=weights)
        proba, labels, segments, weights, _ = row_arrays(labels, "offset", **beside)
    validation.require_each(labels, "labels", proba=proba, segments=segments)
    p = validation.floating(proba, "proba")
    if p.ndim not in (1, 2) or not len(p):
        raise ValueError(f"proba: expected a flat array with rows, got shape {p.shape}")
    row_ids = ids.read_rows(segments, len(p))
    y: NDArray[Any]
    if p.ndim == 2:
        y = read_classes(labels, len(p), p.shape[1], options.pop("classes", None))[1]
        w = validation.broadcast(
            validation.weights(1.0 if weights is None else weights, np.float64),
            p.shape[:1],
            "weights",
            "labels",
        )
    else:
        y, w, _ = validation.labelled_rows(p, labels, weights, "proba")
        y = np.where(y == validation.BAD_LABEL, np.nan, y) if y.min() < 0 else y
    segments_by_size = SegmentsBySize(factorize(row_ids))
    by_row = {}
    if "before" in options:
        before = validation.floating(options.pop("before"), "before")
        by_row["before"] = validation.broadcast(before, p.shape[:1], "before", "proba")

    def values_of_some(rows: PaddedRows) -> Any:
        weights = np.where(rows.inside, w[rows.place], 0)
        beside = {name: x[rows.place] for name, x in by_row.items()}
        return metric(y[rows.place], p[rows.place], weights=weights, **beside, **options)

    values = segments_by_size.map(values_of_some)
    return BySegment(segments_by_size.keys, segments_by_size.sizes, values)


def _named(name: str, values: Any) -> list[tuple[str, NDArray[Any]]]:
    """Every array of a result, with a name made from its path."""
    if not hasattr(values, "_asdict"):
        return [(name, values)]
    return [
        (inner if name == "value" else f"{name}_{inner}", x)
        for field, part in values._asdict().items()
        for inner, x in _named(field, part)
    ]
