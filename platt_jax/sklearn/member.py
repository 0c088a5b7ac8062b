"""A fitted classifier with its calibrator, also as scikit-learn shows it."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from platt_jax.columns import Column
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.sklearn.folds import class_probabilities
from platt_jax.sklearn.scores import Scorer
from platt_jax.sklearn.temperature import TemperatureCalibrator


# scikit-learn has no stubs, so its classes are Any to mypy.
class ColumnRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted curve, like an entry of `calibrators` in scikit-learn's `CalibratedClassifierCV`.

    Args:
        calibrator: a OneVsRestCalibrator or a TemperatureCalibrator.
        column: the column of scores.
        method: of PlattCalibratedClassifier.
        from_decision: whether the scores are a decision function's.

    Attributes:
        a_, b_: the parameters of method="sigmoid".
        beta_: the inverse temperature of method="temperature"; for two classes with a decision
            function f it multiplies the logits (-f, f), as in scikit-learn.
    """

    def __init__(
        self, calibrator: Any, column: int = 0, method: str = "sigmoid", from_decision: bool = False
    ) -> None:
        self.calibrator = calibrator
        self.column = column
        self.method = method
        self.from_decision = from_decision
        if isinstance(calibrator, TemperatureCalibrator):
            self.beta_ = np.float64(calibrator.inverse_temperature)
        elif method == "temperature":
            self.beta_ = -calibrator.fit.A[column] / (2 if from_decision else 1)
        elif method == "sigmoid":
            self.a_, self.b_ = calibrator.fit.A[column], calibrator.fit.B[column]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Does nothing: the curve is fitted."""
        return self

    def predict(self, scores: Column) -> NDArray[np.float64]:
        """Probabilities for scores, before they are normalised.

        Args:
            scores: (N,) scores of the column; (N, C) logits for a TemperatureCalibrator.

        Returns:
            (N,); or (N, C).
        """
        if not isinstance(self.calibrator, OneVsRestCalibrator):
            proba: NDArray[np.float64] = self.calibrator.predict_proba(scores)
            return proba
        by_class, name = self.calibrator.by_class, self.calibrator.classes[self.column]
        return by_class.predict_proba(np.ravel(scores), name)


@dataclass(frozen=True)
class CalibratedMember:
    """A fitted classifier and its calibrator."""

    estimator: Any  # the classifier
    calibrator: Any  # OneVsRestCalibrator, TemperatureCalibrator or PairwiseCalibrator
    scorer: Scorer  # computes the classifier's scores
    seen: NDArray[np.intp]  # numbers of the classes that the classifier knows
    classes: NDArray[Any]  # all classes
    method: str  # how the calibrator was fitted, as in PlattCalibratedClassifier

    @property
    def calibrators(self) -> list[ColumnRegressor]:
        """A regressor for each curve, as in scikit-learn; none for pairs of classes."""
        calibrator = self.calibrator
        if self.scorer.kind == "pairwise":
            return []
        number = len(calibrator.classes) if isinstance(calibrator, OneVsRestCalibrator) else 1
        from_decision = self.scorer.available(self.estimator) == "decision_function"
        return [ColumnRegressor(calibrator, i, self.method, from_decision) for i in range(number)]

    def predict_proba(self, X: Any, offset: Column = None) -> NDArray[np.float64]:
        """Probabilities (N, C); 0 for classes that the classifier does not know."""
        scores = self.scorer(self.estimator, X)
        return class_probabilities(self.calibrator, scores, self.seen, len(self.classes), offset)

    def shift_prior(self, from_rate: Column, to_rate: Column) -> "CalibratedMember":
        """The member at other rates of the classes; see PlattCalibratedClassifier."""
        calibrator = self.calibrator
        if not isinstance(calibrator, OneVsRestCalibrator):
            raise ValueError(
                "shift_prior: expected calibrators with a sigmoid for each class, got a "
                f"{type(calibrator).__name__}"
            )
        columns = self.seen[-len(calibrator.classes) :]
        rates = (x if np.ndim(x) == 0 else np.asarray(x)[columns] for x in (from_rate, to_rate))
        return replace(self, calibrator=calibrator.shift_prior(*rates))
