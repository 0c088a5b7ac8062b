"""Metrics by segment."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.backend import accelerators, xla
from platt_jax.backend.threads import run_programs
from platt_jax.columns import Column, takes_columns
from platt_jax.execution.class_labels import one_class_each
from platt_jax.execution.segment_rows import DeviceSegmentRows, SegmentRows, row_arrays
from platt_jax.ids.factorize import factorize
from platt_jax.ids.padding import PaddedRows, SegmentsBySize, joined, similar
from platt_jax.passes.columns import Columns
from platt_jax.passes.shapes import few_lengths
from platt_jax.results.tables import Table, keyed

# Places of padded rows on an accelerator for which a metric is computed at once.
_AT_ONCE = 1 << 26


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


@takes_columns
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

    Segments of similar size are padded to one shape, and computed at once. Rows with `proba` on a
    GPU are padded there, and the metric gets JAX arrays; it decides whether it copies them.

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
    beside = dict(proba=proba, segments=segments, weights=weights)
    device_rows = _rows_there(labels, **beside)
    if device_rows is not None and "before" not in options:
        return _by_segment_there(metric, device_rows, options)
    if isinstance(labels, SegmentRows):
        proba, labels, segments, weights, _ = row_arrays(labels, "offset", **beside)
    validation.require_each(labels, "labels", proba=proba, segments=segments)
    p = validation.floating(proba, "proba")
    if p.ndim not in (1, 2) or not len(p):
        raise ValueError(f"proba: expected a flat array with rows, got shape {p.shape}")
    row_ids = ids.read_rows(segments, len(p))
    y: NDArray[Any]
    if p.ndim == 2:
        y = one_class_each(labels, p.shape, options.pop("classes", None)).labels
        if "classes" in inspect.signature(metric).parameters:  # some may lack class 0
            options["classes"] = np.arange(p.shape[1])
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
        earlier = validation.floating(options.pop("before"), "before")
        by_row["before"] = validation.broadcast(earlier, p.shape[:1], "before", "proba")

    def chunk_values(rows: PaddedRows) -> Any:
        weights = np.where(rows.inside, w[rows.place], 0)
        beside = {name: x[rows.place] for name, x in by_row.items()}
        return metric(y[rows.place], p[rows.place], weights=weights, **beside, **options)

    values = segments_by_size.map(chunk_values)
    return BySegment(segments_by_size.keys, segments_by_size.sizes, values)


def _rows_there(
    labels: Any, proba: Column, segments: Column, weights: Column
) -> SegmentRows | None:
    """The rows, if they are flat on an accelerator."""
    if isinstance(labels, SegmentRows):
        if labels.device is None:
            return None
        validation.require_none_beside(labels, proba=proba, segments=segments, weights=weights)
        device_rows: Any = labels
        device_rows.require_without("offset")
        return labels
    if not accelerators.holds(proba) or len(proba.shape) != 1 or not len(proba):
        return None
    validation.require_each(labels, "labels", segments=segments)
    return DeviceSegmentRows(proba, labels, segments, weights, doubt=False)


def _by_segment_there(metric: Callable[..., Any], rows: Any, options: dict[str, Any]) -> BySegment:
    """`by_segment` for rows with the methods of `DeviceMetricProblems`."""

    def chunk_values(which: NDArray[np.intp], width: int) -> Any:
        # One program serves several numbers of segments.
        more = np.full(few_lengths(len(which), 1) - len(which), which[-1])
        padded, inside = rows.padded(np.append(which, more), width)
        labels, weights = run_programs(partial(_coded, padded, inside), x64=True)
        values = metric(labels, padded.scores, weights=weights, **options)
        return jax.tree.map(lambda x: x[: len(which)], values)

    order = rows.largest_first
    values = joined(
        (order[chunk], chunk_values(chunk, width)) for chunk, width in similar(rows.sizes, _AT_ONCE)
    )
    sizes = np.empty(len(order), np.intp)
    sizes[order] = rows.sizes
    return BySegment(rows.keys, sizes, values)


@xla.jit
def _coded(rows: Columns, inside: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Labels and weights, which are 0 for padding. The score of a bad label is NaN."""
    weights = inside.astype(rows.scores.dtype)
    if rows.weights is not None:
        weights = jnp.where(inside, rows.weights, 0)
    return jnp.maximum(rows.labels, 0), weights


def _named(name: str, values: Any) -> list[tuple[str, NDArray[Any]]]:
    """Every array of a result, with a name made from its path."""
    if not hasattr(values, "_asdict"):
        return [(name, values)]
    return [
        (inner if name == "value" else f"{name}_{inner}", x)
        for field, part in values._asdict().items()
        for inner, x in _named(field, part)
    ]
