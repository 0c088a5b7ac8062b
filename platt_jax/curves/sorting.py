"""Curves computed from sorted scores: isotonic regression, bins and Venn-Abers predictors."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.backend import xla
from platt_jax.backend.threads import run_concurrently, run_programs
from platt_jax.curves.base import SortedRows, SortingCurve
from platt_jax.groups import Groups
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.ragged_curves import CornerCurves, StepCurves, VennAbersCurves

_ENDS = "low", "high"


@dataclass(frozen=True)
class Isotonic(SortingCurve):
    """The non-decreasing function of the score with the least weighted sum of squares.

    Zadrozny & Elkan (2002, "Transforming classifier scores into accurate multiclass probability
    estimates"). Rows of equal score are pooled first. The curve is linear between the scores of the
    fit, as scikit-learn's, and constant beyond them. One class: 0 or 1. Constant scores: the share
    of class 1.

    Attributes:
        centered: whether each plateau is one point, at its mean score (Oron & Flournoy 2017). The
            curve then rises strictly between the outer points, so that it keeps the order of
            scores.

    Example:
        >>> from platt_jax import fit
        >>> fitted = fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], curve=Isotonic())
        >>> fitted.predict_proba([0.0, 1.5, 2.5, 3.5])
        array([0.  , 0.25, 0.5 , 0.75])
    """

    name: ClassVar[str] = "isotonic"

    centered: bool = False

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        blocks = _blocks(rows)
        starts, ends = blocks.starts, blocks.starts + blocks.sizes - 1
        owner = rows.groups.owner[starts]
        fitted = blocks.sums(rows.positive) / blocks.sums(rows.weights)
        if self.centered:
            middle = blocks.sums(rows.weights * rows.scores) / blocks.sums(rows.weights)
            first = np.isin(starts, rows.groups.starts)
            last = np.isin(ends, rows.groups.starts + rows.groups.sizes - 1)
            # Outer plateaus reach to the outer scores.
            points = [rows.scores[starts], middle, rows.scores[ends]]
            kept = np.stack([first, np.ones_like(first), last], 1)
            kept[:, 0] &= rows.scores[starts] < middle
            kept[:, 2] &= rows.scores[ends] > middle
        else:
            points = [rows.scores[starts], rows.scores[ends]]
            kept = np.stack([np.ones(len(starts), bool), ends > starts], 1)
        scores = np.stack(points, 1)[kept].astype(rows.scores.dtype)
        sizes = np.bincount(np.repeat(owner, kept.sum(1)), minlength=len(rows.groups.sizes))
        return CornerCurves(
            sizes=sizes,
            scores=scores,
            probabilities=np.repeat(fitted, kept.sum(1)).astype(rows.scores.dtype),
            **common,
        )


def _blocks(rows: SortedRows) -> Groups:
    """The plateaus of the isotonic fits of all problems."""
    # SciPy adds warning filters when imported, so importing this module must not import it.
    from scipy.optimize import isotonic_regression

    lost = np.isnan(rows.weights)
    weights, share = np.where(lost, 1, rows.weights), np.where(lost, 0, rows.positive)
    # Shares lie in [0, 1]. Problem k's are raised by 2 k, so that no plateau spans two problems,
    # and one call fits all.
    raised = share / weights + 2.0 * rows.groups.owner
    if not len(raised):
        return Groups(np.empty(0, int))
    return Groups(np.diff(isotonic_regression(raised, weights=weights).blocks))


@dataclass(frozen=True)
class Bins(SortingCurve):
    """The share of class 1 in bins of equal mass, or of equal width.

    Zadrozny & Elkan (2001, "Obtaining calibrated probability estimates from decision trees and
    naive Bayesian classifiers"). Rows of equal score share a bin; a bin without rows joins the one
    below. Two bins meet halfway between their nearest scores. Nothing is smoothed: a bin of one
    class predicts 0 or 1. Constant scores: the share of class 1.

    Attributes:
        n_bins: the number of bins of each problem.
        strategy: "quantile" for equal mass, "uniform" for equal width between the problem's outer
            scores.

    Example:
        >>> from platt_jax import fit
        >>> scores, labels = [0.0, 1.0, 2.0, 3.0, 4.0, 20.0], [0, 0, 1, 0, 1, 1]
        >>> fit(scores, labels, curve=Bins(2)).predict_proba([-5.0, 11.0]).round(2)
        array([0.33, 0.67])
        >>> fit(scores, labels, curve=Bins(2, "uniform")).predict_proba([-5.0, 13.0]).round(2)
        array([0.4, 1. ])
    """

    name: ClassVar[str] = "bins"

    n_bins: int = 10
    strategy: str = "quantile"

    def __post_init__(self) -> None:
        if not isinstance(self.n_bins, int) or self.n_bins < 1:
            raise ValueError(f"Bins(n_bins={self.n_bins!r}): expected an integer >= 1")
        if self.strategy not in ("quantile", "uniform"):
            raise ValueError(f'Bins(strategy={self.strategy!r}): expected "quantile" or "uniform"')

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        groups = rows.groups
        if self.strategy == "uniform":
            # Times a power of two, because the range times n_bins may overflow.
            low, high = (groups.by_row(np.ldexp(common[x].astype(float), -16)) for x in _ENDS)
            place, whole = np.ldexp(rows.scores.astype(float), -16) - low, high - low
        else:
            mass = np.cumsum(np.nan_to_num(rows.weights))
            before = np.append(0.0, mass)[groups.starts]
            place = mass - np.nan_to_num(rows.weights) / 2 - groups.by_row(before)
            whole = groups.by_row(mass[groups.starts + groups.sizes - 1] - before)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Multiplied first, so that a score on an edge is exactly there.
            place = np.nan_to_num(place * self.n_bins / whole)
        which = np.clip(place, 0, self.n_bins - 1).astype(np.int64)
        code = groups.owner * self.n_bins + which
        starts = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
        bins = Groups(np.diff(np.append(starts, len(code))))
        with np.errstate(invalid="ignore"):
            share = bins.sums(rows.positive) / bins.sums(rows.weights)
        owner = groups.owner[starts]
        first = np.append(True, owner[1:] != owner[:-1])
        # Between two bins: halfway between their nearest scores.
        edge = rows.scores[starts] / 2 + rows.scores[np.maximum(starts - 1, 0)] / 2
        # Each curve has a score more than edges, its first one, below which the first bin goes on.
        edge = np.where(first, rows.scores[starts], edge).astype(rows.scores.dtype)
        sizes = np.bincount(owner, minlength=len(groups.sizes))
        return StepCurves(
            sizes=sizes,
            scores=edge,
            probabilities=np.insert(share, np.flatnonzero(first), share[first]).astype(edge.dtype),
            **common,
        )


@dataclass(frozen=True)
class VennAbers(SortingCurve):
    """Inductive Venn-Abers predictors: two probabilities, one of which is calibrated.

    Vovk, Petej & Fedorova (2015, "Large-scale probabilistic predictors with and without guarantees
    of validity", section 4): the isotonic fit of the rows and the row that is predicted, with label
    0 and with label 1. The probability is their merge for log loss, p1 / (1 - p0 + p1).

    Example:
        >>> from platt_jax import fit
        >>> fitted = fit([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], curve=VennAbers())
        >>> fitted.predict_proba([0.0, 2.5, 5.0]).round(4)
        array([0.3333, 0.5   , 0.6667])
    """

    name: ClassVar[str] = "venn_abers"

    def fit_sorted(self, rows: SortedRows, common: dict[str, Any]) -> FittedCurves:
        """See `SortingCurve`."""
        lost = np.isnan(rows.weights)
        weights, positive = np.where(lost, 1, rows.weights), np.where(lost, 0, rows.positive)
        # Class 0 of mirrored scores takes the place of class 1.
        mirrored = Groups(rows.groups.sizes[::-1])
        q0, p1 = run_concurrently(
            lambda: _with_positive(mirrored, weights[::-1], (weights - positive)[::-1])[::-1],
            lambda: _with_positive(rows.groups, weights, positive),
        )
        nothing = Groups(rows.groups.sizes + 1).by_row(np.isnan(rows.scores[rows.groups.starts]))
        return VennAbersCurves(
            sizes=rows.groups.sizes,
            scores=rows.scores,
            p0=np.where(nothing, np.nan, 1 - q0).astype(rows.scores.dtype),
            p1=np.where(nothing, np.nan, p1).astype(rows.scores.dtype),
            **common,
        )


def _with_positive(groups: Groups, weights: Floats, positive: Floats) -> Floats:
    """The isotonic fit at another row of class 1, before each score of a problem and after all.

    Args:
        groups: the scores of each problem.
        weights: (M,) the weight of each score's rows.
        positive: (M,) the weight of its rows of class 1.

    Returns:
        (M + K,)
    """
    longest = 1 << int(groups.rows + len(groups.sizes) + 1).bit_length()
    points = np.zeros((2, longest))
    places = Groups(groups.sizes + 1)
    inner = np.ones(places.rows, bool)
    inner[places.starts] = False
    for column, x in zip(points, (weights, positive), strict=True):
        column[: places.rows][inner] = x
    # Sums from the first score of each problem on.
    sums = [np.cumsum(column[: places.rows]) for column in points]
    for column, total in zip(points, sums, strict=True):
        column[: places.rows] = total - places.by_row(total[places.starts])
    starts = np.full(1 << len(groups.sizes).bit_length(), places.rows, np.int64)
    starts[: len(groups.sizes)] = places.starts
    last = starts.copy()
    last[: len(groups.sizes)] += groups.sizes

    def run() -> NDArray[Any]:
        return np.asarray(_slopes(*points, starts, last, np.int64(len(groups.sizes))))

    return run_programs(run, x64=True)[: places.rows]


@xla.jit
def _slopes(
    weight: jax.Array, positive: jax.Array, starts: jax.Array, last: jax.Array, problems: jax.Array
) -> jax.Array:
    """The slope of the greatest convex minorant at another row of class 1, for each place of it.

    Points of a problem are (sum of weights, sum of positives) of its scores up to there. A row at
    place i moves the points from i on by (1, 1). The slope sought is the lower hull's
    across i. It is the tangent from a point before i to the moved ones; the point stays the same
    until one that is passed lies below the tangent (the algorithm 2 of Vovk et al. 2015).
    """

    @xla.single_call
    def run(
        weight: jax.Array,
        positive: jax.Array,
        starts: jax.Array,
        last: jax.Array,
        problems: jax.Array,
    ) -> jax.Array:
        def at(x: jax.Array, i: jax.Array) -> jax.Array:
            return lax.dynamic_index_in_dim(x, i, keepdims=False)

        def put(x: jax.Array, value: jax.Array, i: jax.Array) -> jax.Array:
            return lax.dynamic_update_index_in_dim(x, value, i, 0)

        def slope(i: jax.Array, j: jax.Array, moved: float) -> jax.Array:
            """From point i to point j, which is moved."""
            rise = at(positive, j) - at(positive, i) + moved
            return rise / (at(weight, j) - at(weight, i) + moved)

        def chain(k: jax.Array, after: jax.Array) -> jax.Array:
            """The next corner of the lower hull of the points from each one on."""
            end = at(last, k)

            def next_point(n: jax.Array, after: jax.Array) -> jax.Array:
                i = end - 1 - n

                def above(j: jax.Array) -> jax.Array:
                    onward = at(after, j)
                    return (j < end) & (slope(i, j, 0.0) >= slope(j, onward, 0.0))

                j = lax.while_loop(above, lambda j: at(after, j), i + 1)
                return put(after, j, i)

            return lax.fori_loop(0, end - at(starts, k), next_point, put(after, end, end))

        def tangents(k: jax.Array, both: tuple[jax.Array, jax.Array]) -> Any:
            after, made = both
            begin, end = at(starts, k), at(last, k)

            def tangent(i: jax.Array) -> jax.Array:
                """The least slope from point i to the moved points from i on."""

                def steeper(j: jax.Array) -> jax.Array:
                    return (j < end) & (slope(i, at(after, j), 1.0) < slope(i, j, 1.0))

                return slope(i, lax.while_loop(steeper, lambda j: at(after, j), i), 1.0)

            def next_place(i: jax.Array, state: Any) -> Any:
                made, origin, steepness = state
                line = at(positive, origin) + (at(weight, i) - at(weight, origin)) * steepness
                below = (i == begin) | (at(positive, i) < line)
                steepness = lax.cond(below, tangent, lambda i: steepness, i)
                return put(made, steepness, i), jnp.where(below, i, origin), steepness

            first = made, begin, jnp.zeros((), weight.dtype)
            made, _, _ = lax.fori_loop(begin, end + 1, next_place, first)
            return after, made

        def problem(k: jax.Array, both: tuple[jax.Array, jax.Array]) -> Any:
            after, made = both
            return tangents(k, (chain(k, after), made))

        start = jnp.zeros(weight.shape, starts.dtype), jnp.zeros_like(weight)
        return lax.fori_loop(0, problems, problem, start)[1]

    return run(weight, positive, starts, last, problems)
