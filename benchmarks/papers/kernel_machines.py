"""Support vector machines and kernel logistic regression: what the papers calibrate or compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, hstack
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.svm import SVC

# Parameters are chosen on no more rows than these.
_ROWS_TO_CHOOSE_BY = 1_000
_JITTER = 1e-8


def svm(C: float, gamma: float | None) -> SVC:
    """A linear machine, or with gamma one with an RBF kernel."""
    kernel = {"kernel": "linear"} if gamma is None else {"kernel": "rbf", "gamma": gamma}
    return SVC(C=C, cache_size=500, **kernel)


def logistic(C: float, gamma: float | None) -> LogisticRegression | RBFLogisticRegression:
    """Kernel logistic regression: linear, or with gamma with an RBF kernel."""
    return _ridge(C) if gamma is None else RBFLogisticRegression(C, gamma)


def _ridge(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, solver="newton-cg", tol=1e-5, max_iter=1_000)


class RBFLogisticRegression(ClassifierMixin, BaseEstimator):
    """|w|^2 / 2 + C sum log(1 + exp(-y f)), exactly: linear in the coordinates of K = L L'."""

    def __init__(self, C: float, gamma: float):
        self.C = C
        self.gamma = gamma

    def fit(self, X, y):
        K = rbf_kernel(X, gamma=self.gamma)
        # Rows that occur twice make K singular.
        K.flat[:: len(K) + 1] += _JITTER
        L = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        linear = _ridge(self.C).fit(L, y)
        self.classes_ = linear.classes_
        self.rows_, self.intercept_ = X, linear.intercept_[0]
        self.alpha_ = solve_triangular(L, linear.coef_[0], lower=True, trans="T")
        return self

    def decision_function(self, X):
        return rbf_kernel(X, self.rows_, gamma=self.gamma) @ self.alpha_ + self.intercept_

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def choose(make: Callable, grid: Sequence[tuple], X: np.ndarray, y: np.ndarray) -> tuple:
    """The most accurate parameters in 3-fold cross-validation; of several, those of least loss.

    The loss is the machine's own, hinge or logistic.
    """
    rows = np.random.default_rng(0).permutation(len(y))[:_ROWS_TO_CHOOSE_BY]
    X, y = X[rows], y[rows]

    def merit(parameters):
        margin = np.where(y == 1, 1, -1) * held_out_scores(make(*parameters), X, y, thirds())
        loss = np.maximum(0, 1 - margin) if make is svm else np.logaddexp(0, -margin)
        return np.mean(margin > 0), -np.mean(loss)

    return max(grid, key=merit)


def held_out_scores(machine, X, y: np.ndarray, folds) -> np.ndarray:
    """Each row's decision value by a machine trained without its fold."""
    return cross_val_predict(machine, X, y, cv=folds, method="decision_function")


def thirds() -> StratifiedKFold:
    """Platt's three folds, for the rows that a scaling is fitted to."""
    return StratifiedKFold(3, shuffle=True, random_state=0)


def quadratic_features(X: csr_array, scale: float) -> csr_array:
    """Columns whose inner product is (x.x' / scale + 1)^2 - 1, for a matrix of zeros and ones.

    They make logistic regression with that kernel a linear one. The constant is the intercept's.
    """
    rows, first, second = _pairs(X)
    columns = X.shape[1]
    of_pair, code = np.unique(first * columns + second, return_inverse=True)
    values = np.full(len(rows), np.sqrt(2) / scale)
    pairs = csr_array((values, (rows, code)), shape=(X.shape[0], len(of_pair)))
    # x squared is x, so that the linear and the square part of the kernel are one column.
    return csr_array(hstack([X * np.sqrt(2 / scale + 1 / scale**2), pairs]))


def _pairs(X: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first and second column of all pairs of ones in a row, first < second."""
    X.sort_indices()
    sizes = np.diff(X.indptr)
    rows, first, second = [], [], []
    for size in np.unique(sizes):
        of_size = np.flatnonzero(sizes == size)
        columns = X.indices[X.indptr[of_size][:, None] + np.arange(size)].astype(np.int64)
        i, j = np.triu_indices(size, k=1)
        rows.append(np.repeat(of_size, len(i)))
        first.append(columns[:, i].ravel())
        second.append(columns[:, j].ravel())
    return np.concatenate(rows), np.concatenate(first), np.concatenate(second)


def regularized_likelihood(X, y: np.ndarray, grid: Sequence[float]) -> LogisticRegression:
    """L2-penalised logistic regression, C by the log score of a third held out as Platt did."""
    train, held_out = next(thirds().split(np.zeros(len(y)), y))

    def log_score(C):
        z = _sparse_ridge(C).fit(X[train], y[train]).decision_function(X[held_out])
        return np.logaddexp(0, np.where(y[held_out] == 1, -z, z)).mean()

    return _sparse_ridge(min(grid, key=log_score)).fit(X, y)


def _sparse_ridge(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=5_000)
