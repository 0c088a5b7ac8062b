"""Curves that someone else fitted, of which only numbers are known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.columns import Column, takes_columns
from platt_jax.ids.vocabulary import distinct
from platt_jax.results.fit import Fit
from platt_jax.status import Flag, Status


@takes_columns
def published_fits(
    segments: Column, A: Column, B: Column, covariance: Column, n_pos: Column, n_neg: Column
) -> tuple[NDArray[Any], Fit]:
    """The segments, ascending, and their fits; arguments as of `SegmentCalibrator.from_table`."""
    A = validation.floating(A, "A")
    validation.require_flat(A, "A")
    number, dtype = len(A), A.dtype
    numbers = {
        name: np.zeros(number) if x is None else validation.floating(x, name)
        for name, x in (("B", B), ("n_pos", n_pos), ("n_neg", n_neg))
    }
    for name, x in numbers.items():
        if x.shape != (number,):
            raise ValueError(f"{name}: expected one per curve, ({number},), got shape {x.shape}")
        if name != "B" and not (np.isfinite(x) & (x >= 0)).all():
            raise ValueError(f"{name}: expected finite numbers >= 0")
    positions, keys = distinct(ids.read_rows(segments, number))
    if len(keys) < number:
        raise ValueError(f"segments: expected distinct ids, got {number - len(keys)} again")
    eps = float(np.finfo(dtype).eps)
    matrices = _covariances(covariance, number, eps)
    finite = np.isfinite(A) & np.isfinite(numbers["B"])
    has_errors = finite & np.isfinite(matrices).all((1, 2))
    matrices[~has_errors] = np.nan
    # Without errors the curve is no information for later fits. An eigenvalue that rounding took to
    # 0 or below is known to be small, no more.
    values, vectors = np.linalg.eigh(np.where(has_errors[:, None, None], matrices, np.eye(2)))
    values = np.maximum(values, eps * values[:, 1:])
    hessian = (vectors / values[:, None]) @ vectors.swapaxes(1, 2)
    zeros = np.zeros(number, np.int32)
    columns = {
        "A": np.where(finite, A, np.nan),
        "B": np.where(finite, numbers["B"], np.nan),
        "status": np.where(finite, Status.CONVERGED, Status.NON_FINITE).astype(np.int32),
        "flags": np.where(finite & (A > 0), int(Flag.REVERSED), 0).astype(np.int32),
        "iterations": zeros,
        "passes": zeros,
        "nll": np.full(number, np.nan),
        "gradient": np.zeros((number, 2)),
        "hessian": np.where(has_errors[:, None, None], hessian, 0.0),
        "covariance": matrices,
        "n_pos": numbers["n_pos"],
        "n_neg": numbers["n_neg"],
    }
    order = np.argsort(positions)
    for name, x in columns.items():
        columns[name] = x[order].astype(x.dtype if x.dtype.kind == "i" else dtype)
    return keys, Fit(**columns)


def _covariances(covariance: Column, number: int, eps: float) -> NDArray[np.float64]:
    """(K, 2, 2), NaN where none is given; positive definite but for rounding."""
    if covariance is None:
        return np.full((number, 2, 2), np.nan)
    matrices = validation.numbers(covariance, "covariance").astype(np.float64)
    if matrices.shape != (number, 2, 2):
        raise ValueError(f"covariance: expected shape ({number}, 2, 2), got {matrices.shape}")
    usable = matrices[np.isfinite(matrices).all((1, 2))]
    low, high = np.linalg.eigvalsh(usable).T
    definite = (high > 0) & (low >= -8 * eps * high)
    errors = np.sqrt(np.abs(usable.diagonal(axis1=1, axis2=2)))
    symmetric = np.abs(usable[:, 0, 1] - usable[:, 1, 0]) <= 1e-5 * errors.prod(1)
    if not (definite & symmetric).all():
        raise ValueError("covariance: expected symmetric, positive definite matrices")
    return matrices
