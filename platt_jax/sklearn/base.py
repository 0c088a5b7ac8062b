"""Common parts of the calibrated classifiers: rows, parameters, tags and routing."""

import warnings
from collections.abc import Iterable
from inspect import signature
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
)

from platt_jax import validation
from platt_jax.columns import Column
from platt_jax.sklearn.folds import TrainingRows

_TARGETS = ("binary", "multiclass", "multilabel-indicator")


def offset_of_rows(offset: Column, X: Any) -> Any:
    """The offset of rows X, (N,) float64; None for None."""
    if offset is None:
        return None
    values = validation.numbers(offset, "offset").astype(np.float64)
    if values.shape != (rows := _num_samples(X),):
        raise ValueError(f"offset: expected one per row, ({rows},), got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("offset: expected finite numbers, got NaN or infinity")
    return values


# scikit-learn has no stubs, so its classes are Any to mypy.
class CalibratedBase(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A meta-estimator that fits a classifier and calibrates it."""

    # Groups are for the splitter, which requests them itself.
    __metadata_request__fit = {"groups": UNUSED}  # noqa: RUF012 - scikit-learn's protocol

    def _base_estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        if get_config()["enable_metadata_routing"]:
            default.set_fit_request(sample_weight=True)
        return default

    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    def _rows(
        self, X: Any, y: Column, sample_weight: Column, offset: Column = None
    ) -> TrainingRows:
        """The rows, checked to be of a classification; of two classes if with offset."""
        target = type_of_target(y, input_name="y")
        if target not in _TARGETS:
            raise ValueError(
                f"y: expected class labels, or columns of 0 and 1. Unknown label type: {target}"
            )
        X, y = indexable(X, y)
        if self._is_frozen():
            check_is_fitted(self.estimator)
        if target == "multilabel-indicator":
            codes = np.asarray(y.toarray() if hasattr(y, "toarray") else y) == 1
            classes = np.arange(codes.shape[1])
        else:
            labels = column_or_1d(y, warn=True)
            classes, codes = np.unique(labels, return_inverse=True)
            if self._is_frozen():  # it may know classes without a row here
                classes = np.union1d(classes, self.estimator.classes_)
                codes = np.searchsorted(classes, labels)
        weights = None
        if sample_weight is not None:
            checked = _check_sample_weight(sample_weight, X, dtype=np.float64)
            weights = validation.weights(checked, np.float64, "sample_weight")
        if offset is not None and (len(classes) > 2 or target == "multilabel-indicator"):
            raise ValueError(
                "offset: expected None but for two classes, whose log-odds it is added to; for "
                "more see fit_one_vs_rest"
            )
        return TrainingRows(X, y, classes, codes, weights, offset_of_rows(offset, X))

    def _routed(
        self, sample_weight: Column, groups: Column, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments for `fit` of the base classifier, and for `split` of the splitter."""
        estimator = self._base_estimator()
        split_params = {} if groups is None else {"groups": groups}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(
                self, "fit", sample_weight=sample_weight, **split_params, **fit_params
            )
            return routed.estimator.fit, routed.splitter.split
        if sample_weight is not None and not self._is_frozen():
            if "sample_weight" in signature(estimator.fit).parameters:
                fit_params = {**fit_params, "sample_weight": sample_weight}
            else:
                warnings.warn(
                    f"sample_weight: fit of {type(estimator).__name__} takes none, so only the "
                    "calibration is weighted",
                    stacklevel=4,
                )
        return fit_params, split_params

    def _splits(
        self, rows: TrainingRows, split_params: dict[str, Any]
    ) -> Iterable[tuple[Any, Any]]:
        if isinstance(self.cv, str):
            raise ValueError(
                f"cv: expected a number of folds or a splitter, got {self.cv!r}; for a classifier "
                "that is fitted pass estimator=FrozenEstimator(classifier), of sklearn.frozen"
            )
        splitter = check_cv(self.cv, rows.y, classifier=True)
        return splitter.split(rows.X, rows.y, **split_params)

    def _copy_feature_names(self, fitted: Any) -> None:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def get_metadata_routing(self) -> MetadataRouter:
        """The routing of metadata to the base classifier's `fit` and the splitter's `split`."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self._base_estimator(), method_mapping=to_fit)
            .add(splitter=self.cv, method_mapping=to_split)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inside = get_tags(self._base_estimator()).input_tags
        tags.input_tags.sparse = inside.sparse
        tags.input_tags.allow_nan = inside.allow_nan
        return tags
