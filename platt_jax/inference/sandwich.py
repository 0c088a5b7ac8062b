"""The sandwich covariance of (A, B), and the sums over rows that it depends on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.passes.columns import Columns
from platt_jax.results.probabilities import expit


class FittedParameters(NamedTuple):
    """K fits, in float64."""

    A: Floats  # (K,)
    B: Floats  # (K,)
    held: Bools  # (K,), whether Options(monotone=True) holds the slope at 0
    precision: Floats  # (K, 2, 2) precision of the prior


class CountedRows(NamedTuple):
    """Rows with positive weight, of K problems, concatenated."""

    problem: NDArray[Any]  # (N,) integers
    f: Floats  # (N,)
    y: Bools  # (N,)
    w: Floats  # (N,)
    cluster: NDArray[Any] | None  # (N,) integers
    offset: Floats | None = None  # (N,)


class SandwichSums(NamedTuple):
    """What the sandwich depends on, of K problems."""

    n_pos: Floats  # (K,) weighted counts
    n_neg: Floats
    # (K,) In coordinates g = (f - center) / scale the rows' Hessian is diagonal.
    center: Floats
    scale: Floats
    h_AA: Floats  # (K,) the Hessian there
    h_BB: Floats
    m_AA: Floats  # (K,) the gradient's covariance there, the M of the sandwich
    m_AB: Floats
    m_BB: Floats


def sandwich(problems: FittedParameters, sums: SandwichSums) -> Floats:
    """(K, 2, 2) sandwich covariance of (A, B)."""
    center, scale = sums.center, sums.scale
    with np.errstate(all="ignore"):  # fits that are NaN, and problems without rows
        to_original = _matrices(1 / scale, 0, -center / scale, 1)  # maps (A', B') to (A, B)
        hessian = _matrices(sums.h_AA, 0, 0, sums.h_BB)
        hessian = hessian + to_original.mT @ problems.precision @ to_original
        inverse = _inverse(hessian, problems.held)
        # As a product of a root with itself, no rounding makes it negative: two rows may be fitted
        # exactly, and all of it is rounding then.
        root_AA = np.sqrt(sums.m_AA)
        ratio = sums.m_AB / np.where(root_AA > 0, root_AA, 1)
        rest = np.sqrt(np.maximum(sums.m_BB - ratio * ratio, 0))
        root = to_original @ inverse @ _matrices(root_AA, 0, ratio, rest)
        return root @ root.mT


def sandwich_sums(problems: FittedParameters, rows: CountedRows, smooth: bool) -> SandwichSums:
    """The sums over rows, with Platt's targets if `smooth`, else labels."""
    number, (problem, f, y, w, _, offset) = len(problems.A), rows

    def total(x: Floats) -> Floats:
        summed: NDArray[Any] = np.bincount(problem, x, number)
        return summed

    n_pos, n_neg = total(w * y), total(w * ~y)
    with np.errstate(all="ignore"):
        z = problems.A[problem] * f + problems.B[problem]
        if offset is not None:
            z -= offset
        p, q = expit(-z), expit(z)
        curvature = w * p * q
        h_BB = total(curvature)
        center = total(w * f) / total(w)
        center += total(curvature * (f - center[problem])) / h_BB
        g = f - center[problem]
        scale = np.zeros(number)
        np.maximum.at(scale, problem, np.abs(g))
        scale[scale == 0] = 1
        g /= scale[problem]
        h_AA = total(curvature * g * g)
        high, low = _targets(n_pos, n_neg, smooth)
        slope = np.where(y, high[problem], low[problem]) - p
        meat = _meat(rows._replace(f=g), slope, number)
    return SandwichSums(n_pos, n_neg, center, scale, h_AA, h_BB, *meat)


def _targets(n_pos: Any, n_neg: Any, smooth: Any) -> tuple[Any, Any]:
    return (n_pos + smooth) / (n_pos + 2 * smooth), smooth / (n_neg + 2 * smooth)


def _meat(rows: CountedRows, slope: Floats, number: int) -> list[Floats]:
    """(K,) the entries AA, AB and BB of the gradient's covariance."""
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
    found: list[Any] = [
        np.bincount(owner, weight * x, number) for x in (by_A * by_A, by_A * by_B, by_B * by_B)
    ]
    return found


def sums_there(
    rows: Columns, inside: jax.Array, A: jax.Array, B: jax.Array, smooth: jax.Array
) -> jax.Array:
    """(k, 9) the fields of `SandwichSums`, of rows on a device."""
    f, offset = rows.scores, 0.0 if rows.offset is None else rows.offset
    w = jnp.ones_like(f) if rows.weights is None else rows.weights
    counts = inside & (w > 0) & jnp.isfinite(w) & jnp.isfinite(f) & jnp.isfinite(offset)
    f, w, y = jnp.where(counts, f, 0), jnp.where(counts, w, 0), rows.labels > 0

    def total(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(counts, x, 0), -1, keepdims=True)

    n_pos, n_neg = total(jnp.where(y, w, 0)), total(jnp.where(y, 0, w))
    z = A * f + B - offset
    p, q = expit(-z), expit(z)
    curvature = w * p * q
    h_BB = total(curvature)
    center = total(w * f) / total(w)
    center += total(curvature * (f - center)) / h_BB
    g = jnp.where(counts, f - center, 0)
    scale = jnp.max(jnp.abs(g), -1, keepdims=True)
    scale = jnp.where(scale == 0, 1, scale)
    g /= scale
    high, low = _targets(n_pos, n_neg, smooth)
    slope = jnp.where(y, high, low) - p
    meat = [total(w * slope * slope * x) for x in (g * g, g, jnp.ones_like(g))]
    found = n_pos, n_neg, center, scale, total(curvature * g * g), h_BB, *meat
    return jnp.concatenate(found, -1)


def _inverse(hessian: Floats, held: Bools) -> Floats:
    """Inverses of (K, 2, 2) matrices: of the entry of B alone where A is held; NaN if singular."""
    h_AA, h_AB, h_BB = hessian[:, 0, 0], np.where(held, 0, hessian[:, 0, 1]), hessian[:, 1, 1]
    ratio = h_AB / h_BB
    pivot = h_AA - ratio * h_AB
    var_A = np.where(held, 0, 1 / np.where(pivot > 0, pivot, np.nan))
    return _matrices(var_A, -ratio * var_A, -ratio * var_A, 1 / h_BB + ratio * ratio * var_A)


def _matrices(a: Any, b: Any, c: Any, d: Any) -> Floats:
    """(K, 2, 2) matrices of these entries, (K,) or one for all."""
    return np.stack(np.broadcast_arrays(a, b, c, d), -1).reshape(-1, 2, 2)
