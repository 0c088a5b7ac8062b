"""A replacement for scikit-learn's CalibratedClassifierCV, which also chooses among methods."""

from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import LeaveOneOut
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from platt_jax.arrays import Floats
from platt_jax.columns import Column, takes_columns
from platt_jax.inference.choose_curve import first_as_good, loss_sums
from platt_jax.options import Options
from platt_jax.results.tables import Table
from platt_jax.sklearn.base import CalibratedBase, offset_of_rows
from platt_jax.sklearn.folds import (
    CalibrationFold,
    TrainingRows,
    class_probabilities,
    cross_fit,
    fit_folds,
    join,
    options_of,
    score,
)
from platt_jax.sklearn.member import CalibratedMember
from platt_jax.sklearn.scores import RESPONSE_METHODS, Kind, ResponseMethod, Scorer

Method: TypeAlias = Literal[
    "sigmoid", "quadratic", "beta", "isotonic", "venn_abers", "temperature", "auto"
]
_PARTS = 5  # of the rows, which are held out in turn to choose a method


class PlattCalibratedClassifier(CalibratedBase):
    """A classifier with calibrated probabilities, all folds and classes in one batched fit.

    Parameters, `fit` and predictions are as in `sklearn.calibration.CalibratedClassifierCV`, and
    the probabilities are the same up to the error of scikit-learn's optimizer, with one exception:
    if the base classifier has only `predict_proba`, scikit-learn up to 1.9 fits a sigmoid to the
    probabilities, this class to their log-odds, which suit a sigmoid, as scikit-learn will (its
    pull request #34313). `logits` is the switch. Further differences: groups can be given to `fit`
    without metadata routing, a class may have any number of rows, and multilabel targets are
    accepted.

    Args:
        estimator: the classifier; None means LinearSVC(random_state=0). Wrap a fitted one in
            `sklearn.frozen.FrozenEstimator`: it is not fitted again, and all rows given to `fit`
            calibrate it.
        method: the curve from scores to probabilities, one for each class against the rest, or for
            the second of two, and then normalised. "sigmoid" is Platt scaling. "quadratic" has
            another parameter. "beta" is beta calibration of log-odds. "isotonic" is the isotonic
            regression of scikit-learn, which takes probabilities as they are for scores;
            "venn_abers" merges two of them for each prediction, and never says 0 or 1.
            "temperature" has one parameter for all classes (without Platt's targets), and for
            multilabel one for each label. "auto" chooses among these but isotonic regression by
            the log loss of held-out rows: the first, in this order, that is worse than the best
            by at most one standard error. Venn-Abers predictors are left out if there is an
            offset, and temperature but for several classes.
        cv: cross-validation: None (5 folds), an integer, a splitter, or pairs of indices.
        n_jobs: number of processors for the fits of the base classifiers.
        ensemble: True keeps the classifier of each fold, with a calibrator from its held-out rows,
            and averages their probabilities. False fits one calibrator to the held-out scores of
            all rows, and the classifier again to all rows. "auto" is True, but False for a
            FrozenEstimator.
        multiclass: "ovr", one sigmoid per class against the rest, normalised; or "coupling", one
            per pair of classes, coupled as in LIBSVM (Wu, Lin & Weng 2004), for SVC and NuSVC.
        response_method: source of the scores: "decision_function", or log-odds of "predict_proba"
            or "predict_log_proba". Probabilities are at least 1e-12. "auto" is the raw margin for
            LightGBM, XGBoost and CatBoost, also at the end of a pipeline; for other classifiers
            decision_function, or predict_proba without one.
        logits: whether method="sigmoid" and "quadratic" take log-odds of probabilities for scores.
            False fits the probabilities themselves, as scikit-learn up to 1.9 does.
        options: a `platt_jax.Options` for the curves, or None for the default.

    Attributes:
        classes_: (C,) class labels, ascending; 0 ... L-1 for multilabel.
        method_: the method, which "auto" has chosen.
        calibrated_classifiers_: a CalibratedMember for each fold, or a single one, with .estimator,
            .calibrator, and .calibrators as scikit-learn has them: a regressor for each curve, with
            `a_` and `b_` of a sigmoid, or `beta_` of a temperature.
        calibrators_: the calibrators of these: OneVsRestCalibrator (with two classes, one curve
            for the second), TemperatureCalibrator for the temperature of more than two classes, or
            PairwiseCalibrator for coupling.
        n_features_in_: number of features, if the base classifier has it.
        feature_names_in_: names of features, if the base classifier has them.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.svm import LinearSVC
        >>> X, y = load_iris(return_X_y=True)
        >>> model = PlattCalibratedClassifier(LinearSVC()).fit(X, y)
        >>> model.predict_proba(X[:2]).shape, len(model.calibrators_), len(model.table()["A"])
        ((2, 3), 5, 15)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: Method = "sigmoid",
        cv: Any = None,
        n_jobs: int | None = None,
        ensemble: bool | Literal["auto"] = "auto",
        multiclass: Literal["ovr", "coupling"] = "ovr",
        response_method: ResponseMethod = "auto",
        logits: bool = True,
        options: Options | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.n_jobs = n_jobs
        self.ensemble = ensemble
        self.multiclass = multiclass
        self.response_method = response_method
        self.logits = logits
        self.options = options

    @takes_columns
    def fit(
        self,
        X: Any,
        y: Column,
        sample_weight: Column = None,
        *,
        groups: Column = None,
        offset: Column = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the base classifier, unless it is frozen, and its calibrators.

        Args:
            X: (N, F), or any input of the base classifier.
            y: (N,) class labels; or (N, L) of 0 and 1 for multilabel.
            sample_weight: (N,) counts of rows >= 0, for the calibration and for the base
                classifier, with a warning if that does not accept them.
            groups: (N,) groups for a splitter such as GroupKFold.
            offset: (N,) log-odds of the second of two classes that are added to each row's curve,
                as in `platt_jax.fit`; for the calibration only, with multiclass="ovr".
            **fit_params: for `fit` of the base classifier; routed if metadata routing is enabled.

        Returns:
            self.

        Raises:
            ValueError: a parameter or argument is not as above.
        """
        self._check_parameters()
        options_of(self.method, self.options)  # checks them
        ensemble = not self._is_frozen() if self.ensemble == "auto" else self.ensemble
        if ensemble and isinstance(self.cv, LeaveOneOut):
            raise ValueError(
                "cv=LeaveOneOut(): expected folds of several rows, since each calibrates a "
                "classifier; or take ensemble=False"
            )
        if offset is not None and self.multiclass == "coupling":
            raise ValueError(
                'offset: expected None with multiclass="coupling", whose pairs have no log-odds of '
                "their own to add it to"
            )
        to_fit, to_split = self._routed(sample_weight, groups, fit_params)
        rows = self._rows(X, y, sample_weight, offset)
        scorer_of = {method: self._scorer(rows, method) for method in self._methods(rows)}
        scorers = list(dict.fromkeys(scorer_of.values()))
        estimators, scored = self._scored(rows, scorers, ensemble, to_fit, to_split)
        by_scorer = dict(zip(scorers, scored, strict=True))
        candidates = [_Candidate(x, scorer, by_scorer[scorer]) for x, scorer in scorer_of.items()]
        self.method_ = _choose_method(candidates, rows.classes, self.options)
        scorer = scorer_of[self.method_]
        folds = by_scorer[scorer]
        calibrators = fit_folds(folds, rows.classes, scorer, self.method_, self.options)
        self.classes_ = rows.classes
        self.calibrated_classifiers_ = [
            CalibratedMember(fitted, calibrator, scorer, fold.seen, rows.classes, self.method_)
            for fitted, calibrator, fold in zip(estimators, calibrators, folds, strict=True)
        ]
        self._copy_feature_names(estimators[0])
        return self

    @property
    def calibrators_(self) -> list[Any]:
        """The calibrators of `calibrated_classifiers_`."""
        return [member.calibrator for member in self.calibrated_classifiers_]

    def table(self) -> Table:
        """One line per fit, as in `Fit.table`, after the number of its ensemble member."""
        check_is_fitted(self)
        tables = [calibrator.table() for calibrator in self.calibrators_]
        number = np.repeat(np.arange(len(tables)), [len(x["status"]) for x in tables])
        columns = {name: np.concatenate([x[name] for x in tables]) for name in tables[0]}
        return Table(member=number, **columns)

    def shift_prior(self, from_rate: Column, to_rate: Column) -> Self:
        """A copy for rows with other rates of the classes, as after undersampling.

        Each class's own probability is shifted, as by `platt_jax.OneVsRestCalibrator.shift_prior`.

        Args:
            from_rate: with two classes the share of the second among the fitted rows; with more
                (C,), the share of each in the order of `classes_`, or one number.
            to_rate: the shares where the classifier will be used, in the same way.

        Raises:
            ValueError: a rate is not between 0 and 1, or there is not one rate per class; or the
                calibrators are not sigmoids of classes, but the temperature of more than two
                classes, or pairs.
        """
        check_is_fitted(self)
        for name, rate in (("from_rate", from_rate), ("to_rate", to_rate)):
            if np.shape(rate) not in ((), self.classes_.shape):
                raise ValueError(
                    f"{name}: expected a number, or one for each of {len(self.classes_)} classes, "
                    f"got shape {np.shape(rate)}"
                )
        shifted = copy(self)
        shifted.calibrated_classifiers_ = [
            member.shift_prior(from_rate, to_rate) for member in self.calibrated_classifiers_
        ]
        return shifted

    @takes_columns
    def predict_proba(self, X: Any, *, offset: Column = None) -> NDArray[np.float64]:
        """Calibrated probabilities (N, C) for rows X (N, F); (N, L) of separate labels.

        `offset` is as in `fit`, for two classes.
        """
        check_is_fitted(self)
        scorer = self.calibrated_classifiers_[0].scorer
        has_log_odds = scorer.binary and scorer.kind in ("one-vs-rest", "softmax")
        if offset is not None and not has_log_odds:
            raise ValueError('offset: expected None but for two classes and multiclass="ovr"')
        offset = offset_of_rows(offset, X)
        probas = [member.predict_proba(X, offset) for member in self.calibrated_classifiers_]
        return np.mean(probas, axis=0)

    def predict(self, X: Any, *, offset: Column = None) -> NDArray[Any]:
        """The most probable class (N,) for rows X (N, F); or (N, L) of labels with P > 1/2.

        The class may differ from the base classifier's. `offset` is as in `fit`.
        """
        proba = self.predict_proba(X, offset=offset)
        if self.calibrated_classifiers_[0].scorer.kind == "multilabel":
            return (proba > 0.5).astype(int)
        likeliest: NDArray[np.intp] = proba.argmax(axis=1)
        return self.classes_[likeliest]

    def _scored(
        self,
        rows: TrainingRows,
        scorers: list[Scorer],
        ensemble: bool,
        to_fit: dict[str, Any],
        to_split: dict[str, Any],
    ) -> tuple[list[Any], list[list[CalibrationFold]]]:
        """The fitted classifiers, and for each scorer the folds that calibrate them."""
        estimator = self._base_estimator()
        if self._is_frozen():
            splits = self._splits(rows, to_split) if ensemble else [(None, slice(None))]
            tests = [test for _, test in splits]
            scored = [score(estimator, rows, scorer) for scorer in scorers]
            return [estimator] * len(tests), [[x.some(test) for test in tests] for x in scored]
        splits = list(self._splits(rows, to_split))
        parts = cross_fit(estimator, rows, splits, scorers, to_fit, self.n_jobs)
        folds = [list(x) for x in zip(*(part_folds for _, part_folds in parts), strict=True)]
        if ensemble:
            return [fitted for fitted, _ in parts], folds
        pairs = zip(folds, scorers, strict=True)
        joined = [[join(x, len(rows.classes), scorer)] for x, scorer in pairs]
        return [clone(estimator).fit(rows.X, rows.y, **to_fit)], joined

    def _methods(self, rows: TrainingRows) -> list[str]:
        """The methods to choose from, the preferred one first."""
        if self.method != "auto":
            return [self.method]
        methods = ["sigmoid", "quadratic", "beta"]
        if rows.offset is None:
            methods.append("venn_abers")
        if len(rows.classes) > 2 and rows.codes.ndim == 1:
            methods.append("temperature")
        return methods

    def _scorer(self, rows: TrainingRows, method: str) -> Scorer:
        multilabel, binary = rows.codes.ndim == 2, len(rows.classes) == 2
        kind: Kind = "softmax" if method == "temperature" else "one-vs-rest"
        if multilabel:
            kind = "multilabel"
        elif self.multiclass == "coupling":
            kind = "pairwise"
        raw = method == "isotonic" or (method in ("sigmoid", "quadratic") and not self.logits)
        return Scorer(self.response_method, kind, binary, raw)

    def _check_parameters(self) -> None:
        choices = {
            "method": get_args(Method),
            "logits": (True, False),
            "ensemble": (True, False, "auto"),
            "multiclass": ("ovr", "coupling"),
            "response_method": RESPONSE_METHODS,
        }
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                raise ValueError(f"{name}: expected one of {allowed}, got {value!r}")
        if self.multiclass == "coupling" and self.method != "sigmoid":
            raise ValueError(
                'multiclass="coupling": expected method="sigmoid", which pairs of classes are '
                f"calibrated by, got {self.method!r}"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inside = get_tags(self._base_estimator()).classifier_tags
        tags.classifier_tags.multi_label = inside is not None and inside.multi_label
        return tags


# --- the choice among methods ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Candidate:
    """A method, and the folds with the scores that it is fitted to."""

    method: str
    scorer: Scorer
    folds: list[CalibrationFold]


def _choose_method(
    candidates: list[_Candidate], classes: NDArray[Any], options: Options | None
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
    index, _, _ = first_as_good(loss_sums(group, weights, losses), mass)
    return candidates[index].method


def _held_out_losses(
    candidate: _Candidate, classes: NDArray[Any], options: Options | None
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
    weights = np.ones(len(fold.codes)) if fold.row_weights is None else fold.row_weights
    return weights if fold.codes.ndim == 2 else weights * fold.known


def _log_loss(proba: Floats, codes: NDArray[Any]) -> Floats:
    """The log loss of rows, summed over the labels for multilabel."""
    if codes.ndim == 2:
        true_proba = np.where(codes, proba, 1 - proba)
    else:
        true_proba = np.take_along_axis(proba, codes[:, None], axis=1)
    with np.errstate(divide="ignore"):
        return -np.log(np.nan_to_num(true_proba)).sum(axis=1)
