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
from platt_jax.columns import Column
from platt_jax.options import Options, require_honoured
from platt_jax.population.fitting import inner_fits
from platt_jax.results.fit import Fit
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.sklearn.coupling import PairwiseCalibrator
from platt_jax.sklearn.scores import Scorer
from platt_jax.sklearn.temperature import TemperatureCalibrator, fit_temperature

# The score of rows of weight 0: scores that all lie in [0, 1] would be warned of.
_NO_PROBABILITY = 2.0


class TrainingRows(NamedTuple):
    """Rows for fitting and calibration."""

    X: Any
    y: Any
    classes: NDArray[Any]
    codes: NDArray[Any]  # as in CalibrationFold
    weights: NDArray[np.float64] | None  # weights in the calibration
    offset: NDArray[np.float64] | None = None  # (N,) offset in the calibration

    def some(self, which: Any) -> "TrainingRows":
        """The rows `which`."""
        X, y = (_safe_indexing(x, which) for x in (self.X, self.y))
        weights, offset = (None if x is None else x[which] for x in (self.weights, self.offset))
        return TrainingRows(X, y, self.classes, self.codes[which], weights, offset)


class CalibrationFold(NamedTuple):
    """Rows held out from the fit of one classifier, with its scores."""

    scores: NDArray[np.float64]  # (n, M) output of a Scorer
    codes: NDArray[Any]  # (n,) class numbers; or (n, L) bool for multilabel
    weights: NDArray[np.float64] | None  # (n,), or (n, M) where they differ between columns
    seen: NDArray[np.intp]  # (C,) numbers of the classes that the classifier knows, ascending
    row: NDArray[np.intp]  # (n,) which of all rows it is: some are held out more than once
    offset: NDArray[np.float64] | None = None  # (n,), with two classes only

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n,) whether the classifier knows the row's class."""
        return np.isin(self.codes, self.seen)

    @property
    def row_weights(self) -> NDArray[np.float64] | None:
        """(n,), 0 where a column has none of the row."""
        weights = self.weights
        return weights.min(axis=1) if weights is not None and weights.ndim == 2 else weights

    def some(self, which: Any) -> "CalibrationFold":
        """The rows `which`."""
        weights, offset = (None if x is None else x[which] for x in (self.weights, self.offset))
        scores, codes, row = (x[which] for x in (self.scores, self.codes, self.row))
        return CalibrationFold(scores, codes, weights, self.seen, row, offset)


def score(
    estimator: Any, rows: TrainingRows, scorer: Scorer, which: Any = slice(None)
) -> CalibrationFold:
    """The scores of a fitted classifier for the rows `which`."""
    subset = rows.some(which)
    seen, row = _seen(estimator, subset), np.arange(len(rows.codes))[which]
    scores = scorer(estimator, subset.X)
    return CalibrationFold(scores, subset.codes, subset.weights, seen, row, subset.offset)


def cross_fit(
    estimator: Any,
    rows: TrainingRows,
    splits: Iterable[tuple[Any, Any]],
    scorers: list[Scorer],
    fit_params: dict[str, Any],
    n_jobs: int | None,
) -> list[tuple[Any, list[CalibrationFold]]]:
    """Fit a clone of the classifier on each split, and score the held-out rows by each scorer."""
    return Parallel(n_jobs=n_jobs)(
        delayed(_fit_and_score)(clone(estimator), rows, train, test, scorers, fit_params)
        for train, test in splits
    )


def _fit_and_score(
    estimator: Any,
    rows: TrainingRows,
    train: Any,
    test: Any,
    scorers: list[Scorer],
    fit_params: dict[str, Any],
) -> tuple[Any, list[CalibrationFold]]:
    train_rows = rows.some(train)
    params = _check_method_params(rows.X, params=fit_params, indices=train)
    estimator.fit(train_rows.X, train_rows.y, **params)
    return estimator, [score(estimator, rows, scorer, test) for scorer in scorers]


def _seen(estimator: Any, rows: TrainingRows) -> NDArray[np.intp]:
    if rows.codes.ndim == 2:
        return np.arange(rows.codes.shape[1])
    if len(estimator.classes_) < 2:
        raise ValueError(
            "y: expected rows of two classes or more wherever the estimator is fitted, got only "
            f"class {estimator.classes_.tolist()[0]!r}"
        )
    return np.searchsorted(rows.classes, estimator.classes_)


def join(folds: list[CalibrationFold], classes: int, scorer: Scorer) -> CalibrationFold:
    """The rows of all folds, as rows of one classifier that knows all classes.

    What is held out m times, as by a RepeatedKFold, weighs 1 / m each time: it is one row.
    """
    joined = _concatenated(folds, classes, scorer)
    times = np.bincount(joined.row)[joined.row].astype(float)
    if (times == 1).all():
        return joined
    base = joined.weights
    weights = 1 / times if base is None else base / times.reshape(-1, *(1,) * (base.ndim - 1))
    return joined._replace(weights=weights)


def _concatenated(folds: list[CalibrationFold], classes: int, scorer: Scorer) -> CalibrationFold:
    all_classes = np.arange(classes)
    codes, row = (np.concatenate(x) for x in zip(*((x.codes, x.row) for x in folds), strict=True))
    if all(len(x.seen) == classes for x in folds):
        scores = np.concatenate([x.scores for x in folds])
        weights = None if folds[0].weights is None else np.concatenate([x.weights for x in folds])
        offset = None if folds[0].offset is None else np.concatenate([x.offset for x in folds])
        return CalibrationFold(scores, codes, weights, all_classes, row, offset)
    # Where the classifier of a fold lacks a class, the fold's rows have weight 0 in its columns.
    shape = len(codes), len(scorer.columns_of(all_classes, classes))
    scores, weights = np.zeros(shape), np.zeros(shape)
    start = 0
    for fold in folds:
        fold_rows = np.arange(start, start + len(fold.codes))
        part = np.ix_(fold_rows, scorer.columns_of(fold.seen, classes))
        scores[part] = fold.scores
        weights[part] = 1 if fold.weights is None else fold.weights[:, None]
        start += len(fold.codes)
    return CalibrationFold(scores, codes, weights, all_classes, row)


def options_of(method: str, options: Options | None) -> Options:
    """Options of the fits; temperature scaling of two classes is a sigmoid, too."""
    options = Options() if options is None else validation.options(options)
    if method != "temperature":
        return options
    return replace(options, intercept=False, targets="none", monotone=True)


def fit_folds(
    folds: list[CalibrationFold],
    classes: NDArray[Any],
    scorer: Scorer,
    method: str,
    options: Options | None,
) -> list[Any]:
    """A calibrator for each fold, for the classes that its classifier knows.

    The method is PlattCalibratedClassifier's, other than "auto". The scorer computed the scores.
    """
    options = options_of(method, options)
    if scorer.kind == "pairwise":
        return _fit_pairs(folds, classes, options)
    if scorer.kind == "softmax" and folds[0].scores.shape[1] > 1:
        # A temperature is >= 0, and has no intercept.
        valid = require_honoured(replace(options, monotone=False, intercept=True), "fit_multiclass")
        return [_fit_softmax(fold, valid) for fold in folds]
    if method not in ("sigmoid", "temperature"):
        return _fit_curves(folds, classes, scorer.raw, method, options)
    return _fit_columns(folds, classes, scorer.raw, options)


def class_probabilities(
    calibrator: Any, scores: NDArray[Any], seen: NDArray[np.intp], classes: int, offset: Column
) -> NDArray[np.float64]:
    """Probabilities (N, C) of all classes by a calibrator of `fit_folds`, for scores (N, M).

    The offset is of the second of two classes. `seen` is as in CalibrationFold.
    """
    proba = np.zeros((len(scores), classes))
    if scores.shape[1] == 1 < len(seen) and isinstance(calibrator, OneVsRestCalibrator):
        column = None if offset is None else np.asarray(offset)[:, None]
        (p,) = calibrator.predict_proba(scores, offset=column).T
        proba[:, seen] = np.stack([1 - p, p], axis=1)
    else:
        proba[:, seen] = calibrator.predict_proba(scores)
    return proba


def _fit_columns(
    folds: list[CalibrationFold], classes: NDArray[Any], raw: bool, options: Options
) -> list[OneVsRestCalibrator]:
    """One sigmoid for each column of each fold, padded with weight 0."""
    columns, rows = max(x.scores.shape[1] for x in folds), max(len(x.scores) for x in folds)
    if raw or rows < len(folds) * columns:
        rows += 1  # a row of weight 0, lest `fit` mistake one row per class for one-hot labels
    shape = len(folds), columns, rows
    scores, labels, weights = np.zeros(shape), np.ones(shape, bool), np.zeros(shape)
    if raw:
        scores[..., -1] = _NO_PROBABILITY
    offset = None if folds[0].offset is None else np.zeros(shape)
    indices, multilabel = [], folds[0].codes.ndim == 2
    for i, fold in enumerate(folds):
        n, columns = fold.scores.shape
        # With two classes, the only column belongs to the second.
        indices.append(fold.seen[-columns:])
        scores[i, :columns, :n] = fold.scores.T
        labels[i, :columns, :n] = fold.codes.T if multilabel else fold.codes == indices[i][:, None]
        weights[i, :columns, :n] = 1 if fold.weights is None else fold.weights.T
        if offset is not None:
            offset[i, 0, :n] = fold.offset
    fit_weights = None if (weights == 1).all() else weights
    fits = fit(scores, labels, weights=fit_weights, offset=offset, options=options)
    # Rows of the first of two classes are of none of the classes of its one column.
    return [
        OneVsRestCalibrator.from_fit(
            classes[seen], _part(fits, (i, slice(len(seen)))), multilabel or len(seen) == 1, options
        )
        for i, seen in enumerate(indices)
    ]


def _fit_curves(
    folds: list[CalibrationFold], classes: NDArray[Any], raw: bool, curve: str, options: Options
) -> list[OneVsRestCalibrator]:
    """One curve of another kind for each column of each fold: the columns are segments."""
    scores, labels, ids, weights, offsets = [], [], [], [], []
    numbers: list[NDArray[np.intp]] = []  # segment numbers of each fold
    for fold in folds:
        n, columns = fold.scores.shape
        numbers.append(np.arange(columns) + (numbers[-1][-1] + 1 if numbers else 0))
        indices, multilabel = fold.seen[-columns:], fold.codes.ndim == 2
        row_weights = np.ones((n, 1)) if fold.weights is None else fold.weights.reshape(n, -1)
        row_weights = np.broadcast_to(row_weights, (n, columns))
        # Above each column a row of weight 0, so that every column is a segment.
        scores.append(_under(fold.scores, _NO_PROBABILITY if raw else 0.0))
        labels.append(_under(fold.codes if multilabel else fold.codes[:, None] == indices, False))
        ids.append(np.repeat(numbers[-1], n + 1))
        weights.append(_under(row_weights, 0.0))
        if fold.offset is not None:
            offsets.append(_under(fold.offset[:, None], 0.0))
    with inner_fits():
        calibrator = fit_segments(
            _by_column(scores),
            _by_column(labels),
            np.concatenate(ids),
            weights=_by_column(weights),
            offset=_by_column(offsets) if offsets else None,
            curve=curve,
            options=options,
        )
    assert calibrator.curves is not None
    calibrators = []
    for fold, fold_numbers in zip(folds, numbers, strict=True):
        names = classes[fold.seen[-len(fold_numbers) :]]
        own_curves = calibrator.curves.only(fold_numbers).with_unknown()  # no class is unseen
        columns = calibrator.only(np.isin(np.arange(len(calibrator)), fold_numbers))
        by_class = columns._replaced(keys=names, curves=own_curves)
        separate = fold.codes.ndim == 2 or len(fold_numbers) == 1
        calibrators.append(OneVsRestCalibrator(names, by_class, multilabel=separate))
    return calibrators


def _under(table: NDArray[Any], first: Any) -> NDArray[Any]:
    """A table with another row above."""
    return np.concatenate([np.full((1, table.shape[1]), first, table.dtype), table])


def _by_column(tables: list[NDArray[Any]]) -> NDArray[Any]:
    """The columns of tables, end to end."""
    return np.concatenate([table.T.ravel() for table in tables])


def _fit_softmax(fold: CalibrationFold, options: Options) -> TemperatureCalibrator:
    column = np.searchsorted(fold.seen, fold.codes)
    codes = np.where(fold.known, column, -1)
    return fit_temperature(fold.scores, codes, fold.row_weights, options)


def _fit_pairs(
    folds: list[CalibrationFold], classes: NDArray[Any], options: Options
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
        codes = np.where(np.isin(fold.codes, fold.seen), np.searchsorted(fold.seen, fold.codes), -1)
        rows, pairs = np.nonzero((codes[:, None] == i) | (codes[:, None] == j))
        scores.append(fold.scores[rows, pairs])
        labels.append(codes[rows] == i[pairs])
        problems.append(first + pairs)
        if fold.weights is None:
            weights.append(np.ones(len(rows)))
        else:
            weights.append(np.broadcast_to(fold.weights.T, fold.scores.T.shape)[pairs, rows])
    joined = (np.concatenate(x) for x in (scores, labels, problems))
    with inner_fits():
        fits = fit_segments(*joined, weights=np.concatenate(weights), options=options).fit
    return [
        PairwiseCalibrator(classes[fold.seen], _part(fits, fold_numbers))
        for fold, fold_numbers in zip(folds, numbers, strict=True)
    ]


def _part(each: Fit, where: Any) -> Fit:
    return jax.tree.map(lambda x: x[where], each)
