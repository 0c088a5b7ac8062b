"""The choice among methods of calibration by their held-out log loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.inference.choose_curve import first_as_good, loss_sums
from platt_jax.options import Options
from platt_jax.sklearn.folds import CalibrationFold, class_probabilities, fit_folds
from platt_jax.sklearn.scores import Scorer

_PARTS = 5


@dataclass(frozen=True)
class Candidate:
    """A method, and the folds with the scores that it is fitted to."""

    method: str
    scorer: Scorer
    folds: list[CalibrationFold]


def choose_method(
    candidates: list[Candidate], classes: NDArray[Any], options: Options | None
) -> str:
    """The first method whose 5-fold cross-validated log loss is as good as the best.

    That is the rule of `first_as_good`, with each row as a group, however often it was held out.
    """
    if len(candidates) == 1:
        return candidates[0].method
    folds = candidates[0].folds
    weights = np.concatenate([_weights(x) for x in folds])
    used = weights > 0
    weights, row = weights[used], np.concatenate([x.row for x in folds])[used]
    losses = np.stack([_held_out_losses(x, classes, options)[used] for x in candidates])
    group = np.unique(row, return_inverse=True)[1]
    mass = np.bincount(group, weights).astype(float)
    place, _, _ = first_as_good(loss_sums(group, weights, losses), mass)
    return candidates[place].method


def _held_out_losses(
    candidate: Candidate, classes: NDArray[Any], options: Options | None
) -> Floats:
    """The log loss of each row of all folds, by a calibrator of the fold's rows in other parts."""
    # All calibrators are fitted in one batch.
    inside, outside = [], []
    losses = [np.zeros(len(fold.codes)) for fold in candidate.folds]
    for fold, loss in zip(candidate.folds, losses, strict=True):
        parts = _parts(fold)
        for part in range(_PARTS):
            inside.append(fold.some(parts != part))
            outside.append((loss, parts == part, fold.some(parts == part)))
    fitted = fit_folds(inside, classes, candidate.scorer, candidate.method, options)
    for calibrator, (loss, where, fold) in zip(fitted, outside, strict=True):
        p = class_probabilities(calibrator, fold.scores, fold.seen, len(classes), fold.offset)
        loss[where] = _log_loss(p, fold.codes)
    return np.concatenate(losses)


def _parts(fold: CalibrationFold) -> NDArray[np.intp]:
    """The part (n,) of each row; every class is spread over all parts."""
    _, first, number = np.unique(fold.row, return_index=True, return_inverse=True)
    codes, parts = fold.codes[first], np.empty(len(first), np.intp)
    by_class = np.argsort(codes, kind="stable") if codes.ndim == 1 else slice(None)
    parts[by_class] = np.arange(len(parts)) % _PARTS
    return parts[number]


def _weights(fold: CalibrationFold) -> Floats:
    """The weights of the rows, 0 where the classifier does not know the class."""
    given = np.ones(len(fold.codes)) if fold.row_weights is None else fold.row_weights
    return given if fold.codes.ndim == 2 else given * fold.known


def _log_loss(proba: Floats, codes: NDArray[Any]) -> Floats:
    """The log loss of rows, summed over the labels for multilabel."""
    if codes.ndim == 2:
        right = np.where(codes, proba, 1 - proba)
    else:
        right = np.take_along_axis(proba, codes[:, None], axis=1)
    with np.errstate(divide="ignore"):
        return -np.log(np.nan_to_num(right)).sum(axis=1)
