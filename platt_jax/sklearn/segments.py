"""A classifier that is calibrated separately for each segment of the rows."""

import numbers
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from platt_jax import validation
from platt_jax.api import fit_segments
from platt_jax.columns import Column, takes_columns
from platt_jax.options import Options, Pooling
from platt_jax.results.tables import Table
from platt_jax.sklearn.base import CalibratedBase, offset_of_rows
from platt_jax.sklearn.folds import cross_fit, join, options_of, score
from platt_jax.sklearn.scores import RESPONSE_METHODS, ResponseMethod, Scorer


class SegmentCalibratedClassifier(CalibratedBase):
    """A classifier of two classes, calibrated by segment (country, advertiser, aircraft).

    One base classifier serves all segments. Its scores for held-out rows, from cross-validation,
    are calibrated with one sigmoid per segment by `platt_jax.fit_segments`. Then it is fitted again
    to all rows. Segments that are not in `fit` get the calibration of all rows pooled, or with
    pooling="partial" the population's, or with "nested" or "crossed" what is known of their levels.

    Args:
        estimator: the classifier, as in PlattCalibratedClassifier; wrap a fitted one in a
            FrozenEstimator, and all rows given to `fit` calibrate it.
        segments: the column of X with the segments: its name in a DataFrame, or its position; or a
            list of these, whose values together identify the segment.
        passthrough: whether the base classifier gets the segment columns, too. The default is
            False: ids are rarely useful features, and text cannot be one.
        pooling: "none", "partial" or "complete", or with a list of segments "nested" (from the
            first of these to the last) or "crossed", as in `platt_jax.fit_segments`.
        cv: as in PlattCalibratedClassifier.
        n_jobs: as in PlattCalibratedClassifier.
        response_method: as in PlattCalibratedClassifier.
        options: as in PlattCalibratedClassifier.

    Attributes:
        classes_: (2,) class labels, ascending.
        estimator_: the base classifier, fitted to all rows.
        calibrator_: the `platt_jax.SegmentCalibrator`, with keys, fits, fallback and shrinkage.
        n_features_in_: number of columns of X, including columns of segments.
        feature_names_in_: names of these columns, if X has them.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> X = np.column_stack([rng.normal(size=(300, 2)), rng.integers(0, 3, 300)])
        >>> y = X[:, 0] + rng.normal(size=300) > 0
        >>> model = SegmentCalibratedClassifier(LogisticRegression(), segments=2).fit(X, y)
        >>> model.predict_proba(X).shape, model.calibrator_.keys
        ((300, 2), array([0., 1., 2.]))
    """

    def __init__(
        self,
        estimator: Any = None,
        segments: Any = None,
        *,
        passthrough: bool = False,
        pooling: Pooling = "none",
        cv: Any = None,
        n_jobs: int | None = None,
        response_method: ResponseMethod = "auto",
        options: Options | None = None,
    ) -> None:
        self.estimator = estimator
        self.segments = segments
        self.passthrough = passthrough
        self.pooling = pooling
        self.cv = cv
        self.n_jobs = n_jobs
        self.response_method = response_method
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
        """Fit the base classifier, unless it is frozen, and the calibrator.

        Args:
            X: (N, F) with the segment columns: a DataFrame, an array or a list of rows.
            y: (N,) labels of two classes.
            sample_weight: as in PlattCalibratedClassifier.
            groups: as in PlattCalibratedClassifier.
            offset: (N,) log-odds of the second class that are added to each row's curve, as in
                `platt_jax.fit_segments`; for the calibration only.
            **fit_params: as in PlattCalibratedClassifier.

        Returns:
            self.

        Raises:
            ValueError: a parameter or argument is not as above.
        """
        validation.require_one_of(self.response_method, RESPONSE_METHODS, "response_method")
        options = options_of("sigmoid", self.options)
        validation.pooling(self.pooling, None, None, options)
        X = self._checked(X, reset=True)
        estimator = self._base_estimator()
        to_fit, to_split = self._routed(sample_weight, groups, fit_params)
        rows = self._rows(X, y, sample_weight, offset)
        if len(rows.classes) > 2 or rows.codes.ndim == 2:
            raise ValueError(
                "y: expected labels of two classes. Only binary classification is supported. The "
                f"type of the target is {type_of_target(y)}."
            )
        segments, inner = self._apart(X)
        rows = rows._replace(X=inner)
        scorer = Scorer(self.response_method, "one-vs-rest", binary=True)
        if self._is_frozen():
            self.estimator_ = estimator
            fold = score(estimator, rows, scorer)
        else:
            splits = self._splits(rows, to_split)
            parts = cross_fit(estimator, rows, splits, [scorer], to_fit, self.n_jobs)
            fold = join([part for _, (part,) in parts], len(rows.classes), scorer)
            self.estimator_ = clone(estimator).fit(rows.X, rows.y, **to_fit)
        self.classes_ = rows.classes
        self.calibrator_ = fit_segments(
            fold.scores[:, 0],
            fold.codes,
            _safe_indexing(segments, fold.row),
            weights=fold.weights,
            offset=fold.offset,
            pooling=self.pooling,
            options=options,
        )
        return self

    def table(self) -> Table:
        """One line per segment, as in `platt_jax.SegmentCalibrator.table`."""
        check_is_fitted(self)
        return self.calibrator_.table()

    def shift_prior(self, from_rate: Column, to_rate: Column) -> Self:
        """A copy for rows with another rate of the second class, as after undersampling.

        Args:
            from_rate: share of the second class among the fitted rows; a number, or (K,) in the
                order of `calibrator_.keys`, as in `platt_jax.SegmentCalibrator.shift_prior`.
            to_rate: share of the second class where the classifier will be used, in the same way.

        Raises:
            ValueError: a rate is not between 0 and 1, or there is not one rate per segment.
        """
        check_is_fitted(self)
        shifted = copy(self)
        shifted.calibrator_ = self.calibrator_.shift_prior(from_rate, to_rate)
        return shifted

    @takes_columns
    def predict_proba(self, X: Any, *, offset: Column = None) -> NDArray[np.float64]:
        """Calibrated probabilities (N, 2) for rows X (N, F), by their segments' sigmoids.

        `offset` is as in `fit`.
        """
        check_is_fitted(self)
        segments, inner = self._apart(self._checked(X, reset=False))
        scorer = Scorer(self.response_method, "one-vs-rest", binary=True)
        scores, offset = scorer(self.estimator_, inner)[:, 0], offset_of_rows(offset, X)
        p = self.calibrator_.predict_proba(scores, segments, offset=offset)
        return np.stack([1 - p, p], axis=1)

    def predict(self, X: Any, *, offset: Column = None) -> NDArray[Any]:
        """The more probable class (N,) for rows X (N, F); may differ from the base classifier's.

        `offset` is as in `fit`.
        """
        likelier: NDArray[np.intp] = self.predict_proba(X, offset=offset).argmax(axis=1)
        return self.classes_[likelier]

    def _checked(self, X: Any, reset: bool) -> Any:
        """X as an array or a DataFrame, with its number of columns checked."""
        if issparse(X):
            raise ValueError("X: expected an array or a DataFrame, got a sparse matrix")
        if not hasattr(X, "shape"):
            X = np.array(X, dtype=object)  # for columns of numbers beside columns of text
        if len(X.shape) != 2:
            raise ValueError(
                f"X: expected (N, F) with the columns of segments, got shape {X.shape}. Reshape "
                "your data"
            )
        validate_data(self, X, skip_check_array=True, reset=reset)
        return X

    def _apart(self, X: Any) -> tuple[Any, Any]:
        """The segments of the rows, and the columns for the base classifier."""
        several = isinstance(self.segments, list | tuple)
        fewest = (len(self.segments) if several else 1) + (not self.passthrough)
        if X.shape[1] < fewest:
            raise ValueError(
                f"X: found {X.shape[1]} feature(s) (shape={X.shape}) while a minimum of {fewest} "
                "is required: columns of segments, and features to learn from."
            )
        positions = [_position(X, x) for x in (self.segments if several else [self.segments])]
        ids = _safe_indexing(X, positions if several else positions[0], axis=1)
        if self.passthrough:
            return ids, X
        features = [i for i in range(X.shape[1]) if i not in positions]
        return ids, _safe_indexing(X, features, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = False
        return tags


def _position(X: Any, column: Any) -> int:
    """The position of a column, given by name or position."""
    if isinstance(column, str):
        names = list(getattr(X, "columns", ()))
        if column in names:
            return names.index(column)
        raise ValueError(f"segments: no column {column!r} in X; it has {names or 'no names'}")
    if isinstance(column, numbers.Integral) and -X.shape[1] <= column < X.shape[1]:
        return int(column) % X.shape[1]
    raise ValueError(
        "segments: expected the name of a column of X, or its position below "
        f"{X.shape[1]}, got {column!r}"
    )
