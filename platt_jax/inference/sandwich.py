"""The sandwich covariance H^-1 M H^-1 of many problems, from sums over their rows."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.results.probabilities import expit

# Entries of matrices; a float is the entry of all matrices.
Entries: TypeAlias = NDArray[Any] | float


class FittedParameters(NamedTuple):
    """K fits, in float64."""

    A: Floats  # (K,)
    B: Floats  # (K,)
    held: Bools  # (K,), whether Options(monotone=True) holds the slope at 0
    precision: Floats  # (K, 2, 2) precision of the prior

    def some(self, which: slice) -> "FittedParameters":
        """The problems of a slice."""
        parts: Any = (x[which] for x in self)
        return FittedParameters(*parts)


class CountedRows(NamedTuple):
    """Rows with positive weight, of K problems, concatenated."""

    problem: NDArray[Any]  # (N,) integers
    f: Floats  # (N,)
    y: Bools  # (N,)
    w: Floats  # (N,)
    cluster: NDArray[Any] | None  # (N,) integers
    offset: Floats | None = None  # (N,)


def class_counts(rows: CountedRows, number: int) -> list[Floats]:
    """The weighted counts n_pos and n_neg, each (K,), with K given as `number`."""
    # NumPy's stubs declare integers even with weights.
    counts: list[Any] = [
        np.bincount(rows.problem, rows.w * is_one, number) for is_one in (rows.y, ~rows.y)
    ]
    return counts


def sandwich(problems: FittedParameters, rows: CountedRows, smooth: bool) -> Floats:
    """(K, 2, 2) sandwich covariance of (A, B), with Platt's targets if `smooth`, else labels."""
    number, (problem, f, y, w, _, offset) = len(problems.A), rows
    n_pos, n_neg = class_counts(rows, number)

    def total(x: Floats) -> Floats:
        summed: NDArray[Any] = np.bincount(problem, x, number)
        return summed

    with np.errstate(all="ignore"):  # fits that are NaN, and problems without rows
        z = problems.A[problem] * f + problems.B[problem]
        if offset is not None:
            z -= offset
        p, q = expit(-z), expit(z)
        curvature = w * p * q
        h_BB = total(curvature)
        # In coordinates g = (f - center) / scale the rows' Hessian is diagonal.
        center = total(w * f) / total(w)
        center += total(curvature * (f - center[problem])) / h_BB
        g = f - center[problem]
        scale = np.zeros(number)
        np.maximum.at(scale, problem, np.abs(g))
        scale[scale == 0] = 1
        g /= scale[problem]
        to_original = _matrices(1 / scale, 0, -center / scale, 1)  # maps (A', B') to (A, B)
        h_AA = total(curvature * g * g)
        hessian = _matrices(h_AA, 0, 0, h_BB) + to_original.mT @ problems.precision @ to_original
        inverse = _inverse(hessian, problems.held)

        high = (n_pos + smooth) / (n_pos + 2 * smooth)
        low = smooth / (n_neg + 2 * smooth)
        slope = np.where(y, high[problem], low[problem]) - p
        # As a product of a root with itself, no rounding makes it negative: two rows may be fitted
        # exactly, and all of it is rounding then.
        root = to_original @ inverse @ _meat_root(rows._replace(f=g), slope, number)
        return root @ root.mT


def _meat_root(rows: CountedRows, slope: Floats, number: int) -> Floats:
    """(K, 2, 2) Cholesky factors of the gradient's covariance, the M of the sandwich."""
    by_A: NDArray[Any]
    by_B: NDArray[Any]
    by_A, by_B = slope * rows.f, slope
    owner, weight = rows.problem, rows.w
    if rows.cluster is not None:
        codes = rows.cluster.max(initial=0) + 1
        pairs, pair = np.unique(rows.problem * codes + rows.cluster, return_inverse=True)
        by_A, by_B = (np.bincount(pair, rows.w * x, len(pairs)) for x in (by_A, by_B))
        owner = pairs // codes
        clusters = np.bincount(owner, minlength=number)
        weight = (clusters / (clusters - 1))[owner]
    m_AA, m_AB, m_BB = (
        np.bincount(owner, weight * x, number) for x in (by_A * by_A, by_A * by_B, by_B * by_B)
    )
    root_AA = np.sqrt(m_AA)
    ratio = m_AB / np.where(root_AA > 0, root_AA, 1)
    return _matrices(root_AA, 0, ratio, np.sqrt(np.maximum(m_BB - ratio * ratio, 0)))


def _inverse(hessian: Floats, held: Bools) -> Floats:
    """Inverses of (K, 2, 2) matrices: of the entry of B alone where A is held; NaN if singular."""
    h_AA, h_AB, h_BB = hessian[:, 0, 0], np.where(held, 0, hessian[:, 0, 1]), hessian[:, 1, 1]
    ratio = h_AB / h_BB
    pivot = h_AA - ratio * h_AB
    var_A = np.where(held, 0, 1 / np.where(pivot > 0, pivot, np.nan))
    return _matrices(var_A, -ratio * var_A, -ratio * var_A, 1 / h_BB + ratio * ratio * var_A)


def _matrices(a: Entries, b: Entries, c: Entries, d: Entries) -> Floats:
    return np.stack(np.broadcast_arrays(a, b, c, d), -1).reshape(-1, 2, 2)
