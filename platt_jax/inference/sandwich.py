"""The sandwich covariance of (A, B), and the sums over rows that it depends on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats
from platt_jax.inference.optimum import FittedParameters, LossAtFit, matrices
from platt_jax.passes.columns import Columns
from platt_jax.results.probabilities import expit


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
    g_A: Floats  # (K,) the gradient there
    g_B: Floats
    m_AA: Floats  # (K,) the gradient's covariance there, the M of the sandwich
    m_AB: Floats
    m_BB: Floats

    def loss(self) -> LossAtFit:
        """The loss of the rows, whose scores are within [-1, 1] in its coordinates."""
        hessian = matrices(self.h_AA, 0, 0, self.h_BB)
        rows = self.n_pos + self.n_neg
        return LossAtFit(
            self.center,
            self.scale,
            np.stack([self.g_A, self.g_B], -1),
            hessian,
            np.stack([rows, rows], -1),
        )


def sandwich(problems: FittedParameters, sums: SandwichSums) -> Floats:
    """(K, 2, 2) sandwich covariance of (A, B)."""
    with np.errstate(all="ignore"):  # fits that are NaN, and problems without rows
        loss = sums.loss().with_prior(problems)
        inverse = loss.inverse(problems.free)
        # As a product of a root with itself, no rounding makes it negative: two rows may be fitted
        # exactly, and all of it is rounding then.
        root_AA = np.sqrt(sums.m_AA)
        ratio = sums.m_AB / np.where(root_AA > 0, root_AA, 1)
        pivot = np.sqrt(np.maximum(sums.m_BB - ratio * ratio, 0))
        root = loss.to_original() @ inverse @ matrices(root_AA, 0, ratio, pivot)
        # Where a parameter is held, the product above leaves rounding.
        root = np.where(problems.free[..., None], root, 0)
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
        high, low = platts_targets(n_pos, n_neg, smooth)
        slope = np.where(y, high[problem], low[problem]) - p
        meat = _meat(rows._replace(f=g), slope, number)
        gradient = total(w * slope * g), total(w * slope)
    return SandwichSums(n_pos, n_neg, center, scale, h_AA, h_BB, *gradient, *meat)


def platts_targets(n_pos: Any, n_neg: Any, smooth: Any) -> tuple[Any, Any]:
    """The targets of labels 1 and 0: Platt's if `smooth`, else the labels."""
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
    entries: list[Any] = [
        np.bincount(owner, weight * x, number) for x in (by_A * by_A, by_A * by_B, by_B * by_B)
    ]
    return entries


def sums_there(
    rows: Columns, inside: jax.Array, A: jax.Array, B: jax.Array, smooth: jax.Array
) -> jax.Array:
    """(k, 11) the fields of `SandwichSums`, of rows on a device."""
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
    high, low = platts_targets(n_pos, n_neg, smooth)
    slope = jnp.where(y, high, low) - p
    ones = jnp.ones_like(g)
    gradient = [total(w * slope * x) for x in (g, ones)]
    meat = [total(w * slope * slope * x) for x in (g * g, g, ones)]
    fields = n_pos, n_neg, center, scale, total(curvature * g * g), h_BB, *gradient, *meat
    return jnp.concatenate(fields, -1)
