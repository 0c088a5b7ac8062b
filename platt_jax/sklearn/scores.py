"""Scores of fitted classifiers, on the scale of log-odds."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

Kind: TypeAlias = Literal["one-vs-rest", "softmax", "pairwise", "multilabel"]
ResponseMethod: TypeAlias = Literal[
    "auto", "decision_function", "predict_proba", "predict_log_proba"
]
RESPONSE_METHODS: tuple[ResponseMethod, ...] = get_args(ResponseMethod)

# scikit-learn's temperature scaling uses the same bound.
_SMALLEST_PROBA = 1e-12
_SMALLEST_LOG_PROBA = np.log(np.finfo(np.float64).tiny)

# Raw margins of gradient boosting libraries, before the link function, by package.
_MARGINS: dict[str, Callable[[Any, Any], Any]] = {
    "catboost": lambda model, X: model.predict(X, prediction_type="RawFormulaVal"),
    "lightgbm": lambda model, X: model.predict(X, raw_score=True),
    "xgboost": lambda model, X: model.predict(X, output_margin=True),
}


@dataclass(frozen=True)
class Scorer:
    """A function from a fitted classifier and rows to scores (N, M), float64.

    Attributes:
        response_method: one of RESPONSE_METHODS.
        kind: "one-vs-rest" has a column for each class, but with two classes only one, for the
            second; so has "softmax", whose columns are logits, or logarithms of probabilities;
            "pairwise" has a column for each pair of classes, which is higher for the first;
            "multilabel" has a column for each label.
        binary: whether there are two classes in all. If there are more, a classifier that was
            fitted on two of them has a column for each.
        raw: whether probabilities stay as they are, and float32 stays float32.
    """

    response_method: ResponseMethod
    kind: Kind
    binary: bool
    raw: bool = False

    def __call__(self, estimator: Any, X: Any) -> NDArray[np.float64]:
        """The scores."""
        if self.kind == "pairwise":
            return _columns(_pairwise(estimator, X))
        columns = _columns(self._response(estimator, X), self.raw)
        if columns.shape[1] == 1 and self.kind != "multilabel" and not self.binary:
            return np.hstack([-columns, columns])
        return columns

    def columns_of(self, seen: NDArray[np.intp], classes: int) -> NDArray[np.intp]:
        """The columns for the classes `seen`, among the columns for all classes."""
        if self.kind != "pairwise":
            return seen
        number = np.zeros((classes, classes), int)
        pairs = np.triu_indices(classes, 1)
        number[pairs] = np.arange(len(pairs[0]))
        i, j = np.triu_indices(len(seen), 1)
        return number[seen[i], seen[j]]

    def _response(self, estimator: Any, X: Any) -> Any:
        final, steps = _unwrapped(estimator)
        margin = _MARGINS.get(_library(final)) if self.response_method == "auto" else None
        if margin is not None:
            return margin(final, _transformed(steps, X))
        method = self.available(estimator)
        values = getattr(estimator, method)(X)
        if method == "decision_function":
            return values
        if self.raw:
            return self._probabilities(values, method)
        log_probas = _log if method == "predict_proba" else _finite
        if isinstance(values, list):  # multilabel forests and similar: two columns per label
            return np.column_stack([_log_odds(log_probas(x))[:, 1] for x in values])
        values = np.asarray(values, np.float64)
        if self.kind == "multilabel":
            absent = 1 - values if method == "predict_proba" else -np.expm1(values)
            return log_probas(values) - _log(absent)
        log_proba = log_probas(values)
        if self.kind == "softmax" and values.shape[1] > 2:
            return log_proba
        log_odds = _log_odds(log_proba)
        return log_odds[:, 1] if values.shape[1] == 2 else log_odds

    def _probabilities(self, values: Any, method: str) -> Any:
        by_label = isinstance(values, list)
        p = np.column_stack([x[:, 1] for x in values]) if by_label else np.asarray(values)
        if method == "predict_log_proba":
            p = np.exp(p)
        return p[:, 1] if self.binary and self.kind != "multilabel" else p

    def available(self, estimator: Any) -> str:
        """The method of the classifier that scores come from, unless they are raw margins."""
        auto = ("decision_function", "predict_proba")
        wanted = auto if self.response_method == "auto" else (self.response_method,)
        for method in wanted:
            if hasattr(estimator, method):
                return method
        raise ValueError(
            f"estimator: expected a classifier with {' or '.join(wanted)}, got {estimator!r}"
        )


def _columns(values: Any, raw: bool = False) -> NDArray[Any]:
    columns: NDArray[Any] = np.asarray(values)
    if not (raw and columns.dtype == np.float32):
        columns = columns.astype(np.float64, copy=False)
    return columns[:, None] if columns.ndim == 1 else columns


def _pairwise(estimator: Any, X: Any) -> Any:
    final, steps = _unwrapped(estimator)
    if not hasattr(final, "decision_function_shape"):
        raise ValueError(
            'multiclass="coupling": expected a classifier with a decision value for each pair of '
            f"classes, which SVC and NuSVC have, got {final!r}"
        )
    by_pair = copy(final)  # leaves the user's own unchanged
    by_pair.decision_function_shape = "ovo"
    values = by_pair.decision_function(_transformed(steps, X))
    # With two classes, the values are higher for the second.
    return values if values.ndim == 2 else -values


def _unwrapped(estimator: Any) -> tuple[Any, list[Any]]:
    """The classifier inside pipelines, searches and FrozenEstimator, and the steps before it."""
    steps: list[Any] = []
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif isinstance(estimator, Pipeline):
            steps += [step for _, step in estimator.steps[:-1] if hasattr(step, "transform")]
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator, steps


def _transformed(steps: list[Any], X: Any) -> Any:
    for step in steps:
        X = step.transform(X)
    return X


def _library(classifier: Any) -> str:
    """The boosting library of the classifier's class or of one of its bases; "" if none."""
    packages = (base.__module__.split(".")[0] for base in type(classifier).__mro__)
    return next((package for package in packages if package in _MARGINS), "")


def _log(proba: Any) -> NDArray[np.float64]:
    return np.log(np.maximum(np.asarray(proba, np.float64), _SMALLEST_PROBA))


def _finite(log_proba: Any) -> NDArray[np.float64]:
    return np.maximum(np.asarray(log_proba, np.float64), _SMALLEST_LOG_PROBA)


def _log_odds(log_proba: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log p - log(1 - p) of each class (N, C), also where 1 - p is below rounding."""
    if log_proba.shape[1] == 2:
        return log_proba - log_proba[:, ::-1]
    likeliest = np.zeros(log_proba.shape, bool)
    likeliest[np.arange(len(log_proba)), log_proba.argmax(axis=1)] = True
    log_others = np.logaddexp.reduce(np.where(likeliest, -np.inf, log_proba), axis=1)
    log_rest = np.log1p(-np.exp(np.where(likeliest, -np.inf, log_proba)))
    return log_proba - np.where(likeliest, log_others[:, None], log_rest)
