"""Fits of the base classifier on folds, and its scores for the held-out rows."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from platt_jax.sklearn.calibrators import Fold
from platt_jax.sklearn.scores import Scorer


class TrainingRows(NamedTuple):
    """Rows for fitting and calibration."""

    X: Any
    y: Any
    classes: NDArray[Any]
    codes: NDArray[Any]  # as in Fold
    weights: NDArray[np.float64] | None  # weights in the calibration
    offset: NDArray[np.float64] | None = None  # (N,) offset in the calibration


def score(estimator: Any, rows: TrainingRows, scorer: Scorer) -> Fold:
    """The scores of a fitted classifier for the rows.

    Raises:
        ValueError: the classifier knows one class only.
    """
    seen = _seen(estimator, rows)
    return Fold(scorer(estimator, rows.X), rows.codes, rows.weights, seen, rows.offset)


def select(fold: Fold, which: Any) -> Fold:
    """The rows `which` of a fold."""
    weights, offset = (None if x is None else x[which] for x in (fold.weights, fold.offset))
    return Fold(fold.scores[which], fold.codes[which], weights, fold.seen, offset)


def cross_fit(
    estimator: Any,
    rows: TrainingRows,
    splits: Iterable[tuple[Any, Any]],
    scorer: Scorer,
    fit_params: dict[str, Any],
    n_jobs: int | None,
) -> list[tuple[Any, Fold]]:
    """Fit a clone of the classifier on each split, and score the held-out rows.

    Raises:
        ValueError: the rows for a fit are all of one class.
    """
    return Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_score)(clone(estimator), rows, train, test, scorer, fit_params)
        for train, test in splits
    )


def _fit_and_score(
    estimator: Any,
    rows: TrainingRows,
    train: Any,
    test: Any,
    scorer: Scorer,
    fit_params: dict[str, Any],
) -> tuple[Any, Fold]:
    X, y = _safe_indexing(rows.X, train), _safe_indexing(rows.y, train)
    estimator.fit(X, y, **_check_method_params(rows.X, params=fit_params, indices=train))
    weights, offset = (None if x is None else x[test] for x in (rows.weights, rows.offset))
    scores = scorer(estimator, _safe_indexing(rows.X, test))
    return estimator, Fold(scores, rows.codes[test], weights, _seen(estimator, rows), offset)


def _seen(estimator: Any, rows: TrainingRows) -> NDArray[np.intp]:
    if rows.codes.ndim == 2:
        return np.arange(rows.codes.shape[1])
    if len(estimator.classes_) < 2:
        raise ValueError(
            "y: expected rows of two classes or more wherever the estimator is fitted, got only "
            f"class {estimator.classes_.tolist()[0]!r}"
        )
    return np.searchsorted(rows.classes, estimator.classes_)


def join(folds: list[Fold], classes: int, scorer: Scorer) -> Fold:
    """The rows of all folds, as those of one classifier that knows all classes."""
    everything = np.arange(classes)
    codes = np.concatenate([x.codes for x in folds])
    if all(len(x.seen) == classes for x in folds):
        scores = np.concatenate([x.scores for x in folds])
        weights = None if folds[0].weights is None else np.concatenate([x.weights for x in folds])
        offset = None if folds[0].offset is None else np.concatenate([x.offset for x in folds])
        return Fold(scores, codes, weights, everything, offset)
    # Where the classifier of a fold lacks a class, the fold's rows have weight 0 in its columns.
    shape = len(codes), len(scorer.columns_of(everything, classes))
    scores, weights = np.zeros(shape), np.zeros(shape)
    start = 0
    for fold in folds:
        mine = np.arange(start, start + len(fold.codes))
        part = np.ix_(mine, scorer.columns_of(fold.seen, classes))
        scores[part] = fold.scores
        weights[part] = 1 if fold.weights is None else fold.weights[:, None]
        start += len(fold.codes)
    return Fold(scores, codes, weights, everything)
