"""Influence of single rows on a fit, and the skewness it gives the parameters' distribution."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.execution.dense_rows import DenseRows, DeviceDenseRows
from platt_jax.execution.device_segments import DeviceGroupedRows
from platt_jax.execution.problems import TakeRows
from platt_jax.execution.replicates import TakeClusters
from platt_jax.execution.segment_rows import SegmentRows
from platt_jax.groups import Groups
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.fit import Fit
from platt_jax.results.probabilities import expit

# Maximum number of rows processed together.
_AT_ONCE = 1 << 17
_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Influence(ComparedByValue):
    """Moments of the influence of rows on (A, B) of each problem of a batch (...).

    Coordinates are the scores (f - center) / scale, in which A and B are independent. In them A is
    `scale` times as large, and B is minus the log-odds at the center.

    Attributes:
        center: (...) centers of the scores.
        scale: (...) scales of the scores.
        squares: (..., 3) sums over rows of a a, a b and b b, with (a, b) a row's influence on
            (A, B).
        cubes: (..., 4) sums over rows of a a a, a a b, a b b and b b b.
    """

    center: Floats
    scale: Floats
    squares: Floats
    cubes: Floats

    def some(self, which: slice) -> "Influence":
        """The moments of a slice of a flat batch."""
        return Influence(*(getattr(self, field.name)[which] for field in fields(self)))

    def by_row(self) -> "Influence":
        """The moments of a flat batch with shape (K, 1), for scores (K, N)."""
        return Influence(
            self.center.reshape(-1, 1),
            self.scale.reshape(-1, 1),
            self.squares.reshape(-1, 1, 3),
            self.cubes.reshape(-1, 1, 4),
        )

    def parameter_accelerations(self) -> Floats:
        """(..., 2) accelerations of A and of B."""
        with np.errstate(divide="ignore", invalid="ignore"):
            acceleration_A = self.cubes[..., 0] / (6 * self.squares[..., 0] ** 1.5)
        return np.stack([acceleration_A, -self.logit_accelerations(0)], -1)

    def logit_accelerations(self, scores: Any) -> Any:
        """Accelerations of the log-odds -(A f + B) at scores f that broadcast to (...)."""
        g = (scores - self.center) / self.scale
        (aa, ab, bb), (aaa, aab, abb, bbb) = (
            np.moveaxis(x, -1, 0) for x in (self.squares, self.cubes)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            square = (aa * g + 2 * ab) * g + bb
            return -(((aaa * g + 3 * aab) * g + 3 * abb) * g + bbb) / (6 * square**1.5)


def influence(
    fit: Fit,
    order: NDArray[Any],
    rows: SegmentRows | DenseRows | DeviceDenseRows,
    smooth: bool,
    clusters: TakeClusters | None,
) -> Influence:
    """Influence moments of a batch of problems, by the infinitesimal jackknife.

    The influence of a row is -w (t - p) H^-1 [f, 1]'; a cluster's is the sum over its rows. The
    acceleration of a BCa interval is sum(u^3) / (6 sum(u^2)^1.5), with u the influence of a row or
    cluster on the statistic (Efron 1987, equation 7.4). The dependence of Platt's targets, which
    are smooth, on the class counts is ignored. Problems (K,) are in the order of the rows.
    """
    batch = np.shape(fit.A)
    fit = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *np.shape(x)[len(batch) :])[order], fit)
    with np.errstate(all="ignore"):  # fits that are NaN, or have one class
        numbers = _fit_terms(fit, smooth)
        if isinstance(rows, DeviceGroupedRows):
            sums = rows.map(_sums_there, *numbers)
        else:
            sums = _sums(numbers, rows.sizes, rows.take, clusters)
    parts = numbers.center, numbers.scale, sums[:, :3], sums[:, 3:]
    placed = [np.empty_like(x) for x in parts]
    for into, x in zip(placed, parts, strict=True):
        into[order] = x
    return Influence(*(x.reshape(batch + x.shape[1:]) for x in placed))


class _FitTerms(NamedTuple):
    """What the influence of a row depends on, of K problems; or of the problem of each row."""

    A: Any
    B: Any
    center: Any
    scale: Any
    # Variances in the coordinates of `Influence`, in which the Hessian is diagonal.
    variance_A: Any
    variance_B: Any
    high: Any  # targets
    low: Any


def _fit_terms(fit: Fit, smooth: bool) -> _FitTerms:
    A, B, covariance, hessian = (
        np.asarray(x, np.float64) for x in (fit.A, fit.B, fit.covariance, fit.hessian)
    )
    h_BB, spread = hessian[:, 1, 1], covariance[:, 0, 0]
    center, scale = hessian[:, 0, 1] / h_BB, 1 / np.sqrt(spread * h_BB)
    center, scale = (
        np.where(np.isfinite(x), x, default) for x, default in ((center, 0.0), (scale, 1.0))
    )
    variances = scale**2 * spread, np.where(h_BB == 0, 0, 1 / h_BB)
    n_pos, n_neg = (np.asarray(x, np.float64) for x in (fit.n_pos, fit.n_neg))
    high, low = (n_pos + smooth) / (n_pos + 2 * smooth), smooth / (n_neg + 2 * smooth)
    return _FitTerms(A, B, center, scale, *variances, high, low)


def _influences(rows: Columns, inside: Any, numbers: _FitTerms, xp: Any) -> tuple[Any, Any]:
    """The influences of rows on A and on B; 0 for rows that do not count."""
    f, w = rows.scores.astype(np.float64), 1.0
    counts = inside & xp.isfinite(f)
    if rows.weights is not None:
        w = rows.weights.astype(np.float64)
        counts &= xp.isfinite(w) & (w != 0)
    f = xp.where(counts, f, 0)
    z = numbers.A * f + numbers.B
    if rows.offset is not None:
        counts &= xp.isfinite(rows.offset)
        z -= xp.where(counts, rows.offset, 0)
    targets = xp.where(rows.labels > 0, numbers.high, numbers.low)
    off = xp.where(counts, w * (expit(-z) - targets), 0)
    g = (xp.where(counts, f, 0) - numbers.center) / numbers.scale
    return off * g * numbers.variance_A, off * numbers.variance_B


def _products(a: Any, b: Any) -> tuple[Any, ...]:
    return a * a, a * b, b * b, a * a * a, a * a * b, a * b * b, b * b * b


def _sums_there(rows: Columns, inside: jax.Array, *numbers: jax.Array) -> jax.Array:
    """(k, 7) sums of the products, of rows on a device."""
    products = _products(*_influences(rows, inside, _FitTerms(*numbers), jnp))
    return jnp.stack([jnp.sum(x, -1) for x in products], -1)


def _sums(
    numbers: _FitTerms, sizes: NDArray[Any], take: TakeRows, clusters: TakeClusters | None
) -> Floats:
    """(K, 7) sums of the products."""
    moments = np.zeros((7, len(sizes)))
    for problems, part in _pieces(sizes, whole=clusters is not None):
        size = sizes[problems] if part == _ALL else np.array([part.stop - part.start])
        k = np.repeat(np.arange(problems.start, problems.stop), size)
        rows = take(problems, part, packing.Space(len(k)))
        rows = jax.tree.map(itemgetter(slice(len(k))), rows)
        a, b = _influences(rows, np.True_, _FitTerms(*(x[k] for x in numbers)), np)
        if clusters is not None:
            pair = k.astype(np.uint64) << np.uint64(32) | clusters(problems, part)
            pairs, pair_index = np.unique(pair, return_inverse=True)
            k = (pairs >> np.uint64(32)).astype(np.intp)
            a, b = (np.bincount(pair_index, x) for x in (a, b))
        for moment, x in zip(moments, _products(a, b), strict=True):
            moment[problems] += np.bincount(k - problems.start, x, len(sizes[problems]))
    return moments.T


def _pieces(sizes: NDArray[Any], whole: bool) -> Iterator[tuple[slice, slice]]:
    """Slices of problems and of their rows; a large problem is split unless `whole`."""
    for problems in Groups(sizes).slices(_AT_ONCE):
        size = int(sizes[problems.start])
        if size <= _AT_ONCE or whole:
            yield problems, _ALL
        else:
            for row in range(0, size, _AT_ONCE):
                yield problems, slice(row, min(row + _AT_ONCE, size))
