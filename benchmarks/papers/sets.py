"""The papers' public data: .npz files of a folder, or OpenML through scikit-learn.

A file holds X (rows, columns), or the CSR arrays indptr and indices of a matrix of zeros and ones,
and y: 1 and 0 for the classes, or the class number where there are more than two.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.datasets import fetch_openml
from sklearn.preprocessing import OneHotEncoder

# The name and version there, and the label of class 1 (None: labels are class numbers).
_OPENML = {
    "sonar": ("sonar", 1, "Mine"),
    "shuttle": ("shuttle", 1, None),
    "ionosphere": ("ionosphere", 1, "g"),
    "diabetes": ("diabetes", 1, "tested_positive"),
    "liver": ("liver-disorders", 1, "2"),
    "promoters": ("molecular-biology_promoters", 1, "+"),
    "mushroom": ("mushroom", 1, "p"),
    "optdigits": ("optdigits", 1, None),
    "covtype_sample": ("covertype", 3, None),
    "a9a": ("a9a", 1, "1"),
    "w8a": ("w8a", 1, "1"),
}
# The class of this set is what UCI calls selector; OpenML's default is the number of drinks.
_TARGETS = {"liver": "selector"}


def read(folder: Path | None, name: str) -> dict[str, np.ndarray] | None:
    """The arrays of a file, or None where there is no such file."""
    path = folder and folder / f"{name}.npz"
    if path is None or not path.exists():
        return None
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def features(folder: Path | None, name: str) -> tuple[np.ndarray | csr_array, np.ndarray]:
    """X and y of a set, from its file or else from OpenML."""
    found = read(folder, name)
    if found is None:
        return _from_openml(name)
    if "X" in found:
        return found["X"].astype(np.float64), found["y"]
    ones = np.ones(len(found["indices"]))
    return csr_array((ones, found["indices"].astype(np.int32), found["indptr"])), found["y"]


def _from_openml(name: str) -> tuple[np.ndarray | csr_array, np.ndarray]:
    there, version, positive = _OPENML[name]
    # This parser needs no pandas, and says which values a column is declared to have.
    found = fetch_openml(
        there,
        version=version,
        target_column=_TARGETS.get(name, "default-target"),
        as_frame=False,
        parser="liac-arff",
    )
    y = _numbers(found.target) if positive is None else _matches(found.target, positive)
    if issparse(found.data):
        return csr_array(found.data), y
    return _one_hot(found.data, found.feature_names, found.categories or {}), y


def _numbers(target: np.ndarray) -> np.ndarray:
    return target.astype(np.float64).astype(np.int64)


def _matches(target: np.ndarray, positive: str) -> np.ndarray:
    """Whether labels are the positive one, numbers by their value."""
    try:
        return (target.astype(np.float64) == float(positive)).astype(np.int8)
    except ValueError:
        return (target == positive).astype(np.int8)


def _one_hot(X: np.ndarray, names: list[str], categories: dict[str, list]) -> np.ndarray:
    """Numeric columns as they are, and a column for each value of the others."""
    nominal = np.array([name in categories for name in names])
    if not nominal.any():
        return X.astype(np.float64)
    each = OneHotEncoder(sparse_output=False).fit_transform(X[:, nominal].astype(str))
    return np.hstack([X[:, ~nominal].astype(np.float64), each])
