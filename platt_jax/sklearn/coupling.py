"""Pairwise coupling: probabilities of classes from probabilities of pairs of classes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import validation
from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.results.fit import Fit, Inspectable
from platt_jax.results.probabilities import expit
from platt_jax.results.tables import counted
from platt_jax.status import Status

# Constants of LIBSVM's svm_predict_probability and multiclass_probability.
_SMALLEST = 1e-7
_TOL = 0.005
_MAX_ITERATIONS = 100  # or the number of classes, if it is larger

_ENTRIES_AT_ONCE = 1 << 18  # maximum number of matrix entries at a time, to stay in the cache


@dataclass(frozen=True, repr=False, eq=False)
class PairwiseCalibrator(Inspectable):
    """One sigmoid per pair of classes, with coupling to probabilities of the classes.

    Attributes:
        classes: (C,) class ids.
        fit: fits (C (C - 1) / 2,) of the pairs (0, 1), (0, 2), ... (1, 2), ..., each from the rows
            of its two classes, with y = 1 for the first.
    """

    classes: NDArray[Any]
    fit: Fit

    def predict_proba(self, scores: Column) -> NDArray[np.float64]:
        """Probabilities (N, C) for decision values (N, C (C - 1) / 2) of the pairs.

        A pair without any row predicts 1/2.
        """
        A, B = self.fit.A, self.fit.B
        pairwise = expit(-(A * scores + B))
        pairwise[:, self.fit.status == Status.EMPTY] = 0.5
        return couple(pairwise)

    def _inspected(self) -> tuple[Fit, str, NDArray[Any]]:
        i, j = np.triu_indices(len(self.classes), 1)
        kind = self.classes.dtype
        names = np.empty(len(i), [("class", kind), ("versus", kind)])
        names["class"], names["versus"] = self.classes[i], self.classes[j]
        return self.fit, "pair", names


def couple(pairwise: Column) -> NDArray[np.float64]:
    """Probabilities of classes from probabilities of their pairs, computed as in LIBSVM.

    This is the second method of Wu, Lin & Weng (2004, "Probability Estimates for Multi-class
    Classification by Pairwise Coupling", Algorithm 2), with LIBSVM's bounds on the pairs, 1e-7 and
    1 - 1e-7, and its tolerance, 0.005 / C. Results equal LIBSVM's rather than the exact optimum.

    Args:
        pairwise: (N, C (C - 1) / 2) estimates of P(i | i or j) for the pairs (0, 1), (0, 2), ...
            (1, 2), ... of classes i < j.

    Returns:
        (N, C), rows that sum to 1; NaN for rows with a NaN. A RuntimeWarning says if LIBSVM's
        number of iterations is not enough.

    Raises:
        ValueError: pairwise has no C (C - 1) / 2 columns for any C.

    Example:
        >>> couple([[0.5, 0.8, 0.8]]).round(2)
        array([[0.44, 0.44, 0.11]])
    """
    r = validation.floating(pairwise, "pairwise")
    pairs = r.shape[1] if r.ndim == 2 else 0
    C = (1 + round(np.sqrt(1 + 8 * pairs))) // 2
    if pairs == 0 or C * (C - 1) // 2 != pairs:
        raise ValueError(f"pairwise: expected shape (N, C (C - 1) / 2), got {r.shape}")
    r = np.clip(r.astype(np.float64), _SMALLEST, 1 - _SMALLEST)
    if C == 2:
        return np.hstack([r, 1 - r])
    pieces = np.array_split(r, max(1, len(r) * C * C // _ENTRIES_AT_ONCE))
    return np.concatenate([_couple(piece, C) for piece in pieces])


def _couple(r: NDArray[np.float64], C: int) -> NDArray[np.float64]:
    p = np.full((len(r), C), 1 / C)
    p[np.isnan(r).any(axis=1)] = np.nan
    open_ = np.flatnonzero(np.isfinite(p[:, 0]))
    Q = _quadratic(r[open_], C)
    for _ in range(max(_MAX_ITERATIONS, C)):
        proba = p[open_]
        Qp = np.einsum("nij,nj->ni", Q, proba)
        pQp = np.einsum("ni,ni->n", proba, Qp)
        keep = np.abs(Qp - pQp[:, None]).max(axis=1, initial=0) >= _TOL / C
        open_ = open_[keep]
        if not len(open_):
            break
        if not keep.all():
            Q, Qp, pQp, proba = Q[keep], Qp[keep], pQp[keep], proba[keep]
        for t in range(C):
            # Sets one coordinate to its optimum, and normalizes all.
            q = Q[:, t, t]
            change = (pQp - Qp[:, t]) / q
            pQp = (pQp + change * (change * q + 2 * Qp[:, t])) / (1 + change) ** 2
            proba[:, t] += change
            proba /= (1 + change)[:, None]
            Qp += change[:, None] * Q[:, t]
            Qp /= (1 + change)[:, None]
        p[open_] = proba
    else:
        Caller().warn(
            f"pairwise: the search for probabilities of {counted(len(open_), 'row')} did not "
            "converge: those of its last iteration are used"
        )
    return p


def _quadratic(r: NDArray[np.float64], C: int) -> NDArray[np.float64]:
    """The matrices of equation 19: Q_ii = sum of r_ji^2 over j, Q_ij = -r_ij r_ji."""
    i, j = np.triu_indices(C, 1)
    Q = np.zeros((len(r), C, C))
    Q[:, i, j] = Q[:, j, i] = -r * (1 - r)
    R = np.zeros((len(r), C, C))  # R_ij = P(i | i or j)
    R[:, i, j], R[:, j, i] = r, 1 - r
    Q[:, np.arange(C), np.arange(C)] = np.einsum("nji,nji->ni", R, R)
    return Q
