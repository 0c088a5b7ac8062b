"""Fits of earlier rows and of new ones together, whose prior the earlier ones are."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.ids import join
from platt_jax.ids.factorize import ascending
from platt_jax.inference.priors import prior_from
from platt_jax.model.objective import Array
from platt_jax.results.calibrators import SegmentCalibrator
from platt_jax.results.fit import Fit
from platt_jax.results.population import Population
from platt_jax.status import Flag

# A matrix is as good as singular where less of it is left by rounding.
_ROUNDING = 64 * np.finfo(float).eps


def remembered(calibrator: SegmentCalibrator, forgetting: float) -> Fit:
    """The fits as they are without new rows."""
    old = jax.tree.map(np.asarray, calibrator.fit)
    prior = prior_from(calibrator, forgetting=forgetting)
    covariance = old.covariance / forgetting
    if calibrator.population is not None and calibrator.population.estimated:
        covariance = np.linalg.inv(prior.precision)
    nothing = np.zeros_like(old.iterations)
    forgotten = replace(
        old,
        A=prior.mean[:, 0],
        B=prior.mean[:, 1],
        hessian=prior.precision,
        covariance=covariance,
        gradient=np.zeros_like(old.gradient),
        nll=np.zeros_like(old.nll),
        iterations=nothing,
        passes=nothing,
        n_pos=forgetting * old.n_pos,
        n_neg=forgetting * old.n_neg,
    )
    return chosen(np.asarray(old.converged), forgotten, old)


def with_earlier(
    new: Fit, earlier: Fit, known: NDArray[np.bool_], population: Population | None
) -> Fit:
    """The new fits, with counts and flags of their rows and of those that their prior stands for.

    Args:
        new: (J,) fits.
        earlier: (J,) what was remembered of their segments.
        known: (J,) whether anything was.
        population: which the priors hold besides, if there is one.
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
    """Flags with this one where it is up, and without it elsewhere."""
    return np.where(up, flags | flag, flags & ~flag).astype(flags.dtype)


def _is_singular(matrices: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    """Whether precisions (..., 2, 2) of (A, B) leave a direction undetermined, in any unit."""
    (a, b), (c, d) = np.moveaxis(matrices, (-2, -1), (0, 1))
    singular: NDArray[np.bool_] = a * d - b * c <= tolerance * np.abs(a * d)
    return singular


def joined(
    old_keys: NDArray[Any],
    old: Fit,
    new_keys: NDArray[Any],
    new: Fit,
    place: NDArray[Any],
    kept: NDArray[np.bool_],
) -> tuple[NDArray[Any], Fit]:
    """The segments of both, ascending, and their fits: the new one where there is one to take.

    Args:
        old_keys: (K,) segments.
        old: their fits.
        new_keys: (J,) segments.
        new: their fits.
        place: (J,) where these are among the old ones; -1 for those that are not.
        kept: (J,) whether they keep their old fit.
    """
    seen = place >= 0
    renewed = seen & ~kept
    keys, order = ascending(join([old_keys, new_keys[~seen]]))

    def both(of_old: NDArray[Any], of_new: NDArray[Any]) -> NDArray[Any]:
        together = np.concatenate([of_old, of_new[~seen].astype(of_old.dtype)])
        together[place[renewed]] = of_new[renewed]
        ordered = np.empty_like(together)
        ordered[order] = together
        return ordered

    return keys, jax.tree.map(both, old, new)


def moved(fit: Fit, population: Population) -> tuple[Fit, Population]:
    """The population with the mean that its segments have by now, and their fits under it.

    With P the precision and m the mean of what a segment's rows say of its (A, B), m is normal
    around the population's mean with covariance P^-1 + S, where S is the population's covariance.
    """
    if not population.estimated:
        return fit, Population.not_estimated(len(fit.A))
    S, usable = population.covariance, np.asarray(fit.converged)
    theta = np.stack([fit.A, fit.B], -1).astype(float)
    of_population = np.linalg.inv(S)
    own = np.where(usable[:, None, None], fit.hessian - of_population, 0)
    weight = np.linalg.solve(np.eye(2) + own @ S, own)
    information = np.where(
        usable[:, None], _times(fit.hessian, theta) - of_population @ population.mean, 0
    )
    pull = np.linalg.solve(np.eye(2) + own @ S, information[..., None])[..., 0]
    if _is_singular(weight.sum(0), _ROUNDING):  # the rows tell nothing of it
        mean, mean_covariance = population.mean, population.mean_covariance
    else:
        mean_covariance = np.linalg.inv(weight.sum(0))
        mean = mean_covariance @ pull.sum(0)
    shift = np.linalg.solve(of_population + own, of_population @ (mean - population.mean))
    theta = theta + shift
    fit = replace(fit, A=theta[:, 0].astype(fit.A.dtype), B=theta[:, 1].astype(fit.B.dtype))
    covariance = np.where(usable[:, None, None], fit.covariance, S)
    left = np.trace(np.linalg.solve(S, covariance), axis1=1, axis2=2) / 2
    return fit, replace(
        population,
        mean=mean,
        mean_covariance=mean_covariance,
        posterior_mean=theta,
        posterior_covariance=covariance,
        shrinkage=np.clip(left, 0, 1),
    )


def _times(matrices: Array, vectors: NDArray[np.float64]) -> Array:
    return (matrices @ vectors[..., None])[..., 0]


def chosen(condition: NDArray[np.bool_], one: Fit, other: Fit) -> Fit:
    """The fits of one where the condition holds, else those of the other."""

    def choose(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
        return np.where(condition.reshape(-1, *(1,) * (np.ndim(x) - 1)), x, y).astype(y.dtype)

    made: Fit = jax.tree.map(choose, one, other)
    return made
