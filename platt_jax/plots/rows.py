"""The rows of a figure: flat, finite, with positive weight; and the ids in a table."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, metrics, validation
from platt_jax.arrays import Floats
from platt_jax.columns import Column
from platt_jax.results.probabilities import expit


class PlottedRows(NamedTuple):
    """N rows of one problem, in float64."""

    values: Floats  # (N,) scores or probabilities
    labels: NDArray[np.int8]  # (N,) 0 or 1
    weights: Floats  # (N,) > 0

    def rates(self, n_bins: int | str, strategy: str, level: float) -> metrics.ReliabilityCurve:
        """The frequency of class 1 in bins of the values, against each bin's mean value."""
        low = self.values.min()
        # Bins of equal width or equal mass do not change under an increasing linear map.
        width = (self.values.max() - low) or 1
        curve = metrics.reliability_curve(
            self.labels,
            (self.values - low) / width,
            weights=self.weights,
            n_bins=n_bins,
            strategy=strategy,
            level=level,
        )
        return curve._replace(prob_pred=low + width * curve.prob_pred)


def scored(scores: Column, labels: Column, weights: Column) -> PlottedRows:
    """Rows of scores of any scale."""
    return _read(validation.floating(scores, "scores"), labels, weights, "scores")


def predicted(labels: Column, proba: Column, weights: Column, from_logits: bool) -> PlottedRows:
    """Rows of probabilities."""
    rows = _read(validation.floating(proba, "proba"), labels, weights, "proba")
    if from_logits:
        return rows._replace(values=expit(rows.values))
    validation.require_probabilities(rows.values, "proba", validation.IF_LOGITS)
    return rows


def _read(values: NDArray[Any], labels: Column, weights: Column, name: str) -> PlottedRows:
    if not values.size:
        raise ValueError(f"{name}: expected rows, got none")
    if values.ndim != 1:
        hint = validation.as_flat(name, values.shape, values.shape[:1])
        raise ValueError(f"{name}: expected (N,), one problem's, got shape {values.shape}{hint}")
    labels, weights, _ = validation.labelled_rows(values, labels, weights, name)
    counted = weights != 0
    values, labels, weights = values[counted], labels[counted], weights[counted]
    if not len(values):
        raise ValueError("weights: expected some above 0, got none")
    bad = {
        name: ~np.isfinite(values),
        "labels": labels == validation.BAD_LABEL,
        "weights": ~np.isfinite(weights),
    }
    for argument, rows in bad.items():
        if number := np.count_nonzero(rows):
            raise ValueError(
                f"{argument}: expected finite numbers, got {number:,} that are NaN or infinite; "
                "leave these rows out, or give them weight 0"
            )
    return PlottedRows(values.astype(float), labels, weights.astype(float))


def ids_in_table(table: Mapping[str, NDArray[Any]], fields: Sequence[str] | None) -> NDArray[Any]:
    """The segments of a table, which are in its first columns: one, or one for each field."""
    columns = [np.asarray(x) for x in list(table.values())[: len(fields or [0])]]
    return ids.structured(fields, columns) if fields else columns[0]
