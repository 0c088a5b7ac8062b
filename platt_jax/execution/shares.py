"""Labels that are shares: k positives of r trials, or probabilities. Each row becomes two rows."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.arrays import Floats
from platt_jax.backend import accelerators
from platt_jax.columns import Column
from platt_jax.results.probabilities import expit

# Soft labels that the curve fits exactly, as where it made them, would have one of rounding errors.
_LEAST_DISPERSION = 1e-3


class ShareRows(NamedTuple):
    """Rows (..., N) of which k of r trials are positive; of soft labels the share is k, r = 1."""

    scores: NDArray[Any]
    positives: Floats
    trials: Floats
    weights: Floats
    offset: NDArray[Any] | None
    soft: bool

    def twice(self, x: Any) -> Any:
        """The column of the positive rows, and then of the negative ones."""
        return None if x is None else np.concatenate([x, x], axis=-1)

    def columns(self, dispersion: Any = 1.0) -> dict[str, Any]:
        """Arguments of `fit`. Trials count one over the dispersion (...,)."""
        positive = np.ones(self.scores.shape, bool)
        scale = self.weights / np.expand_dims(dispersion, -1)
        counts = self.positives * scale, (self.trials - self.positives) * scale
        return {
            "scores": self.twice(self.scores),
            "labels": np.concatenate([positive, ~positive], axis=-1),
            "weights": np.concatenate(counts, axis=-1),
            "offset": self.twice(self.offset),
        }

    def dispersion(self, logit: Floats, parameters: int) -> Any:
        """(...,) Pearson's statistic over its degrees of freedom; 1 where it tells nothing.

        Independent trials have 1, and trials that agree more often have more. Soft labels vary less
        than labels of 0 and 1, but one counts as at most 1,000 of these. Where the trials of every
        row agree, and rows of both classes are there, a row counts once: separable labels would
        give a statistic of rounding errors.

        Args:
            logit: the fitted log-odds (..., N) without the offset.
            parameters: how many were fitted.
        """
        p = expit(logit if self.offset is None else logit + self.offset)
        variance = self.trials * p * (1 - p)
        valid = np.isfinite(self.positives + logit + self.weights) & (variance > 0)
        error = np.where(valid, self.positives - self.trials * p, 0)
        weights = np.where(valid, self.weights, 0)
        squares, rows = (weights * error**2 / np.where(valid, variance, 1)).sum(-1), weights.sum(-1)
        freedom = rows - parameters
        phi = squares / np.where(freedom > 0, freedom, 1)
        phi = np.where(freedom > 0, np.maximum(phi, _LEAST_DISPERSION if self.soft else 1), 1.0)
        positive, negative = (self.positives > 0), (self.positives < self.trials)
        counted = weights > 0
        agree = ~(positive & negative & counted).any(-1)
        mixed = (positive & counted).any(-1) & (negative & counted).any(-1)
        mean_trials = (weights * self.trials).sum(-1) / np.where(rows > 0, rows, 1)
        return np.where(agree, np.where(mixed, mean_trials, 1.0), phi)


def are_shares(trials: Column | None, soft: bool) -> bool:
    """Whether labels are shares."""
    if not isinstance(soft, bool | np.bool_):
        raise ValueError(f"soft: expected True or False, got {type(soft).__name__}")
    return trials is not None or bool(soft)


def share_rows(
    scores: Column,
    labels: Column,
    trials: Column | None,
    soft: bool,
    weights: Column | None,
    offset: Column | None,
    pos_label: Any,
    curve: Any,
) -> ShareRows:
    """The rows, checked."""
    option = "soft" if trials is None else "trials"
    if soft and trials is not None:
        raise ValueError("soft: expected False beside trials")
    if pos_label is not None:
        raise ValueError(f"pos_label: expected none beside {option}, got {pos_label!r}")
    if curve != "sigmoid":
        raise ValueError(f"curve: expected 'sigmoid' beside {option}, got {curve!r}")
    if accelerators.holds(scores) or isinstance(scores, validation.HeldRows):
        kind = type(scores).__name__
        raise ValueError(f"scores: expected an array on the host beside {option}, got {kind}")
    validation.require_each(scores, labels=labels)
    scores = validation.scores(scores)
    k, r, w = (
        validation.broadcast(validation.numbers(x, name).astype(float), scores.shape, name)
        for x, name in (
            (labels, "labels"),
            (1.0 if trials is None else trials, "trials"),
            (1.0 if weights is None else weights, "weights"),
        )
    )
    if not (valid := (r > 0) | np.isnan(r)).all():
        raise ValueError(f"trials: expected numbers above 0, got {r[~valid].flat[0]}")
    if (outside := (k < 0) | (k > r)).any():
        index = np.argmax(outside)
        bound = "1" if trials is None else f"the row's trials, {r.flat[index]}"
        raise ValueError(f"labels: expected numbers from 0 to {bound}, got {k.flat[index]}")
    if (w < 0).any():
        raise validation.negative_weight_error(w[w < 0].flat[0])
    # A number that is not finite spoils both halves of its row.
    finite = np.isfinite(k) & np.isfinite(r) & np.isfinite(w)
    k, r, w = (np.where(finite, x, y) for x, y in ((k, 0), (r, 1), (w, np.nan)))
    return ShareRows(scores, k, r, w, validation.offset(offset, scores), soft)
