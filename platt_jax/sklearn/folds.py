"""Folds: fits of the base classifier, its scores for the held-out rows, and their calibrators."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from platt_jax import validation
from platt_jax.api import fit, fit_segments
from platt_jax.options import Options
from platt_jax.results.fit import Fit
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.sklearn.coupling import PairwiseCalibrator
from platt_jax.sklearn.scores import Kind, Scorer
from platt_jax.sklearn.temperature import TemperatureCalibrator, fit_temperature


class TrainingRows(NamedTuple):
    """Rows for fitting and calibration."""

    X: Any
    y: Any
    classes: NDArray[Any]
    codes: NDArray[Any]  # as in Fold
    weights: NDArray[np.float64] | None  # weights in the calibration
    offset: NDArray[np.float64] | None = None  # (N,) offset in the calibration

    def some(self, which: Any) -> "TrainingRows":
        """The rows `which`."""
        X, y = (_safe_indexing(x, which) for x in (self.X, self.y))
        weights, offset = (None if x is None else x[which] for x in (self.weights, self.offset))
        return TrainingRows(X, y, self.classes, self.codes[which], weights, offset)


class Fold(NamedTuple):
    """Rows held out from the fit of one classifier, with its scores."""

    scores: NDArray[np.float64]  # (n, M) output of a Scorer
    codes: NDArray[Any]  # (n,) class numbers; or (n, L) bool for multilabel
    weights: NDArray[np.float64] | None  # (n,), or (n, M) where they differ between columns
    seen: NDArray[np.intp]  # (C,) numbers of the classes that the classifier knows, ascending
    offset: NDArray[np.float64] | None = None  # (n,), with two classes only

    def some(self, which: Any) -> "Fold":
        """The rows `which`."""
        weights, offset = (None if x is None else x[which] for x in (self.weights, self.offset))
        return Fold(self.scores[which], self.codes[which], weights, self.seen, offset)


def score(estimator: Any, rows: TrainingRows, scorer: Scorer) -> Fold:
    """The scores of a fitted classifier for the rows.

    Raises:
        ValueError: the classifier knows one class only.
    """
    seen = _seen(estimator, rows)
    return Fold(scorer(estimator, rows.X), rows.codes, rows.weights, seen, rows.offset)


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
    mine = rows.some(train)
    params = _check_method_params(rows.X, params=fit_params, indices=train)
    estimator.fit(mine.X, mine.y, **params)
    return estimator, score(estimator, rows.some(test), scorer)


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
    """The rows of all folds, as rows of one classifier that knows all classes."""
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


def options_of(method: str, options: Options | None) -> Options:
    """Options of the sigmoids; temperature scaling of two classes is a sigmoid, too."""
    options = Options() if options is None else validation.options(options)
    if method == "sigmoid":
        return options
    return replace(options, intercept=False, targets="none", monotone=True)


def fit_folds(folds: list[Fold], classes: NDArray[Any], kind: Kind, options: Options) -> list[Any]:
    """A calibrator for each fold, for the classes that its classifier knows."""
    if kind == "pairwise":
        return _fit_pairs(folds, classes, options)
    if kind == "softmax" and folds[0].scores.shape[1] > 1:
        return [_fit_softmax(fold) for fold in folds]
    return _fit_columns(folds, classes, options)


def _fit_columns(
    folds: list[Fold], classes: NDArray[Any], options: Options
) -> list[OneVsRestCalibrator]:
    """One sigmoid for each column of each fold, padded with weight 0."""
    columns, rows = max(x.scores.shape[1] for x in folds), max(len(x.scores) for x in folds)
    if rows < len(folds) * columns:
        rows += 1  # a row of weight 0, lest `fit` mistake one row per class for one-hot labels
    shape = len(folds), columns, rows
    scores, labels, weights = np.zeros(shape), np.ones(shape, bool), np.zeros(shape)
    offset = None if folds[0].offset is None else np.zeros(shape)
    known, multilabel = [], folds[0].codes.ndim == 2
    for i, fold in enumerate(folds):
        n, columns = fold.scores.shape
        # With two classes, the only column belongs to the second.
        known.append(fold.seen[-columns:])
        scores[i, :columns, :n] = fold.scores.T
        labels[i, :columns, :n] = fold.codes.T if multilabel else fold.codes == known[i][:, None]
        weights[i, :columns, :n] = 1 if fold.weights is None else fold.weights.T
        if offset is not None:
            offset[i, 0, :n] = fold.offset
    given = None if (weights == 1).all() else weights
    each = fit(scores, labels, weights=given, offset=offset, options=options)
    # Rows of the first of two classes are of none of the classes of its one column.
    return [
        OneVsRestCalibrator.from_fit(
            classes[mine], _part(each, (i, slice(len(mine)))), multilabel or len(mine) == 1
        )
        for i, mine in enumerate(known)
    ]


def _fit_softmax(fold: Fold) -> TemperatureCalibrator:
    column = np.searchsorted(fold.seen, fold.codes)
    known = np.isin(fold.codes, fold.seen)
    weights = fold.weights
    if weights is not None and weights.ndim == 2:
        weights = weights.min(axis=1)
    return fit_temperature(fold.scores, np.where(known, column, -1), weights)


def _fit_pairs(
    folds: list[Fold], classes: NDArray[Any], options: Options
) -> list[PairwiseCalibrator]:
    """One sigmoid for each pair of classes of each fold, from the rows of the two."""
    scores, labels, problems, weights = [], [], [], []
    numbers: list[NDArray[np.intp]] = []  # problem numbers of each fold
    for fold in folds:
        first = numbers[-1][-1] + 1 if numbers else 0
        i, j = np.triu_indices(len(fold.seen), 1)
        numbers.append(first + np.arange(len(i)))
        # A row of weight 0 for every pair, so that pairs without rows get a fit.
        scores.append(np.zeros(len(i)))
        labels.append(np.zeros(len(i), bool))
        problems.append(numbers[-1])
        weights.append(np.zeros(len(i)))
        mine = np.where(np.isin(fold.codes, fold.seen), np.searchsorted(fold.seen, fold.codes), -1)
        rows, pairs = np.nonzero((mine[:, None] == i) | (mine[:, None] == j))
        scores.append(fold.scores[rows, pairs])
        labels.append(mine[rows] == i[pairs])
        problems.append(first + pairs)
        if fold.weights is None:
            weights.append(np.ones(len(rows)))
        else:
            weights.append(np.broadcast_to(fold.weights.T, fold.scores.T.shape)[pairs, rows])
    joined = (np.concatenate(x) for x in (scores, labels, problems))
    each = fit_segments(*joined, weights=np.concatenate(weights), options=options).fit
    return [
        PairwiseCalibrator(classes[fold.seen], _part(each, mine))
        for fold, mine in zip(folds, numbers, strict=True)
    ]


def _part(each: Fit, where: Any) -> Fit:
    return jax.tree.map(lambda x: x[where], each)
