"""Curves computed from sorted scores: isotonic regression, bins and Venn-Abers predictors."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.backend import xla
from platt_jax.backend.threads import run_concurrently, run_programs
from platt_jax.curves.base import SortedRows, SortingCurve
from platt_jax.groups import ON_THE_EDGE, Groups
from platt_jax.passes import packing
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.ragged_curves import CornerCurves, StepCurves, VennAbersCurves
from platt_jax.status import Status

_ENDS = "low", "high"
# Problems whose isotonic fits are one call: the sums of the last one's raised weights are finite.
_SIDE_BY_SIDE = 400
# A share is above another one if it is by more than the rounding of the sums.
_SAME = 1 - 2.0**-44
# A weight has four digits left in a sum that is larger by this.
_MOST = 2.0**40


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
        blocks, fitted = _plateaus(rows)
        starts, ends = blocks.starts, blocks.starts + blocks.sizes - 1
        owner = rows.groups.owner[starts]
        if self.centered:
            # In units of each block's largest score, lest sums overflow.
            unit = np.frexp(blocks.maxima(np.abs(rows.scores)))[1]
            scaled = np.ldexp(rows.scores, -blocks.by_row(unit))
            middle = blocks.sums(rows.weights * scaled) / blocks.sums(rows.weights)
            middle = np.ldexp(middle, unit)
            first = np.isin(starts, rows.groups.starts)
            last = np.isin(ends, rows.groups.starts + rows.groups.sizes - 1)
            # Outer plateaus reach to the outer scores.
            points = [rows.scores[starts], middle, rows.scores[ends]]
            mask = np.stack([first, np.ones_like(first), last], 1)
            mask[:, 0] &= rows.scores[starts] < middle
            mask[:, 2] &= rows.scores[ends] > middle
        else:
            points = [rows.scores[starts], rows.scores[ends]]
            mask = np.stack([np.ones(len(starts), bool), ends > starts], 1)
        scores = np.stack(points, 1)[mask].astype(rows.scores.dtype)
        sizes = np.bincount(np.repeat(owner, mask.sum(1)), minlength=len(rows.groups.sizes))
        return CornerCurves(
            sizes=sizes,
            scores=scores,
            probabilities=np.repeat(fitted, mask.sum(1)).astype(rows.scores.dtype),
            **common,
        )


def _plateaus(rows: SortedRows) -> tuple[Groups, Floats]:
    """Those of the isotonic fits of all problems, and their shares, of which no two are equal."""
    # SciPy adds warning filters when imported, so importing this module must not import it.
    from scipy.optimize import isotonic_regression

    groups, new = rows.groups, np.zeros(rows.groups.rows, bool)
    new[groups.starts] = True
    weights, positive, lost = _without_lost(rows)
    starts = _run_starts(groups, positive / weights)
    runs, new = Groups(np.diff(starts, append=groups.rows)), new[starts]
    weights, positive = runs.sums(weights), runs.sums(positive)
    # Shares lie in [0, 1], and the values of a call's problem k in [4^k, 2 * 4^k], so that no
    # plateau spans two problems. Factors that are powers of two change no digit.
    firsts, problem = np.flatnonzero(new), np.cumsum(new) - 1
    values = (1 + positive / weights) * 4.0 ** (problem % _SIDE_BY_SIDE)
    calls = [slice(*ends) for ends in pairwise(np.append(firsts[::_SIDE_BY_SIDE], len(new)))]
    parts = [
        isotonic_regression(values[x], weights=weights[x]).blocks[:-1] + x.start for x in calls
    ]
    plateau_starts = np.concatenate([np.empty(0, np.int64), *parts])
    while True:
        plateaus = Groups(np.diff(plateau_starts, append=len(new)))
        share = plateaus.sums(positive) / plateaus.sums(weights)
        rises = (share[1:] * _SAME > share[:-1]) | new[plateau_starts[1:]]
        if rises.all():
            starts = starts[plateau_starts]
            blocks = Groups(np.diff(starts, append=groups.rows))
            return blocks, np.where(lost[starts], np.nan, share)
        plateau_starts = plateau_starts[np.append(True, rises)]


def _without_lost(rows: SortedRows) -> tuple[Floats, Floats, Bools]:
    """Weights and positives, with 1 and 0 for a problem without rows; and which are such."""
    lost = np.isnan(rows.weights)
    if not lost.any():
        return rows.weights, rows.positive, lost
    return np.where(lost, 1, rows.weights), np.where(lost, 0, rows.positive), lost


def _run_starts(groups: Groups, share: Floats) -> Ints:
    """The first rows of a problem's runs whose shares do not rise; each run is on one plateau."""
    rises = np.ones(groups.rows, bool)
    rises[1:] = share[1:] > share[:-1]
    rises[groups.starts] = True
    return np.flatnonzero(rises)


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
            position, extent = np.ldexp(rows.scores.astype(float), -16) - low, high - low
            rounding = np.finfo(rows.scores.dtype).eps * np.maximum(abs(low), abs(high))
        else:
            weights = np.nan_to_num(rows.weights)
            mass = groups.cumulated(weights)
            position = mass - weights / 2
            extent = groups.by_row(mass[groups.starts + groups.sizes - 1])
            rounding = np.zeros(())
        with np.errstate(divide="ignore", invalid="ignore"):
            # Multiplied first, so that a score on an edge is exactly there, but for its rounding.
            slack = np.fmax(ON_THE_EDGE, rounding * self.n_bins / extent)
            position = np.nan_to_num(position * self.n_bins / extent + slack)
        number = np.clip(position, 0, self.n_bins - 1).astype(np.int64)
        code = groups.owner * self.n_bins + number
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
        weights, positive, _ = _without_lost(rows)
        # Class 0 of mirrored scores takes the place of class 1.
        mirrored = Groups(rows.groups.sizes[::-1])
        q0, p1 = run_concurrently(
            lambda: _with_positive(mirrored, weights[::-1], (weights - positive)[::-1])[::-1],
            lambda: _with_positive(rows.groups, weights, positive),
        )
        # The row that is predicted has a weight of 1: what is far smaller does not matter.
        total, least = rows.groups.sums(weights), rows.groups.minima(weights)
        lost = (total > _MOST) & (least < total / _MOST)
        status = np.where(lost, Status.LINE_SEARCH_FAILED, common["status"]).astype(np.int32)
        common = common | {"status": status}
        nothing, bounds = lost | np.isnan(rows.scores[rows.groups.starts]), [1 - q0, p1]
        if nothing.any():
            nothing = Groups(rows.groups.sizes + 1).by_row(nothing)
            bounds = [np.where(nothing, np.nan, x) for x in bounds]
        p0, p1 = (x.astype(rows.scores.dtype, copy=False) for x in bounds)
        return VennAbersCurves(sizes=rows.groups.sizes, scores=rows.scores, p0=p0, p1=p1, **common)


def _with_positive(groups: Groups, weights: Floats, positive: Floats) -> Floats:
    """The isotonic fit at another row of class 1, before each score of a problem and after all.

    Args:
        groups: the scores of each problem.
        weights: (M,) the weight of each score's rows.
        positive: (M,) the weight of its rows of class 1.

    Returns:
        (M + K,)
    """
    starts = _run_starts(groups, positive / weights)
    runs, K = Groups(np.diff(starts, append=groups.rows)), len(groups.sizes)
    first = np.searchsorted(starts, groups.starts)
    corners = Groups(np.diff(first, append=len(starts)) + 1)
    sums = np.zeros((2, corners.rows))
    inner = np.ones(corners.rows, bool)
    inner[corners.starts] = False
    for line, x in zip(sums, (weights, positive), strict=True):
        line[inner] = runs.sums(x)
    sums = corners.cumulated(sums)
    position = np.zeros(corners.rows, np.int64)
    position[inner] = starts + runs.sizes
    position[corners.starts] = groups.starts
    rows, longest = _length(groups.rows + K), _length(corners.rows)
    columns = [packing.lengthen(x, rows) for x in (weights, positive)]
    columns += [packing.lengthen(x, longest) for x in (*sums, position)]
    ends = np.append(corners.starts, corners.rows)
    ends = np.append(ends, np.full(_length(K + 1) - K - 1, corners.rows))

    def run() -> NDArray[Any]:
        return np.asarray(_slopes(*columns, ends, np.int64(K)))

    return run_programs(run, x64=True)[: groups.rows + K]


def _length(number: int) -> int:
    """The next larger of two lengths an octave, so that few programs are compiled."""
    step = 1 << max(number.bit_length() - 2, 0)
    return -(-number // step) * step


@xla.single_call
def _slopes_of(
    weight: jax.Array,
    positive: jax.Array,
    corner_weight: jax.Array,
    corner_positive: jax.Array,
    place: jax.Array,
    corners: jax.Array,
    problems: jax.Array,
) -> jax.Array:
    """The slope of the greatest convex minorant at another row of class 1, for each place of it.

    Points of a problem are (sum of weights, sum of positives) of its scores up to there. A row at
    place i moves the points from i on by (1, 1). The slope sought is the lower hull's across i. It
    is the tangent from a point before i to the moved ones; the point stays the same until one that
    is passed lies below the tangent (the algorithm 2 of Vovk et al. 2015). The moved point that a
    tangent touches is the last one, or one after which shares rise: a corner.

    Args:
        weight: the weights of the rows' scores.
        positive: the weights of their rows of class 1.
        corner_weight: the sums of weights up to each corner; those of a problem begin with 0.
        corner_positive: the same for class 1.
        place: the number of scores of all problems up to each corner.
        corners: the first corner of each problem, and the number of all.
        problems: the number of problems.
    """

    def get(x: jax.Array, i: jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(x, i, keepdims=False)

    def put(x: jax.Array, value: jax.Array, i: jax.Array) -> jax.Array:
        return lax.dynamic_update_index_in_dim(x, value, i, 0)

    def slope(point: tuple[jax.Array, jax.Array], j: jax.Array, moved: float) -> jax.Array:
        """From a point to corner j, which is moved."""
        rise = get(corner_positive, j) - point[1] + moved
        return rise / (get(corner_weight, j) - point[0] + moved)

    def corner(j: jax.Array) -> tuple[jax.Array, jax.Array]:
        return get(corner_weight, j), get(corner_positive, j)

    def chain(begin: jax.Array, end: jax.Array, after: jax.Array) -> jax.Array:
        """The next corner of the lower hull of the points from each corner on."""

        def next_corner(n: jax.Array, after: jax.Array) -> jax.Array:
            i = end - 1 - n
            from_i = corner(i)

            def above(j: jax.Array) -> jax.Array:
                onward = get(after, j)
                return (j < end) & (slope(from_i, j, 0.0) >= slope(corner(j), onward, 0.0))

            return put(after, lax.while_loop(above, lambda j: get(after, j), i + 1), i)

        return lax.fori_loop(0, end - begin, next_corner, put(after, end, end))

    def problem(k: jax.Array, both: tuple[jax.Array, jax.Array]) -> Any:
        after, slopes = both
        begin, end = get(corners, k), get(corners, k + 1) - 1
        after = chain(begin, end, after)

        def tangent(
            point: tuple[jax.Array, jax.Array], j: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            """The least slope from a point to the moved corners from j on, and the corner of it."""

            def steeper(j: jax.Array) -> jax.Array:
                return (j < end) & (slope(point, get(after, j), 1.0) < slope(point, j, 1.0))

            j = lax.while_loop(steeper, lambda j: get(after, j), j)
            return slope(point, j, 1.0), j

        def next_place(i: jax.Array, state: Any) -> Any:
            """`last` is the last corner up to place i, `point` the point there."""
            slopes, last, point, origin, steepness, touched = state
            is_first, onward = i == get(place, begin), jnp.minimum(last + 1, end)
            passed = (last < onward) & (i == get(place, onward))
            last = jnp.where(passed, onward, last)
            on_corner, row = passed | is_first, jnp.maximum(i - 1, 0)
            row_point = point[0] + get(weight, row), point[1] + get(positive, row)
            point = tuple(
                jnp.where(on_corner, x, y) for x, y in zip(corner(last), row_point, strict=True)
            )
            line = origin[1] + (point[0] - origin[0]) * steepness
            # The touched corner is below by less than the row's weight, which sums of large weights
            # round away.
            below = is_first | (point[1] < line) | (passed & (last == touched))
            steepness, touched = lax.cond(
                below,
                lambda: tangent(point, jnp.minimum(last + 1, end)),
                lambda: (steepness, touched),
            )
            origin = tuple(jnp.where(below, x, y) for x, y in zip(point, origin, strict=True))
            return put(slopes, steepness, i + k), last, point, origin, steepness, touched

        zero = jnp.zeros((), weight.dtype)
        state = slopes, begin, (zero, zero), (zero, zero), zero, begin
        slopes = lax.fori_loop(get(place, begin), get(place, end) + 1, next_place, state)[0]
        return after, slopes

    start = jnp.zeros(place.shape, place.dtype), jnp.zeros_like(weight)
    return lax.fori_loop(0, problems, problem, start)[1]


@xla.jit
def _slopes(*columns: jax.Array) -> jax.Array:
    """`_slopes_of` as a program."""
    return _slopes_of(*columns)
