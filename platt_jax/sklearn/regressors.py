"""The curve of one column of scores with the interface of scikit-learn's calibrators."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from platt_jax.columns import Column
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
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
        beta_: the inverse temperature of method="temperature"; of two classes with a decision
            function f that of the logits (-f, f), as in scikit-learn.
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
            both: NDArray[np.float64] = self.calibrator.predict_proba(scores)
            return both
        by_class, name = self.calibrator.by_class, self.calibrator.classes[self.column]
        return by_class.predict_proba(np.ravel(scores), name)
