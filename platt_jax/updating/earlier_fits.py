"""Earlier fits and new ones: how far curves move between them, and how both are joined.

A walk is the prediction step of Kalman's filter (1960).
"""

from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.ids import join
from platt_jax.ids.factorize import ascending
from platt_jax.model.objective import Array, EarlierCounts
from platt_jax.model.prior import with_target_of
from platt_jax.population.levels import times
from platt_jax.population.likelihoods import Likelihoods
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.status import Flag

Made = TypeVar("Made")


class Walk(NamedTuple):
    """The move of a segment's (A, B) between two updates.

    Its deviation from the population's mean becomes `share` times the deviation plus
    Normal(0, noise). This is a random walk if the share is 1.
    """

    noise: Floats  # (2, 2)
    share: float = 1.0

    def moved_precision(self, precision: Floats) -> Floats:
        """(..., 2, 2), the precisions after a random walk; they may be singular."""
        if not self.noise.any():
            return precision
        moved = np.linalg.solve(np.eye(2) + precision @ self.noise, precision)
        # In the dtype of the precision, which says how it was rounded.
        return ((moved + np.swapaxes(moved, -1, -2)) / 2).astype(precision.dtype)

    def moved_likelihoods(
        self, likelihoods: Likelihoods, mean: Floats, covariance: Floats
    ) -> Likelihoods:
        """The likelihoods (K,) of the (A, B) after the move, from the likelihoods before.

        A segment has the posterior N(m + d, C) before and N(m + share d, share^2 C + noise) after,
        where the population has N(m, S) and N(m, share^2 S + noise). The likelihood after is the
        one that gives the posterior after. Where (A, B) have moved far in comparison with S, the
        (A, B) before lie nearer to the mean than after; a likelihood without a population
        would leave the spread too small.
        """
        if self.share == 1 and not self.noise.any():
            return likelihoods
        to = likelihoods.coordinates(likelihoods.total).matrix
        transformed = likelihoods.transformed(to)
        m, S, noise = to @ mean, to @ covariance @ to.T, to @ self.noise @ to.T
        P, c = transformed.precision.matrices, self.share
        C = np.linalg.inv(np.linalg.inv(S) + P)
        prior_precision, own_precision = (np.linalg.inv(c**2 * X + noise) for X in (S, C))
        # The difference of both inverses, without cancellation: S - C = S P C.
        precision = c**2 * prior_precision @ S @ P @ C @ own_precision
        precision = (precision + np.swapaxes(precision, -1, -2)) / 2
        pull = c * times(own_precision @ C, transformed.pull - P @ m) + precision @ m
        return Likelihoods.from_arrays(precision, pull).transformed(np.linalg.inv(to))


def with_targets_of_kept_rows(fit: Fit, forgetting: float) -> Fit:
    """The fits before rows are forgotten, with Platt's targets of those that are kept."""
    arrays: Fit = jax.tree.map(np.asarray, fit)
    counts: Any = arrays.n_pos, arrays.n_neg
    number = forgetting * sum(counts)
    change, factor = with_target_of(number, EarlierCounts(*counts), arrays.hessian[..., 1, 1])
    factor = factor[..., None, None]
    hessian, covariance = arrays.hessian * factor, arrays.covariance / factor
    changed = replace(arrays, B=arrays.B + change, hessian=hessian, covariance=covariance)
    return chosen(np.asarray(arrays.converged), changed, arrays)


def remembered(calibrator: SegmentCalibrator, forgetting: float, walk: Walk) -> Fit:
    """The earlier fits, discounted by `forgetting`, after a walk."""
    old, dtype = jax.tree.map(np.asarray, calibrator.fit), calibrator.fit.A.dtype
    nothing = np.zeros_like(old.iterations)
    forgotten = replace(
        old,
        hessian=walk.moved_precision(forgetting * old.hessian).astype(dtype),
        covariance=(old.covariance / forgetting + walk.noise).astype(dtype),
        gradient=np.zeros_like(old.gradient),
        nll=np.zeros_like(old.nll),
        iterations=nothing,
        passes=nothing,
        n_pos=forgetting * old.n_pos,
        n_neg=forgetting * old.n_neg,
    )
    return chosen(np.asarray(old.converged), forgotten, old)


def with_earlier(new: Fit, earlier: Fit, known: Bools, population: Population | None) -> Fit:
    """The new fits, with counts and flags that include the earlier rows of the `known` segments.

    The population is the one in the priors, if there is one.
    """
    n_pos = new.n_pos + np.where(known, earlier.n_pos, 0)
    n_neg = new.n_neg + np.where(known, earlier.n_neg, 0)
    one_class = (n_pos > 0) != (n_neg > 0)

    def flagged(flag: Flag) -> tuple[Any, Any]:
        return earlier.flags & flag != 0, new.flags & flag != 0

    information: Any = new.hessian.astype(float)
    if population is not None and population.estimated:
        information = information - population.prior.precision
    same_score = _is_singular(information, np.sqrt(np.finfo(new.hessian.dtype).eps))
    outlier, new_outlier = flagged(Flag.OUTLIER)
    # Few rows outweigh many if they are far out: then they determine the slope.
    outweighed = new.n_pos + new.n_neg >= earlier.n_pos + earlier.n_neg
    outweighed |= 2 * new.covariance[..., 0, 0] <= earlier.covariance[..., 0, 0]
    flags = new.flags
    for flag, up in (
        (Flag.ONE_CLASS, one_class),
        (Flag.SEPARABLE, np.all(flagged(Flag.SEPARABLE), axis=0)),
        (Flag.CONSTANT_SCORES, np.all(flagged(Flag.CONSTANT_SCORES), axis=0) & same_score),
        (Flag.OUTLIER, outlier | (new_outlier & outweighed)),
    ):
        flags = raised(flags, flag, up)
    had_rows = known & (earlier.n_pos + earlier.n_neg > 0)
    return replace(new, n_pos=n_pos, n_neg=n_neg, flags=np.where(had_rows, flags, new.flags))


def raised(flags: Array, flag: Flag, up: Any) -> NDArray[Any]:
    """Flags with this one set where `up` holds, and cleared elsewhere."""
    return np.where(up, flags | flag, flags & ~flag).astype(flags.dtype)


def _is_singular(matrices: NDArray[Any], tolerance: float) -> Bools:
    """Whether precisions (..., 2, 2) of (A, B) are singular, in any unit of the scores."""
    # Products of large entries overflow.
    unit = np.sqrt(np.abs(np.diagonal(matrices, axis1=-2, axis2=-1)))
    unit = np.where(unit > 0, unit, 1)
    scaled = matrices / unit[..., None] / unit[..., None, :]
    (a, b), (c, d) = np.moveaxis(scaled, (-2, -1), (0, 1))
    return a * d - b * c <= tolerance * np.abs(a * d)


def joined(
    old_keys: NDArray[Any],
    old: Made,
    new_keys: NDArray[Any],
    new: Made,
    place: NDArray[Any],
    kept: Bools,
) -> tuple[NDArray[Any], Made]:
    """The segments of both, ascending, with new values where a segment has them, else old ones.

    Both are arrays with a leading axis, in one structure. `place` (J,) is the index of each new key
    among the old ones, -1 if it is not there; a segment that is `kept` keeps its old values.
    """
    common = place >= 0
    renewed = common & ~kept
    keys, order = ascending(join([old_keys, new_keys[~common]]))

    def merged(earlier_values: NDArray[Any], new_values: NDArray[Any]) -> NDArray[Any]:
        column = np.concatenate([earlier_values, new_values[~common].astype(earlier_values.dtype)])
        column[place[renewed]] = new_values[renewed]
        ordered = np.empty_like(column)
        ordered[order] = column
        return ordered

    values: Made = jax.tree.map(merged, old, new)
    return keys, values


def placed(fits: Fit, at: Integers, some: Fit) -> Fit:
    """The fits with the fits of `some` at these places."""

    def put(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        column = np.array(old)
        column[at] = new
        return column

    result: Fit = jax.tree.map(put, fits, some)
    return result


def chosen(condition: Bools, one: Fit, other: Fit) -> Fit:
    """The fits of `one` where the condition holds, else the fits of `other`."""

    def choose(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.where(condition.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y).astype(y.dtype)

    return jax.tree.map(choose, one, other)
