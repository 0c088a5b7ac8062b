"""Fits of new rows, with earlier fits as their priors, joined with those earlier fits."""

from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Integers
from platt_jax.ids import join
from platt_jax.ids.factorize import ascending
from platt_jax.model.objective import Array
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.status import Flag
from platt_jax.updating.walks import Walk

Made = TypeVar("Made")


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
    """The new fits, with counts and flags that include the earlier rows.

    Args:
        new: (J,) fits of new rows.
        earlier: (J,) earlier fits of the same segments.
        known: (J,) whether there is an earlier fit.
        population: the population in the priors, if there is one.
    """
    n_pos = new.n_pos + np.where(known, earlier.n_pos, 0)
    n_neg = new.n_neg + np.where(known, earlier.n_neg, 0)
    one_class = (n_pos > 0) != (n_neg > 0)

    def flagged(flag: Flag) -> tuple[Any, Any]:
        return earlier.flags & flag != 0, new.flags & flag != 0

    own: Any = new.hessian.astype(float)
    if population is not None and population.estimated:
        own = own - population.prior.precision
    same_score = _is_singular(own, np.sqrt(np.finfo(new.hessian.dtype).eps))
    far, new_far = flagged(Flag.OUTLIER)
    outweighed = new.n_pos + new.n_neg >= earlier.n_pos + earlier.n_neg
    flags = new.flags
    for flag, up in (
        (Flag.ONE_CLASS, one_class),
        (Flag.SEPARABLE, np.all(flagged(Flag.SEPARABLE), axis=0)),
        (Flag.CONSTANT_SCORES, np.all(flagged(Flag.CONSTANT_SCORES), axis=0) & same_score),
        (Flag.OUTLIER, far | (new_far & outweighed)),
    ):
        flags = raised(flags, flag, up)
    return replace(new, n_pos=n_pos, n_neg=n_neg, flags=np.where(known, flags, new.flags))


def raised(flags: Array, flag: Flag, up: Any) -> NDArray[Any]:
    """Flags with this one set where `up` holds, and cleared elsewhere."""
    return np.where(up, flags | flag, flags & ~flag).astype(flags.dtype)


def _is_singular(matrices: NDArray[Any], tolerance: float) -> Bools:
    """Whether precisions (..., 2, 2) of (A, B) are singular, in any unit of the scores."""
    (a, b), (c, d) = np.moveaxis(matrices, (-2, -1), (0, 1))
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

    Args:
        old_keys: (K,) segment ids.
        old: arrays with leading axis K, in any structure.
        new_keys: (J,) segment ids.
        new: arrays with leading axis J, in the same structure.
        place: (J,) index of each new key among the old ones; -1 if it is not there.
        kept: (J,) whether the segment keeps its old values.
    """
    seen = place >= 0
    renewed = seen & ~kept
    keys, order = ascending(join([old_keys, new_keys[~seen]]))

    def both(earlier_values: NDArray[Any], new_values: NDArray[Any]) -> NDArray[Any]:
        together = np.concatenate([earlier_values, new_values[~seen].astype(earlier_values.dtype)])
        together[place[renewed]] = new_values[renewed]
        ordered = np.empty_like(together)
        ordered[order] = together
        return ordered

    made: Made = jax.tree.map(both, old, new)
    return keys, made


def placed(fits: Fit, at: Integers, some: Fit) -> Fit:
    """The fits with those of `some` at these places."""

    def place(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        together = np.array(old)
        together[at] = new
        return together

    made: Fit = jax.tree.map(place, fits, some)
    return made


def chosen(condition: Bools, one: Fit, other: Fit) -> Fit:
    """The fits of `one` where the condition holds, else those of `other`."""

    def choose(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.where(condition.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y).astype(y.dtype)

    return jax.tree.map(choose, one, other)
